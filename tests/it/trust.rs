//! The table of trust in docs/promises.md: its rows come from several tiers (`tests/support/trust.rs`), each run of which knows only
//! its own. So a row that was told takes the place of the one of that number and name, and the others stay.

use super::tables::Line;

/// The rows in the document with those that were told, by number.
pub(crate) fn merged(document: &str, told: &[Line]) -> Vec<Line> {
    let mut rows = parsed(document);
    for line in told {
        match rows.iter_mut().find(|row| row[..2] == line[..2]) {
            Some(row) => row.clone_from(line),
            None => rows.push(line.clone()),
        }
    }
    rows.sort_by_cached_key(|row| row[0].parse::<u32>().unwrap_or(u32::MAX));
    rows
}

/// The rows of a table as it stands there, without its heading.
fn parsed(table: &str) -> Vec<Line> {
    let rows = table.lines().skip(2);
    rows.map(|row| {
        // A bar inside a cell is written `\|`.
        let row = row.trim_matches('|').replace("\\|", "\u{0}");
        let cells = row.split('|');
        cells
            .map(|cell| cell.trim().replace('\u{0}', "\\|"))
            .collect()
    })
    .collect()
}

#[test]
fn a_row_that_was_told_replaces_its_own_and_no_other() {
    let document = "| row | what | before | now |\n|---|---|---|---|\n| 6 | a \\| b | x | y |\n| 14 | c | x | y |\n";
    let line = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
    let told = [line(["6", "a \\| b", "x", "z"]), line(["8", "d", "x", "y"])];
    let rows = merged(document, &told);
    assert_eq!(
        rows,
        [
            line(["6", "a \\| b", "x", "z"]),
            line(["8", "d", "x", "y"]),
            line(["14", "c", "x", "y"]),
        ]
    );
}
