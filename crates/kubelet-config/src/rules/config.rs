//! CF: the configuration file and its drop-ins.

mod dir;
mod limits;

use super::{Check, Finding, Report, Severity, at, settings};
use crate::kubelet::{
    config::{ConfigFile, ConfigFileState, UnknownField},
    layers::Launcher,
    location::Location,
    snapshot::{Lifecycle, Snapshot},
};

/// The rules of this family.
pub(super) const RULES: &[(&str, Check)] = &[
    ("CF001", unreadable),
    ("CF002", unknown_field),
    ("CF003", dir::config_dir),
    ("CF004", dir::ignored),
    ("CF005", bad_kind),
    ("CF007", limits::invalid),
    ("CF008", too_new),
];

/// Fields, or structures, without which a node does not join, is not safe or does not protect itself.
const IMPORTANT: &[&str] = &[
    "authentication",
    "authorization",
    "cgroupDriver",
    "clusterDNS",
    "clusterDomain",
    "containerRuntimeEndpoint",
    "enforceNodeAllocatable",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "kubeReserved",
    "kubeReservedCgroup",
    "maxPods",
    "memorySwap",
    "mergeDefaultEvictionSettings",
    "podPidsLimit",
    "protectKernelDefaults",
    "providerID",
    "readOnlyPort",
    "registerNode",
    "registerWithTaints",
    "reservedSystemCPUs",
    "resolvConf",
    "rotateCertificates",
    "serverTLSBootstrap",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "staticPodPath",
    "systemReserved",
    "systemReservedCgroup",
    "tlsCertFile",
    "tlsPrivateKeyFile",
];

fn restart(snapshot: &Snapshot) -> String {
    format!("systemctl restart {}", snapshot.unit.name)
}

fn unreadable(snapshot: &Snapshot, report: &mut Report) {
    for file in &snapshot.config.files {
        match &file.state {
            ConfigFileState::Bad { at, reason } if !(file.drop_in && file.lacks_kind()) => {
                report.add(
                    Finding::new(
                        "CF001",
                        Severity::Fatal,
                        at.clone(),
                        format!("the kubelet cannot load {}: {reason}; it exits", file.at),
                    )
                    .fix(format!("correct {at}, then {}", restart(snapshot)))
                    .step(file.declared.clone(), "names the file"),
                );
            }
            ConfigFileState::Missing if !file.drop_in => report.add(missing(snapshot, file)),
            _ => {}
        }
    }
}

fn missing(snapshot: &Snapshot, file: &ConfigFile) -> Finding {
    let (severity, message, fix) = if snapshot.lifecycle == Lifecycle::BeforeFirstStart {
        (
            Severity::Info,
            format!(
                "{} is not there yet: the kubelet exits until kubeadm join (or the installer) has written it",
                file.at
            ),
            "nothing, if kubeadm join is still to come".to_owned(),
        )
    } else {
        (
            Severity::Fatal,
            format!("--config names {}, which does not exist: the kubelet exits", file.at),
            format!("run kubeadm join, which writes {}, or correct the path at {}", file.at, file.declared),
        )
    };
    Finding::new("CF001", severity, file.declared.clone(), message).fix(fix)
}

fn bad_kind(snapshot: &Snapshot, report: &mut Report) {
    for file in snapshot.config.files.iter().filter(|file| file.drop_in && file.lacks_kind()) {
        let ConfigFileState::Bad { at, reason } = &file.state else {
            continue;
        };
        report.add(
            Finding::new(
                "CF005",
                Severity::Fatal,
                at.clone(),
                format!("the drop-in {} {reason}: the kubelet exits", file.at),
            )
            .fix(format!(
                "{}: write apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration, then {}",
                file.at,
                restart(snapshot)
            ))
            .step(file.declared.clone(), "names the folder"),
        );
    }
}

fn unknown_field(snapshot: &Snapshot, report: &mut Report) {
    for field in &snapshot.config.unknown {
        if field.since.is_none() {
            report.add(unknown_finding(snapshot, field));
        }
    }
}

fn unknown_finding(snapshot: &Snapshot, field: &UnknownField) -> Finding {
    let (path, at) = (&field.path, &field.at);
    let finding =
        |severity, message: String, fix: String| Finding::new("CF002", severity, at.clone(), message).fix(fix);
    if field.duplicate {
        return finding(
            Severity::Warning,
            format!("{path} stands twice in its map: the kubelet takes the last one and logs a warning"),
            format!("{at}: delete one of the two lines, then {}", restart(snapshot)),
        );
    }
    let goes_on = goes_on(snapshot, at);
    let Some(meant) = field.meant else {
        return finding(
            Severity::Warning,
            format!("unknown field {path}: {goes_on}"),
            format!("{at}: delete the line, or find the field's name in the reference of KubeletConfiguration"),
        );
    };
    let is_lost = settings::is_default(snapshot, meant);
    let top = meant.split('.').next().unwrap_or(meant);
    let severity = if IMPORTANT.contains(&top) && is_lost { Severity::Error } else { Severity::Warning };
    let instead = match snapshot.settings.get(meant) {
        Some(setting) if is_lost => format!(", with {meant}: {}", setting.value),
        Some(_) => format!("; {meant} is set elsewhere"),
        None => String::new(),
    };
    let consequence =
        if meant == "rotateCertificates" && is_lost { "; the client certificate will expire" } else { "" };
    let value = match field.value.as_str() {
        "[…]" | "{…}" => String::new(),
        value => format!(" {value}"),
    };
    let why = why(path, meant);
    finding(
        severity,
        format!("unknown field {path}{why}: {goes_on}{instead}{consequence}; did you mean {meant}?"),
        format!("{at}: write {meant}:{value}, then {}", restart(snapshot)),
    )
}

/// What the kubelet makes of an unknown field of that file.
fn goes_on(snapshot: &Snapshot, at: &Location) -> &'static str {
    let files = &snapshot.config.files;
    if files.iter().any(|file| file.drop_in && file.at.file == at.file) {
        "the kubelet passes over it without a word"
    } else {
        "the kubelet logs a warning and goes on without it"
    }
}

/// Why a name is none.
fn why(path: &str, meant: &str) -> &'static str {
    let name = path.rsplit('.').next().unwrap_or(path);
    if path.eq_ignore_ascii_case(meant) {
        " (names are case-sensitive)"
    } else if name.contains('-') {
        " (a flag's name)"
    } else {
        ""
    }
}

fn too_new(snapshot: &Snapshot, report: &mut Report) {
    for field in &snapshot.config.unknown {
        let (Some(since), Some(version)) = (field.since, &snapshot.version) else {
            continue;
        };
        report.add(
            Finding::new(
                "CF008",
                Severity::Warning,
                field.at.clone(),
                format!("{} exists since {since}; this kubelet is {version} and passes over it", field.path),
            )
            .fix(format!("{}: delete the line, or upgrade the kubelet to {since}", field.at)),
        );
    }
}

/// Whether the files are k3s's or RKE2's own, which they write anew at each start.
pub(super) fn are_written_by_distribution(snapshot: &Snapshot, at: &Location) -> bool {
    matches!(snapshot.command.launcher, Launcher::K3s | Launcher::Rke2) && at.file.starts_with("/var/lib/rancher/")
}

#[cfg(test)]
mod tests;
