//! Where a node keeps its secrets. None of these files is in a bundle as it is (of most nothing is); they are read so that what
//! stands in them is found wherever something else quotes it.

use std::{path::PathBuf, time::Duration};

use serde_json::Value;

use super::{parts::files_in, redact::Redactor};
use crate::host::files::Root;

/// Each file.
pub(super) const DEADLINE: Duration = Duration::from_secs(1);
/// A larger one is named as unread.
pub(super) const MAX_FILE_BYTES: usize = 1 << 20;

/// What is secret in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// What names and looks tell, and the fields of credentials.
    Credentials,
    /// All of it.
    Secret,
}

/// A file with secrets.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    holds: Holds,
}

const FILES: &[&str] = &[
    "/etc/nodevigil/kubeconfig",
    "/etc/kubernetes/kubelet.conf",
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/super-admin.conf",
    "/etc/kubernetes/cloud-config",
    "/etc/kubernetes/cloud.conf",
    "/etc/kubernetes/azure.json",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/kubelet/bootstrap-kubeconfig",
    "/var/lib/kubelet/config.json",
    "/var/lib/kubelet/kubeadm-flags.env",
    "/root/.docker/config.json",
    "/etc/containerd/config.toml",
    "/etc/rancher/k3s/config.yaml",
    "/etc/rancher/k3s/registries.yaml",
    "/etc/rancher/rke2/config.yaml",
    "/etc/rancher/rke2/registries.yaml",
    "/etc/systemd/system/k3s-agent.service.env",
    "/etc/systemd/system/k3s.service.env",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/lib/cloud/instance/user-data.txt",
    "/var/lib/cloud/instance/cloud-config.txt",
    "/proc/cmdline",
];
/// Folders, and how the names of their files end.
const FOLDERS: &[(&str, &str)] = &[
    ("/run/kubeadm", ".yaml"),
    ("/etc/rancher/k3s/config.yaml.d", ".yaml"),
    ("/etc/rancher/rke2/config.yaml.d", ".yaml"),
    ("/etc/containerd/conf.d", ".toml"),
    ("/etc/containerd/config.d", ".toml"),
];
/// Files that are a secret as a whole.
const WHOLE: &[&str] = &[
    "/var/lib/rancher/k3s/server/token",
    "/var/lib/rancher/k3s/server/agent-token",
    "/var/lib/rancher/rke2/server/token",
    "/etc/rancher/node/password",
    "/etc/nodevigil/token",
];
const KEYS: &[&str] = &[
    "/var/lib/kubelet/pki",
    "/etc/kubernetes/pki",
    "/etc/nodevigil",
];

/// Where to look: the well-known places, and what `check` found.
pub(super) fn sources(root: &Root, check: &Value) -> Vec<Source> {
    let mut found: Vec<(PathBuf, Holds)> = Vec::new();
    let mut add = |path: &str, holds| {
        let path = PathBuf::from(path);
        if path.is_absolute() && !found.iter().any(|(known, _)| *known == path) {
            found.push((path, holds));
        }
    };
    for path in WHOLE {
        add(path, Holds::Secret);
    }
    for path in FILES {
        add(path, Holds::Credentials);
    }
    for (folder, end) in FOLDERS {
        for (_, path) in files_in(root, folder, end) {
            add(&path, Holds::Credentials);
        }
    }
    for folder in KEYS {
        for end in [".key", ".pem", ".token"] {
            for (_, path) in files_in(root, folder, end) {
                add(&path, Holds::Secret);
            }
        }
    }
    let unit = &check["unit"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    add(&text(&unit["fragment"]), Holds::Credentials);
    for path in list(&unit["dropins"]) {
        add(&text(&path), Holds::Credentials);
    }
    for row in list(&unit["env_files"]) {
        add(&text(&row["path"]), Holds::Credentials);
    }
    for flag in list(&check["kubelet"]["flags"]) {
        let flag = text(&flag);
        if let Some((name, path)) = flag.split_once('=')
            && (name.ends_with("kubeconfig") || name.ends_with("-file"))
        {
            add(path, Holds::Credentials);
        }
    }
    for at in list(&check["kubelet"]["files"]) {
        if let Some((path, _)) = text(&at).rsplit_once(':') {
            add(path, Holds::Credentials);
        }
    }
    let source = |(path, holds)| Source { path, holds };
    found.into_iter().map(source).collect()
}

/// Takes in what is secret in it.
///
/// # Errors
/// When it was not read to its end.
pub(super) fn learn(redactor: &mut Redactor, source: &Source, bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    if source.holds == Holds::Secret {
        redactor.learn_lines(&text);
    }
    redactor.learn_credentials(&text)
}
