//! Lines of a log: which of them are a problem, and for how long. Does no I/O and reads no clock.

use std::time::Duration;

use super::found::Found;
use crate::condition::Uptime;
use crate::host::clock::Now;
use crate::host::journal::Entry;
use crate::host::kmsg;
use crate::monitor::{begins_like, wall_at};
use crate::settings::custom::LogCheck;

/// The longest text of a line that is shown.
const MAX_LINE_BYTES: usize = 300;

/// Whose lines are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Kernel,
    /// The journal of a unit.
    Unit(String),
    /// The journal of an identifier.
    Identifier(String),
}

impl Source {
    /// Whether an entry of the journal is one of these lines.
    pub(super) fn is_of(&self, entry: &Entry) -> bool {
        match self {
            Self::Kernel => false,
            Self::Unit(unit) => entry.unit == *unit,
            Self::Identifier(identifier) => entry.identifier == *identifier,
        }
    }
}

#[derive(Debug)]
pub(super) struct LogState {
    settings: LogCheck,
    pub(super) source: Source,
    /// Why it cannot be read; none if it can.
    pub(super) unreadable: Option<String>,
    /// Whether what was logged before the agent's start has been read.
    pub(super) is_read: bool,
    /// The message for the first line of the present problem, and when the last one was logged.
    last: Option<(String, Uptime)>,
}

impl LogState {
    pub(super) fn new(settings: LogCheck) -> Self {
        let source = match (&settings.unit, &settings.identifier) {
            (Some(unit), _) => Source::Unit(unit.to_string()),
            (None, Some(identifier)) => Source::Identifier(identifier.to_string()),
            (None, None) => Source::Kernel,
        };
        Self { settings, source, unreadable: None, is_read: false, last: None }
    }

    /// For how long a line counts; none: until the host boots.
    pub(super) fn lasts(&self) -> Option<Duration> {
        (!self.settings.until_boot).then(|| self.settings.lasts_secs.duration())
    }

    /// When the problem that there is ends.
    pub(super) fn ends_at(&self) -> Option<Uptime> {
        Some(self.last.as_ref()?.1 + self.lasts()?)
    }

    pub(super) fn kernel_log_is(&mut self, state: &kmsg::LogState) {
        self.is_read |= *state == kmsg::LogState::Readable;
        self.unreadable = if let kmsg::LogState::Unreadable(error) = state { Some(error.clone()) } else { None };
    }

    /// Takes in a line; whether it is a problem.
    pub(super) fn take_in(&mut self, text: &str, at: Uptime, now: Now) -> bool {
        if !self.settings.patterns.iter().any(|pattern| begins_like(text, pattern)) {
            return false;
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
        true
    }

    pub(super) fn found(&self, now: Uptime) -> Found {
        match (&self.last, &self.unreadable) {
            (Some((message, _)), _) if self.ends_at().is_none_or(|end| now < end) => Found::Problem(message.clone()),
            (_, Some(error)) => Found::Unknown(error.clone()),
            _ if !self.is_read => Found::Pending("the log has not been read yet".into()),
            _ => Found::Nothing("no such line has been logged".into()),
        }
    }
}

/// The time since boot at which a line of this boot was logged, by its time of day in microseconds. One that was logged before the clock
/// was set forward seems to be older than the boot.
pub(super) fn uptime_of(at_micros: i64, now: Now) -> Uptime {
    let ago = u64::try_from(now.wall.as_microsecond().saturating_sub(at_micros)).unwrap_or_default();
    now.uptime.saturating_sub(Duration::from_micros(ago))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(secs: u64) -> Uptime {
        Duration::from_secs(secs)
    }

    fn now(secs: i64) -> Now {
        let wall = Timestamp::from_second(secs).unwrap();
        Now { uptime: at(secs.unsigned_abs()), wall, server: wall }
    }

    fn state(settings: &str) -> LogState {
        let mut state =
            LogState::new(toml::from_str(&format!("patterns = ['*I/O error', 'EXT4-fs error']\n{settings}")).unwrap());
        state.kernel_log_is(&kmsg::LogState::Readable);
        state
    }

    #[test]
    fn a_line_is_a_problem_for_a_time_and_each_further_one_makes_that_longer() {
        let mut state = state("lasts_secs = 60");
        assert!(!state.take_in("an EXT4-fs error", at(1), now(1)), "it does not begin so");
        assert!(matches!(state.found(at(1)), Found::Nothing(_)));
        assert!(state.take_in("Buffer I/O error on dev sdb", at(10), now(10)));
        let first = Found::Problem("logged at 1970-01-01T00:00:10Z: Buffer I/O error on dev sdb".into());
        assert_eq!(state.found(at(69)), first);
        assert!(state.take_in("EXT4-fs error (device sdb)", at(60), now(60)));
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
        let mut state = LogState::new(toml::from_str("patterns = ['x']").unwrap());
        assert!(matches!(state.found(at(1)), Found::Pending(_)));
        state.kernel_log_is(&kmsg::LogState::Unreadable("/dev/kmsg: Operation not permitted".into()));
        assert!(matches!(state.found(at(1)), Found::Unknown(_)));
        state.kernel_log_is(&kmsg::LogState::Readable);
        assert!(matches!(state.found(at(1)), Found::Nothing(_)));
    }

    #[test]
    fn an_entry_of_the_journal_belongs_to_its_unit_or_identifier() {
        let entry = Entry { unit: "a.service".into(), identifier: "b".into(), ..Entry::default() };
        let of = |settings: &str| state(settings).source.is_of(&entry);
        assert!(of("unit = 'a.service'") && of("identifier = 'b'"));
        assert!(!of("unit = 'b.service'") && !of("identifier = 'a.service'") && !of(""));
        assert_eq!(uptime_of(9_500_000, now(10)), Duration::from_millis(9500));
        assert_eq!(uptime_of(99_000_000, now(10)), at(10), "a clock that was set back");
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
