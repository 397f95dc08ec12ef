//! The last error that a unit logged before it ended, by `journalctl(1)`.

use std::time::Duration;

use tokio::process::Command;

use super::child;

/// A journal on a slow disk is given up after this time.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many of the last lines of a run are searched: a Go program that ends by a panic or SIGABRT prints the stacks of all its
/// goroutines, the kubelet some 3,000 lines.
const LINES: &str = "5000";
/// Of those, how many before the stacks.
const MAX_SEARCHED: usize = 40;
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

/// The last line of klog with severity E or F, or of a panic or a fatal error; else the last line. What Go prints of its goroutines and
/// registers explains nothing.
fn best_line(output: &str) -> Option<&str> {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_stack = |line: &&str| line.starts_with("goroutine ") && line.ends_with(':');
    let before = &lines[..lines.iter().position(is_stack).unwrap_or(lines.len())];
    let is_told =
        |line: &&&str| !["PC=", "[signal ", "SIGABRT: ", "SIGQUIT: "].iter().any(|start| line.starts_with(start));
    let shown = || before.iter().rev().filter(is_told).copied();
    shown().take(MAX_SEARCHED).find(|line| is_error(line)).or_else(|| shown().next())
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
        let stacks = "goroutine 0 gp=0x5 m=0 mp=0x5 [idle]:\nruntime.futex(0x1)\n\t/usr/go/sys.s:557 +0x21\nrax    0xca\nr9     0x0\n";
        let watchdog = format!("I1126 06:13:50.1 1 a.go:1] ok\nSIGABRT: abort\nPC=0x47e5a1 m=0 sigcode=0\n\n{stacks}");
        assert_eq!(best_line(&watchdog), Some("I1126 06:13:50.1 1 a.go:1] ok"), "the signal is known");
        let panic = format!("panic: runtime error: index out of range [3]\n[signal SIGSEGV: code=1]\n\n{stacks}");
        assert_eq!(best_line(&panic), Some("panic: runtime error: index out of range [3]"));
        let threads = format!(
            "runtime: failed to create new OS thread (have 5 already; errno=11)\nfatal error: newosproc\n\n{stacks}"
        );
        assert_eq!(best_line(&threads), Some("fatal error: newosproc"));
        assert_eq!(best_line(""), None);
    }
}
