//! What is wrong with the configuration, said so that the operator can go there and mend it.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use crate::host::files::FileError;

/// The exit code for a configuration that cannot be used (`EX_CONFIG` of `sysexits.h`); the unit has
/// `RestartPreventExitStatus=78`, so that a typo is not a restart loop.
pub const EX_CONFIG: u8 = 78;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file or folder that was asked for, or found, and could not be read.
    #[error("configuration: {0}")]
    File(FileError),
    /// Something in a file that the agent does not take.
    #[error("{}:{line}: {key}: {problem}", path.display())]
    Value {
        /// The file, as the operator knows it.
        path: PathBuf,
        /// The line in it, counted from 1.
        line: usize,
        /// The key with its table (`kubelet.unit`), as far as there is one.
        key: String,
        /// What is wrong, what was wanted, what to do.
        problem: String,
    },
}

impl ConfigError {
    /// The exit code of the program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        EX_CONFIG
    }
}

/// One file's text, which knows where in it a byte lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl<'a> Source<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str) -> Self {
        Self { path, text }
    }

    /// The line, counted from 1, of the byte at `offset`.
    pub(super) fn line(&self, offset: usize) -> usize {
        1 + self.before(offset).matches('\n').count()
    }

    /// An error at `span`, about `key`.
    pub(super) fn error(&self, span: &Range<usize>, key: String, problem: String) -> ConfigError {
        ConfigError::Value {
            path: self.path.to_owned(),
            line: self.line(span.start),
            key,
            problem,
        }
    }

    /// What the TOML reader could not make sense of. It knows no key then, so the key is taken from the words around.
    pub(super) fn syntax_error(&self, error: &toml::de::Error) -> ConfigError {
        let span = error.span().unwrap_or_default();
        let problem = format!("not TOML: {}", error.message());
        self.error(&span, self.key_at(span.start), problem)
    }

    /// Bytes that are no text, from `offset` on.
    pub(super) fn not_text(&self, offset: usize) -> ConfigError {
        let problem = "not text: a byte that is not UTF-8; save the file as UTF-8".to_owned();
        self.error(&(offset..offset), self.key_at(offset), problem)
    }

    fn before(&self, offset: usize) -> &'a str {
        // The reader may point behind the end, or (in theory) into a character.
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        &self.text[..end]
    }

    /// The key on the line of `offset`, below the last table header above it, by the look of the lines alone.
    fn key_at(&self, offset: usize) -> String {
        let line = self.line(offset);
        let mut lines = self.text.lines();
        let above: Vec<&str> = lines.by_ref().take(line - 1).collect();
        let here = lines.next().unwrap_or_default();
        let header_of = |line: &str| -> Option<String> {
            let rest = line.trim().strip_prefix('[')?;
            let name = rest.split(']').next()?.trim_matches(['[', ' ']);
            Some(name.to_owned())
        };
        if let Some(header) = header_of(here) {
            return format!("[{header}]");
        }
        let table = above.iter().rev().find_map(|line| header_of(line));
        let word = here.split(['=', '#']).next().unwrap_or_default().trim();
        match (table, word) {
            (None, "") => "(top level)".to_owned(),
            (Some(table), "") => format!("[{table}]"),
            (None, word) => word.to_owned(),
            (Some(table), word) => format!("{table}.{word}"),
        }
    }
}
