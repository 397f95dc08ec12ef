//! The progress of cloud-init, from its status file
//! (<https://docs.cloud-init.io/en/latest/explanation/boot.html>, `cloud-init status --help`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::files;

/// A link to /var/lib/cloud/data/status.json, so that a dead disk hangs it.
const STATUS: &str = "run/cloud-init/status.json";
/// Left by cloud-init's systemd generator, which decides at boot whether cloud-init runs.
const ENABLED: &str = "run/cloud-init/enabled";
const DISABLED: &str = "run/cloud-init/disabled";
/// A stage has some hundred bytes, and errors may be long.
const MAX_BYTES: u64 = 256 * 1024;
const MAX_ERRORS: usize = 3;
const MAX_ERROR_BYTES: usize = 150;
const MAX_STAGE_BYTES: usize = 40;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CloudInit {
    /// There is none, or it is disabled.
    Absent,
    /// Its status cannot be read, and why.
    Unreadable(String),
    /// Before its last stage; `stage` is empty between two stages.
    Running {
        stage: String,
        errors: Vec<String>,
    },
    /// In its last stage, which runs the commands of the user data; `since` by the host's clock.
    RunningCommands {
        since: Option<Timestamp>,
        errors: Vec<String>,
    },
    Finished {
        at: Option<Timestamp>,
        errors: Vec<String>,
    },
}

