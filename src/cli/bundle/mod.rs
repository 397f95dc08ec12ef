//! `nodevigil bundle`: one archive for a support case, bounded in size and time, with the secrets taken out.
//!
//! In three steps: everything is read, each part on a thread of its own with a deadline; what the machine keeps secret is
//! learnt; then every part is made presentable (`mask`, `redact`) and written. Nothing but the manifest comes into the archive
//! by another way. A part that could not be had is named there, with why.

mod archive;
mod collect;
mod find;
mod journal;
mod mask;
mod parts;
mod reading;
mod redact;
mod secrets;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use self::{
    archive::Archive,
    collect::{Collector, Read},
    parts::Part,
};
use super::status::print;
use crate::{clock::Clock, host::files::Root};

/// Everything together.
const DEADLINE: Duration = Duration::from_mins(1);
/// Of that, what is left at least to make presentable what was read, and to write it.
const TO_PRESENT: Duration = Duration::from_secs(15);
/// Of that, to write it.
const TO_WRITE: Duration = Duration::from_secs(5);
/// All parts together, as they are in the archive.
const MAX_BYTES: usize = 8 << 20;
/// Of the Node's name in that of the archive.
const MAX_NODE_CHARS: usize = 63;
/// The version of the manifest.
const VERSION: u32 = 1;

/// Collect what a support case needs into one archive, without secrets
///
/// Writes a tar archive that only its owner can read: the daemon's status, what `check` and `doctor` find, the kubelet's unit
/// and configuration, the ends of the journal of kubelet, container runtime and nodevigil, the kernel's lines about its health,
/// and facts of the host. manifest.json says what is in it, what is not, and why. At most 8 MiB, within a minute.
///
/// Tokens, keys, passwords and the values of environment variables are left out, wherever they stand: look through it
/// before you hand it on all the same. What is too much to be looked through is left out as well. Run it as root: another user can read less, and the manifest says what was missed.
///
/// Exit code: 0 the archive is written, 1 it is not.
#[derive(Debug, Clone, clap::Args)]
#[command(max_term_width = 100)]
pub struct Bundle {
    /// Where to write it; - is standard output [default: nodevigil-bundle-NODE-TIME.tar in the current folder]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The root of another system, such as the mounted disk of a node that does not boot
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// As for `run`: read this file, or the *.toml of this folder, instead of the default places
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Vec<PathBuf>,
}

/// A text as it is in a bundle of a machine that keeps this secret, and what is secret in `credentials`; nothing, where that is not known.
#[doc(hidden)] // public for the fuzz target
pub fn redacted(secret: &str, credentials: &str, text: &str) -> String {
    let mut redactor = redact::Redactor::default();
    redactor.learn(secret);
    match redactor.learn_credentials(credentials) {
        Ok(()) => redactor.text(text),
        Err(_) => String::new(),
    }
}

