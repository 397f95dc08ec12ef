//! The trees in which kubelets start: sound, and with this machine's facts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use anyhow::{Context as _, Result, ensure};
use nodevigil_e2e::support::{namespaces, output};

const UNIT: &str = "[Service]\nExecStart=/usr/bin/kubelet\n";
const DROP_IN: &str = "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\n\
                       ExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_EXTRA_ARGS\n";
/// A sound configuration. A change replaces the line of its field.
const HEAD: [&str; 2] = ["apiVersion: kubelet.config.k8s.io/v1beta1\n", "kind: KubeletConfiguration\n"];
const REST: [&str; 3] = ["cgroupDriver: cgroupfs\n", "clusterDNS: [10.96.0.10]\n", "systemReserved: {memory: 500Mi}\n"];
/// An API server that does not answer.
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                          clusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'}}]\n\
                          users: [{name: u, user: {client-certificate: /run/oracle/client.pem, client-key: /run/oracle/client.pem}}]\n";
/// What the rules read of the machine.
const FACTS: [&str; 9] = [
    "proc/meminfo",
    "proc/swaps",
    "proc/filesystems",
    "proc/sys/kernel/panic",
    "proc/sys/kernel/panic_on_oops",
    "proc/sys/vm/overcommit_memory",
    "proc/sys/vm/panic_on_oom",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/online",
];
const MAX_TEXT_BYTES: u64 = 100_000;

/// Writes a sound tree, with these lines in its configuration, in its drop-in and in the kubelet's arguments.
pub(crate) fn write(root: &Path, config: &str, drop_in: Option<&str>, arguments: &str) -> Result<()> {
    let field = config.split(':').next().unwrap_or_default();
    let without = |field: &str, lines: &[&str]| -> String {
        lines.iter().filter(|line| line.split(':').next() != Some(field)).copied().collect()
    };
    let (head, rest) = (without(field, &HEAD), without(field, &REST));
    let directory = drop_in.map_or("", |_| "--config-dir=/etc/kubernetes/kubelet.conf.d ");
    for (path, text) in [
        ("usr/lib/systemd/system/kubelet.service", UNIT.to_owned()),
        ("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", DROP_IN.to_owned()),
        ("etc/default/kubelet", format!("KUBELET_EXTRA_ARGS='{directory}{arguments}'\n")),
        ("etc/kubernetes/kubelet.conf", KUBECONFIG.to_owned()),
        ("etc/hostname", "n1\n".to_owned()),
        ("usr/bin/kubelet", String::new()),
        ("var/lib/kubelet/config.yaml", format!("{head}{config}{rest}")),
    ] {
        put(root, path, &text)?;
    }
    drop_in.map_or(Ok(()), |text| {
        let head = without(text.split(':').next().unwrap_or_default(), &HEAD);
        put(root, "etc/kubernetes/kubelet.conf.d/50-own.conf", &format!("{head}{text}"))
    })
}

fn put(root: &Path, path: &str, text: &str) -> Result<()> {
    let path = root.join(path);
    fs::create_dir_all(path.parent().context("a file has a directory")?)?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Makes a tree one in which a kubelet can start: placeholders of credentials become sound ones, the machine's facts are this machine's, and
/// what every host has is there.
pub(crate) fn prepare(root: &Path) -> Result<()> {
    for directory in ["proc", "sys"] {
        let _ = fs::remove_dir_all(root.join(directory)); // it may be missing
    }
    replace(root)?;
    for fact in FACTS {
        if let Ok(text) = fs::read_to_string(Path::new("/").join(fact)) {
            put(root, fact, &text)?;
        }
    }
    for file in ["etc/passwd", "etc/group"] {
        if !root.join(file).exists() {
            put(root, file, &fs::read_to_string(Path::new("/").join(file))?)?;
        }
    }
    for directory in ["dev", "tmp", "run", "var/lib/kubelet", "var/log/pods", "sys/fs/cgroup"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let (certificate, key) = credential()?;
    put(root, "run/oracle/client.pem", &format!("{certificate}{key}"))?;
    put(root, "run/oracle/kubelet", "")?;
    put(root, "run/oracle/containerd.sock", "")
}

/// Replaces kubeconfigs, certificates and keys, which the trees have as placeholders.
fn replace(directory: &Path) -> Result<()> {
    let (certificate, key) = credential()?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let metadata = path.symlink_metadata()?;
        if metadata.is_dir() {
            replace(&path)?;
        } else if metadata.is_file() && metadata.len() < MAX_TEXT_BYTES {
            let text = fs::read(&path)?;
            let text = String::from_utf8_lossy(&text);
            let is_config = text.contains("kind: Config\n") || text.contains("kind: \"Config\"");
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if is_config && text.contains("clusters") => fs::write(&path, KUBECONFIG)?,
                Some("crt") => fs::write(&path, certificate)?,
                Some("key") => fs::write(&path, key)?,
                Some("pem") => fs::write(&path, format!("{certificate}{key}"))?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// A certificate and its key, made once.
fn credential() -> Result<&'static (String, String)> {
    static MADE: OnceLock<(String, String)> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock();
    if let Some(made) = MADE.get() {
        return Ok(made);
    }
    let directory = namespaces::work();
    let (certificate, key) = (directory.join("oracle.crt"), directory.join("oracle.key"));
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"];
    let subject = ["-subj", "/O=system:nodes/CN=system:node:n1"];
    output(
        Command::new("openssl")
            .args(["req", "-x509"])
            .args(curve)
            .args(subject)
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate),
    )?;
    let made = (fs::read_to_string(certificate)?, fs::read_to_string(key)?);
    ensure!(made.0.starts_with("-----BEGIN"), "openssl wrote no certificate");
    Ok(MADE.get_or_init(|| made))
}
