//! Where the container runtime listens, and which units may run it.

use std::path::{Path, PathBuf};

use kubelet_config::kubelet::endpoint::socket_path;

use super::kubelet::KubeletFacts;
use crate::settings::RuntimeSettings;

/// A socket, the units that may run the runtime that listens there, and where that keeps its files.
type Usual = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The runtimes that nodes have. Those of a distribution come first: where one is, it is the kubelet's, whatever else is installed.
#[rustfmt::skip]
const USUAL: [Usual; 6] = [
    ("/run/k3s/containerd/containerd.sock",
        &["k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"],
        &["/var/lib/rancher/k3s/agent/containerd", "/var/lib/rancher/rke2/agent/containerd"]),
    ("/run/k0s/containerd.sock", &["k0sworker.service", "k0scontroller.service"], &["/var/lib/k0s/containerd"]),
    ("/var/snap/microk8s/common/run/containerd.sock", &["snap.microk8s.daemon-containerd.service"],
        &["/var/snap/microk8s/common/var/lib/containerd"]),
    ("/run/crio/crio.sock", &["crio.service"], &["/var/lib/containers/storage"]),
    ("/run/cri-dockerd.sock", &["cri-docker.service"], &["/var/lib/docker"]),
    ("/run/containerd/containerd.sock", &["containerd.service"], &["/var/lib/containerd"]),
];

/// The units that run a container runtime on most nodes.
pub fn usual_units() -> impl Iterator<Item = &'static str> {
    USUAL.iter().flat_map(|(_, units, _)| units.iter().copied())
}

/// The container runtime's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub socket: PathBuf,
    /// Whether neither the settings nor the kubelet name it.
    pub is_guess: bool,
}

impl Endpoint {
    /// The socket of the settings, else the kubelet's, else the first of the usual ones for which `exists` holds. What is `known` stays
    /// unless a better one is found: a runtime that stops takes its socket away.
    pub fn find(
        settings: &RuntimeSettings,
        kubelet: Option<&KubeletFacts>,
        known: Option<&Self>,
        exists: impl Fn(&Path) -> bool,
    ) -> Option<Self> {
        let given = settings.endpoint.as_deref().and_then(socket_path).map(PathBuf::from);
        if let Some(socket) = given.or_else(|| kubelet?.runtime_socket.clone()) {
            return Some(Self { socket, is_guess: false });
        }
        if known.is_some_and(|known| !known.is_guess) {
            return known.cloned();
        }
        let sockets = USUAL.iter().map(|(socket, ..)| Path::new(socket));
        let mut better = sockets.take_while(|socket| known.is_none_or(|known| known.socket != *socket));
        let found = better.find(|socket| exists(socket)).map(|socket| Self { socket: socket.into(), is_guess: true });
        found.or_else(|| known.cloned())
    }

    /// The units that may run it, until the listening process shows which unit it is.
    pub fn units(&self) -> Vec<String> {
        self.usual().map(|(_, units, _)| units.iter().map(|unit| (*unit).to_owned()).collect()).unwrap_or_default()
    }

    /// Where it keeps its files.
    pub fn directories(&self) -> Vec<PathBuf> {
        self.usual().map(|(.., directories)| directories.iter().map(PathBuf::from).collect()).unwrap_or_default()
    }

    fn usual(&self) -> Option<&'static Usual> {
        USUAL.iter().find(|(socket, ..)| Path::new(socket) == self.socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_beat_the_kubelet_and_that_beats_what_is_usual() {
        let find_after =
            |known: Option<&Endpoint>, settings: &RuntimeSettings, kubelet: Option<&KubeletFacts>, present: &[&str]| {
                Endpoint::find(settings, kubelet, known, |path| present.iter().any(|one| Path::new(one) == path))
            };
        let find = |settings: &RuntimeSettings, kubelet: Option<&KubeletFacts>, present: &[&str]| {
            let found = find_after(None, settings, kubelet, present)?;
            Some((found.socket.to_str()?.to_owned(), found.is_guess, found.units()))
        };
        let mut settings = RuntimeSettings::default();
        let (containerd, k3s) = ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock");
        let kubelet = KubeletFacts { runtime_socket: Some("/run/x.sock".into()), ..KubeletFacts::usual() };
        assert_eq!(find(&settings, None, &[]), None);
        let guessed = find(&settings, Some(&KubeletFacts::usual()), &[containerd]);
        assert_eq!(guessed, Some((containerd.into(), true, vec!["containerd.service".into()])));
        assert_eq!(find(&settings, None, &[containerd, k3s]).map(|found| found.0), Some(k3s.into()));
        assert_eq!(find(&settings, Some(&kubelet), &[containerd]), Some(("/run/x.sock".into(), false, Vec::new())));
        settings.endpoint = Some("unix:///var/run/crio/crio.sock".to_owned().try_into().unwrap());
        let given = Some(("/run/crio/crio.sock".into(), false, vec!["crio.service".into()]));
        assert_eq!(find(&settings, Some(&kubelet), &[]), given);

        settings.endpoint = None;
        let known = find_after(None, &settings, None, &[containerd]);
        assert_eq!(find_after(known.as_ref(), &settings, None, &[]), known, "its runtime was stopped");
        let better = find_after(known.as_ref(), &settings, None, &[containerd, k3s]).unwrap();
        assert_eq!(better.socket, Path::new(k3s));
        assert_eq!(find_after(Some(&better), &settings, None, &[containerd]), Some(better.clone()));
    }
}
