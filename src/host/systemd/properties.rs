//! What systemd says of a unit and of a job, as it stands in its properties.

use std::{collections::HashMap, fmt::Write as _};

use zbus::{Connection, OwnedObjectPath, OwnedVariant, Variant};

use super::{JOB, PROPERTIES, SYSTEMD};
use crate::checks::kubelet::{JobKind, Unit};

pub(super) fn job(value: &OwnedVariant) -> Option<(u32, OwnedObjectPath)> {
    let value = value.try_clone().ok()?;
    <(u32, OwnedObjectPath)>::try_from(value).ok()
}

pub(super) async fn get(
    connection: &Connection,
    path: &str,
    interface: &str,
    property: &str,
) -> zbus::Result<OwnedVariant> {
    let reply = connection
        .call_method(
            Some(SYSTEMD),
            path,
            Some(PROPERTIES),
            "Get",
            &(interface, property),
        )
        .await?;
    reply.body().deserialize()
}

pub(super) async fn job_type(
    connection: &Connection,
    path: OwnedObjectPath,
) -> zbus::Result<JobKind> {
    let value = get(connection, path.as_str(), JOB, "JobType").await?;
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
            "FreezerState" => unit.freezer_state = text(value),
            "WatchdogUSec" => unit.watchdog_usec = number(value),
            "StartLimitBurst" => unit.start_limit_burst = number(value),
            "StartLimitIntervalUSec" => unit.start_limit_interval_usec = number(value),
            _ => {}
        }
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
