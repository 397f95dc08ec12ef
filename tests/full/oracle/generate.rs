//! From a seed to a tree: a shape, and ingredients stirred in.
//!
//! Equal seeds give equal trees. Fifty seeds in a row are a group; in every third group all trees have the same
//! drop-ins in `service.d`, which systemd applies to every service there is.

use std::collections::BTreeMap;

use crate::case::{Case, Entry};
use crate::draft::Draft;
use crate::{ingredients, shapes};

/// How many trees are laid out together.
pub(crate) const GROUP: u64 = 50;

/// The tree of a seed.
pub(crate) fn tree(seed: u64) -> Case {
    let mut draft = Draft::new(seed);
    draft.entries = shared(seed / GROUP);
    if !draft.entries.is_empty() {
        draft.ingredients.push("files: drop-ins of the type".to_owned());
    }
    shapes::begin(&mut draft);
    let count = match draft.random.u8(..10) {
        0 => 1,
        1..4 => draft.random.usize(2..4),
        4..8 => draft.random.usize(3..7),
        _ => draft.random.usize(6..14),
    };
    for _ in 0..count {
        ingredients::stir_in(&mut draft);
    }
    draft.finish(seed)
}

/// What the trees of a group have in common.
fn shared(group: u64) -> BTreeMap<String, Entry> {
    let mut draft = Draft::new(u64::MAX - group);
    if group.is_multiple_of(3) {
        ingredients::type_level(&mut draft);
    }
    draft.entries
}
