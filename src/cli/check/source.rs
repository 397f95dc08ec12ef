//! Source lines to show below a finding: made harmless for a terminal, and never those of a secret.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::Rc,
    sync::Arc,
};

use crate::kubelet::{machine::Needed, place::Place, snapshot::Snapshot, tree::Tree};

/// Longer files are named, not shown.
const MAX_BYTES: usize = 1 << 20;
/// Longer lines are cut: no terminal shows them.
const MAX_LINE_CHARS: usize = 4096;

/// The files that findings are about.
pub(super) struct Sources<'a> {
    tree: &'a dyn Tree,
    secret: BTreeSet<String>,
    files: RefCell<BTreeMap<Arc<str>, Rc<Vec<String>>>>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(tree: &'a dyn Tree, snapshot: &Snapshot) -> Self {
        let machine = &snapshot.machine;
        let mut secret = BTreeSet::new();
        for kubeconfig in [&machine.kubeconfig, &machine.bootstrap_kubeconfig] {
            match kubeconfig {
                Needed::Present(kubeconfig) => secret.insert(kubeconfig.at.file.to_string()),
                Needed::Bad { at, .. } => secret.insert(at.file.to_string()),
                Needed::Missing { .. } | Needed::NotAsked => false,
            };
        }
        for flag in ["kubeconfig", "bootstrap-kubeconfig", "tls-private-key-file"] {
            secret.extend(snapshot.flags.all(flag).map(|used| used.value.clone()));
        }
        Self {
            tree,
            secret,
            files: RefCell::default(),
        }
    }

    /// A line, fit to be printed; one character for each of the file's, so that columns stay.
    pub(super) fn line(&self, place: &Place) -> Option<String> {
        let index = usize::try_from(place.line).ok()?.checked_sub(1)?;
        self.lines(&place.file).get(index).cloned()
    }

    /// Several lines of one file, as [`Sources::line`].
    pub(super) fn lines_between(&self, file: &Arc<str>, first: u32, last: u32) -> Option<String> {
        let skip = usize::try_from(first).ok()?.checked_sub(1)?;
        let end = usize::try_from(last).ok()?;
        let lines = self.lines(file);
        lines.get(skip..end).map(|lines| lines.join("\n"))
    }

    fn lines(&self, file: &Arc<str>) -> Rc<Vec<String>> {
        if let Some(lines) = self.files.borrow().get(file) {
            return Rc::clone(lines);
        }
        let lines = Rc::new(self.read(file));
        self.files
            .borrow_mut()
            .insert(Arc::clone(file), Rc::clone(&lines));
        lines
    }

    fn read(&self, file: &str) -> Vec<String> {
        let path = Path::new(file);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_key = [".pem", ".key", ".crt", ".token"]
            .iter()
            .any(|end| name.ends_with(end));
        if is_key || name == "token" || self.secret.contains(file) {
            return Vec::new();
        }
        let bytes = self.tree.read_bounded(path, MAX_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        if holds_credentials(&text) {
            return Vec::new();
        }
        text.split('\n')
            .map(|line| {
                let line = line.strip_suffix('\r').unwrap_or(line);
                let line: String = line.chars().take(MAX_LINE_CHARS).collect();
                harmless(&hide_secrets(&line))
            })
            .collect()
    }
}

/// Whether a file is a kubeconfig or a key, whatever its name.
fn holds_credentials(text: &str) -> bool {
    ["-----BEGIN", "client-key-data", "client-certificate-data"]
        .iter()
        .any(|mark| text.contains(mark))
        || text.lines().any(|line| {
            let line = line.trim().trim_matches('"');
            line == "kind: Config" || line.starts_with("kind\": \"Config\"")
        })
}

/// The text with everything replaced that would steer a terminal or hide text, character by character.
pub(super) fn harmless(text: &str) -> String {
    text.chars().map(harmless_char).collect()
}

