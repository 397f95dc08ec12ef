//! What a running systemd has in its memory of a unit, asked once over D-Bus: for `nodevigil check`.
//!
//! Over the system bus, which is there from `dbus.socket` on. Not over `/run/systemd/private`, which `systemctl` falls back
//! to: systemd signs what it sends there as `org.freedesktop.systemd1`, and zbus refuses a sender that is no unique name.

use std::{collections::HashMap, time::Duration};

use zbus::{OwnedObjectPath, OwnedVariant, Variant};

use super::systemd::Systemd;
use crate::kubelet::snapshot::Loaded;

const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// All questions together; a busy PID 1 answers within milliseconds.
const DEADLINE: Duration = Duration::from_secs(2);

/// What systemd said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Of the unit.
    pub loaded: Loaded,
    /// Its cgroup; empty while it has none.
    pub control_group: String,
    /// Its main process; `None` while it has none.
    pub main_pid: Option<i32>,
    /// systemd's id of its run, the one that is or was last: 32 hexadecimal digits.
    pub invocation: Option<String>,
}

/// Asks; the error says why there is no answer.
pub fn ask(unit: &str) -> Result<Told, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let answer = runtime.block_on(async {
        let asked = async { about(&Systemd::connect(DEADLINE).await?, unit).await };
        match tokio::time::timeout(DEADLINE, asked).await {
            Ok(told) => told.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        }
    });
    runtime.shutdown_background();
    answer
}

/// What is loaded for the unit at that path, over a connection to the bus that stands already.
///
/// # Errors
/// The bus's.
pub(super) async fn read(systemd: &Systemd, unit_path: &OwnedObjectPath) -> zbus::Result<Loaded> {
    Ok(properties(systemd, unit_path.as_str()).await?.loaded)
}

async fn about(systemd: &Systemd, unit: &str) -> zbus::Result<Told> {
    let reply = systemd
        .call(MANAGER_PATH, MANAGER, "LoadUnit", &(unit))
        .await?;
    let path: OwnedObjectPath = reply.body().deserialize()?;
    properties(systemd, path.as_str()).await
}

async fn properties(systemd: &Systemd, path: &str) -> zbus::Result<Told> {
    let mut unit = all(systemd, path, UNIT).await?;
    unit.extend(all(systemd, path, SERVICE).await?);
    let manager = all(systemd, MANAGER_PATH, MANAGER).await?;
    Ok(told(&unit, &manager))
}

async fn all(
    systemd: &Systemd,
    path: &str,
    interface: &str,
) -> zbus::Result<HashMap<String, OwnedVariant>> {
    let reply = systemd
        .call(path, PROPERTIES, "GetAll", &(interface))
        .await?;
    reply.body().deserialize()
}

fn told(unit: &HashMap<String, OwnedVariant>, manager: &HashMap<String, OwnedVariant>) -> Told {
    let get = |name: &str| unit.get(name).map(|value| &**value);
    let say = |name| get(name).map(text).unwrap_or_default();
    let environment = manager.get("Environment").map(|value| strings(value));
    Told {
        loaded: Loaded {
            load_state: say("LoadState"),
            fragment: say("FragmentPath"),
            dropins: get("DropInPaths").map(strings).unwrap_or_default(),
            exec_start: get("ExecStart")
                .map(|value| structures(value).into_iter().map(argv).collect())
                .unwrap_or_default(),
            environment: get("Environment").map(strings).unwrap_or_default(),
            environment_files: get("EnvironmentFiles")
                .map(|value| {
                    structures(value)
                        .into_iter()
                        .map(environment_file)
                        .collect()
                })
                .unwrap_or_default(),
            need_daemon_reload: matches!(get("NeedDaemonReload"), Some(Variant::Bool(true))),
            manager_environment: environment
                .unwrap_or_default()
                .iter()
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            unit_file_state: say("UnitFileState"),
            active_state: say("ActiveState"),
            result: say("Result"),
            unit_path: manager
                .get("UnitPath")
                .map(|value| strings(value))
                .unwrap_or_default(),
            systemd_version: manager.get("Version").and_then(|value| major(&text(value))),
        },
        control_group: say("ControlGroup"),
        main_pid: match get("MainPID") {
            Some(Variant::U32(pid)) if *pid != 0 => i32::try_from(*pid).ok(),
            _ => None,
        },
        invocation: get("InvocationID").and_then(hexadecimal),
    }
}

