//! The user data of `cloud-init/`, booted as it stands by the real cloud-init, and its twin with the mistake that
//! started this project.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::check;
use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::{api, enter, kubeadm, wait_until};
use crate::trial;

const USER_DATA: &str = include_str!("../../cloud-init/kubeadm-external-cloud.yaml");
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-cloud.conf";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// A join takes five seconds on two idle cores.
const JOINED: Duration = Duration::from_mins(2);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("cloud_init::as_it_stands", the_user_data_works_as_it_stands),
        trial("cloud_init::broken_twin", the_twin_is_named_on_the_console),
    ]
}

fn the_user_data_works_as_it_stands() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let watch = plane.watch_node("cloud-1")?;
    let node = boot(&plane, "cloud-1", &filled(&plane, USER_DATA)?)?;
    let result = (|| {
        node.wait_ready(JOINED)?;
        ensure!(
            has_taint(&node)?,
            "the Node was not born with {UNINITIALIZED}"
        );
        let report = check::report(&node, "--phase after")?;
        check::ensure_resolved_as_it_runs(&node, &report)?;
        let console = console(&node)?;
        ensure!(
            !console.contains("error["),
            "the preflight complained:\n{console}"
        );
        wait_until("KubeletConfigValid=True", JOINED, || {
            let condition = plane.condition(node.name(), "KubeletConfigValid")?;
            Ok(condition.filter(|condition| condition["status"] == "True"))
        })?;
        // What was wrong before `kubeadm join` is not what the Node is born with.
        for (_, event) in watch.all() {
            let told = api::condition(&event, "KubeletConfigValid");
            let bad = told.is_some_and(|told| told["status"] == "False");
            ensure!(!bad, "{told:?}");
        }
        Ok(())
    })();
    result.with_context(|| log(&node))
}

/// The flag goes into a drop-in, as half of the advice on the net has it; everything else is the same.
fn the_twin_is_named_on_the_console() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let good = "- path: /etc/default/kubelet\n  permissions: \"0644\"\n  content: |\n    KUBELET_EXTRA_ARGS=--cloud-provider=external\n";
    ensure!(
        USER_DATA.contains(good),
        "the user data has changed: write the twin anew"
    );
    let bad = format!(
        "- path: {DROP_IN}\n  permissions: \"0644\"\n  content: |\n    [Service]\n    Environment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n"
    );
    let user_data = filled(&plane, &USER_DATA.replace(good, &bad))?;
    let node = boot(&plane, "cloud-2", &user_data)?;
    let result = (|| {
        node.wait_ready(JOINED)?;
        let console = console(&node)?;
        for wanted in [
            "SD001",
            "/etc/default/kubelet:1",
            &format!("{DROP_IN}:2"),
            "CL001",
        ] {
            ensure!(
                console.contains(wanted),
                "{wanted} is not on the console:\n{console}"
            );
        }
        // It is a warning, no gate: the kubelet was started all the same, and the incident took its course.
        ensure!(!has_taint(&node)?, "the flag arrived after all");
        let told = wait_until("KubeletConfigValid=False", JOINED, || {
            let condition = plane.condition(node.name(), "KubeletConfigValid")?;
            Ok(condition.filter(|condition| condition["status"] == "False"))
        })?;
        let message = told["message"].as_str().unwrap_or_default();
        ensure!(message.contains("/etc/default/kubelet:1"), "{told}");
        Ok(())
    })();
    result.with_context(|| log(&node))
}

fn boot(plane: &Arc<ControlPlane>, name: &str, user_data: &str) -> Result<Node> {
    NodeBuilder::new(plane, name)
        .joining()
        .agent()
        .file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n", 0o644)
        .file("/var/lib/cloud/seed/nocloud/user-data", user_data, 0o600)
        .boot()
}

/// The three places filled in; besides, what a test machine needs: kubeadm's preflight refuses it, and its address is
/// not the one that a kubelet would find.
fn filled(plane: &ControlPlane, user_data: &str) -> Result<String> {
    let text = user_data
        .replace("API_SERVER_ENDPOINT", &kubeadm::endpoint(plane))
        .replace("BOOTSTRAP_TOKEN", kubeadm::TOKEN)
        .replace("CA_CERT_HASH", &ca_hash(plane.ca())?)
        .replace(
            "    nodeRegistration:\n",
            &format!(
                "    nodeRegistration:\n      ignorePreflightErrors: [all]\n      kubeletExtraArgs: [{{name: node-ip, value: {}}}]\n",
                enter::ADDRESS
            ),
        );
    Ok(text)
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

fn has_taint(node: &Node) -> Result<bool> {
    let object = node
        .plane()
        .node(node.name())?
        .context("the Node is there")?;
    let taints = object["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    Ok(taints.iter().any(|taint| taint["key"] == UNINITIALIZED))
}

/// What the preflight wrote, which is what the console shows.
fn console(node: &Node) -> Result<String> {
    node.sh("journalctl --no-pager -o cat -u nodevigil-preflight.service")
}

fn log(node: &Node) -> String {
    let (_, log) = node
        .run("for unit in cloud-final nodevigil-preflight nodevigil nodevigil-helper kubelet; do echo \"== $unit\"; journalctl -n 15 --no-pager -o cat -u $unit; done")
        .unwrap_or_default();
    format!("the node's journal:\n{log}")
}
