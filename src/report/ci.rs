//! Findings for CI: a `JUnit` report, and workflow commands of GitHub Actions.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use html_escape::{encode_double_quoted_attribute, encode_text};
use kubelet_config::rules::{Finding, NotChecked, Rule, Severity};
use redact::escape_controls;

use crate::settings::rule::{name_of, severity_name};

/// One test case for each finding, and one for each rule without a finding, so that a report without findings is not empty. Those that make
/// the exit code 1, from the severity `deny` on, are failures.
pub fn junit(rules: &[&Rule], findings: &[&Finding], not_checked: &[NotChecked], deny: Severity) -> String {
    let (mut cases, mut tests, mut failures, mut skipped) = (String::new(), 0, 0, 0);
    for rule in rules {
        let mut findings = findings.iter().filter(|finding| finding.rule == rule.id).peekable();
        if findings.peek().is_none() {
            let lacks = not_checked.iter().find(|skipped| skipped.rule == rule.id).map(|skipped| skipped.lacks);
            let body = lacks.map(|lacks| format!("<skipped message=\"{}\"/>", attribute(lacks)));
            (tests, skipped) = (tests + 1, skipped + usize::from(body.is_some()));
            case(&mut cases, rule, "", &body.unwrap_or_default());
        }
        for finding in findings {
            let is_failure = finding.severity >= deny;
            (tests, failures) = (tests + 1, failures + usize::from(is_failure));
            let text = text(&body(finding));
            let body = if is_failure {
                let (kind, message) = (severity_name(finding.severity), attribute(&finding.message));
                format!("<failure type=\"{kind}\" message=\"{message}\">{text}</failure>")
            } else {
                format!("<system-out>{}: {text}</system-out>", severity_name(finding.severity))
            };
            case(&mut cases, rule, &format!(" at {}", finding.at), &body);
        }
    }
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"0\"");
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n<testsuite name=\"nodevigil check\" {counts}>\n{cases}\
         </testsuite>\n</testsuites>\n"
    )
}

/// A test case. Its name is unique, because GitLab drops a second one of the same name; Jenkins splits the class at its last point.
fn case(out: &mut String, rule: &Rule, at: &str, body: &str) {
    let family = rule.id.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let name = attribute(&format!("{} {}{at}", rule.id, rule.name));
    _ = writeln!(out, "<testcase classname=\"nodevigil.{family}\" name=\"{name}\" time=\"0\">{body}</testcase>");
}

/// What a finding says, and what to do.
fn body(finding: &Finding) -> String {
    let fix = finding.fix.as_ref().map(|fix| format!("\n{fix}")).unwrap_or_default();
    format!("{}{fix}", finding.message)
}

fn attribute(text: &str) -> String {
    encode_double_quoted_attribute(&printable(text)).into_owned()
}

fn text(lines: &str) -> String {
    encode_text(&lines.lines().map(printable).collect::<Vec<_>>().join("\n")).into_owned()
}

/// The text without the characters that XML forbids.
fn printable(line: &str) -> String {
    escape_controls(line).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

/// A workflow command.
pub fn workflow_command(root: &Path, finding: &Finding) -> String {
    let level = match finding.severity {
        Severity::Fatal | Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "notice",
    };
    let at = &finding.at;
    let mut place = format!("file={}", property(&in_workspace(root, &at.file).to_string_lossy()));
    for (name, number) in [("line", at.line), ("col", at.column)] {
        if number > 0 {
            _ = write!(place, ",{name}={number}");
        }
    }
    let title = property(&format!("{} {}", finding.rule, name_of(finding.rule)));
    let message = body(finding).lines().map(escape_controls).collect::<Vec<_>>().join("\n");
    format!("::{level} {place},title={title}::{}\n", data(&message))
}

/// A file's path as GitHub looks for it: from the working directory if the root is in it, otherwise from the root.
fn in_workspace(root: &Path, file: &str) -> PathBuf {
    let file = file.trim_start_matches('/');
    let path = root.join(file);
    if path.is_relative() {
        return path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
    }
    let below = env::current_dir().ok().filter(|directory| directory != Path::new("/"));
    let below = below.and_then(|directory| path.strip_prefix(directory).ok());
    below.map_or_else(|| PathBuf::from(file), Path::to_owned)
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use kubelet_config::kubelet::location::Location;

    use super::*;

    #[test]
    fn a_workflow_command_is_one_line_whose_values_are_escaped() {
        let at = Location::file("/etc/a,b:c").at(2, 5, 3);
        let mut finding = Finding::new("FL001", Severity::Fatal, at, "50% of\u{1b} it, a:b");
        finding.fix = Some("first\nsecond".into());
        assert_eq!(
            workflow_command(Path::new("./images"), &finding),
            "::error file=images/etc/a%2Cb%3Ac,line=2,col=5,title=FL001 unknown-flag::50%25 of\u{241b} it, a:b%0Afirst%0Asecond\n"
        );
        let finding = Finding::new("SD019", Severity::Info, Location::file("/etc/x"), "m");
        assert_eq!(
            workflow_command(Path::new("/mnt/image"), &finding).split(",title").next(),
            Some("::notice file=etc/x")
        );
        let here = env::current_dir().unwrap().join("tree");
        assert_eq!(in_workspace(&here, "/etc/x"), Path::new("tree/etc/x"));
    }

    #[test]
    fn xml_has_no_character_that_it_forbids() {
        assert_eq!(attribute("a\"b<c>&\u{1}\u{ffff}"), "a&quot;b&lt;c&gt;&amp;\u{2401}\u{fffd}");
        assert_eq!(text("a\n]]>\u{1b}[1m"), "a\n]]&gt;\u{241b}[1m");
    }
}
