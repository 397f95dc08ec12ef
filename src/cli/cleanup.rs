//! `nodevigil cleanup`: takes off the Node what we put there. For whoever uninstalls, or turns a check off for good.
#![expect(
    clippy::disallowed_methods,
    reason = "a subcommand reads the environment for itself"
)]

use std::{env, io, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow};

use super::{daemon, pause::duration, status::print};
use crate::{
    cluster::{
        api::{Api, ApiError, Cleaned, STANDING_DOWN, Stuck},
        identity::{self, Identity, IdentityError, Sources},
    },
    config::{self, Settings},
    desired::{
        TYPES,
        taints::{DEFAULT_PREFIX, Rules},
    },
    host::{files::Root, helper::HelperClient},
    ledger,
    status::{self, StatusFile},
};

/// Take nodevigil's conditions, annotation and taints off the Node
///
/// Nothing else on the Node is touched. Stop the daemon first: it would put them back.
///
/// Exit code: 0 nothing of nodevigil's is on the Node (or there is no Node), 1 could not; then it says what is left and how to
/// remove it with kubectl.
#[derive(Debug, Clone, clap::Args)]
pub struct Cleanup {
    /// The Node's name [default: the daemon's]
    #[arg(long, value_name = "NAME", value_parser = config::node_name)]
    node: Option<String>,
    /// Give up after this time
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    timeout: Duration,
    /// Read this file, or the *.toml of this folder, instead of the default places; may be given again
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Vec<PathBuf>,
    /// The kubeconfig to use [default: the daemon's identity]
    #[arg(long, value_name = "FILE", value_parser = config::absolute_path)]
    kubeconfig: Option<PathBuf>,
    /// The daemon's runtime directory.
    #[arg(long, value_name = "DIR", hide = true)]
    dir: Option<PathBuf>,
}

/// Why it is not clean.
enum Failure {
    TimedOut(Duration),
    Identity(IdentityError),
    Stuck(Identity, Stuck),
}

