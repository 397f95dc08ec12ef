//! The state of the host's bootstrap at one moment. Everything that waits has a deadline, and what may hang on a disk runs in a child.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use super::clock::Monotonic;
use super::cloud_init::CloudInit;
use super::credential::Credential;
use super::endpoint::{Endpoint, usual_units};
use super::healthz::{Probe, Prober};
use super::kubelet::{self, Healthz, KubeletFacts, UNIT_NAMES};
use super::{child, cri, journal, systemd};
use crate::condition::Uptime;
use crate::settings::Settings;

const SYSTEMCTL_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the host.
#[derive(Debug, Clone)]
pub struct HostFacts {
    pub files: Files,
    /// The container runtime's socket, if it accepts connections; else why there is none that does.
    pub socket: Result<String, String>,
    /// The unit that runs the container runtime; none if none is installed, or systemd does not answer.
    pub runtime: Option<Unit>,
    /// The unit that runs the kubelet; none if none is installed. An error has the reason why systemd could not be asked.
    pub kubelet: Result<Option<Unit>, String>,
    /// Whether the kubelet answers its probe, or why not.
    pub healthz: Result<(), String>,
    /// The kubelet's last error, if it does not answer.
    pub last_error: Option<String>,
}

/// A unit as `systemctl show` prints it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unit {
    pub name: String,
    pub load_state: String,
    pub active_state: String,
    pub file_state: String,
    pub result: String,
    /// 0 if there is no main process.
    pub main_pid: i32,
    pub active_since: Option<Uptime>,
    pub invocation: String,
}

/// The state of files.
#[derive(Debug, Clone)]
pub struct Files {
    pub cloud_init: CloudInit,
    pub credential: Credential,
    /// The kubelet's configuration; none if it could not be read.
    pub kubelet: Option<KubeletFacts>,
}

impl Files {
    async fn read(pid: Option<i32>) -> Self {
        let mut output = kubelet::read_in_child(pid).await;
        if pid.is_some() && matches!(output, Ok((Err(_), _))) {
            // The process has just ended, or will, as its configuration cannot be used.
            output = kubelet::read_in_child(None).await;
        }
        let (kubelet, cloud_init) = output.unwrap_or_else(|why| (Err(why.clone()), CloudInit::Unreadable(why)));
        match kubelet {
            Ok(kubelet) => Self { cloud_init, credential: kubelet.credential.clone(), kubelet: Some(kubelet) },
            Err(why) => Self { cloud_init, credential: Credential::Unreadable(why), kubelet: None },
        }
    }
}

impl HostFacts {
    /// Reads everything; takes 35 seconds at most.
    pub async fn read(settings: &Settings) -> Self {
        let usual = || UNIT_NAMES.map(str::to_owned).to_vec();
        let kubelets = settings.kubelet.unit.clone().map_or_else(usual, |unit| vec![unit]);
        let runtimes =
            settings.runtime.unit.iter().cloned().chain(usual_units().map(str::to_owned)).collect::<Vec<_>>();
        let units = units(&[kubelets.clone(), runtimes.clone()].concat()).await;
        let installed = |names: &[String]| {
            let found = names.iter().filter_map(|name| units.iter().flatten().find(|unit| unit.name == *name));
            let found = found.filter(|unit| unit.load_state != "not-found");
            let rank = |unit: &&Unit| systemd::rank(&unit.load_state, &unit.active_state, &unit.file_state);
            found.min_by_key(|unit| rank(unit).unwrap_or(u8::MAX)).cloned()
        };
        let kubelet = installed(&kubelets);
        let pid = kubelet.as_ref().map(|unit| unit.main_pid).filter(|pid| *pid != 0);
        let files = Files::read(pid).await;
        // Not the disk, which may hang.
        let exists = |path: &Path| path.starts_with("/run") && path.exists();
        let endpoint = Endpoint::find(&settings.runtime, files.kubelet.as_ref(), None, exists);
        let of_endpoint = endpoint.iter().flat_map(Endpoint::units).collect::<Vec<_>>();
        let runtime =
            installed(if settings.runtime.unit.is_none() && endpoint.is_some() { &of_endpoint } else { &runtimes });
        let healthz = match (pid, &files.kubelet) {
            (None, _) => Err("is not served".to_owned()),
            (Some(_), None) => Err("is not probed: the kubelet's configuration cannot be read".to_owned()),
            (Some(_), Some(kubelet)) => probe(settings.kubelet.healthz_url.as_deref(), &kubelet.healthz).await,
        };
        let socket = connect(endpoint.as_ref().map(|endpoint| endpoint.socket.as_path())).await;
        let silent = kubelet.as_ref().filter(|unit| healthz.is_err() && !unit.invocation.is_empty());
        let last_error = match silent {
            Some(unit) => journal::last_error(&unit.invocation).await,
            None => None,
        };
        Self { files, socket, runtime, kubelet: units.map(|_| kubelet), healthz, last_error }
    }
}

