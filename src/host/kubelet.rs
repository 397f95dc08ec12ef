//! What a running kubelet's command line and configuration say: its Node's name, its kubeconfig, where it answers probes, and where its
//! container runtime listens.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub use kubelet_config::kubelet::healthz::Healthz;
use kubelet_config::kubelet::{
    args::KubeletFlags,
    endpoint::runtime_socket,
    healthz::{ConfigText, DEFAULT_PORT, healthz},
};
use serde::{Deserialize, Serialize};

use super::{
    child,
    cloud_init::{self, CloudInit},
    credential::{self, ClientCertificate, Credential},
};
use crate::files;

/// The hidden subcommand that reads a kubelet's configuration.
pub const SUBCOMMAND: &str = "kubelet-facts";
const TIMEOUT: Duration = Duration::from_secs(10);

/// A `KubeletConfiguration` has a few KiB.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
/// More drop-ins than this are refused, because the last one might be the one that counts.
const MAX_DROP_INS: usize = 64;
/// The kubeconfigs of kubeadm, of those who follow the kubelet's own default, of k3s and of RKE2.
const USUAL_KUBECONFIGS: [&str; 4] = [
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
];

/// The units that run a kubelet, of kubeadm and the distributions; the first that is loaded is watched.
pub const UNITS: [&str; 6] = [
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "snap.microk8s.daemon-kubelite.service",
];

/// What the child prints, in JSON: what is known of the kubelet, or why it cannot be read, with the file; and how far cloud-init is.
pub type Output = (Result<KubeletFacts, String>, CloudInit);

/// What the child does. `pid` is the kubelet's process, or that of the program that has it inside; without one, files are looked for where
/// most kubelets have them.
pub fn read(pid: Option<i32>) -> Output {
    (
        pid.map_or_else(|| Ok(KubeletFacts::usual().with_credential()), KubeletFacts::read),
        cloud_init::read(Path::new("/")),
    )
}

/// Reads it in a child, because a read of a process's command line and of a file on a dead disk may hang in the kernel.
///
/// # Errors
/// When the child fails or takes too long.
pub async fn read_in_child(pid: Option<i32>) -> Result<Output, String> {
    let pid = pid.map(|pid| pid.to_string());
    let arguments: Vec<_> = std::iter::once(SUBCOMMAND).chain(pid.as_deref()).collect();
    child::run_own(&arguments, TIMEOUT).await
}

/// The kubelet that is watched, as its monitor knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watched {
    pub unit: Option<String>,
    pub pid: Option<i32>,
    /// Whether its unit is inactive, as after `systemctl stop`; one that systemd restarts, or that has failed, is not.
    pub is_inactive: bool,
    /// Where it is probed.
    pub healthz_url: Option<String>,
}

/// What is known of the kubelet's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletFacts {
    /// The name of the Node that the kubelet registers: its --hostname-override, else the host's name in lower case.
    pub node_name: String,
    /// The kubeconfig that the kubelet uses, an absolute path; none of a standalone kubelet.
    pub kubeconfig: Option<PathBuf>,
    /// Its --root-dir, an absolute path; none if the flag is not set.
    pub root_dir: Option<PathBuf>,
    pub healthz: Healthz,
    /// The socket of its `containerRuntimeEndpoint`; none if the command line is not a kubelet's, or it is no socket.
    pub runtime_socket: Option<PathBuf>,
    /// Whether a kubelet's command line says this, so that the kubeconfig is not one that nobody uses.
    pub is_of_kubelet: bool,
    /// The credential in that kubeconfig.
    pub credential: Credential,
    /// The URL of the API server in that kubeconfig, if the kubelet uses it.
    pub api_server: Option<String>,
}

impl KubeletFacts {
    /// What holds for most kubelets, while none runs. It reads no files, as their disk may hang, so that the credential is not known.
    pub fn usual() -> Self {
        let kubeconfig = USUAL_KUBECONFIGS.iter().map(PathBuf::from).find(|path| path.exists());
        let healthz = Healthz::Url(format!("http://127.0.0.1:{DEFAULT_PORT}/healthz"));
        let credential = Credential::Unreadable("it has not been read".into());
        Self {
            node_name: host_name().to_lowercase(),
            kubeconfig,
            root_dir: None,
            healthz,
            runtime_socket: None,
            is_of_kubelet: false,
            credential,
            api_server: None,
        }
    }

    /// The same with the credential. Reads files: call it in a child.
    fn with_credential(self) -> Self {
        let (credential, _) = credential::read(self.kubeconfig.as_deref(), None);
        Self { credential, ..self }
    }

