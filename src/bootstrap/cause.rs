//! Why a stage is stuck, most probably: a table of causes, each with the evidence that speaks for it. Of those that do,
//! the first of the stage counts: what explains others stands before what it explains.

mod host;
mod join;
mod node;

use self::{
    host::{
        cloud_init_slow, fatal, kubelet_ends, kubelet_not_started, kubelet_silent, kubelet_unit,
        not_installed, runtime_hangs, runtime_not_ready, runtime_silent, runtime_unit,
    },
    join::{
        awaits_join, credential_bad, credential_refused, credential_waits, csr_pending, expired,
        join_failed, kubelet_words, not_registered, not_yet_valid, server_trouble, token_refused,
        unreachable,
    },
    node::{
        driver_missing, flag_lost, network_not_ready, no_cni, not_ready, registered_before,
        taint_left, taint_stuck,
    },
};
use super::{
    evidence::{Evidence, RuleSeen},
    stage::Stage,
};

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
        "RT001",
        "Another runtime's socket is there than the one that the kubelet is given.",
        |e| rule(e, &["RT001"]).filter(|cause| cause.message.contains("another runtime's socket")),
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
        Stage::Runtime,
        "runtime-silent",
        "Nothing answers at the endpoint, and nothing says why.",
        runtime_silent,
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
        Stage::Tls,
        "credential-waits",
        "There is no credential yet, and nothing says why.",
        credential_waits,
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
        Stage::Registered,
        "not-registered",
        "The kubelet has not made the Node, and nothing says why.",
        not_registered,
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
    let found = ids
        .iter()
        .find_map(|id| findings.iter().find(|found| found.rule == *id))?;
    let mut cause = of_rule(found);
    // `see SD001, which explains …`: said here, where nobody can look it up.
    let explained = found.fix.strip_prefix("see ").and_then(|fix| {
        let (id, rest) = fix.split_once(',')?;
        let other = findings.iter().find(|other| other.rule == id)?;
        let then = rest.split_once("; ").map_or("", |(_, then)| then);
        Some(format!("{id}: {}; {then}", other.fix))
    });
    if let Some(fix) = explained {
        fix.trim_end_matches("; ").clone_into(&mut cause.fix);
    }
    Some(cause)
}

fn of_rule(found: &RuleSeen) -> Cause {
    cause(
        &found.rule,
        format!("{} {}", found.at, found.message),
        found.fix.as_str(),
    )
}
