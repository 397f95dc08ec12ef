//! Which process the agent may ask about: a kubelet that root runs, and no other.
//!
//! A name alone is not enough. Anybody may call a process `kubelet` and name any file in its arguments, and the
//! helper would read that file as root.

use std::path::{Path, PathBuf};

use super::protocol::{Code, Refusal};
use crate::{
    host::files::Root,
    kubelet::args::{self, KubeletFlags},
};

/// The longest command line that is read; the kernel allows more, no kubelet has it.
const MAX_CMDLINE_BYTES: usize = 128 * 1024;

/// `/proc/PID/status` has about 1.5 KiB.
const MAX_STATUS_BYTES: usize = 16 * 1024;

/// Programs that are the kubelet, by their `comm`: their arguments are the kubelet's.
const KUBELETS: &[&str] = &["kubelet", "hyperkube"];

/// Beginnings of the `comm` of programs that hold a kubelet inside: their arguments are their own (`--config` of k3s
/// is no `KubeletConfiguration`), so that the kubelet's defaults are all we know.
const HOLDERS: &[&str] = &["kubelite", "k3s", "k0s", "rke2"];

/// The flags of the kubelet with this process id; none for a program that holds a kubelet inside.
pub fn kubelet_flags(root: &Root, pid: i32) -> Result<Option<KubeletFlags>, Refusal> {
    let cmdline = kubelet_cmdline(root, pid)?;
    Ok(cmdline.map(|cmdline| KubeletFlags::from_cmdline(&cmdline)))
}

/// The argument list of the kubelet with this process id; none for a program that holds a kubelet inside.
pub fn kubelet_argv(root: &Root, pid: i32) -> Result<Option<Vec<String>>, Refusal> {
    let cmdline = kubelet_cmdline(root, pid)?;
    Ok(cmdline.map(|cmdline| args::words(&cmdline)))
}

fn kubelet_cmdline(root: &Root, pid: i32) -> Result<Option<Vec<u8>>, Refusal> {
    if pid <= 0 {
        let message = format!("process {pid}: wanted the id of a running kubelet, above 0");
        return Err(Refusal::new(Code::BadRequest, message));
    }
    let name = proc_text(root, pid, "comm", MAX_STATUS_BYTES)?;
    let name = name.trim_end_matches('\n');
    let is_kubelet = KUBELETS.contains(&name);
    if !is_kubelet && !HOLDERS.iter().any(|holder| name.starts_with(holder)) {
        // The name is not quoted: this is not the way to learn the names of processes.
        let message = format!("process {pid}: not a kubelet by its name; ask for the kubelet's");
        return Err(Refusal::new(Code::NotAKubelet, message));
    }
    let status = proc_text(root, pid, "status", MAX_STATUS_BYTES)?;
    if !runs_as_root(&status) {
        let message =
            format!("process {pid}: named like a kubelet, but not run by root; ask for root's");
        return Err(Refusal::new(Code::NotAKubelet, message));
    }
    if !is_kubelet {
        return Ok(None);
    }
    let cmdline = root
        .read(format!("/proc/{pid}/cmdline"), MAX_CMDLINE_BYTES)
        .map_err(|error| proc_refusal(pid, &error))?;
    if cmdline.is_empty() {
        return Err(gone(pid));
    }
    Ok(Some(cmdline))
}

/// `path` as the process `pid` sees it: a relative one counts from its working folder.
pub fn resolve(root: &Root, pid: i32, path: &str) -> Result<PathBuf, Refusal> {
    let path = Path::new(path);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    root.read_link(format!("/proc/{pid}/cwd"))
        .map(|folder| folder.join(path))
        .map_err(|error| {
            let path = path.display();
            let message =
                format!("path {path} of process {pid} is relative: {error}; give the kubelet an absolute path");
            Refusal::new(Code::Unreadable, message)
        })
}

/// Whether all four user ids (real, effective, saved, of the file system) are 0.
fn runs_as_root(status: &str) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_some_and(|ids| ids.split_whitespace().eq(["0"; 4]))
}