fn harmless_char(c: char) -> char {
    match c {
        '\t' => ' ',
        // The pictures of the control characters: ␊, ␍, ␛, ….
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{FFFD}'),
        '\x7f' => '\u{2421}',
        // C1; soft hyphen; zero width and direction marks; line and paragraph separators; byte order mark.
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '\u{FFFD}',
        c => c,
    }
}

/// The text with the values of passwords and tokens as stars.
pub(super) fn hide_secrets(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut hidden = chars.clone();
    let mut start = 0;
    while start < chars.len() {
        if !is_name(chars[start]) {
            start += 1;
            continue;
        }
        let end = run(&chars, start, is_name);
        let name: String = chars[start..end].iter().collect();
        start = end;
        let value = value_after(&chars, end, &name);
        for star in hidden.get_mut(value).into_iter().flatten() {
            *star = '*';
        }
    }
    hidden.into_iter().collect()
}

/// Where the secret value stands that follows `name`, if it names one.
fn value_after(chars: &[char], end: usize, name: &str) -> std::ops::Range<usize> {
    // http://user:password@host
    if chars.get(end..end + 3) == Some(&[':', '/', '/']) {
        let from = end + 3;
        let to = run(chars, from, |c| !c.is_whitespace() && !"/@'\"".contains(c));
        let colon = (from..to).find(|index| chars[*index] == ':');
        return match colon {
            Some(colon) if chars.get(to) == Some(&'@') => colon + 1..to,
            _ => 0..0,
        };
    }
    if !is_secret_name(name) {
        return 0..0;
    }
    let quote = usize::from(matches!(chars.get(end), Some('"' | '\'')));
    let after_name = run(chars, end + quote, |c| c == ' ');
    if !matches!(chars.get(after_name), Some('=' | ':')) {
        return 0..0;
    }
    let from = run(chars, after_name + 1, |c| c == ' ' || c == '"' || c == '\'');
    let to = run(chars, from, |c| !c.is_whitespace() && !"\"'".contains(c));
    from..to
}

/// The end of the run of such characters that starts at `from`.
fn run(chars: &[char], from: usize, is: impl Fn(char) -> bool) -> usize {
    let rest = chars.get(from..).unwrap_or_default();
    from.min(chars.len()) + rest.iter().take_while(|c| is(**c)).count()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Whether a variable or a key of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["token", "password", "passwd", "secret", "apikey", "api_key"]
        .iter()
        .any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_become_stars_of_the_same_width() {
        for (text, wanted) in [
            ("K3S_TOKEN=K10ab::c", "K3S_TOKEN=********"),
            ("token: \"abc\"", "token: \"***\""),
            (
                "Environment=\"A=1\" \"K3S_TOKEN=x y\"",
                "Environment=\"A=1\" \"K3S_TOKEN=* y\"",
            ),
            (
                "http_proxy=http://me:pw@proxy:3128/",
                "http_proxy=http://me:**@proxy:3128/",
            ),
            ("\"password\": \"abc\",", "\"password\": \"***\","),
            (
                "--authentication-token-webhook=true --token-file=/x",
                "--authentication-token-webhook=true --token-file=/x",
            ),
            ("--token=abc --v=2", "--token=*** --v=2"),
            ("see http://example.org:80/a", "see http://example.org:80/a"),
            ("TOKEN", "TOKEN"),
            ("é token=ü", "é token=*"),
        ] {
            assert_eq!(hide_secrets(text), wanted);
        }
    }

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(
            harmless("a\x1b[31mb\tc\u{202e}d\r\0é"),
            "a\u{241b}[31mb c\u{fffd}d\u{240d}\u{2400}é"
        );
    }

    #[test]
    fn credentials_are_known_by_their_content() {
        assert!(holds_credentials("apiVersion: v1\nkind: Config\n"));
        assert!(holds_credentials("x\n-----BEGIN CERTIFICATE-----\n"));
        assert!(!holds_credentials("kind: KubeletConfiguration\n"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_keeps_its_columns(text in ".*") {
            let shown = harmless(&hide_secrets(&text));
            assert_eq!(shown.chars().count(), text.chars().count());
        }
    }
}
