//! Patterns of paths, as Go's `filepath.Glob` takes them: `*` and `?` within a name, `[…]` left out.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use super::super::tree::Tree;

/// How many paths a pattern may match.
const MAX_MATCHES: usize = 1000;

/// The paths that match, sorted.
pub(super) fn matches(tree: &dyn Tree, pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for component in pattern.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::ParentDir => OsStr::new(".."),
            _ => continue,
        };
        let is_pattern = name.as_bytes().iter().any(|byte| b"*?".contains(byte));
        found = if is_pattern {
            let mut next: Vec<PathBuf> = found
                .iter()
                .flat_map(|folder| {
                    let names = tree.list(folder).unwrap_or_default();
                    names.into_iter().map(move |entry| folder.join(entry))
                })
                .filter(|path| path.file_name().is_some_and(|entry| fits(name, entry)))
                .take(MAX_MATCHES)
                .collect();
            next.sort_unstable();
            next
        } else {
            found.into_iter().map(|folder| folder.join(name)).collect()
        };
    }
    found.retain(|path| tree.exists(path));
    found
}

/// Whether a name fits a pattern; greedy with one step back, so that it is linear in the name for each asterisk.
fn fits(pattern: &OsStr, name: &OsStr) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while let Some(byte) = name.get(n) {
        match (pattern.get(p), back) {
            (Some(b'*'), _) => {
                p += 1;
                back = Some((p, n));
            }
            (Some(wanted), _) if *wanted == b'?' || wanted == byte => {
                p += 1;
                n += 1;
            }
            (_, Some((after, from))) => {
                p = after;
                n = from + 1;
                back = Some((after, n));
            }
            _ => return false,
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

    #[test]
    fn a_pattern_matches_names_in_order() {
        let tree = MemoryTree::new()
            .file("/etc/c/b.toml", "")
            .file("/etc/c/a.toml", "")
            .file("/etc/c/a.toml.bak", "")
            .file("/etc/d/x.toml", "");
        let found = |pattern| matches(&tree, Path::new(pattern));
        assert_eq!(found("/etc/c/*.toml"), [Path::new("/etc/c/a.toml"), Path::new("/etc/c/b.toml")]);
        assert_eq!(found("/etc/?/x.toml"), [Path::new("/etc/d/x.toml")]);
        assert_eq!(found("/etc/*/*a*t*"), [Path::new("/etc/c/a.toml"), Path::new("/etc/c/a.toml.bak")]);
        assert!(found("/none/*").is_empty());
    }
}
