//! Small kernel tables that are read again and again: what the kernel has a limit on.

use crate::{
    checks::limits::{Sample, Used},
    host::{files::Root, kept::Kept},
};

/// Longer than a line of numbers that any of these tables has.
const MAX_BYTES: usize = 128;
/// The kernel gives these first numbers out once only (`RESERVED_PIDS`), so so many fewer can be in use.
const RESERVED_PIDS: u64 = 300;

/// Its numbers in the places given, counted from 0 with blanks and slashes between; `None` where there is none.
fn read<const N: usize>(table: &mut Kept, places: [usize; N]) -> Option<[u64; N]> {
    let mut buffer = [0; MAX_BYTES];
    let length = table.read(&mut buffer)?;
    numbers(&buffer[..length], places)
}

/// The numbers in those places of a line.
fn numbers<const N: usize>(line: &[u8], places: [usize; N]) -> Option<[u64; N]> {
    let mut found = [0; N];
    for (number, place) in found.iter_mut().zip(places) {
        let mut words = line
            .split(|byte| byte.is_ascii_whitespace() || *byte == b'/')
            .filter(|word| !word.is_empty());
        *number = std::str::from_utf8(words.nth(place)?).ok()?.parse().ok()?;
    }
    Some(found)
}

/// What the kernel has a limit on, and how much of it is used.
#[derive(Debug)]
pub struct Limits {
    loadavg: Kept,
    pid_max: Kept,
    threads_max: Kept,
    pod_pids: Kept,
    pod_pids_max: Kept,
    file_nr: Kept,
    connections: Kept,
    connections_max: Kept,
}

impl Limits {
    /// Nothing is open yet.
    pub fn new(root: &Root) -> Self {
        let table = |paths: &[&str]| Kept::new(root, paths);
        Self {
            loadavg: table(&["/proc/loadavg"]),
            pid_max: table(&["/proc/sys/kernel/pid_max"]),
            threads_max: table(&["/proc/sys/kernel/threads-max"]),
            // As the kubelet's two cgroup drivers call them, on cgroup v2 and v1.
            pod_pids: table(&[
                "/sys/fs/cgroup/kubepods.slice/pids.current",
                "/sys/fs/cgroup/kubepods/pids.current",
                "/sys/fs/cgroup/pids/kubepods.slice/pids.current",
                "/sys/fs/cgroup/pids/kubepods/pids.current",
            ]),
            pod_pids_max: table(&[
                "/sys/fs/cgroup/kubepods.slice/pids.max",
                "/sys/fs/cgroup/kubepods/pids.max",
                "/sys/fs/cgroup/pids/kubepods.slice/pids.max",
                "/sys/fs/cgroup/pids/kubepods/pids.max",
            ]),
            file_nr: table(&["/proc/sys/fs/file-nr"]),
            connections: table(&["/proc/sys/net/netfilter/nf_conntrack_count"]),
            connections_max: table(&["/proc/sys/net/netfilter/nf_conntrack_max"]),
        }
    }

    /// Looks at all of them. None of these reads can block.
    pub fn look(&mut self) -> Sample {
        let one = |table: &mut Kept, place| read(table, [place]).map(|[one]| one);
        // `0.52 0.58 0.59 2/1253 81234`: running and all threads of the machine.
        let threads = one(&mut self.loadavg, 4);
        let pids = one(&mut self.pid_max, 0).map(|max| max.saturating_sub(RESERVED_PIDS));
        let all = one(&mut self.threads_max, 0);
        let pods = (one(&mut self.pod_pids, 0), one(&mut self.pod_pids_max, 0));
        let connections = (
            one(&mut self.connections, 0),
            one(&mut self.connections_max, 0),
        );
        let files = read(&mut self.file_nr, [0, 2]);
        Sample {
            pids: used(threads, pids),
            threads: used(threads, all),
            pod_pids: used(pods.0, pods.1),
            files: files.and_then(|[open, max]| used(Some(open), Some(max))),
            connections: used(connections.0, connections.1),
        }
    }
}

/// Nothing where there is no limit: `max` is no number, and a conntrack table of 0 is unbounded.
fn used(now: Option<u64>, limit: Option<u64>) -> Option<Used> {
    let limit = limit.filter(|limit| *limit > 0)?;
    now.map(|now| Used { now, limit })
}

