//! A command of a check: what its end shows.

use std::mem::{Discriminant, discriminant};

use super::Told;
use super::judged::Found;
use crate::condition::Uptime;
use crate::host::clock::{Timer, uptime};
use crate::host::systemd::transient::{self, Command, END_WAIT, Outcome};
use crate::settings::custom::CommandCheck;

/// The longest first line of its output that is shown.
const MAX_LINE_BYTES: usize = 300;
/// The beginning of the unit's name. There is one unit for each check: a check never has two runs at a time.
const UNIT: &str = "nodevigil-custom-";

/// What is known of it. Does no I/O and reads no clock.
#[derive(Debug)]
struct State {
    settings: CommandCheck,
    /// Since when an earlier run is known to be left.
    left_since: Option<Uptime>,
    /// How the last run ended, with its exit code.
    ended: Option<(Discriminant<Outcome>, Option<i32>)>,
    found: Found,
}

/// Runs the command of a check for ever, for the first time then.
pub(super) async fn watch(check: &str, settings: &CommandCheck, first_run: Uptime, told: Told) {
    let command = Command {
        unit: format!("{UNIT}{check}.service"),
        argv: settings.argv.to_vec(),
        user: settings.user.to_string(),
        time: settings.timeout_secs.duration(),
    };
    let (mut state, mut next_run, timer) = (State::new(settings.clone()), first_run, Timer::new());
    loop {
        told.tell(state.found.clone());
        timer.at(next_run).await;
        next_run = uptime() + settings.interval_secs.duration();
        state.ended(&transient::run(&command).await, uptime());
    }
}

impl State {
    fn new(settings: CommandCheck) -> Self {
        let found = Found::Pending("the command has not ended yet".into());
        Self { settings, left_since: None, ended: None, found }
    }

    /// Takes in how a run ended. While runs end alike, the first message stays: a number in it would be a write to the Node each time.
    fn ended(&mut self, outcome: &Outcome, now: Uptime) {
        let left_since = (*outcome == Outcome::StillRuns).then(|| self.left_since.unwrap_or(now));
        self.left_since = left_since;
        let time = self.settings.timeout_secs.duration() + END_WAIT;
        // `nodevigil diagnose` runs it too, and so did the agent before this one.
        if left_since.is_some_and(|since| now < since + time) {
            return;
        }
        let ended = (discriminant(outcome), if let Outcome::Exited(code, _) = outcome { Some(*code) } else { None });
        if self.ended.replace(ended) != Some(ended) {
            self.found = self.judge(outcome);
        }
    }

