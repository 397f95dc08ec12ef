//! What is kept of a way: in /var/lib, for whoever looks later.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{assess::Progress, evidence::MAX_TEXT_BYTES, stage::Stage, timeline::Timeline};
use crate::{clock::Now, health::bounded};

/// The version of the file.
const VERSION: u32 = 1;

/// How it ended, or stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Result {
    /// It is on its way.
    UnderWay,
    /// The node is of use.
    Bootstrapped,
    /// The deadline has passed.
    Late,
}

/// Who keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// `nodevigil bootstrap`.
    Command,
    /// The daemon, through the helper.
    Daemon,
}

/// A way, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The file's version.
    pub version: u32,
    /// Who wrote it.
    pub by: By,
    /// The kernel's word for this boot.
    #[serde(default)]
    pub boot_id: String,
    /// When it was written.
    pub at: Timestamp,
    /// How it ended, or stands.
    pub result: Result,
    /// Seconds of uptime at which it was begun.
    pub begun_secs: u64,
    /// Seconds that it may take.
    pub deadline_secs: u64,
    /// Each stage.
    pub stages: Vec<RecordedStage>,
    /// The stage that is stuck.
    pub stuck: Option<String>,
    /// Its cause: id and sentence.
    pub cause: Option<(String, String)>,
}

/// A stage, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStage {
    /// Its name.
    pub stage: String,
    /// Milliseconds of uptime at which it was seen reached.
    pub reached_millis: Option<u64>,
    /// Whether it was reached before the first look.
    pub before: bool,
    /// Whether it was waited for longer than it may be.
    #[serde(default)]
    pub late: bool,
    /// What is seen.
    pub seen: String,
}

impl Record {
    /// Of a way as it stands.
    pub fn new(by: By, result: Result, timeline: &Timeline, progress: &Progress, now: Now) -> Self {
        let stage = |stage: Stage| {
            let reached = timeline.reached(stage);
            RecordedStage {
                stage: stage.name().to_owned(),
                reached_millis: reached.map(|at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX)),
                before: timeline.was_before(stage),
                late: timeline.was_late(stage),
                seen: bounded(progress.get(stage).words(), MAX_TEXT_BYTES),
            }
        };
        Self {
            version: VERSION,
            by,
            boot_id: String::new(),
            at: now.wall,
            result,
            begun_secs: timeline.begun().as_secs(),
            deadline_secs: timeline.deadline().as_secs(),
            stages: Stage::ALL.into_iter().map(stage).collect(),
            stuck: progress.stuck.map(|stage| stage.name().to_owned()),
            cause: progress.cause.as_ref().map(|cause| {
                let message = bounded(&cause.message, 2 * MAX_TEXT_BYTES);
                (cause.id.clone(), message)
            }),
        }
    }
}
