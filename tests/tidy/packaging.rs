//! What packages, samples, role, script and dashboard have to agree on.

use std::collections::BTreeSet;
use std::fs;

use tidy::{files, read, repository};

const PREFLIGHT: &str = "nodevigil-preflight.service";

/// A unit that requires the preflight is stopped with it, and does not start when the package is gone. One that only wants it would start
/// at the same time.
#[test]
fn what_starts_the_preflight_wants_it_and_waits_for_it() {
    let mut count = 0;
    for file in ["cloud-init", "docs", "packaging"].iter().flat_map(|directory| files(&repository().join(directory))) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let file = file.display();
        assert!(!text.contains(&format!("Requires={PREFLIGHT}")), "{file}: the kubelet requires the preflight");
        for after in text.split(&format!("Wants={PREFLIGHT}")).skip(1) {
            let next = after.trim_start_matches("\\n").trim_start();
            assert!(next.starts_with(&format!("After={PREFLIGHT}")), "{file}: nothing orders the kubelet");
            count += 1;
        }
    }
    assert!(count > 5, "{count} drop-ins");
}

#[test]
fn the_preflight_runs_before_every_unit_that_usually_runs_a_kubelet() {
    let code = read("crates/kubelet-config/src/kubelet/layers/candidates.rs");
    let names = code.split("NAMES: ").nth(1).and_then(|rest| rest.split("];").next()).unwrap();
    let names: Vec<_> = names.split('"').skip(1).step_by(2).collect();
    let unit = read("systemd/nodevigil-preflight.service");
    let before = unit.lines().filter_map(|line| line.strip_prefix("Before="));
    let before: BTreeSet<_> = before.flat_map(str::split_whitespace).collect();
    let missing: Vec<_> = names.iter().filter(|name| !before.contains(*name)).collect();
    assert!(names.len() > 5 && missing.is_empty(), "{missing:?}");
}

/// Links to a panel have its id.
#[test]
fn no_two_panels_of_the_dashboard_have_the_same_id() {
    let dashboard = read("packaging/monitoring/dashboard.json");
    let ids = dashboard.split("\"id\": ").skip(1).filter_map(|rest| rest.split(',').next()?.parse::<u32>().ok());
    let ids: Vec<_> = ids.collect();
    assert!(ids.len() > 10 && ids.iter().collect::<BTreeSet<_>>().len() == ids.len(), "{ids:?}");
}
