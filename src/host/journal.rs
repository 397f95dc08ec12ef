//! The last error that a unit logged before it ended, by `journalctl(1)`.

use std::time::Duration;

use tokio::process::Command;

use super::child;

/// A journal on a slow disk is given up after this time.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many of the last lines of a run are searched.
const LINES: &str = "40";
/// The longest line that is shown, in bytes.
const MAX_LINE_BYTES: usize = 300;

/// The line that probably has the reason why the run of a unit ended, without secrets and control characters; none if there is none, or the
/// journal does not answer.
pub async fn last_error(invocation: &str) -> Option<String> {
    let run = format!("_SYSTEMD_INVOCATION_ID={invocation}");
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "--quiet", "--output=cat", "--lines", LINES, &run]);
    let (_, output) = child::run(command, TIMEOUT).await.ok()?;
    best_line(&String::from_utf8_lossy(&output)).map(shown)
}

/// The last line of klog with severity E or F, or of a panic or a fatal error; else the last line.
fn best_line(output: &str) -> Option<&str> {
    let lines = || output.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    lines().find(|line| is_error(line)).or_else(|| lines().next())
}

fn is_error(line: &str) -> bool {
    let mut chars = line.chars();
    // klog: `E1126 06:13:50.123456 …`
    let is_klog =
        matches!(chars.next(), Some('E' | 'F')) && chars.by_ref().take(4).filter(char::is_ascii_digit).count() == 4;
    is_klog || ["panic: ", "fatal error: ", "Error: "].iter().any(|start| line.starts_with(start))
}

fn shown(line: &str) -> String {
    // The header of klog does not help a reader of the Node.
    let text = line.split_once("] ").filter(|(head, _)| is_error(head)).map_or(line, |(_, text)| text);
    redact::sanitize_line(text, MAX_LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_counts_before_the_last_line() {
        let output = "I1126 06:13:50.1 1 a.go:1] ok\nE1126 06:13:50.2 1 run.go:72] \"command failed\" err=\"unknown flag\"\nI1126 06:13:50.3 1 b.go:2] bye\n";
        assert_eq!(best_line(output).map(shown).unwrap(), "\"command failed\" err=\"unknown flag\"");
        assert_eq!(best_line("one\ntwo\n\n"), Some("two"));
        assert_eq!(best_line("Error: x\nUsage:\n"), Some("Error: x"));
        assert_eq!(best_line(""), None);
    }
}
