//! `nodevigil status`: what the agent wrote to status.json last.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    thread,
    time::Duration,
};

use clap::builder::PossibleValuesParser;
use jiff::Timestamp;

use super::{BAD, COULD_NOT_TELL, GOOD, Output, complain, host, is_colored, print};
use crate::{
    condition::{ConditionType, Status as ConditionStatus},
    host::{clock, pause::Pause},
    report::{
        status::{self as report, ConditionReport, Published, StatusReport, TroubleReport},
        table,
    },
};

const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Moves a terminal's cursor to the upper left, and clears what is behind it (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[J";

/// Show the conditions of this node as nodevigil finds them
///
/// Exit code: 0 every condition is healthy, 1 one shows a problem, 2 none does and one is Unknown, or the agent does not run.
#[derive(Debug, clap::Args)]
pub struct Status {
    /// Show this condition alone
    #[arg(value_parser = PossibleValuesParser::new(ConditionType::ALL.iter().map(|kind| kind.name())), ignore_case = true)]
    condition: Option<String>,
    /// As a table, or as the content of /run/nodevigil/status.json
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// Show it again each second until Ctrl-C; where stdout is not a terminal, at each change
    #[arg(short, long)]
    watch: bool,
    /// Show which processes of this host use most memory and processor time, in place of the conditions
    #[arg(long, conflicts_with_all = ["condition", "watch"])]
    host: bool,
}

impl Status {
    pub fn run(self) -> anyhow::Result<u8> {
        if self.host {
            return host::run(self.output);
        }
        if self.watch {
            return self.watch();
        }
        let now = clock::wall();
        match self.report(now) {
            Ok(report) => {
                print(&self.shown(&report, now)?)?;
                Ok(exit_code(&report.conditions))
            }
            Err(why) => {
                complain(&why);
                Ok(COULD_NOT_TELL)
            }
        }
    }

    /// The present report, with the wanted conditions.
    fn report(&self, now: Timestamp) -> Result<StatusReport, String> {
        let mut report = present(Path::new(report::PATH), now)?;
        if let Some(name) = &self.condition {
            report.conditions.retain(|condition| condition.kind.eq_ignore_ascii_case(name));
        }
        Ok(report)
    }

    fn shown(&self, report: &StatusReport, now: Timestamp) -> anyhow::Result<String> {
        Ok(match self.output {
            Output::Json => serde_json::to_string_pretty(report)? + "\n",
            Output::Text => text(report, now, is_colored()),
        })
    }

    /// Shows it until stdout is closed.
    fn watch(&self) -> anyhow::Result<u8> {
        let is_redrawn = io::stdout().is_terminal() && self.output == Output::Text;
        let mut last = None;
        loop {
            let now = clock::wall();
            let seen = self.report(now);
            if has_changed(&mut last, &seen) || is_redrawn {
                let text = match seen {
                    Ok(report) => self.shown(&report, now)?,
                    Err(why) if self.output == Output::Json => {
                        complain(&why);
                        String::new()
                    }
                    Err(why) => format!("{why}\n"),
                };
                let mut stdout = io::stdout().lock();
                let start = if is_redrawn { CLEAR } else { "" };
                if write!(stdout, "{start}{text}").and_then(|()| stdout.flush()).is_err() {
                    return Ok(GOOD);
                }
            }
            thread::sleep(WATCH_EVERY);
        }
    }
}

/// Whether a report says something else than the last one, whenever it was written.
fn has_changed(last: &mut Option<Result<StatusReport, ()>>, seen: &Result<StatusReport, String>) -> bool {
    let seen = match seen {
        Ok(report) => Ok(StatusReport { written_at: Timestamp::UNIX_EPOCH, ..report.clone() }),
        Err(_) => Err(()), // which may have an age in it
    };
    let has_changed = last.as_ref() != Some(&seen);
    *last = Some(seen);
    has_changed
}

/// The report at `path`, if the agent still writes it.
fn present(path: &Path, now: Timestamp) -> Result<StatusReport, String> {
    let file = path.display();
    let report = StatusReport::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => does_not_run(&format!("{file} does not exist")),
        _ => format!("{file}: {error}"),
    })?;
    let age = now.duration_since(report.written_at);
    if age > report::STALE_AFTER {
        return Err(does_not_run(&format!("{file} was written {} ago", table::age(age))));
    }
    Ok(report)
}

fn does_not_run(why: &str) -> String {
    format!("the agent does not run: {why}; see: systemctl status nodevigil")
}

fn exit_code(conditions: &[ConditionReport]) -> u8 {
    let is_unknown = |condition: &ConditionReport| condition.status == ConditionStatus::Unknown;
    if conditions.iter().any(ConditionReport::is_problem) {
        BAD
    } else if conditions.is_empty() || conditions.iter().any(is_unknown) {
        COULD_NOT_TELL
    } else {
        GOOD
    }
}

