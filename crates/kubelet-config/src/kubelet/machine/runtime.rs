//! The container runtime at the kubelet's endpoint: which, where its configuration lies, what lies at its socket.

use std::path::{Path, PathBuf};

use super::{
    super::{
        effective::{From, Settings},
        endpoint::{self, DEFAULT_ENDPOINT},
        systemd::{self, LoadState, Manager, Unit},
        tree::{Kind, Tree},
    },
    Cri, Known, Packages, Runtime, RuntimeKind, Socket, containerd, crio,
};

/// Sockets of the runtimes that nodes have.
const SOCKETS: &[&str] = &[
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
];

/// What k3s and RKE2 give their kubelet, in files that they write when they first start.
const RANCHER_ENDPOINT: &str = "unix:///run/k3s/containerd/containerd.sock";

/// The path of the effective endpoint's socket, `/var/run` written as `/run`; `None` for an endpoint that is no path
/// (`tcp://`, `npipe://`).
fn socket_path(unit: &Unit, settings: &Settings) -> Option<String> {
    let said = settings.get("containerRuntimeEndpoint");
    let is_said = said.is_some_and(|said| matches!(said.from, From::Flag(_) | From::File(_)));
    let program = unit.argv.first().map_or("", |word| word.text.as_str());
    let is_rancher = ["k3s", "rke2"].contains(&program.rsplit('/').next().unwrap_or_default());
    let endpoint = settings
        .text("containerRuntimeEndpoint")
        .filter(|_| is_said || !is_rancher)
        .unwrap_or(if is_rancher { RANCHER_ENDPOINT } else { DEFAULT_ENDPOINT });
    endpoint::socket_path(endpoint)
}

/// The runtime at the effective endpoint, and its socket.
pub(super) fn cri(tree: &dyn Tree, unit: &Unit, settings: &Settings, known: &Known) -> Cri {
    let socket_path = socket_path(unit, settings);
    let path = socket_path.as_deref();
    let version = known.runtime_version.as_deref();
    Cri {
        runtime: path.and_then(|path| read(tree, settings, path, &known.packages, version)),
        socket: path.and_then(|path| socket(tree, path)),
        other_sockets: other_sockets(tree, path),
        socket_path,
    }
}

/// What lies at the socket's path; `None` where it cannot be seen.
fn socket(tree: &dyn Tree, path: &str) -> Option<Socket> {
    match tree.stat(Path::new(path)) {
        Ok(meta) if meta.kind == Kind::Other => Some(Socket::Present),
        Ok(_) => Some(Socket::NotASocket),
        Err(error) if error.is_not_found() => Some(Socket::Missing),
        Err(_) => None,
    }
}

/// The sockets of other runtimes that are there.
fn other_sockets(tree: &dyn Tree, path: Option<&str>) -> Vec<String> {
    SOCKETS
        .iter()
        .filter(|socket| Some(**socket) != path)
        .filter(|socket| tree.stat(Path::new(socket)).is_ok_and(|meta| meta.kind == Kind::Other))
        .map(|socket| (*socket).to_owned())
        .collect()
}

/// A runtime's service, as its unit starts it.
#[derive(Default)]
struct Service {
    /// Whether there is such a unit: the runtime is installed.
    installed: bool,
    config: Option<PathBuf>,
    folder: Option<PathBuf>,
}

fn service(tree: &dyn Tree, name: &str) -> Service {
    let unit = systemd::resolve_unit(tree, name, &Manager::default());
    let words: Vec<&str> = unit.argv.iter().map(|word| word.text.as_str()).collect();
    let value = |long: &str, short: &str| {
        words.iter().enumerate().skip(1).find_map(|(index, word)| {
            if *word == long || *word == short {
                return words.get(index.checked_add(1)?).copied();
            }
            word.strip_prefix(long).or_else(|| word.strip_prefix(short))?.strip_prefix('=')
        })
    };
    Service {
        installed: unit.load == LoadState::Loaded,
        config: value("--config", "-c").map(PathBuf::from),
        folder: value("--config-dir", "-d").map(PathBuf::from),
    }
}