    /// The client certificate that the kubelet shows to the API server; none with another credential, and if it is not known which
    /// kubeconfig it uses.
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        match &self.credential {
            Credential::Certificate(certificate) if self.is_of_kubelet => Some(certificate),
            _ => None,
        }
    }

    /// What the command line of process `pid` and the files that it names say, read in a child. `known` is kept for what a command line
    /// that is not a kubelet's does not say: of a program that starts the kubelet, or has it inside.
    ///
    /// # Errors
    /// When they cannot be read, naming the file.
    pub async fn of_process(pid: i32, known: Option<Self>) -> Result<Self, String> {
        let (facts, _) = read_in_child(Some(pid)).await?;
        let facts = facts?;
        Ok(match known {
            Some(known) if !facts.is_of_kubelet => {
                Self { healthz: facts.healthz, is_of_kubelet: false, api_server: None, ..known }
            }
            _ => facts,
        })
    }

    /// The same, read here.
    ///
    /// # Errors
    /// When they cannot be read, naming the file.
    pub fn read(pid: i32) -> Result<Self, String> {
        let command_line = read_file(Path::new(&format!("/proc/{pid}/cmdline")))?;
        let flags = KubeletFlags::from_cmdline(command_line.as_bytes());
        let is_of_kubelet = flags.config.is_some() || flags.kubeconfig.is_some();
        let name = flags.hostname_override.as_deref().map(|name| name.trim().to_lowercase());
        let absolute = |path: &Option<String>| path.as_deref().map(PathBuf::from).filter(|path| path.is_absolute());
        let (healthz, runtime_socket) = endpoints(&flags)?;
        let usual = Self::usual();
        let (node_name, root_dir) = (name.unwrap_or(usual.node_name.clone()), absolute(&flags.root_dir));
        let facts = Self { node_name, root_dir, healthz, ..usual };
        if !is_of_kubelet {
            return Ok(facts.with_credential());
        }
        let kubeconfig = absolute(&flags.kubeconfig);
        let (credential, api_server) = credential::read(kubeconfig.as_deref(), flags.cert_dir.as_deref());
        Ok(Self { kubeconfig, runtime_socket, is_of_kubelet, credential, api_server, ..facts })
    }
}

/// The host's name. In lower case the kubelet uses it for the Node (`k8s.io/kubernetes/pkg/util/node`, `GetHostname`).
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_owned()
}

/// Where it answers probes, and the socket of its container runtime.
fn endpoints(flags: &KubeletFlags) -> Result<(Healthz, Option<PathBuf>), String> {
    let mut files: Vec<PathBuf> = flags.config.iter().map(PathBuf::from).collect();
    if let Some(directory) = &flags.config_dir {
        files.extend(drop_ins(Path::new(directory))?);
    }
    let texts: Vec<_> = files.iter().map(|path| Ok((path, read_file(path)?))).collect::<Result<_, String>>()?;
    let configs: Vec<_> = texts.iter().map(|(path, text)| ConfigText { path, text }).collect();
    let healthz = healthz(flags, &configs)?;
    Ok((healthz, runtime_socket(flags, &configs)))
}

/// The `*.conf` files of --config-dir, in the order in which the kubelet merges them.
fn drop_ins(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let name_it = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
    let entries = fs::read_dir(directory).map_err(|error| name_it(&error))?.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|name| name == "conf")).collect();
    files.sort();
    if files.len() > MAX_DROP_INS {
        return Err(name_it(&format!("{} drop-ins; at most {MAX_DROP_INS} are read", files.len())));
    }
    Ok(files)
}

fn read_file(path: &Path) -> Result<String, String> {
    files::read(path, MAX_CONFIG_BYTES).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_override_the_file_and_one_that_cannot_be_parsed_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("config.yaml"), "healthzPort: 1\n").unwrap();
        fs::write(path("20.conf"), "healthzPort: 3\ncontainerRuntimeEndpoint: unix:///run/crio/crio.sock\n").unwrap();
        fs::write(path("10.conf"), "healthzPort: 2\n").unwrap();
        let flags =
            KubeletFlags { config: Some(path("config.yaml")), config_dir: Some(path("")), ..KubeletFlags::default() };
        let wanted = (Healthz::Url("http://127.0.0.1:3/healthz".into()), Some("/run/crio/crio.sock".into()));
        assert_eq!(endpoints(&flags), Ok(wanted));
        fs::write(path("30.conf"), "healthzPort: [\n").unwrap();
        let error = endpoints(&flags).unwrap_err();
        assert!(error.contains("30.conf"), "{error}");
    }

    #[test]
    fn a_command_line_that_is_not_a_kubelets_says_nothing_of_node_and_kubeconfig() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(KubeletFacts::read(pid), Ok(KubeletFacts::usual().with_credential()));
        let error = KubeletFacts::read(i32::MAX).unwrap_err();
        assert!(error.starts_with("/proc/2147483647/cmdline: "), "{error}");
    }
}
