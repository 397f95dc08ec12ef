//! What systemd has in its memory of a unit: the files on disk may have changed since it read them.

use std::{collections::HashMap, time::Duration};

use kubelet_config::kubelet::snapshot::Loaded;
use zbus::{OwnedVariant, Variant};

use super::{MANAGER, MANAGER_PATH, SERVICE, Systemd, UNIT, unit::text, within};

/// For all questions together: somebody waits for the answer, or the start of the kubelet does.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A unit as systemd has loaded it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadedUnit {
    pub loaded: Loaded,
    /// Its cgroup; empty while it has none.
    pub control_group: String,
}

type Properties = HashMap<String, OwnedVariant>;

/// Asks systemd for the unit of that name.
///
/// # Errors
/// When the bus or systemd does not answer within 2 seconds.
pub async fn loaded(unit: &str) -> zbus::Result<LoadedUnit> {
    within(TIMEOUT, async {
        let systemd = Systemd::connect(TIMEOUT).await?;
        let path = systemd.load(unit).await?;
        let mut properties = systemd.properties(&path, UNIT).await?;
        properties.extend(systemd.properties(&path, SERVICE).await?);
        Ok(read(&properties, &systemd.properties(MANAGER_PATH, MANAGER).await?))
    })
    .await
}

fn read(unit: &Properties, manager: &Properties) -> LoadedUnit {
    let get = |name: &str| unit.get(name).map(|value| &**value);
    let word = |name| get(name).map(text).unwrap_or_default();
    let words = |name| get(name).map(texts).unwrap_or_default();
    let of_manager = |name| manager.get(name).map(|value| texts(value)).unwrap_or_default();
    let environment = of_manager("Environment");
    let pairs = environment.iter().filter_map(|pair| pair.split_once('='));
    let loaded = Loaded {
        load_state: word("LoadState"),
        fragment: word("FragmentPath"),
        dropins: words("DropInPaths"),
        // (sasbttttuii): program, arguments, whether a failure is ignored, times, pid, how it ended.
        exec_start: structures(get("ExecStart")).map(|exec| exec.get(1).map(texts).unwrap_or_default()).collect(),
        environment: words("Environment"),
        // (sb): path, whether it may be missing.
        environment_files: structures(get("EnvironmentFiles"))
            .map(|file| {
                let path = file.first().map(text).unwrap_or_default();
                (path, matches!(file.get(1), Some(Variant::Bool(true))))
            })
            .collect(),
        need_daemon_reload: matches!(get("NeedDaemonReload"), Some(Variant::Bool(true))),
        manager_environment: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        unit_file_state: word("UnitFileState"),
        active_state: word("ActiveState"),
        result: word("Result"),
        unit_path: of_manager("UnitPath"),
        systemd_version: manager.get("Version").and_then(|value| major(&text(value))),
    };
    LoadedUnit { loaded, control_group: word("ControlGroup") }
}

/// The major version in `252.36-1~deb12u1`, `255.4-1ubuntu8` or `v257.2`.
pub fn major(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn items<'v, 'a>(value: &'v Variant<'a>) -> &'v [Variant<'a>] {
    if let Variant::Array(array) = value { array.inner() } else { &[] }
}

fn texts(value: &Variant<'_>) -> Vec<String> {
    items(value).iter().map(text).collect()
}

/// The structures of an array of them.
fn structures<'v, 'a>(value: Option<&'v Variant<'a>>) -> impl Iterator<Item = &'v [Variant<'a>]> {
    let items = value.map(items).unwrap_or_default();
    items.iter().filter_map(|item| if let Variant::Structure(one) = item { Some(one.fields()) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_of_systemd_is_read() {
        let versions = ["252.36-1~deb12u1", "255.4-1ubuntu8", "v257", ""];
        assert_eq!(versions.map(major), [Some(252), Some(255), Some(257), None]);
    }

    #[test]
    fn what_is_compared_with_the_files_is_read_from_the_properties() {
        let owned = |value: Variant<'_>| value.try_to_owned().unwrap();
        let exec = vec![("/usr/bin/kubelet", vec!["/usr/bin/kubelet", "$KUBELET_EXTRA_ARGS"], false)];
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
        let loaded = read(&unit, &manager).loaded;
        assert_eq!((loaded.systemd_version, loaded.load_state.as_str()), (Some(252), "loaded"));
        assert!(loaded.need_daemon_reload);
        assert_eq!(loaded.exec_start, [["/usr/bin/kubelet", "$KUBELET_EXTRA_ARGS"]]);
        assert_eq!(loaded.environment, ["A=1", "B=2"]);
        assert_eq!(loaded.environment_files, [("/etc/default/kubelet".to_owned(), true)]);
        assert_eq!(loaded.manager_environment["LANG"], "C");
    }
}
