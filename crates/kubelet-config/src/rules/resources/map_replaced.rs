//! RS007: a map of the configuration file that a flag replaces.

use std::collections::BTreeMap;

use crate::{
    kubelet::{effective::From, snapshot::Snapshot},
    rules::{Finding, Report, Severity},
};

/// The maps that have a flag which empties them at its first use, the flag, and what is between key and value;
/// `LangleSeparatedMapStringString` and `MapStringString` of k8s.io/component-base.
const MAPS: [(&str, &str, char); 6] = [
    ("evictionHard", "eviction-hard", '<'),
    ("evictionMinimumReclaim", "eviction-minimum-reclaim", '='),
    ("evictionSoft", "eviction-soft", '<'),
    ("evictionSoftGracePeriod", "eviction-soft-grace-period", '='),
    ("kubeReserved", "kube-reserved", '='),
    ("systemReserved", "system-reserved", '='),
];

pub(super) fn map_replaced(snapshot: &Snapshot, report: &mut Report) {
    for (field, flag, sign) in MAPS {
        let Some(entry) = snapshot.config.entry(field) else {
            continue;
        };
        let effective = snapshot.settings.map(field);
        let text = |map: &BTreeMap<&str, &str>| {
            let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}{sign}{value}")).collect();
            pairs.join(",")
        };
        let values: Vec<_> =
            entry.node.entries().iter().filter_map(|one| Some((one.key.as_str(), one.node.text()?))).collect();
        let in_file: BTreeMap<&str, &str> = values.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let missing: BTreeMap<&str, &str> = in_file
            .iter()
            .filter(|(key, _)| !effective.contains_key(**key))
            .map(|(key, value)| (*key, *value))
            .collect();
        let gets = if effective.is_empty() { "nothing".to_owned() } else { text(&effective) };
        let finding = |by: &str| {
            let message = format!(
                "{field} of this file has no effect: {by} replaces the whole map. The kubelet gets {gets} instead of \
                 {}.",
                text(&in_file)
            );
            Finding::new("RS007", Severity::Warning, entry.at.clone(), message)
        };
        match snapshot.settings.get(field).map(|setting| &setting.from) {
            Some(From::Distribution) if in_file != effective => {
                let program = snapshot.command.launcher.rancher_name().unwrap_or_default();
                let finding = finding(&format!("the flag --{flag} that {program} itself passes before 1.32"));
                report.add(super::with_argument(finding, snapshot, &format!("{flag}={}", text(&in_file))));
            }
            Some(From::Flag(by)) if !missing.is_empty() => {
                let finding = finding(&format!("the flag --{flag} ({by})"));
                let finding = super::append_to_flag(finding, snapshot, flag, &text(&missing));
                let finding = finding.step(by.clone(), format!("--{flag} is given here"));
                report.add(finding);
            }
            _ => {}
        }
    }
}
