//! Findings that the operator allows, beside the line they are about and with a reason.
//!
//! A comment line above the line (`# nodevigil: allow FL003: kubeadm rewrites this at the next upgrade`) allows the named
//! rules there; at the top of a file it allows what is found about the file as a whole. Without a reason it allows
//! nothing, and says so.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use super::{Finding, Rule};
use crate::kubelet::{place::Place, tree::Tree};

/// What starts a comment's request, after `#` or `;`.
const MARK: &str = "nodevigil: allow ";
/// Longer files than any kubelet's are not searched.
const MAX_BYTES: usize = 1 << 20;

/// A finding that was allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// What was found.
    pub finding: Finding,
    /// Why that is well.
    pub reason: String,
    /// The comment.
    pub by: Place,
}

/// Findings, parted by what comments say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parted {
    /// Those that stay.
    pub findings: Vec<Finding>,
    /// Those that are allowed.
    pub allowed: Vec<Allowed>,
    /// Comments that allow nothing, and why.
    pub refused: Vec<(Place, &'static str)>,
}

/// Takes out what comments allow. The files are read once each.
pub fn part(tree: &dyn Tree, findings: Vec<Finding>) -> Parted {
    let mut files: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
    let mut parted = Parted::default();
    for finding in findings {
        let lines = files
            .entry(Arc::clone(&finding.at.file))
            .or_insert_with_key(|path| read(tree, path));
        match search(lines, &finding) {
            Some(Comment::Allows { line, reason }) => parted.allowed.push(Allowed {
                by: finding.at.at_line(line),
                reason,
                finding,
            }),
            Some(Comment::LacksReason { line }) => {
                let refused = (
                    finding.at.at_line(line),
                    "gives no reason; write it as `nodevigil: allow RULE: why`",
                );
                if !parted.refused.contains(&refused) {
                    parted.refused.push(refused);
                }
                parted.findings.push(finding);
            }
            None => parted.findings.push(finding),
        }
    }
    parted
}

/// The comments of a file, blank for every other line: only those matter here.
fn read(tree: &dyn Tree, path: &str) -> Vec<String> {
    let bytes = tree
        .read_bounded(Path::new(path), MAX_BYTES)
        .unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .lines()
        .map(|line| {
            let line = line.trim();
            let comment = line.strip_prefix(['#', ';']);
            comment.map_or_else(String::new, |text| format!("#{}", text.trim()))
        })
        .collect()
}

enum Comment {
    Allows { line: u32, reason: String },
    LacksReason { line: u32 },
}

fn search(lines: &[String], finding: &Finding) -> Option<Comment> {
    let numbered = lines.iter().zip(1_u32..);
    let is_comment = |(line, _): &(&String, u32)| !line.is_empty();
    let rule = super::all().find(|rule| rule.id == finding.rule);
    let judge = |(text, line): (&String, u32)| comment(text, line, finding.rule, rule);
    if finding.at.line == 0 {
        return numbered.take_while(is_comment).find_map(judge);
    }
    let above = usize::try_from(finding.at.line - 1).unwrap_or(usize::MAX);
    let mut upwards: Vec<_> = numbered.take(above).collect();
    upwards.reverse();
    upwards.into_iter().take_while(is_comment).find_map(judge)
}

fn comment(text: &str, line: u32, id: &str, rule: Option<&Rule>) -> Option<Comment> {
    let request = text.strip_prefix('#')?.strip_prefix(MARK)?;
    let (rules, reason) = request.split_once(':').unwrap_or((request, ""));
    let named = rules
        .split([',', ' '])
        .any(|word| word.eq_ignore_ascii_case(id) || rule.is_some_and(|rule| rule.name == word));
    if !named {
        return None;
    }
    Some(match reason.trim() {
        "" => Comment::LacksReason { line },
        reason => Comment::Allows {
            line,
            reason: reason.to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kubelet::tree::MemoryTree, rules::Severity};

    const FILE: &str = "/etc/default/kubelet";

    fn parted(text: &str, rule: &'static str, line: u32) -> Parted {
        let tree = MemoryTree::new().file(FILE, text);
        let at = Place::file(FILE).at_line(line);
        part(
            &tree,
            vec![Finding::new(rule, Severity::Warning, at, "message")],
        )
    }

    #[test]
    fn a_comment_with_a_reason_allows() {
        let text =
            "A=1\n# nodevigil: allow FL003, SD001: until the upgrade: in May\n; another\nB=2\n";
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
        for text in [
            "# nodevigil: allow FL003\nA=1\n",
            "#nodevigil: allow FL003:  \nA=1\n",
        ] {
            let parted = parted(text, "FL003", 2);
            assert_eq!((parted.findings.len(), parted.allowed.len()), (1, 0));
            assert_eq!(parted.refused[0].0.file_line(), "/etc/default/kubelet:1");
        }
    }

    #[test]
    fn the_top_of_a_file_is_for_the_file() {
        let text = "# ours\n# nodevigil: allow SD026: the tool that writes it cannot chmod\nA=1\n";
        assert_eq!(parted(text, "SD026", 0).allowed.len(), 1);
        assert_eq!(
            parted("A=1\n# nodevigil: allow SD026: x\n", "SD026", 0)
                .allowed
                .len(),
            0
        );
        let absent = Finding::new("SD026", Severity::Info, Place::file("/gone"), "m");
        assert_eq!(part(&MemoryTree::new(), vec![absent]).findings.len(), 1);
    }
}
