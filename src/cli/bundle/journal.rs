//! The journal of a tree. journalctl is given the files, each opened here: by itself it would follow a link out of the tree,
//! and put the journal of the host that it runs on into the bundle.

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use crate::{
    host::tree::HostTree,
    kubelet::tree::{Kind, Tree as _},
};

/// Where journald keeps its files, each machine's in a folder below.
const FOLDERS: [&str; 2] = ["/var/log/journal", "/run/log/journal"];
/// So many are read, the newest ones. A file of the journal's holds 8 to 128 MiB.
const MAX_FILES: usize = 32;

/// The files, open, with the words that name them to journalctl.
#[derive(Debug)]
pub(super) struct Journal {
    /// Held as long as journalctl runs: it opens them through this process.
    _open: Vec<OwnedFd>,
    pub(super) words: Vec<String>,
}

impl Journal {
    /// Those of the tree, inside it whatever links lead there. Users' own journals are none of our business.
    pub(super) fn of(tree: &HostTree) -> Self {
        let mut found: Vec<(i128, PathBuf)> = Vec::new();
        for folder in FOLDERS.map(Path::new) {
            for machine in tree.list(folder).unwrap_or_default() {
                let folder = folder.join(machine);
                let names = tree.list(&folder).unwrap_or_default();
                let journals = names.iter().filter(|name| {
                    let name = name.to_string_lossy();
                    name.starts_with("system") && name.contains(".journal")
                });
                for name in journals {
                    let path = folder.join(name);
                    if let Ok(meta) = tree.stat(&path)
                        && meta.kind == Kind::File
                    {
                        found.push((meta.modified_nanos, path));
                    }
                }
            }
        }
        found.sort_by_key(|(modified, _)| std::cmp::Reverse(*modified));
        found.truncate(MAX_FILES);
        let files = found
            .iter()
            .filter_map(|(_, path)| tree.open_file(path).ok());
        let open: Vec<OwnedFd> = files.collect();
        let us = std::process::id();
        let word = |file: &OwnedFd| format!("--file=/proc/{us}/fd/{}", file.as_raw_fd());
        Self {
            words: open.iter().map(word).collect(),
            _open: open,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::files::Root;

    const MACHINE: &str = "/var/log/journal/3d1219c7c4c5404aaa1f6d2a48adfda4";

    #[test]
    fn only_files_of_the_tree_are_handed_over() {
        let (outside, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (theirs, root) = (Root::new(outside.path()), Root::new(folder.path()));
        theirs.create_dir_all("/machine").unwrap();
        for path in ["/machine/system.journal", "/system.journal"] {
            theirs.write_atomically(path, b"canary").unwrap();
        }
        root.create_dir_all(MACHINE).unwrap();
        root.create_dir_all("/run/log").unwrap();
        for name in [
            "system.journal",
            "system@1.journal",
            "user-1000.journal",
            "x",
        ] {
            let path = format!("{MACHINE}/{name}");
            root.write_atomically(path, name.as_bytes()).unwrap();
        }
        let link = |to: &Path, path: &str| symlink(to, root.join(path)).unwrap();
        link(outside.path(), "/run/log/journal");
        link(&outside.path().join("machine"), "/var/log/journal/other");
        let name = format!("{MACHINE}/system@2.journal");
        link(&outside.path().join("system.journal"), &name);
        let journal = Journal::of(&HostTree::new(folder.path()).unwrap());
        let ours = Root::default();
        let text = |word: &String| ours.read_text(word.strip_prefix("--file=").unwrap(), 99);
        let mut texts: Vec<String> = journal
            .words
            .iter()
            .map(|word| text(word).unwrap())
            .collect();
        texts.sort();
        assert_eq!(texts, ["system.journal", "system@1.journal"]);
    }
}
