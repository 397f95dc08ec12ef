//! What systemd has in its memory of a unit at one moment: the files on disk may have changed since it read them.

use std::time::Duration;

use kubelet_config::kubelet::snapshot::Loaded;
use zbus::OwnedVariant;

use super::{CALL_TIMEOUT, MANAGER, MANAGER_PATH, Properties, Systemd, UnitState, unit, within};
use crate::condition::Uptime;
use crate::host::clock::Monotonic;

/// For all calls together: a user or the start of the kubelet waits for the result.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A service as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unit {
    pub name: String,
    pub state: UnitState,
    pub active_since: Option<Uptime>,
}

/// Asks systemd for these services. Each has the name by which it was asked for, which may be an alias.
///
/// # Errors
/// When the bus or systemd does not answer within 5 seconds.
pub async fn units(names: &[String]) -> zbus::Result<Vec<Unit>> {
    within(CALL_TIMEOUT, async {
        let (systemd, mut units) = (Systemd::connect(CALL_TIMEOUT).await?, Vec::new());
        for name in names {
            let properties = systemd.service(&systemd.load(name).await?).await?;
            let (mut state, micros) = (UnitState::default(), get(&properties, "ActiveEnterTimestampMonotonic"));
            unit::merge(&mut state, &properties);
            let active_since = (micros != 0).then(|| Monotonic::from_micros(micros).uptime());
            units.push(Unit { name: name.clone(), state, active_since });
        }
        Ok(units)
    })
    .await
}

/// Asks systemd for the unit of that name as it has loaded it, and for its cgroup, which is empty while it has none.
///
/// # Errors
/// When the bus or systemd does not answer within 2 seconds.
pub async fn loaded(unit: &str) -> zbus::Result<(Loaded, String)> {
    within(TIMEOUT, async {
        let systemd = Systemd::connect(TIMEOUT).await?;
        let path = systemd.load(unit).await?;
        let properties = systemd.service(&path).await?;
        Ok(read(&properties, &systemd.properties(MANAGER_PATH, MANAGER).await?))
    })
    .await
}

fn read(unit: &Properties, manager: &Properties) -> (Loaded, String) {
    let environment: Vec<String> = get(manager, "Environment");
    let pairs = environment.iter().filter_map(|pair| pair.split_once('='));
    let exec_start: Vec<Exec> = get(unit, "ExecStart");
    let loaded = Loaded {
        load_state: get(unit, "LoadState"),
        fragment: get(unit, "FragmentPath"),
        dropins: get(unit, "DropInPaths"),
        exec_start: exec_start.into_iter().map(|(_, arguments, ..)| arguments).collect(),
        environment: get(unit, "Environment"),
        environment_files: get(unit, "EnvironmentFiles"),
        need_daemon_reload: get(unit, "NeedDaemonReload"),
        manager_environment: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        unit_file_state: get(unit, "UnitFileState"),
        unit_path: get(manager, "UnitPath"),
        systemd_version: major(&get::<String>(manager, "Version")),
    };
    (loaded, get(unit, "ControlGroup"))
}

/// Program, arguments, whether a failure is ignored, times, pid, how it ended.
type Exec = (String, Vec<String>, bool, u64, u64, u64, u64, u32, i32, i32);

fn get<T: TryFrom<OwnedVariant> + Default>(properties: &Properties, name: &str) -> T {
    properties.get(name).map(unit::read).unwrap_or_default()
}

/// The major version in `252.36-1~deb12u1`, `255.4-1ubuntu8` or `v257.2`.
pub fn major(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use zbus::{Message, Variant};

    use super::*;

    #[test]
    fn the_major_version_of_systemd_is_read() {
        let versions = ["252.36-1~deb12u1", "255.4-1ubuntu8", "v257", ""];
        assert_eq!(versions.map(major), [Some(252), Some(255), Some(257), None]);
    }

    #[test]
    fn what_is_compared_with_the_files_is_read_from_the_properties() {
        let owned = |value: Variant<'_>| value.try_to_owned().unwrap();
        let arguments = vec!["/usr/bin/kubelet", "$KUBELET_EXTRA_ARGS"];
        let exec = vec![("/usr/bin/kubelet", arguments, false, 0_u64, 0_u64, 0_u64, 0_u64, 7_u32, 0_i32, 0_i32)];
        let unit = HashMap::from([
            ("LoadState".to_owned(), owned(Variant::from("loaded"))),
            ("NeedDaemonReload".to_owned(), owned(Variant::from(true))),
            ("ExecStart".to_owned(), owned(Variant::from(exec))),
            ("EnvironmentFiles".to_owned(), owned(Variant::from(vec![("/etc/default/kubelet", true)]))),
            ("Environment".to_owned(), owned(Variant::from(vec!["A=1", "B=2"]))),
        ]);
        let manager = HashMap::from([
            ("Environment".to_owned(), owned(Variant::from(vec!["LANG=C"]))),
            ("Version".to_owned(), owned(Variant::from("252.1"))),
        ]);
        // As they come over the bus.
        let message = Message::signal("/a", "a.a", "A").build(&(unit, manager)).unwrap();
        let (unit, manager) = message.body().deserialize().unwrap();
        let (loaded, _) = read(&unit, &manager);
        assert_eq!((loaded.systemd_version, loaded.load_state.as_str()), (Some(252), "loaded"));
        assert!(loaded.need_daemon_reload);
        assert_eq!(loaded.exec_start, [["/usr/bin/kubelet", "$KUBELET_EXTRA_ARGS"]]);
        assert_eq!(loaded.environment, ["A=1", "B=2"]);
        assert_eq!(loaded.environment_files, [("/etc/default/kubelet".to_owned(), true)]);
        assert_eq!(loaded.manager_environment["LANG"], "C");
    }
}
