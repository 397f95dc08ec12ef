//! Observes each stage.

use jiff::Timestamp;

use super::stage::{Progress, Stage, StageState, done, failed, running, skipped, unknown};
use crate::condition::Uptime;
use crate::facts::{NodeAnswer, NodeFacts, ObservedCondition};
use crate::host::bootstrap::HostFacts;
use crate::host::clock::Now;
use crate::host::cloud_init::CloudInit;
use crate::host::credential::{ClientCertificate, Credential};
use crate::host::systemd::Unit;

/// The taint of a Node that waits for a cloud controller
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#node-cloudprovider-kubernetes-io-uninitialized>).
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The prefixes of startup taints: of Karpenter, Cluster API, the cluster-autoscaler and the node readiness controller.
const STARTUP_TAINTS: [&str; 4] = [
    "karpenter.sh/unregistered",
    "node.cluster.x-k8s.io/uninitialized",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "readiness.k8s.io/",
];
/// The suffix of the startup taints of network and storage drivers, such as node.cilium.io/agent-not-ready.
const STARTUP_TAINT_END: &str = "/agent-not-ready";
const CHECK_NETWORK: &str =
    "check DNS, routes, firewalls and the load balancer on the way, and the server's address in the kubeconfig";
const JOIN_AGAIN: &str =
    "join the host again: `kubeadm token create --print-join-command` on a control plane node prints the command";

/// The facts by which the stages are judged.
#[derive(Debug, Clone)]
pub struct Facts {
    pub host: HostFacts,
    pub node: NodeAnswer,
    pub now: Now,
}

pub fn state_of(stage: Stage, facts: &Facts) -> StageState {
    let Facts { host, node, now } = facts;
    let state = match stage {
        Stage::Instance => return done(Some(Uptime::ZERO), "the host is running"),
        Stage::CloudInit => return cloud_init(&host.files.cloud_init, *now),
        Stage::Runtime => runtime(host),
        Stage::Kubelet => kubelet(host, node),
        Stage::Credential => credential(&host.files.credential, node, now.wall),
        Stage::Registered => return registered(facts),
        Stage::CloudController | Stage::Network | Stage::Ready => {
            return match node {
                NodeAnswer::Node(node) if stage == Stage::CloudController => cloud_controller(node),
                NodeAnswer::Node(node) if stage == Stage::Network => network(node, *now),
                NodeAnswer::Node(node) => ready(node, *now),
                NodeAnswer::NotAsked(_) => unknown("the Node is not known"),
                _ => running("there is no Node yet", ""),
            };
        }
    };
    match node {
        // It may use a path that nodevigil does not know.
        NodeAnswer::Node(node) if state.status != Progress::Done && is_ready(node) => done(None, "the Node is Ready"),
        _ => state,
    }
}

fn cloud_init(cloud_init: &CloudInit, now: Now) -> StageState {
    let since = |time: &Option<Timestamp>| time.map(|time| now.since_boot(time));
    let with = |what: &str, errors: &[String]| match errors.first() {
        Some(error) => format!("{what}, with errors: {error}"),
        None => what.to_owned(),
    };
    match cloud_init {
        CloudInit::Absent => skipped("this host has no cloud-init, or it is disabled"),
        CloudInit::Unreadable(why) => unknown(why),
        CloudInit::Running { stage, errors } => {
            let what = if stage.is_empty() { "between two stages".to_owned() } else { format!("in stage {stage}") };
            running(
                with(&what, errors),
                "see /var/log/cloud-init.log; check the network, the metadata service and package mirrors",
            )
        }
        // This may itself be one of those commands.
        CloudInit::RunningCommands { since: start, errors } => {
            done(since(start), with("cloud-init runs the commands of the user data", errors))
        }
        CloudInit::Finished { at, errors } => done(since(at), with("finished", errors)),
    }
}

fn not_installed(what: &str, cloud_init: &CloudInit) -> StageState {
    let why = match cloud_init {
        CloudInit::Running { .. } | CloudInit::RunningCommands { .. } => "; cloud-init is still running",
        CloudInit::Finished { errors, .. } if !errors.is_empty() => &format!("; cloud-init had errors: {}", errors[0]),
        _ => "",
    };
    let advice = "install it in the image or by the user data; see /var/log/cloud-init-output.log";
    running(format!("{what}{why}"), advice)
}

