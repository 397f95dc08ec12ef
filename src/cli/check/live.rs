//! What a running host can be asked: systemd, the kubelet's binary and process, the runtime's socket. Each has its
//! deadline, and what could not be had is said.

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::{
    checks::kubelet::Found,
    clock::Clock,
    host::{
        addresses,
        files::Root,
        loaded,
        process::{self, Where},
        program, socket,
        tree::HostTree,
    },
    kubelet::{
        args,
        layers::{self, Launcher},
        machine::Socket,
        resolve::Inputs,
        snapshot::{Phase, Process, Snapshot},
        systemd,
        tree::Tree,
    },
};

/// `/proc/PID/cmdline` waits for the process's own lock.
const CMDLINE_DEADLINE: Duration = Duration::from_secs(1);
const MAX_CMDLINE_BYTES: usize = 256 * 1024;

/// Whether `root` is the root of the host that we run on.
pub(in crate::cli) fn is_this_host(root: &Path) -> bool {
    let identity = |path: &Path| Root::default().identity(path);
    std::path::absolute(root)
        .ok()
        .and_then(|root| identity(&root))
        .is_some_and(|root| identity(Path::new("/")) == Some(root))
}

pub(super) fn hostname() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Adds to `inputs` what the host says, and to `notes` what it does not.
pub(super) fn ask(tree: &dyn Tree, inputs: &mut Inputs, notes: &mut Vec<String>) {
    let name = inputs.unit.clone().unwrap_or_else(|| {
        let mut candidates = layers::candidates(tree);
        candidates.truncate(1);
        candidates
            .pop()
            .unwrap_or_else(|| "kubelet.service".to_owned())
    });
    if inputs.addresses.is_none() {
        match addresses::addresses(tree) {
            Ok(addresses) => inputs.addresses = Some(addresses),
            Err(error) => notes.push(format!("the host's addresses are not known: {error}")),
        }
    }
    let boot_id = tree.read_text(Path::new("/proc/sys/kernel/random/boot_id"));
    if let Ok(boot_id) = boot_id {
        inputs.manager.boot_id = boot_id.trim().replace('-', "");
    }
    let mut control_group = String::new();
    match loaded::ask(&name) {
        Ok(told) => {
            control_group = told.control_group;
            let loaded = told.loaded;
            let manager = &mut inputs.manager;
            manager.environment = loaded.manager_environment.clone();
            manager.version = loaded.systemd_version.unwrap_or(manager.version);
            let unit_path: Vec<PathBuf> = loaded.unit_path.iter().map(PathBuf::from).collect();
            manager.unit_path = (!unit_path.is_empty()).then_some(unit_path);
            inputs.loaded = Some(loaded);
        }
        Err(error) => notes.push(format!(
            "systemd was not asked what it has in memory: {error}"
        )),
    }
    ask_the_kubelet(tree, &name, &control_group, inputs, notes);
}

fn ask_the_kubelet(
    tree: &dyn Tree,
    name: &str,
    control_group: &str,
    inputs: &mut Inputs,
    notes: &mut Vec<String>,
) {
    let unit = systemd::resolve(tree, name, &inputs.manager);
    let launch = layers::launch(tree, &unit, inputs.hostname.as_deref());
    if inputs.version.is_none()
        && let Some(exec) = &unit.exec
    {
        // Only of these is it known that `--version` prints the version and does nothing else.
        let words = exec.words.iter().map(|word| word.text.as_str());
        let program = std::iter::once(exec.program.as_str())
            .chain(words)
            .find(|word| {
                let name = Path::new(word).file_name().unwrap_or_default();
                word.starts_with('/')
                    && ["kubelet", "k3s", "rke2"]
                        .iter()
                        .any(|known| name == *known)
            });
        match program.map(|program| program::version(tree, Path::new(program))) {
            Some(Ok(version)) => inputs.version = Some(version),
            Some(Err(error)) => notes.push(format!("the kubelet's version is not known: {error}")),
            None => {}
        }
    }
    if inputs.phase == Phase::Before || launch.launcher.is_in_process() {
        return;
    }
    if control_group.is_empty() {
        return; // it does not run, or systemd was not asked, which is said already
    }
    let place = Where::ControlGroup(control_group.to_owned());
    match process::find_kubelet(&Root::default(), &place) {
        Found::One(found) => match cmdline(found.pid) {
            Ok(argv) => {
                let age = Clock.now().uptime.checked_sub(found.started);
                inputs.process = Some(Process {
                    pid: found.pid.unsigned_abs(),
                    argv,
                    age_secs: age.map(|age| age.as_secs()),
                });
            }
            Err(error) => notes.push(format!(
                "the running kubelet's arguments are not known: {error}"
            )),
        },
        Found::Many(pids) => notes.push(format!(
            "the running kubelet's arguments are not known: {} processes could be it",
            pids.len()
        )),
        Found::None(_) if launch.launcher == Launcher::Script => {}
        Found::None(why) => notes.push(why),
    }
}

/// The arguments of a process, or why they could not be had in time.
fn cmdline(pid: i32) -> Result<Vec<String>, String> {
    let (answer, answers) = mpsc::channel();
    thread::spawn(move || {
        let path = format!("/proc/{pid}/cmdline");
        let bytes = HostTree::new(Path::new("/"))
            .and_then(|tree| tree.read_bounded(Path::new(&path), MAX_CMDLINE_BYTES));
        answer
            .send(bytes.map_err(|error| format!("{path} {error}")))
            .ok();
    });
    let bytes = answers
        .recv_timeout(CMDLINE_DEADLINE)
        .map_err(|_| format!("process {pid} does not let its arguments be read"))??;
    if bytes.is_empty() {
        return Err(format!("process {pid} has ended"));
    }
    Ok(args::words(&bytes))
}

/// Whether somebody listens at the runtime's socket.
pub(super) fn try_socket(snapshot: &mut Snapshot) {
    if snapshot.phase == Phase::Before || snapshot.machine.socket != Some(Socket::Present) {
        return;
    }
    let endpoint = snapshot.settings.text("containerRuntimeEndpoint");
    let Some(path) = endpoint.map(|text| text.strip_prefix("unix://").unwrap_or(text)) else {
        return;
    };
    match socket::takes_connections(Path::new(path)) {
        Ok(()) => snapshot.machine.socket = Some(Socket::Connected),
        Err(socket::Refused(reason)) => snapshot.machine.socket = Some(Socket::Refused { reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_arguments_are_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        let argv = cmdline(own).unwrap();
        assert_eq!(argv, std::env::args().collect::<Vec<_>>());
        assert!(cmdline(i32::MAX).unwrap_err().contains("does not exist"));
    }

    #[test]
    fn the_running_host_is_known_by_its_root() {
        assert!(is_this_host(Path::new("/")) && is_this_host(Path::new("/usr/..")));
        assert!(!is_this_host(Path::new("/usr")) && !is_this_host(Path::new("/nowhere")));
    }
}
