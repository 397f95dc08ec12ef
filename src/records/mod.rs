//! Records: the state of the host when a problem began, kept where it outlives the process, the boot and, if asked, the machine.
//!
//! A record has its name before it exists, because the condition's message has it. The agent then writes what it has in memory to /run; a
//! child adds what it reads of the host ([`collect`]) and moves the record to the disk ([`store`]). So whatever hangs, a record is left.
//!
//! Uses `host`, `settings` and `condition`. The agent's loop hands transitions over and waits for nothing.

pub mod collect;
pub mod last_boot;
mod names;
pub mod record;
pub mod store;
pub mod upload;

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use self::names::RecordNames;
use self::record::{ConditionPart, Record};
use crate::condition::Condition;
use crate::host::clock::{Now, uptime};
use crate::host::{blocking, child};
use crate::settings::RecordSettings;
use crate::timeline::Timeline;
use crate::trouble::Troubles;

/// The hidden subcommand that completes a record.
pub const SUBCOMMAND: &str = "complete-record";
/// The child's own deadlines are shorter, but it cannot exit while one of its threads waits for a dead disk.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A serial console can hang.
const CONSOLE_TIMEOUT: Duration = Duration::from_secs(2);
/// The condition leaves the host first, and journald receives the last lines of the process.
const START_AFTER: Duration = Duration::from_millis(250);
/// Records that wait; an hour has no more than twenty.
const WAITING: usize = 8;

/// Names the records of problems, and begins them.
#[derive(Debug)]
pub struct Recorder {
    pub names: RecordNames,
    timeline: Timeline,
    records: mpsc::Sender<Record>,
    /// How the boot before this one ended, once that is known.
    pub last_boot: Option<String>,
}

impl Recorder {
    /// A recorder, and the task that completes and uploads what it begins; without one if the settings have no records.
    pub fn new(
        settings: RecordSettings,
        timeline: Timeline,
        troubles: Troubles,
    ) -> (Self, impl Future<Output = Infallible>) {
        let (records, received) = mpsc::channel(WAITING);
        let recorder = Self { names: RecordNames::new(settings.enabled), timeline, records, last_boot: None };
        (recorder, run(settings, received, troubles))
    }

    /// Notes a transition in the timeline.
    pub fn transition(&self, to: &Condition) {
        let text = format!("{} ({}): {}", to.status.name(), to.reason, to.message);
        self.timeline.note(to.kind.name(), &text, uptime());
    }

    /// Begins the records that were named since the last call: writes to /run what is known. What finds the queue full is not completed.
    pub fn begin(&mut self, conditions: &[Condition], node: &str, now: Now) {
        for (name, kind) in std::mem::take(&mut self.names.new) {
            let Some(condition) = conditions.iter().find(|condition| condition.kind == kind) else { continue };
            let mut record = Record {
                conditions: conditions.iter().map(ConditionPart::from).collect(),
                timeline: self.timeline.entries(now),
                units: self.timeline.units(kind, now.uptime),
                ..Record::new(name, node, condition, now.wall)
            };
            let findings = self.timeline.findings().ok_or_else(|| "there has been no check yet".to_owned());
            record.add("check", findings.map(Value::from));
            record.mask();
            // In memory, so that it is left whatever becomes of those that wait.
            if let Err(error) = store::write(Path::new(store::VOLATILE), &record) {
                tracing::warn!("cannot write the record {}: {error}", record.name);
            } else if let Err(error) = self.records.try_send(record) {
                tracing::warn!("a record stays incomplete, because others wait: {error}");
            }
        }
    }
}

/// Completes one record at a time, and uploads them if the settings say where to.
async fn run(settings: RecordSettings, mut records: mpsc::Receiver<Record>, troubles: Troubles) -> Infallible {
    let completed = Notify::new();
    let complete = async {
        while let Some(record) = records.recv().await {
            sleep(START_AFTER).await;
            complete_one(&record).await;
            completed.notify_one();
        }
        std::future::pending().await
    };
    tokio::select! {
        never = complete => never,
        never = upload::run(&settings, &troubles, &completed) => never,
    }
}

/// Has a child read the rest. If the record does not get to the disk, says so on the console too.
async fn complete_one(record: &Record) {
    let name = &record.name;
    let completed: Result<Result<(), String>, String> = child::run_own(&[SUBCOMMAND, name], TIMEOUT).await;
    match completed.flatten() {
        Ok(()) => tracing::info!("wrote a record of the problem: nodevigil records show {name}"),
        Err(why) => {
            let line = store::not_on_disk(record, &why);
            tracing::warn!("{line}");
            let say = move || store::say_on_console(&line);
            blocking::run("writing to the console", CONSOLE_TIMEOUT, say).await.ok();
        }
    }
}
