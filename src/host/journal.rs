//! The journal, by `journalctl(1)`: the last error that a unit logged before it ended, and lines as they come.

use std::io;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep};

use super::child;
use super::goroutines::{self, Group};

/// A journal on a slow disk is given up after this time.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many of the last lines of a run are searched: a Go program that ends by a panic or SIGABRT prints the stacks of all its
/// goroutines, the kubelet some 3,000 lines.
const LINES: &str = "5000";
/// Of those, how many before the stacks.
const MAX_SEARCHED: usize = 40;
/// The longest line that is shown, in bytes.
const MAX_LINE_BYTES: usize = 300;

/// A run that probably has no stacks is searched no farther than this many times the lines that are wanted.
const FIRST_LINES_FACTOR: usize = 2;
/// journald takes in what a process wrote last until some time after its end.
const INGESTED_AFTER: Duration = Duration::from_millis(300);
/// After so many lines that are followed there is a pause, in which journalctl waits too: in a storm, 5,000 lines a second are read.
const BATCH: u32 = 500;
const PAUSE: Duration = Duration::from_millis(100);
/// A Go program ends so by the signal of systemd's watchdog.
const ABORTED: &str = "SIGABRT: abort";
/// The line before that one if the program itself gives up, for want of a thread.
const GIVEN_UP: &str = "runtime/cgo: ";
/// Those of klog: info, warning, error, fatal.
const SEVERITIES: [char; 4] = ['I', 'W', 'E', 'F'];

/// Why the run of a unit ended, as its last lines say it: what its goroutines waited for when systemd's watchdog ended it, or else the line
/// that probably has the reason, without secrets and control characters. A sentence without its beginning; none if there is no such line, or
/// the journal does not answer.
pub async fn last_words(invocation: &str) -> Option<String> {
    let has = |lines: &[&str], start: &str| lines.iter().any(|line| message(line).starts_with(start));
    let is_aborted = |lines: &[&str]| has(lines, ABORTED) && !has(lines, GIVEN_UP);
    let mut output = read_run(invocation).await?;
    if is_aborted(&oldest_first(&output)) {
        sleep(INGESTED_AFTER).await;
        output = read_run(invocation).await?;
    }
    let (told, stacks) = without_stacks(&oldest_first(&output));
    let blocked = goroutines::blocked(&goroutines::groups(stacks)).filter(|_| is_aborted(&told));
    blocked.or_else(|| Some(format!("its last error: {}", best_line(&told).map(shown)?)))
}

/// What a run has logged itself.
async fn read_run(invocation: &str) -> Option<String> {
    journalctl(&["--lines", LINES, &format!("_SYSTEMD_INVOCATION_ID={invocation}")], TIMEOUT).await.ok()
}

