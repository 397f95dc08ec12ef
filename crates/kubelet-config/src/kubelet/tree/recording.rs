//! A tree that notes what it was asked for, so that a watcher knows which changes would change the answer.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::{Meta, Tree, Unreadable};

/// Far more paths than a resolution asks for; it bounds memory.
const MAX_PATHS: usize = 16_384;

/// What became of the questions about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Something was there, at least once: otherwise its appearing is what has to be watched for.
    pub found: bool,
    /// Its content was read, or tried to.
    pub read: bool,
    /// Its names were listed, or tried to: a new name in it may change the answer.
    pub listed: bool,
}

/// Notes every path that is asked for, there or not, as it was asked for (links are not resolved).
pub struct Recording<'a> {
    tree: &'a dyn Tree,
    asked: RefCell<BTreeMap<PathBuf, Asked>>,
}

impl std::fmt::Debug for Recording<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl<'a> Recording<'a> {
    /// Hands every question on to `tree`.
    pub fn new(tree: &'a dyn Tree) -> Self {
        Self { tree, asked: RefCell::default() }
    }

    /// Everything that was asked for, by path; [`MAX_PATHS`] at most, of which a resolution needs some hundred.
    pub fn into_asked(self) -> BTreeMap<PathBuf, Asked> {
        self.asked.into_inner()
    }

    fn note<T>(
        &self,
        path: &Path,
        answer: Result<T, Unreadable>,
        mark: impl FnOnce(&mut Asked),
    ) -> Result<T, Unreadable> {
        let mut all = self.asked.borrow_mut();
        if all.len() < MAX_PATHS || all.contains_key(path) {
            let asked = all.entry(path.to_owned()).or_default();
            asked.found |= !matches!(answer, Err(Unreadable::NotFound));
            mark(asked);
        }
        answer
    }
}

impl Tree for Recording<'_> {
    fn lstat(&self, path: &Path) -> Result<Meta, Unreadable> {
        self.note(path, self.tree.lstat(path), |_| {})
    }

    fn stat(&self, path: &Path) -> Result<Meta, Unreadable> {
        self.note(path, self.tree.stat(path), |_| {})
    }

    fn read_bounded(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Unreadable> {
        let answer = self.tree.read_bounded(path, max_bytes);
        self.note(path, answer, |asked| asked.read = true)
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, Unreadable> {
        self.note(path, self.tree.list(path), |asked| asked.listed = true)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        self.note(path, self.tree.read_link(path), |_| {})
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        self.note(path, self.tree.real_path(path), |_| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

    #[test]
    fn hits_and_misses_are_noted() {
        let memory = MemoryTree::new().file("/etc/a", "text").link("/etc/b", "/etc/a");
        let tree = Recording::new(&memory);
        assert_eq!(tree.read_text(Path::new("/etc/b")).as_deref(), Ok("text"));
        assert!(!tree.exists(Path::new("/etc/c")));
        assert!(tree.list(Path::new("/etc")).is_ok());
        assert!(tree.list(Path::new("/run/x")).is_err());
        let asked = tree.into_asked();
        let told: Vec<_> = asked.iter().map(|(path, a)| (path.to_str().unwrap(), a.found, a.read, a.listed)).collect();
        assert_eq!(
            told,
            [
                ("/etc", true, false, true),
                ("/etc/b", true, true, false),
                ("/etc/c", false, false, false),
                ("/run/x", false, false, true),
            ]
        );
    }
}
