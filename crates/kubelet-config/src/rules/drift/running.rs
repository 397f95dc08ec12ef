//! The configuration with which the kubelet runs, compared with that of the files as they are now.

use serde_json::Value;

use super::with_restart;
use crate::kubelet::effective::{Effective, From, Settings, is_same};
use crate::kubelet::location::Location;
use crate::kubelet::snapshot::Snapshot;
use crate::rules::lost::quoted;
use crate::rules::{Finding, Report, Severity, settings};

const ID: &str = "CF010";
/// What a kubelet changes itself before it shows its configuration: the driver, its certificate, headers (secrets).
const ITS_OWN: [&str; 4] = ["cgroupDriver", "tlsCertFile", "tlsPrivateKeyFile", "staticPodURLHeader"];
/// What it changes where processors are reserved by number.
const RESERVATIONS: [&str; 2] = ["kubeReserved", "systemReserved"];

/// The kubelet runs with other settings than those of its files.
pub(crate) fn running_config(snapshot: &Snapshot, report: &mut Report) {
    let Some(running) = &snapshot.observed.config else {
        return report.not_checked(ID, "the configuration of the running kubelet (its /configz)");
    };
    let differences: Vec<(&String, &Effective, &Value)> = differences(&snapshot.settings, running).collect();
    let Some((_, first, _)) = differences.first() else { return };
    let parts = differences.iter().map(|(path, setting, running)| {
        format!("{path} is {} and not {}", quoted(&text(running)), quoted(&text(&setting.value)))
    });
    let message = format!("the running kubelet does not have the configuration of its files: {}", shorten(parts));
    let at = match &first.from {
        From::Flag(at) | From::File(at) => at.clone(),
        From::Default { .. } | From::Distribution => main_file(snapshot),
    };
    report.add(with_restart(snapshot, report, Finding::new(ID, Severity::Warning, at, message)));
}

/// The settings that are known on both sides and differ.
fn differences<'a>(
    settings: &'a Settings,
    running: &'a Value,
) -> impl Iterator<Item = (&'a String, &'a Effective, &'a Value)> {
    let are_cpus_reserved = settings.text("reservedSystemCPUs").is_some();
    settings.0.iter().filter_map(move |(path, setting)| {
        let is_left_out = path.starts_with("--")
            || ITS_OWN.contains(&path.as_str())
            || are_cpus_reserved && RESERVATIONS.contains(&path.as_str())
            || setting.from == From::Distribution;
        let found = path.split('.').try_fold(running, |value, name| value.get(name));
        // A kubelet leaves out what is empty, and fields that it does not know.
        let is_default = matches!(setting.from, From::Default { .. });
        let found = if is_default { found? } else { found.unwrap_or(&Value::Null) };
        (!is_left_out && !is_same(&setting.value, found)).then_some((path, setting, found))
    })
}

fn main_file(snapshot: &Snapshot) -> Location {
    snapshot.config.files.first().map_or_else(|| settings::command(snapshot), |file| file.at.clone())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The first of several differences, and how many more there are.
fn shorten(parts: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 5;
    let mut parts: Vec<String> = parts.collect();
    let more = parts.len().saturating_sub(SHOWN);
    parts.truncate(SHOWN);
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    parts.join("; ")
}
