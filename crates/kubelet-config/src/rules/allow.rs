//! Findings that the operator allows, by a comment next to the line they are about, with a reason.
//!
//! A comment line above the line (`# nodevigil: allow FL003 kubeadm rewrites this at the next upgrade`) allows the named
//! rules there, be it between or above the lines that a backslash joins. At the top of a file it allows what is found
//! about the file as a whole. Several rules are separated by commas. Without a reason it allows nothing, and says so.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{Finding, Location, Rule};
use crate::kubelet::tree::Tree;

/// What starts a comment's request, after `#` or `;`.
const MARK: &str = "nodevigil: allow";
/// Longer files than any kubelet's are not searched.
const MAX_BYTES: usize = 1 << 20;
/// Rules and reason are read up to here.
const MAX_COMMENT_CHARS: usize = 1000;

/// A finding that was allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// What was found.
    pub finding: Finding,
    /// Why that is well.
    pub reason: String,
    /// The comment.
    pub by: Location,
}

/// Findings, parted by what comments say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parted {
    /// Those that stay.
    pub findings: Vec<Finding>,
    /// Those that are allowed.
    pub allowed: Vec<Allowed>,
    /// Comments that allow nothing, and why.
    pub refused: Vec<(Location, &'static str)>,
}

/// Takes out what comments allow. The files are read once each.
pub fn part(tree: &dyn Tree, findings: Vec<Finding>) -> Parted {
    let mut files: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
    let mut parted = Parted::default();
    for finding in findings {
        let lines = files.entry(Arc::clone(&finding.at.file)).or_insert_with_key(|path| read(tree, path));
        let Some((line, reason)) = search(lines, &finding) else {
            parted.findings.push(finding);
            continue;
        };
        let by = finding.at.at_line(line);
        if reason.is_empty() {
            let refused = (by, "gives no reason; write it as `# nodevigil: allow RULE why`");
            if !parted.refused.contains(&refused) {
                parted.refused.push(refused);
            }
            parted.findings.push(finding);
        } else {
            parted.allowed.push(Allowed { finding, reason, by });
        }
    }
    parted
}

