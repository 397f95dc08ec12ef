//! `nodevigil bundle` over trees in which every place where a node keeps secrets has one, and over trees that are hostile.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

mod hostile;
mod node;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use serde_json::Value;

use node::*;

/// A bundle, unpacked by tar.
struct Unpacked {
    folder: tempfile::TempDir,
    stderr: String,
    bytes: usize,
}

impl Unpacked {
    fn of(tree: &Tree) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bundle.tar");
        let output = Command::new(env!("CARGO_BIN_EXE_nodevigil"))
            .args(["bundle", "--root"])
            .arg(tree.0.path())
            .arg("--output")
            .arg(&file)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        let meta = fs::metadata(&file).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        let tar = Command::new("tar")
            .args(["--extract", "--strip-components=1", "--file"])
            .arg(&file)
            .current_dir(folder.path())
            .status();
        assert!(tar.unwrap().success());
        fs::remove_file(&file).unwrap();
        let bytes = usize::try_from(meta.len()).unwrap();
        Self {
            folder,
            stderr,
            bytes,
        }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }

    /// The row of the manifest.
    fn row(&self, name: &str) -> Value {
        let manifest = self.json("manifest.json");
        let rows = manifest["parts"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no {name} in {manifest:#}"))
            .clone()
    }

    /// Every file with the forms of `secret` in it.
    fn holding(&self, secret: &str) -> Vec<String> {
        let forms = forms(secret);
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let bytes = fs::read(&path).unwrap();
                for form in &forms {
                    if bytes
                        .windows(form.len())
                        .any(|part| part == form.as_bytes())
                    {
                        found.push(format!("{form} in {}", path.display()));
                    }
                }
            }
        }
        found
    }
}

/// The secret itself, and what is sure of it in base64, wherever it begins in what was encoded.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    for before in 0..3 {
        let encoded = STANDARD_NO_PAD.encode([&vec![b'x'; before], secret.as_bytes()].concat());
        let end = (before + secret.len()) / 3 * 4;
        forms.push(encoded[if before == 0 { 0 } else { 4 }..end].to_owned());
    }
    forms
}

