//! CF: the configuration file and its drop-ins.

mod dir;
mod limits;

use super::{Finding, Report, Rule, Severity, at, settings};
use crate::kubelet::{
    config::{ConfigFile, ConfigFileState, UnknownField},
    layers::Launcher,
    location::Location,
    snapshot::{Lifecycle, Snapshot},
};

/// The rules of this family.
pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "CF001",
        name: "config-unreadable",
        severity: "fatal; info before kubeadm join where the file is still to be written",
        doc: "The file of `--config`, or a drop-in of `--config-dir`, is not there, is neither YAML nor JSON, is no \
              `KubeletConfiguration` or has a value of a wrong type: the kubelet exits at its start.",
        source: "kubernetes/kubeadm: 'failed to load Kubelet config file /var/lib/kubelet/config.yaml'; tried with \
                 kubelet 1.36.3",
        fix: "Correct the file at the place named; before kubeadm join a missing file is normal, kubeadm writes it.",
        run: unreadable,
    },
    Rule {
        id: "CF002",
        name: "config-unknown-field",
        severity: "error for fields that a node depends on, else warning",
        doc: "A key of the configuration is none that the kubelet knows (names are case-sensitive, flags have other \
              names), or stands there twice. Strict decoding fails, the lenient one passes over the key, and there is \
              a warning in the log at most: the setting has its default.",
        source: "kubernetes/kubernetes#78758, #83204; bottlerocket-os/bottlerocket#989",
        fix: "Write the name as the reference of KubeletConfiguration has it, or delete the line.",
        run: unknown_field,
    },
    Rule {
        id: "CF003",
        name: "config-dir-unsupported",
        severity: "fatal; warning before the first start where the folder is missing",
        doc: "`--config-dir` names a folder that is not there, or the kubelet is a 1.28 or 1.29, which wants \
              `KUBELET_CONFIG_DROPIN_DIR_ALPHA` in its environment: it exits at its start.",
        source: "KEP-3983; tried with kubelet 1.36.3",
        fix: "Create the folder, set the variable, or remove the flag.",
        run: dir::config_dir,
    },
    Rule {
        id: "CF004",
        name: "config-dir-file-ignored",
        severity: "warning where the name looks like configuration, else info",
        doc: "A file in the folder of `--config-dir` does not end in `.conf`, or the folder itself is a symbolic link, \
              which the kubelet does not follow: it is not read, and no log says so.",
        source: "k3s-io/k3s#2116; tried with kubelet 1.36.3",
        fix: "Give the file a name that ends in .conf, and the flag the folder's real path.",
        run: dir::ignored,
    },
    Rule {
        id: "CF005",
        name: "config-dir-bad-kind",
        severity: "fatal",
        doc: "A drop-in of `--config-dir` lacks `apiVersion: kubelet.config.k8s.io/v1beta1` or \
              `kind: KubeletConfiguration`: the kubelet exits at its start.",
        source: "KEP-3983; tried with kubelet 1.36.3",
        fix: "Add apiVersion and kind to each drop-in.",
        run: bad_kind,
    },
    Rule {
        id: "CF007",
        name: "config-invalid",
        severity: "fatal",
        doc: "A setting, from a file or a flag, has a value out of its range, or two settings contradict one another: \
              the kubelet's validation refuses it, and the kubelet exits at its start with 'failed to validate kubelet \
              configuration'.",
        source: "pkg/kubelet/apis/config/validation/validation.go, Kubernetes 1.36.3",
        fix: "Write a value that the kubelet takes at the place named.",
        run: limits::invalid,
    },
    Rule {
        id: "CF008",
        name: "field-too-new",
        severity: "warning",
        doc: "A field of the configuration is newer than the kubelet, which passes over it as over an unknown one.",
        source: "the tags of kubernetes/kubelet, config/v1beta1/types.go",
        fix: "Remove the field, or upgrade the kubelet.",
        run: too_new,
    },
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