fn runtime(host: &HostFacts) -> StageState {
    let unit = host.runtime.as_ref();
    let why = match &host.socket {
        Ok(path) => return done(unit.and_then(|unit| unit.active_since), format!("{path} accepts connections")),
        Err(why) => why,
    };
    // It does not before the runtime does, which may have another socket.
    if host.healthz.is_ok() && unit.is_none_or(|unit| unit.state.active_state == "active") {
        return done(None, "the kubelet answers on /healthz");
    }
    match (unit, &host.kubelet) {
        (None, Ok(_)) => {
            not_installed(&format!("{why}, and no unit of a container runtime is installed"), &host.files.cloud_init)
        }
        (None, Err(error)) => unknown(format!("{why}; {error}")),
        (Some(unit), _) => {
            let (name, is) = (&unit.name, state(unit));
            let advice = format!("systemctl enable --now {name}; journalctl -u {name}");
            let status = if unit.state.active_state == "failed" { Progress::Failed } else { Progress::Running };
            StageState { status, ..running(format!("{name} is {is}, and {why}"), advice) }
        }
    }
}

/// `inactive`, `failed (exit-code)`, `masked`.
fn state(unit: &Unit) -> String {
    match (unit.state.load_state.as_str(), unit.state.active_state.as_str(), unit.state.result.as_str()) {
        ("masked", ..) => "masked".to_owned(),
        (_, active, "" | "success") => active.to_owned(),
        (_, active, result) => format!("{active} ({result})"),
    }
}

fn kubelet(host: &HostFacts, node: &NodeAnswer) -> StageState {
    let unit = match &host.kubelet {
        Ok(Some(unit)) => unit,
        Ok(None) => return not_installed("no unit of a kubelet is installed", &host.files.cloud_init),
        Err(why) => return unknown(why),
    };
    let (name, pid, is) = (&unit.name, unit.state.main_pid, state(unit));
    let (active, last_words) = (unit.state.active_state.as_str(), last_words(host));
    let is_started = matches!(active, "activating" | "failed");
    let is_bootstrapping = matches!(host.files.credential, Credential::Bootstrap { .. });
    let cannot_join = matches!(node, NodeAnswer::Unreached(_) | NodeAnswer::Refused { .. });
    let advice = format!("nodevigil check; journalctl -u {name}");
    match &host.healthz {
        Ok(()) if pid != 0 => done(unit.active_since, format!("{name} runs (pid {pid}) and answers on /healthz")),
        Err(_) if pid != 0 && is_bootstrapping => done(
            unit.active_since,
            format!("{name} runs (pid {pid}); it serves /healthz once it has a client certificate"),
        ),
        Err(why) if pid != 0 => running(format!("{name} runs (pid {pid}), and /healthz {why}{last_words}"), advice),
        _ if is_bootstrapping && is_started && cannot_join => {
            done(None, format!("{name} exits because it gets no client certificate"))
        }
        _ if host.files.credential == Credential::Missing => running(
            format!("{name} is {is}: this host has not joined a cluster and has no bootstrap kubeconfig"),
            "kubeadm join has not run or has failed; see /var/log/cloud-init-output.log",
        ),
        _ if !is_started => {
            running(format!("{name} is {is}: it was not started"), format!("systemctl enable --now {name}"))
        }
        _ if active == "failed" => failed(format!("{name} is {is}{last_words}"), advice),
        _ => running(format!("{name} is {is}, and no kubelet runs{last_words}"), advice),
    }
}

fn last_words(host: &HostFacts) -> String {
    host.last_words.as_ref().map_or_else(String::new, |words| format!("; {words}"))
}

fn credential(credential: &Credential, node: &NodeAnswer, now: Timestamp) -> StageState {
    match credential {
        Credential::Unreadable(why) => unknown(why),
        Credential::Missing => running("there is neither a kubeconfig nor a bootstrap kubeconfig", JOIN_AGAIN),
        Credential::Bootstrap { file } => bootstrapping(&file.display().to_string(), node),
        Credential::Certificate(ClientCertificate { file, valid_from, .. }) if *valid_from > now => {
            let message = format!("{file} is valid from {valid_from}, and this host's clock shows {now:.0}");
            failed(message, "set the clock (chronyc tracking, timedatectl), then restart the kubelet")
        }
        Credential::Certificate(ClientCertificate { file, valid_until, .. }) if *valid_until < now => {
            failed(format!("{file} has expired: it was valid until {valid_until}"), JOIN_AGAIN)
        }
        Credential::Certificate(ClientCertificate { file, .. }) => done(None, format!("{file} is valid")),
        Credential::Other { file } => done(None, format!("{file} has a token or an exec plugin")),
        Credential::Unusable(why) => failed(why, JOIN_AGAIN),
    }
}

