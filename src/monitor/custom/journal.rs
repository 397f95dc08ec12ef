//! The lines of the journal that checks read, by one journalctl for all of them.

use std::io;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::judged::{Check, Watch};
use super::log::Source;
use crate::host::clock::wall;
use crate::host::journal::{Entry, Tail};

/// journalctl is started again this long after its end.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// It has printed all old lines when it prints none for this long, or a new one.
const QUIET: Duration = Duration::from_secs(3);

/// Whose lines are read, and how old ones count; those since the host's boot if none is given.
#[derive(Debug)]
pub(super) struct Wanted {
    units: Vec<String>,
    identifiers: Vec<String>,
    lasts: Option<Duration>,
}

impl Wanted {
    /// What these checks read; none if none reads the journal.
    pub(super) fn of(checks: &[Check]) -> Option<Self> {
        let mut wanted = Self { units: Vec::new(), identifiers: Vec::new(), lasts: Some(Duration::ZERO) };
        for check in checks {
            let Watch::Log(log) = &check.watch else { continue };
            match &log.source {
                Source::Kernel => continue,
                Source::Unit(unit) => wanted.units.push(unit.clone()),
                Source::Identifier(identifier) => wanted.identifiers.push(identifier.clone()),
            }
            wanted.lasts = wanted.lasts.zip(log.lasts()).map(|(longest, lasts)| longest.max(lasts));
        }
        (!wanted.units.is_empty() || !wanted.identifiers.is_empty()).then_some(wanted)
    }
}

/// Sends the lines for ever; none when all old ones have been sent, and an error when journalctl has ended twice without that.
pub(super) async fn follow(wanted: Wanted, lines: mpsc::Sender<io::Result<Option<Entry>>>) {
    let mut failures = 0;
    loop {
        let started = wall();
        let since = wanted.lasts.map(|lasts| started.as_second() - i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX));
        let error = match Tail::start(&wanted.units, &wanted.identifiers, since).await {
            Ok(tail) => forward(tail, started, &lines, &mut failures).await,
            Err(error) => error,
        };
        failures += 1;
        if failures > 1 {
            drop(lines.send(Err(error)).await);
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Sends the lines of a journalctl that was started then; returns why it ended.
async fn forward(
    mut tail: Tail,
    started: Timestamp,
    lines: &mpsc::Sender<io::Result<Option<Entry>>>,
    failures: &mut u32,
) -> io::Error {
    let mut is_old = true;
    loop {
        let next = timeout(if is_old { QUIET } else { Duration::MAX }, tail.next()).await;
        let is_new = |entry: &Entry| entry.at_micros >= started.as_microsecond();
        if is_old && next.as_ref().map_or(true, |next| next.as_ref().is_ok_and(is_new)) {
            (is_old, *failures) = (false, 0);
            drop(lines.send(Ok(None)).await);
        }
        match next {
            Ok(Ok(mut entry)) => {
                if is_new(&entry) {
                    // In a storm it is read late, and counts from then on.
                    entry.at_micros = entry.at_micros.max((wall() - QUIET).as_microsecond());
                }
                drop(lines.send(Ok(Some(entry))).await);
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
        let logged = [started - minute, started + minute].map(Timestamp::as_microsecond);
        let mut command = Command::new("printf");
        command.args(["%s\\n"]).args(logged.map(|micros| format!(r#"{{"__REALTIME_TIMESTAMP":"{micros}"}}"#)));
        let (sender, mut lines) = mpsc::channel(8);
        forward(Tail::of(command).await.unwrap(), started, &sender, &mut 1).await;
        assert_eq!(lines.recv().await.unwrap().unwrap().unwrap().at_micros, logged[0], "an old one");
        assert_eq!(lines.recv().await.unwrap().unwrap(), None);
        let new = lines.recv().await.unwrap().unwrap().unwrap().at_micros;
        assert!(new > logged[1] + 50_000_000, "{new}");
    }
}
