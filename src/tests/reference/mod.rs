//! The documents that are generated from the program: `NODEVIGIL_WRITE_DOCS=1 cargo test reference::` (`make docs`) writes them, and without
//! the variable the same tests compare. Part of the tests alone.
#![expect(clippy::format_push_string, reason = "a document is short and built once")]

mod chart;
mod conditions;
mod documents;
mod man;
mod metrics;
mod names;
mod rules;
mod settings;

use std::path::Path;
use std::{env, fs};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether documents are to be written, not compared.
fn is_writing() -> bool {
    env::var_os("NODEVIGIL_WRITE_DOCS").is_some()
}

/// Writes the document, or compares it with what is written.
fn generated(path: &str, content: &str) {
    let file = repository().join(path);
    if is_writing() {
        fs::write(file, content).unwrap();
    } else {
        assert!(fs::read_to_string(file).unwrap() == content, "{path} differs from the program: run `make docs`");
    }
}

/// A row of a Markdown table.
fn row<const N: usize>(cells: [&str; N]) -> String {
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

/// The head of a Markdown table.
fn head<const N: usize>(cells: [&str; N]) -> String {
    row(cells) + &row(cells.map(|_| "---"))
}
