//! The verb `fork`: whether a process can be started on this host, by trying. The kernel's counts say that it will soon be
//! impossible; that it is, a fork alone says.
//!
//! Who asks any verb at all when not even a thread can be started for the answer is told the same, in a refusal.

use std::{io, time::Duration};

use nix::errno::Errno;
use rustix::process::{Resource, getrlimit, getuid};
use serde::{Deserialize, Serialize};

use super::protocol::{Code, Refusal, Verb};
use crate::host::{files::Root, program};

/// The verb.
pub const VERB: Verb = Verb {
    name: "fork",
    sentence: "Tells whether a process can be started, by a fork that has nothing to start.",
    deadline: Duration::from_secs(1),
};

/// Longer than any of these files.
const MAX_BYTES: usize = 16 * 1024;
/// Where the two versions of cgroups have the limits on processes.
const MOUNTS: [(&str, &str); 2] = [("pids", "/sys/fs/cgroup/pids"), ("", "/sys/fs/cgroup")];

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forked {
    /// A process was there, for a moment.
    Possible,
    /// The kernel refused (EAGAIN), and no limit of the helper's own is why: so it does everybody.
    Refused,
    /// It refused, and that may be a limit on the helper alone; which.
    OwnLimit(String),
}

/// Tries.
///
/// # Errors
/// When it fails for something else than a limit: there is no memory for it, or the sandbox forbids it.
pub fn answer(root: &Root) -> Result<Forked, Refusal> {
    forked(root, program::fork_for_nothing())
}

fn forked(root: &Root, tried: io::Result<()>) -> Result<Forked, Refusal> {
    match tried {
        Ok(()) => Ok(Forked::Possible),
        Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => {
            Ok(own_limit(root).map_or(Forked::Refused, Forked::OwnLimit))
        }
        Err(error) => Err(Refusal::new(Code::Unreadable, format!("fork: {error}"))),
    }
}

/// What a peer is told for whose question no thread could be had. Blocks on nothing.
pub(super) fn no_thread(root: &Root, error: &io::Error) -> Refusal {
    match answer(root) {
        Ok(Forked::Refused) => Refusal::new(
            Code::ForkRefused,
            "no process or thread can be started on this host",
        ),
        Ok(Forked::OwnLimit(limit)) => {
            let message = format!("no thread for a request: {limit}; ask again later");
            Refusal::new(Code::Busy, message)
        }
        _ => {
            let message = format!("no thread for a request: {error}; ask again later");
            Refusal::new(Code::Busy, message)
        }
    }
}

/// A limit that is on the helper and not on the host, if it is or may be reached.
fn own_limit(root: &Root) -> Option<String> {
    full_group(root).or_else(|| user_limit(root))
}

/// The nearest cgroup of ours that may have no other process; or why that is not known.
fn full_group(root: &Root) -> Option<String> {
    let groups = match root.read_text("/proc/self/cgroup", MAX_BYTES) {
        Ok(groups) => groups,
        Err(error) => return Some(format!("whether its cgroup has room is not known: {error}")),
    };
    let parts = groups
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'));
    for (controllers, path) in parts {
        let mount = MOUNTS.iter().find(|(name, _)| {
            let mut all = controllers.split(',');
            all.any(|controller| controller == *name)
        });
        let Some((_, mount)) = mount else { continue };
        let mut path = path.trim_end_matches('/');
        loop {
            match has_room(root, &format!("{mount}{path}")) {
                Ok(true) => {}
                Ok(false) => return Some(format!("pids.max of the cgroup {path}/ is reached")),
                Err(why) => return Some(why),
            }
            let Some((above, _)) = path.rsplit_once('/') else {
                break;
            };
            path = above;
        }
    }
    None
}

