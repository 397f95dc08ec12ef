//! Certificates and their dates.

use super::{
    Certificate, ClientCredential, FileState, Finding, Kubeconfig, Lifecycle, Report, Severity, Snapshot,
    can_bootstrap, settings,
};
use crate::rules::remedy;

const ROTATE: &str = "rotateCertificates";

/// How long after the kubelet's start its request for a serving certificate may wait, in seconds.
const SERVING_GRACE_SECS: u64 = 300;

/// The kubelet renews a certificate between 70 and 90 % of its life (k8s.io/client-go, util/certificate).
const OVERDUE_PERCENT: i128 = 90;

fn day(secs: i64) -> String {
    jiff::Timestamp::from_second(secs).map_or_else(|_| format!("{secs} s since 1970"), |at| at.to_string())
}

fn kubeconfig(snapshot: &Snapshot) -> Option<&Kubeconfig> {
    match &snapshot.machine.kubeconfig {
        FileState::Present(kubeconfig) => Some(kubeconfig),
        _ => None,
    }
}

fn is_overdue(certificate: &Certificate, now: i64) -> bool {
    let (from, to) = (i128::from(certificate.not_before_secs), i128::from(certificate.not_after_secs));
    (i128::from(now) - from) * 100 > (to - from) * OVERDUE_PERCENT
}

pub(in crate::rules) fn client_certificate(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "AU002";
    let Some(kubeconfig) = kubeconfig(snapshot) else { return };
    let Some(certificate) = &kubeconfig.certificate else {
        if kubeconfig.certificate_problem.is_some() {
            report.not_checked(ID, "a client certificate that can be read");
        }
        return;
    };
    let Some(now) = snapshot.observed.now_secs else { return report.not_checked(ID, "the time") };
    let renewed = kubeconfig.renewed.as_ref().filter(|renewed| now <= renewed.not_after_secs);
    let is_expired = now > certificate.not_after_secs;
    if let Some(renewed) = renewed.filter(|_| is_expired && is_asked_at_start(snapshot)) {
        report.add(hidden_by_renewed(kubeconfig, certificate, renewed));
        return;
    }
    let certificate = renewed.unwrap_or(certificate);
    let Some((severity, message, fix)) = judge(snapshot, certificate, now) else { return };
    let named =
        (certificate.at != kubeconfig.at).then(|| (kubeconfig.at.clone(), "the kubeconfig names this certificate"));
    report.add(Finding::new(ID, severity, certificate.at.clone(), message).say(fix).steps(named));
}

/// Whether a start depends on the kubeconfig's own certificate: with `--bootstrap-kubeconfig` the kubelet wants a new one
/// if it has expired (`isClientConfigStillValid` of pkg/kubelet/certificate/bootstrap).
fn is_asked_at_start(snapshot: &Snapshot) -> bool {
    snapshot.settings.text("--bootstrap-kubeconfig").is_some() && !can_bootstrap(snapshot)
}

/// The kubelet runs with the certificate that it has renewed, and does not start again.
fn hidden_by_renewed(own: &Kubeconfig, expired: &Certificate, renewed: &Certificate) -> Finding {
    let (file, path) = (&own.at.file, &renewed.at.file);
    let message = format!(
        "the client certificate in {file} expired at {}, and there is no bootstrap kubeconfig to get a new one with: the \
         kubelet exits at its next start, although {path} is valid until {}",
        day(expired.not_after_secs),
        day(renewed.not_after_secs)
    );
    let fix = format!(
        "in place of client-certificate-data and client-key-data write `client-certificate: {path}` and `client-key: {path}`"
    );
    Finding::new("AU002", Severity::Fatal, own.at.clone(), message)
        .say_at(&own.at, fix)
        .step(renewed.at.clone(), "the renewed certificate is here")
}

