//! The verb `journal`: the kubelet's own last error line of one run of its unit, so that nobody need log in to read it.
//!
//! The journal's files are read where they lie (`file`), without a program and with bounds; what is found is chosen and
//! made presentable by `words`. It tells one line, of a kubelet's unit alone, without secrets.

mod file;
mod words;

use std::{io, os::unix::fs::FileExt, path::PathBuf, time::Duration};

use file::{Entry, JournalFile, Wanted};
use serde::{Deserialize, Serialize};

use super::protocol::{Code, Refusal, Verb};
use crate::host::files::Root;

/// The verb.
pub const VERB: Verb = Verb {
    name: "journal",
    sentence: "Tells a kubelet's own last error line of one run of its unit, without secrets.",
    deadline: Duration::from_secs(2),
};

/// Where journald keeps its files: on disk, else in memory.
const FOLDERS: [&str; 2] = ["/var/log/journal", "/run/log/journal"];
/// RKE2 gives its kubelet a log of its own.
const RKE2_LOG: &str = "/var/lib/rancher/rke2/agent/logs/kubelet.log";
/// As much of the end of that log is looked at.
const LOG_TAIL_BYTES: u64 = 64 * 1024;
/// Lines that are looked at, from the last one back: a panic's own line stands before what every goroutine was at.
const MAX_LINES: usize = 400;
/// A line that was said so long before the last one has nothing to do with the end.
const LAST_US: u64 = 30 * 1_000_000;
/// The longest line that is looked at.
const MAX_LINE_BYTES: usize = 1024;
/// A machine's id, a run's id: 128 bits in hexadecimal.
const ID_CHARS: usize = 32;

const MESSAGE: &str = "MESSAGE";
/// Any of these says whose line it is. (A process that ends at once leaves journald no time to read its name.)
const OWNERS: [&str; 3] = ["_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER", "_COMM"];
const WANTED: Wanted<'_> = Wanted {
    names: &[MESSAGE, OWNERS[0], OWNERS[1], OWNERS[2]],
    max_field_bytes: MAX_LINE_BYTES,
    max_entries: MAX_LINES,
};
/// How the names of a kubelet's units and programs begin; `.service` and paths aside.
const KUBELETS: [&str; 6] = ["kubelet", "kubelite", "k3s", "k0s", "rke2", "hyperkube"];

/// The end of what a kubelet said: one line, without time and thread, without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastWords {
    /// Its last line that says that something failed, else its last line.
    pub line: Option<String>,
    /// Whether that line says that something failed.
    pub is_error: bool,
    /// Whether a later line is there that the journal has compressed, as it does with long ones, and so was not read.
    pub compressed: bool,
}

/// Answers for one run of the kubelet's unit, by systemd's id of it, or for RKE2's kubelet.
pub fn answer(root: &Root, invocation: Option<&str>, rke2: bool) -> Result<LastWords, Refusal> {
    if rke2 {
        return from_log(root).map_err(|error| unreadable(RKE2_LOG, &error));
    }
    let is_id = |id: &&str| id.len() == ID_CHARS && id.bytes().all(|b| b.is_ascii_hexdigit());
    let Some(id) = invocation.filter(is_id) else {
        let message = "journal: wanted the unit's InvocationID, 32 hexadecimal digits";
        return Err(Refusal::new(Code::BadRequest, message));
    };
    let field = format!("_SYSTEMD_INVOCATION_ID={}", id.to_ascii_lowercase());
    let mut trouble = None;
    for path in files(root) {
        match from_journal(root, &path, field.as_bytes()) {
            Ok(Some(words)) => return Ok(words),
            Ok(None) => {}
            Err(error) => trouble = Some((path, error)),
        }
    }
    match trouble {
        Some((path, error)) => Err(unreadable(&path.display().to_string(), &error)),
        None => Ok(LastWords::default()),
    }
}

fn unreadable(path: &str, error: &io::Error) -> Refusal {
    let message = format!("read {path}: {error}; read it with journalctl");
    Refusal::new(Code::Unreadable, message)
}

