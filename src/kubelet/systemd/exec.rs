//! `ExecStart=`: prefixes, words, and the expansion of variables; systemd.service(5), "COMMAND LINES".

use std::collections::BTreeMap;

use super::{
    super::place::Place,
    Assignment, Event, EventKind, Events, Exec, ExecWord, Origin, Word,
    source::{Mapped, SourceFile, is_blank},
    specifiers::Specifiers,
    syntax::{Lost, event},
    words::{Flags, Split, next_word, next_word_lenient},
};

/// What the kernel takes for arguments and environment together, at the usual limit of the stack (execve(2)).
const MAX_ARGV_BYTES: usize = 2 << 20;
/// The most words of one command.
const MAX_WORDS: usize = 100_000;
const ESCAPES: Flags = Flags {
    c_escapes: true,
    keep_unknown_escapes: false,
    relaxed: false,
};

/// What the parser of a command line must know beside its text.
pub(super) struct Context<'a> {
    pub(super) source: &'a SourceFile,
    pub(super) specifiers: &'a Specifiers,
    /// systemd's major version.
    pub(super) version: u32,
    /// The line.
    pub(super) at: Place,
}

/// Parses the value of an `Exec…=` line, which is not empty, and adds its commands.
pub(super) fn parse(
    context: &Context<'_>,
    value: &Mapped,
    commands: &mut Vec<Exec>,
    events: &mut Events,
) -> Result<(), Lost> {
    let mut position = 0;
    loop {
        let first = match next_word_lenient(value, &mut position, ESCAPES) {
            Ok((Some(word), _)) => word,
            Ok((None, _)) => return Ok(()),
            Err(_) => {
                // systemd ignores the line here, without spoiling the unit.
                events.push(event(
                    EventKind::BadQuoting,
                    place(context, value, 0),
                    &value.text(),
                ));
                return Ok(());
            }
        };
        if first.text.bytes == b";" {
            continue;
        }
        let prefixes = Prefixes::of(&first.text.bytes, context.version);
        let command = command(context, value, &first, &prefixes, &mut position, events);
        let semicolon = match command {
            Ok((command, semicolon)) => {
                commands.push(command);
                semicolon
            }
            Err(failed) => {
                events.push(Event {
                    kind: failed.kind,
                    at: failed.at.clone(),
                    text: super::source::bounded(&value.text()),
                });
                if prefixes.ignore {
                    return Ok(());
                }
                return Err(Lost {
                    at: failed.at,
                    reason: failed.reason,
                    bad_setting: true,
                });
            }
        };
        if !semicolon {
            return Ok(());
        }
    }
}

/// Why a command is none.
struct Failed {
    kind: EventKind,
    at: Place,
    reason: String,
}

fn place(context: &Context<'_>, value: &Mapped, from: usize) -> Place {
    value.slice(from..value.len()).place(context.source)
}

fn word_place(context: &Context<'_>, value: &Mapped, word: &Split) -> Place {
    value.slice(word.start..word.end).place(context.source)
}

/// One command, and whether a semicolon follows it.
fn command(
    context: &Context<'_>,
    value: &Mapped,
    first: &Split,
    prefixes: &Prefixes,
    position: &mut usize,
    events: &mut Events,
) -> Result<(Exec, bool), Failed> {
    let at = word_place(context, value, first);
    let fail = |reason: String| Failed {
        kind: EventKind::BadCommand {
            reason: reason.clone(),
        },
        at: at.clone(),
        reason,
    };
    let path = first.text.slice(prefixes.length..first.text.len());
    let path = expand(context, &path, &at, events)?;
    let program = path.text();
    check_program(&path.bytes).map_err(|reason| fail(format!("{reason}: '{program}'")))?;
    let mut words = Vec::new();
    if !prefixes.separate_argv0 {
        words.push(ExecWord {
            text: program.clone(),
            at: at.clone(),
        });
    }
    let semicolon = arguments(context, value, position, &mut words, events)?;
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
    Ok((exec, semicolon))
}

