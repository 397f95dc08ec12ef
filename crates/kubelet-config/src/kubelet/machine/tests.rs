use super::*;
use crate::kubelet::effective::{Effective, From};
use crate::kubelet::systemd::{Manager, resolve_unit};
use crate::kubelet::tree::MemoryTree;

/// Settings, each as if it were a default.
pub(super) fn settings<T: Clone + Into<serde_json::Value>>(pairs: &[(&str, T)]) -> Settings {
    let setting = |value: &T| Effective {
        value: value.clone().into(),
        from: From::Default { legacy: false },
        keys: BTreeMap::new(),
    };
    Settings(pairs.iter().map(|(name, value)| ((*name).to_owned(), setting(value))).collect())
}

fn of(tree: &MemoryTree, settings: &Settings) -> Machine {
    let unit = resolve_unit(tree, "kubelet.service", &Manager::default());
    let known = Known { packages: Packages::read(tree), ..Known::default() };
    survey(tree, &unit, &CommandLine::default(), settings, &known)
}

#[test]
fn an_empty_tree_says_nothing() {
    let machine = of(&MemoryTree::new(), &Settings::default());
    assert_eq!(machine.hostname, None);
    assert_eq!(machine.kernel.swaps, None);
    assert_eq!(machine.kernel.cgroup_v2, None);
    assert_eq!(machine.network.cni_configs, None);
    assert_eq!(machine.kubeconfig, FileState::NotAsked);
    assert_eq!(machine.cri.socket, Some(Socket::Missing));
    let runtime = machine.cri.runtime.unwrap();
    assert_eq!(runtime.systemd_cgroup, None);
    assert_eq!(runtime.cri_disabled, None);
}

#[test]
fn files_of_secrets_are_told_from_the_others() {
    let kubeconfig = "kind: Config\ncurrent-context: c\ncontexts:\n- {name: c, context: {cluster: k, user: u}}\nclusters:\n- {name: k, cluster: {server: https://x}}\nusers:\n- {name: u, user: {client-certificate: /k/a.crt, client-key: /k/a.key}}\n";
    let tree = MemoryTree::new()
        .file("/k/conf", kubeconfig)
        .mode("/k/conf", 0o600)
        .file("/k/a.crt", "")
        .file("/k/a.key", "")
        .file("/var/lib/kubelet/pki/kubelet-server-current.pem", "");
    let machine = of(&tree, &settings(&[("--kubeconfig", "/k/conf")]));
    let files: Vec<_> =
        machine.trusted_files.iter().map(|file| (file.at.file.as_ref(), file.secret, file.mode)).collect();
    assert_eq!(
        files,
        [
            ("/k/a.crt", false, 0o644),
            ("/k/a.key", true, 0o644),
            ("/k/conf", true, 0o600),
            ("/var/lib/kubelet/pki/kubelet-server-current.pem", true, 0o644),
        ]
    );
}

#[test]
fn large_files_are_read_in_linear_time() {
    let items = "'/etc/x.toml', ".repeat(60_000);
    let table = |n| {
        let name = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes";
        format!("[{name}.r{n}.options]\nSystemdCgroup = true\n")
    };
    let runtimes = (0..9_000).map(table).collect::<Vec<_>>().concat();
    let deep = format!("a = {}", "[".repeat(900_000));
    let dotted = format!("{}x = 1\n", "a.".repeat(400_000));
    for text in [
        format!("disabled_plugins = [{items}]\n"),
        format!("version = 3\nimports = [{}]\n", items.replace("x.toml", "*")),
        format!("version = 3\n{runtimes}"),
        deep,
        dotted,
        "[[a]]\n".repeat(150_000),
    ] {
        let text: String = text.chars().take(1 << 20).collect();
        let tree = MemoryTree::new().file("/etc/containerd/config.toml", text);
        let _ = of(&tree, &Settings::default());
    }
}

#[test]
fn hostile_files_are_looked_at_and_left() {
    let tree = MemoryTree::new()
        .other("/etc/hostname")
        .other("/proc/swaps")
        .link("/etc/containerd/config.toml", "/etc/containerd/config.toml")
        .directory("/var/lib/dpkg/status")
        .file("/etc/os-release", vec![0xff; 1 << 20])
        .file("/k", vec![b'['; 1 << 18])
        .file("/r", b"nameserver ".repeat(20_000));
    let machine = of(&tree, &settings(&[("--kubeconfig", "/k"), ("resolvConf", "/r")]));
    assert_eq!(machine.hostname, None);
    assert_eq!(machine.kernel.swaps, None);
    assert!(matches!(machine.kubeconfig, FileState::Bad { .. }));
    assert!(!machine.cri.runtime.unwrap().is_whole);
}
