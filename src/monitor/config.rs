//! The kubelet's configuration, as `nodevigil check` judges it.
//!
//! The command runs in a child: it reads files of disks that may hang, and the command line of another process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use kubelet_config::rules;
use serde::Deserialize;

use super::{Inputs, Reporter};
use crate::condition::{ConditionType, Finding, Reason, Uptime, View};
use crate::files::FileVersion;
use crate::host::clock::{Timer, next_multiple, uptime};
use crate::host::kubelet::Watched;
use crate::host::{blocking, child};
use crate::settings::CheckSettings;

/// The first check waits until the kubelet's unit and process are known.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// How often the files and the time of the next check are examined.
const TICK: Duration = Duration::from_secs(30);
/// Time between two checks. Each runs the kubelet's binary for its version, which takes 0.1 s of CPU time.
const CHECK_EVERY: Duration = Duration::from_mins(10);
/// The same while nothing is wrong and no file changes.
const CHECK_EVERY_HEALTHY: Duration = Duration::from_mins(30);
/// The same after a check that found something new, which counts if it is still found after this time; and when a file has changed.
const CONFIRMED_AFTER: Duration = Duration::from_mins(1);
/// The time after which a change counts that waits for a daemon-reload or a restart of the kubelet: in a roll-out a file is written first,
/// and the kubelet is restarted when the node is drained.
const PENDING_COUNTS_AFTER: Duration = Duration::from_mins(30);
/// The same when the kubelet has started.
const CHECK_AFTER_START: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(15);
/// Examining the files takes longer only if a disk does not answer.
const FILES_TIMEOUT: Duration = Duration::from_secs(5);
/// Other conditions report these: an expired certificate and a masked unit (`KubeletHealthy`), no CNI configuration yet (the Node's `Ready`),
/// the container runtime's socket (`ContainerRuntimeHealthy`).
const IGNORED: &str = "--ignore=AU002,NW001,RT001,SD019";

/// What is read of the document that `nodevigil check -o json` prints.
#[derive(Debug, Clone, Deserialize)]
struct Answer {
    unit: Unit,
    /// What can change what the kubelet gets.
    files: Vec<PathBuf>,
    /// Errors and worse, worst first.
    findings: Vec<Error>,
    /// Files that could not be read.
    denied: Vec<String>,
    summary: Summary,
}

