//! How a machine is born from one of the files of `cloud-init/`: its placeholders are filled in, its packages served, and
//! what comes to its console is kept.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::mirror::Mirror;
use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::watch::NodeWatch;
use crate::support::{enter, kubeadm, wait_until};

/// A join takes five seconds on two idle cores.
pub(crate) const JOINED: Duration = Duration::from_mins(2);
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// What is written to the console, which is a terminal of its own here, is kept in this file: a node's `/dev` is the machine's.
const CONSOLE_LOG: &str = "/run/console.log";
const CONSOLE_UNIT: &str = "\
[Unit]
Description=The console
DefaultDependencies=no
Before=cloud-init-local.service kubelet.service
[Service]
ExecStart=/usr/bin/script --quiet --flush --command 'mount --bind $(tty) /dev/console && exec sleep infinity' /run/console.log
";
/// kubelet's package enables it: until kubeadm has configured it, it starts and fails every ten seconds.
const ENABLED_KUBELET: &str = "[Unit]\nWants=kubelet.service\n";

/// A node with packages as Debian has them, and this user data; neither nodevigil nor anything of it is there.
pub(crate) fn machine(plane: &Arc<ControlPlane>, name: &str, user_data: &str) -> NodeBuilder {
    NodeBuilder::new(plane, name)
        .joining()
        .start("lab-console.service")
        .file(
            "/etc/systemd/system/lab-console.service",
            CONSOLE_UNIT,
            0o644,
        )
        .file(
            "/etc/systemd/system/node.target.d/10-kubelet.conf",
            ENABLED_KUBELET,
            0o644,
        )
        .file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n", 0o644)
        .file("/var/lib/cloud/seed/nocloud/user-data", user_data, 0o600)
}

/// The placeholders filled in; besides, what a test machine needs: kubeadm's preflight refuses it, and its address is
/// not the one that a kubelet would find.
pub(crate) fn filled(plane: &ControlPlane, user_data: &str) -> Result<String> {
    let package = Mirror::open()?.first()?;
    let text = user_data
        .replace("API_SERVER_ENDPOINT", &kubeadm::endpoint(plane))
        .replace("BOOTSTRAP_TOKEN", kubeadm::TOKEN)
        .replace("CA_CERT_HASH", &ca_hash(plane.ca())?)
        .replace("NODEVIGIL_DEB_URL", &package.url)
        .replace("NODEVIGIL_DEB_SHA256", &package.sha256);
    let address = format!("{{name: node-ip, value: {}}}", enter::ADDRESS);
    let has_arguments = text.contains(" kubeletExtraArgs:\n");
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        lines.push(line.to_owned());
        let indent = &line[..line.len() - line.trim_start().len()];
        match line.trim_start() {
            "nodeRegistration:" => {
                lines.push(format!("{indent}  ignorePreflightErrors: [all]"));
                if !has_arguments {
                    lines.push(format!("{indent}  kubeletExtraArgs: [{address}]"));
                }
            }
            "kubeletExtraArgs:" => lines.push(format!("{indent}- {address}")),
            _ => {}
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// As `kubeadm token create --print-join-command` prints it: of the public key, not of the certificate.
fn ca_hash(certificate: &str) -> Result<String> {
    let script = "openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | sha256sum";
    let mut child = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("a pipe was asked for")?;
    input.write_all(certificate.as_bytes())?;
    drop(input);
    let output = String::from_utf8(child.wait_with_output()?.stdout)?;
    let hash = output.split_whitespace().next().unwrap_or_default();
    ensure!(hash.len() == 64, "openssl said {output}");
    Ok(format!("sha256:{hash}"))
}

/// Whether the Node was created with the taint that a cloud controller waits for.
pub(crate) fn was_born_with_taint(watch: &NodeWatch) -> Result<bool> {
    let (_, born) = watch.wait_for(JOINED, |event| event["type"] == "ADDED")?;
    let taints = born
        .pointer("/object/spec/taints")
        .and_then(Value::as_array);
    Ok(taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == UNINITIALIZED)))
}

/// What came to the console, as a terminal shows it.
pub(crate) fn console(node: &Node) -> Result<String> {
    Ok(node.read(CONSOLE_LOG)?.replace('\r', ""))
}

/// Waits until this stands on the console; returns all of it.
pub(crate) fn on_console(node: &Node, wanted: &str) -> Result<String> {
    let found = wait_until(&format!("{wanted} on the console"), JOINED, || {
        Ok(console(node)
            .ok()
            .filter(|console| console.contains(wanted)))
    });
    found.with_context(|| format!("the console: {}", console(node).unwrap_or_default()))
}

/// cloud-init is through, all that it ran has succeeded, and what it made of the user data is what its schema allows.
pub(crate) fn through(node: &Node) -> Result<()> {
    let said = node.sh("cloud-init status --wait --long")?;
    ensure!(said.contains("status: done"), "{said}");
    node.sh("cloud-init schema --system")?;
    Ok(())
}

/// When something of a unit happened, by systemd: microseconds since the machine's boot.
pub(crate) fn moment(node: &Node, unit: &str, property: &str) -> Result<u64> {
    let text = node.sh(&format!("systemctl show --value -p {property} {unit}"))?;
    text.trim()
        .parse()
        .with_context(|| format!("{property} of {unit}: {text}"))
}

/// What is told of a test that fails.
pub(crate) fn log(node: &Node) -> String {
    let (_, log) = node
        .run("tail -n 40 /var/log/cloud-init-output.log; for unit in nodevigil-preflight nodevigil-bootstrap nodevigil nodevigil-helper kubelet; do echo \"== $unit\"; journalctl -n 15 --no-pager -o short-monotonic -u $unit; done")
        .unwrap_or_default();
    format!("the node's journal:\n{log}")
}
