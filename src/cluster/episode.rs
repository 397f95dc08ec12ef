//! What is said in the journal of a trouble with the API server: at most [`MAX_LINES`] an episode, however it goes.
//!
//! An episode begins with a failure and ends when all has been well for [`STEADY`].

use std::time::Duration;

use super::api::ApiError;
use crate::clock::Now;

/// Lines of one episode.
pub const MAX_LINES: u32 = 6;
/// All must have been well for so long before an episode is over.
pub const STEADY: Duration = Duration::from_mins(1);

/// A line for the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Something is wrong, or something else than before.
    Wrong(ApiError),
    /// All is well again.
    Well,
}

/// The memory of what was said.
#[derive(Debug, Default)]
pub(super) struct Episode {
    lines: u32,
    said: Said,
    /// What is to be said next.
    line: Option<Line>,
    well_since: Option<Duration>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Said {
    #[default]
    Nothing,
    Wrong(u16),
    Well,
}

impl Episode {
    /// A request failed.
    pub(super) fn trouble(&mut self, error: &ApiError, now: Now) {
        self.settle(now);
        self.well_since = None;
        let said = Said::Wrong(group(error));
        if self.said != said && self.lines + 1 < MAX_LINES {
            self.lines += 1;
            self.said = said;
            self.line = Some(Line::Wrong(error.clone()));
        }
    }

    /// All is well, as far as is known.
    pub(super) fn well(&mut self, now: Now) {
        self.settle(now);
        if self.said == Said::Nothing || self.well_since.is_some() {
            return;
        }
        self.well_since = Some(now.uptime);
        if matches!(self.said, Said::Wrong(_)) && self.lines + 1 < MAX_LINES {
            self.lines += 1;
            self.said = Said::Well;
            self.line = Some(Line::Well);
        }
    }

    /// Ends the episode if it is over; the last line says how things are.
    fn settle(&mut self, now: Now) {
        if self
            .well_since
            .is_some_and(|since| now.uptime >= since + STEADY)
        {
            if matches!(self.said, Said::Wrong(_)) {
                self.line = Some(Line::Well);
            }
            (self.lines, self.said, self.well_since) = (0, Said::Nothing, None);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        Some(self.well_since? + STEADY).filter(|_| matches!(self.said, Said::Wrong(_)))
    }

    pub(super) fn line(&mut self, now: Now) -> Option<Line> {
        self.settle(now);
        self.line.take()
    }
}

/// Kinds of failure that are worth a line of their own: an API server that goes away and comes back is refused, silent
/// and 503 by turns.
fn group(error: &ApiError) -> u16 {
    match error {
        ApiError::Network(_) | ApiError::Timeout | ApiError::Server { .. } => 0,
        other => other.code(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_secs(secs),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn forbidden() -> ApiError {
        ApiError::Forbidden("no".to_owned())
    }

    #[test]
    fn a_trouble_is_two_lines_and_another_kind_one_more() {
        let mut episode = Episode::default();
        let away = ApiError::Network("refused".to_owned());
        episode.trouble(&away, at(0));
        assert_eq!(episode.line(at(0)), Some(Line::Wrong(away.clone())));
        for secs in 1..100 {
            let error = if secs % 2 == 0 {
                &away
            } else {
                &ApiError::Timeout
            };
            episode.trouble(error, at(secs));
            assert_eq!(episode.line(at(secs)), None);
        }
        episode.trouble(&forbidden(), at(100));
        assert_eq!(episode.line(at(100)), Some(Line::Wrong(forbidden())));
        episode.well(at(101));
        assert_eq!(episode.line(at(101)), Some(Line::Well));
        episode.well(at(102));
        assert_eq!(
            (episode.line(at(200)), episode.next_deadline()),
            (None, None)
        );
    }

    #[test]
    fn after_the_last_line_silence_until_it_is_well_for_good() {
        let mut episode = Episode::default();
        let mut lines = 0;
        for secs in (0..3600).step_by(50) {
            episode.trouble(&forbidden(), at(secs));
            lines += u32::from(episode.line(at(secs)).is_some());
            episode.well(at(secs + 1));
            lines += u32::from(episode.line(at(secs + 1)).is_some());
        }
        assert_eq!(lines, MAX_LINES - 1);
        assert_eq!(episode.line(at(3599)), None);
        let end = episode.next_deadline().unwrap();
        assert_eq!(episode.line(at(end.as_secs())), Some(Line::Well));
        episode.trouble(&forbidden(), at(5000));
        assert!(episode.line(at(5000)).is_some(), "the next episode");
    }
}