/// The words behind the program; whether a semicolon ends them.
fn arguments(
    context: &Context<'_>,
    value: &Mapped,
    position: &mut usize,
    words: &mut Vec<ExecWord>,
    events: &mut Events,
) -> Result<bool, Failed> {
    while *position < value.len() && words.len() < MAX_WORDS {
        let rest = &value.bytes[*position..];
        let ends = |index: usize| rest.get(index).is_none_or(|byte| is_blank(*byte));
        if rest.starts_with(b";") && ends(1) {
            *position += 1 + blanks(&rest[1..]);
            return Ok(true);
        }
        if rest.starts_with(b"\\;") && ends(2) {
            let at = value.slice(*position..*position + 2).place(context.source);
            *position += 2 + blanks(&rest[2..]);
            words.push(ExecWord {
                text: ";".to_owned(),
                at,
            });
            continue;
        }
        let start = *position;
        let Ok((word, unknown)) = next_word_lenient(value, position, ESCAPES) else {
            return Err(Failed {
                kind: EventKind::BadQuoting,
                at: place(context, value, start),
                reason: "a quote is not closed".to_owned(),
            });
        };
        let Some(word) = word else { break };
        let at = word_place(context, value, &word);
        if unknown {
            events.push(event(
                EventKind::UnknownEscape,
                at.clone(),
                &word.text.text(),
            ));
        }
        let text = expand(context, &word.text, &at, events)?;
        words.push(ExecWord {
            text: text.text(),
            at,
        });
    }
    Ok(false)
}

fn blanks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| is_blank(**byte)).count()
}

/// Expands the specifiers of a word.
fn expand(
    context: &Context<'_>,
    text: &Mapped,
    at: &Place,
    events: &mut Events,
) -> Result<Mapped, Failed> {
    let expanded = context.specifiers.expand(text).map_err(|letter| Failed {
        kind: EventKind::BadSpecifier { letter },
        at: at.clone(),
        reason: format!("systemd cannot expand the specifier '%{letter}'"),
    })?;
    for (letter, value) in expanded.used {
        let kind = EventKind::Specifier { letter, value };
        events.push(event(kind, at.clone(), &text.text()));
    }
    Ok(expanded.text)
}

/// The signs before the program.
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
        let mut prefixes = Self {
            length: 0,
            ignore: false,
            separate_argv0: false,
            expands: true,
        };
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

/// What systemd says against a program's name.
fn check_program(path: &[u8]) -> Result<(), &'static str> {
    let unsafe_byte = |byte: &u8| *byte < 0x20 || b"\"'\\\x7F".contains(byte);
    let absolute = path.starts_with(b"/");
    if path.is_empty() {
        Err("the command line has no program")
    } else if path.iter().any(unsafe_byte) {
        Err("the program's name contains special characters")
    } else if path.ends_with(b"/") {
        Err("the program's path specifies a folder")
    } else if path.len() > 4095
        || path
            .split(|byte| *byte == b'/')
            .any(|part| part.len() > 255)
        || (!absolute && (path.contains(&b'/') || path == b"." || path == b".."))
    {
        Err("neither a valid program name nor an absolute path")
    } else {
        Ok(())
    }
}

/// A path without doubled slashes and `.`.
pub(super) fn simplified(path: &str) -> String {
    if !path.starts_with('/') {
        return path.to_owned();
    }
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    format!("/{}", parts.join("/"))
}

/// A part of a word of `ExecStart=`.
enum Part<'a> {
    Text(&'a str),
    /// `${NAME}`
    Braces(&'a str),
}

/// Splits a word as `replace_env()` in `src/basic/env-util.c` reads it: `$$` is a dollar, `${NAME}` a variable; a colon
/// in the braces, or none that closes them, leaves the text as it is.
fn parts(word: &str) -> Vec<Part<'_>> {
    let bytes = word.as_bytes();
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(dollar) = word[at..].find('$').map(|found| at + found) {
        at = dollar + 1;
        match bytes.get(at) {
            Some(b'$') => {
                parts.push(Part::Text(&word[start..at]));
                at += 1;
                start = at;
            }
            Some(b'{') => {
                let name = at + 1;
                match word[name..].find(['}', ':']).map(|end| name + end) {
                    Some(end) if bytes[end] == b'}' => {
                        parts.push(Part::Text(&word[start..dollar]));
                        parts.push(Part::Braces(&word[name..end]));
                        at = end + 1;
                        start = at;
                    }
                    Some(colon) => at = colon + 1,
                    None => break,
                }
            }
            // What follows a dollar is passed over, be it the first byte of something or not.
            Some(_) => {
                at += word[at..].chars().next().map_or(1, char::len_utf8);
            }
            None => break,
        }
    }
    parts.push(Part::Text(&word[start..]));
    parts
}

/// The name of a lone `$NAME`.
fn lone(word: &str) -> Option<&str> {
    word.strip_prefix('$')
        .filter(|name| !name.starts_with(['{', '$']))
}

