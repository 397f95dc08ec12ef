//! What a real systemd once said of random trees: the resolver must say the same here, where no systemd is needed.
//!
//! `tests/full/oracle` recorded them: every tree on which the two once differed, and some hundreds at random.

#[expect(dead_code, reason = "the oracle itself prints and generates them")]
#[path = "../../../tests/full/oracle/case.rs"]
mod case;
#[path = "../../../tests/full/oracle/compare.rs"]
mod compare;

use std::fs;
use std::path::Path;

use case::{Case, Record, Said, World};

fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/full/oracle"))
}

/// Fails with everything in which the resolver differs.
fn ensure_equal(world: &World, cases: &[(Case, Said)]) {
    let different: Vec<String> = cases
        .iter()
        .filter_map(|(case, said)| {
            let differences = compare::differences(case, world, said);
            let text = format!("{}{}", case.print(), differences.join("\n"));
            (!differences.is_empty()).then_some(text)
        })
        .collect();
    assert!(different.is_empty(), "{} of {} trees differ:\n{}", different.len(), cases.len(), different.join("\n\n"));
}

#[test]
fn past_differences_stay_away() {
    let mut count = 0;
    for entry in fs::read_dir(directory().join("regressions")).unwrap() {
        let text = fs::read(entry.unwrap().path()).unwrap();
        let record: Record = serde_json::from_slice(&text).unwrap();
        ensure_equal(&record.world, &[(record.case, record.said)]);
        count += 1;
    }
    assert!(count > 0, "no regression trees were found");
}

#[test]
fn recorded_trees_resolve_as_systemd_said() {
    let text = fs::read_to_string(directory().join("recorded.jsonl")).unwrap();
    let mut lines = text.lines();
    let world: World = serde_json::from_str(lines.next().unwrap()).unwrap();
    let cases: Vec<(Case, Said)> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() >= 200, "only {} trees were recorded", cases.len());
    ensure_equal(&world, &cases);
}
