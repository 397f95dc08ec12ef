//! RT: the container runtime and the cgroups that it shares with the kubelet.

use super::{Finding, Lifecycle, Located, Location, Report, Severity, Snapshot, remedy, settings};
use crate::kubelet::gates;
use crate::kubelet::machine::{Runtime, RuntimeKind, Socket, release};
use crate::step::unit_name;

pub(super) fn socket_missing(snapshot: &Snapshot, report: &mut Report) {
    let machine = &snapshot.machine;
    let (Some(path), Some(socket)) = (&machine.cri.socket_path, &machine.cri.socket) else {
        return report.not_checked("RT001", "the runtime's socket on the running host");
    };
    let state = match socket {
        Socket::Present | Socket::Connected => return,
        Socket::Missing => "the file does not exist".to_owned(),
        Socket::NotASocket => "it is not a socket".to_owned(),
        Socket::Refused { reason } => format!("the socket answers with {reason}"),
    };
    let others = machine.cri.other_sockets.join(", ");
    let found = if others.is_empty() { String::new() } else { format!(". Another runtime's socket exists: {others}") };
    let (severity, result) = if snapshot.lifecycle == Lifecycle::BeforeFirstStart {
        (Severity::Warning, "The runtime must run when the kubelet starts")
    } else {
        (Severity::Fatal, "The kubelet tries for some minutes, then exits")
    };
    let at = settings::place(snapshot, "containerRuntimeEndpoint");
    let service = match machine.cri.runtime.as_ref().map(|runtime| runtime.kind) {
        Some(RuntimeKind::Crio) => "crio.service",
        _ if settings::are_managed(snapshot) => snapshot.unit.name.as_str(),
        _ => "containerd.service",
    };
    let fix = match (machine.cri.other_sockets.first(), socket) {
        (Some(other), Socket::Missing) => {
            format!("run `systemctl enable --now {service}`, or set containerRuntimeEndpoint: unix://{other} at {at}")
        }
        _ => format!("run `systemctl enable --now {service}`. If it runs already, read `journalctl -u {service}`"),
    };
    let message = format!("there is no container runtime at {path}: {state}{found}. {result}");
    report.add(Finding::new("RT001", severity, at, message).say(fix));
}

pub(super) fn plugin_disabled(snapshot: &Snapshot, report: &mut Report) {
    let Some(runtime) = &snapshot.machine.cri.runtime else {
        return report.not_checked("RT002", "the configuration of the runtime at the endpoint");
    };
    let Some(Located { value: key, at }) = &runtime.cri_disabled else {
        if !runtime.is_whole {
            report.not_checked("RT002", "a configuration of the runtime that could be read whole");
        }
        return report.findings.extend(too_old(snapshot, runtime));
    };
    let (why, fix) = match *key {
        "disabled_plugins" => ("is disabled here, as in Docker's package", "remove this entry from disabled_plugins"),
        "config_path" => (
            "does not start with both `config_path` and `mirrors` or `tls` for its registries",
            "move these into hosts.toml files below this directory and delete them here, or delete config_path,",
        ),
        "TOML" => ("this is not valid TOML", "correct it"),
        "UTF-8" => ("here is a byte order mark, or a byte that is not UTF-8", "delete it"),
        "version" => ("it does not know this `version`", "write an older one, with its names of plugins,"),
        "plugins" => (
            "since `version = 2` it takes no short name of a plugin",
            "delete it, or write the whole name, as io.containerd.grpc.v1.cri for cri,",
        ),
        "default_runtime_name" => (
            "does not start: of the runtime that this default_runtime_name names, containerd has no table in `runtimes`",
            "correct the name, or add the table,",
        ),
        _ => (
            "does not start with this `systemd_cgroup`",
            "delete the line, and write SystemdCgroup = true in the options of runc",
        ),
    };
    let message = if matches!(*key, "TOML" | "UTF-8" | "version" | "plugins") {
        format!("{} does not start, because {why}. Without a runtime the kubelet exits", name(runtime.kind))
    } else {
        format!(
            "containerd's CRI plugin {why}. containerd answers the kubelet with 'unknown service runtime.v1.RuntimeService', \
             and the kubelet exits"
        )
    };
    let place = runtime.template.as_ref().map_or_else(
        || format!("at {at}"),
        |template| format!("in {}, from which {at} is written at each start", template.display()),
    );
    let socket = snapshot.machine.cri.socket_path.as_deref().unwrap_or_default();
    let service = match runtime.kind {
        RuntimeKind::Crio => "crio",
        _ if socket.starts_with("/var/snap/microk8s/") => "snap.microk8s.daemon-containerd",
        _ if ["/run/k3s/", "/run/k0s/"].iter().any(|bundled| socket.starts_with(bundled)) => unit_name(snapshot),
        RuntimeKind::Containerd => "containerd",
    };
    let fix = format!("{fix} {place}, then `systemctl restart {service}`");
    report.add(Finding::new("RT002", Severity::Fatal, at.clone(), message).say(fix));
}

