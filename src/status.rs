//! The status file, `/run/nodevigil/status.json`: the daemon writes it, `nodevigil status` and whoever likes reads it.
//!
//! Reading is lenient (unknown fields are skipped, missing ones are empty, unknown words become `unknown`), so that a
//! daemon and a command line of neighbouring versions understand each other; a change that breaks readers raises
//! [`VERSION`].

mod error;
mod told;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use error::StatusError;
pub use told::{Events, MAX_NEWS, News, PublishedAs, Taints};

use crate::host::files::Root;

/// The version of the file's shape.
pub const VERSION: u64 = 1;

/// The file's name in the runtime directory.
pub const FILE_NAME: &str = "status.json";

/// The file is a few kilobytes; this bounds our memory, whatever lies there.
const MAX_BYTES: usize = 1024 * 1024;

/// The folder of the status file: the first of those in `env` (the value of `$RUNTIME_DIRECTORY`, which systemd
/// separates by colons), else `/run/nodevigil`.
pub fn runtime_dir(env: Option<&OsStr>) -> PathBuf {
    env.and_then(|dirs| std::env::split_paths(dirs).next())
        .filter(|dir| dir.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/run/nodevigil"))
}

/// All that the daemon says about itself and its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusFile {
    /// The file's shape: [`VERSION`].
    pub version: u64,
    /// When this file was written; the daemon does it on a change and once a minute.
    pub written_at: Timestamp,
    /// When the daemon started.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// The daemon's process id, by which one that has ended is told from one that writes nothing.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The daemon's version.
    #[serde(default)]
    pub agent_version: String,
    /// The Node's name, once known.
    #[serde(default)]
    pub node: Option<String>,
    /// As whom the daemon speaks to the API server.
    #[serde(default)]
    pub identity: Identity,
    /// How speaking to the API server goes.
    #[serde(default)]
    pub api: Api,
    /// Whether systemd can be asked over D-Bus.
    #[serde(default)]
    pub bus: Peer,
    /// Whether the privileged helper answers.
    #[serde(default)]
    pub helper: Peer,
    /// The kubelet that is watched.
    #[serde(default)]
    pub kubelet: Kubelet,
    /// Who keeps problems from being told, if anybody does.
    #[serde(default)]
    pub quiet: Vec<Quiet>,
    /// The conditions that the Node has or should have from us.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// What has happened lately and is no condition, the oldest first; at most [`MAX_NEWS`].
    #[serde(default)]
    pub news: Vec<News>,
    /// What asks for quiet for too long and is ignored: who, and since when.
    #[serde(default)]
    pub ignored_requests: Vec<String>,
    /// The reasons that `[reasons.X] as` tells as less than `False`, each with the word that stands there.
    #[serde(default)]
    pub turned_down: BTreeMap<String, String>,
    /// What is wrong with the configuration that is written, and which is used in its place; `None`: the written one is used.
    #[serde(default)]
    pub config_refused: Option<String>,
    /// Whether nothing is written, by `[kubernetes] publish = "none"`.
    #[serde(default)]
    pub shadow: bool,
    /// The taints of ours.
    #[serde(default)]
    pub taints: Taints,
    /// The Events so far.
    #[serde(default)]
    pub events: Events,
    /// Log lines lost since the start because the journal did not take them.
    #[serde(default)]
    pub log_lines_dropped: u64,
    /// Bytes of memory that are locked; `None` if that is not known.
    #[serde(default)]
    pub locked_bytes: Option<u64>,
    /// Whether the kernel calls the daemon when tasks begin to wait for memory; `None` if that is not known.
    #[serde(default)]
    pub stall_triggers: Option<bool>,
    /// Where the metrics are, if they are on a socket.
    #[serde(default)]
    pub metrics_socket: Option<PathBuf>,
}

/// As whom the daemon speaks to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// Which of the three ways.
    pub kind: IdentityKind,
    /// The kubeconfig's path, the user, or why there is none.
    pub detail: Option<String>,
}

/// The three ways to have an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityKind {
    /// The agent's own kubeconfig.
    Own,
    /// The kubelet's, through the helper.
    Kubelet,
    /// Standalone: nothing is published.
    None,
    /// Not known yet, or a word of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// How speaking to the API server goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Api {
    /// In a word.
    pub state: ApiState,
    /// When the API server last took a write or answered a read.
    pub last_success_at: Option<Timestamp>,
    /// What went wrong last, if it has not gone right since.
    pub last_error: Option<String>,
    /// Failures since the last success.
    pub failures: u64,
    /// By how many seconds this machine's clock is ahead of the API server's, up to two too many; what is published has the
    /// API server's time.
    #[serde(default)]
    pub clock_ahead_secs: Option<i64>,
}

