//! What must survive a restart of the agent: what it last said of its Node, kept in the runtime folder.
//!
//! The folder is emptied at boot, and a record of another boot or another node name is not believed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    desired::Condition,
    host::files::{FileError, Root},
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
    /// The Node's name, once it was known.
    pub node: Option<String>,
    /// What the Node should have had.
    pub conditions: Vec<Condition>,
}

/// Where the record lies, and in which boot we are.
#[derive(Debug, Clone)]
pub struct Place {
    root: Root,
    path: PathBuf,
    boot_id: String,
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
            root,
        }
    }

    /// The record of this boot, if there is one that can be read. A broken one is as good as none: the API has the
    /// same, and a check will run soon.
    pub fn load(&self) -> Option<Ledger> {
        let text = self.root.read_text(&self.path, MAX_BYTES).ok()?;
        let ledger: Ledger = serde_json::from_str(&text).ok()?;
        (ledger.version == VERSION && ledger.boot_id == self.boot_id).then_some(ledger)
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
    pub fn save(&self, node: String, conditions: Vec<Condition>) -> Result<(), FileError> {
        let ledger = Ledger {
            version: VERSION,
            boot_id: self.boot_id.clone(),
            node: Some(node),
            conditions,
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
    fn a_record_is_believed_in_its_own_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        root.create_dir_all("/run/nodevigil").unwrap();
        root.create_dir_all("/proc/sys/kernel/random").unwrap();
        let boot = |id: &str| {
            root.write_atomically("/proc/sys/kernel/random/boot_id", id.as_bytes())
                .unwrap();
            Place::new(root.clone(), Path::new("/run/nodevigil"))
        };
        let condition = Condition {
            r#type: PublishedType::KubeletHealthy,
            status: Status::False,
            reason: "KubeletCrashed".to_owned(),
            message: "m".to_owned(),
            last_transition_time: Timestamp::UNIX_EPOCH,
        };
        let place = boot("one\n");
        assert_eq!(place.load(), None);
        place
            .save("n1".to_owned(), vec![condition.clone()])
            .unwrap();
        let ledger = place.load().unwrap();
        assert_eq!(
            (ledger.node.as_deref(), ledger.conditions),
            (Some("n1"), vec![condition])
        );
        assert_eq!(boot("two\n").load(), None);
        root.write_atomically("/run/nodevigil/ledger.json", b"{half")
            .unwrap();
        assert_eq!(boot("one\n").load(), None);
    }
}