/// A containerd that has the service of Kubernetes 1.25 alone.
fn too_old(snapshot: &Snapshot, runtime: &Runtime) -> Option<Finding> {
    let theirs = runtime.version.as_ref().filter(|_| runtime.kind == RuntimeKind::Containerd)?;
    let ours = snapshot.version.as_ref().filter(|version| version.minor.0 >= 26)?;
    ([1, 0, 0]..[1, 6, 0]).contains(&release(theirs)).then(|| {
        let message = format!(
            "containerd {theirs} answers the kubelet with 'unknown service runtime.v1.RuntimeService', and kubelet {ours} \
             exits: it needs containerd 1.6 or later"
        );
        let at = settings::place(snapshot, "containerRuntimeEndpoint");
        Finding::new("RT002", Severity::Fatal, at, message).say("install a newer containerd")
    })
}

/// Whether the kubelet asks the runtime for its driver, so that the setting does not matter.
enum Asks {
    Yes,
    No(String),
    /// What would have to be known.
    Unknown(&'static str),
}

fn asks(snapshot: &Snapshot, runtime: &Runtime) -> Asks {
    let name = name(runtime.kind);
    // The driver is told since containerd 2.0 and CRI-O 1.28.
    let answers = match &runtime.version {
        Some(version) => {
            Some(release(version) >= if runtime.kind == RuntimeKind::Crio { [1, 28, 0] } else { [2, 0, 0] })
        }
        // Schema 3 is containerd 2's.
        None => runtime.schema.filter(|schema| *schema >= 3).map(|_| true),
    };
    if answers == Some(false) {
        let version = runtime.version.as_deref().unwrap_or_default();
        return Asks::No(format!("{name} {version} does not report its driver to the kubelet"));
    }
    let Some(version) = &snapshot.version else { return Asks::Unknown("the kubelet's version") };
    let is_on = gates::is_on("KubeletCgroupDriverFromCRI", &snapshot.settings, Some(version));
    match (is_on, answers) {
        (Some(false), _) if version.minor.0 < 31 => {
            Asks::No(format!("Kubelet {version} does not ask the runtime for its driver"))
        }
        (Some(false), _) => Asks::No(
            "The feature gate KubeletCgroupDriverFromCRI, with which the kubelet would ask the runtime, is off"
                .to_owned(),
        ),
        (None, _) => Asks::Unknown("the kubelet's feature gates"),
        (_, Some(_)) => Asks::Yes,
        (_, None) => Asks::Unknown("the runtime's version"),
    }
}

fn name(kind: RuntimeKind) -> &'static str {
    match kind {
        RuntimeKind::Containerd => "containerd",
        RuntimeKind::Crio => "CRI-O",
    }
}

fn driver_name(is_systemd: bool) -> &'static str {
    if is_systemd { "systemd" } else { "cgroupfs" }
}

