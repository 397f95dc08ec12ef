//! glob(3) as `EnvironmentFile=` uses it: `*`, `?`, `[…]`, a backslash before a sign that means itself; no braces, no
//! tilde; a leading dot must be written.

use std::path::{Path, PathBuf};

use crate::kubelet::tree::{Tree, Unreadable};

/// The most files that one pattern gives, and the most folders that it leads through.
const MAX_MATCHES: usize = 1000;

/// The files that match, sorted; for a path without signs the path itself, if something is there.
pub(in crate::kubelet) fn glob(tree: &dyn Tree, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = step(tree, &found, part);
        if found.is_empty() {
            break;
        }
    }
    found.sort();
    found
}

/// One component further.
fn step(tree: &dyn Tree, folders: &[PathBuf], part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        if !has_signs(part) {
            let path = folder.join(unescaped(part));
            let there = tree.lstat(&path);
            // What cannot be looked at is there all the same; reading it will say what is wrong.
            if !matches!(there, Err(Unreadable::NotFound)) {
                found.push(path);
            }
            continue;
        }
        for name in tree.list(folder).unwrap_or_default() {
            let matched = name.to_str().is_some_and(|name| matches(part, name));
            if matched && found.len() < MAX_MATCHES {
                found.push(folder.join(name));
            }
        }
    }
    found
}

/// Whether a pattern has a sign that is not protected.
pub(super) fn has_signs(part: &str) -> bool {
    let mut escaped = false;
    for c in part.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '*' | '?' | '[' => return true,
            _ => {}
        }
    }
    false
}

fn unescaped(part: &str) -> PathBuf {
    let mut plain = String::with_capacity(part.len());
    let mut escaped = false;
    for c in part.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            plain.push(c);
            escaped = false;
        }
    }
    Path::new(&plain).to_owned()
}

/// One sign of a pattern, and what follows it.
enum Sign {
    Star,
    Any,
    Char(char),
    Set { negated: bool, ranges: Vec<(char, char)>, classes: Vec<Class> },
}

/// Whether a character is of a class.
type Class = fn(&char) -> bool;

/// The classes of glob(7), as the C locale has them.
const CLASSES: [(&str, Class); 12] = [
    ("alnum", char::is_ascii_alphanumeric),
    ("alpha", char::is_ascii_alphabetic),
    ("blank", |c| matches!(c, ' ' | '\t')),
    ("cntrl", char::is_ascii_control),
    ("digit", char::is_ascii_digit),
    ("graph", char::is_ascii_graphic),
    ("lower", char::is_ascii_lowercase),
    ("print", |c| *c == ' ' || c.is_ascii_graphic()),
    ("punct", char::is_ascii_punctuation),
    ("space", |c| matches!(c, ' ' | '\t'..='\r')),
    ("upper", char::is_ascii_uppercase),
    ("xdigit", char::is_ascii_hexdigit),
];

impl Sign {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Star | Self::Any => true,
            Self::Char(own) => *own == c,
            Self::Set { negated, ranges, classes } => {
                let within = ranges.iter().any(|(from, to)| (*from..=*to).contains(&c));
                (within || classes.iter().any(|class| class(&c))) != *negated
            }
        }
    }
}

/// Whether `name` matches `pattern`, in time proportional to the product of their lengths.
fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') && !pattern.starts_with("\\.") {
        return false;
    }
    let signs = signs(pattern);
    let name: Vec<char> = name.chars().collect();
    let (mut sign, mut at) = (0, 0);
    // The last star, and how far it reached.
    let mut star: Option<(usize, usize)> = None;
    while at < name.len() {
        match signs.get(sign) {
            Some(Sign::Star) => {
                star = Some((sign, at));
                sign += 1;
            }
            Some(other) if other.takes(name[at]) => {
                sign += 1;
                at += 1;
            }
            _ => {
                let Some((back, reached)) = star else {
                    return false;
                };
                star = Some((back, reached + 1));
                sign = back + 1;
                at = reached + 1;
            }
        }
    }
    signs[sign..].iter().all(|sign| matches!(sign, Sign::Star))
}

fn signs(pattern: &str) -> Vec<Sign> {
    let pattern: Vec<char> = pattern.chars().collect();
    let mut signs = Vec::new();
    let mut at = 0;
    while let Some(c) = pattern.get(at).copied() {
        at += 1;
        match c {
            '*' => signs.push(Sign::Star),
            '?' => signs.push(Sign::Any),
            '\\' => {
                signs.push(Sign::Char(pattern.get(at).copied().unwrap_or('\\')));
                at += 1;
            }
            '[' => match set(&pattern[at..]) {
                Some((sign, taken)) => {
                    signs.push(sign);
                    at += taken;
                }
                None => signs.push(Sign::Char('[')),
            },
            other => signs.push(Sign::Char(other)),
        }
    }
    signs
}

/// What is in brackets, without the opening one, and its length.
fn set(rest: &[char]) -> Option<(Sign, usize)> {
    let negated = matches!(rest.first(), Some('!' | '^'));
    let start = usize::from(negated);
    let mut at = start;
    let mut ranges = Vec::new();
    let mut classes = Vec::new();
    loop {
        let mut from = *rest.get(at)?;
        if from == ']' && at > start {
            let sign = Sign::Set { negated, ranges, classes };
            return Some((sign, at + 1));
        }
        if let Some((class, taken)) = class(rest.get(at..).unwrap_or_default()) {
            classes.push(class);
            at += taken;
            continue;
        }
        if from == '\\' {
            at += 1;
            from = *rest.get(at)?;
        }
        match (rest.get(at + 1), rest.get(at + 2)) {
            (Some('-'), Some(to)) if *to != ']' => {
                ranges.push((from, *to));
                at += 3;
            }
            _ => {
                ranges.push((from, from));
                at += 1;
            }
        }
    }
}

/// The class at the start of `rest`, `[:digit:]`, and its length.
fn class(rest: &[char]) -> Option<(Class, usize)> {
    let inner = rest.strip_prefix(&['[', ':'])?;
    let (name, class) = CLASSES.iter().find(|(name, _)| {
        let end = inner.get(name.len()..name.len() + 2);
        end == Some(&[':', ']']) && inner.iter().zip(name.chars()).all(|(c, own)| *c == own)
    })?;
    Some((*class, name.len() + 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

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
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a[", "a[", true),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("{a,b}", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_end_in_time() {
        assert!(!matches(&"*a".repeat(100), &"a".repeat(99)));
        assert!(!matches(&"*a".repeat(200), &format!("{}b", "a".repeat(200))));
    }

    #[test]
    fn folders_and_files_are_matched_and_sorted() {
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
