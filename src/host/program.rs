//! The kubelet as a program: the version of its binary, and the arguments of its process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kubelet_config::kubelet::args;
use kubelet_config::kubelet::snapshot::Process;
use kubelet_config::kubelet::tree::{Kind, Tree};
use kubelet_config::kubelet::version::Version;
use procfs::process::Process as ProcEntry;
use tokio::process::Command;

use super::clock::uptime;
use super::process::{ProcessId, members};
use super::{blocking, child};

/// A kubelet takes 0.1 s to print its version; its 70 MB from the cold disk of a new machine take seconds.
const VERSION_TIMEOUT: Duration = Duration::from_secs(6);
/// Settings of the kubelet's Go runtime: one thread, and no more than 64 MiB, below which it need not collect garbage. It uses 11 MiB, and
/// maps 45 MiB of its file, which a kubelet that runs shares.
const GO_RUNTIME: [(&str, &str); 3] = [("GOMAXPROCS", "1"), ("GOGC", "off"), ("GOMEMLIMIT", "64MiB")];
/// A read of `/proc/PID/cmdline` waits for a lock of that process's memory.
const ARGUMENTS_TIMEOUT: Duration = Duration::from_secs(1);

/// What `program --version` prints. It is run only if only root can have written it; `tree` is this host's.
///
/// # Errors
/// When it is not run or does not answer within 6 seconds, or names no version.
pub async fn version(tree: &dyn Tree, program: &Path) -> Result<Version, String> {
    let shown = program.display();
    let real = tree.real_path(program).map_err(|error| format!("{shown} {error}"))?;
    only_roots(tree, &real)?;
    let mut command = Command::new(real);
    command.arg("--version").env_clear().envs(GO_RUNTIME).current_dir("/");
    let (_, output) =
        child::run(command, VERSION_TIMEOUT).await.map_err(|error| format!("{shown} --version: {error}"))?;
    let text = String::from_utf8_lossy(&output);
    let version = text.split_whitespace().find_map(|word| word.parse().ok());
    version.ok_or_else(|| format!("{shown} --version names no version of Kubernetes"))
}

fn only_roots(tree: &dyn Tree, program: &Path) -> Result<(), String> {
    for path in program.ancestors() {
        let meta = tree.lstat(path).map_err(|error| format!("{} {error}", path.display()))?;
        let wanted = if path == program { Kind::File } else { Kind::Directory };
        if meta.kind != wanted || meta.uid != 0 || meta.mode & 0o022 != 0 {
            let (program, path) = (program.display(), path.display());
            return Err(format!("{program} is not run: users other than root can write {path}"));
        }
    }
    Ok(())
}

/// root's process named `kubelet` in a unit's cgroup, with its arguments; none if there is none.
///
/// # Errors
/// When there are several, or the arguments cannot be read within a second.
pub async fn running_kubelet(control_group: &str) -> Result<Option<Process>, String> {
    let is_kubelet = |process: &ProcEntry| {
        process.stat().is_ok_and(|stat| stat.comm == "kubelet") && process.status().is_ok_and(|status| status.euid == 0)
    };
    let processes = members(control_group).into_iter().filter_map(|pid| ProcEntry::new(pid).ok());
    let found: Vec<ProcEntry> = processes.filter(is_kubelet).collect();
    let process = match found.as_slice() {
        [] => return Ok(None),
        [process] => process,
        several => return Err(format!("{} processes are named kubelet", several.len())),
    };
    let pid = process.pid;
    let read = move || fs::read(format!("/proc/{pid}/cmdline"));
    let bytes = blocking::run("reading a command line", ARGUMENTS_TIMEOUT, read).await.flatten();
    let bytes = bytes.map_err(|error| format!("process {pid}: {error}"))?;
    if bytes.is_empty() {
        return Err(format!("process {pid} has ended"));
    }
    let age_secs = ProcessId::of(pid).map(|process| (uptime() - process.started()).as_secs());
    Ok(Some(Process { pid: pid.unsigned_abs(), argv: args::words(&bytes), age_secs }))
}

#[cfg(test)]
mod tests {
    use kubelet_config::kubelet::tree::MemoryTree;

    use super::*;

    #[test]
    fn a_program_that_others_could_have_written_is_not_run() {
        let program = Path::new("/usr/bin/kubelet");
        let tree = MemoryTree::new().file(program, "").mode(program, 0o755);
        assert_eq!(only_roots(&tree, program), Ok(()));
        for (path, mode) in [("/usr/bin/kubelet", 0o775), ("/usr/bin", 0o777)] {
            let error = only_roots(&tree.clone().mode(path, mode), program).unwrap_err();
            assert_eq!(error, format!("/usr/bin/kubelet is not run: users other than root can write {path}"));
        }
    }
}
