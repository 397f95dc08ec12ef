//! Configurations of systemd's own programs, and the environment that systemd's gives every service: system.conf(5).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::source::Mapped;
use super::words::{Flags, next_word};
use crate::kubelet::location::{Located, Location};
use crate::kubelet::text::{numbered, small};
use crate::kubelet::tree::Tree;

/// How many files of a directory are read.
const MAX_FILES: usize = 100;

/// The main file of a configuration, then the drop-ins by name; of one name the best directory's.
pub(crate) fn files(tree: &dyn Tree, name: &str) -> Vec<PathBuf> {
    const DIRECTORIES: [&str; 4] = ["/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd"];
    let mut files = BTreeMap::new();
    for directory in DIRECTORIES {
        let directory = Path::new(directory).join(format!("{name}.d"));
        for name in tree.list(&directory).unwrap_or_default().into_iter().take(MAX_FILES) {
            if name.to_string_lossy().ends_with(".conf") {
                files.insert(name.clone(), directory.join(name));
            }
        }
    }
    std::iter::once(Path::new("/etc/systemd").join(name)).chain(files.into_values()).collect()
}

/// The variables of `DefaultEnvironment=`, as `NAME=value`, each with its line.
pub(super) fn environment(tree: &dyn Tree) -> Vec<Located<String>> {
    let mut all = Vec::new();
    for path in files(tree, "system.conf") {
        let Some(text) = path.to_str().and_then(|path| small(tree, path)) else { continue };
        for (number, line) in numbered(&text) {
            let Some(value) = line.trim().strip_prefix("DefaultEnvironment=") else { continue };
            if value.trim().is_empty() {
                all.clear();
            }
            let (value, mut position) = (Mapped::plain(value.as_bytes()), 0);
            let flags = Flags { c_escapes: true, ..Flags::default() };
            while let Ok(Some(word)) = next_word(&value, &mut position, flags) {
                all.push(Located { value: word.text.text(), at: Location::file(&path).at_line(number) });
            }
        }
    }
    all
}
