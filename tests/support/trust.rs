//! The rows of docs/promises.md's table of trust: what a Node said before of something that was no fault, or not that one, and what
//! it says now.

use super::{rows, say};

/// One of them, by its number in the list and what happens; `before` is as it was first seen. It takes the place of the row of that
/// number and name, and leaves the others (`tests/it/trust.rs`).
pub(crate) fn row(number: u8, what: &str, before: &str, now: &str) {
    say(&format!("TRUST | {number} | {what} | {before} | {now}"));
    rows::line("trust", &[&number.to_string(), what, before, now]);
}