/// Sixteen bytes, as systemd writes an id.
fn hexadecimal(value: &Variant<'_>) -> Option<String> {
    let digits = |item: &Variant<'_>| match item {
        Variant::U8(byte) => Some(format!("{byte:02x}")),
        _ => None,
    };
    let text: Option<String> = items(value).iter().map(digits).collect();
    text.filter(|text| text.len() == 32)
}

/// `252.36-1~deb12u1`, `255.4-1ubuntu8`, `v257.2`.
fn major(version: &str) -> Option<u32> {
    let digits = version.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits.get(..end)?.parse().ok()
}

fn text(value: &Variant<'_>) -> String {
    match value {
        Variant::Str(text) => text.as_str().to_owned(),
        _ => String::new(),
    }
}

fn items<'v, 'a>(value: &'v Variant<'a>) -> &'v [Variant<'a>] {
    match value {
        Variant::Array(array) => array.inner(),
        _ => &[],
    }
}

fn strings(value: &Variant<'_>) -> Vec<String> {
    items(value).iter().map(text).collect()
}

fn structures<'v, 'a>(value: &'v Variant<'a>) -> Vec<&'v [Variant<'a>]> {
    items(value)
        .iter()
        .filter_map(|item| match item {
            Variant::Structure(structure) => Some(structure.fields()),
            _ => None,
        })
        .collect()
}

/// `(sasbttttuii)`: program, argv, whether a failure is ignored, times, pid, how it ended.
fn argv(exec: &[Variant<'_>]) -> Vec<String> {
    exec.get(1).map(strings).unwrap_or_default()
}

/// `(sb)`: path, whether it may be missing.
fn environment_file(file: &[Variant<'_>]) -> (String, bool) {
    (
        file.first().map(text).unwrap_or_default(),
        matches!(file.get(1), Some(Variant::Bool(true))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_systemd() {
        for (text, number) in [
            ("252.36-1~deb12u1", Some(252)),
            ("255.4-1ubuntu8", Some(255)),
            ("v257", Some(257)),
            ("", None),
        ] {
            assert_eq!(major(text), number, "{text}");
        }
    }

    #[test]
    fn properties_become_what_is_compared() {
        let owned = |value: Variant<'_>| value.try_to_owned().unwrap();
        let exec = vec![(
            "/usr/bin/kubelet",
            vec!["/usr/bin/kubelet", "$KUBELET_EXTRA_ARGS"],
            false,
        )];
        let unit = HashMap::from([
            ("LoadState".to_owned(), owned(Variant::from("loaded"))),
            ("NeedDaemonReload".to_owned(), owned(Variant::from(true))),
            ("ExecStart".to_owned(), owned(Variant::from(exec))),
            (
                "EnvironmentFiles".to_owned(),
                owned(Variant::from(vec![("/etc/default/kubelet", true)])),
            ),
            (
                "Environment".to_owned(),
                owned(Variant::from(vec!["A=1", "B=2"])),
            ),
        ]);
        let manager = HashMap::from([
            (
                "Environment".to_owned(),
                owned(Variant::from(vec!["LANG=C"])),
            ),
            ("Version".to_owned(), owned(Variant::from("252.1"))),
        ]);
        let told = told(&unit, &manager);
        assert_eq!(told.loaded.systemd_version, Some(252));
        assert_eq!(told.loaded.load_state, "loaded");
        assert!(told.loaded.need_daemon_reload);
        assert_eq!(
            told.loaded.exec_start,
            [["/usr/bin/kubelet", "$KUBELET_EXTRA_ARGS"]]
        );
        assert_eq!(told.loaded.environment, ["A=1", "B=2"]);
        assert_eq!(
            told.loaded.environment_files,
            [("/etc/default/kubelet".to_owned(), true)]
        );
        assert_eq!(told.loaded.manager_environment["LANG"], "C");
    }
}
