//! Reads every part, each on a thread of its own, learns what is secret, and makes the parts presentable.

use std::{
    io,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    MAX_BYTES, State, TO_PRESENT, TO_WRITE, mask,
    parts::{self, Form, Lacking, MAX_PART_BYTES, Part},
    reading,
    redact::Redactor,
    say, secrets,
};
use crate::{clock::Clock, host::files::Root};

/// What was read of a part.
pub(super) type Read = Result<Vec<u8>, Lacking>;

/// All parts together, as they are read: each is held until the last one has taught what is secret.
const MAX_READ_BYTES: usize = 10 << 20;

/// Reads and makes presentable.
pub(super) struct Collector {
    root: Root,
    /// When the archive has to be written.
    end: Duration,
    pub(super) redactor: Redactor,
    /// So much more is read.
    unread_bytes: usize,
    /// So much fits in.
    left: usize,
    /// What `check` found.
    pub(super) check: Value,
    /// Files with secrets that could not be read.
    pub(super) unread: Vec<String>,
}

impl Collector {
    pub(super) fn new(root: &Path, end: Duration) -> Self {
        Self {
            root: Root::new(root),
            end,
            redactor: Redactor::default(),
            unread_bytes: MAX_READ_BYTES,
            left: MAX_BYTES,
            check: Value::Null,
            unread: Vec::new(),
        }
    }

    /// Reads every part, and learns what is secret.
    pub(super) fn gather(
        &mut self,
        is_live: bool,
        root: &Path,
        config: &[PathBuf],
    ) -> anyhow::Result<Vec<(Part, Read)>> {
        let check = parts::check(root, config);
        say("check")?;
        let read = self.read(&check);
        let found = read.as_ref().ok();
        let found = found.and_then(|bytes| serde_json::from_slice(bytes).ok());
        self.check = found.unwrap_or_default();
        for source in secrets::sources(&self.root, &self.check) {
            let (root, path) = (self.root.clone(), source.path.clone());
            let limit = secrets::MAX_FILE_BYTES;
            let read = self.in_time(secrets::DEADLINE, move || {
                reading::read_file(&root, &path, limit)
            });
            match read {
                Ok(bytes) => {
                    if let Err(why) = secrets::learn(&mut self.redactor, &source, &bytes) {
                        self.miss(&source.path, &why);
                    }
                }
                Err(Lacking::Absent) => {}
                Err(Lacking::Failed(why)) => self.miss(&source.path, &why),
            }
        }
        mask::findings(&mut self.check, &mut self.redactor);
        let mut gathered = vec![(check, read)];
        for part in parts::all(&self.root, is_live, config, &self.check) {
            if part.from.starts_a_program() {
                say(&part.name)?;
            }
            let read = self.read(&part);
            if let (Form::Environment | Form::KubeletConfiguration, Ok(bytes)) = (part.form, &read)
            {
                // For what it teaches: parts that came before may quote it.
                self.masked(&part, bytes).ok();
            }
            gathered.push((part, read));
        }
        Ok(gathered)
    }

    /// A file with secrets that are not known.
    fn miss(&mut self, path: &Path, why: &str) {
        self.unread.push(format!("{}: {why}", path.display()));
    }

    fn read(&mut self, part: &Part) -> Read {
        let (from, root) = (part.from.clone(), self.root.clone());
        let bytes = self.in_time(from.deadline(), move || from.read(&root))?;
        let most = part.max_bytes().min(self.unread_bytes);
        if bytes.len() > most {
            let length = bytes.len();
            return Err(Lacking::Failed(format!(
                "too long: {length} bytes, and {most} at most are looked through here"
            )));
        }
        self.unread_bytes -= bytes.len();
        Ok(bytes)
    }

    /// What `work` gives, on a thread of its own: one that hangs is left behind.
    fn in_time(&self, deadline: Duration, work: impl FnOnce() -> Read + Send + 'static) -> Read {
        let left = self.end.saturating_sub(TO_PRESENT + Clock.now().uptime);
        if left.is_zero() {
            return Err(Lacking::Failed("no time was left for it".to_owned()));
        }
        let (answer, answers) = mpsc::channel();
        thread::spawn(move || answer.send(work()).ok());
        answers
            .recv_timeout(deadline.min(left))
            .unwrap_or_else(|_| {
                let why = format!("not had within {} s: it may hang", deadline.as_secs());
                Err(Lacking::Failed(why))
            })
    }