/// The kubelet has a bootstrap kubeconfig, and no certificate yet.
fn bootstrapping(file: &str, node: &NodeAnswer) -> StageState {
    match node {
        NodeAnswer::Refused { http_status: 401, .. } => running(
            format!("the API server does not accept the token in {file}: it has expired or was deleted"),
            JOIN_AGAIN,
        ),
        NodeAnswer::Unreached(why) => {
            running(format!("the API server that {file} names cannot be reached: {why}"), CHECK_NETWORK)
        }
        _ => {
            let advice = "the kubelet's request may wait for approval: kubectl get csr; journalctl -u kubelet";
            running(format!("the kubelet has {file}, but no client certificate yet"), advice)
        }
    }
}

fn registered(Facts { host, node, now }: &Facts) -> StageState {
    match node {
        NodeAnswer::Node(node) => {
            done(Some(now.since_boot_by_server(node.created)), format!("there is a Node {}", node.name))
        }
        NodeAnswer::NoNode(name) => running(
            format!("the API server has no Node {name}{}", last_words(host)),
            "journalctl -u kubelet; if the Node has another name, set [kubernetes] node_name",
        ),
        NodeAnswer::Refused { http_status: 401, .. } => {
            running("the API server does not accept the kubelet's credential (401)", JOIN_AGAIN)
        }
        NodeAnswer::Refused { http_status, message } => running(
            format!("the API server answers {http_status}: {message}{}", last_words(host)),
            "check that the Node's name is that of the kubelet's certificate; journalctl -u kubelet",
        ),
        NodeAnswer::Unreached(why) => running(format!("the API server cannot be reached: {why}"), CHECK_NETWORK),
        NodeAnswer::NotAsked(why) => unknown(format!("the Node was not read from the API server: {why}")),
    }
}

fn cloud_controller(node: &NodeFacts) -> StageState {
    if node.taint_keys.iter().any(|key| key == UNINITIALIZED) {
        return running(
            format!(
                "the Node still has the taint {UNINITIALIZED}: no cloud controller runs, or it does not find this server"
            ),
            "check the cloud controller's pod: its log, its tolerations, and the name by which it searches for this server",
        );
    }
    match &node.provider_id {
        Some(id) => done(None, format!("spec.providerID is {id}")),
        None => skipped("the Node has neither the taint for a cloud controller nor a spec.providerID"),
    }
}

fn network(node: &NodeFacts, now: Now) -> StageState {
    let unavailable = node.condition("NetworkUnavailable").filter(|condition| condition.status == "True");
    // What the kubelet writes while the container runtime reports no network: pkg/kubelet/runtime.go.
    let is_network = |condition: &&ObservedCondition| condition.message.contains("container runtime network not ready");
    let problem = unavailable.or(node.condition("Ready").filter(is_network));
    if let Some(problem) = problem {
        let advice =
            "check the network plugin's pod on this Node: its log, its tolerations, its image; ls /etc/cni/net.d";
        return running(described(problem), advice);
    }
    done(ready_since(node, now), "neither the kubelet nor NetworkUnavailable reports a problem")
}

fn ready(node: &NodeFacts, now: Now) -> StageState {
    let since = ready_since(node, now);
    if since.is_none() {
        let seen = node.condition("Ready").map_or_else(|| "the Node has no condition Ready yet".into(), described);
        return running(seen, "journalctl -u kubelet; kubectl describe node");
    }
    let is_of_start =
        |key: &str| STARTUP_TAINTS.iter().any(|start| key.starts_with(start)) || key.ends_with(STARTUP_TAINT_END);
    match node.taint_keys.iter().find(|key| is_of_start(key)) {
        Some(key) => running(
            format!("the Node is Ready but still has the taint {key}"),
            "check the controller or DaemonSet that removes this taint",
        ),
        None => done(since, "the Node is Ready"),
    }
}

pub fn is_ready(node: &NodeFacts) -> bool {
    node.condition("Ready").is_some_and(|condition| condition.status == "True")
}

/// Since when it is Ready, by the kubelet's clock, which is the host's; none if it is not.
fn ready_since(node: &NodeFacts, now: Now) -> Option<Uptime> {
    let ready = node.condition("Ready").filter(|condition| condition.status == "True")?;
    Some(ready.last_transition.map_or(now.uptime, |since| now.since_boot(since.timestamp())))
}

fn described(condition: &ObservedCondition) -> String {
    let ObservedCondition { kind, status, reason, message, .. } = condition;
    format!("{kind} is {status} ({reason}): {}", redact::sanitize_line(message, 300))
}
