//! What must survive a restart of the agent: what it last said of its Node, kept in the runtime folder.
//!
//! The folder is emptied at boot. A record of another boot, another machine (a copy of one that runs), another node name or
//! another Node of that name is not believed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    desired::Condition,
    health::{ConditionType, damping::Remembered},
    host::files::{FileError, Root, machine_id},
};

const FILE: &str = "ledger.json";
const VERSION: u32 = 1;
const MAX_BYTES: usize = 256 * 1024;

/// The record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    version: u32,
    /// The kernel's id of the boot in which it was written.
    boot_id: String,
    /// `/etc/machine-id`.
    #[serde(default)]
    machine_id: String,
    /// The Node's name, once it was known.
    pub node: Option<String>,
    /// Its UID, once it was seen.
    #[serde(default)]
    pub uid: Option<String>,
    /// What the Node should have had.
    pub conditions: Vec<Condition>,
    /// What damping remembered; its uptimes are of this boot, as the record is.
    #[serde(default)]
    pub remembered: Vec<(ConditionType, Remembered)>,
    /// The pauses whose end was warned of.
    #[serde(default)]
    pub warned: Vec<String>,
}

/// What is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The Node's name.
    pub node: String,
    /// Its UID, if it was seen.
    pub uid: Option<String>,
    /// What it should have.
    pub conditions: Vec<Condition>,
    /// What damping remembers.
    pub remembered: Vec<(ConditionType, Remembered)>,
    /// The pauses whose end was warned of.
    pub warned: Vec<String>,
}

/// Where the record lies, and in which boot we are.
#[derive(Debug, Clone)]
pub struct Place {
    root: Root,
    path: PathBuf,
    boot_id: String,
    machine_id: String,
}

impl Place {
    /// The record in `folder` (absolute, as on the host).
    pub fn new(root: Root, folder: &Path) -> Self {
        let boot_id = root
            .read_text("/proc/sys/kernel/random/boot_id", 64)
            .unwrap_or_default();
        Self {
            path: folder.join(FILE),
            boot_id: boot_id.trim().to_owned(),
            machine_id: machine_id(&root),
            root,
        }
    }

    /// The record of this boot, if there is one that can be read. A broken one is as good as none: the API has the
    /// same, and a check will run soon.
    pub fn load(&self) -> Option<Ledger> {
        let text = self.root.read_text(&self.path, MAX_BYTES).ok()?;
        let ledger: Ledger = serde_json::from_str(&text).ok()?;
        let is_ours = ledger.boot_id == self.boot_id && ledger.machine_id == self.machine_id;
        (ledger.version == VERSION && is_ours).then_some(ledger)
    }

    /// Forgets it all; fine if there is nothing.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(&self) -> Result<(), FileError> {
        self.root.remove(&self.path).map(|_| ())
    }

    /// Replaces the record.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn save(&self, kept: Kept) -> Result<(), FileError> {
        let ledger = Ledger {
            version: VERSION,
            boot_id: self.boot_id.clone(),
            machine_id: self.machine_id.clone(),
            node: Some(kept.node),
            uid: kept.uid,
            conditions: kept.conditions,
            remembered: kept.remembered,
            warned: kept.warned,
        };
        let text = serde_json::to_vec(&ledger).expect("a ledger has string keys only");
        self.root.write_atomically(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{desired::PublishedType, health::Status};

    #[test]
    fn a_record_is_believed_in_its_own_boot_of_its_own_machine_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        for path in ["/run/nodevigil", "/proc/sys/kernel/random", "/etc"] {
            root.create_dir_all(path).unwrap();
        }
        let put = |path: &str, text: &str| root.write_atomically(path, text.as_bytes()).unwrap();
        let boot = |machine: &str, id: &str| {
            put("/etc/machine-id", machine);
            put("/proc/sys/kernel/random/boot_id", id);
            Place::new(root.clone(), Path::new("/run/nodevigil"))
        };
        let condition = Condition {
            r#type: PublishedType::KubeletHealthy,
            status: Status::False,
            reason: "KubeletCrashed".to_owned(),
            message: "m".to_owned(),
            last_transition_time: Timestamp::UNIX_EPOCH,
        };
        let place = boot("m1\n", "one\n");
        assert_eq!(place.load(), None);
        let kept = Kept {
            node: "n1".to_owned(),
            uid: Some("u1".to_owned()),
            conditions: vec![condition.clone()],
            remembered: Vec::new(),
            warned: vec!["file".to_owned()],
        };
        place.save(kept).unwrap();
        let ledger = place.load().unwrap();
        assert_eq!(ledger.warned, ["file"]);
        assert_eq!(
            (
                ledger.node.as_deref(),
                ledger.uid.as_deref(),
                ledger.conditions
            ),
            (Some("n1"), Some("u1"), vec![condition])
        );
        assert_eq!(boot("m1\n", "two\n").load(), None);
        assert_eq!(
            boot("m2\n", "one\n").load(),
            None,
            "a copy of a machine that runs"
        );
        put("/run/nodevigil/ledger.json", "{half");
        assert_eq!(boot("m1\n", "one\n").load(), None);
    }
}
