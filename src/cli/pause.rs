//! `nodevigil pause` and `nodevigil resume`: a file in the runtime folder, which the daemon heeds within a second.
//!
//! Neither the API nor the daemon is needed: who works on a node often has taken one of them away.
#![expect(
    clippy::disallowed_methods,
    reason = "a subcommand reads the environment for itself"
)]

use std::{
    env, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use super::{daemon, status::print};
use crate::{
    clock::Clock,
    config::{self, Settings},
    host::files::Root,
    pause::{MAX_REASON_BYTES, Pause, PauseError, span},
    status::{self, QuietKind, StatusFile},
};
use anyhow::{Context, anyhow};

/// Stand down for a while: until then no condition of this Node is False.
///
/// What would be False is Unknown and says that it is paused; what is found is shown by nodevigil status and in the
/// conditions' messages. It lasts through a restart of the daemon, not through a reboot. A warning Event comes an hour
/// before it ends. Needs neither the API nor the daemon; needs root.
///
/// Exit code: 0 paused, 1 could not.
#[derive(Debug, Clone, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct PauseCommand {
    /// For how long: 90s, 30m, 2h, 1h30m; at most a day, or what the configuration allows
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    length: Duration,
    /// Why, for whoever looks at the Node
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
    /// Read this file, or the *.toml of this folder, instead of the default places; may be given again
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Vec<PathBuf>,
    /// The daemon's runtime directory.
    #[arg(long, value_name = "DIR", hide = true)]
    dir: Option<PathBuf>,
}

/// End what `nodevigil pause` began
///
/// Exit code: 0 not paused any more (or it was not), 1 could not.
#[derive(Debug, Clone, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Resume {
    /// The daemon's runtime directory.
    #[arg(long, value_name = "DIR", hide = true)]
    dir: Option<PathBuf>,
}

impl PauseCommand {
    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (root, dir) = (Root::default(), runtime_dir(self.dir));
        let by = env::var("SUDO_USER").ok();
        let now = Clock.now().wall;
        let longest = longest(&root, &self.config);
        let pause = Pause::new(now, self.length, longest, by, self.reason);
        let pause = pause.map_err(|why| anyhow!(why))?;
        pause.write(&root, &dir).map_err(|e| explain(e, "pause"))?;
        let mut text = format!(
            "paused until {}: no condition of this Node is False until then\n",
            pause.until
        );
        if daemon::pid(&root, &dir).is_none() {
            text += "the daemon does not run; it will heed this when it starts (systemctl start nodevigil)\n";
        }
        print(&mut io::stdout().lock(), &text).context("write to stdout")?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Resume {
    /// Removes the file.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (root, dir) = (Root::default(), runtime_dir(self.dir));
        let was_paused = Pause::read(&root, &dir)
            .ok()
            .flatten()
            .is_some_and(|pause| pause.until > Clock.now().wall);
        let there = Pause::remove(&root, &dir).map_err(|e| explain(e, "resume"))?;
        let text = match (there, was_paused) {
            (true, true) => "resumed: problems are told again\n",
            (true, false) => "the pause was over already; its file is removed\n",
            (false, _) => "it was not paused\n",
        };
        let text = text.to_owned() + &others(&root, &dir);
        print(&mut io::stdout().lock(), &text).context("write to stdout")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Who else has it stand down: who resumes expects to hear of problems.
fn others(root: &Root, dir: &Path) -> String {
    let Ok(status) = StatusFile::read(root, dir) else {
        return String::new();
    };
    let quiet = status.quiet.iter();
    let others = quiet.filter(|quiet| {
        quiet.kind == QuietKind::StandDown && !quiet.by.starts_with("paused by nodevigil pause")
    });
    others.fold(String::new(), |text, quiet| {
        text + "still standing down: " + &quiet.by + "\n"
    })
}

/// How long a pause may last. With a configuration that cannot be read, as without one: who works on a node may be
/// just at that.
fn longest(root: &Root, given: &[PathBuf]) -> Duration {
    let settings = config::load(root, given).map_or_else(
        |error| {
            let said = format!("nodevigil: {error}; the default of max_pause_secs counts\n");
            print(&mut io::stderr().lock(), &said).ok(); // the pause is what was asked for
            Settings::default()
        },
        |(settings, _)| settings,
    );
    settings.seconds("suppression", "max_pause_secs")
}

fn runtime_dir(given: Option<PathBuf>) -> PathBuf {
    given.unwrap_or_else(|| status::runtime_dir(env::var_os("RUNTIME_DIRECTORY").as_deref()))
}

fn explain(error: PauseError, command: &str) -> anyhow::Error {
    match &error {
        PauseError::File(file) if file.is_forbidden() => {
            anyhow!("{error}; run it as root: sudo nodevigil {command}")
        }
        _ => anyhow!(error),
    }
}

/// No command waits or pauses for longer.
const LONGEST: Duration = Duration::from_hours(7 * 24);

/// `90s`, `30m`, `2h`, `1h30m`, `7d`: larger units first, each at most once.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("wants a duration such as 90s, 30m, 2h or 1h30m, not {text:?}");
    let units = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1_u64)];
    let mut allowed = &units[..];
    let mut rest = text.trim();
    let mut secs = 0_u64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..end].parse().map_err(|_| wrong())?;
        let unit = rest[end..].chars().next().ok_or_else(wrong)?;
        let found = allowed.iter().position(|(name, _)| *name == unit);
        let found = found.ok_or_else(wrong)?;
        let part = number.checked_mul(allowed[found].1).ok_or_else(wrong)?;
        secs = secs.checked_add(part).ok_or_else(wrong)?;
        allowed = &allowed[found + 1..];
        rest = &rest[end + unit.len_utf8()..];
    }
    if text.trim().is_empty() {
        return Err(wrong());
    }
    let length = Duration::from_secs(secs);
    if length.is_zero() || length > LONGEST {
        let most = span(LONGEST);
        return Err(format!(
            "wants some length of time, {most} at most, such as 30m"
        ));
    }
    Ok(length)
}

fn reason(text: &str) -> Result<String, String> {
    if text.len() > MAX_REASON_BYTES {
        return Err(format!(
            "wants at most {MAX_REASON_BYTES} bytes; it stands in every condition's message"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, secs) in [
            ("90s", 90),
            ("30m", 1800),
            ("2h", 7200),
            ("1h30m", 5400),
            (" 1d2h3m4s ", 93_784),
            ("7d", 604_800),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(secs)), "{text}");
        }
        for text in [
            "",
            " ",
            "30",
            "m",
            "30x",
            "1m2h",
            "1m1m",
            "-1s",
            "1.5h",
            "99999999999999999999s",
            "30 m",
            "5é",
        ] {
            let error = duration(text).unwrap_err();
            assert!(error.contains("1h30m"), "{text}: {error}");
        }
        assert!(duration("8d").unwrap_err().contains("7d at most"));
        assert!(duration("0s").unwrap_err().contains("some length"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            duration(&text).ok();
        }
    }
}
