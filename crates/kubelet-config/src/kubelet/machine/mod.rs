//! What the kubelet will find around it: memory, swap, kernel settings, the runtime's configuration, CNI, credentials,
//! each value with the file that says so. Read from a [`Tree`]; what is not there is `None`.
//! Uses what the other modules of `kubelet` have read, never `layers`.

mod beside;
mod certificate;
mod cni;
mod containerd;
mod credential_provider;
mod credentials;
mod crio;
mod identity;
mod kernel;
mod name_servers;
mod packages;
mod runtime;
mod sub_ids;
mod toml_file;
mod trusted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::effective::Settings;
use super::flags::CommandLine;
use super::location::{Located, Location};
use super::systemd::Unit;
use super::tree::Tree;
use super::version::Version;

pub(crate) use beside::{Beside, time_span};
pub(crate) use containerd::release;
pub(crate) use credential_provider::Problem;
pub use credentials::of_running;
pub use identity::{hostname, kubelet_version};
pub(crate) use kernel::PROTECTED;
pub use packages::Packages;

/// The largest kubeconfig, certificate or resolv.conf that is read.
const MAX_FILE_BYTES: usize = 256 << 10;

/// A line of `/proc/swaps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Swap {
    pub(crate) device: String,
    pub(crate) size_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RuntimeKind {
    #[default]
    Containerd,
    Crio,
}

/// The container runtime, from its configuration (all imports, both schema versions).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Runtime {
    pub(crate) kind: RuntimeKind,
    /// Its version (`2.1.4`), where it is known.
    pub(crate) version: Option<String>,
    /// The version of its configuration's schema (containerd): 3 and later are read by containerd 2 alone.
    pub(crate) schema: Option<u32>,
    /// Whether it uses systemd's cgroup driver: containerd's `SystemdCgroup`, CRI-O's `cgroup_manager`. A
    /// place without a line means that no file says so: it is the default.
    pub(crate) systemd_cgroup: Option<Located<bool>>,
    /// A `SystemdCgroup = true` that does not count, and why, where the driver is the default.
    pub(crate) idle_driver: Option<Located<String>>,
    /// What disables its CRI plugin or keeps it from starting, and where.
    pub(crate) cri_disabled: Option<Located<&'static str>>,
    /// The template from which a distribution writes that file at each start.
    pub(crate) template: Option<PathBuf>,
    pub(crate) cni_conf_dir: Option<Located<String>>,
    /// Whether all files of its configuration could be read.
    pub(crate) is_whole: bool,
}

/// What lies at the CRI endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Socket {
    /// Nothing.
    Missing,
    /// Something that is no socket.
    NotASocket,
    /// A socket that was not connected to.
    Present,
    /// A socket that took a connection.
    Connected,
    /// A socket that refused one.
    Refused {
        /// The system's word.
        reason: String,
    },
}

/// What kind of client credentials a kubeconfig has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCredential {
    /// A certificate, in a file.
    CertificateFile {
        /// The file, as written.
        path: String,
    },
    /// A certificate, inline.
    CertificateData,
    /// A token, in a file or inline.
    Token,
    /// An exec plugin.
    Exec,
    /// None at all.
    Nothing,
}

/// A client or serving certificate: the last of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The file.
    pub at: Location,
    /// The subject's common name.
    pub common_name: Option<String>,
    /// Seconds since 1970.
    pub not_before_secs: i64,
    /// Seconds since 1970.
    pub not_after_secs: i64,
}

/// A kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// The file.
    pub at: Location,
    /// The API server's address.
    pub server: Option<String>,
    /// What it shows to the server.
    pub credential: ClientCredential,
    /// The certificate that it has or names, where it could be read: a start depends on it.
    pub certificate: Option<Certificate>,
    /// The one that the kubelet has renewed, where it renews certificates: it counts before the other.
    pub(crate) renewed: Option<Certificate>,
    /// Why the certificate could not be had.
    pub certificate_problem: Option<String>,
    /// The files of certificate, key and token that it names.
    pub files: Vec<String>,
    /// Those of them that are not there.
    pub(crate) missing_files: Vec<String>,
    /// The file of the cluster's CA that it names, if that is not there.
    pub(crate) missing_authority: Option<String>,
}

/// A file that the kubelet needs, read or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState<T> {
    /// Nobody asks for it.
    NotAsked,
    /// It is not there.
    Missing {
        /// The file, and who names it.
        at: Location,
    },
    /// It is there and unusable.
    Bad {
        /// Where.
        at: Location,
        /// Why.
        reason: String,
    },
    /// It is there.
    Present(T),
}

impl<T> FileState<T> {
    /// Reads a file of at most 256 KiB. An error of `parse` is a place and a reason.
    fn read(
        tree: &dyn Tree,
        path: impl AsRef<Path>,
        parse: impl FnOnce(&Location, &[u8]) -> Result<T, (Location, String)>,
    ) -> Self {
        let at = Location::file(&path);
        match tree.read_bounded(path.as_ref(), MAX_FILE_BYTES) {
            Ok(bytes) => parse(&at, &bytes).map_or_else(|(at, reason)| Self::Bad { at, reason }, Self::Present),
            Err(error) if error.is_not_found() => Self::Missing { at },
            Err(error) => Self::Bad { at, reason: error.to_string() },
        }
    }
}