fn text(report: &StatusReport, now: Timestamp, colored: bool) -> String {
    let row = |condition: &ConditionReport| {
        let age = table::age(now.duration_since(condition.since));
        let status = condition.status.name().to_owned();
        let cells = [
            condition.kind.clone(),
            status,
            condition.reason.clone(),
            age,
            redact::escape_controls(&condition.message),
        ];
        (cells, if colored { color(condition.status, condition.is_problem()) } else { "" })
    };
    let table = table::text(["TYPE", "STATUS", "REASON", "AGE", "MESSAGE"], report.conditions.iter().map(row));
    remarks(report, now).into_iter().fold(table, |text, remark| text + &remark + "\n")
}

/// The terminal's red for a problem and its yellow for Unknown.
pub const fn color(status: ConditionStatus, is_problem: bool) -> &'static str {
    match status {
        ConditionStatus::Unknown => "\x1b[33m",
        _ if is_problem => "\x1b[31m",
        _ => "",
    }
}

/// Lines below the table: what keeps the conditions from being found, or from being published as they are.
fn remarks(report: &StatusReport, now: Timestamp) -> Vec<String> {
    let mut remarks = Vec::new();
    if report.conditions.is_empty() {
        remarks.push("No condition is known yet".to_owned());
    }
    if let Some(Pause { until, by, reason }) = &report.pause {
        let reason = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        let paused = redact::escape_controls(&format!("Paused by {by} until {until}{reason}"));
        remarks.push(format!("{paused} (end it with: nodevigil resume)"));
    }
    match &report.published {
        Published::Off { reason } => remarks.push(format!("Not published: {reason}")),
        Published::Untried => remarks.push("Not published yet: the API server has not answered".to_owned()),
        Published::Unreached { since, error } => {
            let age = table::age(now.duration_since(*since));
            remarks.push(format!("Not published: the API server has not answered for {age}: {error}"));
        }
        Published::Reached { .. } => {}
    }
    let problem = |trouble: &TroubleReport| {
        format!("Problem of nodevigil itself, {}: {}", trouble.name, redact::escape_controls(&trouble.message))
    };
    remarks.extend(report.troubles.iter().map(problem));
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(statuses: &[ConditionStatus]) -> StatusReport {
        let condition = |status: &ConditionStatus| ConditionReport {
            kind: "KubeletHealthy".into(),
            status: *status,
            reason: "KubeletCrashed".into(),
            message: "the kubelet was ended by SIGKILL".into(),
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        StatusReport {
            version: 1,
            agent_version: "0".into(),
            pid: 1,
            written_at: "2026-01-01T00:01:00Z".parse().unwrap(),
            node: "worker-1".into(),
            conditions: statuses.iter().map(condition).collect(),
            published: Published::Reached { since: "2026-01-01T00:00:00Z".parse().unwrap() },
            kubelet: report::KubeletReport::default(),
            pause: None,
            troubles: vec![],
        }
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_condition() {
        use ConditionStatus::{False, True, Unknown};
        let code = |statuses: &[_]| exit_code(&report(statuses).conditions);
        assert_eq!([code(&[True, True]), code(&[Unknown, False]), code(&[True, Unknown]), code(&[])], [0, 1, 2, 2]);
    }

    #[test]
    fn the_table_is_followed_by_what_is_in_the_way() {
        let mut report = report(&[ConditionStatus::False]);
        let now = "2026-01-01T00:01:05Z".parse().unwrap();
        let table = "\
TYPE             STATUS   REASON           AGE    MESSAGE
KubeletHealthy   False    KubeletCrashed   1m5s   the kubelet was ended by SIGKILL
";
        assert_eq!(text(&report, now, false), table);
        let colored = table.replace("KubeletHealthy", "\x1b[31mKubeletHealthy").replace("SIGKILL", "SIGKILL\x1b[0m");
        assert_eq!(text(&report, now, true), colored);
        let since = "2026-01-01T00:01:00Z".parse().unwrap();
        report.published = Published::Unreached { since, error: "connection refused".into() };
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
    fn a_report_is_shown_again_when_it_says_something_else() {
        let mut last = None;
        let mut has_changed = |seen: Result<StatusReport, &str>| has_changed(&mut last, &seen.map_err(str::to_owned));
        let healthy = report(&[ConditionStatus::True]);
        let later = StatusReport { written_at: "2026-01-01T00:02:00Z".parse().unwrap(), ..healthy.clone() };
        assert!(has_changed(Ok(healthy.clone())) && !has_changed(Ok(later)));
        assert!(has_changed(Ok(report(&[ConditionStatus::False]))));
        assert!(has_changed(Err("written 61s ago")) && !has_changed(Err("written 62s ago")));
        assert!(has_changed(Ok(healthy)));
    }

    #[test]
    fn an_old_report_or_none_means_that_the_agent_does_not_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        let file = path.display();
        let expected = |why| format!("the agent does not run: {file} {why}; see: systemctl status nodevigil");
        let now = "2026-01-01T00:02:00Z".parse().unwrap();
        assert_eq!(present(&path, now).unwrap_err(), expected("does not exist"));
        report(&[]).write(&path).unwrap();
        assert_eq!(present(&path, now), Ok(report(&[])));
        let later = "2026-01-01T00:02:01Z".parse().unwrap();
        assert_eq!(present(&path, later).unwrap_err(), expected("was written 1m1s ago"));
    }
}
