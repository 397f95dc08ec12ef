//! `nodevigil cleanup`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::timeout;

use super::removal::{self, Removed};
use super::{GOOD, block_on, complain, print, settings_in_effect};
use crate::files;
use crate::host::kubelet::KubeletFacts;
use crate::publish::connect_once;
use crate::report::status::{self, StatusReport};

/// The time for all requests: a package manager may wait for the command.
const DEADLINE: Duration = Duration::from_secs(15);
/// The same for all Nodes of a cluster; `helm uninstall` waits five minutes.
const ALL_DEADLINE: Duration = Duration::from_mins(4);

/// Remove nodevigil's conditions and taints from the Node, to uninstall nodevigil
///
/// Changes nothing else on the Node. Stop the agent first (systemctl disable --now nodevigil): it would publish them again, so the command
/// fails while the agent is running.
///
/// Exit code: 0 the Node has no conditions or taints of nodevigil, 1 some may remain.
#[derive(Debug, clap::Args)]
pub struct Cleanup {
    /// The Node's name [default: the name that the agent last used]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Clean up every Node of the cluster, as `helm uninstall` does. Needs an identity that may list and patch all Nodes. If it fails, run it again: it continues with the Nodes that remain
    #[arg(long, conflicts_with = "node")]
    all_nodes: bool,
}

impl Cleanup {
    pub fn run(self) -> anyhow::Result<u8> {
        let report = StatusReport::read(Path::new(status::PATH)).ok();
        if let Some(pid) = report.as_ref().map(|report| report.pid).filter(|pid| is_agent(*pid)) {
            bail!(
                "the agent is running (pid {pid}) and would publish its conditions again; stop it first: systemctl disable --now nodevigil, or \
                 delete the DaemonSet nodevigil"
            );
        }
        let mut settings = settings_in_effect().kubernetes;
        let kubelet_pid = report.as_ref().and_then(|report| report.kubelet.pid).and_then(|pid| i32::try_from(pid).ok());
        let kubelet = kubelet_pid.and_then(|pid| KubeletFacts::read(pid).ok());
        let kubelet = kubelet.or_else(|| KubeletFacts::read_files().ok()).unwrap_or_else(KubeletFacts::usual);
        let last = report.map(|report| report.node).filter(|name| !name.is_empty());
        settings.node_name = self.node.clone().or(settings.node_name).or(last);
        let deadline = if self.all_nodes { ALL_DEADLINE } else { DEADLINE };
        let work = async {
            let session = connect_once(&settings, kubelet).await?;
            let nodes = Api::all(session.client);
            let done = if self.all_nodes { clean_all(&nodes).await } else { clean(&nodes, &session.node_name).await };
            done.with_context(|| session.source.to_string())
        };
        let done = block_on("waiting for the API server", async { timeout(deadline, work).await })?;
        let late = || format!("not everything was cleaned up within {} s; run the command again", deadline.as_secs());
        done.with_context(late)??;
        Ok(GOOD)
    }
}

async fn clean(nodes: &Api<Node>, name: &str) -> anyhow::Result<()> {
    let removed = removal::from_one(nodes, name).await.with_context(|| format!("Node {name}"))?;
    print(&describe(name, removed.as_ref()))
}

async fn clean_all(nodes: &Api<Node>) -> anyhow::Result<()> {
    let mut is_clean = true;
    let removed = |name: &str, removed: &Removed| {
        is_clean = false;
        // The reader may have closed the pipe. The other Nodes are still cleaned up.
        print(&describe(name, Some(removed))).ok();
    };
    removal::from_all(nodes, removed, |progress| complain(&progress.to_string())).await?;
    if is_clean { print("no Node has conditions or taints of nodevigil\n") } else { Ok(()) }
}

/// Whether the agent that wrote status.json is still running.
fn is_agent(pid: u32) -> bool {
    let name = files::read(Path::new(&format!("/proc/{pid}/comm")), 64);
    pid != std::process::id() && name.is_ok_and(|name| name.trim_end() == "nodevigil")
}

fn describe(node: &str, removed: Option<&Removed>) -> String {
    let Some(Removed { conditions, taints }) = removed else { return format!("there is no Node {node}\n") };
    if conditions.is_empty() && taints.is_empty() {
        return format!("Node {node} has no conditions or taints of nodevigil\n");
    }
    let list = |what: &str, names: &[String]| (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")));
    let all: Vec<_> = [list("conditions", conditions), list("taints", taints)].into_iter().flatten().collect();
    format!("Node {node}: removed {}\n", all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_what_was_removed() {
        assert_eq!(describe("n1", None), "there is no Node n1\n");
        assert_eq!(describe("n1", Some(&Removed::default())), "Node n1 has no conditions or taints of nodevigil\n");
        let mut removed = Removed { conditions: vec!["A".into(), "B".into()], taints: vec!["c".into()] };
        assert_eq!(describe("n1", Some(&removed)), "Node n1: removed conditions A, B; taints c\n");
        removed.conditions.clear();
        assert_eq!(describe("n1", Some(&removed)), "Node n1: removed taints c\n");
    }
}
