//! The flag without which an autoscaled node is deleted again: `--cloud-provider=external`.

use super::{
    Check, Finding, Report, Severity, UNINITIALIZED,
    lost::{env_file_line, explained, reason, reload, restart, rule_of},
};
use crate::kubelet::{
    layers::Launcher,
    location::Location,
    search::{self, ExpectedFlag, FlagLoss},
    snapshot::Snapshot,
    systemd::{Exec, LoadState},
    version::Minor,
};

pub(super) const RULES: &[(&str, Check)] = &[("CL001", cloud_provider_missing)];

fn cloud_provider_missing(snapshot: &Snapshot, report: &mut Report) {
    let wanted = ExpectedFlag::new("cloud-provider", "external");
    let Some(exec) = &snapshot.unit.exec else {
        return; // SD008 says that nothing is started at all.
    };
    if snapshot.unit.load != LoadState::Loaded {
        return; // SD008 or SD019 says so.
    }
    if snapshot.command.args.is_empty() {
        let running = snapshot.process.as_ref().map(|process| process.argv.join(" "));
        match running {
            Some(argv) if wanted.is_in(&argv) => return,
            Some(_) => {}
            None => {
                report.not_checked("CL001", "the kubelet's arguments");
                return;
            }
        }
    } else if wanted.reaches(snapshot) {
        return;
    }
    let cloud = snapshot.cloud.as_ref().ok().and_then(|cloud| cloud.provider.as_deref());
    let only_in = match (is_expected(snapshot), cloud) {
        (Some(false), _) | (None, Some("none")) => return,
        (Some(true), _) => None,
        (None, Some(cloud)) => Some(cloud),
        (None, None) => {
            report.not_checked(
                "CL001",
                "whether a cloud controller manager is expected: declare [intent] cloud_provider",
            );
            return;
        }
    };
    let adds_it_itself = matches!(snapshot.command.launcher, Launcher::K3s | Launcher::Rke2);
    if adds_it_itself && snapshot.command.server_disables_cloud_controller.is_none() {
        report.not_checked(
            "CL001",
            "whether the server runs with --disable-cloud-controller, without which k3s adds the flag itself",
        );
        return;
    }
    let loss = search::find(snapshot, &wanted);
    let at = other_value(snapshot).or_else(|| loss.place().cloned()).unwrap_or_else(|| exec.at.clone());
    let finding = finding(snapshot, &loss, at);
    report.add(match only_in {
        Some(cloud) => undeclared(finding, cloud, matches!(loss, FlagLoss::Nowhere)),
        None => finding,
    });
}

/// The finding as less than an error: a machine of a cloud may be in a cluster without a cloud controller manager.
fn undeclared(mut finding: Finding, cloud: &str, is_nowhere: bool) -> Finding {
    finding.severity = if is_nowhere { Severity::Info } else { Severity::Warning };
    finding.message = format!(
        "{}. That this cluster has a cloud controller manager is assumed, because this machine is a server of '{cloud}'. \
         Without one, nothing is wrong.",
        finding.message.trim_end_matches('.')
    );
    finding.fix = finding.fix.map(|fix| {
        format!(
            "{}. In a cluster without cloud controller manager declare `cloud_provider = \"none\"` in [intent] of \
             nodevigil's settings.",
            fix.trim_end_matches('.')
        )
    });
    finding
}

/// Whether a cloud controller manager is expected; `None` where nothing says so or otherwise.
fn is_expected(snapshot: &Snapshot) -> Option<bool> {
    if let Some(declared) = &snapshot.intent.cloud_provider {
        return Some(declared == "external");
    }
    if in_tree(snapshot) {
        return Some(false);
    }
    let cluster = snapshot.cluster.as_ref();
    let tainted = cluster
        .and_then(|cluster| cluster.taints.as_ref())
        .is_some_and(|taints| taints.iter().any(|key| key == UNINITIALIZED));
    if tainted { Some(true) } else { cluster?.others_have_provider_id }
}

/// Whether the kubelet is one that still has cloud providers of its own, and is given one.
fn in_tree(snapshot: &Snapshot) -> bool {
    snapshot.version.as_ref().is_some_and(|version| version.minor < Minor(31))
        && snapshot.flags.value("cloud-provider").is_some_and(|value| !value.is_empty())
}

/// The use that gives the flag another value.
fn other_value(snapshot: &Snapshot) -> Option<Location> {
    let used = snapshot.flags.last("cloud-provider")?;
    let elsewhere = snapshot.flags.all("cloud-provider").any(|used| used.value == "external");
    (!used.value.is_empty() && !elsewhere).then(|| used.at.clone())
}

