//! A tree with some files replaced, in memory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::ChangedFile;
use crate::kubelet::tree::{Kind, Meta, Tree, Unreadable};

#[derive(Clone)]
pub(super) struct Overlay<'a> {
    base: &'a dyn Tree,
    files: BTreeMap<PathBuf, String>,
}

impl<'a> Overlay<'a> {
    pub(super) fn new(base: &'a dyn Tree) -> Self {
        Self { base, files: BTreeMap::new() }
    }

    pub(super) fn write(&mut self, path: &Path, text: String) {
        self.files.insert(self.real(path), text);
    }

    /// The files that are not as they were.
    pub(super) fn changed(self) -> Vec<ChangedFile> {
        let before = |path: &Path| self.base.read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let files = self.files.iter().map(|(path, after)| ChangedFile {
            path: path.clone(),
            before: before(path),
            after: after.clone(),
        });
        files.filter(|file| file.before.as_ref() != Some(&file.after)).collect()
    }

    /// The path with links resolved, as far as it exists.
    fn real(&self, path: &Path) -> PathBuf {
        if let Ok(real) = self.base.real_path(path) {
            return real;
        }
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => self.real(parent).join(name),
            _ => path.to_owned(),
        }
    }

    fn meta(&self, path: &Path, of_base: Result<Meta, Unreadable>) -> Result<Meta, Unreadable> {
        let real = self.real(path);
        let new = |kind, size_bytes, mode| Meta { kind, size_bytes, mode, uid: 0, gid: 0 };
        if let Some(text) = self.files.get(&real) {
            let size_bytes = text.len() as u64;
            return Ok(of_base.map_or_else(|_| new(Kind::File, size_bytes, 0o644), |meta| Meta { size_bytes, ..meta }));
        }
        let has_new_file = || self.files.keys().any(|file| file.starts_with(&real));
        of_base.or_else(|error| if has_new_file() { Ok(new(Kind::Directory, 0, 0o755)) } else { Err(error) })
    }
}

impl Tree for Overlay<'_> {
    fn lstat(&self, path: &Path) -> Result<Meta, Unreadable> {
        self.meta(path, self.base.lstat(path))
    }

    fn stat(&self, path: &Path) -> Result<Meta, Unreadable> {
        self.meta(path, self.base.stat(path))
    }

    fn read_bounded(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Unreadable> {
        match self.files.get(&self.real(path)) {
            Some(text) if text.len() > max_bytes => Err(Unreadable::TooLarge { max_bytes }),
            Some(text) => Ok(text.clone().into_bytes()),
            None => self.base.read_bounded(path, max_bytes),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, Unreadable> {
        let real = self.real(path);
        let below = self.files.keys().filter_map(|file| file.strip_prefix(&real).ok()?.components().next());
        let added: Vec<OsString> = below.map(|name| name.as_os_str().to_owned()).collect();
        let mut names = match self.base.list(path) {
            Err(_) if !added.is_empty() => Vec::new(),
            names => names?,
        };
        names.extend(added);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        self.base.read_link(path)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        self.stat(path).map(|_| self.real(path))
    }
}
