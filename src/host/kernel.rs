//! What the kernel's own tables say of its health. All of them are made in memory as they are read; none waits for a disk.

use super::files::Root;
use crate::checks::kernel::state::{KernelAsk, KernelState, WaitingTask};

/// Bounds each of these files: the longest is `/proc/meminfo`.
const MAX_BYTES: usize = 16 * 1024;
/// Memory controllers that are looked at.
const MAX_CONTROLLERS: usize = 64;
/// Threads of a process that are looked at; a kubelet has some 30.
const MAX_THREADS: usize = 256;

/// Reads them, and which of the tasks that are asked for wait. The latter takes locks of the kernel's that a sick host may hold
/// for long.
pub fn state(root: &Root, ask: &KernelAsk) -> KernelState {
    let mut waiting: Vec<WaitingTask> = ask
        .tids
        .iter()
        .filter_map(|tid| waits(root, *tid))
        .collect();
    for pid in &ask.processes {
        let threads = threads(root, *pid).into_iter();
        let others = threads.filter(|tid| !ask.tids.contains(tid));
        waiting.extend(others.filter_map(|tid| waits(root, tid)));
    }
    KernelState {
        tainted: number(root, "/proc/sys/kernel/tainted"),
        corrupted_kib: corrupted_kib(root),
        uncorrected: uncorrected(root),
        oopses: number(root, "/sys/kernel/oops_count"),
        soft_lockups: number(root, "/sys/kernel/softlockup_count"),
        hard_lockups: number(root, "/sys/kernel/hardlockup_count"),
        rcu_stalls: number(root, "/sys/kernel/rcu_stall_count"),
        waiting,
        ..hung_task_detection(root)
    }
}

/// Whether the kernel looks for hung tasks and may still log them; all else is left out.
pub fn hung_task_detection(root: &Root) -> KernelState {
    KernelState {
        hung_task_timeout_secs: number(root, "/proc/sys/kernel/hung_task_timeout_secs"),
        hung_task_warnings: number(root, "/proc/sys/kernel/hung_task_warnings"),
        ..KernelState::default()
    }
}

fn number<T: std::str::FromStr>(root: &Root, path: &str) -> Option<T> {
    root.read_text(path, MAX_BYTES).ok()?.trim().parse().ok()
}

