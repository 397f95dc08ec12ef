//! What packaging/monitoring asks of Prometheus exists: every metric, label and value in its rules and its dashboard is
//! one that the program has.

use std::{borrow::Cow, collections::BTreeSet, fs, path::Path};

use nodevigil::{
    health::ConditionType,
    metrics::{BOUNDS, Family, Kind, families},
};
use serde_json::Value;

fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/monitoring");
    fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Metrics of others: kube-state-metrics'.
const FOREIGN: &[(&str, &[&str])] = &[
    ("kube_node_info", &["node"]),
    (
        "kube_node_status_condition",
        &["node", "condition", "status"],
    ),
];

/// What a scrape adds.
const BY_SCRAPE: &[&str] = &["instance", "job"];

/// A metric in an expression, with its matchers: label, operator, value.
#[derive(Debug, PartialEq)]
struct Selector {
    metric: String,
    matchers: Vec<(String, String, String)>,
}

/// Every metric that an expression names. (Ours and the foreign ones are told from functions by their prefix.)
fn selectors(expr: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut rest = expr;
    while let Some(start) = rest.find(is_word) {
        let word: String = rest[start..].chars().take_while(|c| is_word(*c)).collect();
        rest = &rest[start + word.len()..];
        if !word.starts_with("nodevigil_") && !word.starts_with("kube_") {
            continue;
        }
        let mut matchers = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            let end = inner.find('}').expect("a selector ends");
            matchers = inner[..end]
                .split(',')
                .filter(|m| !m.trim().is_empty())
                .map(matcher)
                .collect();
            rest = &inner[end + 1..];
        }
        found.push(Selector {
            metric: word,
            matchers,
        });
    }
    found
}

fn matcher(text: &str) -> (String, String, String) {
    let at = text.find(['=', '!']).expect("a matcher has an operator");
    let (label, rest) = text.split_at(at);
    let quote = rest.find(['"', '\'']).expect("a matcher has a value");
    let value = rest[quote..].trim().trim_matches(['"', '\'']);
    (
        label.trim().to_owned(),
        rest[..quote].to_owned(),
        value.to_owned(),
    )
}

fn family_of(sample: &str) -> Option<&'static Family> {
    families().find(|family| family.sample_names().iter().any(|name| name == sample))
}

/// What is wrong with an expression.
fn problems(expr: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for selector in selectors(expr) {
        let metric = &selector.metric;
        let foreign = FOREIGN.iter().find(|(name, _)| name == metric);
        let family = family_of(metric);
        if foreign.is_none() && family.is_none() {
            problems.push(format!("{metric}: no such metric"));
            continue;
        }
        for (label, _, value) in &selector.matchers {
            let values = match (family, foreign) {
                (Some(family), _) => values_of(family, label),
                (_, Some((_, labels))) if labels.contains(&label.as_str()) => {
                    Some(values_of_foreign(label))
                }
                _ => None,
            };
            match values {
                None if BY_SCRAPE.contains(&label.as_str()) => {}
                None => problems.push(format!("{metric}: no such label: {label}")),
                Some(values) => problems.extend(
                    value
                        .split('|')
                        .filter(|one| !values.is_empty() && !values.iter().any(|v| v == one))
                        .map(|one| format!("{metric}: {label} is never {one}")),
                ),
            }
        }
    }
    problems
}

/// The values of one of our labels; empty: any.
fn values_of(family: &Family, label: &str) -> Option<Vec<String>> {
    if label == "le" && family.kind == Kind::Histogram {
        // Those that both formats spell alike.
        let alike = BOUNDS.iter().filter(|(one, other, _)| one == other);
        return Some(alike.map(|(bound, _, _)| (*bound).to_owned()).collect());
    }
    let label = family.labels.iter().find(|own| own.name() == label)?;
    let values = label.values().unwrap_or_default();
    Some(values.into_iter().map(Cow::into_owned).collect())
}

