//! Whether the last run printed the same: the preflight runs at each boot, and the console hears a thing once.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use crate::host::files::Root;

/// A digest has 16 letters.
const MAX_BYTES: usize = 1024;

/// Compares `text` with what `file` remembers, and remembers it there. What cannot be remembered is printed again.
pub(super) fn is_the_same(file: &Path, text: &str) -> bool {
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), text).hash(&mut hasher);
    let digest = format!("{:016x}\n", hasher.finish());
    let Ok(file) = std::path::absolute(file) else {
        return false;
    };
    let root = Root::default();
    if root
        .read(&file, MAX_BYTES)
        .is_ok_and(|old| old == digest.as_bytes())
    {
        return true;
    }
    root.write_atomically(&file, digest.as_bytes()).ok();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_new_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("digest");
        let told: Vec<_> = ["a", "a", "b", "b", "a"]
            .iter()
            .map(|text| is_the_same(&file, text))
            .collect();
        assert_eq!(told, [false, true, false, true, false]);
        assert!(!is_the_same(Path::new("/nowhere/digest"), "a"));
    }
}
