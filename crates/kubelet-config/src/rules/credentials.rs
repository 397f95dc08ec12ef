//! AU: what the kubelet shows to the API server, and whom it lets use its own API.

use super::{Finding, Report, Rule, Severity, settings};
use crate::kubelet::{
    layers::Launcher,
    location::Location,
    machine::{Certificate, ClientCredential, FileState, Kubeconfig},
    snapshot::{Lifecycle, Snapshot},
};

mod access;
mod dates;

/// The rules of this family.
pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AU001",
        name: "no-credentials",
        severity: "fatal; silent before `kubeadm join`, unless a file is there and unusable",
        doc: "The file of `--kubeconfig` is missing, is no kubeconfig, or names credentials that are not there, and \
              there is no bootstrap kubeconfig with which the kubelet could get new ones: it exits at its start.",
        source: "kubernetes-sigs/kubespray#8242, #3769; kubernetes/kubeadm#2054; kubernetes/kubernetes#57631",
        fix: "Run kubeadm join, or write a bootstrap kubeconfig with a valid token.",
        run: no_credentials,
    },
    Rule {
        id: "AU002",
        name: "client-cert-expired",
        severity: "fatal; error if it is not valid yet; warning if it is overdue, or a bootstrap kubeconfig can renew it",
        doc: "The client certificate of the kubeconfig has expired, is not valid yet (a wrong clock), or is past the \
              time at which the kubelet renews it (70 to 90 % of its life): the API server refuses the kubelet, which \
              exits at its next start.",
        source: "kubernetes/kubernetes#65991, #78758, #107489",
        fix: "kubeadm: a new bootstrap token, or `kubeadm init phase kubeconfig kubelet` on a control plane; else \
              register the node anew.",
        run: dates::client_certificate,
    },
    Rule {
        id: "AU003",
        name: "rotation-off",
        severity: "warning",
        doc: "`rotateCertificates` is false, which is the default, and the kubeconfig has a client certificate: \
              nothing renews it, and the node is lost when it expires. Not so with an exec plugin or a token, nor \
              with k3s and RKE2, which renew certificates themselves.",
        source: "kubernetes/kubernetes#78758",
        fix: "Set rotateCertificates: true.",
        run: dates::rotation_off,
    },
    Rule {
        id: "AU007",
        name: "anonymous-auth",
        severity: "error together with AlwaysAllow, else warning",
        doc: "`authentication.anonymous.enabled` is true, which is the default of a kubelet without --config: requests \
              without credentials reach its API.",
        source: "CIS Kubernetes Benchmark 4.2.1; kubelet defaults (SetDefaults and applyLegacyDefaults)",
        fix: "Set authentication.anonymous.enabled: false.",
        run: access::anonymous,
    },
    Rule {
        id: "AU008",
        name: "always-allow",
        severity: "error",
        doc: "`authorization.mode` is AlwaysAllow, which is the default of a kubelet without --config: whoever reaches \
              its API may run commands in every container.",
        source: "CIS Kubernetes Benchmark 4.2.2",
        fix: "Set authorization.mode: Webhook and authentication.webhook.enabled: true.",
        run: access::always_allow,
    },
    Rule {
        id: "AU009",
        name: "read-only-port",
        severity: "warning",
        doc: "`readOnlyPort` is not 0; without --config it is 10255: the port serves pod specifications and metrics to \
              everybody who reaches it.",
        source: "CIS Kubernetes Benchmark 4.2.4; GKE's notice on the kubelet's read-only port",
        fix: "Set readOnlyPort: 0.",
        run: access::read_only_port,
    },
    Rule {
        id: "AU010",
        name: "serving-cert",
        severity: "warning",
        doc: "`serverTLSBootstrap` is true and there is no serving certificate minutes after the kubelet's start (its \
              request waits for approval, which nobody does by default), or the serving certificate has expired: \
              logs, exec and metrics fail.",
        source: "kubernetes/kubernetes#73356; kubernetes/kubeadm#591, #1635",
        fix: "kubectl certificate approve, or install an approver for kubernetes.io/kubelet-serving.",
        run: dates::serving_certificate,
    },
];