fn values_of_foreign(label: &str) -> Vec<String> {
    match label {
        "condition" => ConditionType::ALL
            .iter()
            .map(|c| c.as_str().to_owned())
            .collect(),
        "status" => ["true", "false", "unknown"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    }
}

fn rules() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&read("alerts.yaml")).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

#[test]
fn the_alert_rules_ask_for_what_there_is() {
    for rule in rules() {
        let (name, expr) = (&rule["alert"], rule["expr"].as_str().unwrap());
        assert_eq!(problems(expr), [""; 0], "{name}");
        assert!(!selectors(expr).is_empty(), "{name} asks for nothing");
        for text in rule["annotations"].as_object().unwrap().values() {
            let text = text.as_str().unwrap();
            // What a template asks for is spelled with the format's %s in place of a value.
            let queries = text
                .split('`')
                .filter(|part| part.contains('{') && part.contains('}'));
            for query in queries.filter(|query| query.starts_with("nodevigil_")) {
                let query = query.replace("'%s'", "\"KubeletHealthy\"");
                let found = problems(&query);
                assert!(found.is_empty(), "{name}: {found:?}");
            }
        }
    }
}

#[test]
fn every_alert_has_a_test_that_fires_it() {
    let tests: Value = serde_saphyr::from_str(&read("alerts_test.yaml")).unwrap();
    let fired: BTreeSet<&str> = tests["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
        .filter(|test| {
            test["exp_alerts"]
                .as_array()
                .is_some_and(|some| !some.is_empty())
        })
        .map(|test| test["alertname"].as_str().unwrap())
        .collect();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(fired.contains(name), "{name} is never fired");
    }
}

/// Every expression in the dashboard, wherever it stands.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let ("expr" | "definition", Value::String(text)) = (name.as_str(), value) {
                    found.push(text.clone());
                }
                expressions(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_what_there_is_and_leaves_nothing_out() {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut all = Vec::new();
    expressions(&dashboard, &mut all);
    for expr in &all {
        assert_eq!(problems(expr), [""; 0], "{expr}");
    }
    let shown: BTreeSet<String> = all
        .iter()
        .flat_map(|expr| selectors(expr))
        .filter_map(|selector| family_of(&selector.metric))
        .map(|family| family.name.to_owned())
        .collect();
    // By these nothing is drawn: they are for rules.
    let for_rules = [
        "nodevigil_rendered_timestamp_seconds",
        "nodevigil_process_start_time_seconds",
        "nodevigil_events_sent",
    ];
    for family in families().filter(|family| !for_rules.contains(&family.name)) {
        assert!(shown.contains(family.name), "{} is not shown", family.name);
    }
    let ids: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["id"])
        .collect();
    let distinct: BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
    assert_eq!(distinct.len(), ids.len());
}

#[test]
fn a_wrong_name_is_noticed() {
    for (expr, wrong) in [
        (
            "rate(nodevigil_reasons_total[5m])",
            "nodevigil_reasons_total: no such metric",
        ),
        ("nodevigil_reason", "nodevigil_reason: no such metric"),
        (
            "nodevigil_peer_up{peer=\"api\", pear=~\"x\"}",
            "nodevigil_peer_up: no such label: pear",
        ),
        (
            "1 + nodevigil_peer_up{peer=~\"api|bys\"}",
            "nodevigil_peer_up: peer is never bys",
        ),
        (
            "nodevigil_loop_lateness_seconds_bucket{le=\"1\"}",
            "nodevigil_loop_lateness_seconds_bucket: le is never 1",
        ),
        (
            "kube_node_status_condition{condition='Ready'}",
            "kube_node_status_condition: condition is never Ready",
        ),
    ] {
        assert_eq!(problems(expr), [wrong]);
    }
    let right = "sum by (instance) (nodevigil_peer_up{peer=\"api\", instance=~\"$instance\"}) unless kube_node_info";
    assert_eq!(problems(right), [""; 0]);
}
