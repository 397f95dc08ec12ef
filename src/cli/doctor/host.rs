//! The host: the daemon, the bus, the kernel's interfaces, the helper.

use std::path::Path;

use super::{Ground, line::Lines, memory as seen_memory};
use crate::{
    checks::kubelet::Found,
    clock::Clock,
    host::{
        files::Root,
        helper::{HelperError, KubeletFacts},
        kernel,
        loaded::{self, Told},
        process::{self, Where},
        socket,
    },
    status::{ApiState, IdentityKind, StatusFile},
};

const AGENT: &str = "nodevigil.service";
const JOURNAL: &str = "/run/systemd/journal/socket";
/// The daemon writes once a minute.
const STALE_SECS: i64 = 150;
/// What the agent holds locked is some 8 MiB; see docs/promises.md.
const ENOUGH_LOCKABLE: u64 = 16 * 1024 * 1024;
/// The bit of `CAP_SYSLOG`.
const SYSLOG: u64 = 1 << 34;
const MAX_BYTES: usize = 64 * 1024;

/// Whether the daemon runs, and what it says of itself.
pub(super) fn daemon(lines: &Lines, root: &Root, runtime_dir: &Path) -> Option<StatusFile> {
    let file = match StatusFile::read(root, runtime_dir) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => {
            lines.fail(
                "daemon",
                format!("does not run: no {}/status.json", runtime_dir.display()),
                "systemctl start nodevigil; journalctl -u nodevigil says why it does not",
            );
            return None;
        }
        Err(error) => {
            lines.fail("daemon", error.to_string(), "");
            return None;
        }
    };
    let age = Clock.now().wall.duration_since(file.written_at).as_secs();
    if age.abs() > STALE_SECS {
        lines.fail(
            "daemon",
            format!("has not written its status for {age} s"),
            "systemctl status nodevigil",
        );
        return None;
    }
    let node = file.node.as_deref().unwrap_or("not known yet");
    let text = format!("runs, version {}, node {node}", file.agent_version);
    let own = env!("CARGO_PKG_VERSION");
    if file.agent_version != own {
        let advice = format!("this is {own}; systemctl restart nodevigil");
        lines.warn("daemon", text, &advice);
    } else if let Some(trouble) = trouble(&file) {
        lines.warn(
            "daemon",
            format!("{text}; {trouble}"),
            "see the lines below",
        );
    } else {
        lines.ok("daemon", text);
    }
    Some(file)
}

/// What the daemon itself complains about.
fn trouble(file: &StatusFile) -> Option<String> {
    let or_nothing = |text: &Option<String>| text.clone().unwrap_or_default();
    if file.identity.kind == IdentityKind::None {
        let why = or_nothing(&file.identity.detail);
        return Some(format!("it has no identity: {why}"));
    }
    let state = match file.api.state {
        ApiState::Retrying => "its last request failed",
        ApiState::NodeMissing => "it finds no Node of its name",
        _ => return None,
    };
    Some(format!("{state}: {}", or_nothing(&file.api.last_error)))
}

/// The kubelet, as far as it was found.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    pub(super) pid: Option<i32>,
    /// systemd's id of its unit's run.
    pub(super) invocation: Option<String>,
}

/// Looks at what the daemon stands on; returns the kubelet.
pub(super) fn look(lines: &Lines, ground: &Ground) -> Kubelet {
    let kubelet = bus(lines, ground);
    let agent = loaded::ask(AGENT).ok().and_then(|told| told.main_pid);
    seen_memory::look(lines, ground, kubelet.pid);
    kmsg(lines, ground, agent);
    hung_tasks(lines, ground);
    memory(lines, ground, agent);
    journal(lines, ground);
    metrics(lines, ground);
    kubelet
}