/// What is in a bundle, and what is not.
#[derive(Debug, Serialize)]
struct Manifest {
    version: u32,
    nodevigil: &'static str,
    node: String,
    at: String,
    took_millis: u64,
    uid: u32,
    root: String,
    max_bytes: usize,
    max_secs: u64,
    redaction: Redaction,
    parts: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Redaction {
    /// Forms of secrets that were looked for by themselves, beside those that are known by name and looks.
    known: usize,
    /// There were more than can be looked for: what might quote one of them was left out.
    is_full: bool,
    /// Files with secrets that could not be read; what stands in them is known by name and looks alone.
    unread: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum State {
    Whole {
        bytes: usize,
    },
    /// Its beginning is not there.
    Cut {
        bytes: usize,
    },
    /// There is nothing to be had, which is no fault.
    Absent,
    Failed {
        why: String,
    },
}

impl Bundle {
    /// Collects and writes.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let begun = Clock.now();
        let root = std::path::absolute(&self.root).context("find --root")?;
        let is_live = super::check::is_this_host(&root);
        let mut collector = Collector::new(&root, begun.uptime + DEADLINE);
        say(&format!("collects, {} s at most", DEADLINE.as_secs()))?;
        let gathered = collector.gather(is_live, &root, &self.config)?;
        let node = node_name(&gathered, &collector.check);
        let stamp = begun.wall.strftime("%Y%m%dT%H%M%SZ").to_string();
        let name = format!("nodevigil-bundle-{node}-{stamp}");
        let mut files = Vec::new();
        let mut rows = Vec::new();
        for (part, read) in gathered {
            let (text, state) = if Archive::takes(&format!("{name}/{}", part.name)) {
                collector.present(&part, read)
            } else {
                let why = "no archive takes a file with that name".to_owned();
                (None, State::Failed { why })
            };
            files.extend(text.map(|text| (part.name.clone(), text)));
            rows.push(Row {
                name: part.name,
                state,
            });
        }
        let manifest = Manifest {
            version: VERSION,
            nodevigil: env!("CARGO_PKG_VERSION"),
            node,
            at: begun.wall.to_string(),
            took_millis: millis(Clock.now().uptime.saturating_sub(begun.uptime)),
            uid: nix::unistd::geteuid().as_raw(),
            root: root.display().to_string(),
            max_bytes: MAX_BYTES,
            max_secs: DEADLINE.as_secs(),
            redaction: Redaction {
                known: collector.redactor.known(),
                is_full: collector.redactor.is_full(),
                unread: std::mem::take(&mut collector.unread),
            },
            parts: rows,
        };
        let text = serde_json::to_string_pretty(&manifest).context("write the manifest")?;
        files.insert(0, ("manifest.json".to_owned(), text + "\n"));
        let modified = u64::try_from(begun.wall.as_second()).unwrap_or(0);
        let lengths = files.iter().map(|(_, text)| text.len());
        let mut archive = Archive::with_room_for(lengths);
        for (part, text) in files {
            archive.add(&format!("{name}/{part}"), text.as_bytes(), modified);
        }
        self.write(&archive.finish(), &name)?;
        say(&summary(&manifest))?;
        Ok(ExitCode::SUCCESS)
    }

    fn write(&self, bytes: &[u8], name: &str) -> anyhow::Result<()> {
        let path = match &self.output {
            Some(path) if path == Path::new("-") => {
                let mut out = io::stdout().lock();
                return out
                    .write_all(bytes)
                    .and_then(|()| out.flush())
                    .context("write the archive");
            }
            Some(path) => path.clone(),
            None => PathBuf::from(format!("{name}.tar")),
        };
        let path = std::path::absolute(&path).context("find --output")?;
        Root::default()
            .write_private(&path, bytes)
            .context("an archive is never written over another file; name one with --output")?;
        let text = format!(
            "nodevigil bundle: {}, {} KiB\n",
            path.display(),
            bytes.len() / 1024
        );
        Ok(print(&mut io::stderr().lock(), &text)?)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The Node's name as the daemon has it, else the host's; fit for a file's name.
fn node_name(gathered: &[(Part, Read)], check: &Value) -> String {
    let status = gathered.iter().find(|(part, _)| part.name == "status.json");
    let status: Option<Value> = status
        .and_then(|(_, read)| read.as_ref().ok())
        .and_then(|bytes| serde_json::from_slice(bytes).ok());
    let told = status.as_ref().and_then(|status| status["node"].as_str());
    let name = told
        .or(check["host"]["hostname"].as_str())
        .unwrap_or_default();
    let name: String = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c))
        .take(MAX_NODE_CHARS)
        .collect();
    let name = name.trim_matches('.');
    if name.is_empty() {
        "unknown".to_owned()
    } else {
        name.to_owned()
    }
}

/// How much there is, and what is not.
fn summary(manifest: &Manifest) -> String {
    let there = |row: &&Row| matches!(row.state, State::Whole { .. } | State::Cut { .. });
    let count = manifest.parts.iter().filter(there).count();
    let mut lines = vec![format!("{count} parts are in it")];
    for row in &manifest.parts {
        if let State::Failed { why } = &row.state {
            lines.push(format!("not in it: {}: {why}", row.name));
        }
    }
    if manifest.redaction.is_full {
        lines.push(
            "this node has more secrets than are looked for one by one: most parts were left out"
                .to_owned(),
        );
    }
    if manifest.uid != 0 {
        lines.push("you are not root, who can read more".to_owned());
    }
    lines.push(
        "secrets are taken out; look through it before you hand it on all the same".to_owned(),
    );
    lines.join("\nnodevigil bundle: ")
}

fn say(text: &str) -> io::Result<()> {
    print(
        &mut io::stderr().lock(),
        &format!("nodevigil bundle: {text}\n"),
    )
}
