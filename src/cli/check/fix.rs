//! `nodevigil check --fix`: a patch for the findings that an edit fixes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use kubelet_config::fix::{ChangedFile, Plan};
use kubelet_config::rules::{Finding, Severity};
use redact::escape_controls;
use similar::TextDiff;

use crate::settings::rule::severity_name;

/// The beginnings of options that affect only the output.
const OUTPUT_OPTIONS: [&str; 8] =
    ["--fix", "--verbose", "-v", "--output=", "-o", "--output-file=", "--color=", "--once="];

/// The output of `--fix`.
pub struct Patch {
    /// For `patch -p1 -d /`; empty if there is nothing to change.
    pub diff: String,
    /// What the patch fixes, what it does not fix, and what to do next.
    pub notes: String,
    /// Whether a finding that makes the exit code 1 is not fixed.
    pub is_bad: bool,
}

impl Patch {
    /// `command`: what prints and applies the patch. `deny`: findings from this severity on are bad. `is_stale`: the files have changed
    /// since systemd loaded them.
    pub fn of(plan: &Plan, unit: &str, command: &str, deny: Severity, is_stale: bool) -> Self {
        let left: Vec<&Finding> = plan.left.findings.iter().filter(|finding| finding.severity >= deny).collect();
        Self {
            diff: plan.files.iter().map(diff).collect(),
            notes: notes(plan, &left, unit, command, is_stale),
            is_bad: !left.is_empty(),
        }
    }
}

/// A file's part of the patch.
fn diff(file: &ChangedFile) -> String {
    let path = file.path.display().to_string();
    let before = file.before.as_deref().unwrap_or_default();
    // patch(1) reads a name that contains a blank only up to a tab.
    let tab = if path.contains(' ') { "\t" } else { "" };
    let old = if file.before.is_some() { format!("a{path}{tab}") } else { "/dev/null".to_owned() };
    // A single carriage return ends a line for `TextDiff::from_lines`, but not for patch(1).
    let (before, after): (Vec<_>, Vec<_>) =
        (before.split_inclusive('\n').collect(), file.after.split_inclusive('\n').collect());
    let diff = TextDiff::configure().newline_terminated(true).diff_slices(&before, &after);
    diff.unified_diff().header(&old, &format!("b{path}{tab}")).to_string()
}

/// Whether the plan mends a finding.
pub fn mends(plan: &Plan, finding: &Finding) -> bool {
    let is_like = |other: &Finding| other.rule == finding.rule && other.at.file == finding.at.file;
    plan.fixed.contains(finding) || plan.fixed.iter().any(is_like) && !plan.left.findings.iter().any(is_like)
}

/// The command that prints the patch and applies it, from the words after `nodevigil check`, without those that `--fix` does not take.
pub fn command(mut words: impl Iterator<Item = String>, root: &Path) -> String {
    let mut command = "nodevigil check --fix".to_owned();
    while let Some(word) = words.next() {
        if ["--output", "-o", "--output-file", "--color", "--once"].contains(&word.as_str()) {
            words.next();
        } else if !OUTPUT_OPTIONS.iter().any(|start| word.starts_with(start)) {
            _ = write!(command, " {}", quoted(&word));
        }
    }
    format!("{command} | patch -p1 -d {}", quoted(&root.to_string_lossy()))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    // shlex also quotes `=`, which needs that nowhere but in the first word.
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=/.,:+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), Cow::into_owned)
}

fn notes(plan: &Plan, left: &[&Finding], unit: &str, command: &str, is_stale: bool) -> String {
    let mut notes = String::new();
    for (what, findings) in [("fixed by the patch", plan.fixed.iter().collect()), ("not fixed", left.to_vec())] {
        for Finding { rule, severity, at, message, fix, .. } in findings {
            let severity = severity_name(*severity);
            _ = writeln!(notes, "{what}: {severity} {rule} at {at}: {}", escape_controls(message));
            if let Some(fix) = fix {
                _ = writeln!(notes, "  fix: {}", escape_controls(fix));
            }
        }
    }
    let is_of_systemd = |file: &ChangedFile| file.path.components().any(|part| part.as_os_str() == "systemd");
    let reload = if is_stale || plan.files.iter().any(is_of_systemd) { "systemctl daemon-reload && " } else { "" };
    if plan.files.is_empty() {
        notes.push_str("no error can be fixed by editing a file\n");
    } else {
        _ = writeln!(notes, "apply the patch with: {command}");
    }
    if is_stale || !plan.files.is_empty() {
        _ = writeln!(notes, "then: {reload}systemctl restart {unit}");
    }
    notes
}

