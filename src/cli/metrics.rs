//! docs/reference/metrics.md, told from the registry of metrics.

use std::fmt::Write as _;

use crate::metrics::{BOUNDS, Family, Label, MAX_BYTES, families};

/// `docs/reference/metrics.md`.
pub fn metrics_md() -> String {
    let mut text = format!(
        "# Metrics\n\n\
         Made by `nodevigil generate metrics`; do not edit. How to scrape them: [README.md](../../README.md#metrics) and\n\
         packaging/monitoring/README.md.\n\n\
         The names are those of the samples. A sample is there once its value is known. Counters begin with the agent's start, and \
         where only\nwhat has happened is there, with 1: `increase()` does not see that first one. No exposition is larger than {} \
         KiB: every label but the last two\nhas its values out of the program's own registries.\n\n\
         `le` of every histogram: {}.\n\n\
         | sample | type | labels | meaning |\n|---|---|---|---|\n",
        MAX_BYTES / 1024,
        BOUNDS
            .iter()
            .map(|(bound, _, _)| *bound)
            .collect::<Vec<_>>()
            .join(", ")
    );
    for family in families() {
        row(&mut text, family);
    }
    text.push_str("\n## Labels\n\n| label | values |\n|---|---|\n");
    let mut told: Vec<Label> = Vec::new();
    for label in families().flat_map(|family| family.labels) {
        if !told.contains(label) {
            told.push(*label);
            let _ = writeln!(text, "| {} | {} |", label_name(*label), values(*label));
        }
    }
    text
}

fn row(text: &mut String, family: &Family) {
    let names: Vec<String> = family
        .sample_names()
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let labels: Vec<&str> = family.labels.iter().map(|label| label.name()).collect();
    let labels = if labels.is_empty() {
        "–".to_owned()
    } else {
        labels.join(", ")
    };
    let _ = writeln!(
        text,
        "| {} | {} | {labels} | {} |",
        names.join(", "),
        family.kind.as_str(),
        family.help
    );
}

/// Two have the same name, in different metrics.
fn label_name(label: Label) -> String {
    let users: Vec<String> = families()
        .filter(|family| family.labels.contains(&label))
        .map(|family| format!("`{}`", family.name))
        .collect();
    match label {
        Label::Answer | Label::Outcome => format!("{} of {}", label.name(), users.join(", ")),
        _ => label.name().to_owned(),
    }
}

fn values(label: Label) -> String {
    match (label, label.values()) {
        (Label::Reason, _) => {
            "each reason of [conditions.md](conditions.md) and each rule's name in [rules.md](rules.md), in CamelCase".to_owned()
        }
        (_, Some(values)) => values.join(", "),
        (Label::Node, None) => "the Node's name".to_owned(),
        (_, None) => "the agent's version".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_and_every_label_is_in_the_document() {
        let text = metrics_md();
        for family in families() {
            for name in family.sample_names() {
                assert_eq!(text.matches(&format!("`{name}`")).count(), 1, "{name}");
            }
            assert!(text.contains(family.help));
            for label in family.labels {
                assert!(text.contains(&format!("| {} |", label_name(*label))));
            }
        }
    }
}
