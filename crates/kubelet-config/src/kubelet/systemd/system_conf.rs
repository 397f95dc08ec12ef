//! Configurations of systemd's own programs, and the environment that systemd's gives every service: system.conf(5).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::source::SourceFile;
use super::syntax::{self, Pair};
use super::words::{Flags, next_word};
use super::{EventKind, Events, LoadState};
use crate::kubelet::location::{Located, Location};
use crate::kubelet::text::small;
use crate::kubelet::tree::Tree;

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
pub(super) fn environment(tree: &dyn Tree, events: &mut Events) -> Vec<Located<String>> {
    let mut all = Vec::new();
    for path in files(tree, "system.conf") {
        let Some(text) = path.to_str().and_then(|path| small(tree, path)) else { continue };
        let source = SourceFile::new(Location::file(&path), text.into_bytes());
        // Of other lines nothing reaches a service.
        let ended = syntax::parse(&source, &["Manager"], &mut Events::default(), &mut |pair, _| {
            if pair.key == "DefaultEnvironment" {
                take(&pair, &mut all, events);
            }
            Ok(())
        });
        if let Err(LoadState::Error { at, reason }) = ended {
            events.add(EventKind::FileUnreadable { reason }, at, "");
        }
    }
    all
}

/// Takes a `DefaultEnvironment=` line: after an unclosed quote or an escape that is none, nothing of it counts.
fn take(pair: &Pair, all: &mut Vec<Located<String>>, events: &mut Events) {
    let (value, mut position) = (&pair.value, 0);
    if value.is_empty() {
        all.clear();
    }
    let flags = Flags { c_escapes: true, ..Flags::default() };
    loop {
        match next_word(value, &mut position, flags) {
            Ok(Some(word)) => all.push(Located { value: word.text.text(), at: pair.at.clone() }),
            Ok(None) => return,
            Err(_) => {
                let rest = value.slice(position..value.len()).text();
                return events.add(EventKind::BadQuoting, pair.at.clone(), &rest);
            }
        }
    }
}
