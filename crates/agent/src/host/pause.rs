//! The pause file: `nodevigil pause` writes it, the agent reads it. A reboot removes it, as /run is in memory.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::files;

/// Where it is.
pub const PATH: &str = "/run/nodevigil/pause.json";
const MAX_BYTES: u64 = 4096;
/// The longest reason and user name: they become part of conditions' messages.
const MAX_TEXT_BYTES: usize = 256;

/// Until when no condition of this node is published as `False`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub until: Timestamp,
    /// The user who asked for it.
    pub by: String,
    /// Why, as the user gave it.
    pub reason: Option<String>,
}

impl Pause {
    /// Replaces the file at `path`. User name and reason are cut, and control characters in them replaced.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        files::replace(path, 0o644, &serde_json::to_string(&self.clone().harmless())?)
    }

    fn harmless(mut self) -> Self {
        self.by = redact::bounded(&redact::harmless(&self.by), MAX_TEXT_BYTES);
        self.reason = self.reason.map(|reason| redact::bounded(&redact::harmless(&reason), MAX_TEXT_BYTES));
        self
    }
}

/// The pause that is in effect at `now`, if any. Whatever the file says, a pause ends `max` after the file was written, so that
/// none lasts forever.
pub fn read(path: &Path, now: Timestamp, max: Duration) -> Option<Pause> {
    let pause: Pause = serde_json::from_str(&files::read(path, MAX_BYTES).ok()?).ok()?;
    let written: SystemTime = fs::metadata(path).ok()?.modified().ok()?;
    let last = Timestamp::try_from(written).ok()?.checked_add(max).ok()?;
    let until = pause.until.min(last);
    // An end that is farther away than `max` is left from before the clock was set back.
    let is_in_effect = now < until && until <= now.checked_add(max).ok()?;
    is_in_effect.then(|| Pause { until, ..pause }.harmless())
}

/// Removes the file; `true` if there was one.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_pause_lasts_until_its_end_and_never_longer_than_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pause.json");
        let now = crate::host::clock::wall();
        let after = |hours| now + SignedDuration::from_hours(hours);
        let write = |until| Pause { until, by: "ann".into(), reason: None }.write(&path).unwrap();
        write(after(2));
        assert_eq!(read(&path, after(1), DAY).unwrap().until, after(2));
        assert_eq!(read(&path, after(2), DAY), None);
        write(after(1000));
        let bounded = read(&path, after(1), DAY).unwrap();
        assert!(bounded.until < after(25), "{bounded:?}");
        assert_eq!(read(&path, after(25), DAY), None);
        assert_eq!(read(&path, after(-1000), DAY), None, "the clock was set back");
        assert!(remove(&path).unwrap() && !remove(&path).unwrap());
        assert_eq!(read(&path, now, DAY), None);
    }

    #[test]
    fn names_and_reasons_are_cut_and_steer_no_terminal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pause.json");
        let now = crate::host::clock::wall();
        let until = now + SignedDuration::from_hours(1);
        let written = Pause { until, by: "a\u{1b}[2J".into(), reason: Some("x".repeat(5000)) };
        written.write(&path).unwrap();
        let pause = read(&path, now, DAY).unwrap();
        assert_eq!(pause.by, "a␛[2J");
        assert_eq!(pause.reason.unwrap().len(), MAX_TEXT_BYTES);
        fs::write(&path, serde_json::to_string(&written).unwrap()).unwrap();
        assert_eq!(read(&path, now, DAY), None, "the file is larger than any that nodevigil writes");
    }
}
