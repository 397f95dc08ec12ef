//! Little hosts for the helper's tests: a folder that stands for `/`, with processes and files in it.

use std::path::Path;

use tempfile::TempDir;

use crate::host::files::Root;

/// An empty host; it goes with its folder.
pub(super) fn host() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    (folder, root)
}

/// Writes a file and the folders above it.
pub(super) fn write(root: &Root, path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    root.create_dir_all(path.parent().unwrap()).unwrap();
    root.write_atomically(path, text.as_bytes()).unwrap();
}

/// A kubeconfig whose user has a token.
pub(super) fn kubeconfig_with_token(token: &str) -> String {
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
#[derive(Clone)]
pub(super) struct Process<'a> {
    pub(super) pid: i32,
    pub(super) comm: &'a str,
    /// The `Uid:` line of its status, without the name.
    pub(super) uids: &'a str,
    pub(super) argv: &'a [&'a str],
}

impl<'a> Process<'a> {
    /// A kubelet that root runs.
    pub(super) fn kubelet(pid: i32, argv: &'a [&'a str]) -> Self {
        Self {
            pid,
            comm: "kubelet",
            uids: "0\t0\t0\t0",
            argv,
        }
    }

    /// Writes its folder below `/proc`.
    pub(super) fn write(&self, root: &Root) {
        let folder = format!("/proc/{}", self.pid);
        let file = |name: &str, text: &str| write(root, format!("{folder}/{name}"), text);
        file("comm", &format!("{}\n", self.comm));
        file(
            "status",
            &format!("Name:\t{}\nUid:\t{}\nGid:\t0\n", self.comm, self.uids),
        );
        let mut cmdline = self.argv.join("\0");
        if !self.argv.is_empty() {
            cmdline.push('\0');
        }
        file("cmdline", &cmdline);
    }
}
