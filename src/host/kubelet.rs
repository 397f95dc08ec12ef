//! The configuration of a running kubelet, from its command line and files: its Node's name, its kubeconfig, where it answers probes, and where its
//! container runtime listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_config::kubelet::args;
use kubelet_config::kubelet::config::{self, ConfigFileState};
use kubelet_config::kubelet::effective::{self, Settings};
use kubelet_config::kubelet::endpoint::runtime_socket;
use kubelet_config::kubelet::flags::CommandLine;
use kubelet_config::kubelet::flags::parse::{parse_argv, parse_flags};
pub use kubelet_config::kubelet::healthz::Healthz;
use kubelet_config::kubelet::healthz::{DEFAULT_PORT, healthz};
use kubelet_config::kubelet::host_tree::HostTree;
pub use kubelet_config::kubelet::layers::UNIT_NAMES;
use kubelet_config::kubelet::layers::{candidate_units, resolve_command};
use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::systemd::{Manager, resolve_unit};
use kubelet_config::kubelet::tree::Tree;
use serde::{Deserialize, Serialize};

use super::child;
use super::cloud_init::{self, CloudInit};
use super::credential::{self, ClientCertificate, Credential};
use super::process::{ProcessId, children_named};
use crate::files;

/// The hidden subcommand that reads a kubelet's configuration.
pub const SUBCOMMAND: &str = "kubelet-facts";
const TIMEOUT: Duration = Duration::from_secs(10);

/// As long as a command line is that Linux takes with a stack of the usual 8 MiB.
const MAX_COMMAND_LINE_BYTES: u64 = 2 * 1024 * 1024;
/// The kubeconfigs of kubeadm, of the kubelet's own default, of k3s, RKE2, k0s and `MicroK8s`.
const USUAL_KUBECONFIGS: [&str; 6] = [
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/lib/k0s/kubelet.conf",
    "/var/snap/microk8s/current/credentials/kubelet.config",
];

/// What the child prints, in JSON: what is known of the kubelet, or why it cannot be read, with the file; and how far cloud-init is.
pub type Output = (Result<KubeletFacts, String>, CloudInit);

/// What the child does. `pid` is the kubelet's process, or that of the program that contains the kubelet. Without one, the child reads the
/// files at their default paths.
pub fn read(pid: Option<i32>) -> Output {
    (pid.map_or_else(KubeletFacts::read_files, KubeletFacts::read), cloud_init::read(Path::new("/")))
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
    /// The process and its authenticated port, once it has answered.
    pub port: Option<(ProcessId, Port)>,
}

/// The kubelet's authenticated port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub address: SocketAddr,
    /// The file with the certificate that it shows there.
    pub certificate: PathBuf,
}

impl Port {
    /// That of a kubelet with these settings; none if they have no address.
    pub fn of(settings: &Settings) -> Option<Self> {
        let port = settings.int("port").map_or(Ok(10250), u16::try_from).ok()?;
        let address: IpAddr = settings.text("address").map_or(Ok(Ipv4Addr::UNSPECIFIED.into()), str::parse).ok()?;
        // Nobody connects to an unspecified address.
        let address = if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address };
        // The one that it is given, else the one that was issued to it, else the one that it has made.
        let directory = Path::new(settings.text("--cert-dir").unwrap_or("/var/lib/kubelet/pki"));
        let issued = directory.join("kubelet-server-current.pem");
        let made = || if issued.exists() { issued.clone() } else { directory.join("kubelet.crt") };
        let certificate = settings.text("tlsCertFile").map_or_else(made, PathBuf::from);
        Some(Self { address: SocketAddr::new(address, port), certificate })
    }
}

/// What is known of the kubelet's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletFacts {
    /// The name of the Node that the kubelet registers: that in its client certificate, else its --hostname-override, else the host's name in
    /// lower case.
    pub node_name: String,
    /// The kubeconfig that the kubelet uses, an absolute path; none if the kubelet is standalone.
    pub kubeconfig: Option<PathBuf>,
    /// Its --root-dir, an absolute path; none if the flag is not set.
    pub root_dir: Option<PathBuf>,
    pub healthz: Healthz,
    /// Its authenticated port; none if no address can be read.
    pub port: Option<Port>,
    /// The socket of its `containerRuntimeEndpoint`; none if the command line is not a kubelet's, or it is no socket.
    pub runtime_socket: Option<PathBuf>,
    /// Whether these facts are from a kubelet's command line, so that the kubelet uses this kubeconfig.
    pub is_of_kubelet: bool,
    /// The kubelet's process, if the process that was asked for is not the kubelet itself but has started it.
    pub child: Option<ProcessId>,
    /// The credential in that kubeconfig.
    pub credential: Credential,
}

