//! RS007: a map of the configuration file that a flag replaces.

use std::collections::BTreeMap;

use super::{add_pairs, sign, with_argument};
use crate::rules::{Finding, From, Report, Severity, Snapshot, settings};

/// The maps whose flag empties them at its first use: `LangleSeparatedMapStringString`, `MapStringString`.
pub(in crate::rules) const MAPS: [&str; 6] = [
    "evictionHard",
    "evictionMinimumReclaim",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "kubeReserved",
    "systemReserved",
];

pub(in crate::rules) fn map_replaced(snapshot: &Snapshot, report: &mut Report) {
    for field in MAPS {
        let (Some(entry), Some(flag)) = (snapshot.config.entry(field), settings::flag_of(field)) else { continue };
        let effective = snapshot.settings.map(field);
        let text = |map: &BTreeMap<&str, &str>| {
            let sign = sign(field);
            let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}{sign}{value}")).collect();
            pairs.join(",")
        };
        let values: Vec<_> =
            entry.node.entries().iter().filter_map(|one| Some((one.key.as_str(), one.node.text()?))).collect();
        let in_file: BTreeMap<&str, &str> = values.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let missing: Vec<(&str, &str)> =
            in_file.clone().into_iter().filter(|(key, _)| !effective.contains_key(key)).collect();
        let gets = if effective.is_empty() { "nothing".to_owned() } else { text(&effective) };
        let finding = |by: &str| {
            let message = format!(
                "{field} of this file has no effect: {by} replaces the whole map. The kubelet gets {gets} instead of \
                 {}",
                text(&in_file)
            );
            Finding::new("RS007", Severity::Warning, entry.at.clone(), message)
        };
        match settings::from(snapshot, field) {
            Some(From::Distribution) if in_file != effective => {
                let program = snapshot.command.launcher.rancher_name().unwrap_or_default();
                let finding = finding(&format!("the flag --{flag} that {program} itself passes before 1.32"));
                report.add(finding.remedy(with_argument(snapshot, &format!("{flag}={}", text(&in_file)))));
            }
            Some(From::Flag(by)) if in_file.iter().any(|(key, value)| effective.get(key) != Some(value)) => {
                let mut finding = finding(&format!("the flag --{flag} ({by})"));
                let in_drop_in = snapshot.config.files.iter().any(|file| file.drop_in && file.at.file == entry.at.file);
                // Whoever wrote a drop-in wanted to override something; in the main file it may be a default.
                if missing.is_empty() && !in_drop_in {
                    finding.severity = Severity::Info;
                }
                let finding = match &missing[..] {
                    [] => finding.say_at(&entry.at, format!("delete the flag at {by}, or {field}")),
                    missing => finding.with(add_pairs(snapshot, field, missing)),
                };
                report.add(finding.step(by.clone(), format!("--{flag} is given here")));
            }
            _ => {}
        }
    }
}
