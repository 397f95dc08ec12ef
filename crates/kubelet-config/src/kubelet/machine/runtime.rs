//! The container runtime at the kubelet's endpoint: which, where its configuration lies, what lies at its socket.

use std::path::{Path, PathBuf};

use super::{Cri, Known, Runtime, Socket, containerd, crio};
use crate::kubelet::args;
use crate::kubelet::effective::Settings;
use crate::kubelet::endpoint::{self, DEFAULT_ENDPOINT};
use crate::kubelet::location::Located;
use crate::kubelet::systemd::{self, Arg, LoadState, Manager, Unit};
use crate::kubelet::tree::{Kind, Tree};

/// Sockets of the runtimes that nodes have.
const SOCKETS: &[&str] = &[
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
];

/// The runtime at the effective endpoint, and its socket.
pub(super) fn cri(tree: &dyn Tree, settings: &Settings, known: &Known) -> Cri {
    let socket_path = endpoint::socket_path(settings.text("containerRuntimeEndpoint").unwrap_or(DEFAULT_ENDPOINT));
    let path = socket_path.as_deref();
    Cri {
        runtime: path.and_then(|path| read(tree, settings, path, known)),
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

fn other_sockets(tree: &dyn Tree, path: Option<&str>) -> Vec<String> {
    SOCKETS
        .iter()
        .filter(|socket| Some(**socket) != path)
        .filter(|socket| tree.stat(Path::new(socket)).is_ok_and(|meta| meta.kind == Kind::Other))
        .map(|socket| (*socket).to_owned())
        .collect()
}

/// The value of an option that the unit of a runtime gives under one of these names.
fn option(unit: &Unit, names: &[&str]) -> Option<Arg> {
    args::values(&unit.argv, names).into_iter().next()
}

fn path_option(unit: &Unit, names: [&str; 2], default: &str) -> PathBuf {
    option(unit, &names).map_or_else(|| PathBuf::from(default), |word| PathBuf::from(word.text))
}

/// Reads the configuration of the runtime at the socket `path`, which shows whether it is containerd or CRI-O.
fn read(tree: &dyn Tree, settings: &Settings, path: &str, known: &Known) -> Option<Runtime> {
    let version =
        |packages: &[&str]| known.runtime_version.clone().or_else(|| Some(known.packages.upstream(packages)?.value));
    let resolve = |name: &str| systemd::resolve_unit(tree, name, &Manager::default());
    let is_installed = |service: &Unit| service.load == LoadState::Loaded;
    if let Some(config) = bundled(tree, settings, path) {
        let mut runtime = containerd::read(tree, &config, known.runtime_version.as_deref(), false);
        follow_template(tree, &config, path, &mut runtime);
        return Some(runtime);
    }
    if path.contains("containerd") {
        let service = resolve("containerd.service");
        let config = path_option(&service, ["--config", "-c"], containerd::DEFAULT_CONFIG);
        // The package's version is that of the package's program, at the package's socket.
        let is_packaged = path == "/run/containerd/containerd.sock"
            && service.exec.as_ref().is_none_or(|exec| exec.program == "/usr/bin/containerd");
        let version = version(if is_packaged { &["containerd.io", "containerd"] } else { &[] });
        return Some(containerd::read(tree, &config, version.as_deref(), is_installed(&service)));
    }
    path.contains("crio").then(|| {
        let service = resolve("crio.service");
        let config = path_option(&service, ["--config", "-c"], crio::DEFAULT_CONFIG);
        let directory = path_option(&service, ["--config-dir", "-d"], crio::DEFAULT_DIRECTORY);
        let mut runtime = crio::read(tree, &config, &directory, version(&["cri-o"]).as_deref(), is_installed(&service));
        // An option counts before every file.
        if let Some(manager) = option(&service, &["--cgroup-manager"]) {
            runtime.systemd_cgroup = Some(Located { value: manager.text == "systemd", at: manager.at().clone() });
        }
        runtime
    })
}

/// The configuration of a containerd that a distribution brings along. It may be written at its first start only.
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
    // The data directory may be another one: the kubeconfig lies in the same `agent` directory.
    let agent = settings
        .text("--kubeconfig")
        .and_then(|path| Path::new(path).parent())
        .filter(|directory| directory.ends_with("agent"));
    let usual = ["/var/lib/rancher/rke2/agent", "/var/lib/rancher/k3s/agent"].map(Path::new);
    let mut candidates = agent.into_iter().chain(usual).map(|agent| agent.join("etc/containerd/config.toml"));
    let likeliest = candidates.clone().next();
    candidates.find(|path| tree.exists(path)).or(likeliest)
}

/// A mistake in a file that the distribution writes at each start lasts only if the file has a template.
fn follow_template(tree: &dyn Tree, config: &Path, socket: &str, runtime: &mut Runtime) {
    let is_k0s = || tree.read_text(config).is_ok_and(|text| text.starts_with("# k0s_managed=true"));
    let templates: &[&str] = match socket {
        _ if socket.starts_with("/run/k3s/") => &["config-v3.toml.tmpl", "config.toml.tmpl"],
        _ if socket.starts_with("/var/snap/microk8s/") => &["containerd-template.toml"],
        _ if is_k0s() => &[],
        _ => return,
    };
    // A file that it imports is somebody's own.
    if runtime.cri_disabled.as_ref().is_some_and(|found| Path::new(&*found.at.file) == config) {
        runtime.template = templates.iter().map(|name| config.with_file_name(name)).find(|path| tree.exists(path));
        runtime.cri_disabled = runtime.cri_disabled.take().filter(|_| runtime.template.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::machine::RuntimeKind;
    use crate::kubelet::machine::tests::settings;
    use crate::kubelet::tree::MemoryTree;

    fn endpoint(endpoint: &str) -> Settings {
        settings(&[("containerRuntimeEndpoint", endpoint), ("--kubeconfig", "/data/k3s/agent/kubelet.kubeconfig")])
    }

    #[test]
    fn an_endpoint_is_a_path_with_or_without_a_scheme() {
        let path = |settings| cri(&MemoryTree::new(), &settings, &Known::default()).socket_path;
        for (text, expected) in [
            ("unix:///var/run/crio/crio.sock", Some("/run/crio/crio.sock")),
            ("/run/containerd/containerd.sock", Some("/run/containerd/containerd.sock")),
            ("unix:/run/x.sock", Some("/run/x.sock")),
            ("tcp://127.0.0.1:1", None),
            ("run/x", None),
        ] {
            assert_eq!(path(endpoint(text)).as_deref(), expected, "{text}");
        }
        assert_eq!(path(Settings::default()).as_deref(), Some("/run/containerd/containerd.sock"));
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
    fn a_package_tells_the_version_of_its_own_program_alone() {
        let version = |program: &str, socket: &str| {
            let tree = MemoryTree::new()
                .file("/etc/systemd/system/containerd.service", format!("[Service]\nExecStart={program}\n"))
                .file("/var/lib/dpkg/status", "Package: containerd\nStatus: install ok installed\nVersion: 1.4.13-1\n");
            let known = Known { packages: crate::kubelet::machine::Packages::read(&tree), ..Known::default() };
            cri(&tree, &endpoint(socket), &known).runtime.and_then(|runtime| runtime.version)
        };
        let (own, usual) = ("/usr/bin/containerd", "unix:///run/containerd/containerd.sock");
        assert_eq!(version(own, usual).as_deref(), Some("1.4.13"));
        assert_eq!(
            [version("/usr/local/bin/containerd", usual), version(own, "/run/my-containerd/c.sock")],
            [None, None]
        );
    }

    #[test]
    fn the_endpoint_decides_whose_configuration_counts() {
        let tree = MemoryTree::new()
            .file("/etc/containerd/config.toml", "version = 2\n")
            .file("/etc/systemd/system/crio.service", "[Service]\nExecStart=/usr/bin/crio --config-dir /x -c /none\n")
            .file("/x/10-crio.conf", "[crio.network]\nnetwork_dir = '/cni'\n")
            .file("/data/k3s/agent/etc/containerd/config.toml", "version = 3\n");
        let read = |text| cri(&tree, &endpoint(text), &Known::default()).runtime;
        let schema = |text| read(text).map(|runtime| (runtime.kind, runtime.schema));
        assert_eq!(schema("unix:///run/containerd/containerd.sock"), Some((RuntimeKind::Containerd, Some(2))));
        assert_eq!(schema("unix:///run/k3s/containerd/containerd.sock"), Some((RuntimeKind::Containerd, Some(3))));
        let by_flag = tree
            .clone()
            .file("/etc/systemd/system/crio.service", "[Service]\nExecStart=/usr/bin/crio --cgroup-manager cgroupfs\n");
        let by_flag = cri(&by_flag, &endpoint("unix:///run/crio/crio.sock"), &Known::default()).runtime.unwrap();
        let driver = by_flag.systemd_cgroup.unwrap();
        assert_eq!((driver.value, driver.at.line), (false, 2));
        let crio = read("unix:///var/run/crio/crio.sock").unwrap();
        assert_eq!((crio.kind, crio.cni_conf_dir.unwrap().value), (RuntimeKind::Crio, "/cni".to_owned()));
        assert_eq!(read("unix:///var/run/cri-dockerd.sock"), None);
        assert_eq!(read("unix:///run/unknown.sock"), None);
    }
}