    fn judge(&self, outcome: &Outcome) -> Found {
        let program = &self.settings.argv[0];
        let message = |output: &str, code: i32| {
            let first = output.lines().map(str::trim).find(|line| !line.is_empty());
            let first = first.map(|line| redact::sanitize_line(line, MAX_LINE_BYTES));
            first.unwrap_or_else(|| format!("{program} exited with code {code}"))
        };
        Found::Unknown(match outcome {
            Outcome::Exited(0, output) => return Found::Nothing(message(output, 0)),
            Outcome::Exited(1, output) => return Found::Problem(message(output, 1)),
            // systemd's own codes (systemd.exec(5)).
            Outcome::Exited(203, output) if output.is_empty() => {
                format!(
                    "systemd cannot execute {program} (203/EXEC): it, or its interpreter, is missing or not executable"
                )
            }
            Outcome::Exited(217, output) if output.is_empty() => {
                format!("there is no user {} to run {program} (217/USER)", &*self.settings.user)
            }
            Outcome::Exited(code, output) => format!("exit code {code}: {}", message(output, *code)),
            Outcome::Killed(result) => format!("{program} was killed (Result={result})"),
            Outcome::TimedOut => {
                let secs = self.settings.timeout_secs.duration().as_secs();
                format!("{program} did not end within {secs} s and was killed")
            }
            Outcome::PrintedTooMuch => format!("{program} printed more than 64 KiB and was killed"),
            Outcome::StillRuns => format!("a process of an earlier run of {program} cannot be killed"),
            Outcome::NotStarted(error) => {
                format!("systemd could not start {program}: {}", redact::sanitize_line(error, MAX_LINE_BYTES))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State::new(toml::from_str("argv = ['/bin/check', '-v']\ntimeout_secs = 5\nuser = 'nobody'").unwrap())
    }

    fn exited(code: i32, output: &str) -> Outcome {
        Outcome::Exited(code, output.into())
    }

    #[test]
    fn the_exit_code_decides_and_the_first_line_is_the_message() {
        let judge = |outcome| state().judge(&outcome);
        assert_eq!(judge(exited(0, "all is well\nmore\n")), Found::Nothing("all is well".into()));
        assert_eq!(judge(exited(1, "\n  offset 3 s\u{1b}[0m\n")), Found::Problem("offset 3 s␛[0m".into()));
        assert_eq!(judge(exited(1, "")), Found::Problem("/bin/check exited with code 1".into()));
        assert_eq!(judge(exited(2, "no server")), Found::Unknown("exit code 2: no server".into()));
        let Found::Unknown(missing) = judge(exited(203, "")) else { panic!() };
        assert!(missing.starts_with("systemd cannot execute /bin/check (203/EXEC)"), "{missing}");
        assert_eq!(
            judge(exited(217, "")),
            Found::Unknown("there is no user nobody to run /bin/check (217/USER)".into())
        );
        let Found::Problem(long) = judge(exited(1, &"x".repeat(9999))) else { panic!() };
        assert!(long.len() <= MAX_LINE_BYTES);
        let masked = judge(exited(1, "curl --token s3cr3t-value failed"));
        assert!(!format!("{masked:?}").contains("s3cr3t-value"), "{masked:?}");
        for outcome in [Outcome::Killed("oom-kill".into()), Outcome::TimedOut, Outcome::PrintedTooMuch] {
            assert!(matches!(judge(outcome), Found::Unknown(_)));
        }
    }

    #[test]
    fn the_message_changes_with_what_is_found_alone() {
        let mut state = state();
        let mut ended = |outcome, secs| {
            state.ended(&outcome, Uptime::from_secs(secs));
            state.found.clone()
        };
        assert_eq!(ended(exited(1, "offset 3 s"), 10), Found::Problem("offset 3 s".into()));
        assert_eq!(ended(exited(1, "offset 4 s"), 70), Found::Problem("offset 3 s".into()));
        assert_eq!(ended(exited(0, "fine"), 130), Found::Nothing("fine".into()));
        assert!(matches!(ended(exited(203, ""), 190), Found::Unknown(why) if why.contains("203/EXEC")));
        assert_eq!(ended(exited(2, "no server"), 250), Found::Unknown("exit code 2: no server".into()));
        assert_eq!(ended(exited(2, "other"), 310), Found::Unknown("exit code 2: no server".into()));
        assert!(matches!(ended(Outcome::TimedOut, 370), Found::Unknown(why) if why.contains("did not end")));
    }

    #[test]
    fn a_run_that_another_agent_started_has_its_time_before_it_cannot_be_killed() {
        let mut state = state();
        let mut ended = |outcome, secs| {
            state.ended(&outcome, Uptime::from_secs(secs));
            state.found.clone()
        };
        assert!(matches!(ended(Outcome::StillRuns, 10), Found::Pending(_)), "it goes on");
        assert!(matches!(ended(Outcome::StillRuns, 20), Found::Pending(_)), "it had 5 s, and 6 s to end");
        assert!(matches!(ended(Outcome::StillRuns, 21), Found::Unknown(_)));
        assert_eq!(ended(exited(1, "offset 3 s"), 30), Found::Problem("offset 3 s".into()));
        assert_eq!(ended(Outcome::StillRuns, 40), Found::Problem("offset 3 s".into()));
    }
}