#[derive(Deserialize)]
struct StatusFile {
    v1: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Status {
    stage: Option<String>,
    init_local: Option<StageStatus>,
    init: Option<StageStatus>,
    modules_config: Option<StageStatus>,
    modules_final: Option<StageStatus>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct StageStatus {
    /// Seconds since 1970.
    start: Option<f64>,
    finished: Option<f64>,
    errors: Vec<String>,
    /// By severity; since cloud-init 23.4.
    recoverable_errors: BTreeMap<String, Vec<String>>,
}

/// Reads its status below `root`. Call it in a child.
pub fn read(root: &Path) -> CloudInit {
    let is_there = |path| root.join(path).exists();
    if is_there(DISABLED) {
        return CloudInit::Absent;
    }
    match files::read(&root.join(STATUS), MAX_BYTES) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_there(ENABLED) => {
            CloudInit::Running { stage: String::new(), errors: Vec::new() }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => CloudInit::Absent,
        Err(error) => CloudInit::Unreadable(format!("/{STATUS}: {error}")),
    }
}

fn parse(text: &str) -> CloudInit {
    let status = match serde_json::from_str::<StatusFile>(text) {
        Ok(file) => file.v1,
        // The parser's own error may quote the text.
        Err(error) => return CloudInit::Unreadable(format!("/{STATUS}: line {} cannot be parsed", error.line())),
    };
    let last = status.modules_final.clone().unwrap_or_default();
    let stages = [status.init_local, status.init, status.modules_config, status.modules_final];
    let errors = errors(&stages);
    let stage = redact::sanitize_line(&status.stage.unwrap_or_default(), MAX_STAGE_BYTES);
    match (last.start, last.finished) {
        (_, Some(at)) => CloudInit::Finished { at: timestamp(at), errors },
        (Some(start), None) => CloudInit::RunningCommands { since: timestamp(start), errors },
        (None, None) => CloudInit::Running { stage, errors },
    }
}

/// The first errors, those first from which cloud-init did not recover.
fn errors(stages: &[Option<StageStatus>]) -> Vec<String> {
    let stages = || stages.iter().flatten();
    let is_shown = |(severity, _): &(&String, &Vec<String>)| severity.as_str() != "DEPRECATED";
    let recoverable = stages().flat_map(|stage| stage.recoverable_errors.iter().filter(is_shown));
    let all = stages().flat_map(|stage| &stage.errors).chain(recoverable.flat_map(|(_, errors)| errors));
    all.take(MAX_ERRORS).map(|error| redact::sanitize_line(error, MAX_ERROR_BYTES)).collect()
}

fn timestamp(secs: f64) -> Option<Timestamp> {
    jiff::SignedDuration::try_from_secs_f64(secs).ok().and_then(|since| Timestamp::UNIX_EPOCH.checked_add(since).ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// As cloud-init 22.4 (Debian 12) writes it.
    fn status(stage: &str, last: &str) -> String {
        format!(
            r#"{{"v1": {{"datasource": "DataSourceNoCloud [seed=/var/lib/cloud/seed/nocloud][dsmode=net]",
            "init": {{"errors": [], "finished": 1764140001.5, "start": 1764140000.0}},
            "init-local": {{"errors": [], "finished": 1764139999.9, "start": 1764139999.1}},
            "modules-config": {{"errors": [], "finished": 1764140003.0, "start": 1764140002.0}},
            "modules-final": {last}, "stage": {stage}}}}}"#
        )
    }

    /// As cloud-init 24.4 writes it after a warning.
    const DEGRADED: &str = r#"{"v1": {"datasource": "DataSourceOracle",
        "init": {"errors": [], "finished": 1732547547.53, "recoverable_errors": {}, "start": 1732547546.84},
        "init-local": {"errors": [], "finished": 1732547545.63, "recoverable_errors": {}, "start": 1732547545.38},
        "modules-config": {"errors": [], "finished": 1732547549.85, "recoverable_errors": {"DEPRECATED": ["old key"],
            "WARNING": ["Failed to install packages: kubelet"]}, "start": 1732547549.45},
        "modules-final": {"errors": [], "finished": 1732547800.0, "recoverable_errors": {}, "start": 1732547550.21},
        "stage": null}}"#;

    fn time(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    #[test]
    fn each_state_of_a_status_file_is_recognised() {
        let none = Vec::<String>::new;
        let done = status("null", r#"{"errors": [], "finished": 1764140005.0, "start": 1764140004.0}"#);
        let commands = status(r#""modules-final""#, r#"{"errors": [], "finished": null, "start": 1764140004.0}"#);
        let early = status(r#""modules-config""#, r#"{"errors": [], "finished": null, "start": null}"#);
        let failed = r#"{"errors": ["('scripts_user', RuntimeError('1 failed'))"], "finished": 1764140005.0, "start": 1764140004.0}"#;
        let error = vec!["('scripts_user', RuntimeError('1 failed'))".to_owned()];
        let warning = vec!["Failed to install packages: kubelet".to_owned()];
        let cases = [
            (done.as_str(), CloudInit::Finished { at: Some(time(1_764_140_005)), errors: none() }),
            (&commands, CloudInit::RunningCommands { since: Some(time(1_764_140_004)), errors: none() }),
            (&early, CloudInit::Running { stage: "modules-config".into(), errors: none() }),
            (&status("null", failed), CloudInit::Finished { at: Some(time(1_764_140_005)), errors: error }),
            (DEGRADED, CloudInit::Finished { at: Some(time(1_732_547_800)), errors: warning }),
            (r#"{"v1": {"stage": null}}"#, CloudInit::Running { stage: String::new(), errors: none() }),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse(text), wanted, "{text}");
        }
        for broken in [&done[..done.len() / 2], "", "[1]", r#"{"v1": 7}"#, "{}"] {
            assert!(matches!(parse(broken), CloudInit::Unreadable(_)), "{broken}");
        }
    }

    #[test]
    fn without_a_status_file_the_generator_decides() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("run/cloud-init");
        fs::create_dir_all(&directory).unwrap();
        assert_eq!(read(root.path()), CloudInit::Absent);
        fs::write(directory.join("enabled"), "").unwrap();
        assert!(matches!(read(root.path()), CloudInit::Running { .. }));
        fs::write(directory.join("status.json"), DEGRADED).unwrap();
        assert!(matches!(read(root.path()), CloudInit::Finished { .. }));
        fs::write(directory.join("disabled"), "").unwrap();
        assert_eq!(read(root.path()), CloudInit::Absent);
    }
}
