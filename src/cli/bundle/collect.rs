//! Reads every part, each on a thread of its own, learns what is secret, and makes the parts presentable.

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    MAX_BYTES, State, mask,
    parts::{self, Form, Lacking, Part},
    reading::{self, MAX_PART_BYTES},
    redact::Redactor,
    say, secrets,
};
use crate::{clock::Clock, host::files::Root};

/// What was read of a part.
pub(super) type Read = Result<Vec<u8>, Lacking>;

/// Reads and makes presentable.
pub(super) struct Collector {
    root: Root,
    /// When all has to be read.
    end: Duration,
    pub(super) redactor: Redactor,
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
                Ok(bytes) => secrets::learn(&mut self.redactor, &source, &bytes),
                Err(Lacking::Absent) => {}
                Err(Lacking::Failed(why)) => {
                    self.unread
                        .push(format!("{}: {why}", source.path.display()));
                }
            }
        }
        mask::findings(&mut self.check.clone(), &mut self.redactor);
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

    fn read(&self, part: &Part) -> Read {
        let (from, root) = (part.from.clone(), self.root.clone());
        self.in_time(from.deadline(), move || from.read(&root))
    }

    /// What `work` gives, on a thread of its own: one that hangs is left behind.
    fn in_time(&self, deadline: Duration, work: impl FnOnce() -> Read + Send + 'static) -> Read {
        let left = self.end.saturating_sub(Clock.now().uptime);
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
        let masked = self.masked(part, &bytes).map_err(Lacking::Failed)?;
        let mut text = match masked {
            Masked::Text(text) => self.redactor.text(&text),
            Masked::Json(mut value) => {
                self.redactor.json(&mut value);
                let text = serde_json::to_string_pretty(&value);
                text.map_err(|error| Lacking::Failed(error.to_string()))? + "\n"
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

enum Masked {
    Text(String),
    Json(Value),
}
