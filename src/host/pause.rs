//! A pause of nodevigil: by the pause file, which `nodevigil pause` writes and a reboot removes, as /run is in memory; or by an annotation
//! of the Node.

use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::clock::ServerTime;
use crate::files;

/// The annotation whose value is the end of a pause.
pub const ANNOTATION: &str = "nodevigil.io/pause";
/// Where the pause file is.
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
        files::replace(path, 0o644, &serde_json::to_string(&self.clone().sanitized())?)
    }

    fn sanitized(mut self) -> Self {
        self.by = redact::bounded(&redact::escape_controls(&self.by), MAX_TEXT_BYTES);
        self.reason = self.reason.map(|reason| redact::bounded(&redact::escape_controls(&reason), MAX_TEXT_BYTES));
        self
    }
}

/// The pause that is in effect at `now`, by the host's clock, if any. A pause ends at most `max` after the file was written, so that none lasts forever.
pub fn read(path: &Path, now: Timestamp, max: Duration) -> Option<Pause> {
    let pause: Pause = serde_json::from_str(&files::read(path, MAX_BYTES).ok()?).ok()?;
    let written: SystemTime = fs::metadata(path).ok()?.modified().ok()?;
    let last = Timestamp::try_from(written).ok()?.checked_add(max).ok()?;
    let until = pause.until.min(last);
    // An end that is farther away than `max` is left from before the clock was set back.
    let is_in_effect = now < until && until <= now.checked_add(max).ok()?;
    is_in_effect.then(|| Pause { until, ..pause }.sanitized())
}

/// The pause for which the annotation with this value asks at `now`, if any. It needs no memory, so that no restart of the agent makes it
/// longer than `max`.
///
/// # Errors
/// When the value is not a time, or is too far in the future.
pub fn by_annotation(value: &str, now: ServerTime, max: Duration) -> Result<Option<Pause>, String> {
    let is_accepted =
        |until: &ServerTime| SignedDuration::try_from(max).is_ok_and(|max| until.duration_since(now) <= max);
    let Some(until) = value.parse().ok().map(ServerTime::of).filter(is_accepted) else {
        let (value, max) = (redact::sanitize_line(value, 64), max.as_secs());
        return Err(format!(
            "the Node's annotation {ANNOTATION}={value} is ignored: expected an RFC 3339 time such as 2026-11-26T18:00:00Z, at most {max} \
             seconds from now (max_pause_secs in [maintenance])"
        ));
    };
    Ok((now < until).then(|| Pause { until: until.timestamp(), by: format!("annotation {ANNOTATION}"), reason: None }))
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
    fn an_annotation_pauses_until_its_time_if_that_is_near_enough() {
        let now = ServerTime::of("2026-11-26T12:00:00Z".parse().unwrap());
        let read = |value| by_annotation(value, now, DAY);
        for value in ["2026-11-26T13:00:00Z", "2026-11-26T14:00:00+01:00"] {
            let pause = read(value).unwrap().unwrap();
            assert_eq!(pause.until, "2026-11-26T13:00:00Z".parse().unwrap());
        }
        assert!(read("2026-11-27T12:00:00Z").unwrap().is_some());
        for over in ["2026-11-26T12:00:00Z", "2026-11-25T12:00:00Z"] {
            assert_eq!(read(over), Ok(None), "{over}");
        }
        for value in ["2026-11-27T12:00:01Z", "true", "30m", "2026-11-26", ""] {
            let error = read(value).unwrap_err();
            assert!(
                error.contains(&format!("nodevigil.io/pause={value} ")) && error.contains("86400 seconds"),
                "{error}"
            );
        }
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
