//! `nodevigil check` and the condition `KubeletConfigValid` on a real node: what is resolved is what runs, the mistakes
//! of the field are named by file and line before and after the start, and what is called fatal is fatal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scene::{KUBELET, SOON, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::enter;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::wait_until;
use crate::trial;

const DEFAULTS: &str = "/etc/default/kubelet";
const DROP_INS: &str = "/etc/systemd/system/kubelet.service.d";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const WANTED: &str = "--cloud-provider=external";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("check::joined", a_joined_kubelet_is_resolved_as_it_runs),
        trial("check::packaged_file_wins", || lost(&PACKAGED_FILE)),
        trial("check::other_file_is_read", || lost(&OTHER_FILE)),
        trial("check::reset_later", || lost(&RESET_LATER)),
        trial("check::reload_and_restart", what_waits_for_a_reload_is_said),
    ]
}

/// What `nodevigil check` says in JSON; its exit code may be anything but "could not check".
pub(crate) fn report(node: &Node, arguments: &str) -> Result<Value> {
    let (code, output) = node.run(&format!(
        "nodevigil check --format json {arguments} 2>/tmp/check.err"
    ))?;
    ensure!(
        code < 2,
        "check {arguments}: {code}: {output}{:?}",
        node.run("cat /tmp/check.err")
    );
    serde_json::from_str(&output).with_context(|| format!("check {arguments}: {output}"))
}

/// Fails unless the argument list of the running kubelet is the one that was resolved.
pub(crate) fn ensure_resolved_as_it_runs(node: &Node, report: &Value) -> Result<()> {
    let pid = node.main_pid(KUBELET)?;
    let cmdline = node.sh(&format!("tr '\\0' '\\n' </proc/{pid}/cmdline"))?;
    let runs: Vec<&str> = cmdline.lines().collect();
    let resolved: Vec<&str> = report["argv"]
        .as_array()
        .context("a report has argv")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    ensure!(resolved == runs, "resolved {resolved:#?}\nruns {runs:#?}");
    Ok(())
}

fn a_joined_kubelet_is_resolved_as_it_runs() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "check-joined")
        .joining()
        .agent()
        .kubelet_argument("--node-labels=node.kubernetes.io/pool=blue,example.org/rack=r7")
        .file(
            DEFAULTS,
            "KUBELET_EXTRA_ARGS=\"--v=1 --max-pods=50\"\n",
            0o644,
        )
        .boot()?;
    node.wait_ready(Duration::from_mins(2))?;
    let report = report(&node, "")?;
    ensure_resolved_as_it_runs(&node, &report)?;
    ensure!(
        errors(&report).is_empty(),
        "errors on a good node: {report:#}"
    );
    Ok(())
}

/// A way to lose the flag, where it is named, and what mends it.
struct Mistake {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// Rules that must fire, each at this `file:line`.
    named: &'static [(&'static str, &'static str)],
    mend: &'static str,
}

/// The incident: the flag in a drop-in, and the package's empty /etc/default/kubelet beats it.
const PACKAGED_FILE: Mistake = Mistake {
    name: "lost-packaged",
    files: &[
        (DEFAULTS, "KUBELET_EXTRA_ARGS=\n"),
        (
            "/etc/systemd/system/kubelet.service.d/20-hcloud.conf",
            "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n",
        ),
    ],
    named: &[
        ("SD001", "/etc/default/kubelet:1"),
        (
            "CL001",
            "/etc/systemd/system/kubelet.service.d/20-hcloud.conf:2",
        ),
    ],
    mend: "echo 'KUBELET_EXTRA_ARGS=--cloud-provider=external' >/etc/default/kubelet",
};

/// Written where Debian's kubelet reads it, on a machine whose drop-in reads RHEL's file.
const OTHER_FILE: Mistake = Mistake {
    name: "lost-other-file",
    files: &[
        (
            DEFAULTS,
            "# ours\nKUBELET_EXTRA_ARGS=--cloud-provider=external\n",
        ),
        (
            "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
            "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf\"\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/sysconfig/kubelet\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
        ),
    ],
    named: &[
        ("SD003", "/etc/default/kubelet:2"),
        ("CL001", "/etc/default/kubelet:2"),
    ],
    mend: "mkdir -p /etc/sysconfig; cp /etc/default/kubelet /etc/sysconfig/kubelet",
};