/// Memory, swap and settings of the kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub(crate) memory_bytes: Option<Located<u64>>,
    /// `/proc/swaps`; `None` if it could not be read.
    pub(crate) swaps: Option<Vec<Located<Swap>>>,
    /// Kernel settings by name with dots (`vm.overcommit_memory`), those that the rules read.
    pub(crate) sysctls: BTreeMap<&'static str, Located<String>>,
    /// Whether the host has cgroup v2 as its only hierarchy.
    pub cgroup_v2: Option<bool>,
    /// The controllers of cgroup v2.
    pub(crate) controllers: Option<Located<String>>,
    /// The CPUs that are online, as the kernel lists them: `0-3`.
    pub(crate) cpus: Option<String>,
    /// The NUMA nodes, alike.
    pub(crate) numa_nodes: Option<String>,
    /// Cgroups that exist, of those that the configuration names.
    pub(crate) cgroups: BTreeMap<String, bool>,
}

/// The container runtime at the effective endpoint, and its socket.
#[derive(Debug, Clone)]
pub struct Cri {
    pub(crate) runtime: Option<Runtime>,
    /// The path of the socket; `None` for an endpoint that is no path.
    pub socket_path: Option<String>,
    /// The socket; `None` where it could not be looked at, as in an image.
    pub socket: Option<Socket>,
    pub(crate) other_sockets: Vec<String>,
}

/// The configuration of the network of pods.
#[derive(Debug, Clone)]
pub struct Network {
    /// The directory in which the runtime looks for CNI configurations; `None` where that is not known.
    pub(crate) cni_dir: Option<PathBuf>,
    /// Names of CNI configurations, sorted; `None` if the directory is not there.
    pub(crate) cni_configs: Option<Vec<String>>,
    /// The plugins of the first of them.
    pub(crate) cni_plugins: Vec<String>,
    /// The name servers of the effective `resolvConf`.
    pub(crate) resolv_conf: FileState<Vec<Located<String>>>,
}

/// What the kubelet will find around it.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The host's name, as `/etc/hostname`, or the caller, gives it.
    pub hostname: Option<Located<String>>,
    /// `ID` and `ID_LIKE` of os-release.
    pub(crate) os_ids: Vec<String>,
    /// Memory, swap and settings of the kernel.
    pub kernel: Kernel,
    pub(crate) beside: Beside,
    /// The container runtime.
    pub cri: Cri,
    /// The network of pods.
    pub network: Network,
    /// `--kubeconfig`.
    pub kubeconfig: FileState<Kubeconfig>,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap_kubeconfig: FileState<Kubeconfig>,
    /// The serving certificate in `--cert-dir`.
    pub(crate) serving_certificate: FileState<Certificate>,
    /// Files that systemd's root or the kubelet trusts, with mode, owner and group.
    pub(crate) trusted_files: Vec<TrustedFile>,
    /// The kubelet's version, where something on the host says it.
    pub kubelet_version: Option<Located<Version>>,
    /// Addresses of the host's interfaces; `None` where the root is not this host's.
    pub addresses: Option<Vec<String>>,
}

/// A file whose owner and mode matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustedFile {
    pub(crate) at: Location,
    /// Whether it holds a secret: only its owner may read it.
    pub(crate) secret: bool,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// What the caller of [`survey`] knows already.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) packages: Packages,
    /// The runtime's version, over what the tree says.
    pub(crate) runtime_version: Option<String>,
    pub(crate) kubelet_version: Option<Version>,
}

/// Reads what lies around the kubelet that these settings describe.
pub(crate) fn survey(tree: &dyn Tree, unit: &Unit, flags: &CommandLine, settings: &Settings, known: &Known) -> Machine {
    let cri = runtime::cri(tree, settings, known);
    let network = network(tree, settings, &cri);
    let kubeconfig = credentials::kubeconfig(tree, settings, "--kubeconfig");
    let bootstrap = credentials::kubeconfig(tree, settings, "--bootstrap-kubeconfig");
    let trusted_files = trusted::list(tree, unit, flags, settings, [&kubeconfig, &bootstrap]);
    Machine {
        hostname: hostname(tree, None),
        os_ids: identity::os_ids(tree),
        kernel: kernel::read(tree, settings),
        beside: beside::read(tree, unit, settings, known.kubelet_version.as_ref()),
        cri,
        network,
        kubeconfig,
        bootstrap_kubeconfig: bootstrap,
        serving_certificate: credentials::serving(tree, settings),
        trusted_files,
        kubelet_version: kubelet_version(tree, unit, &known.packages),
        addresses: None,
    }
}

fn network(tree: &dyn Tree, settings: &Settings, cri: &Cri) -> Network {
    let cni_dir = cni::directory(cri.runtime.as_ref(), cri.socket_path.as_deref().unwrap_or_default());
    let cni_configs = cni_dir.as_deref().and_then(|directory| cni::configs(tree, directory));
    let cni_plugins = match (&cni_dir, &cni_configs) {
        (Some(directory), Some(configs)) => cni::plugins(tree, directory, configs),
        _ => Vec::new(),
    };
    Network { cni_dir, cni_configs, cni_plugins, resolv_conf: name_servers::read(tree, settings) }
}

#[cfg(test)]
mod tests;