/// What is wrong with the dates of a client certificate: severity, message, fix.
fn judge(snapshot: &Snapshot, certificate: &Certificate, now: i64) -> Option<(Severity, String, String)> {
    const CSR: &str = "check with `kubectl get csr` whether the kubelet's requests \
                       (kubernetes.io/kube-apiserver-client-kubelet) were approved";
    let unit = &snapshot.unit.name;
    let is_managed = settings::are_managed(snapshot);
    let expires = day(certificate.not_after_secs);
    if now < certificate.not_before_secs {
        let message = format!(
            "the client certificate is valid from {}, but this host's clock shows {}. If the clock is right, the API \
             server refuses the kubelet until then",
            day(certificate.not_before_secs),
            day(now)
        );
        let fix = "check the clock with `timedatectl`, and set it before the kubelet starts (After=time-sync.target)"
            .to_owned();
        return Some((Severity::Error, message, fix));
    }
    if now <= certificate.not_after_secs {
        let rotates = snapshot.settings.bool(ROTATE) == Some(true) && !is_managed;
        let is_running = snapshot.lifecycle == Lifecycle::Running;
        return (rotates && is_running && is_overdue(certificate, now)).then(|| {
            let message = format!(
                "the client certificate expires at {expires}. The kubelet should have renewed it after 70 to \
                 {OVERDUE_PERCENT} % of its life, but its requests were not approved or not signed"
            );
            (Severity::Warning, message, CSR.to_owned())
        });
    }
    let base = format!("the client certificate expired at {expires}");
    Some(if is_managed {
        let message = format!("{base}. {unit} renews it when it starts");
        (Severity::Error, message, format!("run `systemctl restart {unit}`"))
    } else if can_bootstrap(snapshot) {
        let message = format!(
            "{base}. At its next start the kubelet gets a new one with its bootstrap kubeconfig, if the token there is \
             still valid"
        );
        (Severity::Warning, message, format!("run `systemctl restart {unit}`, then {CSR}"))
    } else {
        let exits = snapshot.settings.bool(ROTATE) == Some(true) || is_asked_at_start(snapshot);
        let then = if exits {
            "The API server refuses the kubelet, which exits"
        } else {
            "The API server refuses the kubelet"
        };
        let message = format!("{base}, and there is no bootstrap kubeconfig to get a new one with. {then}");
        let severity = if exits { Severity::Fatal } else { Severity::Error };
        let fix = "on a control plane run `kubeadm kubeconfig user --org system:nodes --client-name system:node:NAME`, and \
                   write its output into the kubelet's kubeconfig. On a worker you can instead run `kubeadm reset`, then \
                   `kubeadm join` with a new token. On a control plane node `kubeadm reset` deletes the etcd data";
        (severity, message, fix.to_owned())
    })
}

pub(in crate::rules) fn rotation_off(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "AU003";
    if settings::are_managed(snapshot) {
        return;
    }
    let Some(kubeconfig) = kubeconfig(snapshot) else { return };
    let holder = match &kubeconfig.credential {
        ClientCredential::CertificateFile { path } => path.clone(),
        ClientCredential::CertificateData => format!("in {}", kubeconfig.at.file),
        _ => return,
    };
    if snapshot.settings.bool(ROTATE) == Some(true) {
        return;
    }
    // CF002 says it already, and better: the line is there, only its name is wrong.
    let is_misspelt = snapshot.config.unknown.iter().any(|field| field.meant == Some(ROTATE));
    if is_misspelt && settings::is_default(snapshot, ROTATE) {
        return;
    }
    let when = match &kubeconfig.certificate {
        Some(certificate) => format!("expires at {}", day(certificate.not_after_secs)),
        None => "expires at a date that could not be read".to_owned(),
    };
    let message = format!(
        "{}: the kubelet does not renew its client certificate. It {when} ({holder}), and the API server refuses the \
         kubelet from then on",
        settings::shown(snapshot, ROTATE)
    );
    let finding = Finding::new(ID, Severity::Warning, settings::place(snapshot, ROTATE), message);
    let finding = finding.step(kubeconfig.at.clone(), "the kubeconfig has a client certificate");
    report.add(finding.remedy(remedy::set(snapshot, ROTATE, "true")));
}

pub(in crate::rules) fn serving_certificate(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "AU010";
    let (at, message) = match &snapshot.machine.serving_certificate {
        FileState::NotAsked => return,
        FileState::Missing { at } => {
            let age = snapshot.observed.process.as_ref().and_then(|process| process.age_secs);
            let is_asked_for = snapshot.settings.text("tlsCertFile").is_none();
            if !is_asked_for || snapshot.lifecycle == Lifecycle::BeforeFirstStart {
                return;
            }
            match age {
                None => return report.not_checked(ID, "the age of the running kubelet"),
                Some(..SERVING_GRACE_SECS) => return,
                Some(age) => (
                    at.clone(),
                    format!(
                        "the kubelet started {age} s ago and has no serving certificate yet: its request was not approved \
                         (kubernetes.io/kubelet-serving). kubectl logs, kubectl exec and metrics fail for this node"
                    ),
                ),
            }
        }
        FileState::Bad { .. } => {
            return report.not_checked(ID, "a serving certificate that can be read");
        }
        FileState::Present(certificate) => {
            let Some(now) = snapshot.observed.now_secs else { return report.not_checked(ID, "the time") };
            if now <= certificate.not_after_secs {
                return;
            }
            let expired = day(certificate.not_after_secs);
            (
                certificate.at.clone(),
                format!(
                    "the serving certificate expired at {expired}. kubectl logs, kubectl exec and metrics fail for this node"
                ),
            )
        }
    };
    let setting =
        ["tlsCertFile", "serverTLSBootstrap"].into_iter().find(|setting| !settings::is_default(snapshot, setting));
    let step = setting.map(|setting| (settings::place(snapshot, setting), format!("{setting} is set here")));
    let finding = Finding::new(ID, Severity::Warning, at, message).steps(step);
    report.add(match setting {
        Some("tlsCertFile") => finding.say("renew the certificate that tlsCertFile names, then restart the kubelet"),
        _ => finding,
    });
}