    /// What may be shown of a part, and what is said of it.
    pub(super) fn present(&mut self, part: &Part, read: Read) -> (Option<String>, State) {
        match self.presented(part, read) {
            Ok((text, state)) => (Some(text), state),
            Err(Lacking::Absent) => (None, State::Absent),
            Err(Lacking::Failed(why)) => {
                let why = self.redactor.text(&why);
                (None, State::Failed { why })
            }
        }
    }

    fn presented(&mut self, part: &Part, read: Read) -> Result<(String, State), Lacking> {
        let bytes = read?;
        let cannot = |why: &str| Err(Lacking::Failed(why.to_owned()));
        if self.redactor.is_full() && !part.is_plain() {
            return cannot("more secrets are on this node than can be looked for: it may hold one");
        }
        if self.left == 0 {
            return cannot("no room: the bundle is full");
        }
        if Clock.now().uptime + TO_WRITE >= self.end {
            return cannot("no time was left to look for secrets in it");
        }
        let masked = self.masked(part, &bytes).map_err(Lacking::Failed)?;
        let mut text = match masked {
            Masked::Text(text) => self.redactor.text(&text),
            Masked::Json(mut value) => {
                self.redactor.json(&mut value);
                pretty(&value).map_err(Lacking::Failed)?
            }
        };
        let room = self.left.min(MAX_PART_BYTES);
        let is_cut = text.len() > room;
        if is_cut && part.form != Form::Text {
            return Err(Lacking::Failed(format!("no room: {} bytes", text.len())));
        }
        if is_cut {
            // The end of a log tells most.
            let from = text.ceil_char_boundary(text.len() - room);
            text.drain(..from);
        }
        self.left -= text.len();
        let bytes = text.len();
        let state = if is_cut {
            State::Cut { bytes }
        } else {
            State::Whole { bytes }
        };
        Ok((text, state))
    }

    /// A part without what its form tells to be secret.
    fn masked(&mut self, part: &Part, bytes: &[u8]) -> Result<Masked, String> {
        let text = String::from_utf8_lossy(bytes);
        let variables = &self.check["variables"];
        let shown = |name: &str| {
            let row = variables.get(name);
            let is_referenced = row.is_some_and(|row| row.get("referenced_at").is_some());
            mask::may_be_shown(name, is_referenced)
        };
        let json = || {
            let value: Result<Value, _> = serde_json::from_slice(bytes);
            value.map_err(|error| format!("is no JSON that can be read: {error}"))
        };
        Ok(match part.form {
            Form::Text => Masked::Text(text.into_owned()),
            Form::Json => Masked::Json(json()?),
            Form::Findings => {
                let mut value = json()?;
                mask::findings(&mut value, &mut self.redactor);
                Masked::Json(value)
            }
            Form::Toml => Masked::Json(mask::toml(&text)?),
            Form::KubeletConfiguration => {
                Masked::Text(mask::kubelet_configuration(&text, &mut self.redactor))
            }
            Form::Unit => Masked::Text(mask::unit(&text, &shown)),
            Form::Environment => Masked::Text(mask::environment(&text, &mut self.redactor, &shown)),
        })
    }
}

/// JSON for people, as long as a part may be: where it is nested deeply, most of it would be blanks.
fn pretty(value: &Value) -> Result<String, String> {
    struct Bounded(Vec<u8>);
    impl io::Write for Bounded {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.len() + bytes.len() > MAX_PART_BYTES {
                return Err(io::Error::other(format!(
                    "no room: more than {MAX_PART_BYTES} bytes"
                )));
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut text = Bounded(Vec::new());
    let written = serde_json::to_writer_pretty(&mut text, value);
    written.map_err(|error| error.to_string())?;
    text.0.push(b'\n');
    String::from_utf8(text.0).map_err(|error| error.to_string())
}

enum Masked {
    Text(String),
    Json(Value),
}