impl KubeletFacts {
    /// What holds for most kubelets, while none runs. It touches no file, as their disk may hang, so that kubeconfig and credential are not
    /// known.
    pub fn usual() -> Self {
        let healthz = Healthz::Url(format!("http://127.0.0.1:{DEFAULT_PORT}/healthz"));
        let credential = Credential::Unreadable("it has not been read".into());
        Self {
            node_name: host_name().to_lowercase(),
            kubeconfig: None,
            root_dir: None,
            healthz,
            port: None,
            runtime_socket: None,
            is_of_kubelet: false,
            child: None,
            credential,
        }
    }

    /// The same with a usual kubeconfig and its credential, and with the Node's name from there or from the unit's files. Reads files: call
    /// it in a child.
    fn with_files(self, tree: &dyn Tree) -> Self {
        let kubeconfig = USUAL_KUBECONFIGS.iter().map(PathBuf::from).find(|path| path.exists());
        let credential = credential::read(kubeconfig.as_deref(), None);
        let node_name = name(&credential, name_in_files(tree, &self.node_name));
        Self { node_name, kubeconfig, credential, ..self }
    }

    /// What is known while no kubelet runs, read here.
    ///
    /// # Errors
    /// When the root directory cannot be read.
    pub fn read_files() -> Result<Self, String> {
        Ok(Self::usual().with_files(&root()?))
    }

    /// The same, read in a child; only what is usual if that fails.
    pub async fn without_process() -> Self {
        read_in_child(None).await.and_then(|(facts, _)| facts).unwrap_or_else(|_| Self::usual())
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
                Self { healthz: facts.healthz, is_of_kubelet: false, child: None, ..known }
            }
            _ => facts,
        })
    }

    /// The same, read here.
    ///
    /// # Errors
    /// When they cannot be read, naming the file.
    pub fn read(pid: i32) -> Result<Self, String> {
        let own = flags_of(pid)?;
        let (child, flags) = if is_kubelet(&own) { (None, own) } else { started_by(pid).unwrap_or((None, own)) };
        let flag = |name| flags.value(name).filter(|value| !value.is_empty());
        let absolute = |name| flag(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let is_of_kubelet = is_kubelet(&flags);
        let tree = root()?;
        let settings = if flags.uses.is_empty() { settings_in_files(&tree)? } else { settings(&tree, &flags)? };
        let usual = Self::usual();
        let facts = Self { root_dir: absolute("root-dir"), healthz: healthz(&settings)?, ..usual };
        if !is_of_kubelet {
            return Ok(facts.with_files(&tree));
        }
        let kubeconfig = absolute("kubeconfig");
        let credential = credential::read(kubeconfig.as_deref(), flag("cert-dir"));
        let (runtime_socket, port) = (runtime_socket(&settings), Port::of(&settings));
        let given = override_in(&flags).unwrap_or_else(|| facts.node_name.clone());
        let node_name = name(&credential, given);
        Ok(Self { node_name, kubeconfig, port, runtime_socket, is_of_kubelet, child, credential, ..facts })
    }
}

/// The kubelet's flags on the command line of a process; none on that of k3s, RKE2 or k0s, which is a subcommand with flags of its own,
/// such as `--config`.
fn flags_of(pid: i32) -> Result<CommandLine, String> {
    let path = format!("/proc/{pid}/cmdline");
    let command_line = files::read(Path::new(&path), MAX_COMMAND_LINE_BYTES);
    let command_line = command_line.map_err(|error| format!("{path}: {error}"))?;
    let mut words = args::words(command_line.as_bytes());
    if words.get(1).is_some_and(|word| !word.starts_with('-')) {
        words.truncate(1);
    }
    Ok(parse_argv(&words, &Location::file(&path)))
}

fn is_kubelet(flags: &CommandLine) -> bool {
    ["config", "kubeconfig"].iter().any(|name| flags.value(name).is_some_and(|value| !value.is_empty()))
}

/// The kubelet that this process has started, as RKE2, k0s and a shell do, and its flags. k3s and `MicroK8s` run it inside themselves.
fn started_by(parent: i32) -> Option<(Option<ProcessId>, CommandLine)> {
    children_named(parent, "kubelet").into_iter().find_map(|id| {
        let flags = flags_of(id.pid).ok().filter(is_kubelet)?;
        Some((Some(id), flags))
    })
}

/// The host's name. In lower case the kubelet uses it for the Node (`k8s.io/kubernetes/pkg/util/node`, `GetHostname`).
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_owned()
}

fn root() -> Result<HostTree, String> {
    HostTree::new(Path::new("/")).map_err(|error| format!("/: {error}"))
}

/// The Node's name: the API server lets a kubelet write no other Node than that of its certificate, whatever its flags say.
fn name(credential: &Credential, given: String) -> String {
    match credential {
        Credential::Certificate(ClientCertificate { node: Some(name), .. }) => name.clone(),
        _ => given,
    }
}

/// The name that the unit's files give the kubelet: by the flag, or by an option of k3s or RKE2 that becomes the flag; else the host's.
fn name_in_files(tree: &dyn Tree, host_name: &str) -> String {
    override_in(&flags_in_files(tree, host_name)).unwrap_or_else(|| host_name.to_owned())
}