/// The lines with their times and programs, the newest first, so that what is too much is the oldest.
async fn journalctl(arguments: &[&str], time: Duration) -> io::Result<String> {
    let mut command = Command::new("journalctl");
    command
        .args(["--no-pager", "--quiet", "--reverse", "--all", "--output=short-iso-precise", "--no-hostname"])
        .args(arguments);
    let (_, output) = child::run(command, time).await?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn oldest_first(output: &str) -> Vec<&str> {
    output.lines().rev().collect()
}

/// The last lines of a run with their times, its own and those of systemd about it, without the stacks that a Go program prints at its end,
/// and these in groups.
///
/// # Errors
/// When the journal does not answer in time.
pub async fn last_lines(invocation: &str, count: usize, deadline: Instant) -> io::Result<(Vec<String>, Vec<Group>)> {
    let [of_run, about_run] = ["_SYSTEMD_INVOCATION_ID", "INVOCATION_ID"].map(|field| format!("{field}={invocation}"));
    let read = async |lines: &str| {
        let time = deadline.saturating_duration_since(Instant::now());
        journalctl(&["--lines", lines, &of_run, "+", &about_run], time).await
    };
    let mut output = read(&(FIRST_LINES_FACTOR * count).to_string()).await?;
    if output.lines().any(|line| is_position(message(line))) {
        output = read(LINES).await?;
    }
    let (told, stacks) = without_stacks(&oldest_first(&output));
    Ok((last_without_secrets(&told, count), goroutines::groups(stacks)))
}

/// The last lines. A secret can have several, of which the first may be further up.
fn last_without_secrets(lines: &[&str], count: usize) -> Vec<String> {
    let read = &lines[lines.len().saturating_sub(FIRST_LINES_FACTOR * count)..];
    let text = redact::hide_secrets(&read.join("\n"));
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

/// The lines that are not part of the stacks at the end, and the messages of those that are.
fn without_stacks<'a>(lines: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    const ENDS: [&str; 4] = [ABORTED, "SIGQUIT: quit", "panic: ", "fatal error: "];
    let ends = lines.iter().rposition(|line| ENDS.iter().any(|end| message(line).starts_with(end)));
    // The stack of a panic from which it has recovered comes after a line of its log.
    let last_log = || lines.iter().rposition(|line| is_klog(message(line), &SEVERITIES));
    let (logged, rest) = lines.split_at(ends.or_else(last_log).unwrap_or(0));
    let (mut told, mut stacks) = (logged.to_vec(), Vec::new());
    for line in rest {
        let message = message(line);
        // Of systemd, or what other threads have logged meanwhile.
        let is_told = line.contains(" systemd[1]: ") || is_klog(message, &SEVERITIES);
        if is_told || (stacks.is_empty() && !goroutines::is_header(message)) {
            told.push(*line);
        } else {
            stacks.push(message);
        }
    }
    (told, stacks)
}

/// The message of a line with its time and program: `2026-11-28T18:45:02.123456+0000 kubelet[812]: …`.
fn message(line: &str) -> &str {
    line.split_once("]: ").map_or(line, |(_, message)| message).trim()
}

/// Whether it is a line of a stack: `runtime/proc.go:424 +0xce fp=…`.
fn is_position(message: &str) -> bool {
    message.contains(".go:") && message.contains(" +0x")
}

/// The message of the last line of klog with severity E or F, or of a panic or a fatal error; else that of the last line. What Go prints at
/// its end of its registers explains nothing.
fn best_line<'a>(told: &[&'a str]) -> Option<&'a str> {
    const UNTOLD: [&str; 4] = ["PC=", "[signal ", ABORTED, "SIGQUIT: "];
    let is_told = |message: &&str| !message.is_empty() && !UNTOLD.iter().any(|start| message.starts_with(start));
    let shown = || told.iter().rev().copied().map(message).filter(is_told);
    shown().take(MAX_SEARCHED).find(|message| is_error(message)).or_else(|| shown().next())
}

/// Whether klog has logged it with one of these severities: `E1126 06:13:50.123456 …`.
fn is_klog(line: &str, severities: &[char]) -> bool {
    let mut chars = line.chars();
    let has_severity = chars.next().is_some_and(|severity| severities.contains(&severity));
    has_severity && chars.take(4).filter(char::is_ascii_digit).count() == 4
}

fn is_error(line: &str) -> bool {
    is_klog(line, &['E', 'F'])
        || ["panic: ", "fatal error: ", GIVEN_UP, "Error: "].iter().any(|start| line.starts_with(start))
}

fn shown(line: &str) -> String {
    // The header of klog does not help a reader of the Node.
    let text = line.split_once("] ").filter(|(head, _)| is_error(head)).map_or(line, |(_, text)| text);
    redact::sanitize_line(text, MAX_LINE_BYTES)
}

/// A line of the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The unit that has logged it, or that PID 1 has logged it about.
    pub unit: String,
    /// What the process that logged it calls itself.
    pub identifier: String,
    pub message: String,
    pub at: Timestamp,
}

/// Lines of the journal, the oldest first, and then as they come.
#[derive(Debug)]
pub struct Tail {
    lines: Lines<BufReader<ChildStdout>>,
    /// How many were read since the last pause.
    read: u32,
    /// Killed when this is dropped.
    _child: Child,
}