#[cfg(test)]
mod tests {
    use procfs::{FromRead, LoadAverage};

    use super::*;
    use crate::host::kept::{LOOKS_BETWEEN, put};

    fn host() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        (folder, root)
    }

    #[test]
    fn each_limit_is_read_and_what_has_none_is_not_there() {
        let (_folder, root) = host();
        let mut limits = Limits::new(&root);
        assert_eq!(limits.look(), Sample::default());
        for (path, text) in [
            ("/proc/loadavg", "0.52 0.58 0.59 2/1253 81234\n"),
            ("/proc/sys/kernel/pid_max", "32768\n"),
            ("/proc/sys/kernel/threads-max", "192686\n"),
            ("/proc/sys/fs/file-nr", "1008\t0\t9223372036854775807\n"),
            ("/sys/fs/cgroup/pids/kubepods/pids.current", "77\n"),
            ("/sys/fs/cgroup/pids/kubepods/pids.max", "max\n"),
            ("/proc/sys/net/netfilter/nf_conntrack_count", "3\n"),
            ("/proc/sys/net/netfilter/nf_conntrack_max", "0\n"),
        ] {
            put(&root, path, text);
        }
        let some = |now, limit| Some(Used { now, limit });
        let wanted = Sample {
            pids: some(1253, 32_468),
            threads: some(1253, 192_686),
            pod_pids: None,
            files: some(1008, 9_223_372_036_854_775_807),
            connections: None,
        };
        let mut limits = Limits::new(&root);
        assert_eq!(limits.look(), wanted);
        put(&root, "/sys/fs/cgroup/pids/kubepods/pids.max", "100\n");
        put(
            &root,
            "/proc/sys/net/netfilter/nf_conntrack_max",
            "262144\n",
        );
        put(&root, "/proc/loadavg", "0.52 0.58 0.59 2/1300 81234\n");
        let wanted = Sample {
            pids: some(1300, 32_468),
            threads: some(1300, 192_686),
            pod_pids: some(77, 100),
            connections: some(3, 262_144),
            ..wanted
        };
        assert_eq!(limits.look(), wanted);
        put(&root, "/proc/loadavg", "nothing of that kind\n");
        assert_eq!(limits.look().threads, None);
    }

    #[test]
    fn what_is_not_there_is_looked_for_again_and_not_each_time() {
        let (_folder, root) = host();
        let mut limits = Limits::new(&root);
        assert_eq!(limits.look().connections, None);
        put(&root, "/proc/sys/net/netfilter/nf_conntrack_count", "3\n");
        put(&root, "/proc/sys/net/netfilter/nf_conntrack_max", "9\n");
        for _ in 0..LOOKS_BETWEEN {
            assert_eq!(limits.look().connections, None);
        }
        assert_eq!(limits.look().connections, Some(Used { now: 3, limit: 9 }));
    }

    /// Ours and the procfs crate's, of what this machine says at one moment.
    #[test]
    fn our_reading_is_that_of_the_procfs_crate() {
        let (_folder, root) = host();
        for path in [
            "/proc/loadavg",
            "/proc/sys/kernel/pid_max",
            "/proc/sys/kernel/threads-max",
            "/proc/sys/fs/file-nr",
        ] {
            let text = Root::default().read_text(path, 4096).unwrap();
            put(&root, path, &text);
        }
        let ours = Limits::new(&root).look();
        let load = LoadAverage::from_file(root.join("/proc/loadavg")).unwrap();
        let threads_max = procfs::sys::kernel::threads_max().unwrap();
        let threads = Used {
            now: u64::from(load.max),
            limit: u64::from(threads_max),
        };
        assert_eq!(ours.threads, Some(threads));
        let pid_max = u64::try_from(procfs::sys::kernel::pid_max().unwrap()).unwrap();
        assert_eq!(ours.pids.unwrap().limit, pid_max - RESERVED_PIDS);
        // The crate reads this one from the machine alone, where others open files meanwhile.
        let files = procfs::sys::fs::file_nr().unwrap();
        assert_eq!(ours.files.unwrap().limit, files.max);
    }
}
