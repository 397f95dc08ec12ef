//! The state of the host's bootstrap at one moment. Everything that waits has a deadline, and what may hang on a disk runs in a child.

use std::path::Path;

use super::cloud_init::CloudInit;
use super::credential::Credential;
use super::endpoint::{Endpoint, usual_units};
use super::healthz::{Probe, Prober};
use super::kubelet::{self, Healthz, KubeletFacts, UNIT_NAMES};
use super::systemd::{self, Unit};
use super::{cri, journal};
use crate::settings::Settings;

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
    /// Why the kubelet does not answer, as its last lines say it: a sentence without its beginning.
    pub last_words: Option<String>,
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
        let units = systemd::units(&[kubelets.clone(), runtimes.clone()].concat()).await;
        let installed = |names: &[String]| {
            let found = names.iter().filter_map(|name| units.iter().flatten().find(|unit| unit.name == *name));
            let found = found.filter(|unit| unit.state.load_state != "not-found");
            let rank =
                |Unit { state, .. }: &&Unit| systemd::rank(&state.load_state, &state.active_state, &state.file_state);
            found.min_by_key(|unit| rank(unit).unwrap_or(u8::MAX)).cloned()
        };
        let kubelet = installed(&kubelets);
        let pid = kubelet.as_ref().map(|unit| unit.state.main_pid).filter(|pid| *pid != 0);
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
        let silent = kubelet.as_ref().filter(|unit| healthz.is_err() && !unit.state.invocation.is_empty());
        let last_words = match silent {
            Some(unit) => journal::last_words(&unit.state.invocation).await,
            None => None,
        };
        let kubelet = units.map(|_| kubelet).map_err(|error| format!("systemd: {error}"));
        Self { files, socket, runtime, kubelet, healthz, last_words }
    }
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
    match Prober::new(url)?.probe().await {
        Probe::Healthy => Ok(()),
        failed => Err(format!("has failed: {failed}")),
    }
}