/// Reads the configuration of the runtime at the endpoint. `version` is the caller's word for its version.
fn read(
    tree: &dyn Tree,
    settings: &Settings,
    path: &str,
    packages: &Packages,
    version: Option<&str>,
) -> Option<Runtime> {
    let package = |names: &[&str]| {
        version.map(str::to_owned).or_else(|| {
            let found = packages.upstream(names)?;
            Some(found.value)
        })
    };
    if let Some(config) = bundled(tree, settings, path) {
        return Some(containerd::read(tree, &config, version, false));
    }
    match kind(tree, path)? {
        RuntimeKind::Containerd => {
            let service = service(tree, "containerd.service");
            let config = service.config.as_deref();
            let config = config.unwrap_or(Path::new(containerd::DEFAULT_CONFIG));
            let version = package(&["containerd.io", "containerd"]);
            let version = version.as_deref();
            Some(containerd::read(tree, config, version, service.installed))
        }
        RuntimeKind::Crio => {
            let service = service(tree, "crio.service");
            let config = service.config.as_deref();
            let config = config.unwrap_or(Path::new(crio::DEFAULT_CONFIG));
            let folder = service.folder.as_deref();
            let folder = folder.unwrap_or(Path::new(crio::DEFAULT_FOLDER));
            let version = package(&["cri-o"]);
            let version = version.as_deref();
            Some(crio::read(tree, config, folder, version, service.installed))
        }
    }
}

/// The configuration of a containerd that a distribution brings along and starts itself. It may be written at the
/// distribution's first start only.
fn bundled(tree: &dyn Tree, settings: &Settings, socket: &str) -> Option<PathBuf> {
    if socket.starts_with("/run/k0s/") {
        return Some(PathBuf::from("/etc/k0s/containerd.toml"));
    }
    if socket.starts_with("/var/snap/microk8s/") {
        return Some(PathBuf::from("/var/snap/microk8s/current/args/containerd.toml"));
    }
    if !socket.starts_with("/run/k3s/") {
        return None;
    }
    // The data folder may be another one: the kubeconfig lies in the same `agent` folder.
    let agent = settings
        .text("--kubeconfig")
        .and_then(|path| Path::new(path).parent())
        .filter(|folder| folder.ends_with("agent"));
    let usual = ["/var/lib/rancher/rke2/agent", "/var/lib/rancher/k3s/agent"];
    let mut candidates: Vec<PathBuf> = agent
        .into_iter()
        .chain(usual.iter().map(Path::new))
        .map(|agent| agent.join("etc/containerd/config.toml"))
        .collect();
    let chosen = candidates.iter().position(|path| tree.exists(path));
    Some(candidates.swap_remove(chosen.unwrap_or(0)))
}

