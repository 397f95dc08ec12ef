//! The last configuration that the agent started with, kept for a start at which the one that is written cannot be used.
//!
//! It lies in the state folder, which outlives the boot: a configuration is often broken by whoever reboots the host. Another
//! machine's, as in an image that was made of one, is not used; nor one that was read from other places.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Loaded, Written, settle};
use crate::host::files::{FileError, Root, machine_id};

/// The file in the state folder.
const FILE: &str = "last-good-config.json";
const VERSION: u32 = 1;
/// What is longer is not kept. A configuration is a few kilobytes.
const MAX_BYTES: usize = 256 * 1024;

/// Why the configuration in use is not the one that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    /// What is wrong with the one that is written: file, line, key.
    pub why: String,
    /// Since when the one in use was the one that is written.
    pub kept_at: Timestamp,
}

impl fmt::Display for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, kept_at } = self;
        write!(
            f,
            "the configuration cannot be used ({why}): in use is the last one that could be, kept at {kept_at:.0}"
        )
    }
}

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u32,
    /// `/etc/machine-id`.
    machine_id: String,
    /// The places that were named on the command line.
    given: Vec<PathBuf>,
    kept_at: Timestamp,
    /// The files as they were written, in the order in which they were read.
    files: Vec<Written>,
}

/// Where the last good configuration is kept.
#[derive(Debug, Clone)]
pub struct Keeper {
    root: Root,
    path: PathBuf,
    machine_id: String,
    given: Vec<PathBuf>,
}

impl Keeper {
    /// In this folder; `given`: the places that were named on the command line.
    pub fn new(root: Root, folder: &Path, given: &[PathBuf]) -> Self {
        Self {
            path: folder.join(FILE),
            machine_id: machine_id(&root),
            given: given.to_vec(),
            root,
        }
    }

    /// What is used in the place of a configuration that was refused.
    ///
    /// # Errors
    /// The refusal itself, when nothing is kept that can be used.
    pub fn stand_in(&self, refused: ConfigError) -> Result<Loaded, ConfigError> {
        let Some(record) = self.read() else {
            return Err(refused);
        };
        let Ok(mut settings) = settle(&record.files) else {
            return Err(refused);
        };
        settings.stand_in = Some(StandIn {
            why: refused.to_string(),
            kept_at: record.kept_at,
        });
        Ok(Loaded {
            settings,
            files: record.files,
        })
    }

