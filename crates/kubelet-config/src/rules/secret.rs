//! No finding quotes a secret: the rules quote what they found, and some of that is the value of a variable that should not have
//! been among the kubelet's words.

use std::collections::BTreeSet;

use redact::{few_stars, hide_secrets, is_secret_variable};

use super::{Report, Snapshot};
use crate::kubelet::systemd::Assignment;

/// What stands for a secret.
const STARS: &str = "***";
/// Shorter ones would be found in half of all words.
const MIN_BYTES: usize = 4;
/// So many are looked for.
const MAX_SECRETS: usize = 512;
/// Values that are no secrets, whatever the variable's name.
const PLAIN: &[&str] = &["true", "false", "none", "null"];

/// Puts stars for the values of variables whose names look secret, and for whatever else looks so.
pub(super) fn hide(snapshot: &Snapshot, report: &mut Report) {
    let secrets = secrets(snapshot);
    let hide = |text: &mut String| {
        for secret in &secrets {
            if text.contains(secret) {
                *text = text.replace(secret, STARS);
            }
        }
        *text = few_stars(&hide_secrets(text));
    };
    for finding in &mut report.findings {
        hide(&mut finding.message);
        finding.fix.iter_mut().chain(&mut finding.lost_flags).for_each(hide);
        let steps = finding.chain.iter_mut();
        steps.map(|step| &mut step.text).for_each(hide);
    }
}

/// The values and each word of them, the longest first: one may be a part of another.
fn secrets(snapshot: &Snapshot) -> Vec<&str> {
    let unit = &snapshot.unit;
    let of_unit = unit.variables.values().flat_map(|variable| variable.overridden.iter().chain([&variable.effective]));
    let unread = snapshot.unread_files.iter();
    let assignments = of_unit.chain(unread.flat_map(|file| &file.assignments));
    let secret: Vec<&Assignment> = assignments.filter(|assignment| is_secret_variable(&assignment.name)).collect();
    // The text of a line that is odd: a value may be cut where a quote closes.
    let odd = unit
        .events
        .iter()
        .filter(|event| secret.iter().any(|assignment| stands_in(assignment, &event.at.file, event.at.line)));
    let texts = secret.iter().map(|assignment| assignment.value.as_str()).chain(odd.map(|event| event.text.as_str()));
    let mut found = BTreeSet::new();
    for text in texts {
        for word in text.split_whitespace().chain([text.trim()]) {
            let word = word.trim_matches(['"', '\'']);
            if found.len() < MAX_SECRETS && is_telling(word) {
                found.insert(word);
            }
        }
    }
    let mut found: Vec<&str> = found.into_iter().collect();
    found.sort_by_key(|word| std::cmp::Reverse(word.len()));
    found
}

fn stands_in(assignment: &Assignment, file: &str, line: u32) -> bool {
    let last = assignment.marks.last().map_or(0, |(_, at)| at.line);
    *assignment.at.file == *file && (assignment.at.line..=last.max(assignment.at.line)).contains(&line)
}

/// Whether the word is a secret: a path and a flag are not.
fn is_telling(word: &str) -> bool {
    let is_path = word.starts_with('/') && word.matches(['/', '.']).count() > 1;
    word.len() >= MIN_BYTES && !is_path && !word.starts_with('-') && !PLAIN.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::super::tests::support::{DROP_IN, findings_with, kubeadm};
    use crate::kubelet::resolve::Inputs;

    const SECRET: &str = "swordfish-of-the-yard";

    fn texts(env: &str, exec: &str) -> String {
        let tree = kubeadm().file("/etc/default/kubelet", env).file(
            DROP_IN,
            format!(
                "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\nExecStart=/usr/bin/kubelet {exec}\n"
            ),
        );
        let found = findings_with(&tree, Inputs::default());
        assert!(!found.is_empty(), "{env}");
        let steps = |finding: &super::super::Finding| {
            let steps = finding.chain.iter().map(|step| step.text.clone());
            steps.collect::<String>()
        };
        let shown = found.iter().map(|finding| {
            let fix = finding.fix.clone().unwrap_or_default();
            format!("{} {}: {} | {fix} | {}\n", finding.rule, finding.at, finding.message, steps(finding))
        });
        shown.collect()
    }

    #[test]
    fn the_value_of_a_secret_variable_is_quoted_nowhere() {
        for (name, exec) in [
            ("API_TOKEN", "$API_TOKEN"),
            ("DB_PASSWORD", "${DB_PASSWORD}"),
            ("MY_PASSWD", "--node-ip $MY_PASSWD x"),
            ("SSH_KEY", "$SSH_KEY"),
            ("CLIENT_SECRET_ID", "--v=$CLIENT_SECRET_ID"),
            ("cloud_credentials", "$cloud_credentials"),
        ] {
            for value in
                [SECRET.to_owned(), format!("\"{SECRET}\""), format!("'a {SECRET} b'"), format!("\"x\"{SECRET}")]
            {
                let shown = texts(&format!("{name}={value}\n"), exec);
                assert!(!shown.contains(SECRET), "{name}={value}: {shown}");
            }
        }
    }

    #[test]
    fn another_variables_value_is_quoted() {
        let shown = texts(&format!("KUBELET_EXTRA_ARGS={SECRET}\n"), "$KUBELET_EXTRA_ARGS");
        assert!(shown.contains(&format!("SD016 /etc/default/kubelet:1: '{SECRET}'")), "{shown}");
    }

    #[test]
    fn a_flags_secret_is_quoted_by_no_fix() {
        let env = format!("KUBELET_EXTRA_ARGS=--token={SECRET} stray\n");
        let shown = texts(&env, "$KUBELET_EXTRA_ARGS");
        assert!(!shown.contains(SECRET) && shown.contains("stray"), "{shown}");
    }
}