/// Written where it is read, and a later drop-in takes the file away again.
const RESET_LATER: Mistake = Mistake {
    name: "lost-reset",
    files: &[
        (DEFAULTS, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n"),
        (
            "/etc/systemd/system/kubelet.service.d/90-quiet.conf",
            "[Service]\nEnvironmentFile=\nEnvironmentFile=/var/lib/kubelet/kubeadm-flags.env\nEnvironment=KUBELET_EXTRA_ARGS=--v=1\n",
        ),
    ],
    named: &[
        ("SD003", "/etc/default/kubelet:1"),
        ("CL001", "/etc/default/kubelet:1"),
    ],
    mend: "rm /etc/systemd/system/kubelet.service.d/90-quiet.conf; systemctl daemon-reload",
};

/// Named before the start and after it; the Node is born without the taint; mended, it is born anew with it.
fn lost(mistake: &Mistake) -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::bare(&plane, mistake.name, |builder| {
        let flags = format!(
            "KUBELET_KUBEADM_ARGS=\"--hostname-override={} --node-ip={}\"\n",
            mistake.name,
            enter::ADDRESS
        );
        let builder = builder
            .without_kubelet()
            .config(
                "60-intent.toml",
                "[intent]\ncloud_provider = \"external\"\n",
            )
            .file("/var/lib/kubelet/kubeadm-flags.env", &flags, 0o644);
        mistake.files.iter().fold(builder, |builder, (path, text)| {
            builder.file(path, text, 0o644)
        })
    })?;
    scene.play(|scene| {
        let node = &scene.node;
        let before = report(node, "--phase before")?;
        ensure_named(&before, mistake, "before the start")?;

        node.sh("systemctl start kubelet")?;
        node.wait_ready(Duration::from_mins(1))?;
        ensure!(
            !has_taint(&plane, mistake.name)?,
            "the flag was not lost after all"
        );
        ensure_resolved_as_it_runs(node, &report(node, "")?)?;
        ensure_named(&report(node, "")?, mistake, "after the start")?;

        node.start_agent()?;
        let (_, at) = mistake.named.last().context("something is named")?;
        let told = condition(&plane, mistake.name, "False")?;
        let message = told["message"].as_str().unwrap_or_default();
        ensure!(message.contains(at), "{at} is not in {told:#}");

        mend(scene, mistake)
    })
}

fn mend(scene: &Scene, mistake: &Mistake) -> Result<()> {
    let (node, plane) = (&scene.node, &scene.plane);
    node.sh(mistake.mend)?;
    // The helper watches the files: what is mended on disk and does not run yet is said, without anybody asking.
    let told = wait_until("the drift to be told", SOON, || {
        let condition = plane.condition(mistake.name, "KubeletConfigValid")?;
        Ok(condition.filter(|condition| condition["reason"] == "ArgvDrift"))
    })?;
    let message = told["message"].as_str().unwrap_or_default();
    ensure!(message.contains(WANTED), "{told:#}");
    node.sh("systemctl stop kubelet")?;
    plane.delete_node(mistake.name)?;
    let from = Instant::now();
    node.sh("systemctl start kubelet")?;
    wait_until("the Node to be born with the taint", SOON, || {
        Ok(has_taint(plane, mistake.name)?.then_some(()))
    })?;
    let told = condition(plane, mistake.name, "True")?;
    ensure!(told["reason"] == "KubeletConfigIsValid", "{told:#}");
    ensure!(from.elapsed() < SOON * 2, "it took {:?}", from.elapsed());
    ensure_resolved_as_it_runs(node, &report(node, "")?)
}

/// An edited drop-in is on disk only, until systemd has read it, and then until the kubelet was started anew.
fn what_waits_for_a_reload_is_said() -> Result<()> {
    let scene = Scene::healthy("check-reload")?;
    scene.play(|scene| {
        let node = &scene.node;
        node.sh(&format!(
            "mkdir -p {DROP_INS}; printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS --v=1\\n' >{DROP_INS}/99-v.conf"
        ))?;
        let rules = rules(&report(node, "")?);
        ensure!(rules.contains(&"SD020".to_owned()), "not loaded, and not said: {rules:?}");
        node.sh("systemctl daemon-reload")?;
        let rules = self::rules(&report(node, "")?);
        ensure!(!rules.contains(&"SD020".to_owned()), "loaded: {rules:?}");
        ensure!(rules.contains(&"SD021".to_owned()), "not running, and not said: {rules:?}");
        node.sh("systemctl restart kubelet")?;
        let report = report(node, "")?;
        let rules = self::rules(&report);
        ensure!(!rules.contains(&"SD021".to_owned()), "running: {rules:?}");
        ensure_resolved_as_it_runs(node, &report)
    })
}

fn ensure_named(report: &Value, mistake: &Mistake, when: &str) -> Result<()> {
    for (rule, at) in mistake.named {
        let named = findings(report).any(|f| f["rule"] == *rule && f["at"] == *at);
        ensure!(
            named,
            "{when}: {rule} at {at} is not in {:#}",
            report["findings"]
        );
    }
    Ok(())
}

pub(crate) fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().into_iter().flatten()
}

fn errors(report: &Value) -> Vec<&Value> {
    findings(report)
        .filter(|finding| finding["severity"] == "error" || finding["severity"] == "fatal")
        .collect()
}

fn rules(report: &Value) -> Vec<String> {
    findings(report)
        .filter_map(|finding| finding["rule"].as_str())
        .map(str::to_owned)
        .collect()
}

fn condition(plane: &Arc<ControlPlane>, node: &str, status: &str) -> Result<Value> {
    wait_until(&format!("KubeletConfigValid={status}"), SOON, || {
        let condition = plane.condition(node, "KubeletConfigValid")?;
        Ok(condition.filter(|condition| condition["status"] == status))
    })
}

fn has_taint(plane: &ControlPlane, node: &str) -> Result<bool> {
    let Some(object) = plane.node(node)? else {
        return Ok(false);
    };
    let taints = object["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    Ok(taints.iter().any(|taint| taint["key"] == UNINITIALIZED))
}
