//! Makes a tree on which the two differ as small as it gets while they do.

use anyhow::Result;

use crate::case::{Case, Entry};

/// How many smaller trees are tried at most; each is loaded and started by the real systemd.
const TRIES: usize = 400;

/// Removes files, lines and words as long as `differs` returns that the difference remains.
pub(crate) fn shrink(case: &Case, mut differs: impl FnMut(&Case) -> Result<bool>) -> Result<Case> {
    let mut best = case.clone();
    let mut tries = 0;
    loop {
        let mut smaller = false;
        let mut position = 0;
        while let Some(candidate) = candidate(&best, &mut position) {
            tries += 1;
            if tries > TRIES {
                return Ok(best);
            }
            if differs(&candidate)? {
                best = candidate;
                smaller = true;
            } else {
                position += 1;
            }
        }
        if !smaller {
            return Ok(best);
        }
    }
}

/// The tree without the part at `position`: files come first, then lines, then words. Moves on over what is no part.
fn candidate(case: &Case, position: &mut usize) -> Option<Case> {
    let paths: Vec<&String> = case.entries.keys().collect();
    if let Some(path) = paths.get(*position) {
        let mut smaller = case.clone();
        smaller.entries.remove(*path);
        return Some(smaller);
    }
    let mut index = *position - paths.len();
    for separator in [b'\n', b' '] {
        for (path, entry) in &case.entries {
            let Some(content) = entry.content() else {
                continue;
            };
            let parts: Vec<&[u8]> = content.split(|byte| *byte == separator).collect();
            if index >= parts.len() {
                index -= parts.len();
                continue;
            }
            if parts.len() == 1 {
                *position += 1; // that would be the file
                return candidate(case, position);
            }
            let mut parts = parts;
            parts.remove(index);
            let mut smaller = case.clone();
            smaller.entries.insert(path.clone(), Entry::file(parts.join(&separator)));
            return Some(smaller);
        }
    }
    None
}
