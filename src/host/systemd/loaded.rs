//! What systemd has in its memory of a unit: the middle one of the three states of a kubelet's configuration, between
//! the files and the process (`NeedDaemonReload` alone misses new drop-in folders and old modification times).

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use zbus::{Connection, OwnedObjectPath, OwnedVariant, fdo::PropertiesProxy, names::InterfaceName};

use super::{CALL_TIMEOUT, MANAGER, MANAGER_PATH, SERVICE, SYSTEMD, UNIT, call, text};
use crate::kubelet::snapshot::Loaded;

/// `systemctl`'s own way to PID 1 when there is no bus yet, as in early cloud-init; root alone may use it.
const PRIVATE_SOCKET: &str = "unix:path=/run/systemd/private";

/// Everything together: whoever asks on a terminal, or before the kubelet starts, will not wait longer.
const DEADLINE: Duration = Duration::from_secs(5);

type Properties = HashMap<String, OwnedVariant>;

/// Asks systemd once what it has loaded for `unit`.
///
/// # Errors
/// When neither the system bus nor systemd's private socket answers in time.
pub async fn loaded(unit: &str) -> zbus::Result<Loaded> {
    let asked = async {
        let (connection, private) = connect().await?;
        let path: OwnedObjectPath = if private {
            // On the private socket nobody routes by name.
            connection
                .call_method(
                    None::<&str>,
                    MANAGER_PATH,
                    Some(MANAGER),
                    "LoadUnit",
                    &(unit),
                )
                .await?
        } else {
            call(&connection, "LoadUnit", &(unit)).await?
        }
        .body()
        .deserialize()?;
        read(&connection, &path, !private).await
    };
    tokio::time::timeout(DEADLINE, asked)
        .await
        .unwrap_or_else(|_| {
            let secs = DEADLINE.as_secs();
            Err(zbus::Error::Failure(format!("no answer within {secs} s")))
        })
}

async fn connect() -> zbus::Result<(Connection, bool)> {
    let bus = zbus::connection::Builder::system()
        .method_timeout(CALL_TIMEOUT)
        .build()
        .await;
    match bus {
        Ok(connection) => Ok((connection, false)),
        Err(error) => zbus::connection::Builder::address(PRIVATE_SOCKET)
            .p2p()
            .method_timeout(CALL_TIMEOUT)
            .build()
            .await
            .map(|connection| (connection, true))
            .map_err(|_| error),
    }
}

/// Reads what is loaded over a connection that stands already.
pub(super) async fn read(
    connection: &Connection,
    unit_path: &OwnedObjectPath,
    by_name: bool,
) -> zbus::Result<Loaded> {
    let unit = properties(connection, unit_path.as_str(), UNIT, by_name).await?;
    let service = properties(connection, unit_path.as_str(), SERVICE, by_name).await?;
    let manager = properties(connection, MANAGER_PATH, MANAGER, by_name).await?;
    Ok(from_properties(&unit, &service, &manager))
}

async fn properties(
    connection: &Connection,
    path: &str,
    interface: &'static str,
    by_name: bool,
) -> zbus::Result<Properties> {
    if by_name {
        let proxy = PropertiesProxy::builder(connection)
            .destination(SYSTEMD)
            .path(path)
            .build()
            .await?;
        return Ok(proxy
            .get_all(InterfaceName::from_static_str_unchecked(interface))
            .await?);
    }
    connection
        .call_method(
            None::<&str>,
            path,
            Some(super::PROPERTIES),
            "GetAll",
            &(interface),
        )
        .await?
        .body()
        .deserialize()
}

fn from_properties(unit: &Properties, service: &Properties, manager: &Properties) -> Loaded {
    let word = |from: &Properties, name: &str| from.get(name).map(|v| text(v)).unwrap_or_default();
    let list =
        |from: &Properties, name: &str| -> Vec<String> { take(from, name).unwrap_or_default() };
    let execs: Vec<Exec> = take(service, "ExecStart").unwrap_or_default();
    let environment: Vec<String> = list(manager, "Environment");
    Loaded {
        load_state: word(unit, "LoadState"),
        fragment: word(unit, "FragmentPath"),
        dropins: list(unit, "DropInPaths"),
        exec_start: execs.into_iter().map(|exec| exec.1).collect(),
        environment: list(service, "Environment"),
        environment_files: take(service, "EnvironmentFiles").unwrap_or_default(),
        need_daemon_reload: take(unit, "NeedDaemonReload").unwrap_or_default(),
        manager_environment: environment
            .iter()
            .filter_map(|entry| entry.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<BTreeMap<_, _>>(),
        unit_file_state: word(unit, "UnitFileState"),
        active_state: word(unit, "ActiveState"),
        result: word(service, "Result"),
        unit_path: list(manager, "UnitPath"),
        systemd_version: major_version(&word(manager, "Version")),
    }
}

/// `252.39-1~deb12u1`, `v255`, `254~rc1` → the number.
fn major_version(text: &str) -> Option<u32> {
    let digits = text.trim_start_matches('v');
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// `ExecStart`: path, argv, whether failure is ignored, and seven values of its last run.
type Exec = (String, Vec<String>, bool, u64, u64, u64, u64, u32, i32, i32);

fn take<T>(from: &Properties, name: &str) -> Option<T>
where
    T: TryFrom<OwnedVariant>,
{
    from.get(name)?.try_clone().ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use zbus::Variant;

    use super::*;

    fn owned<'a>(value: impl Into<Variant<'a>>) -> OwnedVariant {
        value.into().try_to_owned().unwrap()
    }

    #[test]
    fn distributions_write_the_version_in_their_ways() {
        assert_eq!(major_version("252.39-1~deb12u1"), Some(252));
        assert_eq!(major_version("v255.4"), Some(255));
        assert_eq!(major_version(""), None);
    }

    #[test]
    fn properties_of_the_wrong_type_count_as_absent() {
        let unit = Properties::from([
            ("LoadState".to_owned(), owned("loaded")),
            ("DropInPaths".to_owned(), owned(vec!["/a.conf"])),
            ("NeedDaemonReload".to_owned(), owned(true)),
        ]);
        let service = Properties::from([
            ("Environment".to_owned(), owned(vec!["A=1", "B=2"])),
            (
                "EnvironmentFiles".to_owned(),
                owned(vec![("/etc/default/kubelet", true)]),
            ),
            (
                "ExecStart".to_owned(),
                owned(vec![(
                    "/usr/bin/kubelet",
                    vec!["/usr/bin/kubelet", "$A"],
                    false,
                    0_u64,
                    0_u64,
                    0_u64,
                    0_u64,
                    0_u32,
                    0_i32,
                    0_i32,
                )]),
            ),
        ]);
        let manager = Properties::from([("Environment".to_owned(), owned(vec!["PATH=/bin"]))]);
        let loaded = from_properties(&unit, &service, &manager);
        assert_eq!(loaded.dropins, ["/a.conf"]);
        assert_eq!(loaded.exec_start, [["/usr/bin/kubelet", "$A"]]);
        assert_eq!(
            loaded.environment_files,
            [("/etc/default/kubelet".to_owned(), true)]
        );
        assert!(loaded.need_daemon_reload);
        assert_eq!(loaded.manager_environment["PATH"], "/bin");
        let odd = Properties::from([("ExecStart".to_owned(), owned(1_u32))]);
        assert_eq!(from_properties(&odd, &odd, &odd), Loaded::default());
    }
}
