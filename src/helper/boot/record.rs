//! The record of boots: what is known of this one and of the one before, in one small file that is replaced in one step.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Kept, in_seconds};
use crate::{
    clock::Now,
    health::bounded,
    helper::storage::OWN_FOLDER,
    host::files::{FileError, Root, machine_id},
};

const FILE_NAME: &str = "boot.json";
const VERSION: u32 = 1;

/// Two boots take less than a KiB.
const MAX_BYTES: usize = 16 * 1024;

/// A process's name has 15 bytes.
const MAX_VICTIM_BYTES: usize = 64;

/// One boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// The kernel's word for it.
    pub boot_id: String,
    /// When the record of it was begun.
    pub started: Timestamp,
    /// When it was written last: the host ran then.
    pub seen: Timestamp,
    /// When systemd began to take the host down.
    pub going_down: Option<Timestamp>,
    /// When the kernel last killed a process because the host had no memory left, and which.
    pub out_of_memory: Option<(Timestamp, String)>,
    /// Whether the end of the boot before it was asked for.
    #[serde(default)]
    pub asked: bool,
}

impl Boot {
    pub(super) fn out_of_memory(&mut self, victim: &str, at: Timestamp) {
        self.out_of_memory = Some((in_seconds(at), bounded(victim, MAX_VICTIM_BYTES)));
    }
}

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    machine: Machine,
    pub(super) this: Boot,
    last: Option<Boot>,
}

/// By what a machine is known: an image carries the record of the machine that it was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    /// `/etc/machine-id`.
    machine_id: String,
    /// What the firmware says, where it says anything: another one for each virtual machine, though their images have one
    /// machine id.
    product_uuid: Option<String>,
}

/// What lies there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Ours(Box<Record>),
    Foreign,
    Absent,
    Unreadable(String),
}

impl Record {
    /// The first of this machine.
    pub(super) fn begin(root: &Root, now: Now) -> Self {
        Self {
            version: VERSION,
            machine: Machine::read(root),
            this: Boot {
                boot_id: boot_id(root),
                started: in_seconds(now.wall),
                seen: in_seconds(now.wall),
                going_down: None,
                out_of_memory: None,
                asked: false,
            },
            last: None,
        }
    }

    /// What it says of the boot before this one, and the record from here on.
    pub(super) fn turned(self: Box<Self>, root: &Root, now: Now) -> (Kept, Self) {
        let mut record = *self;
        if record.this.boot_id != boot_id(root) {
            let next = Self::begin(root, now);
            record = Self {
                last: Some(record.this),
                ..next
            };
        }
        let kept = record.last.clone().map_or(Kept::Absent, Kept::Known);
        (kept, record)
    }

    pub(super) fn write(&self, root: &Root) -> Result<(), FileError> {
        let mut record = self.clone();
        record.this.seen = in_seconds(record.this.seen);
        record.this.going_down = record.this.going_down.map(in_seconds);
        let text = serde_json::to_vec(&record).expect("texts and numbers are always JSON");
        root.write_durably(path(), &text)
    }
}

impl Machine {
    fn read(root: &Root) -> Self {
        let text = |path: &str| {
            let text = root.read_text(path, 256).ok()?;
            let text = text.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        Self {
            machine_id: machine_id(root),
            product_uuid: text("/sys/class/dmi/id/product_uuid"),
        }
    }

    /// Whether both are one. One that has no name is known to be nobody.
    fn is(&self, other: &Self) -> bool {
        let differ = match (&self.product_uuid, &other.product_uuid) {
            (Some(one), Some(other)) => one != other,
            _ => false,
        };
        !self.machine_id.is_empty() && self.machine_id == other.machine_id && !differ
    }
}

fn path() -> PathBuf {
    Path::new(OWN_FOLDER).join(FILE_NAME)
}

fn boot_id(root: &Root) -> String {
    let text = root.read_text("/proc/sys/kernel/random/boot_id", 64);
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Reads it. Whatever lies there, it is no more than a boot whose end is not known.
pub(super) fn read(root: &Root) -> Read {
    let text = match root.read(path(), MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Read::Absent,
        Err(error) => return Read::Unreadable(error.to_string()),
    };
    let record: Record = match serde_json::from_slice(&text) {
        Ok(record) => record,
        // The content is not quoted.
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            return Read::Unreadable(format!(
                "{}: no record of boots (line {line}, column {column})",
                path().display()
            ));
        }
    };
    if record.version != VERSION {
        let (path, version) = (path(), record.version);
        return Read::Unreadable(format!(
            "{}: version {version}, wanted {VERSION}",
            path.display()
        ));
    }
    if record.machine.is(&Machine::read(root)) {
        Read::Ours(Box::new(record))
    } else {
        Read::Foreign
    }
}

/// The record, if it is one of this boot.
pub(super) fn of_this_boot(root: &Root) -> Option<Record> {
    match read(root) {
        Read::Ours(record) if record.this.boot_id == boot_id(root) => Some(*record),
        _ => None,
    }
}