#[cfg(test)]
mod tests {
    use kubelet_config::kubelet::location::Location;
    use kubelet_config::rules::Report;

    use super::*;

    const APPLY: &str = "nodevigil check --fix | patch -p1 -d /";

    fn changed(path: &str, before: Option<&str>, after: &str) -> ChangedFile {
        ChangedFile { path: path.into(), before: before.map(str::to_owned), after: after.to_owned() }
    }

    #[test]
    fn the_command_has_the_same_options_but_those_of_the_output() {
        let of = |words: &[&str], root| command(words.iter().map(|word| (*word).to_owned()), Path::new(root));
        assert_eq!(of(&[], "/"), APPLY);
        let words = [
            "-v",
            "--output",
            "text",
            "--phase=before",
            "--color=never",
            "--intent",
            "node-label=a=b c",
            "-otext",
            "/mnt/my image",
        ];
        assert_eq!(
            of(&words, "/mnt/my image"),
            "nodevigil check --fix --phase=before --intent 'node-label=a=b c' '/mnt/my image' | patch -p1 -d '/mnt/my image'"
        );
        let words = ["--fix", "--output-file", "report", "--select", "SD,FL002", "-o", "text", "--severity=warning"];
        assert_eq!(of(&words, "/"), "nodevigil check --fix --select SD,FL002 --severity=warning | patch -p1 -d /");
    }

    #[test]
    fn a_patch_changes_creates_and_names_the_commands_that_follow() {
        let old = changed("/etc/default/kubelet", Some("A=1\nKUBELET_EXTRA_ARGS="), "A=1\nKUBELET_EXTRA_ARGS=--v=2\n");
        let new = changed("/etc/systemd/system/kubelet.service.d/20-x.conf", None, "[Service]\n");
        let left = Finding::new("FL001", Severity::Fatal, Location::file("/etc/default/kubelet"), "unknown\u{1b} flag");
        let report = Report { findings: vec![left], not_checked: Vec::new() };
        let plan = Plan { files: vec![old.clone(), new], fixed: Vec::new(), left: report };
        let patch = Patch::of(&plan, "kubelet", APPLY, Severity::Error, false);
        assert_eq!(
            patch.diff,
            "--- a/etc/default/kubelet\n+++ b/etc/default/kubelet\n@@ -1,2 +1,2 @@\n A=1\n-KUBELET_EXTRA_ARGS=\n\
             \\ No newline at end of file\n+KUBELET_EXTRA_ARGS=--v=2\n\
             --- /dev/null\n+++ b/etc/systemd/system/kubelet.service.d/20-x.conf\n@@ -0,0 +1 @@\n+[Service]\n"
        );
        assert!(patch.is_bad);
        assert_eq!(
            patch.notes,
            "not fixed: fatal FL001 at /etc/default/kubelet: unknown\u{241b} flag\n\
             apply the patch with: nodevigil check --fix | patch -p1 -d /\n\
             then: systemctl daemon-reload && systemctl restart kubelet\n"
        );
        let plan = Plan { files: vec![old], ..Plan::default() };
        assert!(
            Patch::of(&plan, "kubelet", APPLY, Severity::Error, false)
                .notes
                .ends_with("then: systemctl restart kubelet\n")
        );
        let nothing = Patch::of(&Plan::default(), "kubelet", APPLY, Severity::Error, false);
        assert_eq!((nothing.diff.as_str(), nothing.is_bad), ("", false));
        let odd = diff(&changed("/etc/two words", Some("a\rb=1\nc\n"), "a\rb=1\nd\n"));
        assert_eq!(odd, "--- a/etc/two words\t\n+++ b/etc/two words\t\n@@ -1,2 +1,2 @@\n a\rb=1\n-c\n+d\n");
        let stale = Patch::of(&Plan::default(), "kubelet", APPLY, Severity::Error, true).notes;
        assert!(stale.ends_with("\nthen: systemctl daemon-reload && systemctl restart kubelet\n"), "{stale}");
    }
}
