//! kubelite's reader: trims each line, passes over empty ones and those that start with `#`, deletes every quote, splits
//! at every single blank, and expands `$X` and `${X}`.

use super::{
    super::{
        super::{location::Location, systemd::Arg, text::chars},
        Oddity,
    },
    Environment, Split,
};

/// Splits a file's text.
pub(in super::super) fn split(file: &Location, text: &str, environment: &Environment) -> Split {
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
        if expanded.len() > super::MAX_EXPANDED_BYTES {
            break;
        }
    }
    expanded
}
