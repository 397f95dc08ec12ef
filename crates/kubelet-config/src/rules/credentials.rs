//! AU: what the kubelet shows to the API server, and whom it lets use its own API.

use super::lost::as_written;
use super::{Finding, Launcher, Lifecycle, Location, Report, Severity, Snapshot, Step, flags_in, settings};
use crate::kubelet::machine::{Certificate, ClientCredential, FileState, Kubeconfig};
use crate::kubelet::systemd::LoadState;

pub(super) mod access;
pub(super) mod dates;

/// Whether the kubelet can get credentials with its bootstrap kubeconfig.
fn can_bootstrap(snapshot: &Snapshot) -> bool {
    matches!(
        &snapshot.machine.bootstrap_kubeconfig,
        FileState::Present(found)
            if found.credential != ClientCredential::Nothing
                && found.missing_files.is_empty()
                && (found.missing_authority.is_none() || snapshot.lifecycle == Lifecycle::BeforeFirstStart)
    )
}

/// Why a kubeconfig cannot be used, and where; `None` if it can.
fn unusable(kubeconfig: &FileState<Kubeconfig>) -> Option<(Location, String)> {
    match kubeconfig {
        FileState::Missing { at } => Some((at.clone(), "does not exist".to_owned())),
        FileState::Bad { at, reason } => Some((at.clone(), reason.clone())),
        FileState::Present(found) if !found.missing_files.is_empty() => {
            Some((found.at.clone(), format!("names {}, which does not exist", found.missing_files.join(", "))))
        }
        FileState::Present(found) if found.credential == ClientCredential::Nothing => {
            Some((found.at.clone(), "has neither a certificate, a token nor an exec plugin".to_owned()))
        }
        FileState::NotAsked | FileState::Present(_) => None,
    }
}

/// The CA file that a kubeconfig names and that is not there.
fn missing_authority(kubeconfig: &FileState<Kubeconfig>) -> Option<(Location, String)> {
    let FileState::Present(found) = kubeconfig else { return None };
    let path = found.missing_authority.as_ref()?;
    Some((found.at.clone(), format!("names the CA file {path}, which does not exist")))
}

fn unusable_bootstrap(snapshot: &Snapshot) -> Option<(Location, String)> {
    let bootstrap = &snapshot.machine.bootstrap_kubeconfig;
    unusable(bootstrap).or_else(|| missing_authority(bootstrap))
}

/// What somebody wrote is to be corrected, the bootstrap kubeconfig first.
fn remedy(snapshot: &Snapshot, is_kubeadm: bool) -> Vec<Step> {
    let machine = &snapshot.machine;
    let bootstrap = unusable_bootstrap(snapshot).filter(|_| !is_missing(&machine.bootstrap_kubeconfig));
    let correct = match (&machine.kubeconfig, bootstrap) {
        (_, Some((at, _))) => Step::say_at(&at, "correct the bootstrap kubeconfig"),
        (FileState::Bad { at, .. }, None) => Step::say_at(at, "correct what is"),
        _ => return vec![Step::say(if is_kubeadm { JOIN } else { PROVIDE })],
    };
    let join = is_kubeadm.then(|| Step::say(format!("Or {JOIN}")));
    [correct].into_iter().chain(join).collect()
}

/// An image may have a kubeconfig whose CA file is written at the first boot.
fn without_authority(snapshot: &Snapshot) -> Option<Finding> {
    let (at, names) = missing_authority(&snapshot.machine.kubeconfig)?;
    (snapshot.lifecycle != Lifecycle::BeforeFirstStart).then_some(())?;
    let message = format!(
        "the kubeconfig {} {names}: the kubelet cannot check the certificate of the API server, and exits",
        at.file
    );
    let fix =
        format!("copy the CA certificate of the cluster to that file, or correct certificate-authority in {}", at.file);
    Some(Finding::new("AU001", Severity::Fatal, at, message).say(fix))
}