/// Which runtime listens at a path: by the name of the socket, else by the address in its configuration.
fn kind(tree: &dyn Tree, path: &str) -> Option<RuntimeKind> {
    let name = path.rsplit('/').next().unwrap_or_default();
    if name.contains("dockerd") || name.contains("dockershim") {
        return None;
    }
    if path.contains("containerd") {
        return Some(RuntimeKind::Containerd);
    }
    if path.contains("crio") {
        return Some(RuntimeKind::Crio);
    }
    let containerd = containerd::read(tree, Path::new(containerd::DEFAULT_CONFIG), None, false);
    if containerd.socket.is_some_and(|socket| socket.value == path) {
        return Some(RuntimeKind::Containerd);
    }
    let (config, folder) = (Path::new(crio::DEFAULT_CONFIG), Path::new(crio::DEFAULT_FOLDER));
    let crio = crio::read(tree, config, folder, None, false);
    crio.socket.is_some_and(|socket| socket.value == path).then_some(RuntimeKind::Crio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::{machine::testing::settings, tree::MemoryTree};

    const KUBELET: &str = "/usr/bin/kubelet";

    fn endpoint(endpoint: &str) -> Settings {
        settings(&[("containerRuntimeEndpoint", endpoint), ("--kubeconfig", "/data/k3s/agent/kubelet.kubeconfig")])
    }

    fn unit(program: &str) -> Unit {
        let text = format!("[Service]\nExecStart={program} agent\n");
        let tree = MemoryTree::new().file("/etc/systemd/system/x.service", text);
        systemd::resolve_unit(&tree, "x.service", &Manager::default())
    }

    #[test]
    fn k3s_and_rke2_bring_their_own_endpoint_unless_told_another() {
        let default = endpoint(DEFAULT_ENDPOINT);
        let of = |program: &str, settings: &Settings| socket_path(&unit(program), settings).unwrap();
        let own = "/run/k3s/containerd/containerd.sock";
        assert_eq!(of("/usr/local/bin/k3s", &default), own);
        assert_eq!(of("/opt/bin/rke2", &Settings::default()), own);
        let mut set = endpoint("unix:///run/mine.sock");
        let setting = set.0.get_mut("containerRuntimeEndpoint").unwrap();
        setting.from = From::Flag(crate::kubelet::location::Location::file("/etc/rancher/k3s/config.yaml"));
        assert_eq!(of("/usr/local/bin/k3s", &set), "/run/mine.sock");
    }

    #[test]
    fn an_endpoint_is_a_path_with_or_without_a_scheme() {
        for (text, path) in [
            ("unix:///var/run/crio/crio.sock", Some("/run/crio/crio.sock")),
            ("/run/containerd/containerd.sock", Some("/run/containerd/containerd.sock")),
            ("unix:/run/x.sock", Some("/run/x.sock")),
            ("tcp://127.0.0.1:1", None),
            ("run/x", None),
        ] {
            assert_eq!(socket_path(&unit(KUBELET), &endpoint(text)).as_deref(), path, "{text}");
        }
        assert_eq!(
            socket_path(&unit(KUBELET), &Settings::default()).as_deref(),
            Some("/run/containerd/containerd.sock")
        );
    }

    #[test]
    fn what_lies_at_the_socket_is_looked_at() {
        let tree = MemoryTree::new().other("/run/crio/crio.sock").file("/run/containerd/containerd.sock", "");
        assert_eq!(socket(&tree, "/run/crio/crio.sock"), Some(Socket::Present));
        let file = "/run/containerd/containerd.sock";
        assert_eq!(socket(&tree, file), Some(Socket::NotASocket));
        assert_eq!(socket(&tree, "/run/x"), Some(Socket::Missing));
        assert_eq!(other_sockets(&tree, Some(file)), ["/run/crio/crio.sock"]);
        assert!(other_sockets(&tree, Some("/run/crio/crio.sock")).is_empty());
    }

    #[test]
    fn the_endpoint_decides_whose_configuration_counts() {
        let v2 = |address: &str| format!("version = 2\n[grpc]\naddress = '{address}'\n");
        let tree = MemoryTree::new()
            .file("/etc/containerd/config.toml", v2("/run/mine.sock"))
            .file("/etc/crio/crio.conf.d/10-crio.conf", "[crio.api]\nlisten = '/run/c.sock'\n")
            .file("/data/k3s/agent/etc/containerd/config.toml", "version = 3\n");
        let read = |text| {
            let path = socket_path(&unit(KUBELET), &endpoint(text))?;
            read(&tree, &endpoint(text), &path, &Packages::default(), None)
        };
        let kind = |text| read(text).map(|runtime| (runtime.kind, runtime.schema));
        let (containerd, crio) = (RuntimeKind::Containerd, RuntimeKind::Crio);
        assert_eq!(kind("unix:///run/containerd/containerd.sock"), Some((containerd, Some(2))));
        assert_eq!(kind("unix:///run/mine.sock"), Some((containerd, Some(2))));
        assert_eq!(kind("unix:///run/k3s/containerd/containerd.sock"), Some((containerd, Some(3))));
        assert_eq!(kind("unix:///var/run/crio/crio.sock"), Some((crio, None)));
        assert_eq!(kind("unix:///run/c.sock"), Some((crio, None)));
        assert_eq!(kind("unix:///var/run/cri-dockerd.sock"), None);
        assert_eq!(kind("unix:///run/unknown.sock"), None);
    }
}