fn bus(lines: &Lines, ground: &Ground) -> Kubelet {
    let unit = &ground.settings.kubelet.unit;
    if let Some(path) = &ground.settings.kubelet.pid_file {
        let found = process::find_kubelet(&ground.root, &Where::PidFile(path.clone()));
        let pid = told_of_kubelet(lines, found, "by its pid file: no unit is looked at");
        return Kubelet {
            pid,
            invocation: None,
        };
    }
    match loaded::ask(unit) {
        Ok(Told { loaded, .. }) if loaded.load_state != "loaded" => {
            lines.fail(
                "bus",
                format!("systemd answers, and {unit} is {}", loaded.load_state),
                "name the unit that runs the kubelet: [kubelet] unit",
            );
            Kubelet::default()
        }
        Ok(told) => {
            let from = format!("systemd answers; {unit} from {}", told.loaded.fragment);
            if told.control_group.is_empty() {
                let state = &told.loaded.active_state;
                lines.warn("bus", format!("{from} is {state}"), "no kubelet runs");
                return Kubelet::default();
            }
            let found =
                process::find_kubelet(&ground.root, &Where::ControlGroup(told.control_group));
            Kubelet {
                pid: told_of_kubelet(lines, found, &from),
                invocation: told.invocation,
            }
        }
        Err(why) => {
            lines.fail(
                "bus",
                format!("systemd cannot be asked: {why}"),
                "without the system bus nobody knows why a kubelet ended",
            );
            Kubelet::default()
        }
    }
}

fn told_of_kubelet(lines: &Lines, found: Found, how: &str) -> Option<i32> {
    match found {
        Found::One(process) => {
            lines.ok("bus", format!("{how}, kubelet pid {}", process.pid));
            Some(process.pid)
        }
        Found::None(why) => {
            lines.warn(
                "bus",
                format!("{how}; {why}"),
                "if it runs: does ProtectProc= hide it from here?",
            );
            None
        }
        Found::Many(pids) => {
            let text = format!("{how}; several kubelets: {pids:?}");
            lines.warn("bus", text, "the agent watches none of them");
            None
        }
    }
}

/// The kernel's log: the daemon's right to it, not doctor's own.
fn kmsg(lines: &Lines, ground: &Ground, agent: Option<i32>) {
    let own = ground.root.open("/dev/kmsg").is_ok();
    let (user, can) = (&ground.user.name, if own { "can" } else { "cannot" });
    let here = format!("{user} {can} open /dev/kmsg");
    let itself = ground.root.read_text("/proc/self/status", MAX_BYTES);
    if !own && itself.is_ok_and(|text| is_capable(&Fields(text))) {
        return lines.warn(
            "kmsg",
            format!("{here}, though CAP_SYSLOG is there"),
            "do PrivateDevices= or DevicePolicy= without DeviceAllow=/dev/kmsg take it away?",
        );
    }
    let Some((pid, fields)) = agent.and_then(|pid| Some((pid, of_process(ground, pid)?))) else {
        lines.skip("kmsg", format!("{here}; the daemon's process is not known"));
        return;
    };
    let text = format!("the daemon, pid {pid}, has");
    if is_capable(&fields) {
        lines.ok("kmsg", format!("{text} CAP_SYSLOG; {here}"));
    } else {
        lines.warn(
            "kmsg",
            format!("{text} no CAP_SYSLOG; {here}"),
            "with kernel.dmesg_restrict=1 it does not see the kernel's log; does ProtectKernelLogs= or \
             CapabilityBoundingSet= take it away?",
        );
    }
}

/// Whether the kernel logs tasks that hang, without which the log's readers wait in vain.
fn hung_tasks(lines: &Lines, ground: &Ground) {
    const CHECK: &str = "hung-tasks";
    let state = kernel::hung_task_detection(&ground.root);
    let Some(warnings) = state.hung_task_warnings else {
        let text = "this kernel does not look for hung tasks (CONFIG_DETECT_HUNG_TASK)";
        return lines.skip(CHECK, text);
    };
    match state.detection_off() {
        Some(off) => lines.warn(
            CHECK,
            off.sentence(),
            "the daemon looks at the threads of kubelet and runtime itself",
        ),
        None if warnings < 0 => lines.ok(CHECK, "the kernel logs each"),
        None => lines.ok(CHECK, format!("the kernel logs {warnings} more")),
    }
}

fn is_capable(fields: &Fields) -> bool {
    u64::from_str_radix(fields.get("CapEff"), 16).unwrap_or(0) & SYSLOG != 0
}

