//! Writes an initial file system, in the kernel's own `newc` format: the run's files need no image of their own.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// What is put into it.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    folders: Vec<String>,
    inode: u32,
}

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

impl Archive {
    /// A file, with its folders.
    pub(crate) fn file(&mut self, path: &str, content: &[u8], mode: u32, group: u32) {
        self.parents(path);
        self.entry(path, content, FILE | mode, group);
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, path: &str, to: &str) {
        self.parents(path);
        self.entry(path, to.as_bytes(), LINK | 0o777, 0);
    }

    /// A file of this machine.
    pub(crate) fn copy(&mut self, from: &Path, path: &str, mode: u32) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.file(path, &content, mode, 0);
        Ok(())
    }

    /// Writes it.
    pub(crate) fn write(mut self, to: &Path) -> Result<()> {
        self.entry("TRAILER!!!", &[], 0, 0);
        fs::write(to, &self.bytes).with_context(|| format!("writing {}", to.display()))
    }

    fn parents(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            let folder = &path[..at];
            if !folder.is_empty() && !self.folders.iter().any(|known| known == folder) {
                self.folders.push(folder.to_owned());
                self.entry(folder, &[], FOLDER | 0o755, 0);
            }
        }
    }

    fn entry(&mut self, path: &str, content: &[u8], mode: u32, group: u32) {
        self.inode += 1;
        let name = path.trim_start_matches('/');
        // inode, mode, uid, gid, links, mtime, size, device and special device, length of the name, checksum
        let (size, name_size) = (content.len(), name.len() + 1);
        let head = format!(
            "070701{:08x}{mode:08x}{:08x}{group:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{name_size:08x}{:08x}",
            self.inode, 0, 1, 0, 0, 0, 0, 0, 0
        );
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}
