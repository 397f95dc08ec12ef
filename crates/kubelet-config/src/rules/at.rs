//! Where a flag, or a part of its value, stands: for findings and their carets.

use crate::kubelet::{flags::FlagUse, location::Location, snapshot::Snapshot, systemd::Arg};

/// The word of a flag (or of its value, `offset` 1, where that is a word of its own).
pub(super) fn word<'a>(snapshot: &'a Snapshot, used: &FlagUse, offset: usize) -> Option<&'a Arg> {
    // The flags are read from the words behind the program's name.
    snapshot.command.args.get(1 + used.word + offset)
}

/// Whether the distribution writes the word by itself: no file of the user is to blame.
pub(super) fn is_built_in(snapshot: &Snapshot, word: usize) -> bool {
    snapshot.command.built_in.get(1 + word) == Some(&true)
}

/// Where the flag's name stands: of `--x=${Y}` the word of `ExecStart=`, not the variable's value.
pub(super) fn flag(snapshot: &Snapshot, used: &FlagUse) -> Location {
    let Some(word) = word(snapshot, used, 0) else {
        return used.at.clone();
    };
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

/// Where a part of the flag's value stands, by its bytes in the value; the whole word where the columns are not sure or
/// the word is longer than anybody writes.
pub(super) fn value_part(snapshot: &Snapshot, used: &FlagUse, start: usize, length: usize) -> Location {
    let Some(word) = word(snapshot, used, usize::from(used.value_in_next_word)) else {
        return used.at.clone();
    };
    let at = word.at();
    if word.text.len().max(used.value.len()) > MAX_WORD_BYTES {
        return at.clone();
    }
    let count = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    let part = |range: std::ops::Range<usize>| used.value.get(range).map(count);
    let (Some(before), Some(width)) = (part(0..start), part(start..start + length)) else {
        return at.clone();
    };
    let prefix = count(&word.text).saturating_sub(count(&used.value));
    let skipped = if at.width == count(&word.text) {
        prefix
    } else if at.width == count(&used.value) && word.origins.len() == 1 {
        0
    } else {
        return at.clone();
    };
    if at.column == 0 {
        return at.clone();
    }
    at.at(at.line, at.column + skipped + before, width)
}

/// At most 80 characters of a text, for a message.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
