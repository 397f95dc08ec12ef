//! Names of units: `prefix@instance.service`, and the escapes in them; systemd.unit(5), "STRING ESCAPING".

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// `a.service`.
    Plain,
    /// `a@.service`.
    Template,
    /// `a@b.service`.
    Instance,
}

const MAX_NAME_BYTES: usize = 255;
const SUFFIX: &str = ".service";

/// Its kind, if it is a valid name of a service.
pub(super) fn kind(name: &str) -> Option<NameKind> {
    let stem = name.strip_suffix(SUFFIX)?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    if name.len() > MAX_NAME_BYTES || stem.is_empty() || !stem.bytes().all(valid) {
        return None;
    }
    match stem.split_once('@') {
        None => Some(NameKind::Plain),
        Some(("", _)) => None,
        Some((_, "")) => Some(NameKind::Template),
        Some(_) => Some(NameKind::Instance),
    }
}

pub(super) fn stem(name: &str) -> &str {
    name.strip_suffix(SUFFIX).unwrap_or(name)
}

pub(super) fn prefix(name: &str) -> &str {
    let stem = stem(name);
    stem.split_once('@').map_or(stem, |(prefix, _)| prefix)
}

/// What is after the `@`; `None` for a plain name and a template.
pub(super) fn instance(name: &str) -> Option<&str> {
    stem(name).split_once('@').map(|(_, instance)| instance).filter(|instance| !instance.is_empty())
}

pub(super) fn template(name: &str) -> Option<String> {
    (kind(name) == Some(NameKind::Instance)).then(|| format!("{}@{SUFFIX}", prefix(name)))
}

pub(super) fn instantiate(template: &str, instance: &str) -> String {
    format!("{}@{instance}{SUFFIX}", prefix(template))
}

/// `-` is a slash and `\x2d` a dash; `None` where an escape is none.
pub(super) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'-' => b'/',
            b'\\' if rest.next() == Some(b'x') => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'\\' => return None,
            other => other,
        });
    }
    Some(bytes)
}

/// As [`unescape`], of a path: a slash before it, and none doubled.
pub(super) fn unescape_path(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(b"/".to_vec());
    }
    if text.is_empty() || text.starts_with('-') || text.ends_with('-') || text.contains("--") {
        return None;
    }
    let mut path = b"/".to_vec();
    path.extend(unescape(text)?);
    Some(path)
}

/// The names whose `.d` directories hold drop-ins of `name`, the most specific first: the name, its template, and the
/// prefixes `a-b-`, `a-`; each name with its template before its prefixes.
pub(super) fn drop_in_names(name: &str) -> Vec<String> {
    let mut names = Vec::new();
    // Each name leads to its template and to a shorter prefix, both of which are shorter or have no instance: the
    // number of steps is bounded by twice the number of dashes.
    let mut next = vec![name.to_owned()];
    while let Some(name) = next.pop() {
        let template = template(&name);
        let shorter = shorter_prefix(prefix(&name)).map(|prefix| match instance(&name) {
            Some(instance) => format!("{prefix}@{instance}{SUFFIX}"),
            None => format!("{prefix}{SUFFIX}"),
        });
        if names.contains(&name) {
            continue;
        }
        names.push(name);
        next.extend(shorter);
        next.extend(template);
    }
    names
}

/// `a-b-c` gives `a-b-`, and that gives `a-`; one dash at the end does not count.
fn shorter_prefix(prefix: &str) -> Option<&str> {
    let inner = prefix.strip_suffix('-').unwrap_or(prefix);
    let dash = inner.rfind('-').filter(|dash| *dash > 0)?;
    Some(&inner[..=dash])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_kinds() {
        assert_eq!(kind("a-b.service"), Some(NameKind::Plain));
        assert_eq!(kind("a@.service"), Some(NameKind::Template));
        assert_eq!(kind("a@b@c.service"), Some(NameKind::Instance));
        assert_eq!(instance("a@b@c.service"), Some("b@c"));
        for bad in [".service", "@b.service", "a b.service", "a.socket", "a/b.service"] {
            assert_eq!(kind(bad), None, "{bad}");
        }
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(r"a-b\x2dc").unwrap(), b"a/b-c");
        assert_eq!(unescape(r"a\b"), None);
        assert_eq!(unescape(r"a\x2"), None);
        assert_eq!(unescape_path("a-b").unwrap(), b"/a/b");
        assert_eq!(unescape_path("a--b"), None);
    }

    #[test]
    fn prefixes_need_a_dash() {
        assert_eq!(drop_in_names("kubelet.service"), ["kubelet.service"]);
        assert_eq!(drop_in_names("a-b-c.service"), ["a-b-c.service", "a-b-.service", "a-.service"]);
        assert_eq!(drop_in_names("-a.service"), ["-a.service"]);
        assert_eq!(
            drop_in_names("a-b@i.service"),
            ["a-b@i.service", "a-b@.service", "a-.service", "a-@i.service", "a-@.service"]
        );
    }
}
