//! Source lines to show below a finding: made harmless for a terminal, and never those of a secret.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::Rc,
    sync::Arc,
};

use crate::kubelet::{
    machine::Needed,
    place::Place,
    shown::{harmless, hide_secrets},
    snapshot::Snapshot,
    tree::Tree,
};

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
        // As a whole: a flag may stand on one line and its secret on the next.
        hide_secrets(&text)
            .split('\n')
            .map(|line| {
                let line = line.strip_suffix('\r').unwrap_or(line);
                let line: String = line.chars().take(MAX_LINE_CHARS).collect();
                harmless(&line)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_known_by_their_content() {
        assert!(holds_credentials("apiVersion: v1\nkind: Config\n"));
        assert!(holds_credentials("x\n-----BEGIN CERTIFICATE-----\n"));
        assert!(!holds_credentials("kind: KubeletConfiguration\n"));
    }
}
