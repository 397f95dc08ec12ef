//! `ExecStart=` and its like: prefixes and words; systemd.service(5), "COMMAND LINES".

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::source::{Mapped, SourceFile};
use super::specifiers::Specifiers;
use super::words::{Flags, Split, next_word_lenient};
use super::{EventKind, Events, Exec, ExecWord, LoadState};
use crate::kubelet::location::Location;

pub(super) const MAX_WORDS: usize = 100_000;
const ESCAPES: Flags = Flags { c_escapes: true, keep_unknown_escapes: false, relaxed: false };

/// What the parser of a value must know in addition to its text, and where it tells what is lost.
pub(super) struct Context<'a> {
    pub(super) source: &'a SourceFile,
    pub(super) specifiers: &'a Specifiers,
    pub(super) version: u32,
    pub(super) at: Location,
    pub(super) events: &'a mut Events,
}

impl Context<'_> {
    pub(super) fn place(&self, value: &Mapped, part: Range<usize>) -> Location {
        value.slice(part).place(self.source)
    }

    /// Expands specifiers; the letter that systemd cannot expand, if there is one.
    pub(super) fn expand(&mut self, text: &Mapped, at: &Location) -> Result<Mapped, char> {
        let (expanded, has_specifiers) = self.specifiers.expand(text)?;
        if has_specifiers {
            self.events.add(EventKind::Specifiers, at.clone(), &text.text());
        }
        Ok(expanded)
    }
}

/// Parses the value of an `Exec…=` line, which is not empty, and adds its commands.
pub(super) fn parse(context: &mut Context<'_>, value: &Mapped, commands: &mut Vec<Exec>) -> Result<(), LoadState> {
    let mut position = 0;
    loop {
        let first = match next_word_lenient(value, &mut position, ESCAPES) {
            Ok(Some(word)) => word,
            Ok(None) => return Ok(()),
            Err(_) => {
                // systemd ignores the line here, without spoiling the unit.
                context.events.add(EventKind::BadQuoting, value.place(context.source), &value.text());
                return Ok(());
            }
        };
        if first.text.bytes == b";" {
            continue;
        }
        let prefixes = Prefixes::of(&first.text.bytes, context.version);
        match command(context, value, &first, &prefixes, &mut position) {
            Ok((command, is_followed)) => {
                commands.push(command);
                if !is_followed {
                    return Ok(());
                }
            }
            Err(Failed { kind, at, reason }) => {
                context.events.add(kind, at.clone(), &value.text());
                return if prefixes.ignore { Ok(()) } else { Err(LoadState::BadSetting { at, reason }) };
            }
        }
    }
}

struct Failed {
    kind: EventKind,
    at: Location,
    reason: String,
}

/// One command, and whether a semicolon follows it.
fn command(
    context: &mut Context<'_>,
    value: &Mapped,
    first: &Split,
    prefixes: &Prefixes,
    position: &mut usize,
) -> Result<(Exec, bool), Failed> {
    let at = context.place(value, first.place.clone());
    let fail = |reason: String| Failed { kind: EventKind::BadCommand, at: at.clone(), reason };
    let path = first.text.slice(prefixes.length..first.text.len());
    let path = expand(context, &path, &at)?;
    let program = path.text();
    check_program(&path.bytes).map_err(|reason| fail(format!("{reason}: '{program}'")))?;
    let mut words = Vec::new();
    if !prefixes.separate_argv0 {
        words.push(ExecWord { text: program.clone(), at: at.clone() });
    }
    let is_followed = arguments(context, value, position, &mut words)?;
    if words.is_empty() {
        return Err(fail("the command has no argv[0] after '@'".to_owned()));
    }
    let exec = Exec {
        at: context.at.clone(),
        prefixes: first.text.slice(0..prefixes.length).text(),
        program: simplified(&program),
        words,
        expands: prefixes.expands,
    };
    Ok((exec, is_followed))
}

/// The words after the program; whether a semicolon ends them.
fn arguments(
    context: &mut Context<'_>,
    value: &Mapped,
    position: &mut usize,
    words: &mut Vec<ExecWord>,
) -> Result<bool, Failed> {
    while words.len() < MAX_WORDS {
        let start = *position;
        let Ok(word) = next_word_lenient(value, position, ESCAPES) else {
            let at = context.place(value, start..value.len());
            return Err(Failed { kind: EventKind::BadQuoting, at, reason: "a quote is not closed".to_owned() });
        };
        let Some(Split { text, place }) = word else { break };
        let at = context.place(value, place.clone());
        let text = match &value.bytes[place] {
            b";" => return Ok(true),
            b"\\;" => ";".to_owned(),
            _ => expand(context, &text, &at)?.text(),
        };
        words.push(ExecWord { text, at });
    }
    Ok(false)
}

fn expand(context: &mut Context<'_>, text: &Mapped, at: &Location) -> Result<Mapped, Failed> {
    context.expand(text, at).map_err(|letter| Failed {
        kind: EventKind::BadSpecifier { letter },
        at: at.clone(),
        reason: format!("systemd cannot expand the specifier '%{letter}'"),
    })
}

struct Prefixes {
    length: usize,
    ignore: bool,
    separate_argv0: bool,
    expands: bool,
}

/// systemd's version since which `|` runs the command in the user's shell.
const SHELL_SINCE: u32 = 258;

impl Prefixes {
    fn of(word: &[u8], version: u32) -> Self {
        let mut prefixes = Self { length: 0, ignore: false, separate_argv0: false, expands: true };
        // `+`, `!` and `!!` exclude each other.
        let (mut privileged, mut shell) = (0, false);
        for byte in word {
            match byte {
                b'-' if !prefixes.ignore => prefixes.ignore = true,
                b'@' if !prefixes.separate_argv0 => prefixes.separate_argv0 = true,
                b':' if prefixes.expands => prefixes.expands = false,
                b'+' if privileged == 0 => privileged = 2,
                b'!' if privileged < 2 => privileged += 1,
                b'|' if version >= SHELL_SINCE && !shell => shell = true,
                _ => break,
            }
            prefixes.length += 1;
        }
        prefixes
    }
}

fn check_program(path: &[u8]) -> Result<(), &'static str> {
    let unsafe_byte = |byte: &u8| *byte < 0x20 || b"\"'\\\x7F".contains(byte);
    let absolute = path.starts_with(b"/");
    if path.is_empty() {
        Err("the command line has no program")
    } else if path.iter().any(unsafe_byte) {
        Err("the program's name contains special characters")
    } else if path.ends_with(b"/") {
        Err("the program's path specifies a directory")
    } else if path.len() > 4095
        || path.split(|byte| *byte == b'/').any(|part| part.len() > 255)
        || (!absolute && (path.contains(&b'/') || path == b"." || path == b".."))
    {
        Err("neither a valid program name nor an absolute path")
    } else {
        Ok(())
    }
}

/// A path without doubled slashes and `.`.
pub(super) fn simplified(path: &str) -> String {
    Path::new(path).components().collect::<PathBuf>().to_string_lossy().into_owned()
}
