//! The pause file, `/run/nodevigil/pause.json`: `nodevigil pause` writes it, the daemon heeds it, with or without an API.
//!
//! It has an end on the wall clock, lies in a folder that a reboot empties, and lasts no longer than `[suppression]
//! max_pause_secs`: a pause that somebody forgets ends by itself.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::host::files::{FileError, Root};

/// The file's name in the runtime directory.
pub const FILE_NAME: &str = "pause.json";
/// A reason's bound: it stands in every condition's message.
pub const MAX_REASON_BYTES: usize = 200;
const VERSION: u64 = 1;
const MAX_BYTES: usize = 4096;

/// A pause that somebody asked for on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    version: u64,
    /// When it was asked for.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// Who asked, if that is known: the name behind `sudo`.
    #[serde(default)]
    pub by: Option<String>,
    /// Why, in the asker's words.
    #[serde(default)]
    pub reason: Option<String>,
}

/// A pause file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// It could not be read, written or removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not what it should be.
    #[error("{}: {problem}; write it anew with nodevigil pause, or remove it with nodevigil resume", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl Pause {
    /// A pause from `now` on. The end has whole seconds, as it is shown.
    ///
    /// # Errors
    /// When it is empty, or longer than `longest`.
    pub fn new(
        now: Timestamp,
        length: Duration,
        longest: Duration,
        by: Option<String>,
        reason: Option<String>,
    ) -> Result<Self, String> {
        if length.is_zero() {
            return Err("a pause of no length; give it one, such as 30m".to_owned());
        }
        if length > longest {
            return Err(format!(
                "a pause may last {} at most ([suppression] max_pause_secs = {}); pause again before it ends, or raise that key",
                span(longest),
                longest.as_secs()
            ));
        }
        let end = SignedDuration::try_from(length).ok();
        let until = end.and_then(|length| now.checked_add(length).ok());
        let until = until
            .and_then(|until| Timestamp::from_second(until.as_second()).ok())
            .ok_or("the clock is at the end of time")?;
        Ok(Self {
            version: VERSION,
            since: now,
            until,
            by: by.map(|by| one_line(&by)),
            reason: reason.map(|reason| one_line(&reason)),
        })
    }

    /// When it ends, being no longer than `longest`, whatever the file says: it may be written by hand, or under another
    /// configuration.
    pub fn end(&self, longest: Duration) -> Timestamp {
        let longest = SignedDuration::try_from(longest).unwrap_or(SignedDuration::MAX);
        let bound = self.since.checked_add(longest);
        bound.map_or(self.until, |bound| self.until.min(bound))
    }

    /// Whether it counts at that time. One that would end beyond `longest` from now on was written before the clock was
    /// set: it does not.
    pub fn holds(&self, now: Timestamp, longest: Duration) -> bool {
        let left = self.end(longest).duration_since(now);
        left > SignedDuration::ZERO && left.unsigned_abs() <= longest
    }

    /// Who asked for it, and why, for people.
    pub fn describe(&self) -> String {
        let by = self.by.as_ref().map(|by| format!(" by {by}"));
        let reason = self.reason.as_ref().map(|reason| format!(" ({reason})"));
        format!(
            "nodevigil pause{}{}",
            by.unwrap_or_default(),
            reason.unwrap_or_default()
        )
    }

    /// The pause in the runtime directory `dir`, if there is one.
    ///
    /// # Errors
    /// When it cannot be read or makes no sense.
    pub fn read(root: &Root, dir: &Path) -> Result<Option<Self>, PauseError> {
        let path = dir.join(FILE_NAME);
        let bytes = match root.read(&path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let content = |problem: String| PauseError::Content {
            path: path.clone(),
            problem,
        };
        let pause: Self = serde_json::from_slice(&bytes).map_err(|e| content(e.to_string()))?;
        if pause.version > VERSION {
            let problem = format!(
                "version {}, and this nodevigil knows {VERSION}",
                pause.version
            );
            return Err(content(problem));
        }
        Ok(Some(Self {
            by: pause.by.map(|by| one_line(&by)),
            reason: pause.reason.map(|reason| one_line(&reason)),
            ..pause
        }))
    }

    /// Puts it into the runtime directory `dir`, which is made if it is not there: the daemon may not have run yet.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, root: &Root, dir: &Path) -> Result<(), PauseError> {
        root.create_dir_all(dir)?;
        let text = serde_json::to_vec(self).expect("a pause has string keys only");
        Ok(root.write_in_foreign_folder(dir.join(FILE_NAME), &text)?)
    }

    /// Removes it from the runtime directory `dir`; `false` if there was none.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(root: &Root, dir: &Path) -> Result<bool, PauseError> {
        Ok(root.remove(dir.join(FILE_NAME))?)
    }
}