/// The flags that the unit's files give the kubelet.
fn flags_in_files(tree: &dyn Tree, host_name: &str) -> CommandLine {
    let unit = resolve_unit(tree, &candidate_units(tree).swap_remove(0), &Manager::default());
    let command = resolve_command(tree, &unit, Some(host_name));
    parse_flags(command.args.get(1..).unwrap_or_default())
}

/// The settings of a kubelet that has no flags of its own, as the one in k3s; the defaults while its files cannot be read, as before its
/// first start.
fn settings_in_files(tree: &dyn Tree) -> Result<Settings, String> {
    let flags = flags_in_files(tree, &host_name());
    settings(tree, &flags).or_else(|_| settings(tree, &CommandLine::default()))
}

fn override_in(flags: &CommandLine) -> Option<String> {
    flags.value("hostname-override").map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty())
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
    use std::process::{Command, Stdio};

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
    fn the_node_is_that_of_the_certificate_and_else_the_one_that_the_files_name() {
        let unit = "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n";
        let plain = MemoryTree::new().file("/lib/systemd/system/kubelet.service", unit);
        assert_eq!(name_in_files(&plain, "vm"), "vm");
        let flag = plain.file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--hostname-override=Worker-7\n");
        assert_eq!(name_in_files(&flag, "vm"), "worker-7");
        let rancher = |program: &str, config: &str| {
            let unit = format!("[Service]\nExecStart=/usr/local/bin/{program} agent\n");
            let tree = MemoryTree::new().file("/etc/rancher/node/id", "0a1b2c3d\n");
            let tree = tree.file(format!("/etc/systemd/system/{program}-agent.service"), unit);
            name_in_files(&tree.file(format!("/etc/rancher/{program}/config.yaml"), config), "vm")
        };
        assert_eq!(rancher("k3s", "node-name: Edge\n"), "edge");
        assert_eq!(rancher("rke2", "with-node-id: true\n"), "vm-0a1b2c3d");

        let (valid_from, valid_until) = (jiff::Timestamp::UNIX_EPOCH, jiff::Timestamp::MAX);
        let credential = |node: Option<&str>| {
            let node = node.map(Into::into);
            Credential::Certificate(ClientCertificate { file: "/c".into(), node, valid_from, valid_until })
        };
        assert_eq!(name(&credential(Some("n1")), "vm".into()), "n1");
        assert_eq!(name(&credential(None), "vm".into()), "vm");
        assert_eq!(name(&Credential::Missing, "vm".into()), "vm");
    }

    #[test]
    fn a_kubelet_in_k3s_is_probed_where_the_files_say() {
        let unit = "[Service]\nExecStart=/usr/local/bin/k3s agent\n";
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let probed = |tree: &MemoryTree| healthz(&settings_in_files(tree).unwrap()).unwrap();
        let tree = MemoryTree::new().file("/etc/systemd/system/k3s-agent.service", unit);
        assert_eq!(probed(&tree), Healthz::Url("http://127.0.0.1:10248/healthz".into()));
        let defaults = format!("{head}healthzBindAddress: ::1\n");
        let tree = tree.file("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", defaults);
        assert_eq!(probed(&tree), Healthz::Url("http://[::1]:10248/healthz".into()));
        let tree = tree.file("/etc/rancher/k3s/config.yaml", "kubelet-arg: healthz-port=10300\n");
        assert_eq!(probed(&tree), Healthz::Url("http://[::1]:10300/healthz".into()));
    }

    #[test]
    fn a_command_line_that_is_not_a_kubelets_has_no_node_name_and_no_kubeconfig() {
        assert_eq!(KubeletFacts::read(own_pid()), KubeletFacts::read_files());
        let error = KubeletFacts::read(i32::MAX).unwrap_err();
        assert!(error.starts_with("/proc/2147483647/cmdline: "), "{error}");
    }

    #[test]
    fn a_kubelet_that_another_program_has_started_is_found_by_its_parent_and_flags() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("kubelet");
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let start = |argument: &str| {
            let words = ["-c", "read line", argument];
            let child = Command::new(&program).args(words).stdin(Stdio::piped()).spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            // Until its exec it has the name of this test.
            while children_named(own_pid(), "kubelet").iter().all(|id| id.pid != pid) {}
            (child, pid)
        };
        let (mut other, _) = start("--version");
        assert_eq!(KubeletFacts::read(own_pid()).unwrap().child, None, "no flag says that it is a kubelet");
        let (mut kubelet, pid) = start("--kubeconfig=/none/kubelet.conf");
        let facts = KubeletFacts::read(own_pid()).unwrap();
        assert_eq!(facts.child.map(|id| id.pid), Some(pid));
        assert!(facts.is_of_kubelet && facts.kubeconfig == Some("/none/kubelet.conf".into()), "{facts:?}");
        for child in [&mut other, &mut kubelet] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }
}
