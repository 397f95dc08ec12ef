//! Where the kubelet finds its container runtime: from its flags and its configuration.

use std::path::PathBuf;

use serde::Deserialize;

use super::{args::KubeletFlags, healthz::ConfigText, yaml};

/// The kubelet's own default.
pub const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// The one field that is needed; all others belong to the kubelet.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields {
    container_runtime_endpoint: Option<String>,
}

/// The socket of the kubelet's runtime; `None` for an endpoint that is no socket (`tcp://`). A flag beats every file, a
/// later file an earlier one; what is empty is not set. A text that cannot be read says nothing: [`super::healthz`]
/// tells of it.
pub fn runtime_socket(flags: &KubeletFlags, configs: &[ConfigText<'_>]) -> Option<PathBuf> {
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let in_files = || {
        configs.iter().rev().find_map(|config| {
            let fields: Option<Fields> = yaml::read(config.text).ok()?;
            said(&fields?.container_runtime_endpoint)
        })
    };
    let endpoint = said(&flags.container_runtime_endpoint).or_else(in_files);
    let endpoint = endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
    socket_path(endpoint).map(PathBuf::from)
}

/// The path of an endpoint that is a socket, `/var/run` written as `/run`; `None` for one that is no path (`tcp://`,
/// `npipe://`).
pub fn socket_path(endpoint: &str) -> Option<String> {
    let path = match endpoint.split_once("://") {
        Some(("unix", path)) => path,
        Some(_) => return None,
        None => endpoint.strip_prefix("unix:").unwrap_or(endpoint),
    };
    let path = path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path);
    path.starts_with('/').then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn with(argv: &[&str], texts: &[&str]) -> Option<String> {
        let path = Path::new("/var/lib/kubelet/config.yaml");
        let configs: Vec<_> = texts.iter().map(|text| ConfigText { path, text }).collect();
        let socket = runtime_socket(&KubeletFlags::from_argv(argv), &configs)?;
        Some(socket.display().to_string())
    }

    #[test]
    fn a_flag_beats_a_file_and_a_later_file_an_earlier_one() {
        let containerd = "/run/containerd/containerd.sock";
        let crio = "/run/crio/crio.sock";
        let file = "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n";
        let empty = "containerRuntimeEndpoint: ''\n";
        let other = r#"{"containerRuntimeEndpoint": "unix:///run/x.sock"}"#;
        let socket = |path: &str| Some(path.to_owned());
        assert_eq!(with(&["kubelet"], &[]), socket(containerd));
        assert_eq!(with(&["kubelet"], &["", "\t: ["]), socket(containerd));
        assert_eq!(with(&["kubelet"], &[file]), socket(crio));
        assert_eq!(with(&["kubelet"], &[file, empty]), socket(crio));
        assert_eq!(with(&["kubelet"], &[file, other]), socket("/run/x.sock"));
        let flag = ["kubelet", "--container-runtime-endpoint=/run/f.sock"];
        assert_eq!(with(&flag, &[file]), socket("/run/f.sock"));
        let tcp = ["kubelet", "--container-runtime-endpoint=tcp://1.2.3.4:5"];
        assert_eq!(with(&tcp, &[file]), None);
    }
}
