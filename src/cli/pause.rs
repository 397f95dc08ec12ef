//! `nodevigil pause` and `nodevigil resume`. Both work without the agent and without the API server.

use std::path::Path;
use std::time::Duration;
use std::{env, io};

use anyhow::{Context, bail};
use jiff::Timestamp;

use super::{GOOD, duration, print, settings_in_effect};
use crate::host::clock;
use crate::host::pause::{self, Pause};
use crate::report::table;
use crate::settings::accepted;

/// Suppress the problems of this node for some time, for example during maintenance
///
/// Until the pause ends, a problem is published as Unknown with reason `NodePaused`; the message quotes the problem, and
/// nodevigil removes its taints. A reboot ends the pause. Needs root.
///
/// Exit code: 0 nodevigil is paused, 1 the pause could not begin.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: nodevigil pause 2h30m --reason 'new disk'")]
pub struct PauseCommand {
    /// How long, such as 90s, 30m or 2h30m; at most [maintenance] `max_pause_secs`
    #[arg(default_value = "1h", value_parser = duration)]
    duration: Duration,
    /// The reason, which the messages on the Node quote
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl PauseCommand {
    pub fn run(self) -> anyhow::Result<u8> {
        // The agent's, until it is restarted with others.
        let settings = accepted::read(Path::new(accepted::PATH)).unwrap_or_else(settings_in_effect);
        let max = settings.maintenance.max_pause_secs.duration();
        let pause = self.pause(clock::wall(), max, user())?;
        pause.write(Path::new(pause::PATH)).map_err(|error| file_error(&error, "nodevigil pause"))?;
        let until = pause.until;
        print(&format!("paused until {until}: until then a problem of this node is published as Unknown\n"))?;
        Ok(GOOD)
    }

    fn pause(self, now: Timestamp, max: Duration, by: String) -> anyhow::Result<Pause> {
        if self.duration > max {
            let max = table::age(max.try_into()?);
            bail!(
                "a pause lasts at most {max}: pause again before it ends, or raise max_pause_secs in [maintenance] and restart nodevigil"
            );
        }
        let until = now.checked_add(self.duration).context("the end of the pause is beyond the end of the calendar")?;
        Ok(Pause { until: Timestamp::from_second(until.as_second())?, by, reason: self.reason })
    }
}

/// Ends the pause.
pub fn resume() -> anyhow::Result<u8> {
    let was_paused = pause::remove(Path::new(pause::PATH)).map_err(|error| file_error(&error, "nodevigil resume"))?;
    print(if was_paused { "resumed\n" } else { "nodevigil was not paused\n" })?;
    Ok(GOOD)
}

fn user() -> String {
    env::var("SUDO_USER").or_else(|_| env::var("USER")).unwrap_or_else(|_| "root".to_owned())
}

fn file_error(error: &io::Error, command: &str) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => format!("; it needs root: sudo {command}"),
        io::ErrorKind::NotFound => "; create its directory with: systemd-tmpfiles --create nodevigil.conf".to_owned(),
        _ => String::new(),
    };
    anyhow::anyhow!("{}: {error}{advice}", pause::PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("2h30m"), Ok(Duration::from_mins(150)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        for text in ["", "30", "0s", "-1h", "99999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pause_ends_at_a_whole_second_and_is_no_longer_than_allowed() {
        let pause = |secs| {
            let command = PauseCommand { duration: Duration::from_secs(secs), reason: None };
            command.pause("2026-01-01T00:00:00.5Z".parse().unwrap(), Duration::from_mins(1), "ann".into())
        };
        assert_eq!(pause(60).unwrap().until, "2026-01-01T00:01:00Z".parse().unwrap());
        assert!(pause(61).unwrap_err().to_string().starts_with("a pause lasts at most 1m"));
    }

    #[test]
    fn an_error_has_advice() {
        let error = file_error(&io::ErrorKind::PermissionDenied.into(), "nodevigil resume").to_string();
        assert_eq!(error, "/run/nodevigil/pause.json: permission denied; it needs root: sudo nodevigil resume");
    }
}
