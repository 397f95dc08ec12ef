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
    command.args(["--no-pager", "--quiet", "--output=cat", "--reverse", "--lines", LINES, &run]);
    let (_, output) = child::run(command, TIMEOUT).await.ok()?;
    best_line(&String::from_utf8_lossy(&output)).map(shown)
}

/// The last line of klog with severity E or F, or of a panic or a fatal error; else the last line. `output` has the newest line first, so
/// that what is too much is the oldest. What Go prints at its end of its goroutines and registers explains nothing.
fn best_line(output: &str) -> Option<&str> {
    let mut lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.reverse();
    // What it logged after a panic shows that it went on.
    let last_log = lines.iter().rposition(|line| is_klog(line, &['I', 'W', 'E', 'F'])).unwrap_or(0);
    let is_stack = |line: &&str| line.starts_with("goroutine ") && line.ends_with(':');
    let stacks = lines[last_log..].iter().position(is_stack).map(|at| last_log + at);
    let before = &lines[..stacks.unwrap_or(lines.len())];
    let is_told =
        |line: &&&str| !["PC=", "[signal ", "SIGABRT: ", "SIGQUIT: "].iter().any(|start| line.starts_with(start));
    let shown = || before.iter().rev().filter(is_told).copied();
    shown().take(MAX_SEARCHED).find(|line| is_error(line)).or_else(|| shown().next())
}

/// Whether klog has logged it with one of these severities: `E1126 06:13:50.123456 …`.
fn is_klog(line: &str, severities: &[char]) -> bool {
    let mut chars = line.chars();
    let has_severity = chars.next().is_some_and(|severity| severities.contains(&severity));
    has_severity && chars.take(4).filter(char::is_ascii_digit).count() == 4
}

fn is_error(line: &str) -> bool {
    is_klog(line, &['E', 'F']) || ["panic: ", "fatal error: ", "Error: "].iter().any(|start| line.starts_with(start))
}

fn shown(line: &str) -> String {
    // The header of klog does not help a reader of the Node.
    let text = line.split_once("] ").filter(|(head, _)| is_error(head)).map_or(line, |(_, text)| text);
    redact::sanitize_line(text, MAX_LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of what the unit logged, in that order.
    fn best(logged: &str) -> Option<String> {
        let newest_first: Vec<&str> = logged.lines().rev().collect();
        best_line(&newest_first.join("\n")).map(str::to_owned)
    }

    #[test]
    fn the_last_error_counts_before_the_last_line() {
        let output = "I1126 06:13:50.1 1 a.go:1] ok\nE1126 06:13:50.2 1 run.go:72] \"command failed\" err=\"unknown flag\"\nI1126 06:13:50.3 1 b.go:2] bye\n";
        assert_eq!(best(output).as_deref().map(shown).unwrap(), "\"command failed\" err=\"unknown flag\"");
        assert_eq!(best("one\ntwo\n\n").as_deref(), Some("two"));
        assert_eq!(best("Error: x\nUsage:\n").as_deref(), Some("Error: x"));
        assert_eq!(best(""), None);
    }

    #[test]
    fn what_go_prints_of_its_goroutines_is_no_error() {
        const STACKS: &str =
            "goroutine 0 gp=0x5 m=0 mp=0x5 [idle]:\nruntime.futex(0x1)\n\t/usr/go/sys.s:557 +0x21\nrax    0xca\n";
        let after = |logged: &str| best(&format!("{logged}\n\n{STACKS}")).unwrap();
        let watchdog = "I1126 06:13:50.1 1 a.go:1] ok\nSIGABRT: abort\nPC=0x47e5a1 m=0 sigcode=0";
        assert_eq!(after(watchdog), "I1126 06:13:50.1 1 a.go:1] ok", "the signal is known");
        let panic = "panic: runtime error: index out of range [3]";
        assert_eq!(after(&format!("{panic}\n[signal SIGSEGV: code=1]")), panic);
        let threads = "runtime: failed to create new OS thread (have 5 already; errno=11)\nfatal error: newosproc";
        assert_eq!(after(threads), "fatal error: newosproc");
        // Of a panic from which it has recovered.
        let later = "E1126 07:13:50.2 1 run.go:72] the last";
        assert_eq!(best(&format!("E1126 06:13:50.2 1 a.go:1] panic\n{STACKS}\n{later}")).as_deref(), Some(later));
    }
}
