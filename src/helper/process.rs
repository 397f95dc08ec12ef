//! Which process is the kubelet, found by the helper itself: root's one process of the configured unit's cgroup, and no other.
//!
//! A name is not enough. Anybody may call a process `kubelet` and name any file in its arguments, and the helper would read that
//! file as root. So nobody says which process it is: not the agent, whose process may be in other hands, and not systemd, whose
//! bus everybody can speak on.

use std::path::{Path, PathBuf};

use super::protocol::{Code, Refusal};
use crate::{
    checks::kubelet::{Found, Process},
    config::KubeletSettings,
    host::{files::Root, process},
    kubelet::args::{self, KubeletFlags},
};

/// The longest command line that is read; the kernel allows more, no kubelet has it.
const MAX_CMDLINE_BYTES: usize = 128 * 1024;

/// A name has 15 bytes.
const MAX_COMM_BYTES: usize = 64;

/// Programs that are the kubelet, by their `comm`: their arguments are the kubelet's. Those of a program that holds a kubelet
/// inside (k3s, kubelite) are its own: `--config` of k3s is no `KubeletConfiguration`.
const KUBELETS: &[&str] = &["kubelet", "hyperkube"];

/// The kubelet that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubelet {
    /// Its process.
    pub process: Process,
    /// Its argument list; `None` for a program that holds a kubelet inside.
    pub argv: Option<Vec<String>>,
}

impl Kubelet {
    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Its flags; `None` for a program that holds a kubelet inside.
    pub fn flags(&self) -> Option<KubeletFlags> {
        self.argv.as_deref().map(KubeletFlags::from_argv)
    }

    /// `path` as the kubelet sees it: a relative one counts from its working folder.
    pub fn resolve(&self, root: &Root, path: &str) -> Result<PathBuf, Refusal> {
        let path = Path::new(path);
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let pid = self.pid();
        let folder = root.read_link(format!("/proc/{pid}/cwd")).map_err(|error| {
            let path = path.display();
            let message = format!(
                "path {path} of process {pid} is relative: {error}; give the kubelet an absolute path"
            );
            Refusal::new(Code::Unreadable, message)
        })?;
        Ok(folder.join(path))
    }
}

/// The kubelet that runs; `None` if none does.
///
/// # Errors
/// [`Code::NotAKubelet`]: several processes could be it.
pub fn find(root: &Root, settings: &KubeletSettings) -> Result<Option<Kubelet>, Refusal> {
    match look(root, settings) {
        Found::None(_) => Ok(None),
        Found::One(process) => Ok(read(root, process)),
        Found::Many(pids) => Err(several(&pids)),
    }
}

/// As [`find`], where there has to be one.
///
/// # Errors
/// [`Code::NoSuchProcess`] too: none runs, or it has just ended.
pub fn find_one(root: &Root, settings: &KubeletSettings) -> Result<Kubelet, Refusal> {
    match look(root, settings) {
        Found::None(why) => Err(Refusal::new(Code::NoSuchProcess, why)),
        Found::One(process) => {
            let pid = process.pid;
            read(root, process).ok_or_else(|| {
                let message = format!("process {pid}: the kubelet has ended; ask again");
                Refusal::new(Code::NoSuchProcess, message)
            })
        }
        Found::Many(pids) => Err(several(&pids)),
    }
}

fn look(root: &Root, settings: &KubeletSettings) -> Found {
    process::find_roots_kubelet(root, &settings.units(), settings.pid_file.as_deref())
}

fn several(pids: &[i32]) -> Refusal {
    let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
    let message = format!(
        "processes {} could each be the kubelet; one kubelet a unit is wanted",
        pids.join(", ")
    );
    Refusal::new(Code::NotAKubelet, message)
}