/// The variables that a command refers to.
pub(super) fn references(exec: &Exec) -> Vec<(String, Place, bool)> {
    let mut found = Vec::new();
    if !exec.expands {
        return found;
    }
    for word in &exec.words {
        if let Some(name) = lone(&word.text) {
            found.push((name.to_owned(), word.at.clone(), false));
            continue;
        }
        for part in parts(&word.text) {
            if let Part::Braces(name) = part {
                found.push((name.to_owned(), word.at.clone(), true));
            }
        }
    }
    found
}

/// The argument list: `exec` with its variables expanded.
pub(super) fn argv(
    exec: &Exec,
    environment: &BTreeMap<String, Assignment>,
    events: &mut Events,
) -> Vec<Word> {
    let mut expansion = Expansion {
        environment,
        words: Vec::new(),
        bytes: 0,
        split: BTreeMap::new(),
    };
    for word in &exec.words {
        if expansion.full() {
            let kind = EventKind::ArgumentsTooLong;
            events.push(event(kind, word.at.clone(), ""));
            break;
        }
        match lone(&word.text).filter(|_| exec.expands) {
            Some(name) => expansion.lone(word, name, events),
            None if exec.expands => expansion.braces(word, events),
            None => expansion.push(word.text.clone(), word, Vec::new()),
        }
    }
    expansion.words
}

struct Expansion<'a> {
    environment: &'a BTreeMap<String, Assignment>,
    words: Vec<Word>,
    bytes: usize,
    /// The words of variables that were split before.
    split: BTreeMap<String, Vec<Split>>,
}

impl<'a> Expansion<'a> {
    fn full(&self) -> bool {
        self.bytes > MAX_ARGV_BYTES || self.words.len() > MAX_WORDS
    }

    fn push(&mut self, text: String, declared: &ExecWord, origins: Vec<Origin>) {
        self.bytes += text.len() + 1;
        self.words.push(Word {
            text,
            declared: declared.at.clone(),
            origins,
        });
    }

    /// A variable and its value. systemd compares `NAME=` with the start of each assignment, so that of `A=b=c` also
    /// `$A=b` is set.
    fn value(&self, name: &str) -> Option<(&'a Assignment, usize)> {
        let (variable, rest) = name
            .split_once('=')
            .map_or((name, None), |(variable, rest)| (variable, Some(rest)));
        let assignment = self.environment.get(variable)?;
        match rest {
            None => Some((assignment, 0)),
            Some(rest) => {
                let behind = assignment.value.strip_prefix(rest)?.strip_prefix('=')?;
                Some((assignment, assignment.value.len() - behind.len()))
            }
        }
    }

    fn lone(&mut self, word: &ExecWord, name: &str, events: &mut Events) {
        let Some((assignment, offset)) = self.value(name) else {
            unset(name, false, word, events);
            return;
        };
        if !self.split.contains_key(name) {
            let words = split_value(&assignment.value[offset..]);
            self.split.insert(name.to_owned(), words);
        }
        for split in self.split.get(name).cloned().unwrap_or_default() {
            if self.full() {
                return;
            }
            let origin = Origin {
                variable: assignment.name.clone(),
                at: assignment.place_of(offset + split.start, offset + split.end),
                braces: false,
            };
            self.push(split.text.text(), word, vec![origin]);
        }
    }

    fn braces(&mut self, word: &ExecWord, events: &mut Events) {
        let mut text = String::new();
        let mut origins = Vec::new();
        for part in parts(&word.text) {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Braces(name) => match self.value(name) {
                    Some((assignment, offset)) => {
                        if self.bytes + text.len() > MAX_ARGV_BYTES {
                            break;
                        }
                        text.push_str(&assignment.value[offset..]);
                        origins.push(Origin {
                            variable: assignment.name.clone(),
                            at: assignment.place_of(offset, assignment.value.len()),
                            braces: true,
                        });
                    }
                    None => unset(name, true, word, events),
                },
            }
        }
        self.push(text, word, origins);
    }
}

fn unset(name: &str, braces: bool, word: &ExecWord, events: &mut Events) {
    let kind = EventKind::UnsetVariable {
        name: name.to_owned(),
        braces,
    };
    events.push(event(kind, word.at.clone(), &word.text));
}

/// The words of a value: quotes are removed, a backslash protects, an unclosed quote ends with the text.
fn split_value(value: &str) -> Vec<Split> {
    let flags = Flags {
        c_escapes: false,
        keep_unknown_escapes: false,
        relaxed: true,
    };
    let input = Mapped::plain(value.as_bytes());
    let mut position = 0;
    let mut words = Vec::new();
    while words.len() < MAX_WORDS
        && let Ok(Some(word)) = next_word(&input, &mut position, flags)
    {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests;