impl Tail {
    /// Lines of these units and identifiers since the host's boot, or since that time, in seconds since 1970, if it was later.
    pub async fn start(units: &[String], identifiers: &[String], since_secs: Option<i64>) -> io::Result<Self> {
        let mut command = Command::new("journalctl");
        command.args(follow_arguments(units, identifiers, since_secs));
        Self::of(command).await
    }

    /// The lines that this journalctl prints.
    pub async fn of(command: Command) -> io::Result<Self> {
        let mut child = child::start(command).await?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("journalctl has no stdout"))?;
        Ok(Self { lines: BufReader::new(stdout).lines(), read: 0, _child: child })
    }

    /// The next line.
    ///
    /// # Errors
    /// When journalctl has ended.
    pub async fn next(&mut self) -> io::Result<Entry> {
        if self.read == BATCH {
            sleep(PAUSE).await;
            self.read = 0;
        }
        self.read += 1;
        let line = self.lines.next_line().await?;
        line.map(|line| entry(&line)).ok_or_else(|| io::Error::other("journalctl has ended"))
    }
}

fn follow_arguments(units: &[String], identifiers: &[String], since_secs: Option<i64>) -> Vec<String> {
    let fields = "--output-fields=MESSAGE,_SYSTEMD_UNIT,UNIT,_PID,SYSLOG_IDENTIFIER";
    let fixed = ["--no-pager", "--quiet", "--follow", "--no-tail", "--output=json", fields, "--boot"];
    let mut arguments: Vec<_> = fixed.map(str::to_owned).into_iter().collect();
    arguments.extend(since_secs.map(|secs| format!("--since=@{secs}")));
    // Fields in succession have to match together, and `+` means or.
    let of_unit =
        |unit: &String| [vec![format!("_SYSTEMD_UNIT={unit}")], vec![format!("UNIT={unit}"), "_PID=1".into()]];
    let of_identifier = |identifier: &String| vec![format!("SYSLOG_IDENTIFIER={identifier}")];
    let matches: Vec<_> = units.iter().flat_map(of_unit).chain(identifiers.iter().map(of_identifier)).collect();
    arguments.extend(matches.join(&"+".to_owned()));
    arguments
}

