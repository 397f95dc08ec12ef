//! How the tests find the files of this repository.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Directories that contain nothing written for this repository.
const SKIPPED: &[&str] = &["target", "dist", ".git", "corpus", "rootfs"];

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

/// The text of a file of the repository.
pub fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// All files below a directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if !entry.file_type().unwrap().is_dir() {
            found.push(path);
        } else if !SKIPPED.iter().any(|name| path.ends_with(name)) {
            found.extend(files(&path));
        }
    }
    found
}

/// The files below a directory that have this extension.
pub fn files_with(extension: &str, directory: &Path) -> Vec<PathBuf> {
    files(directory).into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}
