//! Why a stage is stuck, most probably: a table of causes, each with the evidence that speaks for it. Of those that do,
//! the first of the stage counts: what explains others stands before what it explains.

use super::{
    cloud::{self, Cloud},
    evidence::{
        CloudInit, CredentialSeen, Evidence, HealthzSeen, KubeletRun, NodeSeen, RuleSeen,
        RuntimeSeen, ServerSeen, UnitSeen,
    },
    stage::Stage,
};
use crate::rules::UNINITIALIZED;

/// Why a stage is stuck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// A rule's id, or a word of this table.
    pub id: String,
    /// What is wrong, in a sentence or two.
    pub message: String,
    /// What to do.
    pub fix: String,
}

/// A row of the table.
pub struct Row {
    /// The stage.
    pub stage: Stage,
    /// Its name where it is found without a rule; that of a rule is the rule's own.
    pub id: &'static str,
    /// What it is about, for the documents.
    pub doc: &'static str,
    find: fn(&Evidence) -> Option<Cause>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row")
            .field("stage", &self.stage)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Every cause that is known.
pub const CAUSES: &[Row] = &[
    row(
        Stage::CloudInit,
        "cloud-init-slow",
        "cloud-init is not through with the stages before the user data's commands.",
        cloud_init_slow,
    ),
    row(
        Stage::Runtime,
        "RT002",
        "containerd's CRI plugin is disabled.",
        |e| rule(e, &["RT002"]),
    ),
    row(
        Stage::Runtime,
        "cloud-init-failed",
        "cloud-init has failed before it installed the runtime.",
        |e| not_installed(e, e.runtime_unit.as_ref()),
    ),
    row(
        Stage::Runtime,
        "runtime-unit",
        "The runtime's unit does not run.",
        runtime_unit,
    ),
    row(
        Stage::Runtime,
        "RT001",
        "There is no runtime at the endpoint that the kubelet is given.",
        |e| rule(e, &["RT001"]),
    ),
    row(
        Stage::Runtime,
        "runtime-hangs",
        "The runtime takes the connection and does not answer.",
        runtime_hangs,
    ),
    row(
        Stage::Runtime,
        "runtime-not-ready",
        "The runtime itself says that it is not ready.",
        runtime_not_ready,
    ),
    row(
        Stage::Kubelet,
        "KN001",
        "Swap is on, and the kubelet is not allowed to run with it.",
        |e| rule(e, &["KN001"]),
    ),
    row(
        Stage::Kubelet,
        "fatal",
        "Any other rule that says that the kubelet exits.",
        fatal,
    ),
    row(
        Stage::Kubelet,
        "join-failed",
        "kubeadm join has failed; its own words.",
        join_failed,
    ),
    row(
        Stage::Kubelet,
        "cloud-init-failed",
        "cloud-init has failed before it installed the kubelet.",
        |e| not_installed(e, kubelet_unit(e)),
    ),
    row(
        Stage::Kubelet,
        "awaits-join",
        "Nobody has joined the host yet.",
        awaits_join,
    ),
    row(
        Stage::Kubelet,
        "kubelet-ends",
        "The kubelet ends again and again; its last words.",
        kubelet_ends,
    ),
    row(
        Stage::Kubelet,
        "kubelet-not-started",
        "Nobody has started the kubelet's unit.",
        kubelet_not_started,
    ),
    row(
        Stage::Kubelet,
        "kubelet-silent",
        "The kubelet runs and its healthz does not answer.",
        kubelet_silent,
    ),
    row(
        Stage::Tls,
        "KN008",
        "The client certificate begins in the future: the clock is wrong.",
        not_yet_valid,
    ),
    row(
        Stage::Tls,
        "AU002",
        "The client certificate has expired.",
        expired,
    ),
    row(
        Stage::Tls,
        "AU005",
        "The API server cannot be reached, or is another cluster's.",
        unreachable,
    ),
    row(
        Stage::Tls,
        "AU004",
        "The API server refuses the bootstrap token.",
        token_refused,
    ),
    row(
        Stage::Tls,
        "join-failed",
        "kubeadm join has failed; its own words.",
        join_failed,
    ),
    row(
        Stage::Tls,
        "AU001",
        "There is nothing to bootstrap with.",
        |e| rule(e, &["AU001"]).or_else(|| awaits_join(e)),
    ),
    row(
        Stage::Tls,
        "csr-pending",
        "The request for a certificate waits for somebody to approve it.",
        csr_pending,
    ),
    row(
        Stage::Tls,
        "credential-bad",
        "The kubeconfig cannot be used.",
        credential_bad,
    ),
    row(
        Stage::Registered,
        "AU005",
        "The API server cannot be reached, or is another cluster's.",
        unreachable,
    ),
    row(
        Stage::Registered,
        "credential-refused",
        "The API server does not accept the kubelet's credential.",
        credential_refused,
    ),
    row(
        Stage::Registered,
        "CL007",
        "The kubelet registers another name than its certificate or the cloud has.",
        |e| rule(e, &["CL007", "CL008", "AU006", "AU011", "CL012"]),
    ),
    row(
        Stage::Registered,
        "server-trouble",
        "The API server answers with an error.",
        server_trouble,
    ),
    row(
        Stage::Registered,
        "kubelet-words",
        "What the kubelet itself says last.",
        kubelet_words,
    ),
    row(
        Stage::CloudController,
        "CL001",
        "--cloud-provider=external does not reach the kubelet.",
        flag_lost,
    ),
    row(
        Stage::CloudController,
        "CL004",
        "The Node is older than --cloud-provider=external.",
        registered_before,
    ),
    row(
        Stage::CloudController,
        "CL006",
        "The cloud controller refuses the address of the Node.",
        |e| rule(e, &["CL006", "CL007"]),
    ),
    row(
        Stage::CloudController,
        "CL005",
        "The providerID that the kubelet is given is not this machine's.",
        |e| rule(e, &["CL005"]),
    ),
    row(
        Stage::CloudController,
        "CP005",
        "The taint waits for a cloud controller that does not come.",
        taint_stuck,
    ),
    row(
        Stage::Network,
        "NW001",
        "There is no CNI configuration.",
        no_cni,
    ),
    row(
        Stage::Network,
        "network-not-ready",
        "The runtime says why its network is not ready.",
        network_not_ready,
    ),
    row(
        Stage::Csi,
        "CP004",
        "A driver of volumes has not registered.",
        driver_missing,
    ),
    row(
        Stage::Ready,
        "taint-left",
        "A start-up taint is left.",
        taint_left,
    ),
    row(Stage::Ready, "not-ready", "The Node's own word.", not_ready),
];

const fn row(
    stage: Stage,
    id: &'static str,
    doc: &'static str,
    find: fn(&Evidence) -> Option<Cause>,
) -> Row {
    Row {
        stage,
        id,
        doc,
        find,
    }
}

/// The first cause of the stage that the evidence speaks for.
pub fn most_probable(stage: Stage, evidence: &Evidence) -> Option<Cause> {
    let mut rows = CAUSES.iter().filter(|row| row.stage == stage);
    rows.find_map(|row| (row.find)(evidence))
}

fn cause(id: &str, message: impl Into<String>, fix: impl Into<String>) -> Cause {
    Cause {
        id: id.to_owned(),
        message: message.into(),
        fix: fix.into(),
    }
}

/// The first of these rules, in their order, that found something.
fn rule(evidence: &Evidence, ids: &[&str]) -> Option<Cause> {
    let findings = &evidence.host.findings;
    ids.iter()
        .find_map(|id| findings.iter().find(|found| found.rule == *id))
        .map(of_rule)
}

fn of_rule(found: &RuleSeen) -> Cause {
    cause(
        &found.rule,
        format!("{} {}", found.at, found.message),
        found.fix.as_str(),
    )
}

fn cloud_init_slow(evidence: &Evidence) -> Option<Cause> {
    let CloudInit::Running { stage, errors, .. } = &evidence.host.cloud_init else {
        return None;
    };
    let at = if stage.is_empty() {
        "between two stages".to_owned()
    } else {
        format!("in its stage {stage}")
    };
    let failed = errors.first().map_or(String::new(), |first| {
        format!("; something failed: {first}")
    });
    Some(cause(
        "cloud-init-slow",
        format!("cloud-init is still {at}{failed}"),
        "/var/log/cloud-init.log: the network, the metadata service, a package mirror",
    ))
}

/// A unit that is not there, while or after cloud-init was to install it.
fn not_installed(evidence: &Evidence, unit: Option<&UnitSeen>) -> Option<Cause> {
    let unit = unit.filter(|unit| unit.load == "not-found")?;
    let name = &unit.name;
    let fix = "/var/log/cloud-init-output.log";
    match &evidence.host.cloud_init {
        CloudInit::Running { .. } => Some(cause(
            "cloud-init-slow",
            format!("there is no {name} yet: cloud-init is still at work"),
            fix,
        )),
        CloudInit::Finished { errors } => Some(match errors.first() {
            Some(first) => cause(
                "cloud-init-failed",
                format!("there is no {name}: cloud-init has failed: {first}"),
                fix,
            ),
            None => cause(
                "not-installed",
                format!("there is no {name}: nothing has installed it"),
                "install it in the image or the user data",
            ),
        }),
        _ => Some(cause(
            "not-installed",
            format!("there is no {name}: nothing has installed it"),
            "install it in the image or the user data",
        )),
    }
}

fn runtime_unit(evidence: &Evidence) -> Option<Cause> {
    let RuntimeSeen::Silent { socket, why, .. } = &evidence.host.runtime else {
        return None;
    };
    let unit = evidence.runtime_unit.as_ref()?;
    if unit.active == "active" || unit.load == "not-found" {
        return None;
    }
    let (name, load) = (&unit.name, &unit.load);
    let state = if load == "masked" {
        "masked".to_owned()
    } else {
        in_words(unit)
    };
    Some(cause(
        "runtime-unit",
        format!("{name} is {state}, so {socket}: {why}"),
        format!("systemctl enable --now {name}; journalctl -u {name} says why it does not run"),
    ))
}

/// `failed (exit-code)`, `inactive`.
fn in_words(unit: &UnitSeen) -> String {
    match unit.result.as_str() {
        "" | "success" => unit.active.clone(),
        result => format!("{} ({result})", unit.active),
    }
}

fn runtime_hangs(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.runtime {
        RuntimeSeen::Silent {
            socket,
            why,
            hangs: true,
        } => Some(cause(
            "runtime-hangs",
            format!("the runtime at {socket} hangs: {why}"),
            "look at its journal and its disk",
        )),
        _ => None,
    }
}

fn runtime_not_ready(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.runtime {
        RuntimeSeen::Answers {
            what,
            not_ready: Some(why),
            ..
        } => Some(cause(
            "runtime-not-ready",
            format!("{what} says that it is not ready: {why}"),
            "look at its journal",
        )),
        _ => None,
    }
}

/// Rules that are broken by nature before `kubeadm join`.
const BEFORE_JOIN: [&str; 3] = ["AU001", "CF001", "SD012"];

fn fatal(evidence: &Evidence) -> Option<Cause> {
    let runs =
        matches!(evidence.run, KubeletRun::Runs { .. }) && evidence.healthz == HealthzSeen::Well;
    let counts = |found: &&RuleSeen| {
        let is_natural = evidence.host.awaits_join && BEFORE_JOIN.contains(&found.rule.as_str());
        found.is_fatal && !is_natural
    };
    let found = evidence.host.findings.iter().find(counts)?;
    (!runs).then(|| of_rule(found))
}

fn join_failed(evidence: &Evidence) -> Option<Cause> {
    let host = &evidence.host;
    let words = host.join_words.as_ref().filter(|_| host.awaits_join)?;
    Some(cause(
        "join-failed",
        format!("kubeadm join has failed: {words}"),
        "kubeadm token create --print-join-command on a control plane gives a command that works; /var/log/cloud-init-output.log has the rest",
    ))
}

fn kubelet_unit(evidence: &Evidence) -> Option<&UnitSeen> {
    match &evidence.run {
        KubeletRun::Down(unit) => Some(unit),
        _ => None,
    }
}

fn awaits_join(evidence: &Evidence) -> Option<Cause> {
    if !evidence.host.awaits_join {
        return None;
    }
    let who = match &evidence.host.cloud_init {
        CloudInit::Running { .. } => "; cloud-init is still at work",
        CloudInit::Finished { .. } => "; cloud-init is through",
        _ => "",
    };
    Some(cause(
        "awaits-join",
        format!(
            "this host has not joined a cluster: it has no kubeconfig, and none to bootstrap with{who}"
        ),
        "kubeadm join has not run, or not ended yet",
    ))
}

fn kubelet_ends(evidence: &Evidence) -> Option<Cause> {
    let unit = kubelet_unit(evidence)?;
    let words = evidence.last_words.as_ref()?;
    Some(cause(
        "kubelet-ends",
        format!("the kubelet has ended; its last words: {words}"),
        format!("journalctl -u {}", unit.name),
    ))
}

fn kubelet_not_started(evidence: &Evidence) -> Option<Cause> {
    let unit = kubelet_unit(evidence)?;
    let name = &unit.name;
    let state = match unit.load.as_str() {
        "loaded" | "" => in_words(unit),
        load => load.to_owned(),
    };
    Some(cause(
        "kubelet-not-started",
        format!("{name} is {state}"),
        format!("systemctl enable --now {name}"),
    ))
}

fn kubelet_silent(evidence: &Evidence) -> Option<Cause> {
    let HealthzSeen::Bad(why) = &evidence.healthz else {
        return None;
    };
    let words = evidence.last_words.as_ref();
    let words = words.map_or(String::new(), |words| format!("; its last words: {words}"));
    Some(cause(
        "kubelet-silent",
        format!("the kubelet runs, and its healthz {why}{words}"),
        "journalctl -u kubelet; it serves healthz only once the runtime answers",
    ))
}

fn not_yet_valid(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.credential {
        CredentialSeen::Certificate {
            file,
            not_before_secs,
            ..
        } if *not_before_secs > evidence.wall_secs => Some(cause(
            "KN008",
            format!(
                "the client certificate in {file} begins at {}: this host's clock is behind, or that of whoever signed it is ahead",
                time(*not_before_secs)
            ),
            "chronyc tracking, or timedatectl: the clock must be right before the kubelet starts",
        )),
        _ => None,
    }
}

fn expired(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.credential {
        CredentialSeen::Certificate {
            file,
            not_after_secs,
            ..
        } if *not_after_secs <= evidence.wall_secs => Some(cause(
            "AU002",
            format!(
                "the client certificate in {file} has ended at {}",
                time(*not_after_secs)
            ),
            "remove it and its kubeconfig and join anew; an image must not carry its parent's",
        )),
        _ => None,
    }
}

fn time(secs: i64) -> String {
    jiff::Timestamp::from_second(secs).map_or_else(|_| secs.to_string(), |at| at.to_string())
}

fn unreachable(evidence: &Evidence) -> Option<Cause> {
    match &evidence.server {
        ServerSeen::Unreachable { server, why } => Some(cause(
            "AU005",
            format!("the API server {server} cannot be reached: {why}"),
            "DNS, firewall or security group, route, load balancer; or the address in the template is wrong",
        )),
        ServerSeen::OtherAuthority { server, why } => Some(cause(
            "AU005",
            format!(
                "the API server {server} shows a certificate of another authority than the kubeconfig believes: {why}"
            ),
            "the template's certificate authority is another cluster's: take the one of this cluster, and join anew",
        )),
        _ => None,
    }
}

fn token_refused(evidence: &Evidence) -> Option<Cause> {
    match (&evidence.server, &evidence.host.credential) {
        (ServerSeen::Unauthorized { server }, CredentialSeen::Bootstrap { file }) => Some(cause(
            "AU004",
            format!(
                "{server} refuses the bootstrap token of {file}: it has expired (kubeadm's live 24 h) or was deleted"
            ),
            "kubeadm token create --print-join-command on a control plane, and a new token in the template",
        )),
        _ => None,
    }
}

fn csr_pending(evidence: &Evidence) -> Option<Cause> {
    let CredentialSeen::Bootstrap { file } = &evidence.host.credential else {
        return None;
    };
    (evidence.server == ServerSeen::Answers).then(|| {
        cause(
            "csr-pending",
            format!("the API server takes the token of {file}, and there is no certificate yet: the request waits for approval, or the kubelet does not run"),
            "kubectl get csr; the approving controller of kube-controller-manager, and the token's group system:bootstrappers",
        )
    })
}

fn credential_bad(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.credential {
        CredentialSeen::Bad { why } => Some(cause("credential-bad", why.as_str(), "join anew")),
        _ => None,
    }
}

fn credential_refused(evidence: &Evidence) -> Option<Cause> {
    match &evidence.server {
        ServerSeen::Unauthorized { server } => Some(cause(
            "credential-refused",
            format!(
                "{server} does not accept the kubelet's credential (401): it is another cluster's, or has expired"
            ),
            "remove /etc/kubernetes/kubelet.conf and /var/lib/kubelet/pki, and join anew",
        )),
        _ => None,
    }
}

fn server_trouble(evidence: &Evidence) -> Option<Cause> {
    match &evidence.server {
        ServerSeen::Trouble { server, why } => Some(cause(
            "server-trouble",
            format!("{server}: {why}"),
            "look at the API server",
        )),
        _ => None,
    }
}

fn kubelet_words(evidence: &Evidence) -> Option<Cause> {
    let words = evidence.last_words.as_ref()?;
    Some(cause(
        "kubelet-words",
        format!("the kubelet says: {words}"),
        "journalctl -u kubelet",
    ))
}

fn of_cloud(evidence: &Evidence) -> Option<Cloud> {
    match &evidence.node {
        NodeSeen::There(node) => Some(cloud::judge(node, &evidence.host)),
        _ => None,
    }
}

fn flag_lost(evidence: &Evidence) -> Option<Cause> {
    (of_cloud(evidence)? == Cloud::FlagLost).then(|| {
        rule(evidence, &["CL001", "CL002", "SD021", "SD020"]).unwrap_or_else(|| {
            cause(
                "CL001",
                "--cloud-provider=external does not reach the kubelet: the Node has neither the taint nor spec.providerID, so the autoscaler takes its server for one that never joined",
                "nodevigil check says where the flag got lost; then delete the Node and restart the kubelet",
            )
        })
    })
}

fn registered_before(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::There(node) = &evidence.node else {
        return None;
    };
    (of_cloud(evidence)? == Cloud::RegisteredBefore).then(|| {
        cause(
            "CL004",
            "the Node was created before --cloud-provider=external was in effect: it has neither the taint nor spec.providerID, so the cloud controller passes it over",
            format!("kubectl delete node {}; then systemctl restart the kubelet", node.name),
        )
    })
}

fn taint_stuck(evidence: &Evidence) -> Option<Cause> {
    (of_cloud(evidence)? == Cloud::Waits).then(|| {
        cause(
            "CP005",
            format!("the taint {UNINITIALIZED} stays: no cloud controller runs, it does not tolerate its own nodes, or it does not find this server"),
            "kubectl get pods -A -o wide | grep cloud-controller: its tolerations, its token, the name or providerID by which it looks for the server",
        )
    })
}

fn no_cni(evidence: &Evidence) -> Option<Cause> {
    let host = &evidence.host;
    let is_empty = host.cni.as_ref().is_none_or(Vec::is_empty);
    let folder = host.cni_folder.as_ref().filter(|_| is_empty)?;
    Some(rule(evidence, &["NW001"]).unwrap_or_else(|| {
        cause(
            "NW001",
            format!("no CNI configuration in {folder}: the network's DaemonSet has not come to this node"),
            "its pods must tolerate node.kubernetes.io/not-ready and the taint uninitialized",
        )
    }))
}

fn network_not_ready(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.runtime {
        RuntimeSeen::Answers {
            network_not_ready: Some(why),
            ..
        } => Some(cause(
            "network-not-ready",
            format!("the runtime says of its network: {why}"),
            "the network's DaemonSet on this node",
        )),
        _ => None,
    }
}

fn driver_missing(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::There(node) = &evidence.node else {
        return None;
    };
    let key = node.taints.iter().find(|key| key.contains(".csi."))?;
    Some(cause(
        "CP004",
        format!("the taint {key} is left: the driver's pod has not registered on this node"),
        "the driver's DaemonSet: its tolerations, its image",
    ))
}

fn taint_left(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::There(node) = &evidence.node else {
        return None;
    };
    let key = node.taints.first().filter(|_| node.ready)?;
    Some(cause(
        "taint-left",
        format!("the Node is Ready, and whoever takes the taint {key} away has not come"),
        "the controller or the DaemonSet that the taint belongs to",
    ))
}

fn not_ready(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::There(node) = &evidence.node else {
        return None;
    };
    (!node.ready).then(|| {
        let words = if node.ready_words.is_empty() {
            "no reason is given"
        } else {
            &node.ready_words
        };
        cause(
            "not-ready",
            format!("the Node is not Ready: {words}"),
            "journalctl -u kubelet",
        )
    })
}
