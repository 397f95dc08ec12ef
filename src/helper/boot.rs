//! The verb `boot`: how the boot before this one ended, as far as the machine kept a trace of it, and the small record that
//! the helper keeps for the next.
//!
//! The traces: what the kernel left in pstore, what a hardware watchdog says of the last reset, and our own [`record`].
//! It lies on a disk, so all of it goes by the lane of the verb `storage`.

mod record;
mod traces;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{
    protocol::{Code, Refusal, Verb},
    storage::Disk,
};
use crate::{
    clock::{Clock, Now},
    host::files::Root,
};
pub use record::Boot;
use record::{Read, Record};

/// The verb.
pub const VERB: Verb = Verb {
    name: "boot",
    sentence: "Tells how the last boot ended, and keeps for the next what is told of this one.",
    deadline: Duration::from_secs(4),
};

/// How long an answer waits for the disk.
const WAIT: Duration = Duration::from_secs(3);

/// So often at most it is written down that the host still runs: what a boot that ends without a trace is known by. (It is
/// one page; 288 a day wear no disk.)
const KEEP_EVERY: Duration = Duration::from_mins(5);

/// What the agent asks, or tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootRequest {
    /// To be kept; without it, it is a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<BootNote>,
}

/// What is kept of this boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootNote {
    /// systemd is taking the host down.
    GoingDown,
    /// It is not, after all.
    StaysUp,
    /// The host ran out of memory, and the kernel killed that process.
    OutOfMemory {
        /// Its name.
        victim: String,
    },
}

/// What is known of the last boot's end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastBoot {
    /// Whether that was asked in this boot before.
    pub asked_before: bool,
    /// What our record says of it.
    pub record: Kept,
    /// What the kernel said when it panicked, from pstore.
    pub panic: Option<String>,
    /// The hardware watchdog that says that it reset the machine.
    pub watchdog: Option<String>,
}

/// Our record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// There is none: the first boot with us, or the disk is another one.
    #[default]
    Absent,
    /// It is another machine's: that of the image's parent.
    Foreign,
    /// It cannot be used.
    Unreadable {
        /// Why.
        why: String,
    },
    /// It is of the boot before this one.
    Known(Boot),
}

/// What the helper remembers of its record while it runs.
#[derive(Debug, Default)]
pub struct Memory {
    /// When it was written last (uptime, in seconds).
    written_at: AtomicU64,
    /// Whether the last boot's end was asked for: where nothing can be written, nothing else knows.
    asked: AtomicBool,
}

/// Answers within [`WAIT`], whatever the disk does.
pub fn answer(disk: &Arc<Disk>, root: &Root, request: &BootRequest) -> Result<LastBoot, Refusal> {
    let (own, root, note) = (Arc::clone(disk), root.clone(), request.note.clone());
    let done = disk.lane.run("the record of boots", WAIT, move || {
        let now = Clock.now();
        match note {
            None => ask(&own.memory, &root, now),
            Some(note) => {
                keep(&own.memory, &root, &note, now);
                LastBoot::default()
            }
        }
    });
    done.map_err(|stuck| Refusal::new(Code::Unreadable, format!("record of boots: {stuck}")))
}

/// The traces of the last boot; from here on the record is that of this one.
fn ask(memory: &Memory, root: &Root, now: Now) -> LastBoot {
    let (kept, mut record) = match record::read(root) {
        Read::Ours(record) => record.turned(root, now),
        Read::Foreign => (Kept::Foreign, Record::begin(root, now)),
        Read::Absent => (Kept::Absent, Record::begin(root, now)),
        Read::Unreadable(why) => (Kept::Unreadable { why }, Record::begin(root, now)),
    };
    let before = memory.asked.swap(true, Ordering::SeqCst) || record.this.asked;
    let since = match &kept {
        Kept::Known(boot) => Some(boot.started),
        _ => None,
    };
    let answer = LastBoot {
        asked_before: before,
        panic: traces::panic(root, since, now),
        watchdog: traces::watchdog(root),
        record: kept,
    };
    // A host that was to go down, and whose agent starts anew, has not gone down.
    (record.this.asked, record.this.going_down) = (true, None);
    write(memory, root, &record, now);
    answer
}

fn keep(memory: &Memory, root: &Root, note: &BootNote, now: Now) {
    let Some(mut record) = record::of_this_boot(root) else {
        return;
    };
    match note {
        BootNote::GoingDown => record.this.going_down = Some(now.wall),
        BootNote::StaysUp => record.this.going_down = None,
        BootNote::OutOfMemory { victim } => record.this.out_of_memory(victim, now.wall),
    }
    write(memory, root, &record, now);
}

/// Writes down that the host still runs, if that was long ago.
pub(super) fn keep_alive(memory: &Memory, root: &Root, now: Now) {
    let last = Duration::from_secs(memory.written_at.load(Ordering::Relaxed));
    if now.uptime < last + KEEP_EVERY && !last.is_zero() {
        return;
    }
    match record::of_this_boot(root) {
        Some(record) => write(memory, root, &record, now),
        // Not asked for yet, or not to be had: not looked for at each turn either.
        None => memory
            .written_at
            .store(now.uptime.as_secs(), Ordering::Relaxed),
    }
}

fn write(memory: &Memory, root: &Root, record: &Record, now: Now) {
    let last = memory
        .written_at
        .swap(now.uptime.as_secs().max(1), Ordering::Relaxed);
    let mut record = record.clone();
    record.this.seen = now.wall;
    if let Err(error) = record.write(root)
        && last == 0
    {
        warn!(%error, "how this boot ends will not be known: the record of boots cannot be written (said once)");
    }
}

/// Whole seconds, as they are told.
fn in_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests;
