//! Tells what a test has shown as a line of a table in docs/promises.md.
//!
//! With `NODEVIGIL_ROWS` naming a file, each line is appended to it as JSON, and `make table` writes the tables from that
//! file (`tests/it/tables.rs`): so the numbers in the document are those of a run, and nobody types them.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use super::say;

/// Names the file that the lines are appended to.
pub(crate) const ROWS: &str = "NODEVIGIL_ROWS";

/// A fault that was provoked on a real node: what it is, how it was provoked, the reason that the Node then gave, and how
/// long after. `None` where nothing was to be told, and nothing was.
pub(crate) fn row(what: &str, how: &str, reason: &str, took: impl Into<Option<Duration>>) {
    row_of("provoked", what, how, reason, took);
}

/// The same in another table of that kind.
pub(crate) fn row_of(
    table: &str,
    what: &str,
    how: &str,
    reason: &str,
    took: impl Into<Option<Duration>>,
) {
    let took = took.into().map_or("–".to_owned(), seconds);
    say(&format!("ROW | {what} | {how} | {reason} | {took}"));
    line(table, &[what, how, reason, &took]);
}

/// A line of any table. All cells but the last two name it: of two lines with the same name the later counts.
pub(crate) fn line(table: &str, cells: &[&str]) {
    let Some(path) = std::env::var_os(ROWS).filter(|path| !path.is_empty()) else {
        return;
    };
    let text = format!("{}\n", json!({"table": table, "cells": cells}));
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    if let Err(error) = written {
        say(&format!("{ROWS}={}: {error}", path.display()));
    }
}

/// Two digits that mean something: 0.043, 0.43, 4.3, 43.
fn seconds(took: Duration) -> String {
    let secs = took.as_secs_f64();
    match secs {
        ..0.1 => format!("{secs:.3}"),
        0.1..1.0 => format!("{secs:.2}"),
        1.0..10.0 => format!("{secs:.1}"),
        _ => format!("{secs:.0}"),
    }
}