/// A line of `journalctl --output=json`, which leaves out texts of more than 4 KiB.
fn entry(line: &str) -> Entry {
    let fields: Value = serde_json::from_str(line).unwrap_or_default();
    let text = |name: &str| match &fields[name] {
        // A text with a control character.
        Value::Array(bytes) => {
            let bytes: Vec<u8> = bytes.iter().filter_map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        value => value.as_str().unwrap_or_default().to_owned(),
    };
    let unit = if text("_PID") == "1" && fields["UNIT"].is_string() { "UNIT" } else { "_SYSTEMD_UNIT" };
    Entry {
        unit: text(unit),
        identifier: text("SYSLOG_IDENTIFIER"),
        message: text("MESSAGE"),
        at: Timestamp::from_microsecond(text("__REALTIME_TIMESTAMP").parse().unwrap_or_default()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_of_the_unit_that_logged_it_or_that_systemd_logged_it_about() {
        let of_unit = r#"{"_SYSTEMD_UNIT":"a.service","_PID":"7","SYSLOG_IDENTIFIER":"a","MESSAGE":[27,91,49,109,104,105],"__REALTIME_TIMESTAMP":"1000000"}"#;
        let wanted = Entry {
            unit: "a.service".into(),
            identifier: "a".into(),
            message: "\u{1b}[1mhi".into(),
            at: Timestamp::from_second(1).unwrap(),
        };
        assert_eq!(entry(of_unit), wanted);
        let about = r#"{"_SYSTEMD_UNIT":"init.scope","_PID":"1","UNIT":"a.service","MESSAGE":"Started a.","SYSLOG_IDENTIFIER":"systemd"}"#;
        assert_eq!((entry(about).unit.as_str(), entry(about).message.as_str()), ("a.service", "Started a."));
        let forged = r#"{"_SYSTEMD_UNIT":"b.service","_PID":"8","UNIT":"a.service","MESSAGE":"Started a."}"#;
        assert_eq!(entry(forged).unit, "b.service");
        assert_eq!((entry("{"), entry(r#"{"MESSAGE":null}"#)), (Entry::default(), Entry::default()));
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_storm_of_lines_there_are_pauses_and_every_line_is_read() {
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo \"{\\\"MESSAGE\\\":\\\"$i\\\"}\"; done"]);
        let (mut tail, began) = (Tail::of(command).await.unwrap(), Instant::now());
        for wanted in 1..=5000 {
            assert_eq!(tail.next().await.unwrap().message, wanted.to_string());
        }
        assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    }

    #[test]
    fn lines_from_before_the_boot_are_never_read() {
        let arguments = |since| follow_arguments(&["a.service".into()], &["b".into()], since);
        let matches = ["_SYSTEMD_UNIT=a.service", "+", "UNIT=a.service", "_PID=1", "+", "SYSLOG_IDENTIFIER=b"];
        assert!(arguments(Some(5)).ends_with(&matches.map(str::to_owned)));
        for (since, is_limited) in [(None, false), (Some(5), true)] {
            let has = |wanted: &str| arguments(since).iter().any(|argument| argument == wanted);
            assert!(has("--boot") && has("--since=@5") == is_limited, "{since:?}");
        }
    }

    /// Of what the unit logged, in that order.
    fn best(logged: &str) -> Option<String> {
        let lines: Vec<_> =
            logged.lines().map(|line| format!("2026-11-28T18:45:02.123456+0000 kubelet[812]: {line}")).collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        best_line(&without_stacks(&lines).0).map(str::to_owned)
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
    fn a_secret_that_begins_before_the_last_lines_is_hidden() {
        let lines = ["-----BEGIN PRIVATE KEY-----", "Y2FuYXJ5Y2FuYXJ5", "-----END PRIVATE KEY-----", "bye"];
        let last = last_without_secrets(&lines, 3).join("\n");
        assert!(last.ends_with("bye") && !last.contains("Y2FuYXJ5"), "{last}");
    }

    #[test]
    fn the_stacks_at_the_end_are_told_apart_from_what_was_logged() {
        let line = |text: &str| format!("2026-11-28T18:45:02.123456+0000 kubelet[812]: {text}");
        let systemd = "2026-11-28T18:45:02.123456+0000 systemd[1]: kubelet.service: Failed with result 'watchdog'.";
        let logged = ["I1126 06:13:50.1 1 a.go:1] ok", "SIGABRT: abort", "PC=0x47e5a1 m=0 sigcode=0"].map(line);
        let stacks = ["goroutine 7 gp=0x6 m=nil [select, 3 minutes]:", "a.b(0x1)", "\t/src/a.go:1 +0x2", "rax    0xca"]
            .map(line);
        let all: Vec<&str> = logged.iter().chain(&stacks).map(String::as_str).chain([systemd]).collect();
        let (told, found) = without_stacks(&all);
        assert_eq!(told, [&logged[0], &logged[1], &logged[2], systemd]);
        assert_eq!((found.len(), goroutines::groups(found).len()), (4, 1));
        assert_eq!(without_stacks(&all[..1]), (vec![all[0]], vec![]));
        assert!(all.iter().any(|line| is_position(message(line))));
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
        // kubernetes/kubernetes#44518.
        let given_up = "runtime/cgo: pthread_create failed: Resource temporarily unavailable";
        let error = "E0913 10:22:24.1 1 kubelet.go:1] \"Unrelated\"";
        assert_eq!(after(&format!("{error}\n{given_up}\nSIGABRT: abort\nPC=0x7f9e08d38f47 m=5")), given_up);
        // Of a panic from which it has recovered.
        let later = "E1126 07:13:50.2 1 run.go:72] the last";
        assert_eq!(best(&format!("E1126 06:13:50.2 1 a.go:1] panic\n{STACKS}\n{later}")).as_deref(), Some(later));
    }
}