fn proc_text(root: &Root, pid: i32, file: &str, max_bytes: usize) -> Result<String, Refusal> {
    root.read_text(format!("/proc/{pid}/{file}"), max_bytes)
        .map_err(|error| proc_refusal(pid, &error))
}

fn proc_refusal(pid: i32, error: &crate::host::files::FileError) -> Refusal {
    // ESRCH: it ended between open and read.
    if error.is_not_found() || error.source.raw_os_error() == Some(nix::libc::ESRCH) {
        return gone(pid);
    }
    Refusal::new(Code::Unreadable, format!("process {pid}: {error}"))
}

fn gone(pid: i32) -> Refusal {
    let message = format!("process {pid}: not there, or has ended; look for the kubelet anew");
    Refusal::new(Code::NoSuchProcess, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::testing::{Process, host};

    #[test]
    fn a_kubelet_of_roots_is_read() {
        let (_folder, root) = host();
        Process::kubelet(812, &["kubelet", "--config=/c"]).write(&root);
        let flags = kubelet_flags(&root, 812).unwrap().unwrap();
        assert_eq!(flags.config.as_deref(), Some("/c"));
    }

    #[test]
    fn any_other_process_is_refused_without_its_name() {
        let (_folder, root) = host();
        Process {
            comm: "ssh-agent",
            ..Process::kubelet(1, &["x", "--config=/etc/shadow"])
        }
        .write(&root);
        let refused = kubelet_flags(&root, 1).unwrap_err();
        assert_eq!(refused.code, Code::NotAKubelet);
        assert!(!refused.message.contains("ssh"));
        for uids in ["1000\t1000\t1000\t1000", "0\t1000\t0\t0", "", "0\t0\t0"] {
            Process {
                uids,
                ..Process::kubelet(2, &["kubelet", "--kubeconfig=/tmp/mine"])
            }
            .write(&root);
            assert_eq!(kubelet_flags(&root, 2).unwrap_err().code, Code::NotAKubelet);
        }
    }

    #[test]
    fn arguments_of_a_program_that_holds_a_kubelet_are_not_the_kubelets() {
        let (_folder, root) = host();
        for comm in ["k3s-agent", "k3s-server", "kubelite", "k0s", "rke2"] {
            Process {
                comm,
                ..Process::kubelet(3, &["k3s", "--config=/etc/rancher/k3s/config.yaml"])
            }
            .write(&root);
            assert_eq!(kubelet_flags(&root, 3).unwrap(), None);
        }
    }

    #[test]
    fn a_process_that_is_gone_or_none_is_told_apart() {
        let (_folder, root) = host();
        assert_eq!(
            kubelet_flags(&root, 4).unwrap_err().code,
            Code::NoSuchProcess
        );
        assert_eq!(kubelet_flags(&root, 0).unwrap_err().code, Code::BadRequest);
        assert_eq!(kubelet_flags(&root, -1).unwrap_err().code, Code::BadRequest);
        // A zombie has a name, but no arguments.
        Process::kubelet(5, &[]).write(&root);
        assert_eq!(
            kubelet_flags(&root, 5).unwrap_err().code,
            Code::NoSuchProcess
        );
    }

    #[test]
    fn a_relative_path_counts_from_the_working_folder() {
        let (_folder, root) = host();
        Process::kubelet(6, &["kubelet"]).write(&root);
        assert_eq!(resolve(&root, 6, "/a").unwrap(), Path::new("/a"));
        let refused = resolve(&root, 6, "conf/a").unwrap_err();
        assert_eq!(refused.code, Code::Unreadable);
        assert!(refused.message.contains("absolute"));
        std::os::unix::fs::symlink("/srv/kubelet", root.join("/proc/6/cwd")).unwrap();
        assert_eq!(
            resolve(&root, 6, "conf/a").unwrap(),
            Path::new("/srv/kubelet/conf/a")
        );
    }
}
