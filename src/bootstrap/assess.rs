//! How far the node is, by one moment's evidence and without a memory.

use super::{
    cause::{self, Cause},
    cloud::{self, Cloud},
    evidence::{
        CloudInit, CredentialSeen, Evidence, HealthzSeen, KubeletRun, NodeSeen, NodeWords,
        RuntimeSeen, ServerSeen, ServingSeen,
    },
    stage::Stage,
};

/// Taints that somebody takes away when the node has started; a name that ends in `/` stands for all that begin so.
const START_UP_TAINTS: &[&str] = &[
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cluster.x-k8s.io/uninitialized",
    "karpenter.sh/unregistered",
    "node.cilium.io/agent-not-ready",
    "ebs.csi.aws.com/agent-not-ready",
    "efs.csi.aws.com/agent-not-ready",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "readiness.k8s.io/",
];

/// How a stage stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is reached: by what that is seen.
    Reached(String),
    /// It is not: what is seen instead.
    Waiting(String),
    /// It could not be looked at: why.
    Unknown(String),
    /// Nothing waits for it: why.
    NotNeeded(String),
}

impl Standing {
    /// What is seen, or why nothing is.
    pub fn words(&self) -> &str {
        match self {
            Self::Reached(words)
            | Self::Waiting(words)
            | Self::Unknown(words)
            | Self::NotNeeded(words) => words,
        }
    }

    /// Whether nothing waits for it any more.
    pub fn is_behind(&self) -> bool {
        matches!(self, Self::Reached(_) | Self::NotNeeded(_))
    }
}

/// How far the node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Each stage, in order.
    pub stages: [Standing; Stage::ALL.len()],
    /// The one stage that is stuck, or on its way; `None` when the node is of use.
    pub stuck: Option<Stage>,
    /// Why most probably, if a cause is known.
    pub cause: Option<Cause>,
}

impl Progress {
    /// Whether the node is of use.
    pub fn is_done(&self) -> bool {
        self.stuck.is_none()
    }

    /// How one stage stands.
    pub fn get(&self, stage: Stage) -> &Standing {
        &self.stages[stage.index()]
    }
}

/// Judges.
pub fn assess(evidence: &Evidence) -> Progress {
    let stages = Stage::ALL.map(|stage| stand(stage, evidence));
    let stuck = stuck(&stages);
    Progress {
        cause: stuck.and_then(|stage| cause::most_probable(stage, evidence)),
        stages,
        stuck,
    }
}

/// The first stage that is not behind us. One that could not be looked at is passed over where a later one on the same way
/// proves it; the serving certificate is waited for by nobody.
fn stuck(stages: &[Standing; Stage::ALL.len()]) -> Option<Stage> {
    let of = |stage: Stage| &stages[stage.index()];
    let proven = |stage: Stage| {
        let later = Stage::ALL.into_iter().filter(|other| *other > stage);
        let mut proofs =
            later.filter(|other| *other <= Stage::Registered || *other == Stage::Ready);
        proofs.any(|other| matches!(of(other), Standing::Reached(_)))
    };
    // cloud-init is no obstacle any more to a kubelet that runs.
    let is_obstacle = |stage: Stage| {
        stage != Stage::CloudInit || !matches!(of(Stage::Kubelet), Standing::Reached(_))
    };
    let waits = Stage::ALL
        .into_iter()
        .filter(|stage| *stage != Stage::Serving);
    let mut waits = waits.filter(|stage| match of(*stage) {
        Standing::Waiting(_) => is_obstacle(*stage),
        Standing::Unknown(_) => !proven(*stage),
        _ => false,
    });
    waits.next()
}

fn stand(stage: Stage, evidence: &Evidence) -> Standing {
    match stage {
        Stage::Instance => Standing::Reached("the machine runs".to_owned()),
        Stage::CloudInit => cloud_init(&evidence.host.cloud_init),
        Stage::Runtime => runtime(&evidence.host.runtime),
        Stage::Kubelet => kubelet(evidence),
        Stage::Tls => credential(evidence),
        Stage::Registered => registered(evidence),
        Stage::CloudController => with_node(evidence, |node| cloud_controller(node, evidence)),
        Stage::Network => network(evidence),
        Stage::Csi => csi(evidence),
        Stage::Ready => with_node(evidence, ready),
        Stage::Serving => match evidence.host.serving {
            ServingSeen::NotWanted => Standing::NotNeeded("the kubelet asks for none".to_owned()),
            ServingSeen::Waits => Standing::Waiting(
                "no kubelet-server-current.pem: its request waits for somebody to approve it"
                    .to_owned(),
            ),
            ServingSeen::Present => {
                Standing::Reached("kubelet-server-current.pem is there".to_owned())
            }
        },
    }
}