fn finding(snapshot: &Snapshot, loss: &FlagLoss<'_>, at: Location) -> Finding {
    let given = other_value(snapshot).and(snapshot.flags.value("cloud-provider"));
    let why = match given {
        Some(value) => format!("the flag is given as '{value}' here"),
        None => reason(loss),
    };
    let server = if snapshot.command.server_disables_cloud_controller == Some(true) {
        "; the server runs with --disable-cloud-controller, so that the distribution does not add the flag itself"
    } else {
        ""
    };
    let message = format!(
        "--cloud-provider=external does not reach the kubelet: {why}{server}. The Node will register without the \
         uninitialized taint and without a providerID; the autoscaler cannot match it to its server"
    );
    let mut finding = Finding::new("CL001", Severity::Error, at.clone(), message).fix(fix(snapshot, loss, given));
    if given.is_some() {
        return finding.caused_by("CL002", at);
    }
    finding = chain(finding, snapshot, loss);
    explained(finding, loss)
}

fn chain(finding: Finding, snapshot: &Snapshot, loss: &FlagLoss<'_>) -> Finding {
    let Some(at) = loss.place() else {
        return finding;
    };
    let finding = if finding.at == *at { finding } else { finding.step(at.clone(), "the flag is written here") };
    match loss {
        FlagLoss::Overridden { effective, .. } => finding.step(effective.at.clone(), "this counts"),
        FlagLoss::LaterFlag { by: (by, _), .. } => finding.step((*by).clone(), "the later use counts"),
        FlagLoss::ReplacedList { list, .. } => {
            finding.step(list.by.clone(), format!("`{}` begins anew here", list.key))
        }
        FlagLoss::Cleared { by, .. } => finding.step((*by).clone(), "an empty assignment clears it"),
        FlagLoss::Unreferenced { .. } | FlagLoss::ReplacedExec { .. } => match &snapshot.unit.exec {
            Some(exec) => finding.step(exec.at.clone(), "the command that counts"),
            None => finding,
        },
        _ => finding,
    }
}

fn fix(snapshot: &Snapshot, loss: &FlagLoss<'_>, given: Option<&str>) -> String {
    let exists = if snapshot.cluster.as_ref().and_then(|cluster| cluster.node_exists) == Some(true) {
        "; the Node exists already: delete it (`kubectl delete node`) before the restart, the taint is set at \
         creation only"
    } else {
        ""
    };
    let first = match (given, rule_of(loss)) {
        (Some(_), _) => format!("write --cloud-provider=external there, then {}", reload(snapshot)),
        (None, Some(rule)) if !matches!(loss, FlagLoss::Memory | FlagLoss::Process { .. }) => {
            format!("see {rule}, which explains the loss and how to mend it")
        }
        _ => add_it(snapshot),
    };
    format!("{first}{exists}")
}

/// Where one would add the flag on this host.
fn add_it(snapshot: &Snapshot) -> String {
    match snapshot.command.launcher {
        Launcher::K3s | Launcher::Rke2 => {
            let name = if snapshot.command.launcher == Launcher::K3s { "k3s" } else { "rke2" };
            format!(
                "add `cloud-provider=external` to the list `kubelet-arg` of /etc/rancher/{name}/config.yaml, then {}",
                restart(snapshot)
            )
        }
        Launcher::MicroK8s | Launcher::K8sSnap => {
            let files = &snapshot.command.files;
            let file = files.last().map_or("the snap's file args/kubelet", |file| &file.file);
            format!("add a line `--cloud-provider=external` to {file}, then {}", restart(snapshot))
        }
        Launcher::Direct | Launcher::Script => add_to_unit(snapshot),
    }
}

fn add_to_unit(snapshot: &Snapshot) -> String {
    let unit = &snapshot.unit;
    let references = unit.exec.iter().flat_map(Exec::references);
    let extra = references.map(|(name, _, _)| name).find(|name| name.ends_with("EXTRA_ARGS"));
    let mut files = unit.env_files.iter().rev();
    let file = files.find(|file| !file.path.ends_with("kubeadm-flags.env"));
    if let (Some(name), Some(file)) = (extra, file) {
        let old = unit.variables.get(&name);
        let old = old.map_or("", |variable| variable.effective.value.as_str());
        let value = format!("{old} --cloud-provider=external");
        return format!(
            "put `{}` into {}, then {}",
            env_file_line(&name, value.trim()),
            file.path.display(),
            restart(snapshot)
        );
    }
    let exec = unit.exec.as_ref().map(|exec| exec.at.to_string());
    format!(
        "add --cloud-provider=external to the kubelet's arguments ({}), then {}",
        exec.as_deref().unwrap_or("ExecStart="),
        reload(snapshot)
    )
}

#[cfg(test)]
mod tests;
