//! Where a flag, or a part of its value, is: for findings and their carets.

use super::{FlagUse, Launcher, Location, Snapshot, Step, shortened};
use crate::kubelet::systemd::Arg;
use crate::kubelet::text::chars;

/// The word of a flag (or of its value, `offset` 1, where that is a word of its own).
pub(super) fn word<'a>(snapshot: &'a Snapshot, used: &FlagUse, offset: usize) -> Option<&'a Arg> {
    // The flags are read from the words after the program's name.
    snapshot.command.args.get(1 + used.word + offset)
}

/// Whether the distribution writes the word by itself: no file of the user is to blame.
pub(super) fn is_built_in(snapshot: &Snapshot, word: usize) -> bool {
    snapshot.command.args.get(1 + word).is_some_and(|word| word.built_in)
}

/// Where the flag's name is: of `--x=${Y}` the word of `ExecStart=`, not the variable's value.
pub(super) fn flag(snapshot: &Snapshot, used: &FlagUse) -> Location {
    let Some(word) = word(snapshot, used, 0) else { return used.at.clone() };
    let by_braces = word.origins.first().is_some_and(|origin| origin.braces);
    let written_out = || {
        snapshot.unit.exec.as_ref().is_some_and(|exec| {
            exec.words.iter().any(|written| written.at == word.declared && written.text.starts_with('-'))
        })
    };
    if by_braces && written_out() { word.declared.clone() } else { used.at.clone() }
}

/// The longest word in which a part is looked for: counting its characters once for each part must not add up.
const MAX_WORD_BYTES: usize = 8 << 10;

/// From the one place to the end of the other, where they are on one line.
pub(super) fn through(first: &Location, last: &Location) -> Location {
    let is_known = last.file_line() == first.file_line() && first.width > 0 && last.column > first.column;
    let width = if is_known { last.column + last.width - first.column } else { first.width };
    first.at(first.line, first.column, width)
}

/// Whether flags are items of k3s's and RKE2's lists, written without their dashes and perhaps with quotes.
fn is_an_item(snapshot: &Snapshot) -> bool {
    matches!(snapshot.command.launcher, Launcher::K3s | Launcher::Rke2 | Launcher::K0s)
}

/// Where a part of the flag's value is, by its bytes; the whole word where the columns are not sure.
pub(super) fn value_part(snapshot: &Snapshot, used: &FlagUse, start: usize, length: usize) -> Location {
    let whole = word(snapshot, used, usize::from(used.value_in_next_word)).map_or(&used.at, Arg::at);
    exact_part(snapshot, used, start, length).unwrap_or_else(|| whole.clone())
}

/// Where a part of the flag's value is; `None` where the columns are not sure.
pub(super) fn exact_part(snapshot: &Snapshot, used: &FlagUse, start: usize, length: usize) -> Option<Location> {
    let word = word(snapshot, used, usize::from(used.value_in_next_word)).filter(|_| !is_an_item(snapshot))?;
    let at = word.at();
    // A flag without a value is true, which is nowhere.
    let is_written = word.text.ends_with(&used.value);
    if word.text.len().max(used.value.len()) > MAX_WORD_BYTES || at.column == 0 || !is_written {
        return None;
    }
    let before = chars(used.value.get(..start)?);
    let width = chars(used.value.get(start..start + length)?);
    let skipped = if at.width == chars(&word.text) {
        chars(&word.text).saturating_sub(chars(&used.value))
    } else if at.width == chars(&used.value) && word.origins.len() == 1 {
        0
    } else {
        return None;
    };
    Some(at.at(at.line, at.column + skipped + before, width))
}

pub(super) fn set_value(snapshot: &Snapshot, used: &FlagUse, new: &str) -> Step {
    let all = 0..used.value.len();
    let place = value_part(snapshot, used, all.start, all.len());
    Step::write(exact_part(snapshot, used, all.start, all.len()), &place, &format!("--{}=", used.name), new)
}

/// Writes another name of the flag, with its dashes.
pub(super) fn rename(snapshot: &Snapshot, used: &FlagUse, new: String) -> Step {
    let word = word(snapshot, used, 0).filter(|_| !is_an_item(snapshot));
    let exact = word
        .map(|word| (word, word.at()))
        .filter(|(word, at)| word.origins.len() <= 1 && at.column > 0 && at.width == chars(&word.text));
    let exact = exact.map(|(_, at)| at.at(at.line, at.column, chars(&used.written)));
    Step::rename(exact, &flag(snapshot, used), &shortened(&used.written), new)
}

/// Deletes a flag with its value; an edit where its characters are known.
pub(super) fn delete(snapshot: &Snapshot, used: &FlagUse) -> Step {
    Step::delete(deletion(snapshot, used), &flag(snapshot, used), &shortened(&used.written))
}

/// The characters of a flag with its value and the space next to it, or its line; `None` where they are not known.
fn deletion(snapshot: &Snapshot, used: &FlagUse) -> Option<Location> {
    let (first, last) = (word(snapshot, used, 0)?, word(snapshot, used, usize::from(used.value_in_next_word))?);
    let (start, end) = (first.at(), last.at());
    let is_inside = |other: &Arg| std::ptr::eq(other, first) || std::ptr::eq(other, last);
    let on_line = |other: &&Arg| other.at().file == start.file && other.at().line == start.line && !is_inside(other);
    let mut neighbours = snapshot.command.args.iter().filter(on_line);
    match snapshot.command.launcher {
        Launcher::MicroK8s | Launcher::K8sSnap | Launcher::K3s | Launcher::Rke2 | Launcher::K0s => {
            let has_own_line =
                start.line > 0 && Some(&start.file) != snapshot.unit.exec.as_ref().map(|exec| &exec.at.file);
            return (has_own_line && neighbours.next().is_none()).then(|| start.at_line(start.line));
        }
        _ => {}
    }
    let is_plain = |word: &Arg| {
        let origin = word.origins.first();
        word.origins.len() <= 1 && origin.is_none_or(|origin| !origin.braces && origin.at.width == chars(&word.text))
    };
    if (&start.file, start.line) != (&end.file, end.line)
        || start.column == 0
        || end.width == 0
        || !is_plain(first)
        || !is_plain(last)
    {
        return None;
    }
    let behind = end.column + end.width;
    let columns: Vec<(u32, u32)> = neighbours.map(|other| (other.at().column, other.at().width)).collect();
    let (from, to) = if columns.iter().any(|(column, _)| *column == behind + 1) {
        (start.column, behind + 1)
    } else if columns.iter().any(|(column, width)| column + width + 1 == start.column) {
        (start.column - 1, behind)
    } else {
        (start.column, behind)
    };
    Some(start.at(start.line, from, to.checked_sub(from)?))
}

/// Takes a part out of a value `a,b,c`, with a comma; the whole flag, if there is nothing else in it.
pub(super) fn delete_part(snapshot: &Snapshot, used: &FlagUse, start: usize, length: usize) -> Step {
    let end = start + length;
    let place = value_part(snapshot, used, start, length);
    let text = used.value.get(start..end).unwrap_or_default();
    let part = match (start, used.value.get(end..).unwrap_or_default()) {
        (0, "" | ",") => return delete(snapshot, used),
        (_, "") => (start - 1, end),
        _ => (start, end + 1),
    };
    Step::delete(exact_part(snapshot, used, part.0, part.1 - part.0), &place, &shortened(text.trim()))
}
