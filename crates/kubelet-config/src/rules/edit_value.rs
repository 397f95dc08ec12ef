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
    let at = at::exact_part(snapshot, used, part.start, part.len());
    finding.edits(at.map(|at| (at, Change::Text(new.into()))))
}
