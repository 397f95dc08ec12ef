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
    certificate::{self, ClientCertificate},
    child,
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

/// What the child prints, in JSON.
pub type Output = Result<(KubeletFacts, bool), String>;

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
    /// The URL of the API server in that kubeconfig.
    pub api_server: Option<String>,
    /// The client certificate that it shows there; none with another credential, and if the command line does not name the kubeconfig.
    pub certificate: Option<ClientCertificate>,
}

impl KubeletFacts {
    /// What holds for most kubelets, while none runs. Looks for files: call it off the loop.
    pub fn usual() -> Self {
        let kubeconfig = USUAL_KUBECONFIGS.iter().map(PathBuf::from).find(|path| path.exists());
        let healthz = Healthz::Url(format!("http://127.0.0.1:{DEFAULT_PORT}/healthz"));
        let (node_name, root_dir) = (host_name(), None);
        Self { node_name, kubeconfig, root_dir, healthz, runtime_socket: None, api_server: None, certificate: None }
    }

    /// What the command line of process `pid` and the files that it names say. They are read in a child, because a read of a process's
    /// command line and of a file on a dead disk may hang in the kernel. `known` is kept for what a command line that is not a kubelet's
    /// does not say: of a program that starts the kubelet, or has it inside.
    ///
    /// # Errors
    /// When they cannot be read, naming the file.
    pub async fn of_process(pid: i32, known: Option<Self>) -> Result<Self, String> {
        let output: Output = child::run_own(&[SUBCOMMAND, &pid.to_string()], TIMEOUT).await?;
        output.map(|(facts, is_kubelet)| match known {
            Some(known) if !is_kubelet => Self { healthz: facts.healthz, api_server: None, certificate: None, ..known },
            _ => facts,
        })
    }

    /// What the child prints: the facts and whether the command line is a kubelet's, or why they cannot be read.
    pub fn read(pid: i32) -> Output {
        let command_line = read(Path::new(&format!("/proc/{pid}/cmdline")))?;
        let flags = KubeletFlags::from_cmdline(command_line.as_bytes());
        let is_kubelet = flags.config.is_some() || flags.kubeconfig.is_some();
        let name = flags.hostname_override.as_deref().map(|name| name.trim().to_lowercase());
        let absolute = |path: &Option<String>| path.as_deref().map(PathBuf::from).filter(|path| path.is_absolute());
        let kubeconfig = absolute(&flags.kubeconfig);
        let usual = Self::usual();
        let (healthz, runtime_socket) = endpoints(&flags)?;
        // A kubeconfig at a usual place may be an old one that nobody uses, so its certificate says nothing.
        let used = kubeconfig.as_deref().map(|path| certificate::of_kubeconfig(path, flags.cert_dir.as_deref()));
        let (api_server, certificate) = used.unwrap_or_default();
        let facts = Self {
            node_name: name.unwrap_or(usual.node_name),
            kubeconfig: if is_kubelet { kubeconfig } else { usual.kubeconfig },
            root_dir: absolute(&flags.root_dir),
            healthz,
            runtime_socket: runtime_socket.filter(|_| is_kubelet),
            api_server,
            certificate,
        };
        Ok((facts, is_kubelet))
    }
}

/// The host's name as the kubelet uses it for the Node (`k8s.io/kubernetes/pkg/util/node`, `GetHostname`).
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase()
}

/// Where it answers probes, and the socket of its container runtime.
fn endpoints(flags: &KubeletFlags) -> Result<(Healthz, Option<PathBuf>), String> {
    let mut files: Vec<PathBuf> = flags.config.iter().map(PathBuf::from).collect();
    if let Some(folder) = &flags.config_dir {
        files.extend(drop_ins(Path::new(folder))?);
    }
    let texts: Vec<_> = files.iter().map(|path| Ok((path, read(path)?))).collect::<Result<_, String>>()?;
    let configs: Vec<_> = texts.iter().map(|(path, text)| ConfigText { path, text }).collect();
    let healthz = healthz(flags, &configs).map_err(|error| error.to_string())?;
    Ok((healthz, runtime_socket(flags, &configs)))
}

/// The `*.conf` files of --config-dir, in the order in which the kubelet merges them.
fn drop_ins(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let name_it = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(|error| name_it(&error))?.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|name| name == "conf")).collect();
    files.sort();
    if files.len() > MAX_DROP_INS {
        return Err(name_it(&format!("{} drop-ins; at most {MAX_DROP_INS} are read", files.len())));
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String, String> {
    files::read(path, MAX_CONFIG_BYTES).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_override_the_file_and_one_that_cannot_be_parsed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
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
        assert_eq!(KubeletFacts::read(pid), Ok((KubeletFacts::usual(), false)));
        let error = KubeletFacts::read(i32::MAX).unwrap_err();
        assert!(error.starts_with("/proc/2147483647/cmdline: "), "{error}");
    }
}