/// Whether the API server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiState {
    /// The last request went well.
    Connected,
    /// The first request is under way.
    Connecting,
    /// The last request failed; the next one waits.
    Retrying,
    /// The API server answers, but has no Node of our name.
    NodeMissing,
    /// There is no identity: it is not tried.
    None,
    /// Not known yet, or a word of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Another program on this host that the daemon asks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    /// In a word.
    pub state: PeerState,
    /// Why it is not reached, or what it is.
    pub detail: Option<String>,
}

/// Whether a peer answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// It does.
    Ok,
    /// It does not, or does not in time.
    Unavailable,
    /// Not known yet, or a word of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The kubelet that is watched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kubelet {
    /// Its process, while there is one.
    pub pid: Option<u32>,
    /// Its unit, if systemd runs it.
    pub unit: Option<String>,
    /// What it does, in the watcher's words.
    pub state: String,
    /// How it is run, where that limits what can be known of it: as a child of another program, or inside one.
    pub carried: Option<String>,
    /// Where it is asked for its health, once known.
    pub healthz_url: Option<String>,
    /// Since when `state` has been so.
    pub since: Option<Timestamp>,
    /// When the client certificate expires that it shows to the API server, if that is known.
    pub client_certificate_expires_at: Option<Timestamp>,
    /// Whether that is soon or past.
    pub client_certificate_expires_soon: bool,
}

/// Somebody who keeps problems from being told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Quiet {
    /// How far.
    pub kind: QuietKind,
    /// Who, in words, with the end if it is known.
    pub by: String,
    /// Until when, if that is known.
    pub until: Option<Timestamp>,
}

/// How far problems are kept from being told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuietKind {
    /// By somebody's will: no condition becomes False.
    StandDown,
    /// For a moment: no condition flips.
    Hold,
    /// A word of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Its type, such as `KubeletHealthy`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: ConditionStatus,
    /// Its reason, in `CamelCase`.
    #[serde(default)]
    pub reason: String,
    /// How bad its reason is: `healthy`, `warning` (beside `True`: a hint), `unsure`, `degraded`, `failed`.
    #[serde(default)]
    pub severity: String,
    /// What a person should know.
    #[serde(default)]
    pub message: String,
    /// When `status` last changed.
    #[serde(default)]
    pub last_transition_time: Option<Timestamp>,
    /// When the API server last took it as it stands here; `None`: not yet.
    #[serde(default)]
    pub published_at: Option<Timestamp>,
    /// Under which types the Node has it, or should have it.
    #[serde(default)]
    pub published_as: Vec<PublishedAs>,
}

/// A condition's status, as Kubernetes spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// Good, for a condition under its own name.
    True,
    /// Bad: replacing the node is a sane answer if it lasts.
    False,
    /// Cannot tell.
    #[serde(other)]
    Unknown,
}

impl StatusFile {
    /// A file written now that knows nothing else; the daemon fills in the rest.
    pub fn new(written_at: Timestamp) -> Self {
        Self {
            version: VERSION,
            written_at,
            started_at: None,
            pid: None,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: None,
            identity: Identity::default(),
            api: Api::default(),
            bus: Peer::default(),
            helper: Peer::default(),
            kubelet: Kubelet::default(),
            quiet: Vec::new(),
            conditions: Vec::new(),
            news: Vec::new(),
            ignored_requests: Vec::new(),
            turned_down: BTreeMap::new(),
            config_refused: None,
            shadow: false,
            taints: Taints::default(),
            events: Events::default(),
            log_lines_dropped: 0,
            locked_bytes: None,
            stall_triggers: None,
            metrics_socket: None,
        }
    }

    /// Reads the file in the runtime directory `dir`.
    pub fn read(root: &Root, dir: &Path) -> Result<Self, StatusError> {
        Self::read_with_json(root, dir).map(|(status, _)| status)
    }

    /// As [`StatusFile::read`], and the JSON as it stands there, with fields that this version does not know.
    pub fn read_with_json(
        root: &Root,
        dir: &Path,
    ) -> Result<(Self, serde_json::Map<String, serde_json::Value>), StatusError> {
        let path = dir.join(FILE_NAME);
        let bytes = root.read(&path, MAX_BYTES).map_err(StatusError::File)?;
        let content = |problem: String| StatusError::Content {
            path: path.clone(),
            problem,
        };
        let json: serde_json::Map<_, _> = serde_json::from_slice(&bytes)
            .map_err(|error| content(format!("not a JSON object: {error}")))?;
        let found = json.get("version").and_then(serde_json::Value::as_u64);
        match found {
            None => return Err(content("version: missing, wants a number".to_owned())),
            Some(found) if found > VERSION => return Err(StatusError::TooNew { path, found }),
            Some(_) => {}
        }
        // From the text once more, and not from `json`, because only the text has lines.
        let status = serde_json::from_slice(&bytes).map_err(|error| content(error.to_string()))?;
        Ok((status, json))
    }