fn cloud_init(seen: &CloudInit) -> Standing {
    let failed = |errors: &[String]| match errors.first() {
        Some(first) => format!("; something failed: {first}"),
        None => String::new(),
    };
    match seen {
        CloudInit::Unknown { why } => Standing::Unknown(why.clone()),
        CloudInit::Absent => Standing::NotNeeded("this host has none".to_owned()),
        CloudInit::Running {
            is_last: true,
            errors,
            ..
        } => Standing::Reached(format!(
            "it is in its last stage, which runs the user data's commands{}",
            failed(errors)
        )),
        CloudInit::Running { stage, errors, .. } if stage.is_empty() => {
            Standing::Waiting(format!("it is between two stages{}", failed(errors)))
        }
        CloudInit::Running { stage, errors, .. } => {
            Standing::Waiting(format!("it is in its stage {stage}{}", failed(errors)))
        }
        CloudInit::Finished { errors } => {
            Standing::Reached(format!("it is through{}", failed(errors)))
        }
    }
}

fn runtime(seen: &RuntimeSeen) -> Standing {
    match seen {
        RuntimeSeen::Unknown { why } => Standing::Unknown(why.clone()),
        RuntimeSeen::Answers {
            what,
            not_ready: None,
            ..
        } => Standing::Reached(format!("{what} answers")),
        RuntimeSeen::Answers {
            what,
            not_ready: Some(why),
            ..
        } => Standing::Waiting(format!("{what} answers that it is not ready: {why}")),
        RuntimeSeen::Silent { socket, why, .. } => Standing::Waiting(format!("{socket}: {why}")),
    }
}

fn kubelet(evidence: &Evidence) -> Standing {
    match (&evidence.run, &evidence.healthz) {
        (KubeletRun::Unknown { why }, _) => Standing::Unknown(why.clone()),
        (KubeletRun::Down(unit), _)
            if unit.active != "inactive" && ends_without_credential(evidence) =>
        {
            Standing::Reached("it is started, and ends again for want of a credential".to_owned())
        }
        (KubeletRun::Down(unit), _) => {
            let name = &unit.name;
            Standing::Waiting(match unit.load.as_str() {
                "loaded" | "" => format!("{name} is {} and no kubelet runs", unit.active),
                load => format!("{name} is {load}"),
            })
        }
        (KubeletRun::Runs { .. }, HealthzSeen::Well) => {
            Standing::Reached("it runs and its healthz answers".to_owned())
        }
        (KubeletRun::Runs { .. }, _)
            if matches!(evidence.host.credential, CredentialSeen::Bootstrap { .. }) =>
        {
            Standing::Reached("it runs; it serves healthz once it has its certificate".to_owned())
        }
        (KubeletRun::Runs { .. }, HealthzSeen::Bad(why)) => {
            Standing::Waiting(format!("it runs, and its healthz {why}"))
        }
        (KubeletRun::Runs { .. }, HealthzSeen::Unknown) => {
            Standing::Unknown("it runs; its healthz was not asked".to_owned())
        }
    }
}

/// Whether what the kubelet has to show to the API server explains by itself that it ends: it starts nothing else before it
/// has a certificate.
fn ends_without_credential(evidence: &Evidence) -> bool {
    let is_explained = |rule: &str| !rule.starts_with("AU");
    let findings = &evidence.host.findings;
    if findings
        .iter()
        .any(|one| one.is_fatal && is_explained(&one.rule))
    {
        return false;
    }
    match &evidence.host.credential {
        CredentialSeen::Bootstrap { .. } => matches!(
            evidence.server,
            ServerSeen::Unreachable { .. }
                | ServerSeen::OtherAuthority { .. }
                | ServerSeen::Unauthorized { .. }
        ),
        CredentialSeen::Certificate { .. } => {
            matches!(credential(evidence), Standing::Waiting(_))
        }
        _ => false,
    }
}

fn credential(evidence: &Evidence) -> Standing {
    let now = evidence.wall_secs;
    match &evidence.host.credential {
        CredentialSeen::Unknown { why } => Standing::Unknown(why.clone()),
        CredentialSeen::Missing => {
            Standing::Waiting("no kubeconfig, and none to bootstrap with".to_owned())
        }
        CredentialSeen::Bootstrap { file } => Standing::Waiting(format!(
            "there is {file} to bootstrap with, and no client certificate yet"
        )),
        CredentialSeen::Certificate {
            file,
            not_before_secs,
            ..
        } if *not_before_secs > now => {
            Standing::Waiting(format!("the certificate in {file} is not valid yet"))
        }
        CredentialSeen::Certificate {
            file,
            not_after_secs,
            ..
        } if *not_after_secs <= now => {
            Standing::Waiting(format!("the certificate in {file} has expired"))
        }
        CredentialSeen::Certificate { file, .. } => Standing::Reached(file.clone()),
        CredentialSeen::Other { what } => Standing::Reached(what.clone()),
        CredentialSeen::Bad { why } => Standing::Waiting(why.clone()),
    }
}

