//! What the kernel's own tables say of its health. All of them are made in memory as they are read; none waits for a disk.

use super::files::Root;
use crate::checks::kernel::troubles::KernelState;

/// Bounds each of these files: the longest is `/proc/meminfo`.
const MAX_BYTES: usize = 16 * 1024;
/// Memory controllers that are looked at.
const MAX_CONTROLLERS: usize = 64;

/// Reads them; `tids` are the tasks that may still wait without an end.
pub fn state(root: &Root, tids: &[i32]) -> KernelState {
    KernelState {
        tainted: number(root, "/proc/sys/kernel/tainted"),
        corrupted_kib: corrupted_kib(root),
        uncorrected: uncorrected(root),
        waiting: tids
            .iter()
            .copied()
            .filter(|tid| waits(root, *tid))
            .collect(),
    }
}

fn number(root: &Root, path: &str) -> Option<u64> {
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

/// Whether the task is there and waits without being killable (`D`).
fn waits(root: &Root, tid: i32) -> bool {
    // `PID (COMM) STATE …`, and COMM may hold anything, parentheses too.
    let row = root.read_text(format!("/proc/{tid}/stat"), MAX_BYTES);
    row.is_ok_and(|row| {
        row.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('D'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_everything_and_one_with_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert_eq!(state(&root, &[1, 2]), KernelState::default());
        let put = |path: &str, text: &str| {
            root.create_dir_all(path.rsplit_once('/').unwrap().0)
                .unwrap();
            root.write_atomically(path, text.as_bytes()).unwrap();
        };
        put("/proc/sys/kernel/tainted", "144\n");
        put(
            "/proc/meminfo",
            "MemTotal:       16 kB\nHardwareCorrupted:     8 kB\n",
        );
        put("/sys/devices/system/edac/mc/mc0/ue_count", "1\n");
        put("/sys/devices/system/edac/mc/mc1/ue_count", "2\n");
        put("/sys/devices/system/edac/mc/power/control", "auto\n");
        put("/proc/1/stat", "1 (a) S) D 0 1 1\n");
        put("/proc/2/stat", "2 (b) S 0 1 1\n");
        let seen = state(&root, &[1, 2, 3]);
        assert_eq!(seen.tainted, Some(144));
        assert_eq!(seen.corrupted_kib, Some(8));
        assert_eq!(seen.uncorrected, Some(3));
        assert_eq!(seen.waiting, [1]);
        assert!(seen.has_oopsed() && seen.has_lost_memory());
    }

    /// This machine's own tables are of the shape that is read.
    #[test]
    fn this_kernel_has_them() {
        let seen = state(&Root::default(), &[1]);
        assert!(seen.tainted.is_some());
        assert!(seen.waiting.is_empty(), "PID 1 is not stuck");
    }
}
