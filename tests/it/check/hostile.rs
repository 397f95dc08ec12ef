//! Trees that somebody made to hurt: each ends soon, with a finding or a clear error, and never with a byte from outside.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{check, nodevigil_in};

const DROP_INS: &str = "/etc/systemd/system/kubelet.service.d";
const DEFAULTS: &str = "/etc/default/kubelet";
const LEAK: &str = "--leaked-from-outside";

/// A small healthy host, and a file outside that nobody may see.
struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let tree = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::write(
            tree.dir.path().join("outside"),
            format!("KUBELET_EXTRA_ARGS={LEAK}\n"),
        )
        .unwrap();
        tree.put(
            "/usr/lib/systemd/system/kubelet.service",
            "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_EXTRA_ARGS\nRestart=always\n",
        );
        tree.put("/usr/bin/kubelet", "");
        tree.put(
            "/var/lib/kubelet/config.yaml",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
        );
        tree
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("rootfs")
    }

    fn at(&self, path: &str) -> PathBuf {
        let path = self.root().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::remove_file(&path).ok();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) {
        let path = self.at(path);
        fs::remove_file(&path).ok();
        symlink(target, path).unwrap();
    }

    fn fifo(&self, path: &str) {
        let path = self.at(path);
        fs::remove_file(&path).ok();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }

    /// The report; every format ends, and none holds what is outside.
    fn report(&self) -> Value {
        let root = self.root();
        for args in [
            &["--kubelet-version=1.33"][..],
            &["--format=sarif"],
            &["--show=env"],
            &["--show=argv"],
            &["--show=dropins"],
            &["--show=effective"],
        ] {
            let run = check(&root, args);
            assert!(run.code < 2, "{args:?}: {}", run.stderr);
            assert!(!run.stdout.contains(LEAK), "{}", run.stdout);
        }
        let run = check(&root, &["--format=json"]);
        assert!(!run.stdout.contains(LEAK), "{}", run.stdout);
        run.json()
    }

    fn env_file(&self) -> Value {
        self.report()["unit"]["env_files"][0].clone()
    }
}

#[test]
fn links_that_lead_outside_lead_back_in() {
    let tree = Tree::new();
    let outside = tree.dir.path().join("outside");
    for target in [
        outside.as_path(),
        Path::new("../../../outside"),
        Path::new("../../../../../../../../../../outside"),
        Path::new("/../outside"),
    ] {
        tree.link(DEFAULTS, target);
        assert_eq!(tree.env_file()["state"], "missing", "{}", target.display());
    }
    fs::remove_file(tree.at(DEFAULTS)).unwrap();
    fs::remove_dir(tree.at("/etc/default/x").parent().unwrap()).unwrap();
    tree.link("/etc/default", tree.dir.path());
    tree.link(&format!("{DROP_INS}/10-x.conf"), &outside);
    assert_eq!(tree.env_file()["state"], "missing");
}

#[test]
fn links_in_a_circle_end() {
    let tree = Tree::new();
    tree.link(DEFAULTS, "kubelet");
    tree.link(&format!("{DROP_INS}/10-x.conf"), "20-y.conf");
    tree.link(&format!("{DROP_INS}/20-y.conf"), "10-x.conf");
    tree.link("/var/lib/kubelet/config.yaml", "config.yaml");
    tree.link("/etc/systemd/system/loop.service", "loop.service");
    let report = tree.report();
    assert_ne!(report["unit"]["env_files"][0]["state"], "read");
    assert_eq!(report["argv"].as_array().unwrap().len(), 3, "{report:#}");
}

#[test]
fn what_would_block_is_not_opened() {
    let tree = Tree::new();
    tree.fifo(DEFAULTS);
    tree.fifo(&format!("{DROP_INS}/10-fifo.conf"));
    tree.fifo("/var/lib/kubelet/config.yaml");
    tree.fifo("/etc/hostname");
    tree.fifo("/etc/kubernetes/kubelet.conf");
    tree.fifo("/etc/resolv.conf");
    tree.fifo("/proc/swaps");
    tree.fifo("/proc/meminfo");
    tree.fifo("/etc/containerd/config.toml");
    tree.fifo("/etc/rancher/k3s/config.yaml");
    let _listener = UnixListener::bind(tree.at("/etc/machine-id")).unwrap();
    assert_ne!(tree.env_file()["state"], "read");
    tree.fifo("/usr/lib/systemd/system/kubelet.service");
    let run = check(&tree.root(), &["--format=json"]);
    assert!(run.code > 0, "{}", run.stdout);
}

#[test]
fn a_huge_file_is_refused() {
    let tree = Tree::new();
    for path in [
        DEFAULTS,
        "/etc/systemd/system/kubelet.service.d/10-huge.conf",
        "/var/lib/kubelet/config.yaml",
        "/etc/kubernetes/kubelet.conf",
        "/etc/containerd/config.toml",
    ] {
        let file = fs::File::create(tree.at(path)).unwrap();
        file.set_len(100 << 20).unwrap();
    }
    assert_ne!(tree.env_file()["state"], "read");
}

#[test]
fn names_and_texts_that_are_not_utf8() {
    let tree = Tree::new();
    let name = OsStr::from_bytes(b"10-\xff\x1b[31m.conf");
    let folder = tree.at(&format!("{DROP_INS}/x"));
    fs::write(
        folder.with_file_name(name),
        b"[Service]\nEnvironment=A=\xff\n",
    )
    .unwrap();
    tree.put(
        &format!("{DROP_INS}/20-b.conf"),
        b"[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=\xff\xfe\"\n",
    );
    tree.put(DEFAULTS, b"A=\"\x1b[31m\xff\nB=2\n");
    tree.put(
        "/var/lib/kubelet/config.yaml",
        b"kind: KubeletConfiguration\nmaxPods: \xff\x1b[31m\n",
    );
    tree.report();
    let run = check(&tree.root(), &[]);
    assert!(!run.stdout.contains('\x1b'), "{:?}", run.stdout);
}

#[test]
fn a_secret_is_not_shown() {
    let tree = Tree::new();
    tree.put(
        DEFAULTS,
        "K3S_TOKEN=K10secret\nhttp_proxy=http://me:K10secret@proxy:1/\nKUBELET_EXTRA_ARGS=--token=K10secret\n",
    );
    tree.put(
        "/etc/kubernetes/kubelet.conf",
        "apiVersion: v1\nkind: Config\nusers:\n- name: x\n  user: {token: K10secret}\n",
    );
    for args in [
        &["--show=env"][..],
        &["--show=argv"],
        &["--show=effective"],
        &["--format=json"],
    ] {
        let run = check(&tree.root(), args);
        assert!(!run.stdout.contains("K10secret"), "{args:?} {}", run.stdout);
    }
}

#[test]
fn folders_in_the_place_of_files() {
    let tree = Tree::new();
    fs::create_dir_all(tree.at(&format!("{DEFAULTS}/x"))).unwrap();
    fs::create_dir_all(tree.at(&format!("{DROP_INS}/10-dir.conf/x"))).unwrap();
    fs::create_dir_all(tree.at("/etc/hostname/x")).unwrap();
    assert_ne!(tree.env_file()["state"], "read");
    let run = nodevigil_in(
        tree.dir.path(),
        &["check", "--root", "rootfs/usr/bin/kubelet"],
    );
    assert_eq!(run.code, 2);
}
