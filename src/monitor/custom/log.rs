//! Lines of logs: which of them are a problem, and for how long.

use std::pin::pin;

use tokio::sync::mpsc;

use super::Told;
use super::journal::{self, Seen};
use super::judged::Found;
use crate::condition::Uptime;
use crate::host::clock::{Now, Timer, uptime};
use crate::host::journal::Entry;
use crate::host::kmsg::LogState;
use crate::monitor::{Inputs, rest_after, wall_at};
use crate::settings::custom::LogCheck;

/// The longest text of a line that is shown.
const MAX_LINE_BYTES: usize = 300;
/// Lines of the journal that wait.
const WAITING_LINES: usize = 64;

/// What is known of the lines of a check. Does no I/O and reads no clock.
#[derive(Debug)]
struct State {
    settings: LogCheck,
    /// Whether what was logged before the agent's start has been read.
    log: LogState,
    /// The message for the first line of the present problem, and when the last one was logged.
    last: Option<(String, Uptime)>,
}

/// Watches the lines of all checks for ever.
pub(super) async fn watch(inputs: &Inputs, checks: Vec<(&LogCheck, Told)>) {
    let (mut lines, mut kernel_log) = (inputs.kernel_log.lines(), inputs.kernel_log.state());
    let (sender, mut journal) = mpsc::channel(WAITING_LINES);
    let of_journal = checks.iter().map(|(log, _)| *log).filter(|log| !log.is_of_kernel()).cloned().collect();
    let (mut reader, timer) = (pin!(journal::follow(of_journal, sender)), Timer::new());
    let mut checks: Vec<_> = checks.into_iter().map(|(log, told)| (State::new(log.clone()), told)).collect();
    loop {
        let now = uptime();
        for (state, told) in &checks {
            told.tell(state.found(now));
        }
        let due = checks.iter().filter_map(|(state, _)| state.ends_at()).filter(|at| *at > now).min();
        let states = checks.iter_mut().map(|(state, _)| state);
        // Lines of the kernel come before the news that all old ones have been read.
        tokio::select! {
            biased;
            line = lines.recv() => {
                // In a storm some lines are lost, and nothing else.
                let Ok(line) = line else { continue };
                let now = Now::read(None);
                let at = if line.is_old { line.at } else { now.uptime };
                states.filter(|state| state.settings.is_of_kernel()).for_each(|state| state.take_in(&line.text, at, now));
            }
            Ok(()) = kernel_log.changed() => {
                let log = kernel_log.borrow_and_update().clone();
                states.filter(|state| state.settings.is_of_kernel()).for_each(|state| state.log = log.clone());
            }
            Some(seen) = journal.recv() => match seen {
                Seen::Line(entry) => {
                    let now = Now::read(None);
                    let at = now.since_boot(entry.at);
                    states.filter(|state| state.has(&entry)).for_each(|state| state.take_in(&entry.message, at, now));
                }
                Seen::State(log) => {
                    states.filter(|state| !state.settings.is_of_kernel()).for_each(|state| state.log = log.clone());
                }
            },
            () = timer.at(due.unwrap_or_default()), if due.is_some() => {}
            never = &mut reader => match never {},
        }
    }
}

impl State {
    fn new(settings: LogCheck) -> Self {
        Self { settings, log: LogState::Opening, last: None }
    }

    /// Whether an entry of the journal is one of its lines.
    fn has(&self, entry: &Entry) -> bool {
        let LogCheck { unit, identifier, .. } = &self.settings;
        unit.as_deref() == Some(&*entry.unit) || identifier.as_deref() == Some(&*entry.identifier)
    }

    /// When the problem that there is ends.
    fn ends_at(&self) -> Option<Uptime> {
        Some(self.last.as_ref()?.1 + self.settings.lasts()?)
    }

