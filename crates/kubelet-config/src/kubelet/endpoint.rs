//! Where the kubelet finds its container runtime.

use std::path::PathBuf;

use super::effective::Settings;

pub(crate) const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// The socket of the runtime of a kubelet with these settings; `None` for an endpoint that is no socket (`tcp://`).
pub fn runtime_socket(settings: &Settings) -> Option<PathBuf> {
    socket_path(settings.text("containerRuntimeEndpoint").unwrap_or(DEFAULT_ENDPOINT)).map(PathBuf::from)
}

/// The path of an endpoint that is a socket, `/var/run` as `/run`; `None` for one that is no path (`tcp://`).
pub fn socket_path(endpoint: &str) -> Option<String> {
    let path = match endpoint.split_once("://") {
        Some(("unix", path)) => path,
        Some(_) => return None,
        None => endpoint.strip_prefix("unix:").unwrap_or(endpoint),
    };
    let path = path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path);
    path.starts_with('/').then(|| path.to_owned())
}