fn read(tree: &dyn Tree, path: &str) -> Vec<String> {
    let bytes = tree.read_bounded(Path::new(path), MAX_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

/// What a comment says; `None` of other lines.
fn comment(line: &str) -> Option<&str> {
    line.trim().strip_prefix(['#', ';']).map(str::trim)
}

/// The comment that speaks of a finding: its line, and its reason, which may be empty.
fn search(lines: &[String], finding: &Finding) -> Option<(u32, String)> {
    let rule = super::rule(finding.rule);
    let request = |(index, line): (usize, &String)| {
        let request: String = comment(line)?.strip_prefix(MARK)?.chars().take(MAX_COMMENT_CHARS).collect();
        Some((u32::try_from(index + 1).ok()?, reason(&request, finding.rule, rule)?))
    };
    let Some(own) = usize::try_from(finding.at.line).ok()?.checked_sub(1) else {
        return lines.iter().enumerate().take_while(|(_, line)| comment(line).is_some()).find_map(request);
    };
    let above = lines.iter().enumerate().take(own).rev();
    above.take_while(|(_, line)| comment(line).is_some() || line.ends_with('\\')).find_map(request)
}

/// The reason in a comment that names the rule: the rules come first, by id or by name.
fn reason(text: &str, id: &str, rule: Option<&Rule>) -> Option<String> {
    let mut rest = text.strip_prefix([' ', '\t'])?.trim_start();
    let mut is_named = false;
    loop {
        let (word, after) = rest.split_at(rest.find([',', ' ', '\t', ':']).unwrap_or(rest.len()));
        let is_it = word.eq_ignore_ascii_case(id) || rule.is_some_and(|rule| rule.name == word);
        if !is_it && !super::rules().any(|rule| rule.id.eq_ignore_ascii_case(word) || rule.name == word) {
            break;
        }
        is_named |= is_it;
        rest = after.trim_start_matches([',', ' ', '\t']);
    }
    let is_mark = |c: char| matches!(c, ':' | '-' | '–' | '—') || c.is_whitespace();
    is_named.then(|| rest.trim_start_matches(is_mark).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;
    use crate::rules::Severity;

    const FILE: &str = "/etc/default/kubelet";

    fn parted(text: &str, rule: &'static str, line: u32) -> Parted {
        let tree = MemoryTree::new().file(FILE, text);
        let at = Location::file(FILE).at_line(line);
        part(&tree, vec![Finding::new(rule, Severity::Warning, at, "message")])
    }

    #[test]
    fn a_comment_with_a_reason_allows() {
        let text = "A=1\n# nodevigil: allow FL003, SD001: until the upgrade: in May\n; another\nB=2\n";
        for rule in ["FL003", "SD001"] {
            let parted = parted(text, rule, 4);
            assert!(parted.findings.is_empty());
            assert_eq!(parted.allowed[0].reason, "until the upgrade: in May");
            assert_eq!(parted.allowed[0].by.line, 2);
        }
        for (rule, line) in [("FL001", 4), ("FL003", 1), ("FL003", 5), ("FL003", 0)] {
            assert_eq!(parted(text, rule, line).findings.len(), 1, "{rule} {line}");
        }
    }

    #[test]
    fn without_a_reason_it_says_so() {
        for text in ["# nodevigil: allow FL003\nA=1\n", "#nodevigil: allow FL003:  \nA=1\n"] {
            let parted = parted(text, "FL003", 2);
            assert_eq!((parted.findings.len(), parted.allowed.len()), (1, 0));
            assert_eq!(parted.refused[0].0.file_line(), "/etc/default/kubelet:1");
        }
    }

    #[test]
    fn rule_and_reason_need_no_colon() {
        for comment in [
            "# nodevigil: allow FL003 until the upgrade",
            "  ; nodevigil: allow SD001, FL003 until the upgrade",
            "# nodevigil: allow fl003 SD001 - until the upgrade",
        ] {
            let parted = parted(&format!("{comment}\nA=1\n"), "FL003", 2);
            assert_eq!(parted.allowed.len(), 1, "{comment}");
            assert_eq!(parted.allowed[0].reason, "until the upgrade");
        }
        for comment in ["# nodevigil: allow", "# nodevigil: allowFL003 x", "# allow FL003 x"] {
            let parted = parted(&format!("{comment}\nA=1\n"), "FL003", 2);
            assert_eq!(parted.findings.len(), 1, "{comment}");
        }
    }

    #[test]
    fn a_comment_above_continued_lines_and_one_between_them_count() {
        let text =
            "# nodevigil: allow FL003 so be it\nExecStart=/a \\\n  --b \\\n# nodevigil: allow FL005 too\n  --c\n";
        assert_eq!(parted(text, "FL003", 3).allowed.len(), 1);
        assert_eq!(parted(text, "FL003", 5).allowed.len(), 1);
        assert_eq!(parted(text, "FL005", 5).allowed.len(), 1);
        assert_eq!(parted(text, "FL005", 3).findings.len(), 1);
    }

    #[test]
    fn behind_a_value_it_allows_nothing() {
        let yaml = "kind: KubeletConfiguration\nreadOnlyPort: 10255 # nodevigil: allow AU009 scraped\n";
        assert_eq!(parted(yaml, "AU009", 2).findings.len(), 1);
    }

    #[test]
    fn the_top_of_a_file_is_for_the_file() {
        let text = "# ours\n# nodevigil: allow SD026: the tool that writes it cannot chmod\nA=1\n";
        assert_eq!(parted(text, "SD026", 0).allowed.len(), 1);
        assert_eq!(parted("A=1\n# nodevigil: allow SD026: x\n", "SD026", 0).allowed.len(), 0);
        let absent = Finding::new("SD026", Severity::Info, Location::file("/gone"), "m");
        assert_eq!(part(&MemoryTree::new(), vec![absent]).findings.len(), 1);
    }
}
