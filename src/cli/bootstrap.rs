//! `nodevigil bootstrap`: the progress of this node from boot to Ready. Works without the agent.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::{Instant, sleep};

use super::{BAD, GOOD, Output, UNKNOWN, block_on, complain, duration, print, settings_in_effect};
use crate::facts::NodeAnswer;
use crate::host::bootstrap::HostFacts;
use crate::host::clock::Now;
use crate::host::credential::Credential;
use crate::monitor::bootstrap::assess::{Assessment, StageReport, assess};
use crate::monitor::bootstrap::observed::Facts;
use crate::monitor::bootstrap::stage::Progress;
use crate::publish::{ObservedNode, connect_with, describe};
use crate::report::table;
use crate::settings::Settings;

const READ_EVERY: Duration = Duration::from_secs(3);

/// Show the progress of this node from boot to Ready, and why a stage is stuck
///
/// Reads the state of systemd units, cloud-init's status, the kubelet's /healthz, and the Node with the kubelet's credential.
/// Changes nothing. Works without the agent. Needs root.
///
/// Exit code: 0 the node is ready; 1 a stage is late or has failed, the deadline has passed, or the command failed; 2 the node is not ready yet and the deadline has not passed, or its stage is unknown.
#[derive(Debug, clap::Args)]
pub struct Bootstrap {
    /// Wait until the node is ready, at most this long, such as 90s or 10m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<Duration>,
    /// Print a table, or JSON
    #[arg(short, long, default_value = "text")]
    output: Output,
}

impl Bootstrap {
    pub fn run(self) -> anyhow::Result<u8> {
        ensure!(rustix::process::geteuid().is_root(), "bootstrap needs root: run it with sudo");
        let assessment = block_on("waiting for the node", self.watch(&settings_in_effect()))?;
        print(&self.output.render(&assessment, || text(&assessment))?)?;
        Ok(exit_code(&assessment, self.deadline.is_some()))
    }

    /// Reads the state once; with a deadline, until the node is ready or the deadline has passed.
    async fn watch(&self, settings: &Settings) -> Assessment {
        let (started, mut shown) = (Instant::now(), None);
        loop {
            let assessment = observe(settings).await;
            let left = self.deadline.unwrap_or_default().saturating_sub(started.elapsed());
            let Some(current) = assessment.current().filter(|_| !left.is_zero()) else { return assessment };
            let state = Some((current.stage, current.state.status));
            if shown != state {
                shown = state;
                let (stage, state) = (current.stage.name(), &current.state);
                complain(&format!("stage {stage} ({:?}): {}", state.status, state.message));
            }
            sleep(READ_EVERY.min(left)).await;
        }
    }
}

async fn observe(settings: &Settings) -> Assessment {
    let host = HostFacts::read(settings).await;
    let kubelet = host.files.kubelet.as_ref();
    let name = settings.kubernetes.node_name.clone().or(kubelet.map(|kubelet| kubelet.node_name.clone()));
    // With the kubelet's credential, because the question is whether the kubelet can join.
    let kubeconfig = match &host.files.credential {
        Credential::Bootstrap { file } => Some(file.clone()),
        Credential::Missing => None,
        _ => kubelet.and_then(|kubelet| kubelet.kubeconfig.clone()),
    };
    let node = match (&name, kubeconfig) {
        (Some(name), Some(path)) => read_node(path, name).await,
        (None, _) => NodeAnswer::NotAsked("the Node's name is not known".into()),
        (_, None) => NodeAnswer::NotAsked("the kubelet has no credential yet".into()),
    };
    assess(&Facts { host, node, now: Now::read(None) })
}

/// Asks the API server once for the Node of that name, with the credential in `kubeconfig`.
async fn read_node(kubeconfig: PathBuf, name: &str) -> NodeAnswer {
    let client = match connect_with(kubeconfig, name).await {
        Ok(client) => client,
        Err(error) => return NodeAnswer::NotAsked(redact::sanitize_line(&format!("{error:#}"), 500)),
    };
    match Api::<Node>::all(client).get_opt(name).await {
        Ok(node) => match node.and_then(ObservedNode::read) {
            Some(node) => NodeAnswer::Node(Box::new(node.facts)),
            None => NodeAnswer::NoNode(name.to_owned()),
        },
        Err(kube::Error::Api(status)) => {
            NodeAnswer::Refused { http_status: status.code, message: redact::sanitize_line(&status.message, 300) }
        }
        Err(error) => NodeAnswer::Unreached(describe(&error)),
    }
}

fn exit_code(assessment: &Assessment, has_waited: bool) -> u8 {
    match assessment.current().map(|current| current.state.status) {
        None => GOOD,
        Some(Progress::Unknown) => UNKNOWN,
        Some(Progress::Late | Progress::Failed) => BAD,
        Some(_) if has_waited => BAD,
        Some(_) => UNKNOWN,
    }
}

fn text(assessment: &Assessment) -> String {
    let row = |report: &StageReport| {
        let age = report.age_secs.map_or_else(|| "-".to_owned(), |secs| table::age(SignedDuration::from_secs(secs)));
        let status = format!("{:?}", report.state.status);
        ([report.stage.name().to_owned(), status, age, redact::escape_controls(&report.state.message)], "")
    };
    let table = table::text(["STAGE", "STATUS", "AGE", "MESSAGE"], assessment.stages.iter().map(row));
    let current = assessment.current().filter(|current| !current.state.advice.is_empty());
    let advice = current.map(|current| format!("\nWhat to do: {}\n", redact::escape_controls(&current.state.advice)));
    table + &advice.unwrap_or_default()
}