pub(super) fn driver_mismatch(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "RT003";
    const FIELD: &str = "cgroupDriver";
    // k3s and RKE2 set both sides when they start; MicroK8s' words come from a file.
    if settings::are_managed(snapshot) && settings::is_default(snapshot, FIELD) {
        return;
    }
    let Some(runtime) = &snapshot.machine.cri.runtime else {
        return report.not_checked(ID, "the configuration of the runtime at the endpoint");
    };
    let Some(theirs) = &runtime.systemd_cgroup else {
        return report.not_checked(ID, "a configuration of the runtime that names its cgroup driver");
    };
    let ours = snapshot.settings.text(FIELD).unwrap_or("cgroupfs");
    let wanted = driver_name(theirs.value);
    // Without its CRI plugin, RT002's, it runs no pod at all.
    if ours == wanted || runtime.cri_disabled.is_some() {
        return;
    }
    let why = match asks(snapshot, runtime) {
        Asks::Yes => return report.findings.extend(runtime.idle_driver.as_ref().map(|driver| idle(snapshot, driver))),
        Asks::Unknown(lacks) => return report.not_checked(ID, lacks),
        Asks::No(why) => why,
    };
    let runtime_name = name(runtime.kind);
    let theirs_by = if let Some(idle) = &runtime.idle_driver {
        format!(
            "{runtime_name} uses {wanted}: `SystemdCgroup = true` at {} does not count, because {}",
            idle.at, idle.value
        )
    } else if theirs.at.line == 0 {
        format!("{runtime_name} uses {wanted}, its default ({} sets nothing else)", theirs.at.file)
    } else {
        format!("{runtime_name} uses {wanted} ({})", theirs.at)
    };
    let shown = settings::shown(snapshot, FIELD);
    let message = format!(
        "{shown}, but {theirs_by}. {why}, so the kubelet uses {ours}. Pods fail to start, or kubelet and runtime account \
         for them in different cgroups"
    );
    let at = settings::place(snapshot, FIELD);
    let finding =
        Finding::new(ID, Severity::Error, at, message).step(theirs.at.clone(), format!("{runtime_name} uses {wanted}"));
    let finding = match &runtime.idle_driver {
        Some(idle) => finding.say(format!(
            "correct this at {}: write `SystemdCgroup = true` where it counts, then `systemctl restart containerd`",
            idle.at
        )),
        None => with_systemd_driver(finding, snapshot, theirs.value, &theirs.at, runtime.kind),
    };
    report.add(finding.say("Drain the node first, because running pods keep their old cgroups"));
}

/// A driver that nobody reads, where kubelet and runtime agree on another one.
fn idle(snapshot: &Snapshot, idle: &Located<String>) -> Finding {
    let message = format!(
        "`SystemdCgroup = true` does not count, because {}. containerd uses cgroupfs, and the kubelet follows",
        idle.value
    );
    let finding = Finding::new("RT003", Severity::Warning, idle.at.clone(), message);
    // The kubelet asks at its own start alone.
    let unit = unit_name(snapshot);
    finding.say(format!("write it where it counts, then `systemctl restart containerd {unit}`. Drain the node first"))
}

/// Both sides should use systemd's driver on a host that systemd runs: the fix changes the side that does not.
fn with_systemd_driver(
    finding: Finding,
    snapshot: &Snapshot,
    is_systemd: bool,
    at: &Location,
    kind: RuntimeKind,
) -> Finding {
    match kind {
        _ if is_systemd => finding.remedy(remedy::set(snapshot, "cgroupDriver", "systemd")),
        RuntimeKind::Containerd => finding.say(format!(
            "set SystemdCgroup = true in the default runtime's options in {}, then `systemctl restart containerd`",
            at.file
        )),
        RuntimeKind::Crio => finding.say(format!(
            "write systemd as CRI-O's cgroup manager at {at}, then `systemctl daemon-reload && systemctl restart crio`"
        )),
    }
}

pub(super) fn cgroup_v1(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "RT005";
    match snapshot.machine.kernel.cgroup_v2 {
        Some(true) => return,
        Some(false) => {}
        None => return report.not_checked(ID, "/sys/fs/cgroup of the host"),
    }
    // A setting that is not set is the kubelet's default, which the version alone decides.
    let said = snapshot.settings.bool("failCgroupV1").filter(|_| !settings::is_default(snapshot, "failCgroupV1"));
    let minor = snapshot.version.as_ref().map(|version| version.minor.0);
    let shown =
        snapshot.version.as_ref().map_or_else(|| "the kubelet".to_owned(), |version| format!("kubelet {version}"));
    let (severity, result) = match (minor, said) {
        (Some(..31), _) => return,
        (Some(35..), None) => (
            Severity::Fatal,
            format!("{shown} exits with 'kubelet is configured to not run on a host using cgroup v1'"),
        ),
        (_, Some(true)) => (Severity::Fatal, format!("{shown} exits, because failCgroupV1 is true")),
        (Some(35..), Some(false)) => (
            Severity::Warning,
            format!(
                "{shown} starts only because failCgroupV1 is false. A later release will not support cgroup v1 at all"
            ),
        ),
        _ => {
            let who = minor.map_or_else(|| "kubelets from 1.31 on log".to_owned(), |_| format!("{shown} logs"));
            (Severity::Warning, format!("{who} a warning, and kubelets from 1.35 on exit unless failCgroupV1 is false"))
        }
    };
    let at = Location::file("/sys/fs/cgroup");
    let message = format!("this host uses cgroup v1: {result}");
    let from = said.map(|_| (settings::place(snapshot, "failCgroupV1"), "failCgroupV1 is set here"));
    report.add(Finding::new(ID, severity, at, message).steps(from));
}

#[cfg(test)]
mod tests;