#[test]
fn no_canary_is_in_it_wherever_it_stood() {
    let tree = node_with_secrets();
    let bundle = Unpacked::of(&tree);
    for canary in CANARIES {
        let found = bundle.holding(canary);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn what_stands_around_the_canaries_is_there_and_they_are_stars() {
    let bundle = Unpacked::of(&node_with_secrets());
    let env = bundle.text("files/etc/default/kubelet");
    for line in [
        "1: KUBELET_EXTRA_ARGS=--node-ip=10.0.0.7 --v=2",
        "2: HCLOUD_TOKEN=***",
        "3: OPAQUE=***",
        "5: PEM=***",
        "8: HTTPS_PROXY=http://***@proxy:3128/",
    ] {
        assert!(env.lines().any(|l| l == line), "{line} in {env}");
    }
    let unit = bundle.text("files/etc/systemd/system/kubelet.service");
    for line in [
        "ExecStartPre=/usr/bin/curl ***",
        "  '--registry-token' \\",
        "  '***' $KUBELET_EXTRA_ARGS",
        "Restart=always",
    ] {
        assert!(unit.lines().any(|l| l == line), "{line} in {unit}");
    }
    let dropin = bundle.text("files/etc/systemd/system/kubelet.service.d/10-provider.conf");
    let wanted = "[Service]\nEnvironment=***\nEnvironment=***\nEnvironment=\"KUBELET_MORE_ARGS=--v=2\"\nSetCredential=***\n";
    assert_eq!(dropin, wanted);
    let config = bundle.text("files/var/lib/kubelet/config.yaml");
    assert!(
        config.contains("staticPodURLHeader: ***")
            && config.contains("clusterDomain: cluster.example")
    );
    let containerd = bundle.json("files/etc/containerd/config.toml");
    let cri = &containerd["plugins"]["io.containerd.grpc.v1.cri"];
    assert_eq!(cri["sandbox_image"], "pause:3.9");
    assert_eq!(
        cri["registry"]["configs"]["r.example"]["auth"]["password"],
        "***"
    );
    let status = bundle.json("status.json");
    let masked = "it said ***, ***, ***, *** and ***; basic ***";
    let note = status["note"].as_str().unwrap();
    assert!(note.starts_with(masked), "{note}");
    assert_eq!(
        (&status["joinToken"], &status["list"][1]),
        (&"***".into(), &"***".into())
    );
    let log = bundle.text("journal/rke2-kubelet.log");
    assert!(
        log.contains("a fine line\n")
            && log.contains("Bearer ***\n")
            && log.contains("] it said ***")
    );
    let check = bundle.json("check.json");
    assert_eq!(check["variables"]["OPAQUE"]["value"], "***");
    assert_eq!(check["unit"]["name"], "kubelet.service");
    assert_eq!(
        bundle.json("files/etc/nodevigil/config.d/50-local.toml")["kubelet"]["healthy_for_secs"],
        30
    );
}

#[test]
fn the_manifest_says_what_there_is_and_what_not() {
    let bundle = Unpacked::of(&node_with_secrets());
    let manifest = bundle.json("manifest.json");
    assert_eq!(manifest["version"], 1);
    assert_eq!(manifest["node"], "worker-1.example");
    for row in manifest["parts"].as_array().unwrap() {
        let path = bundle.folder.path().join(row["name"].as_str().unwrap());
        let is_there = row["bytes"].is_u64();
        assert_eq!(path.is_file(), is_there, "{row}");
        if is_there {
            assert_eq!(row["bytes"], fs::metadata(path).unwrap().len(), "{row}");
        }
    }
    assert_eq!(bundle.row("ledger.json")["state"], "absent");
    assert!(
        bundle.stderr.contains("look through it"),
        "{}",
        bundle.stderr
    );
}

#[test]
fn nothing_that_lies_in_a_tree_makes_it_hang_or_large() {
    let tree = node_with_secrets();
    let large = fs::File::create(tree.path("/etc/default/kubelet")).unwrap();
    large.set_len(100 << 20).unwrap();
    let log = "E1121 12:00:00.000000 1 a.go:1] a line of a log that has no end\n".repeat(100_000);
    tree.file("/var/lib/rancher/rke2/agent/logs/kubelet.log", log);
    for fifo in [
        "/run/nodevigil/ledger.json",
        "/etc/kubernetes/admin.conf",
        "/etc/crio/crio.conf",
    ] {
        let made = Command::new("mkfifo").arg(tree.path(fifo)).status();
        assert!(made.unwrap().success());
    }
    symlink(
        "/etc/containerd/config.toml",
        tree.path("/etc/containerd/conf.d/loop.toml"),
    )
    .unwrap();
    tree.file(
        "/etc/containerd/config.toml",
        "password = \"jackaloftheregistry",
    );
    tree.file("/run/nodevigil/status.json", "no JSON: wombat");
    let begun = Instant::now();
    let bundle = Unpacked::of(&tree);
    assert!(
        begun.elapsed() < Duration::from_mins(1),
        "{:?}",
        begun.elapsed()
    );
    assert!(bundle.bytes < 9 << 20, "{}", bundle.bytes);
    assert_eq!(bundle.row("files/etc/default/kubelet")["state"], "failed");
    assert_eq!(bundle.row("ledger.json")["state"], "failed");
    assert_eq!(bundle.row("status.json")["state"], "failed");
    assert_eq!(
        bundle.row("files/etc/containerd/config.toml")["state"],
        "failed"
    );
    let log = fs::metadata(bundle.folder.path().join("journal/rke2-kubelet.log")).unwrap();
    assert!(log.len() <= 512 * 1024);
    let unread = &bundle.json("manifest.json")["redaction"]["unread"];
    assert!(
        unread.to_string().contains("/etc/kubernetes/admin.conf"),
        "{unread}"
    );
    assert!(bundle.holding("jackaloftheregistry").is_empty());
}

#[test]
fn no_file_is_written_over() {
    let tree = Tree::new();
    let file = tree.path("/there.tar");
    fs::write(&file, "precious").unwrap();
    let run = |output: &Path| {
        Command::new(env!("CARGO_BIN_EXE_nodevigil"))
            .args(["bundle", "--root"])
            .arg(tree.0.path())
            .arg("--output")
            .arg(output)
            .output()
            .unwrap()
    };
    let output = run(&file);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let archive = run(Path::new("-")).stdout;
    assert!(archive.windows(13).any(|part| part == b"manifest.json"));
    assert_eq!(archive.len() % 512, 0);
}