/// `None` if it has ended, or its pid is another's by now.
fn read(root: &Root, process: Process) -> Option<Kubelet> {
    let pid = process.pid;
    let comm = root.read_text(format!("/proc/{pid}/comm"), MAX_COMM_BYTES);
    let cmdline = root.read(format!("/proc/{pid}/cmdline"), MAX_CMDLINE_BYTES);
    let (comm, cmdline) = (comm.ok()?, cmdline.ok()?);
    // What was read was that process's if it is still there.
    if process::identify(root, pid)? != process {
        return None;
    }
    let is_kubelet = KUBELETS.contains(&comm.trim_end_matches('\n'));
    // A zombie has a name and no arguments.
    if is_kubelet && cmdline.is_empty() {
        return None;
    }
    let argv = is_kubelet.then(|| args::words(&cmdline));
    Some(Kubelet { process, argv })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::testing::{self, host, write};

    const PID_FILE: &str = "/run/kubelet.pid";

    fn found(root: &Root) -> Option<Kubelet> {
        find(root, &KubeletSettings::default()).unwrap()
    }

    fn by_pid_file(root: &Root) -> Option<Kubelet> {
        let settings = KubeletSettings {
            pid_file: Some(PID_FILE.into()),
            ..KubeletSettings::default()
        };
        find(root, &settings).unwrap()
    }

    #[test]
    fn the_kubelet_of_the_unit_is_found_wherever_its_slice_is() {
        for group in [
            "/system.slice/kubelet.service",
            "/runtime.slice/kubelet.service",
            "/kube.slice/kube-node.slice/kubelet.service",
        ] {
            let (_folder, root) = host();
            testing::Process::kubelet(812, &["kubelet", "--config=/c"]).write_in(&root, group);
            let kubelet = found(&root).unwrap();
            assert_eq!(kubelet.pid(), 812);
            assert_eq!(kubelet.flags().unwrap().config.as_deref(), Some("/c"));
        }
        let (_folder, root) = host();
        assert_eq!(found(&root), None);
        let refused = find_one(&root, &KubeletSettings::default()).unwrap_err();
        assert_eq!(refused.code, Code::NoSuchProcess);
    }

    #[test]
    fn a_namesake_elsewhere_is_not_the_kubelet() {
        let argv = ["kubelet", "--kubeconfig=/tmp/mine"];
        for group in [
            "/kubepods.slice/kubepods-pod1.slice/kubelet.service",
            "/kubepods/burstable/pod1/kubelet.service",
            "/user.slice/user-1000.slice/user@1000.service/kubelet.service",
            "/user.slice/user-1000.slice/kubelet.service",
            "/machine.slice/kubelet.service",
            "/system.slice/docker-1.scope/kubelet.service",
            "/system.slice/other.service",
        ] {
            let (_folder, root) = host();
            testing::Process::kubelet(7, &argv).write_in(&root, group);
            assert_eq!(found(&root), None, "{group}");
        }
        let mine = testing::Process::kubelet(7, &argv);
        for uids in ["1000\t1000\t1000\t1000", "1000\t0\t0\t0", "0\t1000\t0\t0"] {
            let (_folder, root) = host();
            testing::Process { uids, ..mine }.write(&root);
            assert_eq!(found(&root), None, "{uids}");
        }
        let (_folder, root) = host();
        let nspid = "7\t1";
        testing::Process { nspid, ..mine }.write(&root);
        assert_eq!(found(&root), None, "in a container");
    }

    #[test]
    fn two_that_could_be_it_are_none() {
        let (_folder, root) = host();
        for pid in [7, 8] {
            testing::Process::kubelet(pid, &["kubelet"]).write(&root);
        }
        let refused = find(&root, &KubeletSettings::default()).unwrap_err();
        assert_eq!(refused.code, Code::NotAKubelet);
        assert!(refused.message.contains("7, 8"), "{refused}");
    }

    #[test]
    fn a_pid_file_is_believed_of_a_service_of_the_hosts_alone() {
        let argv = ["kubelet", "--kubeconfig=/etc/k"];
        let mine = testing::Process::kubelet(7, &argv);
        for (group, uids, nspid, is_it) in [
            ("/", "0\t0\t0\t0", "7", true),
            ("/openrc.kubelet", "0\t0\t0\t0", "7", true),
            ("/system.slice/mine.service", "0\t0\t0\t0", "7", true),
            ("/kubepods/besteffort/pod1/2", "0\t0\t0\t0", "7", false),
            (
                "/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope",
                "0\t0\t0\t0",
                "7",
                false,
            ),
            (
                "/kubelet.slice/kubelet-kubepods.slice/x.scope",
                "0\t0\t0\t0",
                "7",
                false,
            ),
            // sudo at its prompt has uid 0 and arguments of its caller's.
            (
                "/user.slice/user-1000.slice/session-1.scope",
                "0\t0\t0\t0",
                "7",
                false,
            ),
            ("/docker/0123", "0\t0\t0\t0", "7", false),
            ("/system.slice/mine.service", "0\t0\t0\t0", "7\t1", false),
            ("/system.slice/mine.service", "1000\t0\t0\t0", "7", false),
        ] {
            let (_folder, root) = host();
            write(&root, PID_FILE, "7\n");
            testing::Process {
                uids,
                nspid,
                ..mine
            }
            .write_in(&root, group);
            assert_eq!(
                by_pid_file(&root).is_some(),
                is_it,
                "{group} {uids} {nspid}"
            );
        }
    }

    #[test]
    fn arguments_of_a_program_that_holds_a_kubelet_are_not_the_kubelets() {
        for (comm, unit) in [
            ("k3s-agent", "k3s-agent.service"),
            ("k3s-server", "k3s.service"),
            ("kubelite", "snap.microk8s.daemon-kubelite.service"),
        ] {
            let (_folder, root) = host();
            let argv = ["k3s", "--config=/etc/rancher/k3s/config.yaml"];
            testing::Process {
                comm,
                ..testing::Process::kubelet(3, &argv)
            }
            .write_in(&root, &format!("/system.slice/{unit}"));
            assert_eq!(found(&root).unwrap().flags(), None);
        }
    }

    #[test]
    fn one_that_has_ended_is_gone() {
        let (_folder, root) = host();
        // A zombie has a name, but no arguments.
        testing::Process::kubelet(5, &[]).write(&root);
        assert_eq!(found(&root), None);
        let refused = find_one(&root, &KubeletSettings::default()).unwrap_err();
        assert_eq!(refused.code, Code::NoSuchProcess);
    }

    #[test]
    fn a_relative_path_counts_from_the_working_folder() {
        let (_folder, root) = host();
        testing::Process::kubelet(6, &["kubelet"]).write(&root);
        let kubelet = found(&root).unwrap();
        assert_eq!(kubelet.resolve(&root, "/a").unwrap(), Path::new("/a"));
        let refused = kubelet.resolve(&root, "conf/a").unwrap_err();
        assert_eq!(refused.code, Code::Unreadable);
        assert!(refused.message.contains("absolute"));
        std::os::unix::fs::symlink("/srv/kubelet", root.join("/proc/6/cwd")).unwrap();
        assert_eq!(
            kubelet.resolve(&root, "conf/a").unwrap(),
            Path::new("/srv/kubelet/conf/a")
        );
    }
}