/// These units, by `systemctl(1)`, which works for root even without D-Bus.
async fn units(names: &[String]) -> Result<Vec<Unit>, String> {
    const PROPERTIES: &str =
        "--property=Id,LoadState,ActiveState,UnitFileState,Result,MainPID,ActiveEnterTimestampMonotonic,InvocationID";
    let mut command = Command::new("systemctl");
    command.args(["show", "--no-pager", PROPERTIES, "--"]).args(names);
    let (status, output) =
        child::run(command, SYSTEMCTL_TIMEOUT).await.map_err(|error| format!("systemctl: {error}"))?;
    if !status.success() {
        return Err(format!("systemctl show ended with {status}"));
    }
    Ok(parse_units(&String::from_utf8_lossy(&output)))
}

/// An empty line separates two units.
fn parse_units(output: &str) -> Vec<Unit> {
    let parse = |block: &str| {
        let values: HashMap<_, _> = block.lines().filter_map(|line| line.split_once('=')).collect();
        let text = |name| values.get(name).copied().unwrap_or_default();
        let micros = text("ActiveEnterTimestampMonotonic").parse().unwrap_or_default();
        Unit {
            name: text("Id").to_owned(),
            load_state: text("LoadState").to_owned(),
            active_state: text("ActiveState").to_owned(),
            file_state: text("UnitFileState").to_owned(),
            result: text("Result").to_owned(),
            main_pid: text("MainPID").parse().unwrap_or_default(),
            active_since: (micros != 0).then(|| Monotonic::from_micros(micros).uptime()),
            invocation: text("InvocationID").to_owned(),
        }
    };
    output.split("\n\n").map(parse).collect()
}

/// The socket, if it accepts a connection; else why not.
async fn connect(socket: Option<&Path>) -> Result<String, String> {
    let socket = socket.ok_or("there is no socket of a container runtime")?;
    let path = socket.display();
    cri::try_connect(socket).await.map(|()| path.to_string()).map_err(|error| format!("{path}: {error}"))
}

/// Whether the kubelet answers 200, or is configured not to answer at all.
async fn probe(configured: Option<&str>, healthz: &Healthz) -> Result<(), String> {
    let url = match (configured, healthz) {
        (Some(url), _) => url,
        (None, Healthz::Url(url)) => url,
        (None, Healthz::Disabled) => return Ok(()),
    };
    Err(match Prober::new(url)?.probe().await {
        Probe::Healthy => return Ok(()),
        Probe::Status(code) => format!("answers {code}"),
        Probe::Refused => "is not served yet".to_owned(),
        Probe::TimedOut | Probe::NoHttp => "does not answer".to_owned(),
        Probe::Impossible(why) => format!("cannot be probed: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_systemctl_show_is_read_unit_by_unit() {
        let output = "\
Result=success
ActiveEnterTimestampMonotonic=2500000
MainPID=812
Id=kubelet.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled
InvocationID=ab01

Result=success
MainPID=0
ActiveEnterTimestampMonotonic=0
Id=crio.service
LoadState=not-found
ActiveState=inactive
";
        let [kubelet, crio] = parse_units(output).try_into().unwrap();
        let wanted = Unit {
            name: "kubelet.service".into(),
            load_state: "loaded".into(),
            active_state: "active".into(),
            file_state: "enabled".into(),
            result: "success".into(),
            main_pid: 812,
            active_since: kubelet.active_since.filter(|since| *since >= Uptime::ZERO + Duration::from_millis(2500)),
            invocation: "ab01".into(),
        };
        assert!(wanted.active_since.is_some() && kubelet == wanted, "{kubelet:?}");
        assert_eq!((crio.load_state.as_str(), crio.main_pid, crio.active_since), ("not-found", 0, None));
    }
}
