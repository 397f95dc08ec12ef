//! The admission policy that is shipped knows what the program publishes, and nothing that Kubernetes acts on.

use std::{fs, path::Path};

use serde_json::Value;

/// The list that a variable of the policy holds.
fn list(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes/policy.yaml");
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap();
    let variables = documents[0]["spec"]["variables"].as_array().unwrap();
    let variable = variables.iter().find(|v| v["name"] == name).unwrap();
    let expression = variable["expression"].as_str().unwrap().replace('\'', "\"");
    serde_json::from_str(&expression).unwrap()
}

#[test]
fn the_policy_lists_what_is_published() {
    let mut listed = list("conditionTypes");
    listed.sort();
    let types = nodevigil::desired::TYPES.iter();
    let mut published: Vec<_> = types.map(|spec| spec.name.to_owned()).collect();
    published.sort();
    assert_eq!(listed, published);
}

#[test]
fn the_policy_gives_nothing_away() {
    let reserved = [
        "Ready",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "Suspended",
        "GracefulNodeShutdownInProgress",
        "DrainInProgress",
        "Drained",
        "MaintenancePlanned",
        "MaintenanceInProgress",
    ];
    for kind in list("conditionTypes") {
        assert!(!reserved.contains(&kind.as_str()), "{kind}");
    }
    assert_eq!(list("taintEffects"), ["NoSchedule", "PreferNoSchedule"]);
    assert_eq!(list("annotations"), ["nodevigil.io/standing-down"]);
    // Whose end keeps it from reaching further than our own keys.
    let prefix = nodevigil::desired::taints::Rules::default().prefix;
    assert!(prefix.ends_with("/nodevigil-"), "{prefix}");
    assert_eq!(list("taintPrefixes"), [prefix]);
}
