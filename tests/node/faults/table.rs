//! The outcomes as the table of docs/promises.md.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;

use super::Row;
use super::episode::Outcome;

/// Markdown, one line a failure.
pub(crate) fn table<'a>(outcomes: impl Iterator<Item = (&'a Row, &'a Result<Outcome>)>) -> String {
    let mut text = "| failure | provoked how | requests in the first minute | a minute after | lines | told after the end | own memory before → after | resident before → after, peak | holds |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (row, outcome) in outcomes {
        let cells = match outcome {
            Ok(outcome) => cells(row, outcome),
            Err(error) => format!("| | | | | | | {} |", error.root_cause()),
        };
        // A String takes everything.
        let _ = writeln!(text, "| `{}` | {} {cells}", row.name, row.how);
    }
    text
}

fn cells(row: &Row, outcome: &Outcome) -> String {
    let after = outcome
        .per_minute_after
        .map_or("–".to_owned(), |rate| format!("{rate:.1}"));
    let told = match (outcome.told_after, outcome.told_after_death) {
        (Some(Duration::ZERO), Some(death)) => {
            format!("before: {:.1} s after the death", death.as_secs_f64())
        }
        (Some(told), _) => format!("{:.1} s", told.as_secs_f64()),
        (None, _) => "never".to_owned(),
    };
    let mib = |kib: u64| f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0;
    let holds = match outcome.broken(row).as_slice() {
        [] => "yes".to_owned(),
        broken => format!("NO: {}", broken.join("; ")),
    };
    format!(
        "| {} ({}) | {after} | {} | {told} | {:.2} → {:.2} MiB | {:.2} → {:.2}, {:.2} MiB | {holds} |",
        outcome.first_minute,
        outcome.kinds,
        outcome.lines.len(),
        mib(outcome.before.own),
        mib(outcome.after.own),
        mib(outcome.before.resident),
        mib(outcome.after.resident),
        mib(outcome.after.peak),
    )
}
