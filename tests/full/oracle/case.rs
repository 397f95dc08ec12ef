//! A tree with a unit in it, and what a real systemd made of it: what is generated, compared, shrunk and recorded.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubelet_config::kubelet::tree::MemoryTree;
use serde::{Deserialize, Serialize};

/// A tree and the unit in it that is asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Case {
    /// The seed it was generated from.
    pub(crate) seed: u64,
    /// The ingredients that went into it; what is left of it may have lost some.
    pub(crate) ingredients: Vec<String>,
    /// The unit, by the name that is asked for.
    pub(crate) unit: String,
    /// Its files, by their paths.
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// What lies at a path. There are no FIFOs: systemd opens them, and PID 1 hangs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A file of text.
    File(String),
    /// A file that is not UTF-8, in base64.
    Bytes(String),
    /// A symbolic link.
    Link(String),
    /// An empty directory.
    Folder,
}

impl Entry {
    /// A file with this content.
    pub(crate) fn file(content: impl Into<Vec<u8>>) -> Self {
        match String::from_utf8(content.into()) {
            Ok(text) => Self::File(text),
            Err(error) => Self::Bytes(STANDARD.encode(error.as_bytes())),
        }
    }

    /// The content of a file.
    pub(crate) fn content(&self) -> Option<Vec<u8>> {
        match self {
            Self::File(text) => Some(text.clone().into_bytes()),
            Self::Bytes(text) => STANDARD.decode(text).ok(),
            Self::Link(_) | Self::Folder => None,
        }
    }
}

/// The machine that the real systemd ran on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct World {
    /// systemd's major version.
    pub(crate) version: u32,
    /// Its host's name.
    pub(crate) hostname: String,
    /// `/etc/machine-id`.
    pub(crate) machine_id: String,
    /// The kernel's boot id, as 32 digits.
    pub(crate) boot_id: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// `/etc/os-release`.
    pub(crate) os_release: String,
    /// The output of `systemctl show-environment`.
    pub(crate) environment: BTreeMap<String, String>,
}

/// The result of the real systemd for a unit, and what the process got.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Said {
    /// `Id`.
    pub(crate) id: String,
    /// `Names`, sorted.
    pub(crate) names: Vec<String>,
    /// `LoadState`; none where systemctl could not show the unit, since there are bytes in it that are not UTF-8. The
    /// names and the paths are then not known either.
    pub(crate) load_state: Option<String>,
    /// `FragmentPath`.
    pub(crate) fragment: String,
    /// `DropInPaths`.
    pub(crate) dropins: Vec<String>,
    /// `Result`, after the start.
    pub(crate) result: String,
    /// Whether systemd came as far as to execute the program, and could not: there is none, or no such user.
    pub(crate) not_executed: bool,
    /// The process, if it came to one.
    pub(crate) process: Option<Got>,
}

/// What a process got; bytes that are not UTF-8 show as `U+FFFD`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Got {
    /// Its argument list.
    pub(crate) argv: Vec<String>,
    /// Its environment.
    pub(crate) environment: BTreeMap<String, String>,
}

/// A case with its result, as it is recorded.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    /// Where the real systemd ran.
    pub(crate) world: World,
    /// The tree.
    pub(crate) case: Case,
    /// The result.
    pub(crate) said: Said,
}

impl Case {
    /// The tree in memory, on a host like the one where the real systemd ran.
    pub(crate) fn tree(&self, world: &World) -> MemoryTree {
        let host = MemoryTree::new()
            .link("/lib", "usr/lib")
            .link("/bin", "usr/bin")
            .file("/usr/bin/bash", "")
            .file("/usr/bin/sh", "")
            .file("/etc/hostname", format!("{}\n", world.hostname))
            .file("/etc/machine-id", format!("{}\n", world.machine_id))
            .file("/proc/sys/kernel/osrelease", format!("{}\n", world.kernel))
            .file("/etc/os-release", world.os_release.clone());
        self.entries.iter().fold(host, |tree, (path, entry)| match entry {
            Entry::Link(target) => tree.link(path, target),
            Entry::Folder => tree.directory(path),
            Entry::File(_) | Entry::Bytes(_) => tree.file(path, entry.content().unwrap_or_default()),
        })
    }

    /// The tree for a person to read.
    pub(crate) fn print(&self) -> String {
        let mut lines = vec![format!("unit {}, seed {}", self.unit, self.seed)];
        for (path, entry) in &self.entries {
            lines.push(match entry {
                Entry::Link(target) => format!("-- {path} -> {target}"),
                Entry::Folder => format!("-- {path}/"),
                Entry::File(_) | Entry::Bytes(_) => format!("-- {path}"),
            });
            let content = entry.content().unwrap_or_default();
            let content = content.split_inclusive(|byte| *byte == b'\n');
            lines.extend(content.map(|line| format!("   {}", line.escape_ascii())));
        }
        lines.join("\n") + "\n"
    }
}

impl Record {
    /// Reads the tree of a recorded case.
    pub(crate) fn case(path: &Path) -> Result<Case> {
        let text = std::fs::read(path).with_context(|| path.display().to_string())?;
        let mut record: serde_json::Value = serde_json::from_slice(&text)?;
        serde_json::from_value(record["case"].take()).with_context(|| path.display().to_string())
    }
}
