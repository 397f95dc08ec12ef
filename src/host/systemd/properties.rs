//! What systemd says of a unit and of a job, as it stands in its properties.

use std::{collections::HashMap, fmt::Write as _};

use zbus::{OwnedObjectPath, OwnedVariant, Variant};

use super::{JOB, bus::Systemd};
use crate::checks::kubelet::{Dependency, JobKind, MAX_DEPENDENCIES, Tie, Unit};

pub(super) fn job(value: &OwnedVariant) -> Option<(u32, OwnedObjectPath)> {
    let value = value.try_clone().ok()?;
    <(u32, OwnedObjectPath)>::try_from(value).ok()
}

pub(super) async fn job_type(systemd: &Systemd, path: &OwnedObjectPath) -> zbus::Result<JobKind> {
    let value = systemd.get(path.as_str(), JOB, "JobType").await?;
    Ok(match text(&value).as_str() {
        "stop" => JobKind::Stop,
        "restart" | "try-restart" | "reload-or-restart" | "reload-or-try-restart" => {
            JobKind::Restart
        }
        "start" => JobKind::Start,
        _ => JobKind::Other,
    })
}

pub(super) fn merge(unit: &mut Unit, properties: &HashMap<String, OwnedVariant>) {
    for (name, value) in properties {
        match name.as_str() {
            "LoadState" => unit.load_state = text(value),
            "ActiveState" => unit.active_state = text(value),
            "SubState" => unit.sub_state = text(value),
            "Result" => unit.result = text(value),
            "ControlGroup" => unit.control_group = text(value),
            "MainPID" => unit.main_pid = number(value),
            "ExecMainPID" => unit.exec_main_pid = number(value),
            "ExecMainCode" => unit.exec_main_code = number(value),
            "ExecMainStatus" => unit.exec_main_status = number(value),
            "InactiveExitTimestampMonotonic" => unit.ever_started = number::<u64>(value) != 0,
            "InvocationID" => unit.invocation = hexadecimal(value),
            "NRestarts" => unit.restarts = number(value),
            "WatchdogUSec" => unit.watchdog_usec = number(value),
            "StartLimitBurst" => unit.start_limit_burst = number(value),
            "StartLimitIntervalUSec" => unit.start_limit_interval_usec = number(value),
            _ => {}
        }
    }
}

/// Properties that name units with which a unit is stopped, those that say most first.
const TIES: [(&str, Tie); 7] = [
    ("BindsTo", Tie::BindsTo),
    ("Requires", Tie::Requires),
    ("Requisite", Tie::Requisite),
    ("PartOf", Tie::PartOf),
    ("StopPropagatedFrom", Tie::StopPropagatedFrom),
    ("Conflicts", Tie::Conflicts),
    ("ConflictedBy", Tie::Conflicts),
];
/// What every service depends on by default (`DefaultDependencies=`): its stop is a shutdown.
const DEFAULTS: [&str; 5] = [
    "-.mount",
    "basic.target",
    "shutdown.target",
    "sysinit.target",
    "umount.target",
];

/// The units with which systemd stops this one.
pub(super) fn dependencies(properties: &HashMap<String, OwnedVariant>) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    for (property, tie) in TIES {
        for unit in properties
            .get(property)
            .map(|value| texts(value))
            .unwrap_or_default()
        {
            let is_default = DEFAULTS.contains(&unit.as_str())
                || unit
                    .rsplit_once('.')
                    .is_some_and(|(_, kind)| kind == "slice");
            let is_known = found.iter().any(|one| one.unit == unit);
            if !is_default && !is_known && found.len() < MAX_DEPENDENCIES {
                found.push(Dependency { unit, tie });
            }
        }
    }
    found
}

fn texts(value: &Variant<'_>) -> Vec<String> {
    match value {
        Variant::Array(list) => list.iter().map(text).collect(),
        Variant::Variant(inner) => texts(inner),
        _ => Vec::new(),
    }
}

pub(super) fn text(value: &Variant<'_>) -> String {
    match value {
        Variant::Str(text) => text.as_str().to_owned(),
        Variant::Variant(inner) => text(inner),
        _ => String::new(),
    }
}

/// Bytes, such as an id; nothing for anything else, and for zeros, which stand for none.
fn hexadecimal(value: &Variant<'_>) -> String {
    let bytes = match value {
        Variant::Array(bytes) => bytes.iter(),
        Variant::Variant(inner) => return hexadecimal(inner),
        _ => return String::new(),
    };
    let byte = |value: &Variant<'_>| match value {
        Variant::U8(byte) => *byte,
        _ => 0,
    };
    let bytes: Vec<u8> = bytes.map(byte).collect();
    if bytes.iter().all(|byte| *byte == 0) {
        return String::new();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A number of whatever width; one that does not fit, or is none, is 0, which for each of them means "none".
fn number<T: TryFrom<i128> + Default>(value: &Variant<'_>) -> T {
    let wide = match value {
        Variant::U32(n) => i128::from(*n),
        Variant::I32(n) => i128::from(*n),
        Variant::U64(n) => i128::from(*n),
        Variant::I64(n) => i128::from(*n),
        _ => 0,
    };
    T::try_from(wide).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_service_depends_on_is_left_out_and_the_rest_is_bounded() {
        let list = |units: &[&str]| {
            let units: Vec<String> = units.iter().map(|unit| (*unit).to_owned()).collect();
            Variant::from(units).try_to_owned().unwrap()
        };
        let many: Vec<String> = (0..100).map(|n| format!("{n}.service")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut properties = HashMap::from([
            (
                "Requires".to_owned(),
                list(&[
                    "system.slice",
                    "sysinit.target",
                    "-.mount",
                    "a.service",
                    "b.socket",
                ]),
            ),
            ("BindsTo".to_owned(), list(&["a.service"])),
            ("Conflicts".to_owned(), list(&["shutdown.target"])),
            ("PartOf".to_owned(), OwnedVariant::from(7_u32)),
        ]);
        let named = |unit: &str, tie| Dependency {
            unit: unit.to_owned(),
            tie,
        };
        let wanted = [
            named("a.service", Tie::BindsTo),
            named("b.socket", Tie::Requires),
        ];
        assert_eq!(dependencies(&properties), wanted);
        properties.insert("ConflictedBy".to_owned(), list(&many));
        assert_eq!(dependencies(&properties).len(), MAX_DEPENDENCIES);
    }

    #[test]
    fn properties_are_merged_by_name_and_type() {
        let mut unit = Unit::default();
        let properties = HashMap::from([
            ("MainPID".to_owned(), OwnedVariant::from(7_u32)),
            ("ExecMainStatus".to_owned(), OwnedVariant::from(9_i32)),
            (
                "InactiveExitTimestampMonotonic".to_owned(),
                OwnedVariant::from(5_u64),
            ),
            (
                "ActiveState".to_owned(),
                Variant::from("active").try_to_owned().unwrap(),
            ),
            ("Result".to_owned(), OwnedVariant::from(1_u32)),
            ("Unheard".to_owned(), OwnedVariant::from(1_u32)),
            (
                "InvocationID".to_owned(),
                Variant::from(vec![0xab_u8, 1]).try_to_owned().unwrap(),
            ),
        ]);
        merge(&mut unit, &properties);
        assert_eq!(
            (unit.main_pid, unit.exec_main_status, unit.ever_started),
            (7, 9, true)
        );
        assert_eq!(
            (unit.active_state.as_str(), unit.result.as_str()),
            ("active", "")
        );
        assert_eq!(unit.invocation, "ab01");
    }
}
