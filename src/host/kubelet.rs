//! The configuration of a running kubelet, from its command line and files: its Node's name, its kubeconfig, where it answers probes, and where its
//! container runtime listens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_config::kubelet::args;
use kubelet_config::kubelet::config::{self, ConfigFileState};
use kubelet_config::kubelet::effective::{self, Settings};
use kubelet_config::kubelet::endpoint::runtime_socket;
use kubelet_config::kubelet::flags::CommandLine;
use kubelet_config::kubelet::flags::parse::parse_argv;
pub use kubelet_config::kubelet::healthz::Healthz;
use kubelet_config::kubelet::healthz::{DEFAULT_PORT, healthz};
use kubelet_config::kubelet::host_tree::HostTree;
pub use kubelet_config::kubelet::layers::UNIT_NAMES;
use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::tree::Tree;
use serde::{Deserialize, Serialize};

use super::child;
use super::cloud_init::{self, CloudInit};
use super::credential::{self, ClientCertificate, Credential};
use crate::files;

/// The hidden subcommand that reads a kubelet's configuration.
pub const SUBCOMMAND: &str = "kubelet-facts";
const TIMEOUT: Duration = Duration::from_secs(10);

/// As long as a command line is that Linux takes with a stack of the usual 8 MiB.
const MAX_COMMAND_LINE_BYTES: u64 = 2 * 1024 * 1024;
/// The kubeconfigs of kubeadm, of the kubelet's own default, of k3s and of RKE2.
const USUAL_KUBECONFIGS: [&str; 4] = [
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
];

/// What the child prints, in JSON: what is known of the kubelet, or why it cannot be read, with the file; and how far cloud-init is.
pub type Output = (Result<KubeletFacts, String>, CloudInit);

/// What the child does. `pid` is the kubelet's process, or that of the program that contains the kubelet. Without one, the child reads the
/// files at their default paths.
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
    /// Whether these facts are from a kubelet's command line, so that the kubelet uses this kubeconfig.
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

    /// The facts from the command line of process `pid` and the files that it names, read in a child. `known` replaces what the command
    /// line of a program that starts or contains the kubelet does not have.
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
        let path = format!("/proc/{pid}/cmdline");
        let command_line = files::read(Path::new(&path), MAX_COMMAND_LINE_BYTES);
        let command_line = command_line.map_err(|error| format!("{path}: {error}"))?;
        let flags = parse_argv(&args::words(command_line.as_bytes()), &Location::file(&path));
        let flag = |name| flags.value(name).filter(|value| !value.is_empty());
        let absolute = |name| flag(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let is_of_kubelet = flag("config").is_some() || flag("kubeconfig").is_some();
        let tree = HostTree::new(Path::new("/")).map_err(|error| format!("/: {error}"))?;
        let settings = settings(&tree, &flags)?;
        let usual = Self::usual();
        let name = flag("hostname-override").map(|name| name.trim().to_lowercase());
        let node_name = name.unwrap_or_else(|| usual.node_name.clone());
        let facts = Self { node_name, root_dir: absolute("root-dir"), healthz: healthz(&settings)?, ..usual };
        if !is_of_kubelet {
            return Ok(facts.with_credential());
        }
        let kubeconfig = absolute("kubeconfig");
        let (credential, api_server) = credential::read(kubeconfig.as_deref(), flag("cert-dir"));
        let runtime_socket = runtime_socket(&settings);
        Ok(Self { kubeconfig, runtime_socket, is_of_kubelet, credential, api_server, ..facts })
    }
}

/// The host's name. In lower case the kubelet uses it for the Node (`k8s.io/kubernetes/pkg/util/node`, `GetHostname`).
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_owned()
}

/// The settings of a kubelet that runs with these flags.
fn settings(tree: &dyn Tree, flags: &CommandLine) -> Result<Settings, String> {
    let config = config::load_config(tree, flags, None);
    // Other errors are for `nodevigil check`: the kubelet runs in spite of them.
    let unread = config.files.iter().find(|file| file.document.is_none() && file.state != ConfigFileState::Ignored);
    match unread {
        Some(file) => Err(match &file.state {
            ConfigFileState::Bad { at, reason, .. } => format!("{at}: {reason}"),
            _ => format!("{}: does not exist", file.at),
        }),
        None => Ok(effective::effective_settings(flags, &config, None)),
    }
}

#[cfg(test)]
mod tests {
    use kubelet_config::kubelet::tree::MemoryTree;

    use super::*;

    #[test]
    fn drop_ins_override_the_file_and_one_that_cannot_be_parsed_is_named() {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let file = |text: &str| format!("{head}{text}");
        let socket = "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n";
        let tree = MemoryTree::new()
            .file("/c.yaml", file("healthzPort: 1\nanUnknownField: 1\n"))
            .file("/d/20.conf", file(&format!("healthzPort: 3\n{socket}")))
            .file("/d/10.conf", file("healthzPort: 2\n"))
            .file("/d/readme", "");
        let flags = parse_argv(&["kubelet", "--config=/c.yaml", "--config-dir=/d"], &Location::file("/proc/7/cmdline"));
        let found = settings(&tree, &flags).unwrap();
        assert_eq!(healthz(&found), Ok(Healthz::Url("http://127.0.0.1:3/healthz".into())));
        assert_eq!(runtime_socket(&found), Some("/run/crio/crio.sock".into()));
        let error = settings(&tree.clone().file("/d/30.conf", "healthzPort: [\n"), &flags).unwrap_err();
        assert!(error.starts_with("/d/30.conf"), "{error}");
        assert_eq!(settings(&tree.without("/c.yaml"), &flags).unwrap_err(), "/c.yaml: does not exist");
    }

    #[test]
    fn a_command_line_that_is_not_a_kubelets_has_no_node_name_and_no_kubeconfig() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(KubeletFacts::read(pid), Ok(KubeletFacts::usual().with_credential()));
        let error = KubeletFacts::read(i32::MAX).unwrap_err();
        assert!(error.starts_with("/proc/2147483647/cmdline: "), "{error}");
    }
}
