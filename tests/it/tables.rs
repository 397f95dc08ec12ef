//! The tables in docs/ that are made from a run (`make table`): each stands between `<!-- table NAME -->` and
//! `<!-- end NAME -->`, and `tests/support/rows.rs` tells its lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nodevigil::cli::conditions::conditions_md;
use serde_json::Value;

use super::trust;

/// Names the file with the lines; `make table` sets it.
const ROWS: &str = "NODEVIGIL_ROWS";

/// Each table's name, its document and its heading.
const TABLES: &[(&str, &str, &[&str])] = &[
    (
        "provoked",
        "docs/promises.md",
        &["fault", "provoked how", "reason on the Node", "seconds"],
    ),
    (
        "peer",
        "docs/promises.md",
        &["", "nodevigil", "node-problem-detector"],
    ),
    (
        "fleet",
        "docs/consumers.md",
        &[
            "controller",
            "bad of 300",
            "how",
            "deleted in the hour",
            "held back by its limit",
        ],
    ),
    (
        "well",
        "docs/promises.md",
        &["minutes", "what was done", "`False`"],
    ),
    (
        "bootstrap",
        "docs/bootstrap.md",
        &["what is broken", "how", "stage", "cause"],
    ),
    (
        "guest",
        "docs/promises.md",
        &["in the guest", "limit", "measured"],
    ),
    (
        "cgroup2",
        "docs/promises.md",
        &["fault", "provoked how", "reason on the Node", "seconds"],
    ),
    (
        "trust",
        "docs/promises.md",
        &["row", "what", "the Node before", "the Node now"],
    ),
];

pub(crate) type Line = Vec<String>;

#[test]
fn tables_are_as_a_run_told_them() {
    let rows = std::env::var_os(ROWS).filter(|rows| !rows.is_empty());
    let told = rows.map(|rows| lines(&fs::read_to_string(rows).unwrap()));
    for (name, document, heading) in TABLES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
        let mut text = fs::read_to_string(&path).unwrap();
        // A run of a part of the tests changes the tables of that part.
        if let Some(lines) = told.as_ref().and_then(|told| told.get(*name)) {
            let (from, to) = place(&text, name);
            let lines = match *name {
                "trust" => trust::merged(&text[from..to], lines),
                _ => lines.clone(),
            };
            text = replaced(&text, name, &table(heading, &lines));
            fs::write(&path, &text).unwrap();
        }
        let (from, to) = place(&text, name);
        for line in text[from..to].lines() {
            let columns = line.replace("\\|", "").matches('|').count() - 1;
            assert_eq!(columns, heading.len(), "{name}: {line}");
        }
    }
}

/// The lines of each table; of two with the same cells before the last two the later counts.
fn lines(text: &str) -> BTreeMap<String, Vec<Line>> {
    let mut tables: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let cells = line["cells"].as_array().unwrap().iter();
        let cells: Line = cells
            .map(|cell| cell.as_str().unwrap().replace('|', "\\|"))
            .collect();
        let table = tables
            .entry(line["table"].as_str().unwrap().to_owned())
            .or_default();
        let name = |cells: &[String]| cells[..cells.len() - 2].to_vec();
        match table.iter_mut().find(|known| name(known) == name(&cells)) {
            Some(known) => *known = cells,
            None => table.push(cells),
        }
    }
    // Tests run side by side and end in any order; the registry has an order that means something.
    for name in ["provoked", "cgroup2"] {
        let Some(provoked) = tables.get_mut(name) else {
            continue;
        };
        let registry = conditions_md();
        let at = |reason: &str| registry.find(&format!("`{reason}`")).unwrap_or(usize::MAX);
        provoked.sort_by_cached_key(|cells| (at(&cells[2]), cells[0].clone()));
    }
    tables
}

fn table(heading: &[&str], lines: &[Line]) -> String {
    let row = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<_> = cells.collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = row(&mut heading.iter().copied());
    text += "|";
    text += &"---|".repeat(heading.len());
    text += "\n";
    for cells in lines {
        assert_eq!(cells.len(), heading.len(), "{cells:?}");
        text += &row(&mut cells.iter().map(String::as_str));
    }
    text
}

/// Where a table stands in the document.
fn place(document: &str, name: &str) -> (usize, usize) {
    let (begin, end) = (
        format!("<!-- table {name} -->\n"),
        format!("<!-- end {name} -->"),
    );
    let from = document
        .find(&begin)
        .unwrap_or_else(|| panic!("no {begin}"))
        + begin.len();
    let to = from
        + document[from..]
            .find(&end)
            .unwrap_or_else(|| panic!("no {end}"));
    (from, to)
}

fn replaced(document: &str, name: &str, table: &str) -> String {
    let (from, to) = place(document, name);
    format!("{}{table}{}", &document[..from], &document[to..])
}

#[test]
fn a_table_is_made_of_the_last_word_on_each_line_in_the_registrys_order() {
    let told = r#"{"table":"provoked","cells":["hung","SIGSTOP","KubeletHung","3.1"]}
{"table":"other","cells":["a","b","c"]}
{"table":"provoked","cells":["nothing","a | b","none","–"]}
{"table":"provoked","cells":["well","by itself","KubeletIsHealthy","1"]}
{"table":"provoked","cells":["hung","SIGSTOP","KubeletHung","4.2"]}
"#;
    let lines = lines(told);
    assert_eq!(lines["other"], [["a", "b", "c"]]);
    let heading = ["fault", "how", "reason", "seconds"];
    let document = "before\n<!-- table x -->\nold\n<!-- end x -->\nafter\n";
    assert_eq!(
        replaced(document, "x", &table(&heading, &lines["provoked"])),
        "before\n<!-- table x -->\n\
         | fault | how | reason | seconds |\n|---|---|---|---|\n\
         | well | by itself | KubeletIsHealthy | 1 |\n\
         | hung | SIGSTOP | KubeletHung | 4.2 |\n\
         | nothing | a \\| b | none | – |\n\
         <!-- end x -->\nafter\n"
    );
}
