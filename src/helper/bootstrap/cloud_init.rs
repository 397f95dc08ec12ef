//! How far cloud-init is, and what `kubeadm join` said last in what it ran.

use std::os::unix::fs::FileExt;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    bootstrap::{CloudInit, MAX_TEXT_BYTES},
    host::files::Root,
    kubelet::shown::told,
};

const STATUS: &str = "/run/cloud-init/status.json";
/// What cloud-init's generator leaves where it is to run.
const ENABLED: &str = "/run/cloud-init/enabled";
const FINISHED: &str = "/var/lib/cloud/instance/boot-finished";
const OUTPUT: &str = "/var/log/cloud-init-output.log";
/// A stage's row has some hundred bytes; errors may be long.
const MAX_STATUS_BYTES: usize = 256 * 1024;
/// As much of the end of what it ran is looked at.
const TAIL_BYTES: u64 = 16 * 1024;
/// So many errors are kept.
const MAX_ERRORS: usize = 4;
/// Python shows the whole of a command that failed.
const MAX_ERROR_BYTES: usize = 80;
/// The longest that there is, `modules-config`, has 14.
const MAX_STAGE_BYTES: usize = 64;
/// The stage that runs the commands of the user data.
const LAST: &str = "modules-final";

/// How kubeadm begins the lines that say why it failed.
const FAILURES: [&str; 4] = [
    "error execution phase",
    "error: ",
    "[ERROR ",
    "couldn't validate",
];

#[derive(Deserialize)]
struct Status {
    v1: Value,
}

/// Looks.
pub(super) fn look(root: &Root) -> (CloudInit, Option<String>) {
    (progress(root), join_words(root))
}

fn progress(root: &Root) -> CloudInit {
    let text = match root.read(STATUS, MAX_STATUS_BYTES) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => {
            return if root.identity(ENABLED).is_some() {
                CloudInit::Running {
                    stage: String::new(),
                    is_last: false,
                    errors: Vec::new(),
                }
            } else {
                CloudInit::Absent
            };
        }
        Err(error) => {
            return CloudInit::Unknown {
                why: error.to_string(),
            };
        }
    };
    progress_of(&text, root.identity(FINISHED).is_some())
}

/// What its status file says.
pub fn progress_of(text: &[u8], is_marked_finished: bool) -> CloudInit {
    match serde_json::from_slice::<Status>(text) {
        Ok(status) => of_status(&status.v1, is_marked_finished),
        Err(error) => CloudInit::Unknown {
            why: format!("{STATUS}: not what was expected (line {})", error.line()),
        },
    }
}

fn of_status(v1: &Value, is_marked_finished: bool) -> CloudInit {
    let rows = v1.as_object().into_iter().flatten();
    let mut errors: Vec<String> = rows
        .filter_map(|(_, row)| row.get("errors")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .map(|text| presentable(text, MAX_ERROR_BYTES))
        .collect();
    errors.truncate(MAX_ERRORS);
    let last = v1.get(LAST);
    let is_number = |name: &str| {
        last.and_then(|row| row.get(name))
            .is_some_and(Value::is_number)
    };
    if is_number("finished") || (is_marked_finished && v1.get("stage").is_none_or(Value::is_null)) {
        return CloudInit::Finished { errors };
    }
    let stage = v1.get("stage").and_then(Value::as_str).unwrap_or_default();
    CloudInit::Running {
        is_last: stage == LAST || is_number("start"),
        stage: presentable(stage, MAX_STAGE_BYTES),
        errors,
    }
}

/// One line that holds no secret.
fn presentable(text: &str, max_bytes: usize) -> String {
    told(text, max_bytes)
}

/// The last two lines that say why kubeadm failed.
fn join_words(root: &Root) -> Option<String> {
    let file = root.open(OUTPUT).ok()?;
    let length = file.metadata().ok()?.len();
    let start = length.saturating_sub(TAIL_BYTES);
    let mut bytes = vec![0; usize::try_from(length - start).ok()?];
    file.read_exact_at(&mut bytes, start).ok()?;
    join_words_in(&String::from_utf8_lossy(&bytes))
}

/// The same of the end of its output.
pub fn join_words_in(text: &str) -> Option<String> {
    let says = |line: &&str| FAILURES.iter().any(|failure| line.starts_with(failure));
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(says).collect();
    let lines = lines.split_off(lines.len().saturating_sub(2));
    let words = lines
        .into_iter()
        .map(|line| presentable(line, MAX_TEXT_BYTES / 2))
        .collect::<Vec<_>>()
        .join("; ");
    (!words.is_empty()).then_some(words)
}