    fn take_in(&mut self, text: &str, at: Uptime, now: Now) {
        if !self.settings.patterns.iter().any(|pattern| rest_after(text, pattern).is_some()) {
            return;
        }
        let is_over = self.ends_at().is_some_and(|end| at >= end);
        // When journalctl starts again, it prints old lines again.
        let latest = self.last.as_ref().map_or(at, |(_, last)| at.max(*last));
        let first = self.last.take().filter(|_| !is_over).map(|(message, _)| message);
        let message = first.unwrap_or_else(|| {
            let time = wall_at(at, now);
            format!("logged at {time}: {}", redact::sanitize_line(text, MAX_LINE_BYTES))
        });
        self.last = Some((message, latest));
    }

    fn found(&self, now: Uptime) -> Found {
        match (&self.last, &self.log) {
            (Some((message, _)), _) if self.ends_at().is_none_or(|end| now < end) => Found::Problem(message.clone()),
            (_, LogState::Unreadable(error)) => Found::Unknown(error.clone()),
            (_, LogState::Opening) => Found::Pending("the log has not been read yet".into()),
            (_, LogState::Readable) => Found::Nothing("no such line has been logged".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    fn now(secs: i64) -> Now {
        let wall = Timestamp::from_second(secs).unwrap();
        Now::of(at(secs.unsigned_abs()), wall)
    }

    fn state(settings: &str) -> State {
        let settings = toml::from_str(&format!("patterns = ['*I/O error', 'EXT4-fs error']\n{settings}")).unwrap();
        State { log: LogState::Readable, ..State::new(settings) }
    }

    #[test]
    fn a_line_is_a_problem_for_a_time_and_each_further_one_makes_that_longer() {
        let mut state = state("lasts_secs = 60");
        state.take_in("an EXT4-fs error", at(1), now(1));
        assert!(matches!(state.found(at(1)), Found::Nothing(_)), "it does not begin so");
        state.take_in("Buffer I/O error on dev sdb", at(10), now(10));
        let first = Found::Problem("logged at 1970-01-01T00:00:10Z: Buffer I/O error on dev sdb".into());
        assert_eq!(state.found(at(69)), first);
        state.take_in("EXT4-fs error (device sdb)", at(60), now(60));
        assert_eq!((state.found(at(119)), state.ends_at()), (first, Some(at(120))), "the message stays");
        assert!(matches!(state.found(at(120)), Found::Nothing(_)));
        state.take_in("EXT4-fs error (device sdc)", at(130), now(130));
        assert_eq!(
            state.found(at(130)),
            Found::Problem("logged at 1970-01-01T00:02:10Z: EXT4-fs error (device sdc)".into())
        );
    }

    #[test]
    fn a_problem_until_boot_has_no_end() {
        let mut state = state("until_boot = true");
        state.take_in("EXT4-fs error", at(10), now(9999));
        assert!(matches!(state.found(at(999_999)), Found::Problem(_)) && state.ends_at().is_none());
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_what_has_not_been_read_is_pending() {
        let unreadable = LogState::Unreadable("/dev/kmsg: Operation not permitted".into());
        let found = |log| State { log, ..state("") }.found(at(1));
        assert!(matches!(found(LogState::Opening), Found::Pending(_)));
        assert!(matches!(found(unreadable), Found::Unknown(_)));
    }

    #[test]
    fn an_entry_of_the_journal_belongs_to_its_unit_or_identifier() {
        let entry = Entry { unit: "a.service".into(), identifier: "b".into(), ..Entry::default() };
        let of = |settings: &str| state(settings).has(&entry);
        assert!(of("unit = 'a.service'") && of("identifier = 'b'"));
        assert!(!of("unit = 'b.service'") && !of("identifier = 'a.service'") && !of(""));
    }

    #[test]
    fn old_lines_that_are_read_again_end_no_problem_sooner() {
        let mut state = state("lasts_secs = 60");
        for (line, secs) in [("EXT4-fs error 1", 10), ("EXT4-fs error 2", 60), ("EXT4-fs error 1", 10)] {
            state.take_in(line, at(secs), now(70));
        }
        assert_eq!(state.ends_at(), Some(at(120)));
    }
}
