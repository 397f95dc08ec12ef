//! Arguments files of the snaps, read as their readers read them: `MicroK8s`' kubelite (`ReadArgsFromFile` of its patch
//! to Kubernetes), and bash, to which Canonical's k8s snap gives the file as the text of an array
//! (`declare -a args="($(cat …))"`; tried with bash 5.2).

mod bash;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::Oddity;
use crate::kubelet::location::{Located, Location};
use crate::kubelet::systemd::Arg;
use crate::kubelet::text::chars;

pub(super) use bash::split as bash;

/// The environment in which a file's variables are expanded.
pub(super) type Environment = BTreeMap<String, String>;

/// The most text that expansion may make of a file: a variable of a few kilobytes, named a thousand times over, must
/// not fill the memory.
const MAX_EXPANDED_BYTES: usize = 4 << 20;

/// The most oddities that are kept: more would not be read.
const MAX_ODDITIES: usize = 100;

/// What a reader makes of an arguments file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) args: Vec<Arg>,
    /// Where it makes something else of them than was meant.
    pub(super) oddities: Vec<Located<Oddity>>,
    /// Where the words cannot be known, and why.
    pub(super) unknown: Option<(Location, String)>,
    /// How much text there is in `args`.
    bytes: usize,
}

impl Split {
    /// Adds a word; `None` when there is more than we are ready to take.
    fn push(&mut self, arg: Arg) -> Option<()> {
        self.bytes = self.bytes.saturating_add(arg.text.len() + 1);
        if self.bytes > MAX_EXPANDED_BYTES {
            return self.give_up(arg.declared, format!("expands to more than {MAX_EXPANDED_BYTES} bytes"));
        }
        if arg.text.is_empty() {
            self.odd(Oddity::EmptyArgument, arg.declared.clone());
        }
        self.args.push(arg);
        Some(())
    }

    /// Adds an oddity; one of a kind is enough for a line.
    fn odd(&mut self, what: Oddity, at: Location) {
        let known = self.oddities.iter().rev().take_while(|odd| odd.at.line == at.line).any(|odd| odd.value == what);
        if !known && self.oddities.len() < MAX_ODDITIES {
            self.oddities.push(Located { value: what, at });
        }
    }

    /// Says that the words cannot be known.
    fn give_up(&mut self, at: Location, reason: String) -> Option<()> {
        self.args.clear();
        self.unknown = Some((at, reason));
        None
    }
}

/// kubelite's reader: trims each line, passes over empty ones and those that start with `#`, deletes every quote, splits
/// at every single blank, and expands `$X` and `${X}`.
pub(super) fn kubelite(file: &Location, text: &str, environment: &Environment) -> Split {
    let mut split = Split::default();
    for (number, line) in (1..).zip(text.split('\n')) {
        if words(&file.at_line(number), line, environment, &mut split).is_none() {
            break;
        }
    }
    split
}

/// Splits one line; `None` when there is more than we are ready to take.
fn words(line_at: &Location, line: &str, environment: &Environment, split: &mut Split) -> Option<()> {
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Some(());
    }
    let mut column = chars(line).saturating_sub(chars(line.trim_start())).saturating_add(1);
    let mut pieces = trimmed.split(' ').peekable();
    let mut open_quote = None;
    while let Some(piece) = pieces.next() {
        let width = chars(piece);
        let at = line_at.at(line_at.line, column, width.max(1));
        open_quote = piece.chars().fold(open_quote, |open, character| match (open, character) {
            (None, '"' | '\'') => Some(character),
            (Some(quote), _) if quote == character => None,
            _ => open,
        });
        if open_quote.is_some() && pieces.peek().is_some() {
            split.odd(Oddity::QuoteDeleted, at.clone());
        }
        split.push(Arg::new(expand(&piece.replace(['"', '\''], ""), environment), at))?;
        column = column.saturating_add(width).saturating_add(1);
    }
    Some(())
}

/// `$NAME` and `${NAME}`, as Go's `os.ExpandEnv` replaces them: what is not set becomes nothing. A `$` before anything
/// else stays.
fn expand(text: &str, environment: &Environment) -> String {
    let mut parts = text.split('$');
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let in_braces = part.strip_prefix('{').and_then(|part| part.split_once('}'));
        let (name, rest) = in_braces.unwrap_or_else(|| part.split_at(end));
        let value = if name.is_empty() { "$" } else { environment.get(name).map_or("", String::as_str) };
        expanded.push_str(value);
        expanded.push_str(rest);
        // One word alone must not fill the memory; `Split::push` then says so.
        if expanded.len() > MAX_EXPANDED_BYTES {
            break;
        }
    }
    expanded
}