/// A length as people write it, and as `nodevigil pause --for` takes it: `1d`, `1h30m`.
pub fn span(length: Duration) -> String {
    let mut left = length.as_secs();
    let mut text = String::new();
    for (unit, secs) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if left >= secs {
            write!(text, "{}{unit}", left / secs).expect("a String takes everything");
            left %= secs;
        }
    }
    text
}

/// At most [`MAX_REASON_BYTES`] of it, without control characters: it goes to a journal and a terminal.
pub fn one_line(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_REASON_BYTES);
    text[..end]
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "/run/nodevigil";
    const LONGEST: Duration = Duration::from_hours(24);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::TempDir::new().unwrap();
        let root = Root::new(folder.path());
        (folder, root)
    }

    fn half_an_hour() -> Pause {
        Pause::new(
            at("2026-11-21T09:00:00.7Z"),
            Duration::from_mins(30),
            LONGEST,
            Some("anna".to_owned()),
            Some("disk\nswap".to_owned()),
        )
        .unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_removed() {
        let (_folder, root) = root();
        let dir = Path::new(DIR);
        assert_eq!(Pause::read(&root, dir).unwrap(), None);
        assert!(!Pause::remove(&root, dir).unwrap());
        let pause = half_an_hour();
        pause.write(&root, dir).unwrap();
        pause.write(&root, dir).unwrap();
        assert_eq!(Pause::read(&root, dir).unwrap(), Some(pause.clone()));
        assert_eq!(pause.describe(), "nodevigil pause by anna (disk swap)");
        assert!(Pause::remove(&root, dir).unwrap());
        assert_eq!(Pause::read(&root, dir).unwrap(), None);
    }

    #[test]
    fn it_ends_by_itself_and_never_lasts_longer_than_is_allowed() {
        let pause = half_an_hour();
        assert_eq!(pause.until, at("2026-11-21T09:30:00Z"));
        assert!(pause.holds(at("2026-11-21T09:29:59Z"), LONGEST));
        assert!(!pause.holds(at("2026-11-21T09:30:00Z"), LONGEST));
        // The clock was years ahead when it was written.
        assert!(!pause.holds(at("2020-11-21T09:00:00Z"), LONGEST));
        let now = at("2026-11-21T09:00:00Z");
        let length = |length| Pause::new(now, length, LONGEST, None, None).map(|pause| pause.until);
        assert_eq!(length(LONGEST), Ok(at("2026-11-22T09:00:00Z")));
        let too_long = length(LONGEST + Duration::from_secs(1)).unwrap_err();
        assert!(
            too_long.contains("1d at most ([suppression] max_pause_secs = 86400)"),
            "{too_long}"
        );
        assert!(length(Duration::ZERO).is_err());
        assert!(length(Duration::MAX).is_err());
    }

    #[test]
    fn whatever_the_file_says_it_ends_by_the_bound() {
        let by_hand = Pause {
            until: at("2099-01-01T00:00:00Z"),
            ..half_an_hour()
        };
        assert_eq!(by_hand.end(LONGEST), at("2026-11-22T09:00:00.7Z"));
        assert!(by_hand.holds(at("2026-11-22T09:00:00Z"), LONGEST));
        assert!(!by_hand.holds(at("2026-11-22T09:00:01Z"), LONGEST));
        // And under a shorter one that was configured since.
        let shorter = Duration::from_mins(10);
        assert_eq!(half_an_hour().end(shorter), at("2026-11-21T09:10:00.7Z"));
        assert!(!half_an_hour().holds(at("2026-11-21T09:11:00Z"), shorter));
    }

    #[test]
    fn a_span_is_written_as_it_is_read() {
        for (secs, text) in [
            (86_400, "1d"),
            (5400, "1h30m"),
            (90, "1m30s"),
            (93_784, "1d2h3m4s"),
        ] {
            assert_eq!(span(Duration::from_secs(secs)), text);
        }
    }

    #[test]
    fn a_file_that_makes_no_sense_is_said_and_is_no_pause() {
        let (_folder, root) = root();
        let dir = Path::new(DIR);
        root.create_dir_all(dir).unwrap();
        for text in [
            "",
            "{half",
            "{}",
            r#"{"version": 1, "since": 3, "until": 4}"#,
            r#"{"version": 2, "since": "2026-11-21T09:00:00Z", "until": "2026-11-21T09:30:00Z"}"#,
        ] {
            root.write_atomically(dir.join(FILE_NAME), text.as_bytes())
                .unwrap();
            let error = Pause::read(&root, dir).unwrap_err().to_string();
            assert!(
                error.contains("/run/nodevigil/pause.json") && error.contains("resume"),
                "{error}"
            );
        }
    }

    #[test]
    fn words_of_others_are_one_bounded_line() {
        let long = one_line(&"é\x1b\n".repeat(300));
        assert!(long.len() <= MAX_REASON_BYTES && !long.chars().any(char::is_control));
    }
}
