//! glob(3) as `EnvironmentFile=` uses it: `*`, `?`, `[…]`, a backslash before a sign that means itself; no braces, no
//! tilde; a leading dot must be written.

use std::path::PathBuf;

use ::glob::Pattern;

use crate::kubelet::tree::{Tree, Unreadable};

/// The most files that one pattern gives, and the most directories that it leads through.
const MAX_MATCHES: usize = 1000;

/// The files that match, sorted; for a path without signs the path itself, if something is there.
pub(in crate::kubelet) fn glob(tree: &dyn Tree, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = step(tree, &found, part);
    }
    found.sort();
    found
}

fn step(tree: &dyn Tree, directories: &[PathBuf], part: &str) -> Vec<PathBuf> {
    if let Some(name) = literal(part) {
        let paths = directories.iter().map(|directory| directory.join(&name));
        // What cannot be looked at is there all the same; reading it will say what is wrong.
        return paths.filter(|path| !matches!(tree.lstat(path), Err(Unreadable::NotFound))).collect();
    }
    let Some(pattern) = pattern(part) else { return Vec::new() };
    let names = directories.iter().flat_map(|directory| {
        let names = tree.list(directory).unwrap_or_default();
        names
            .into_iter()
            .filter(|name| name.to_str().is_some_and(|name| matches(part, &pattern, name)))
            .map(|name| directory.join(name))
    });
    names.take(MAX_MATCHES).collect()
}

/// A part without its backslashes; `None` if it has a sign that none protects.
fn literal(part: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' | '?' | '[' => return None,
            '\\' => text.extend(chars.next()),
            c => text.push(c),
        }
    }
    Some(text)
}

/// The classes of glob(7) that names are matched by, as ranges.
const CLASSES: [(&str, &str); 6] = [
    ("[:alnum:]", "0-9A-Za-z"),
    ("[:alpha:]", "A-Za-z"),
    ("[:digit:]", "0-9"),
    ("[:lower:]", "a-z"),
    ("[:upper:]", "A-Z"),
    ("[:xdigit:]", "0-9A-Fa-f"),
];

/// A component as the crate writes it: without backslashes, classes and `[^`; to it, `**` leads through directories.
fn pattern(part: &str) -> Option<Pattern> {
    let mut text = String::with_capacity(part.len());
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push_str(&Pattern::escape(chars.next().unwrap_or('\\').encode_utf8(&mut [0; 4]))),
            '*' if text.ends_with('*') => {}
            '^' if text.ends_with('[') => text.push('!'),
            c => text.push(c),
        }
    }
    for (class, range) in CLASSES {
        text = text.replace(class, range);
    }
    // Without its closing one a bracket means itself.
    Pattern::new(&text).or_else(|_| Pattern::new(&text.replace('[', "[[]"))).ok()
}

/// Whether a name matches a component and its pattern. A leading dot must be written.
fn matches(part: &str, pattern: &Pattern, name: &str) -> bool {
    let is_dot_written = part.starts_with('.') || part.starts_with("\\.");
    (is_dot_written || !name.starts_with('.')) && pattern.matches(name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::kubelet::tree::MemoryTree;

    fn is_match(text: &str, name: &str) -> bool {
        pattern(text).is_some_and(|pattern| matches(text, &pattern, name))
    }

    #[test]
    fn signs_match_as_in_glob() {
        for (pattern, name, expected) in [
            ("*.env", "a.env", true),
            ("*.env", ".env", false),
            (".*", ".env", true),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]a]", "]", true),
            ("[[:digit:]]*", "9x", true),
            ("[[:digit:]]*", "x9", false),
            ("[![:digit:]_]*", "x9", true),
            ("[[:digit:][:upper:]]", "A", true),
            ("[[:digit:]", "[", false),
            ("[^a-c]x", "bx", false),
            ("a**c", "abc", true),
            ("\\.env", ".env", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a[", "a[", true),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("{a,b}", "a", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_end_in_time() {
        assert!(!is_match(&"*a".repeat(100), &"a".repeat(99)));
        assert!(!is_match(&"*a".repeat(200), &format!("{}b", "a".repeat(200))));
    }

    #[test]
    fn directories_and_files_are_matched_and_sorted() {
        let tree = MemoryTree::new()
            .file("/etc/b.d/2.env", "")
            .file("/etc/a.d/1.env", "")
            .file("/etc/a.d/.hidden.env", "")
            .file("/etc/x", "");
        assert_eq!(glob(&tree, "/etc/*.d/*.env"), [Path::new("/etc/a.d/1.env"), Path::new("/etc/b.d/2.env")]);
        assert_eq!(glob(&tree, "/etc/x"), [Path::new("/etc/x")]);
        assert!(glob(&tree, "/etc/y").is_empty());
    }
}