fn registered(evidence: &Evidence) -> Standing {
    match &evidence.node {
        NodeSeen::There(node) => Standing::Reached(format!("the Node {} is there", node.name)),
        NodeSeen::Absent { name } => {
            Standing::Waiting(format!("the API server has no Node {name}"))
        }
        NodeSeen::Unknown => Standing::Unknown(match &evidence.server {
            ServerSeen::NotAsked { why } => format!("the API server was not asked: {why}"),
            ServerSeen::Answers => "the API server does not say".to_owned(),
            ServerSeen::Unreachable { server, why } => format!("{server} cannot be reached: {why}"),
            ServerSeen::OtherAuthority { server, why } => {
                format!("{server} is not believed: {why}")
            }
            ServerSeen::Unauthorized { server } => {
                format!("{server} does not accept the credential (401)")
            }
            ServerSeen::Trouble { server, why } => format!("{server}: {why}"),
        }),
    }
}

/// What is seen on the Node alone.
fn with_node(evidence: &Evidence, judge: impl FnOnce(&NodeWords) -> Standing) -> Standing {
    match &evidence.node {
        NodeSeen::There(node) => judge(node),
        NodeSeen::Absent { .. } => Standing::Waiting("there is no Node yet".to_owned()),
        NodeSeen::Unknown => Standing::Unknown("the Node is not known".to_owned()),
    }
}

fn cloud_controller(node: &NodeWords, evidence: &Evidence) -> Standing {
    match cloud::judge(node, &evidence.host) {
        Cloud::NotExpected => Standing::NotNeeded("nobody expects a cloud controller".to_owned()),
        Cloud::Unknown => Standing::Unknown(
            "one is wanted, and whether the kubelet has --cloud-provider=external is not known"
                .to_owned(),
        ),
        Cloud::Initialised => Standing::Reached(format!(
            "spec.providerID is {}",
            node.provider_id.as_deref().unwrap_or_default()
        )),
        Cloud::Waits => Standing::Waiting("the taint uninitialized is on the Node".to_owned()),
        Cloud::RegisteredBefore | Cloud::FlagLost => Standing::Waiting(
            "the Node has no spec.providerID, and no taint that asks for one".to_owned(),
        ),
    }
}

fn network(evidence: &Evidence) -> Standing {
    if let NodeSeen::There(node) = &evidence.node
        && node.ready
    {
        return Standing::Reached("the Node is Ready with it".to_owned());
    }
    let host = &evidence.host;
    if let RuntimeSeen::Answers {
        network_not_ready: Some(why),
        ..
    } = &host.runtime
    {
        return Standing::Waiting(format!("the runtime says: {why}"));
    }
    let answers = matches!(host.runtime, RuntimeSeen::Answers { .. });
    match (&host.cni, &host.cni_folder) {
        (Some(names), Some(folder)) if !names.is_empty() && answers => {
            Standing::Reached(format!("{folder}/{}", names[0]))
        }
        (Some(names), Some(folder)) if !names.is_empty() => Standing::Unknown(format!(
            "{folder}/{} is there; the runtime does not say",
            names[0]
        )),
        (_, Some(folder)) => Standing::Waiting(format!("no CNI configuration in {folder}")),
        (_, None) => Standing::Unknown("the folder of CNI configurations is not known".to_owned()),
    }
}

fn csi(evidence: &Evidence) -> Standing {
    let waits = match &evidence.node {
        NodeSeen::There(node) => node.taints.iter().find(|key| is_drivers(key)),
        _ => None,
    };
    let plugins = &evidence.host.plugins;
    match (waits, plugins.is_empty()) {
        (Some(key), _) => Standing::Waiting(format!("the taint {key} is on the Node")),
        (None, false) => Standing::Reached(plugins.join(", ")),
        (None, true) => Standing::NotNeeded("no taint waits for a driver".to_owned()),
    }
}

/// `ebs.csi.aws.com/agent-not-ready` and its like.
fn is_drivers(key: &str) -> bool {
    key.ends_with("/agent-not-ready") && key.contains(".csi.")
}

fn ready(node: &NodeWords) -> Standing {
    if !node.ready {
        return Standing::Waiting(match node.ready_words.as_str() {
            "" => "the Node is not Ready".to_owned(),
            words => format!("the Node is not Ready: {words}"),
        });
    }
    match node.taints.iter().find(|key| is_start_up(key)) {
        Some(key) => Standing::Waiting(format!("the Node is Ready, and the taint {key} is left")),
        None => Standing::Reached("the Node is Ready".to_owned()),
    }
}

/// Whether somebody takes a taint of that key away when the node has started.
fn is_start_up(key: &str) -> bool {
    START_UP_TAINTS
        .iter()
        .any(|known| key == *known || (known.ends_with('/') && key.starts_with(known)))
}
