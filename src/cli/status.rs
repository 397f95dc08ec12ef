//! `nodevigil status`: what the agent last wrote to status.json.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use jiff::Timestamp;

use super::{BAD, GOOD, Output, UNKNOWN, complain, is_colored, print};
use crate::condition::{ConditionType, Status};
use crate::host::clock;
use crate::host::pause::Pause;
use crate::report::status::{self as report, ConditionReport, Publishing, StatusReport, TroubleReport};
use crate::report::table;

const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Moves a terminal's cursor to the upper left corner and clears the screen from there (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[J";

/// Show the conditions that the agent reports
///
/// Works without the API server. For scripts: with a condition's name, the exit code is about this condition only.
///
/// Exit code: 0 every condition is healthy, 1 a condition shows a problem, 2 none shows a problem and one is Unknown, or the agent is not running.
#[derive(Debug, clap::Args)]
pub struct StatusCommand {
    /// Show only this condition
    #[arg(value_parser = ConditionName)]
    condition: Option<String>,
    /// Print a table, or the content of /run/nodevigil/status.json
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// Redraw the table each second until Ctrl-C
    #[arg(short, long)]
    watch: bool,
}

/// A condition of nodevigil's, or that of a custom check, whose name the agent alone knows.
#[derive(Clone)]
struct ConditionName;

impl TypedValueParser for ConditionName {
    type Value = String;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let name = value.to_str().map(str::to_owned);
        name.ok_or_else(|| clap::Error::new(ErrorKind::InvalidUtf8).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(ConditionType::ALL.iter().map(|kind| PossibleValue::new(kind.name()))))
    }
}

impl StatusCommand {
    pub fn run(self) -> anyhow::Result<u8> {
        if self.watch {
            return self.watch();
        }
        let now = clock::wall();
        match self.report(now) {
            Ok(report) => {
                print(&self.output.render(&report, || text(&report, now, is_colored()))?)?;
                Ok(exit_code(report.conditions.iter().map(|shown| (shown.status, shown.is_problem))))
            }
            Err(why) => {
                complain(&why);
                Ok(UNKNOWN)
            }
        }
    }

    /// The present report with the requested conditions.
    fn report(&self, now: Timestamp) -> Result<StatusReport, String> {
        let mut report = present(Path::new(report::PATH), now)?;
        if let Some(name) = &self.condition {
            report.conditions.retain(|condition| condition.kind.eq_ignore_ascii_case(name));
            let is_ours = ConditionType::ALL.iter().any(|kind| kind.name().eq_ignore_ascii_case(name));
            if report.conditions.is_empty() && !is_ours {
                return Err(format!("the agent has no condition {name:?}; list them with: nodevigil status"));
            }
        }
        Ok(report)
    }

    /// Shows the report each second until stdout is closed.
    fn watch(&self) -> anyhow::Result<u8> {
        let start = if io::stdout().is_terminal() && self.output == Output::Text { CLEAR } else { "" };
        loop {
            let now = clock::wall();
            let text = match self.report(now) {
                Ok(report) => self.output.render(&report, || text(&report, now, is_colored()))?,
                Err(why) if self.output == Output::Json => {
                    complain(&why);
                    String::new()
                }
                Err(why) => format!("{why}\n"),
            };
            let mut stdout = io::stdout().lock();
            if write!(stdout, "{start}{text}").and_then(|()| stdout.flush()).is_err() {
                return Ok(GOOD);
            }
            thread::sleep(WATCH_EVERY);
        }
    }
}

/// The report at `path`, unless it is so old that the agent is not running.
fn present(path: &Path, now: Timestamp) -> Result<StatusReport, String> {
    let file = path.display();
    let report = StatusReport::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_running(&format!("{file} does not exist")),
        _ => format!("{file}: {error}"),
    })?;
    // In the future if the clock was set back.
    let age = now.duration_since(report.written_at).abs();
    if age > report::STALE_AFTER {
        return Err(not_running(&format!("{file} was written {} ago", table::age(age))));
    }
    Ok(report)
}

fn not_running(why: &str) -> String {
    format!("the agent is not running: {why}; see: systemctl status nodevigil")
}

/// The exit code for conditions: the status of each, and whether it shows a problem.
pub fn exit_code(conditions: impl Iterator<Item = (Status, bool)>) -> u8 {
    let code = |(status, is_problem)| match status {
        _ if is_problem => (2, BAD),
        Status::Unknown => (1, UNKNOWN),
        _ => (0, GOOD),
    };
    conditions.map(code).max().map_or(UNKNOWN, |(_, code)| code)
}

fn text(report: &StatusReport, now: Timestamp, colored: bool) -> String {
    let row = |condition: &ConditionReport| {
        let age = table::age(now.duration_since(condition.since));
        let status = condition.status.name().to_owned();
        let message = redact::escape_controls(&condition.message);
        let cells = [condition.kind.clone(), status, condition.reason.clone(), age, message];
        (cells, if colored { color(condition.status, condition.is_problem) } else { "" })
    };
    let table = table::text(["TYPE", "STATUS", "REASON", "AGE", "MESSAGE"], report.conditions.iter().map(row));
    remarks(report, now).into_iter().fold(table, |text, remark| text + &remark + "\n")
}

