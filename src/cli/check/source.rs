//! The source lines of findings: sanitized for a terminal, and without the lines of files that hold secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::machine::FileState;
use kubelet_config::kubelet::snapshot::Snapshot;
use kubelet_config::kubelet::tree::Tree;
use kubelet_config::rules::Finding;
use redact::{escape_controls, hide_secrets};

/// Of longer files only the name is shown.
const MAX_BYTES: usize = 1 << 20;
/// Longer lines are cut: no terminal shows them.
const MAX_LINE_CHARS: usize = 4096;

/// The files' lines, by path.
pub struct Sources(BTreeMap<Arc<str>, Vec<String>>);

impl Sources {
    /// Reads the files that the findings name.
    pub fn read(tree: &dyn Tree, snapshot: &Snapshot, findings: &[Finding]) -> Self {
        let secret = secret_files(snapshot);
        let locations = findings
            .iter()
            .flat_map(|finding| std::iter::once(&finding.at).chain(finding.chain.iter().map(|step| &step.at)));
        let files: BTreeSet<Arc<str>> = locations.map(|location| Arc::clone(&location.file)).collect();
        let shown = files.into_iter().filter(|file| !secret.contains(&**file));
        Self(shown.map(|file| (Arc::clone(&file), lines(tree, &file))).collect())
    }

    /// A sanitized line. It has as many characters as the line of the file, so that columns stay the same.
    pub fn line(&self, location: &Location) -> Option<&str> {
        let index = usize::try_from(location.line).ok()?.checked_sub(1)?;
        self.0.get(&location.file)?.get(index).map(String::as_str)
    }

    /// Several lines of a file, counted from 1.
    pub fn lines(&self, file: &str, first: u32, last: u32) -> Option<String> {
        let skipped = usize::try_from(first).ok()?.checked_sub(1)?;
        let lines = self.0.get(file)?.get(skipped..usize::try_from(last).ok()?)?;
        Some(lines.join("\n"))
    }
}

/// The kubelet's kubeconfigs and its key, whatever their names.
fn secret_files(snapshot: &Snapshot) -> BTreeSet<String> {
    let kubeconfigs = [&snapshot.machine.kubeconfig, &snapshot.machine.bootstrap_kubeconfig];
    let found = kubeconfigs.into_iter().filter_map(|kubeconfig| match kubeconfig {
        FileState::Present(kubeconfig) => Some(kubeconfig.at.file.to_string()),
        FileState::Bad { at, .. } => Some(at.file.to_string()),
        FileState::Missing { .. } | FileState::NotAsked => None,
    });
    let flags = ["kubeconfig", "bootstrap-kubeconfig", "tls-private-key-file"];
    let named = flags.iter().flat_map(|flag| snapshot.flags.all(flag).map(|used| used.value.clone()));
    found.chain(named).collect()
}

fn lines(tree: &dyn Tree, file: &str) -> Vec<String> {
    let path = Path::new(file);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name == "token" || [".pem", ".key", ".crt", ".token"].iter().any(|end| name.ends_with(end)) {
        return Vec::new();
    }
    let bytes = tree.read_bounded(path, MAX_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if has_credentials(&text) {
        return Vec::new();
    }
    // The whole text at once: a flag may be on one line and its secret on the next.
    let line = |line: &str| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        escape_controls(&line.chars().take(MAX_LINE_CHARS).collect::<String>())
    };
    hide_secrets(&text).split('\n').map(line).collect()
}

/// Whether a file is a kubeconfig or a key, whatever its name.
fn has_credentials(text: &str) -> bool {
    let is_config = |line: &str| {
        let line = line.trim().trim_matches('"');
        line == "kind: Config" || line.starts_with("kind\": \"Config\"")
    };
    ["-----BEGIN", "client-key-data", "client-certificate-data"].iter().any(|start| text.contains(start))
        || text.lines().any(is_config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_recognised_by_their_content() {
        assert!(has_credentials("apiVersion: v1\nkind: Config\n"));
        assert!(has_credentials("x\n-----BEGIN CERTIFICATE-----\n"));
        assert!(!has_credentials("kind: KubeletConfiguration\n"));
    }
}
