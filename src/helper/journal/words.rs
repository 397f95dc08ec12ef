//! Which of the kubelet's lines are its last words, and how they are shown.

use serde_json::Value;

use crate::kubelet::shown::told;

/// As much of a line is shown: the condition's message holds it beside how the kubelet ended.
pub(super) const MAX_WORDS_BYTES: usize = 400;

/// Beginnings of lines that say that something failed, besides klog's.
const FAILURES: &[&str] = &[
    "panic: ",
    "fatal error: ",
    "runtime: ",
    "unexpected fault address",
    "SIG",
    "Error: ",
    "error: ",
    "Failed ",
    "failed ",
    "FATA",
];
/// The same anywhere in a line: what a shell or the loader says, and other loggers.
const FAILURES_WITHIN: &[&str] = &[
    " level=error ",
    " level=fatal ",
    " level=panic ",
    ": not found",
    ": cannot execute",
    ": Permission denied",
    ": error while loading",
    ": No such file or directory",
];

/// Whether the line says that something failed.
pub(super) fn is_error(line: &str) -> bool {
    if let Some((severity, _)) = klog(line) {
        return severity == 'E' || severity == 'F';
    }
    if line.starts_with('{') {
        return json(line).is_some_and(|(_, error)| error.is_some());
    }
    FAILURES.iter().any(|start| line.starts_with(start))
        || FAILURES_WITHIN.iter().any(|part| line.contains(part))
}

/// The line as it is shown: without the times and numbers that differ each time, without secrets, bounded.
pub(super) fn shown(line: &str) -> String {
    let line = line.lines().next().unwrap_or_default().trim();
    let plain = plain(line);
    told(&plain, MAX_WORDS_BYTES)
}

fn plain(line: &str) -> String {
    if let Some((_, rest)) = klog(line) {
        return rest.to_owned();
    }
    if let Some((message, error)) = json(line) {
        return match error {
            Some(error) => format!("{message}: {error}"),
            None => message,
        };
    }
    match line
        .strip_prefix("time=\"")
        .and_then(|rest| rest.split_once("\" "))
    {
        Some((_, rest)) => rest.to_owned(),
        None => line.to_owned(),
    }
}

/// Severity and what stands behind the header of a klog line: `E1121 18:52:01.123456    1234 run.go:74] …`.
fn klog(line: &str) -> Option<(char, &str)> {
    let severity = line.chars().next().filter(|c| "IWEF".contains(*c))?;
    let header = line.get(1..)?;
    let is_digits = |range| {
        let digits: Option<&str> = header.get(range);
        digits.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if !is_digits(0..4) || header.get(4..5) != Some(" ") || !is_digits(5..7) {
        return None;
    }
    let mut words = header.splitn(3, ' ');
    let rest = words.nth(2)?.trim_start();
    // The thread's number.
    let (_, rest) = rest.split_once(' ')?;
    rest.contains("] ").then_some((severity, rest))
}

/// What a line of JSON says, and its error.
fn json(line: &str) -> Option<(String, Option<String>)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let bad_level = || {
        let level = text("level")?.to_ascii_lowercase();
        ["error", "fatal", "panic"]
            .contains(&level.as_str())
            .then(String::new)
    };
    let error = text("err").or_else(|| text("error")).or_else(bad_level);
    Some((text("msg")?, error))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_kubelets_fatal_line_is_shown_without_time_and_thread() {
        let line = r#"E1121 18:52:01.123456    1234 run.go:74] "command failed" err="failed to parse kubelet flag: unknown flag: --no-such-flag""#;
        assert!(is_error(line));
        assert_eq!(
            shown(line),
            r#"run.go:74] "command failed" err="failed to parse kubelet flag: unknown flag: --no-such-flag""#
        );
        assert!(!is_error(
            r#"I1121 18:52:01.123456    1234 server.go:1] "err=nothing""#
        ));
    }

    #[test]
    fn other_forms_are_known() {
        for (line, error, words) in [
            ("panic: runtime error: index out of range [3]", true, None),
            ("fatal error: all goroutines are asleep", true, None),
            ("goroutine 1 [running]:", false, None),
            ("Flag --cgroup-driver has been deprecated", false, None),
            (
                r#"{"ts":1763.1,"caller":"a.go:1","msg":"command failed","err":"no"}"#,
                true,
                Some("command failed: no"),
            ),
            (r#"{"ts":1763.1,"msg":"fine"}"#, false, Some("fine")),
            (
                r#"time="2026-11-21T18:52:01Z" level=fatal msg="no token""#,
                true,
                Some(r#"level=fatal msg="no token""#),
            ),
            ("sh: 1: exec: kubelet: not found", true, None),
            ("E1121", false, None),
            ("", false, Some("")),
        ] {
            assert_eq!(is_error(line), error, "{line}");
            assert_eq!(shown(line), words.unwrap_or(line));
        }
    }

    #[test]
    fn a_secret_leaves_three_stars() {
        assert_eq!(
            shown("error: token=abcdefgh is bad"),
            "error: token=*** is bad"
        );
    }

    proptest! {
        #[test]
        fn whatever_was_said_is_one_bounded_line(text in any::<String>()) {
            let shown = shown(&text);
            prop_assert!(shown.len() <= MAX_WORDS_BYTES);
            prop_assert!(!shown.contains(|c: char| c.is_control()), "{shown:?}");
            is_error(&text);
        }
    }
}
