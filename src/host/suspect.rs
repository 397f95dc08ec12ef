//! A closer look at a process that does not answer: is it frozen, and which of its threads wait in the kernel?
//!
//! These are small tables of the kernel's, but some of them take locks of its own that a sick host may hold for long: they
//! are read on the blocking worker.

use http::Uri;

use super::{files::Root, sockets};
use crate::checks::kubelet::{Listening, Sample, Waiting};

/// Threads that are looked at; a kubelet has some 30.
const MAX_THREADS: usize = 256;
/// A row of `/proc` has 400 bytes, the list of cgroups a few KiB.
const MAX_BYTES: usize = 16 * 1024;

/// Looks at the process with that pid, and at the port of its healthz.
pub fn sample(root: &Root, pid: i32, healthz: Option<&str>) -> Sample {
    Sample {
        frozen_by: frozen_by(root, pid),
        waiting: waiting(root, pid),
        listening: listening(healthz),
    }
}

fn listening(healthz: Option<&str>) -> Listening {
    let uri = healthz.and_then(|url| url.parse::<Uri>().ok());
    let port = uri.and_then(|uri| uri.port_u16());
    let seen = port.and_then(|port| sockets::listening(port).ok());
    seen.unwrap_or_default()
}

fn waiting(root: &Root, pid: i32) -> Vec<Waiting> {
    let folder = format!("/proc/{pid}/task");
    let tids = root.list(&folder).unwrap_or_default().into_iter();
    tids.take(MAX_THREADS)
        .filter_map(|tid| {
            let read = |file: &str| root.read_text(format!("{folder}/{tid}/{file}"), MAX_BYTES);
            let is_waiting = state(&read("stat").ok()?) == Some('D');
            is_waiting.then(|| Waiting {
                tid: tid.parse().unwrap_or_default(),
                turns: read("schedstat").map_or(0, |row| turns(&row)),
            })
        })
        .collect()
}

/// `PID (COMM) STATE …`, and COMM may hold anything, parentheses too.
fn state(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// The third number: how often it has had the CPU.
fn turns(schedstat: &str) -> u64 {
    let third = schedstat.split_whitespace().nth(2);
    third.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The cgroup that is frozen and holds the process: on cgroup v2 its own, on v1 that of the freezer.
fn frozen_by(root: &Root, pid: i32) -> Option<String> {
    let groups = root
        .read_text(format!("/proc/{pid}/cgroup"), MAX_BYTES)
        .ok()?;
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_frozen = if controllers.is_empty() {
            ["", "/unified"].iter().any(|mount| {
                let events = format!("/sys/fs/cgroup{mount}{path}/cgroup.events");
                let events = root.read_text(events, MAX_BYTES).unwrap_or_default();
                events.lines().any(|line| line == "frozen 1")
            })
        } else if controllers.split(',').any(|name| name == "freezer") {
            let state = format!("/sys/fs/cgroup/freezer{path}/freezer.state");
            let state = root.read_text(state, MAX_BYTES).unwrap_or_default();
            state.trim() == "FROZEN"
        } else {
            false
        };
        is_frozen.then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (path, text) in files {
            let (dir, _) = path.rsplit_once('/').unwrap();
            root.create_dir_all(dir).unwrap();
            root.write_atomically(path, text.as_bytes()).unwrap();
        }
        (folder, root)
    }

    #[test]
    fn threads_that_wait_are_told_with_their_turns() {
        let (_folder, root) = host(&[
            ("/proc/7/task/7/stat", "7 (kubelet) S 1 7"),
            ("/proc/7/task/8/stat", "8 (a) D) D 1 7"),
            ("/proc/7/task/8/schedstat", "12 34 56\n"),
            ("/proc/7/task/9/stat", "9 (kubelet) R 1 7"),
        ]);
        let waiting = vec![Waiting { tid: 8, turns: 56 }];
        let wanted = Sample {
            waiting,
            ..Sample::default()
        };
        assert_eq!(sample(&root, 7, None), wanted);
        assert_eq!(
            sample(&root, 8, Some("no URL")),
            Sample::default(),
            "it has gone"
        );
    }

    #[test]
    fn a_freezer_is_found_on_either_cgroup_version() {
        for (groups, file, frozen, thawed) in [
            (
                "0::/system.slice/kubelet.service\n",
                "/sys/fs/cgroup/system.slice/kubelet.service/cgroup.events",
                "populated 1\nfrozen 1\n",
                "populated 1\nfrozen 0\n",
            ),
            (
                "5:cpu:/x\n3:devices,freezer:/ice\n0::/\n",
                "/sys/fs/cgroup/freezer/ice/freezer.state",
                "FROZEN\n",
                "THAWED\n",
            ),
        ] {
            let (_folder, root) = host(&[("/proc/7/cgroup", groups), (file, frozen)]);
            assert!(
                sample(&root, 7, None)
                    .frozen_by
                    .is_some_and(|path| groups.contains(&path))
            );
            root.write_atomically(file, thawed.as_bytes()).unwrap();
            assert_eq!(sample(&root, 7, None).frozen_by, None);
        }
    }

    #[test]
    fn we_ourselves_are_neither() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(sample(&Root::default(), pid, None).frozen_by, None);
    }
}