/// A cgroup without these files has no limit.
fn has_room(root: &Root, group: &str) -> Result<bool, String> {
    let read = |file: &str| match root.read_text(format!("{group}/{file}"), MAX_BYTES) {
        Ok(text) => Ok(text.trim().parse::<u64>().ok()),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(format!("whether its cgroup has room is not known: {error}")),
    };
    // `max` is no number.
    let (Some(max), Some(current)) = (read("pids.max")?, read("pids.current")?) else {
        return Ok(true);
    };
    Ok(current < max)
}

/// `RLIMIT_NPROC` counts all processes of a user's; the host's own root is exempt, whatever it says.
fn user_limit(root: &Root) -> Option<String> {
    let is_unlimited = getrlimit(Resource::Nproc).current.is_none();
    let users = root.read_text("/proc/self/uid_map", MAX_BYTES);
    let is_hosts_root = getuid().is_root()
        && users.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
    let may_be_it = !is_unlimited && !is_hosts_root;
    may_be_it.then(|| "RLIMIT_NPROC may be reached".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let hosts_root = ("/proc/self/uid_map", "         0          0 4294967295\n");
        for (path, text) in [&[hosts_root], files].concat() {
            let (dir, _) = path.rsplit_once('/').unwrap();
            root.create_dir_all(dir).unwrap();
            root.write_atomically(path, text.as_bytes()).unwrap();
        }
        (folder, root)
    }

    fn again() -> io::Result<()> {
        Err(io::Error::from_raw_os_error(Errno::EAGAIN as i32))
    }

    #[test]
    fn a_process_can_be_started_here() {
        assert_eq!(answer(&Root::default()), Ok(Forked::Possible));
        // So a thread that could not be had for a moment is no proof.
        let refusal = no_thread(&Root::default(), &again().unwrap_err());
        assert_eq!(refusal.code, Code::Busy);
    }

    #[test]
    fn a_refusal_is_everybodys_if_we_have_room_at_every_level() {
        const SERVICE: &str = "/sys/fs/cgroup/nodevigil.slice/nodevigil-helper.service";
        const SLICE: &str = "/sys/fs/cgroup/nodevigil.slice";
        let own = "0::/nodevigil.slice/nodevigil-helper.service\n";
        for (max, current, of_slice, is_everybodys) in [
            ("16\n", "6\n", "max\n", true),
            ("16\n", "16\n", "max\n", false),
            ("max\n", "6\n", "6\n", false),
            ("max\n", "6\n", "7\n", true),
        ] {
            let (_folder, root) = host(&[
                ("/proc/self/cgroup", own),
                (&format!("{SERVICE}/pids.max"), max),
                (&format!("{SERVICE}/pids.current"), current),
                (&format!("{SLICE}/pids.max"), of_slice),
                (&format!("{SLICE}/pids.current"), "6\n"),
            ]);
            let is_refused = forked(&root, again()) == Ok(Forked::Refused);
            // The tests run as root, or have no limit, or are told that they may have one.
            assert_eq!(is_refused, is_everybodys && user_limit(&root).is_none());
            assert_eq!(
                full_group(&root).is_none(),
                is_everybodys,
                "{max} {of_slice}"
            );
        }
        let (_folder, root) = host(&[
            ("/proc/self/cgroup", "8:pids:/h\n1:name=systemd:/x\n"),
            ("/sys/fs/cgroup/pids/h/pids.max", "5\n"),
            ("/sys/fs/cgroup/pids/h/pids.current", "5\n"),
        ]);
        assert!(full_group(&root).is_some_and(|why| why.contains("/h/")));
        let (_folder, root) = host(&[]);
        assert!(full_group(&root).is_some(), "not known is no proof");
    }

    #[test]
    fn what_fails_for_something_else_is_no_limit() {
        let (_folder, root) = host(&[("/proc/self/cgroup", "0::/\n")]);
        let no_memory = Err(io::Error::from_raw_os_error(Errno::ENOMEM as i32));
        assert_eq!(forked(&root, no_memory).unwrap_err().code, Code::Unreadable);
        assert_eq!(forked(&root, Ok(())), Ok(Forked::Possible));
    }
}