/// The terminal's red for a problem and its yellow for Unknown.
pub const fn color(status: Status, is_problem: bool) -> &'static str {
    match status {
        Status::Unknown => "\x1b[33m",
        _ if is_problem => "\x1b[31m",
        _ => "",
    }
}

/// The lines below the table: a pause, and what prevents nodevigil from monitoring or from publishing.
fn remarks(report: &StatusReport, now: Timestamp) -> Vec<String> {
    let mut remarks = Vec::new();
    if report.conditions.is_empty() {
        remarks.push("No condition has been reported yet".to_owned());
    }
    if let Some(Pause { until, by, reason }) = &report.pause {
        let reason = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        let paused = redact::escape_controls(&format!("Paused by {by} until {until}{reason}"));
        remarks.push(format!("{paused} (end it with: nodevigil resume)"));
    }
    match &report.published {
        Publishing::Off { reason } => remarks.push(format!("Not published: {reason}")),
        Publishing::Untried => remarks.push("Not published yet: the API server has not answered".to_owned()),
        Publishing::Unreached { since, error } => {
            let age = table::age(now.duration_since(*since));
            remarks.push(format!("Not published: the API server has not answered for {age}: {error}"));
        }
        Publishing::Reached { .. } => {}
    }
    if let Some(why) = &report.kubelet.sync_loop_unwatched {
        remarks.push(format!("The kubelet's sync loop is not watched: {}", redact::escape_controls(why)));
    }
    let problem = |trouble: &TroubleReport| {
        format!("Problem of nodevigil itself, {}: {}", trouble.name, redact::escape_controls(&trouble.message))
    };
    remarks.extend(report.troubles.iter().map(problem));
    remarks.extend(report.last_boot.iter().map(|message| format!("Note: {}", redact::escape_controls(message))));
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(statuses: &[Status]) -> StatusReport {
        let condition = |status: &Status| ConditionReport {
            kind: "KubeletHealthy".into(),
            status: *status,
            reason: "KubeletCrashed".into(),
            message: "the kubelet was ended by SIGKILL".into(),
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            is_problem: *status == Status::False,
        };
        StatusReport {
            version: 1,
            agent_version: "0".into(),
            pid: 1,
            written_at: "2026-01-01T00:01:00Z".parse().unwrap(),
            node: "worker-1".into(),
            conditions: statuses.iter().map(condition).collect(),
            published: Publishing::Reached { since: "2026-01-01T00:00:00Z".parse().unwrap() },
            kubelet: report::KubeletReport::default(),
            pause: None,
            troubles: vec![],
            last_boot: None,
        }
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_condition() {
        use Status::{False, True, Unknown};
        let state = |shown: &ConditionReport| (shown.status, shown.is_problem);
        let code = |statuses: &[_]| exit_code(report(statuses).conditions.iter().map(state));
        assert_eq!([code(&[True, True]), code(&[Unknown, False]), code(&[True, Unknown]), code(&[])], [0, 1, 2, 2]);
    }

    #[test]
    fn the_table_is_followed_by_the_pause_and_by_problems_of_nodevigil() {
        let mut report = report(&[Status::False]);
        let now = "2026-01-01T00:01:05Z".parse().unwrap();
        let table = "\
TYPE             STATUS   REASON           AGE    MESSAGE
KubeletHealthy   False    KubeletCrashed   1m5s   the kubelet was ended by SIGKILL
";
        assert_eq!(text(&report, now, false), table);
        let colored = table.replace("KubeletHealthy", "\x1b[31mKubeletHealthy").replace("SIGKILL", "SIGKILL\x1b[0m");
        assert_eq!(text(&report, now, true), colored);
        let since = "2026-01-01T00:01:00Z".parse().unwrap();
        report.published = Publishing::Unreached { since, error: "connection refused".into() };
        let until = "2026-01-01T01:00:00Z".parse().unwrap();
        report.pause = Some(Pause { until, by: "ann".into(), reason: Some("new disk".into()) });
        report.troubles = vec![TroubleReport { name: "BusLost".into(), message: "no answer\u{1b}".into() }];
        let remarks = "\
Paused by ann until 2026-01-01T01:00:00Z: new disk (end it with: nodevigil resume)
Not published: the API server has not answered for 5s: connection refused
Problem of nodevigil itself, BusLost: no answer␛
";
        assert_eq!(text(&report, now, false), format!("{table}{remarks}"));
    }

    #[test]
    fn an_old_report_or_none_means_that_the_agent_is_not_running() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        let file = path.display();
        let expected = |why| format!("the agent is not running: {file} {why}; see: systemctl status nodevigil");
        let now = "2026-01-01T00:02:00Z".parse().unwrap();
        assert_eq!(present(&path, now).unwrap_err(), expected("does not exist"));
        report(&[]).write(&path).unwrap();
        assert_eq!(present(&path, now), Ok(report(&[])));
        let later = "2026-01-01T00:02:01Z".parse().unwrap();
        assert_eq!(present(&path, later).unwrap_err(), expected("was written 1m1s ago"));
        let set_back = "2025-12-31T23:00:00Z".parse().unwrap();
        assert!(present(&path, set_back).is_err(), "the clock was set back: nobody has written it since");
    }
}