#[derive(Debug, Clone, Deserialize)]
struct Unit {
    name: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Error {
    rule: String,
    name: String,
    at: String,
    message: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Summary {
    warning: usize,
}

/// Checks and reports until the channel of reports is closed.
pub async fn run(inputs: Inputs) {
    let mut config = Config::default();
    let mut reporter = Reporter::new(ConditionType::KubeletConfigValid, inputs.reports);
    let timer = Timer::new();
    timer.at(uptime() + FIRST_AFTER).await;
    loop {
        let files = config.files.clone();
        let read = move || files.iter().map(|path| FileVersion::of(path)).collect();
        if let Ok(seen) = blocking::run("examining the kubelet's files", FILES_TIMEOUT, read).await {
            config.files_read(seen);
        }
        let (watched, now) = (inputs.watched.borrow().clone(), uptime());
        if config.is_due(watched.pid, now) {
            let answer = check(&config.arguments(&watched, &inputs.settings.check)).await;
            if let Ok(Answer { unit, findings, .. }) = &answer {
                inputs.timeline.checked(findings.iter().map(|error| message(&unit.name, error)).collect());
            }
            config.checked(answer, watched.pid, now);
        }
        if !reporter.report(config.view.clone(), uptime()).await {
            return;
        }
        timer.at(next_multiple(uptime(), TICK)).await;
    }
}

async fn check(arguments: &[String]) -> Result<Answer, String> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let answer: Answer = child::run_own(&arguments, TIMEOUT).await?;
    // The kubelet may read a file that the agent may not read.
    match answer.denied.first() {
        Some(path) => Err(format!("`nodevigil check`: permission denied: {path}")),
        None => Ok(answer),
    }
}

#[derive(Debug, Default)]
struct Config {
    /// The last check, and the kubelet's process at that time.
    last: Option<(Uptime, Option<i32>)>,
    /// Whether a kubelet has run since the agent started and since its unit was last stopped. Before `kubeadm join` and after
    /// `kubeadm reset` it is normal that files are missing.
    has_run: bool,
    /// Since when an error, identified by rule and location, is found.
    found_since: BTreeMap<(String, String), Uptime>,
    failing_since: Option<Uptime>,
    /// The files of the last answer, and the state of each when it was last examined.
    files: Vec<PathBuf>,
    seen: Option<Vec<FileVersion>>,
    /// Whether one of them has changed since the last check.
    has_changed: bool,
    view: Option<View>,
}

fn not_checked(message: impl Into<String>) -> Finding {
    Finding::new(Reason::KubeletConfigNotChecked, message)
}

impl Config {
    fn is_due(&self, pid: Option<i32>, now: Uptime) -> bool {
        let Some((at, last_pid)) = self.last else { return true };
        let wait = if pid.is_some() && pid != last_pid {
            CHECK_AFTER_START
        } else if self.has_changed {
            CONFIRMED_AFTER
        } else {
            match &self.view {
                Some(View::Unchanged(_)) if self.failing_since.is_some() || self.has_found_new() => CONFIRMED_AFTER,
                Some(View::Seen { findings, .. }) if findings.is_empty() => CHECK_EVERY_HEALTHY,
                _ => CHECK_EVERY,
            }
        };
        now >= at + wait
    }

    /// Whether an error was found other than of a change that waits for a restart.
    fn has_found_new(&self) -> bool {
        self.found_since.keys().any(|(rule, _)| !is_pending(rule))
    }

    fn files_read(&mut self, seen: Vec<FileVersion>) {
        self.has_changed |= self.seen.as_ref().is_some_and(|before| *before != seen);
        self.seen = Some(seen);
    }

    fn arguments(&mut self, watched: &Watched, settings: &CheckSettings) -> Vec<String> {
        self.has_run = watched.pid.is_some() || (self.has_run && !watched.is_inactive);
        let phase = if self.has_run { "--phase=after" } else { "--phase=before" };
        let mut arguments = ["check", "--output=json", "--severity=error", IGNORED, phase].map(str::to_owned).to_vec();
        arguments.extend(settings.ignore.iter().map(|rule| format!("--ignore={rule}")));
        arguments.extend(watched.unit.as_ref().map(|unit| format!("--unit={unit}")));
        arguments
    }

    fn checked(&mut self, answer: Result<Answer, String>, pid: Option<i32>, now: Uptime) {
        (self.last, self.has_changed) = (Some((now, pid)), false);
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                let is_long = now >= *self.failing_since.get_or_insert(now) + CONFIRMED_AFTER;
                let view = if is_long { View::Unknown } else { View::Unchanged };
                self.view = Some(view(not_checked(why)));
                return;
            }
        };
        self.failing_since = None;
        if self.files != answer.files {
            // What has changed since the check read them is not known: it is checked once more.
            (self.files, self.seen, self.has_changed) = (answer.files, None, true);
        }
        let key = |error: &Error| (error.rule.clone(), error.at.clone());
        let since = |error| self.found_since.get(&key(error)).copied().unwrap_or(now);
        self.found_since = answer.findings.iter().map(|error| (key(error), since(error))).collect();
        let is_confirmed =
            |error: &&Error| self.found_since.get(&key(error)).is_some_and(|at| now >= *at + counts_after(&error.rule));
        let confirmed: Vec<&Error> = answer.findings.iter().filter(is_confirmed).collect();
        let unit = &answer.unit.name;
        self.view = Some(match (answer.findings.first(), confirmed.split_first()) {
            (_, Some((worst, others))) => {
                let message = format!("{}{}", message(unit, worst), others_hint(others.len()));
                View::found(Reason::KubeletConfigError, message)
            }
            (Some(error), None) => {
                let minutes = counts_after(&error.rule).as_secs() / 60;
                let message =
                    format!("{}; it is reported as an error if it lasts for {minutes} min", message(unit, error));
                View::Unchanged(not_checked(message))
            }
            (None, None) => View::healthy(healthy(unit, answer.summary.warning)),
        });
    }
}

