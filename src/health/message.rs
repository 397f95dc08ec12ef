//! What a condition's message is made of: the shown finding's sentence, whose will keeps what back, then the others.

use super::{Finding, late};

/// A message's bound, in bytes: conditions travel with every Node that anybody lists.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// What a note, such as who asks for quiet, takes of it at most.
const MAX_NOTE_BYTES: usize = 512;

/// How a note begins that says who asks for quiet …
pub(super) const STANDING_DOWN: &str = "standing down: ";
/// … or what waits,
pub(super) const HELD_BACK: &str = "held back ";
/// and each of the others.
const ALSO: &str = "; also ";

const ELLIPSIS: &str = "…";

/// One message: `first`, then `note`, then as many of `others` as there is room for.
pub(super) fn compose(first: &str, note: Option<&str>, others: &[String]) -> String {
    let note = note.map(|note| format!("; {}", bounded(note, MAX_NOTE_BYTES - 2)));
    let note = note.unwrap_or_default();
    let mut message = bounded(first, MAX_MESSAGE_BYTES - note.len());
    message.push_str(&note);
    for (index, other) in others.iter().enumerate() {
        let part = format!("{ALSO}{other}");
        let left = others.len() - index;
        let rest = format!("; and {left} more");
        let reserve = if left > 1 { rest.len() } else { 0 };
        if message.len() + part.len() + reserve <= MAX_MESSAGE_BYTES {
            message.push_str(&part);
        } else {
            if message.len() + rest.len() <= MAX_MESSAGE_BYTES {
                message.push_str(&rest);
            }
            break;
        }
    }
    message
}

/// What is said when several checks find all well, each in its own words: one sentence, whoever of them has spoken.
pub(super) fn all_well(finding: &Finding) -> String {
    let doc = finding
        .reason
        .spec()
        .map_or(&*finding.message, |spec| spec.doc);
    let (first, _) = doc.split_once(". ").unwrap_or((doc, ""));
    let mut chars = first.trim_end_matches('.').chars();
    let initial = chars.next().map(|c| c.to_ascii_lowercase());
    initial.into_iter().chain(chars).collect()
}

/// The first sentence of a composed message.
pub(super) fn without_additions(message: &str) -> &str {
    let notes = [STANDING_DOWN, HELD_BACK, late::MARK];
    let added = notes.map(|note| message.find(&format!("; {note}")));
    let ends = added.into_iter().chain([message.find(ALSO)]).flatten();
    &message[..ends.min().unwrap_or(message.len())]
}

/// `text`, or as much of it as fits, ended by `…`.
pub fn bounded(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max_bytes.saturating_sub(ELLIPSIS.len()));
    format!("{}{ELLIPSIS}", &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_others_are_named_as_long_as_there_is_room() {
        let others = |n: usize| vec!["x".repeat(300); n];
        assert_eq!(compose("a", None, &[]), "a");
        assert_eq!(compose("a", Some("b"), &["c".to_owned()]), "a; b; also c");
        for note in [STANDING_DOWN, HELD_BACK, late::MARK] {
            let message = compose("a", Some(&format!("{note}b")), &["c".to_owned()]);
            assert_eq!(without_additions(&message), "a");
        }
        assert_eq!(
            without_additions(&compose("a", None, &["c".to_owned()])),
            "a"
        );
        assert!(compose("a", None, &others(3)).ends_with('x'));
        assert!(compose("a", None, &others(5)).ends_with("; and 2 more"));
    }

    proptest! {
        #[test]
        fn any_message_is_bounded(
            first in "\\PC{0,1500}",
            note in prop::option::of("\\PC{0,500}"),
            others in prop::collection::vec("\\PC{0,400}", 0..9),
        ) {
            let message = compose(&first, note.as_deref(), &others);
            prop_assert!(message.len() <= MAX_MESSAGE_BYTES);
        }
    }
}