/// The journal's file that is written now and the one before it, of each folder.
pub fn files(root: &Root) -> Vec<PathBuf> {
    let Ok(machine_id) = root.read_text("/etc/machine-id", 64) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for folder in FOLDERS {
        let folder = PathBuf::from(folder).join(machine_id.trim());
        let names = root.list(&folder).unwrap_or_default();
        if names.iter().any(|name| name == "system.journal") {
            files.push(folder.join("system.journal"));
        }
        // system@ID-NUMBER-TIME.journal
        let archived = names
            .into_iter()
            .filter(|name| name.starts_with("system@") && name.ends_with(".journal"));
        let time = |name: &String| name.rsplit('-').next().map(str::to_owned);
        files.extend(archived.max_by_key(time).map(|name| folder.join(name)));
    }
    files
}

/// `None` if the file holds nothing of that run.
fn from_journal(root: &Root, path: &PathBuf, field: &[u8]) -> io::Result<Option<LastWords>> {
    let file = root.open(path).map_err(|error| error.source)?;
    words_of(file, field)
}

/// The same of a file that is open.
#[doc(hidden)] // public for the fuzz target
pub fn words_of(file: impl FileExt, field: &[u8]) -> io::Result<Option<LastWords>> {
    let journal = JournalFile::open(file)?;
    let mut choice = Choice::default();
    let is_there = journal.entries_with(field, WANTED, |entry| choice.weigh(&entry))?;
    Ok(is_there.then(|| choice.words()))
}

fn from_log(root: &Root) -> io::Result<LastWords> {
    let file = root.open(RKE2_LOG).map_err(|error| error.source)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(LOG_TAIL_BYTES);
    let mut bytes = vec![0; usize::try_from(length - start).unwrap_or(0)];
    file.read_exact_at(&mut bytes, start)?;
    Ok(words_in(&String::from_utf8_lossy(&bytes)))
}

/// Those of a log in plain text.
#[doc(hidden)] // public for the fuzz target
pub fn words_in(text: &str) -> LastWords {
    let mut choice = Choice::default();
    let mut lines = text.lines().rev().take(MAX_LINES);
    let _ = lines.find(|line| choice.line(line));
    choice.words()
}

/// The last line, and the last that says that something failed.
#[derive(Debug, Default)]
struct Choice {
    last_us: Option<u64>,
    last: Option<String>,
    error: Option<String>,
    /// A line that is compressed came after whatever was found.
    compressed: bool,
}

impl Choice {
    /// Takes the next older entry in; `true` if no more are wanted.
    fn weigh(&mut self, entry: &Entry) -> bool {
        let last_us = *self.last_us.get_or_insert(entry.monotonic_us);
        if last_us.saturating_sub(entry.monotonic_us) > LAST_US {
            return true;
        }
        if !OWNERS
            .iter()
            .any(|owner| entry.field(owner).is_some_and(is_kubelets))
        {
            return false;
        }
        let Some(message) = entry.field(MESSAGE) else {
            self.compressed |= entry.compressed && self.error.is_none();
            return false;
        };
        self.line(&String::from_utf8_lossy(message))
    }

    fn line(&mut self, line: &str) -> bool {
        let line = line.trim();
        // k0s puts the lines of all that it runs into one journal.
        let others = line.contains(" component=") && !line.contains(" component=kubelet");
        if line.is_empty() || others {
            return false;
        }
        if words::is_error(line) {
            self.error = Some(words::shown(line));
            return true;
        }
        if self.last.is_none() && !self.compressed {
            self.last = Some(words::shown(line));
        }
        false
    }

    fn words(self) -> LastWords {
        LastWords {
            is_error: self.error.is_some(),
            line: self.error.or(self.last),
            compressed: self.compressed,
        }
    }
}

/// Whether a unit's or a program's name is a kubelet's, or of what carries one.
fn is_kubelets(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let is_part = |part: &str| KUBELETS.iter().any(|kubelet| part.starts_with(kubelet));
    // snap.microk8s.daemon-kubelite.service
    name.split(['.', '-', '/']).any(is_part)
}

#[cfg(test)]
mod tests;
