//! Edits of a flag's value.

use std::ops::Range;

use super::{Finding, at};
use crate::{
    edit::Change,
    kubelet::{flags::FlagUse, snapshot::Snapshot},
};

/// With an edit of a part of the flag's value, by its bytes in the value, where its place is known to the character.
pub(super) fn edit_value(
    finding: Finding,
    snapshot: &Snapshot,
    used: &FlagUse,
    part: Range<usize>,
    new: impl Into<String>,
) -> Finding {
    let place = at::value_part(snapshot, used, part.start, part.len());
    let width = used.value.get(part).map(|old| old.chars().count());
    // A flag without a value is true, which stands nowhere.
    let is_written = at::word(snapshot, used, usize::from(used.value_in_next_word))
        .is_some_and(|word| word.text.ends_with(&used.value));
    if is_written && place.column > 0 && width == usize::try_from(place.width).ok() {
        finding.edit(&place, Change::Text(new.into()))
    } else {
        finding
    }
}