/// Whether the kubelet can get credentials with its bootstrap kubeconfig.
fn can_bootstrap(snapshot: &Snapshot) -> bool {
    matches!(
        &snapshot.machine.bootstrap_kubeconfig,
        FileState::Present(found)
            if found.credential != ClientCredential::Nothing && found.missing_files.is_empty()
    )
}

/// Why a kubeconfig cannot be used, and where; `None` if it can.
fn unusable(kubeconfig: &FileState<Kubeconfig>) -> Option<(Location, String)> {
    match kubeconfig {
        FileState::Missing { at } => Some((at.clone(), "it is not there".to_owned())),
        FileState::Bad { at, reason } => Some((at.clone(), format!("it {reason}"))),
        FileState::Present(found) if !found.missing_files.is_empty() => {
            Some((found.at.clone(), format!("it names {}, which is not there", found.missing_files.join(", "))))
        }
        FileState::Present(found) if found.credential == ClientCredential::Nothing => {
            Some((found.at.clone(), "it has neither a certificate, a token nor an exec plugin".to_owned()))
        }
        FileState::NotAsked | FileState::Present(_) => None,
    }
}

fn no_credentials(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "AU001";
    // k3s and RKE2 fetch certificates and write the kubeconfig each time they start.
    if settings::are_managed(snapshot) {
        return;
    }
    if !settings::are_known(snapshot) {
        return report.not_checked(ID, settings::COMMAND);
    }
    let machine = &snapshot.machine;
    let Some((at, reason)) = unusable(&machine.kubeconfig) else {
        return;
    };
    if can_bootstrap(snapshot) {
        return;
    }
    let is_spoilt = matches!(machine.kubeconfig, FileState::Bad { .. }) || !is_missing(&machine.bootstrap_kubeconfig);
    if snapshot.lifecycle == Lifecycle::BeforeFirstStart && !is_spoilt {
        return;
    }
    let path = snapshot.settings.text("--kubeconfig").unwrap_or_default();
    let is_kubeadm = path == "/etc/kubernetes/kubelet.conf";
    let base = format!("the kubelet has no credentials: of its kubeconfig {path}, {reason}");
    let (at, message) = match unusable(&machine.bootstrap_kubeconfig) {
        // The bootstrap kubeconfig is what one would mend, if somebody wrote one.
        Some((bootstrap_at, why)) if !is_missing(&machine.bootstrap_kubeconfig) => {
            let message = format!("{base}, and the bootstrap kubeconfig cannot replace it: {why}");
            (bootstrap_at, message)
        }
        Some((bootstrap_at, _)) => {
            let message = format!(
                "{base}, and the bootstrap kubeconfig {} is not there: {}",
                bootstrap_at.file,
                if is_kubeadm {
                    "kubeadm join has not run, or the file was deleted before the first certificate came"
                } else {
                    "what sets the node up has not written them"
                }
            );
            (at, message)
        }
        None => (at, format!("{base}, and no --bootstrap-kubeconfig is given")),
    };
    let message = format!("{message}. The kubelet exits");
    let mut finding = Finding::new(ID, Severity::Fatal, at, message).fix(if is_kubeadm { JOIN } else { PROVIDE });
    for flag in ["--kubeconfig", "--bootstrap-kubeconfig"] {
        if let Some(path) = snapshot.settings.text(flag) {
            finding = finding.step(settings::place(snapshot, flag), format!("{flag} names {path}"));
        }
    }
    report.add(finding);
}

fn is_missing(kubeconfig: &FileState<Kubeconfig>) -> bool {
    matches!(kubeconfig, FileState::Missing { .. } | FileState::NotAsked)
}

const PROVIDE: &str = "see why what sets the node up (cloud-init, the provider's bootstrap) has not written the \
                       kubeconfig; or write a bootstrap kubeconfig with a valid token and name it with \
                       --bootstrap-kubeconfig";

const JOIN: &str = "kubeadm token create --print-join-command on a control plane, then kubeadm join here (after \
                    kubeadm reset, if the node had joined before); or write a bootstrap kubeconfig with a valid token";

#[cfg(test)]
mod tests;
