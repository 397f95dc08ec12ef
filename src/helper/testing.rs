//! Little hosts for the helper's tests: a folder that stands for `/`, with processes and files in it.

use std::path::Path;

use tempfile::TempDir;

use crate::host::files::Root;

/// An empty host; it goes with its folder.
pub(crate) fn host() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    (folder, root)
}

/// Writes a file and the folders above it.
pub(crate) fn write(root: &Root, path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    root.create_dir_all(path.parent().unwrap()).unwrap();
    root.write_atomically(path, text.as_bytes()).unwrap();
}

/// A kubeconfig whose user has a token.
pub(crate) fn kubeconfig_with_token(token: &str) -> String {
    format!(
        "kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: l, user: u}}}}]
clusters: [{{name: l, cluster: {{server: 'https://10.0.0.1:6443'}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
"
    )
}

/// A process of the little host.
#[derive(Clone, Copy)]
pub(crate) struct Process<'a> {
    pub(crate) pid: i32,
    pub(crate) comm: &'a str,
    /// The `Uid:` line of its status, without the name.
    pub(crate) uids: &'a str,
    /// The `NSpid:` line.
    pub(crate) nspid: &'a str,
    pub(crate) argv: &'a [&'a str],
}

impl<'a> Process<'a> {
    /// A kubelet that root runs.
    pub(crate) fn kubelet(pid: i32, argv: &'a [&'a str]) -> Self {
        Self {
            pid,
            comm: "kubelet",
            uids: "0\t0\t0\t0",
            nspid: "1",
            argv,
        }
    }

    /// Writes its folder below `/proc`, and puts it into the cgroup of `kubelet.service`.
    pub(crate) fn write(&self, root: &Root) {
        self.write_in(root, "/system.slice/kubelet.service");
    }

    /// The same in another cgroup.
    pub(crate) fn write_in(&self, root: &Root, group: &str) {
        let pid = self.pid;
        let file = |name: &str, text: &str| write(root, format!("/proc/{pid}/{name}"), text);
        file("comm", &format!("{}\n", self.comm));
        let zeros = "0 ".repeat(29);
        file(
            "stat",
            &format!(
                "{pid} ({}) S 1 1 1 0 -1 4194560 0 0 0 0 1 1 0 0 20 0 1 0 12345 1 1 1 {zeros}",
                self.comm
            ),
        );
        file(
            "status",
            &format!(
                "Name:\t{}\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t1\n\
                 TracerPid:\t0\nUid:\t{}\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t \nNStgid:\t{nspid}\nNSpid:\t{nspid}\n\
                 Threads:\t1\nSigQ:\t0/1\nSigPnd:\t0\nShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\nCapInh:\t0\n\
                 CapPrm:\t0\nCapEff:\t0\n",
                self.comm,
                self.uids,
                nspid = self.nspid,
            ),
        );
        file("cgroup", &format!("0::{group}\n"));
        let mut cmdline = self.argv.join("\0");
        if !self.argv.is_empty() {
            cmdline.push('\0');
        }
        file("cmdline", &cmdline);
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", group.trim_end_matches('/'));
        let mut members = root.read_text(&procs, 4096).unwrap_or_default();
        let line = format!("{pid}\n");
        if !members.contains(&line) {
            members.push_str(&line);
        }
        write(root, &procs, &members);
    }
}