pub(super) fn no_credentials(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "AU001";
    // k3s and RKE2 fetch certificates and write the kubeconfig each time they start. Of a path with a variable FL004 tells.
    let bootstrap = snapshot.settings.text("--bootstrap-kubeconfig");
    if settings::are_managed(snapshot) || bootstrap.is_some_and(|path| as_written(snapshot, path).is_some()) {
        return;
    }
    let machine = &snapshot.machine;
    if can_bootstrap(snapshot) {
        return;
    }
    let Some((at, reason)) = unusable(&machine.kubeconfig) else {
        report.findings.extend(without_certificate(snapshot).or_else(|| without_authority(snapshot)));
        return;
    };
    if snapshot.lifecycle == Lifecycle::BeforeFirstStart
        && is_missing(&machine.kubeconfig)
        && is_missing(&machine.bootstrap_kubeconfig)
    {
        return;
    }
    let path = snapshot.settings.text("--kubeconfig").unwrap_or_default();
    let is_kubeadm = snapshot.command.launcher == Launcher::Direct && path == "/etc/kubernetes/kubelet.conf";
    let remedy = remedy(snapshot, is_kubeadm);
    let base = format!("the kubelet has no credentials and exits. Its kubeconfig {path} {reason}");
    if let FileState::Present(found) = &machine.kubeconfig
        && found.missing_files.is_empty()
    {
        let message = format!(
            "the user of the current context of {path} is not there or {reason}: the API server refuses the kubelet, and no Node \
             is registered"
        );
        return report.add(Finding::new(ID, Severity::Error, at, message).remedy(remedy));
    }
    let (at, message) = match unusable_bootstrap(snapshot) {
        // The bootstrap kubeconfig is the one to correct, if somebody wrote one.
        Some((file, why)) if !is_missing(&machine.bootstrap_kubeconfig) => {
            let message = format!("{base}, and its bootstrap kubeconfig {} {why}", file.file);
            (file, message)
        }
        Some((file, _)) => {
            let cause = if is_kubeadm {
                "Perhaps kubeadm join has not run yet, or a file was deleted afterwards"
            } else {
                "The program that sets the node up has not written them"
            };
            let message = format!("{base}, and its bootstrap kubeconfig {} does not exist either. {cause}", file.file);
            (at, message)
        }
        None => (at, format!("{base}, and --bootstrap-kubeconfig is not set")),
    };
    let mut finding = Finding::new(ID, Severity::Fatal, at, message).remedy(remedy);
    for flag in ["--kubeconfig", "--bootstrap-kubeconfig"] {
        if let Some(path) = snapshot.settings.text(flag) {
            finding = finding.step(settings::place(snapshot, flag), format!("{flag} is {path}"));
        }
    }
    report.add(finding);
}

/// With `--bootstrap-kubeconfig` a kubelet takes a kubeconfig without a client certificate for one that has expired
/// (`isClientConfigStillValid` of pkg/kubelet/certificate/bootstrap).
fn without_certificate(snapshot: &Snapshot) -> Option<Finding> {
    const FLAG: &str = "--bootstrap-kubeconfig";
    let FileState::Present(found) = &snapshot.machine.kubeconfig else { return None };
    let (file, why) = unusable_bootstrap(snapshot)?;
    if !matches!(found.credential, ClientCredential::Token | ClientCredential::Exec) {
        return None;
    }
    let message = format!(
        "the kubeconfig {} has no client certificate. With {FLAG} the kubelet asks for one at each start, and exits: {} {why}",
        found.at.file, file.file
    );
    let at = settings::place(snapshot, FLAG);
    let fix = format!("delete {FLAG}, or write a bootstrap kubeconfig with a valid token to {}", file.file);
    Some(Finding::new("AU001", Severity::Fatal, at.clone(), message).say_at(&at, fix))
}

fn is_snap_without_flags(snapshot: &Snapshot) -> bool {
    matches!(snapshot.command.launcher, Launcher::MicroK8s | Launcher::K8sSnap) && snapshot.command.args.len() == 1
}

pub(super) fn standalone(snapshot: &Snapshot, report: &mut Report) {
    const MESSAGE: &str =
        "the kubelet runs without --kubeconfig: it is standalone, talks to no API server and registers no Node";
    let kubeconfig = |text: &str| flags_in(text).iter().any(|flag| flag.name == "kubeconfig");
    let is_loaded = snapshot.unit.load == LoadState::Loaded && !snapshot.command.args.is_empty();
    let is_known = is_loaded && !settings::is_misspelt(snapshot, "kubeconfig");
    if !is_known || snapshot.settings.text("--kubeconfig").is_some() || settings::are_managed(snapshot) {
        return;
    }
    // Where the flag is lost, that is the mistake.
    let loss = report.findings.iter_mut().find(|one| one.lost_flags.iter().any(|flag| kubeconfig(flag)));
    if let Some(loss) = loss {
        let least = if settings::is_standalone(snapshot) { Severity::Info } else { Severity::Error };
        loss.severity = loss.severity.max(least);
        loss.message.push_str(". So ");
        loss.message.push_str(MESSAGE);
        return;
    }
    let command = settings::command(snapshot);
    let (severity, and, fix) = if is_snap_without_flags(snapshot) {
        (
            Severity::Error,
            ". Its file has no flag at all, and so it lets everybody run commands in its containers",
            "restore the whole file (MicroK8s has it in /snap/microk8s/current/default-args/kubelet)",
        )
    } else {
        (Severity::Warning, "", "add --kubeconfig=FILE to the command")
    };
    let finding = Finding::new("AU011", severity, command.clone(), format!("{MESSAGE}{and}"));
    report.add(finding.say_at(&command, fix));
}

fn is_missing(kubeconfig: &FileState<Kubeconfig>) -> bool {
    matches!(kubeconfig, FileState::Missing { .. } | FileState::NotAsked)
}

const PROVIDE: &str = "find out why the program that sets the node up (cloud-init, the cluster's provider) has not \
                       written the kubeconfig. Or write a bootstrap kubeconfig with a valid token, and name it with \
                       --bootstrap-kubeconfig";

const JOIN: &str = "on a control plane node run `kubeadm init phase kubeconfig kubelet`, and not `kubeadm reset`, which \
                    deletes the etcd data. On a worker run the command that `kubeadm token create --print-join-command` \
                    prints on a control plane node. If the worker had joined before, run `kubeadm reset` first";

#[cfg(test)]
mod tests;