fn memory(lines: &Lines, ground: &Ground, agent: Option<i32>) {
    let Some(daemon) = &ground.daemon else {
        lines.skip("memory", "the daemon does not say whether it is locked");
        return;
    };
    let limit = agent.and_then(|pid| lockable(ground, pid));
    let bound = match limit {
        Some(u64::MAX) => "LimitMEMLOCK=infinity".to_owned(),
        Some(bytes) => format!("LimitMEMLOCK={}K", bytes / 1024),
        None => "its limit is not known".to_owned(),
    };
    match daemon.locked_bytes {
        Some(bytes) => lines.ok(
            "memory",
            format!("{} KiB are locked; {bound}", bytes / 1024),
        ),
        None if limit.is_some_and(|limit| limit < ENOUGH_LOCKABLE) => {
            lines.warn("memory", format!("not locked; {bound}"), "64M are needed");
        }
        None => lines.warn(
            "memory",
            format!("not locked; {bound}"),
            "under memory pressure the daemon may be slow",
        ),
    }
}

fn journal(lines: &Lines, ground: &Ground) {
    let dropped = ground.daemon.as_ref().map_or(0, |d| d.log_lines_dropped);
    match socket::takes_datagrams(Path::new(JOURNAL)) {
        Ok(()) if dropped == 0 => lines.ok("journal", "takes lines"),
        Ok(()) => lines.warn(
            "journal",
            format!("takes lines now; {dropped} of the daemon's were lost"),
            "",
        ),
        Err(socket::Refused(why)) => lines.warn(
            "journal",
            format!("{JOURNAL}: {why}"),
            "the daemon's lines go to its standard error",
        ),
    }
}

/// Whether the metrics can be had, if the daemon says that it serves them.
fn metrics(lines: &Lines, ground: &Ground) {
    let daemon = ground.daemon.as_ref();
    let Some(socket) = daemon.and_then(|daemon| daemon.metrics_socket.as_ref()) else {
        return;
    };
    let shown = socket.display();
    match socket::takes_connections(socket) {
        Ok(()) => lines.ok("metrics", format!("GET /metrics at {shown}")),
        Err(socket::Refused(why)) => lines.warn(
            "metrics",
            format!("{shown}: {why}"),
            "[metrics] socket_mode says who may connect; restart nodevigil if the socket is gone",
        ),
    }
}

/// What the helper says of the kubelet.
pub(super) async fn helper(
    lines: &Lines,
    ground: &Ground,
    kubelet: Option<i32>,
) -> Option<KubeletFacts> {
    let socket = ground.helper.socket().display();
    let Some(pid) = kubelet else {
        match socket::takes_connections(ground.helper.socket()) {
            Ok(()) => lines.ok(
                "helper",
                format!("listens at {socket}; no kubelet to ask for"),
            ),
            Err(socket::Refused(why)) => absent(lines, ground, &format!("{socket}: {why}")),
        }
        return None;
    };
    match ground.helper.kubelet_with(pid).await {
        Ok(facts) => {
            lines.ok("helper", format!("answers at {socket}"));
            Some(facts)
        }
        Err(error @ HelperError::Absent { .. }) => {
            absent(lines, ground, &error.to_string());
            None
        }
        Err(error) => {
            lines.fail("helper", error.to_string(), "");
            None
        }
    }
}

fn absent(lines: &Lines, ground: &Ground, why: &str) {
    if why.to_lowercase().contains("permission denied") && ground.user.is_stranger() {
        let user = &ground.user.name;
        lines.skip(
            "helper",
            format!("{user} may not ask it: run doctor as root"),
        );
        return;
    }
    lines.fail(
        "helper",
        why,
        "systemctl enable --now nodevigil-helper.socket; without it there is no configuration check and no kubelet's identity",
    );
}

/// `/proc/PID/status`, which everybody may read.
struct Fields(String);

impl Fields {
    fn get(&self, name: &str) -> &str {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map_or("", str::trim)
    }
}

fn of_process(ground: &Ground, pid: i32) -> Option<Fields> {
    let path = format!("/proc/{pid}/status");
    ground.root.read_text(path, MAX_BYTES).ok().map(Fields)
}

/// The bound on locked memory, in bytes.
fn lockable(ground: &Ground, pid: i32) -> Option<u64> {
    let text = ground
        .root
        .read_text(format!("/proc/{pid}/limits"), MAX_BYTES)
        .ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        bytes => bytes.parse().ok(),
    }
}