fn is_pending(id: &str) -> bool {
    rules().any(|rule| rule.id == id && rule.is_drift())
}

/// How long an error has to be found until it counts.
fn counts_after(rule: &str) -> Duration {
    if is_pending(rule) { PENDING_COUNTS_AFTER } else { CONFIRMED_AFTER }
}

fn message(unit: &str, Error { rule, name, at, message }: &Error) -> String {
    format!("{unit}: {rule} {name}, {at}: {message}")
}

fn others_hint(count: usize) -> String {
    if count == 0 { String::new() } else { format!("; {count} more, see `nodevigil check`") }
}

fn healthy(unit: &str, warnings: usize) -> String {
    match warnings {
        0 => format!("{unit}: no error and no warning"),
        1 => format!("{unit}: no error; 1 warning, see `nodevigil check`"),
        count => format!("{unit}: no error; {count} warnings, see `nodevigil check`"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ERROR: (&str, &str) = ("SD001", "/etc/default/kubelet:1");

    fn at(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    fn answer(errors: &[(&str, &str)]) -> Answer {
        let error = |(rule, at): &(&str, &str)| Error {
            rule: (*rule).to_owned(),
            name: "env-overridden-by-file".into(),
            at: (*at).to_owned(),
            message: "--cloud-provider=external is lost".into(),
        };
        Answer {
            unit: Unit { name: "kubelet.service".into() },
            files: vec!["/etc/default/kubelet".into()],
            findings: errors.iter().map(error).collect(),
            denied: Vec::new(),
            summary: Summary { warning: 1 },
        }
    }

    fn problem(config: &Config) -> Option<&str> {
        let Some(View::Seen { findings, .. }) = &config.view else { return None };
        findings.first().map(|finding| finding.message.as_str())
    }

    #[test]
    fn an_error_counts_when_a_check_a_minute_later_still_finds_it() {
        let mut config = Config::default();
        config.checked(Ok(answer(&[ERROR])), Some(1), at(10));
        assert!(matches!(config.view, Some(View::Unchanged(_))));
        config.checked(Ok(answer(&[ERROR, ("FL001", "/b:2")])), Some(2), at(40));
        assert!(matches!(config.view, Some(View::Unchanged(_))), "the kubelet has restarted meanwhile");
        assert!(!config.is_due(Some(2), at(99)) && config.is_due(Some(2), at(100)));
        config.checked(Ok(answer(&[("FL001", "/b:2"), ERROR])), Some(2), at(70));
        let expected =
            "kubelet.service: SD001 env-overridden-by-file, /etc/default/kubelet:1: --cloud-provider=external is lost";
        assert_eq!(problem(&config), Some(expected));
        config.checked(Ok(answer(&[("FL001", "/b:2"), ERROR])), Some(2), at(100));
        assert!(problem(&config).unwrap().ends_with("is lost; 1 more, see `nodevigil check`"));
        config.checked(Ok(answer(&[])), Some(2), at(160));
        let healthy = "kubelet.service: no error; 1 warning, see `nodevigil check`".to_owned();
        assert_eq!(config.view, Some(View::Seen { healthy, findings: Vec::new() }));
        assert!(!config.is_due(Some(2), at(1959)) && config.is_due(Some(2), at(1960)));
        assert!(config.is_due(Some(3), at(190)), "the kubelet has restarted");
        assert!(!config.is_due(None, at(190)), "it was stopped");
    }

    #[test]
    fn a_changed_file_is_checked_a_minute_after_the_last_check() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet");
        let read = |config: &mut Config| config.files_read(vec![FileVersion::of(&path)]);
        let mut config = Config::default();
        config.checked(Ok(answer(&[])), Some(1), at(0));
        read(&mut config);
        assert!(config.is_due(Some(1), at(60)), "what has changed since the first check read the files is not known");
        config.checked(Ok(answer(&[])), Some(1), at(0));
        read(&mut config);
        assert!(!config.is_due(Some(1), at(100)));
        fs::write(&path, "").unwrap();
        read(&mut config);
        read(&mut config);
        assert!(!config.is_due(Some(1), at(59)) && config.is_due(Some(1), at(60)));
        config.checked(Ok(answer(&[])), Some(1), at(60));
        read(&mut config);
        assert!(!config.is_due(Some(1), at(200)));
        fs::remove_file(&path).unwrap();
        read(&mut config);
        assert!(config.is_due(Some(1), at(200)));
    }

    #[test]
    fn a_change_that_waits_for_a_restart_counts_after_half_an_hour() {
        let (mut config, pending) = (Config::default(), [("SD021", "/etc/default/kubelet:1")]);
        let mut check = |now| {
            config.checked(Ok(answer(&pending)), Some(1), at(now));
            config.files_read(vec![]);
            (problem(&config).is_some(), config.is_due(Some(1), at(now + 100)))
        };
        assert_eq!([check(0), check(60), check(660)], [(false, true), (false, false), (false, false)]);
        assert!(check(1800).0);
    }

    #[test]
    fn a_check_that_fails_for_a_minute_leaves_the_answer_open() {
        let mut config = Config::default();
        config.checked(Ok(answer(&[])), None, at(0));
        config.checked(Err("it timed out".into()), None, at(300));
        assert_eq!(config.view, Some(View::Unchanged(not_checked("it timed out"))));
        assert!(config.is_due(None, at(360)));
        config.checked(Err("it timed out".into()), None, at(360));
        assert_eq!(config.view, Some(View::Unknown(not_checked("it timed out"))));
        assert!(!config.is_due(None, at(959)) && config.is_due(None, at(960)));
        config.checked(Ok(answer(&[])), None, at(420));
        assert!(matches!(config.view, Some(View::Seen { .. })));
    }

    #[test]
    fn missing_files_are_normal_until_a_kubelet_has_run_and_once_it_is_stopped() {
        let mut config = Config::default();
        let mut options = |pid, is_inactive| {
            let watched = Watched { unit: Some("k3s.service".into()), pid, is_inactive, ..Watched::default() };
            config.arguments(&watched, &CheckSettings::default()).split_off(4)
        };
        assert_eq!(options(None, true), ["--phase=before", "--unit=k3s.service"]);
        assert_eq!(options(Some(1), false), ["--phase=after", "--unit=k3s.service"]);
        assert_eq!(
            options(None, false),
            ["--phase=after", "--unit=k3s.service"],
            "it has ended, and systemd restarts it"
        );
        assert_eq!(options(None, true), ["--phase=before", "--unit=k3s.service"]);
        assert_eq!(options(None, false), ["--phase=before", "--unit=k3s.service"], "it is about to start");
    }

    #[test]
    fn what_the_settings_ignore_is_ignored() {
        let settings = CheckSettings { ignore: vec!["RS001".parse().unwrap(), "unknown-flag".parse().unwrap()] };
        let arguments = Config::default().arguments(&Watched::default(), &settings);
        assert_eq!(arguments[3..].join(" "), format!("{IGNORED} --phase=before --ignore=RS001 --ignore=unknown-flag"));
    }

    #[test]
    fn the_rules_exist() {
        for id in IGNORED.trim_start_matches("--ignore=").split(',') {
            assert!(rules().any(|rule| rule.id == id), "{id}");
        }
    }
}