    /// Keeps a configuration that the agent has started with; writes nothing if it is kept already.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn keep(&self, files: &[Written], now: Timestamp) -> Result<(), FileError> {
        let is_kept = || {
            let kept = self.read();
            kept.is_some_and(|record| record.files == files)
        };
        if self.machine_id.is_empty() || is_kept() {
            return Ok(());
        }
        let record = Record {
            version: VERSION,
            machine_id: self.machine_id.clone(),
            given: self.given.clone(),
            kept_at: now,
            files: files.to_vec(),
        };
        let text = serde_json::to_vec(&record).expect("a record has string keys only");
        if text.len() > MAX_BYTES {
            // What was kept is not the last good one any more.
            return self.root.remove(&self.path).map(|_| ());
        }
        self.root.write_durably(&self.path, &text)
    }

    fn read(&self) -> Option<Record> {
        let text = self.root.read_text(&self.path, MAX_BYTES).ok()?;
        let record: Record = serde_json::from_str(&text).ok()?;
        let is_ours = record.version == VERSION
            && !self.machine_id.is_empty()
            && record.machine_id == self.machine_id
            && record.given == self.given;
        is_ours.then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Settings, read_all};

    const CONFIG: &str = "/etc/nodevigil/config.d/10-x.toml";
    const STATE: &str = "/var/lib/nodevigil";

    struct Host(
        Root,
        #[expect(dead_code, reason = "kept for as long")] tempfile::TempDir,
    );

    impl Host {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::new(dir.path());
            for path in ["/etc/nodevigil/config.d", STATE] {
                root.create_dir_all(path).unwrap();
            }
            let host = Self(root, dir);
            host.put("/etc/machine-id", "m1\n");
            host
        }

        fn put(&self, path: &str, text: &str) {
            self.0.write_atomically(path, text.as_bytes()).unwrap();
        }

        fn keeper(&self) -> Keeper {
            Keeper::new(self.0.clone(), Path::new(STATE), &[])
        }

        /// A start of the agent at that second: what it uses.
        fn start(&self, secs: i64) -> Result<Settings, String> {
            let keeper = self.keeper();
            let loaded = read_all(&self.0, &[])
                .and_then(|files| Ok((settle(&files)?, files)))
                .map(|(settings, files)| Loaded { settings, files })
                .or_else(|refused| keeper.stand_in(refused))
                .map_err(|error| error.to_string())?;
            if loaded.settings.stand_in.is_none() {
                let now = Timestamp::from_second(secs).unwrap();
                keeper.keep(&loaded.files, now).unwrap();
            }
            Ok(loaded.settings)
        }
    }

    #[test]
    fn the_last_good_one_stands_in_for_a_broken_one_and_is_not_replaced_by_it() {
        let host = Host::new();
        host.put(CONFIG, "[kubelet]\nunit = \"a.service\"\n");
        let good = host.start(10).unwrap();
        assert_eq!(
            (good.kubelet.unit.as_str(), &good.stand_in),
            ("a.service", &None)
        );
        host.put(CONFIG, "[kubelet]\nunti = \"b.service\"\n");
        for secs in [20, 30] {
            let settings = host.start(secs).unwrap();
            assert_eq!(settings.kubelet.unit, "a.service");
            let said = settings.stand_in.unwrap().to_string();
            assert!(
                said.contains("10-x.toml:2: kubelet.unti: unknown key")
                    && said.contains("kept at 1970-01-01T00:00:10Z"),
                "{said}"
            );
        }
        // Mended, it is used, and is the one that is kept.
        host.put(CONFIG, "[kubelet]\nunit = \"c.service\"\n");
        assert_eq!(host.start(40).unwrap().stand_in, None);
        host.put(CONFIG, "nonsense");
        assert_eq!(host.start(50).unwrap().kubelet.unit, "c.service");
    }

    #[test]
    fn without_one_of_this_machine_and_these_places_the_refusal_stands() {
        let host = Host::new();
        host.put(CONFIG, "nonsense");
        assert!(host.start(1).unwrap_err().contains("10-x.toml:1"));
        host.put(CONFIG, "");
        host.start(2).unwrap();
        host.put(CONFIG, "nonsense");
        host.start(3).unwrap();
        let elsewhere = Keeper {
            given: vec!["/etc/other.toml".into()],
            ..host.keeper()
        };
        assert!(elsewhere.read().is_none());
        host.put("/etc/machine-id", "m2\n");
        assert!(host.start(4).is_err(), "an image's");
        // An image whose machines have no id yet tells nobody apart: nothing is kept there.
        host.put("/etc/machine-id", "");
        assert!(host.start(5).is_err());
        host.put(CONFIG, "");
        host.start(6).unwrap();
        host.put("/etc/machine-id", "m1\n");
        let record = host.keeper().read().unwrap();
        assert_eq!(record.kept_at.as_second(), 2);
    }

    #[test]
    fn what_lies_there_may_be_anything() {
        let host = Host::new();
        host.put(CONFIG, "nonsense");
        let file = &format!("{STATE}/{FILE}");
        let other = "{\"version\":2,\"machine_id\":\"m1\",\"given\":[],\"kept_at\":\"2026-01-01T00:00:00Z\",\"files\":[]}";
        let refused = "{\"version\":1,\"machine_id\":\"m1\",\"given\":[],\"kept_at\":\"2026-01-01T00:00:00Z\",\
             \"files\":[{\"path\":\"/x\",\"text\":\"[gone]\\n\"}]}";
        let long = "x".repeat(MAX_BYTES + 1);
        for text in ["", "{", "[]", other, refused, &long] {
            host.put(file, text);
            let error = host.start(1).unwrap_err();
            assert!(error.contains("10-x.toml:1"), "{error}");
        }
        // One that is too long to be kept takes the one before with it.
        host.put(CONFIG, "");
        host.start(2).unwrap();
        host.put(CONFIG, &format!("# {}\n", "x".repeat(MAX_BYTES - 100)));
        host.start(3).unwrap();
        host.put(CONFIG, "nonsense");
        host.start(4).unwrap_err();
    }
}
