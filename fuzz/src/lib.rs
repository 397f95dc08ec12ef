//! What every target does with a host: everything that `nodevigil check` does, and what must hold of the result.

use nodevigil::{
    kubelet::{
        place::Place,
        resolve::{Inputs, snapshot},
        snapshot::Snapshot,
        tree::MemoryTree,
    },
    rules,
};

/// The kubelet's unit.
pub const UNIT: &str = "/etc/systemd/system/kubelet.service";

/// Resolves and judges a host; a panic is a finding.
pub fn check(tree: &MemoryTree, unit: &str, version: &str) -> Snapshot {
    let inputs = Inputs {
        unit: Some(unit.to_owned()),
        version: version.parse().ok(),
        hostname: Some("node-1".to_owned()),
        now_secs: Some(1_800_000_000),
        ..Inputs::default()
    };
    let snapshot = snapshot(tree, inputs);
    let report = rules::run(&snapshot);
    for finding in &report.findings {
        assert!(rules::all().any(|rule| rule.id == finding.rule), "{}", finding.rule);
        assert!(!finding.message.is_empty());
        is_sound(&finding.at);
    }
    for word in &snapshot.launch.words {
        is_sound(&word.declared);
        is_sound(word.at());
    }
    assert_eq!(snapshot.launch.words.len(), snapshot.launch.built_in.len());
    let _ = rules::allow::part(tree, report.findings);
    snapshot
}

/// A column stands in a line, a line in a file.
fn is_sound(place: &Place) {
    assert!(!place.file.is_empty());
    assert!(place.column == 0 || place.line > 0, "{place:?}");
}