impl Cleanup {
    /// Cleans up.
    ///
    /// # Errors
    /// When it cannot begin.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let root = Root::default();
        let dir = self
            .dir
            .clone()
            .unwrap_or_else(|| status::runtime_dir(env::var_os("RUNTIME_DIRECTORY").as_deref()));
        let (settings, _) = config::load(&root, &self.config)?;
        let own = own_node(&root, &dir, &settings)?;
        let node = self.node.clone().unwrap_or_else(|| own.clone());
        if node == own
            && let Some(pid) = daemon::pid(&root, &dir)
        {
            return Err(anyhow!(
                "the daemon runs (pid {pid}) and would put everything back; stop it first: systemctl disable --now \
                 nodevigil.service"
            ));
        }
        let sources = Sources {
            explicit: self.kubeconfig.or(settings.kubernetes.kubeconfig),
            default: PathBuf::from(identity::DEFAULT_KUBECONFIG),
            root: root.clone(),
            kubelets: settings.kubernetes.kubelet_identity,
            helper: HelperClient::default(),
            keeps_note: false,
            timer: None,
        };
        match clean(sources, &node, &settings.taints, self.timeout)? {
            Ok(cleaned) => {
                if node == own {
                    // Else the daemon, started again one day, would take up where the Node is no more.
                    ledger::Place::new(root, &dir).remove()?;
                }
                print(&mut io::stdout().lock(), &say(&node, cleaned.as_ref()))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => {
                print(&mut io::stderr().lock(), &explain(&node, &failure))?;
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

/// The Node that the daemon of this host speaks of.
fn own_node(root: &Root, dir: &std::path::Path, settings: &Settings) -> anyhow::Result<String> {
    let configured = settings.node.name.clone();
    let told = || StatusFile::read(root, dir).ok()?.node;
    if let Some(name) = configured.or_else(told) {
        return Ok(name);
    }
    let hostname = nix::unistd::gethostname().context("read the host's name")?;
    Ok(hostname.to_string_lossy().to_ascii_lowercase())
}

fn clean(
    sources: Sources,
    node: &str,
    rules: &Rules,
    limit: Duration,
) -> anyhow::Result<Result<Option<Cleaned>, Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the event loop")?;
    let done = runtime.block_on(async {
        let cleaning = async {
            let found = identity::find(sources).await;
            let (identity, connection) = found.map_err(Failure::Identity)?;
            let cleaned = Api::new(connection, node).clean(rules).await;
            cleaned.map_err(|stuck| Failure::Stuck(identity, stuck))
        };
        let ended = tokio::time::timeout(limit, cleaning).await;
        ended.unwrap_or(Err(Failure::TimedOut(limit)))
    });
    // A disk that hangs must not keep us from ending.
    runtime.shutdown_background();
    Ok(done)
}

fn say(node: &str, cleaned: Option<&Cleaned>) -> String {
    let Some(cleaned) = cleaned else {
        return format!("there is no Node {node}: nothing to clean up\n");
    };
    match removed(cleaned) {
        Some(what) => format!("Node {node}: removed {what}\n"),
        None => format!("Node {node}: nothing of nodevigil's is on it\n"),
    }
}

fn removed(cleaned: &Cleaned) -> Option<String> {
    let mut parts = Vec::new();
    if !cleaned.conditions.is_empty() {
        parts.push(format!("the conditions {}", cleaned.conditions.join(", ")));
    }
    if cleaned.annotation {
        parts.push(format!("the annotation {STANDING_DOWN}"));
    }
    if !cleaned.taints.is_empty() {
        parts.push(format!("the taints {}", cleaned.taints.join(", ")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn explain(node: &str, failure: &Failure) -> String {
    let why = match failure {
        Failure::TimedOut(limit) => format!("no success within {} s", limit.as_secs_f64()),
        Failure::Identity(error) => error.to_string(),
        Failure::Stuck(identity, stuck) => because(identity, &stuck.error),
    };
    let stuck = match failure {
        Failure::Stuck(_, stuck) => Some(stuck),
        _ => None,
    };
    let done = stuck.and_then(|stuck| removed(&stuck.done));
    let done = done.map(|what| format!("removed: {what}\n"));
    format!(
        "error: Node {node} is not clean: {why}\n{}what is left can be removed by an administrator:\n{}",
        done.unwrap_or_default(),
        remedies(node, stuck)
    )
}

fn because(identity: &Identity, error: &ApiError) -> String {
    let hint = match (error, identity) {
        (ApiError::Forbidden(_), Identity::Kubelet(_)) => {
            " (the kubelet's identity may not change taints; give nodevigil one of its own by --kubeconfig)"
        }
        (ApiError::Forbidden(_), _) => {
            " (are packaging/kubernetes/rbac.yaml and, for taints, taints.yaml applied?)"
        }
        _ => "",
    };
    format!("{error}{hint}")
}

/// Commands that take away what may be left.
fn remedies(node: &str, stuck: Option<&Stuck>) -> String {
    let mut lines = Vec::new();
    if stuck.is_none_or(|stuck| stuck.conditions_left) {
        let deletes: Vec<String> = TYPES
            .iter()
            .map(|spec| format!(r#"{{"$patch":"delete","type":"{}"}}"#, spec.name))
            .collect();
        lines.push(format!(
            "kubectl patch node {node} --subresource=status --type=strategic -p '{{\"status\":{{\"conditions\":[{}]}}}}'",
            deletes.join(",")
        ));
        lines.push(format!("kubectl annotate node {node} {STANDING_DOWN}-"));
        lines.push(format!(
            "kubectl taint node {node} KEY- for each taint whose key begins with {DEFAULT_PREFIX}"
        ));
    }
    let taints = stuck
        .map(|stuck| &stuck.taints_left[..])
        .unwrap_or_default();
    lines.extend(
        taints
            .iter()
            .map(|taint| format!("kubectl taint node {node} {taint}-")),
    );
    lines
        .iter()
        .fold(String::new(), |text, line| text + "  " + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_named_with_its_remedy() {
        let stuck = Stuck {
            done: Cleaned {
                conditions: vec!["KubeletHealthy".to_owned()],
                ..Cleaned::default()
            },
            taints_left: vec!["a/nodevigil-x:NoSchedule".to_owned()],
            conditions_left: false,
            error: ApiError::Forbidden("no".to_owned()),
        };
        let text = explain("n1", &Failure::Stuck(Identity::Kubelet("/k".into()), stuck));
        assert!(
            text.contains("kubectl taint node n1 a/nodevigil-x:NoSchedule-"),
            "{text}"
        );
        assert!(
            text.contains("removed: the conditions KubeletHealthy"),
            "{text}"
        );
        assert!(!text.contains("--subresource"), "{text}");
        insta::assert_snapshot!(explain("n1", &Failure::TimedOut(Duration::from_secs(5))));
    }

    #[test]
    fn what_was_done_is_said() {
        assert!(say("n1", None).contains("no Node n1"));
        assert!(say("n1", Some(&Cleaned::default())).contains("nothing of nodevigil's"));
        let cleaned = Cleaned {
            annotation: true,
            taints: vec!["k".to_owned()],
            ..Cleaned::default()
        };
        assert_eq!(
            say("n1", Some(&cleaned)),
            "Node n1: removed the annotation nodevigil.io/standing-down; the taints k\n"
        );
    }
}