    /// Replaces the file in the runtime directory `dir`, which must be there.
    pub fn write(&self, root: &Root, dir: &Path) -> Result<(), StatusError> {
        let path = dir.join(FILE_NAME);
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|error| StatusError::Content {
            path: path.clone(),
            problem: error.to_string(),
        })?;
        bytes.push(b'\n');
        root.write_atomically(&path, &bytes)
            .map_err(StatusError::File)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "/run/nodevigil";

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::TempDir::new().unwrap();
        let root = Root::new(folder.path());
        root.create_dir_all(DIR).unwrap();
        (folder, root)
    }

    fn read(text: &str) -> Result<StatusFile, StatusError> {
        let (_folder, root) = root();
        let path = Path::new(DIR).join(FILE_NAME);
        root.write_atomically(path, text.as_bytes()).unwrap();
        StatusFile::read(&root, Path::new(DIR))
    }

    #[test]
    fn what_is_written_is_read() {
        let mut status = StatusFile::new("2026-11-21T09:00:00Z".parse().unwrap());
        status.node = Some("n1".to_owned());
        status.api.state = ApiState::NodeMissing;
        status.conditions.push(Condition {
            kind: "KubeletHealthy".to_owned(),
            status: ConditionStatus::False,
            reason: "KubeletCrashed".to_owned(),
            severity: "failed".to_owned(),
            message: "killed by signal 9".to_owned(),
            last_transition_time: Some(status.written_at),
            published_at: None,
            published_as: Vec::new(),
        });
        let (_folder, root) = root();
        status.write(&root, Path::new(DIR)).unwrap();
        assert_eq!(StatusFile::read(&root, Path::new(DIR)).unwrap(), status);
        let text = root.read_text("/run/nodevigil/status.json", 9999).unwrap();
        assert!(
            text.contains("\"state\": \"node-missing\"") && text.ends_with("}\n"),
            "{text}"
        );
    }

    #[test]
    fn another_version_of_the_same_shape_is_understood() {
        let status = read(
            r#"{"version": 1, "written_at": "2026-11-21T09:00:00Z", "later": {"x": 1},
                "api": {"state": "sleeping", "mood": "good"},
                "conditions": [{"type": "KubeletHealthy", "status": "Perhaps"}]}"#,
        )
        .unwrap();
        assert_eq!(status.api.state, ApiState::Unknown);
        assert_eq!(status.conditions[0].status, ConditionStatus::Unknown);
        assert_eq!(status.node, None);
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        insta::assert_snapshot!(
            read(r#"{"version": 2, "nothing": "known"}"#).unwrap_err(),
            @"status file /run/nodevigil/status.json: version 2, and this nodevigil knows up to 1; use the nodevigil that runs as the daemon"
        );
        insta::assert_snapshot!(
            read("{\"version\": 1,\n\"written_at\": 3}").unwrap_err(),
            @"status file /run/nodevigil/status.json: invalid type: integer `3`, expected a timestamp string at line 2 column 15; restart nodevigil.service, which writes it anew"
        );
        insta::assert_snapshot!(read("[]").unwrap_err(), @"status file /run/nodevigil/status.json: not a JSON object: invalid type: sequence, expected a map at line 1 column 0; restart nodevigil.service, which writes it anew");
        insta::assert_snapshot!(read("{}").unwrap_err(), @"status file /run/nodevigil/status.json: version: missing, wants a number; restart nodevigil.service, which writes it anew");
        let (_folder, root) = root();
        assert!(
            StatusFile::read(&root, Path::new(DIR))
                .unwrap_err()
                .is_not_found()
        );
    }

    #[test]
    fn the_folder_is_the_first_that_systemd_names() {
        let dir = |env: &str| runtime_dir(Some(OsStr::new(env)));
        assert_eq!(dir("/run/x"), Path::new("/run/x"));
        assert_eq!(dir("/run/x:/run/y"), Path::new("/run/x"));
        assert_eq!(dir(""), Path::new(DIR));
        assert_eq!(runtime_dir(None), Path::new(DIR));
    }
}
