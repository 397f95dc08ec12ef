//! Findings that the operator allows, beside the line they are about and with a reason.
//!
//! A comment line above the line (`# nodevigil: allow FL003 kubeadm rewrites this at the next upgrade`) allows the named
//! rules there, be it between or above the lines that a backslash joins; in YAML it may stand behind the
//! value, too. At the top of a file it allows what is found about the file as a whole. Several rules are separated by
//! commas; a colon before the reason is taken. Without a reason it allows nothing, and says so.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use super::{Finding, Rule};
use crate::kubelet::{location::Location, tree::Tree};

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
    let mut files: BTreeMap<Arc<str>, Vec<Line>> = BTreeMap::new();
    let mut parted = Parted::default();
    for finding in findings {
        let lines = files.entry(Arc::clone(&finding.at.file)).or_insert_with_key(|path| read(tree, path));
        match search(lines, &finding) {
            Some(Comment::Allows { line, reason }) => {
                let by = finding.at.at_line(line);
                parted.allowed.push(Allowed { finding, reason, by });
            }
            Some(Comment::LacksReason { line }) => {
                let refused = (finding.at.at_line(line), "gives no reason; write it as `# nodevigil: allow RULE why`");
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

/// A line, as far as it matters here.
enum Line {
    /// A comment's text.
    Comment(String),
    /// A value, perhaps with a comment behind it, perhaps continued.
    Other { comment: Option<String>, continued: bool },
}

fn read(tree: &dyn Tree, path: &str) -> Vec<Line> {
    let bytes = tree.read_bounded(Path::new(path), MAX_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let trailing = has_trailing_comments(&text);
    let line = |line: &str| match line.trim().strip_prefix(['#', ';']) {
        Some(comment) => Line::Comment(shortened(comment.trim())),
        None => {
            Line::Other { comment: behind(line).filter(|_| trailing).map(shortened), continued: line.ends_with('\\') }
        }
    };
    text.lines().map(line).collect()
}

/// As much of a comment as is read, once for every finding below it.
fn shortened(comment: &str) -> String {
    comment.chars().take(MAX_COMMENT_CHARS).collect()
}

/// A comment behind a value.
fn behind(line: &str) -> Option<&str> {
    let start = line.find(MARK)?;
    let hash = line[..start].rfind('#')?;
    let comment = line[hash + 1..].trim();
    (line[..hash].ends_with([' ', '\t']) && comment.starts_with(MARK)).then_some(comment)
}

/// Whether the file's format has comments behind values. YAML has; in systemd's units and environment files such
/// text is a part of the value. The first line of the content tells them apart.
fn has_trailing_comments(text: &str) -> bool {
    let is_content = |line: &&str| !line.is_empty() && !line.starts_with(['#', ';', '[']);
    let is_key = |key: &str| {
        let is_in_key = |c: char| c.is_ascii_alphanumeric() || "-_+.\"".contains(c);
        !key.is_empty() && key.chars().all(is_in_key)
    };
    let mut lines = text.lines().map(str::trim);
    lines.find(is_content).is_some_and(|line| {
        let yaml = line.split_once(':');
        line == "---"
            || line.starts_with("- ")
            || yaml.is_some_and(|(key, value)| is_key(key) && (value.is_empty() || value.starts_with(' ')))
    })
}

enum Comment {
    Allows { line: u32, reason: String },
    LacksReason { line: u32 },
}

fn search(lines: &[Line], finding: &Finding) -> Option<Comment> {
    let rule = super::all().find(|rule| rule.id == finding.rule);
    let judge = |line: u32, text: &str| comment(text, line, finding.rule, rule);
    if finding.at.line == 0 {
        let numbered = lines.iter().zip(1_u32..);
        let mut top = numbered.map_while(|(line, number)| match line {
            Line::Comment(text) => Some((number, text)),
            Line::Other { .. } => None,
        });
        return top.find_map(|(number, text)| judge(number, text));
    }
    let own = usize::try_from(finding.at.line - 1).unwrap_or(usize::MAX);
    if let Some(Line::Other { comment: Some(text), .. }) = lines.get(own)
        && let Some(found) = judge(finding.at.line, text)
    {
        return Some(found);
    }
    let above = lines.get(..own.min(lines.len())).unwrap_or_default();
    let mut number = u32::try_from(above.len()).unwrap_or(u32::MAX) + 1;
    for line in above.iter().rev() {
        number -= 1;
        match line {
            Line::Comment(text) => {
                if let Some(found) = judge(number, text) {
                    return Some(found);
                }
            }
            Line::Other { continued, .. } if *continued => {}
            Line::Other { .. } => break,
        }
    }
    None
}

fn comment(text: &str, line: u32, id: &str, rule: Option<&Rule>) -> Option<Comment> {
    let mut rest = text.strip_prefix(MARK)?.strip_prefix([' ', '\t'])?.trim_start();
    let mut named = false;
    // The rules come first, then the reason: a word is a rule's if it is written as one, or as its name.
    loop {
        let end = rest.find([',', ' ', '\t', ':']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_it = word.eq_ignore_ascii_case(id) || rule.is_some_and(|rule| rule.name == word);
        if !is_it && !is_a_rule(word) {
            break;
        }
        named |= is_it;
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
        if after.starts_with(':') {
            break;
        }
    }
    if !named {
        return None;
    }
    let reason = rest.trim_start_matches([':', '-', '–', '—', ' ', '\t']).trim();
    Some(if reason.is_empty() {
        Comment::LacksReason { line }
    } else {
        Comment::Allows { line, reason: reason.to_owned() }
    })
}

/// Two letters and three digits, or the name of a rule.
fn is_a_rule(word: &str) -> bool {
    let bytes = word.as_bytes();
    let has_form =
        bytes.len() == 5 && bytes[..2].iter().all(u8::is_ascii_alphabetic) && bytes[2..].iter().all(u8::is_ascii_digit);
    has_form || super::all().any(|rule| rule.name == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kubelet::tree::MemoryTree, rules::Severity};

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
    fn behind_a_value_it_counts_in_yaml_alone() {
        let yaml =
            "kind: KubeletConfiguration\nreadOnlyPort: 10255 # nodevigil: allow AU009 scraped by the old monitoring\n";
        assert_eq!(parted(yaml, "AU009", 2).allowed.len(), 1);
        let env = "A=1\nB=\"x\" # nodevigil: allow SD014 not a comment here\n";
        assert_eq!(parted(env, "SD014", 2).findings.len(), 1);
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