fn corrupted_kib(root: &Root) -> Option<u64> {
    let text = root.read_text("/proc/meminfo", MAX_BYTES).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("HardwareCorrupted:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The sum of all memory controllers; `None` where there is none that counts.
fn uncorrected(root: &Root) -> Option<u64> {
    const CONTROLLERS: &str = "/sys/devices/system/edac/mc";
    let names = root.list(CONTROLLERS).ok()?;
    let counted = names
        .iter()
        .filter(|name| name.starts_with("mc"))
        .take(MAX_CONTROLLERS);
    counted
        .filter_map(|name| number(root, &format!("{CONTROLLERS}/{name}/ue_count")))
        .reduce(u64::saturating_add)
}

fn threads(root: &Root, pid: i32) -> Vec<i32> {
    let names = root.list(format!("/proc/{pid}/task")).unwrap_or_default();
    let tids = names.iter().filter_map(|name| name.parse().ok());
    tids.take(MAX_THREADS).collect()
}

/// The thread, if it is there and waits without being killable (`D`).
fn waits(root: &Root, tid: i32) -> Option<WaitingTask> {
    let read = |file: &str| root.read_text(format!("/proc/{tid}/{file}"), MAX_BYTES);
    // `PID (COMM) STATE …`, and COMM may hold anything, parentheses too. The 22nd field is its start.
    let row = read("stat").ok()?;
    let (head, rest) = row.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if fields.next() != Some("D") {
        return None;
    }
    let status = read("status").ok()?;
    let field = |name: &str| -> Option<u64> {
        let of_name = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
        status.lines().find_map(of_name)?.trim().parse().ok()
    };
    let given_up = field("voluntary_ctxt_switches")?;
    Some(WaitingTask {
        tid,
        pid: i32::try_from(field("Tgid")?).ok()?,
        comm: head.split_once('(')?.1.to_owned(),
        started: fields.nth(18)?.parse().ok()?,
        switches: given_up.saturating_add(field("nonvoluntary_ctxt_switches")?),
        cgroup: read("cgroup").ok().and_then(|groups| cgroup(&groups)),
    })
}

/// Where systemd has it: on cgroup v1 its own hierarchy, else the one of v2.
fn cgroup(groups: &str) -> Option<String> {
    let of = |hierarchy: &str| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            (controllers == hierarchy).then(|| path.to_owned())
        })
    };
    of("name=systemd").or_else(|| of(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_everything_and_one_with_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let ask = KernelAsk {
            tids: vec![1, 2, 3],
            processes: vec![7],
        };
        assert_eq!(state(&root, &ask), KernelState::default());
        let put = |path: &str, text: &str| {
            root.create_dir_all(path.rsplit_once('/').unwrap().0)
                .unwrap();
            root.write_atomically(path, text.as_bytes()).unwrap();
        };
        put("/proc/sys/kernel/tainted", "144\n");
        put("/sys/kernel/oops_count", "1\n");
        put("/sys/kernel/softlockup_count", "2\n");
        put("/sys/kernel/hardlockup_count", "3\n");
        put("/sys/kernel/rcu_stall_count", "4\n");
        put("/proc/sys/kernel/hung_task_timeout_secs", "120\n");
        put("/proc/sys/kernel/hung_task_warnings", "-1\n");
        put(
            "/proc/meminfo",
            "MemTotal:       16 kB\nHardwareCorrupted:     8 kB\n",
        );
        put("/sys/devices/system/edac/mc/mc0/ue_count", "1\n");
        put("/sys/devices/system/edac/mc/mc1/ue_count", "2\n");
        put("/sys/devices/system/edac/mc/power/control", "auto\n");
        let seen = state(&root, &ask);
        assert_eq!(seen.tainted, Some(144));
        assert_eq!(seen.corrupted_kib, Some(8));
        assert_eq!(seen.uncorrected, Some(3));
        let counters = [
            seen.oopses,
            seen.soft_lockups,
            seen.hard_lockups,
            seen.rcu_stalls,
        ];
        assert_eq!(counters, [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(seen.hung_task_timeout_secs, Some(120));
        assert_eq!(seen.hung_task_warnings, Some(-1));
        assert!(seen.has_oopsed() && seen.has_lost_memory());
    }

    #[test]
    fn tasks_that_wait_are_told_with_whose_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let put = |path: &str, text: &str| {
            root.create_dir_all(path.rsplit_once('/').unwrap().0)
                .unwrap();
            root.write_atomically(path, text.as_bytes()).unwrap();
        };
        let ask = KernelAsk {
            tids: vec![1, 2, 3],
            processes: vec![7],
        };
        let stat = |tid: i32, comm: &str, state: char| {
            let (before, after) = ("0 ".repeat(18), "0 ".repeat(28));
            let row = format!("{tid} ({comm}) {state} {before}12345 {after}");
            put(&format!("/proc/{tid}/stat"), &row);
        };
        let rest = |tid: i32, pid: i32, cgroup: &str| {
            let status = format!(
                "Name:\tx\nTgid:\t{pid}\nPid:\t{tid}\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n"
            );
            put(&format!("/proc/{tid}/status"), &status);
            put(&format!("/proc/{tid}/cgroup"), cgroup);
        };
        stat(1, "a) S", 'D');
        rest(1, 1, "0::/init.scope\n");
        stat(2, "b", 'S');
        for tid in [7, 8, 9] {
            put(&format!("/proc/7/task/{tid}/comm"), "kubelet\n");
            stat(tid, "kubelet", if tid == 8 { 'D' } else { 'S' });
            rest(
                tid,
                7,
                "5:cpu:/x\n1:name=systemd:/system.slice/kubelet.service\n0::/\n",
            );
        }
        let seen = state(&root, &ask);
        let task = |tid, pid, comm: &str, cgroup: &str| WaitingTask {
            tid,
            pid,
            comm: comm.to_owned(),
            started: 12345,
            switches: 7,
            cgroup: Some(cgroup.to_owned()),
        };
        let init = task(1, 1, "a) S", "/init.scope");
        let kubelet = task(8, 7, "kubelet", "/system.slice/kubelet.service");
        assert_eq!(seen.waiting, [init, kubelet]);
    }

    /// This machine's own tables are of the shape that is read.
    #[test]
    fn this_kernel_has_them() {
        let own = i32::try_from(std::process::id()).unwrap();
        let ask = KernelAsk {
            tids: vec![1],
            processes: vec![own],
        };
        let seen = state(&Root::default(), &ask);
        assert!(seen.tainted.is_some());
        let is_init = |task: &WaitingTask| task.pid == 1;
        assert!(!seen.waiting.iter().any(is_init), "PID 1 is not stuck");
        assert!(!threads(&Root::default(), own).is_empty());
    }
}
