//! The lines of the journal that checks read, by one journalctl for all of them.

use std::convert::Infallible;
use std::time::Duration;
use std::{future, io};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::host::clock::wall;
use crate::host::journal::{Entry, Tail};
use crate::host::kmsg::LogState;
use crate::settings::custom::LogCheck;

/// journalctl is started again this long after its end.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// It has printed all old lines when it prints none for this long, or a new one.
const QUIET: Duration = Duration::from_secs(3);

/// What is seen of the journal.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    Line(Entry),
    /// It is readable once all old lines have been sent, and unreadable when journalctl has ended twice without that.
    State(LogState),
}

/// Sends what these checks read, for ever.
pub(super) async fn follow(checks: Vec<LogCheck>, lines: mpsc::Sender<Seen>) -> Infallible {
    if checks.is_empty() {
        return future::pending().await;
    }
    let units: Vec<_> = checks.iter().filter_map(|check| Some(check.unit.as_deref()?.to_owned())).collect();
    let identifiers: Vec<_> = checks.iter().filter_map(|check| Some(check.identifier.as_deref()?.to_owned())).collect();
    // None if a line counts until the host boots.
    let lasts = checks.iter().try_fold(Duration::ZERO, |longest, check| Some(longest.max(check.lasts()?)));
    let mut failures = 0;
    loop {
        let started = wall();
        let since = lasts.map(|lasts| started.as_second() - i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX));
        let error = match Tail::start(&units, &identifiers, since).await {
            Ok(tail) => forward(tail, started, &lines, &mut failures).await,
            Err(error) => error,
        };
        failures += 1;
        if failures > 1 {
            let error = format!("the journal cannot be read: {error}");
            drop(lines.send(Seen::State(LogState::Unreadable(error))).await);
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Sends the lines of a journalctl that was started then; returns why it ended.
async fn forward(mut tail: Tail, started: Timestamp, lines: &mpsc::Sender<Seen>, failures: &mut u32) -> io::Error {
    let mut is_old = true;
    loop {
        let next = timeout(if is_old { QUIET } else { Duration::MAX }, tail.next()).await;
        let is_new = |entry: &Entry| entry.at >= started;
        if is_old && next.as_ref().map_or(true, |next| next.as_ref().is_ok_and(is_new)) {
            (is_old, *failures) = (false, 0);
            drop(lines.send(Seen::State(LogState::Readable)).await);
        }
        match next {
            Ok(Ok(mut entry)) => {
                if is_new(&entry) {
                    // In a storm it is read late, and counts from then on.
                    entry.at = entry.at.max(wall() - QUIET);
                }
                drop(lines.send(Seen::Line(entry)).await);
            }
            Ok(Err(error)) => return error,
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_new_line_that_is_read_late_counts_from_then_on() {
        let minute = Duration::from_mins(1);
        let started = wall() - 2 * minute;
        let whole = |at: Timestamp| Timestamp::from_microsecond(at.as_microsecond()).unwrap();
        let logged = [started - minute, started + minute].map(whole);
        let line = |at: Timestamp| format!(r#"{{"__REALTIME_TIMESTAMP":"{}"}}"#, at.as_microsecond());
        let mut command = Command::new("printf");
        command.args(["%s\\n"]).args(logged.map(line));
        let (sender, mut lines) = mpsc::channel(8);
        forward(Tail::of(command).await.unwrap(), started, &sender, &mut 1).await;
        assert!(matches!(lines.recv().await, Some(Seen::Line(old)) if old.at == logged[0]));
        assert_eq!(lines.recv().await, Some(Seen::State(LogState::Readable)));
        assert!(matches!(lines.recv().await, Some(Seen::Line(new)) if new.at > logged[1] + Duration::from_secs(50)));
    }
}
