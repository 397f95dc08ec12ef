//! Restarts, upgrades and the end of the agent, what they leave on the Node, and the sandbox of its unit.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::scene::{Condition, ObservedNode, Scene, wait_a_second};
use crate::support::{WAIT, namespaces, wait_until};

/// After each of them systemd starts the agent again.
const RESTARTS: [&str; 2] = ["systemctl restart nodevigil", "systemctl kill --signal=KILL nodevigil"];

/// Restarts the agent in each way; the Node must show the same afterwards.
fn ensure_restarts_change_nothing(node: &ObservedNode, before: &Condition) -> Result<()> {
    for command in RESTARTS {
        node.restart_agent(command)?;
        node.kubelet().ensure_unchanged(before).with_context(|| format!("after `{command}`"))?;
        let shown = node.kubelet().shown_since(before.at);
        let other = shown.iter().find(|shown| shown.reason != before.reason);
        ensure!(other.is_none(), "after `{command}`: {other:?}");
    }
    Ok(())
}

pub fn a_restart_keeps_a_crash(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let crashed = node.kill_for_good()?;
    ensure_restarts_change_nothing(&node, &crashed)?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(crashed.at, &["False", "True"])
}

/// systemd leaves the same traces of a stop and of a clean exit; the Node shows which one it was.
pub fn a_restart_keeps_a_stop(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let from = Instant::now();
    node.sh("systemctl stop kubelet")?;
    let stopped = node.kubelet().wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
    ensure_restarts_change_nothing(&node, &stopped)?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(from, &["True", "Unknown"])
}

pub fn a_restart_keeps_health(scene: &Scene) -> Result<()> {
    let (from, node) = (Instant::now(), scene.healthy()?);
    let bootstrapped = || {
        let events = node.events(scene.plane())?;
        anyhow::Ok(events.iter().filter(|event| event.1 == "NodeIsBootstrapped").count())
    };
    node.condition("NodeBootstrapped").wait_for(from, "True", "NodeIsBootstrapped")?;
    wait_until("the Event of it", WAIT, || Ok((bootstrapped()? == 1).then_some(())))?;
    let healthy = node.kubelet().shown()?;
    ensure_restarts_change_nothing(&node, &healthy)?;
    ensure!(bootstrapped()? == 1, "a restart of the agent has created the Event again");
    node.crash_and_recover().map(drop)
}

/// As packages and images do it: the agent starts in the middle of the kubelet's restart.
pub fn a_restart_with_the_kubelet_flips_nothing(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let before = node.kubelet().shown()?;
    for _ in 0..3 {
        node.restart_agent("systemctl restart nodevigil kubelet")?;
        node.wait_until_watched()?;
        node.kubelet().ensure_no_flip(&before)?;
    }
    Ok(())
}

/// A pod of the Helm chart, here with the root directory that it has anyway.
pub fn a_pod_waits_while_the_service_runs(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let logs = |text: &str| wait_until(text, WAIT, || Ok(node.journal("pod")?.contains(text).then_some(())));
    node.sh("systemd-run --quiet --unit=pod --setenv=NODEVIGIL_HOST_ROOT=/ nodevigil run")?;
    logs("nodevigil.service runs on this host")?;
    node.sh("systemctl stop nodevigil")?;
    logs("publishing to Node")?;
    node.start_agent()?;
    logs("nodevigil.service has started on this host")
}

/// A pod here as well; its `DaemonSet` is an object that no controller acts by.
pub fn a_pod_withdraws_if_its_daemonset_wants_no_other(scene: &Scene) -> Result<()> {
    let (node, plane) = (scene.healthy()?, scene.plane());
    let template =
        json!({"metadata": {"labels": {"app": "nodevigil"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "nodevigil"}}, "template": template});
    let metadata = json!({"name": "nodevigil", "namespace": "kube-system"});
    let daemonset = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec});
    let file = namespaces::work().join("daemonset.json");
    fs::write(&file, daemonset.to_string())?;
    plane.kubectl(&["apply", "-f", &file.display().to_string()])?;
    let user = format!("--user=nodevigil:{}", node.name());
    plane.kubectl(&["-n", "kube-system", "create", "rolebinding", "story", "--role=nodevigil-daemonset", &user])?;
    let select = |selector: &Value| {
        let patch = json!({"spec": {"template": {"spec": {"nodeSelector": selector}}}}).to_string();
        plane.kubectl(&["-n", "kube-system", "patch", "daemonset", "nodevigil", "--type=merge", "-p", &patch])
    };
    let start = "systemd-run --quiet --collect --unit=pod --setenv=NODEVIGIL_HOST_ROOT=/ --setenv=NODEVIGIL_DAEMONSET=nodevigil nodevigil run";
    let stop = || {
        let from = Instant::now();
        node.sh("systemctl stop pod").map(|_| from)
    };
    node.sh("systemctl stop nodevigil")?;
    node.sh(start)?;
    node.kill_for_good()?;

    select(&json!({"pool": "another"}))?;
    let withdrawn = node.kubelet().wait_for(stop()?, "Unknown", "NodevigilStopped")?;
    ensure!(withdrawn.message.contains("KubeletCrashed"), "{withdrawn:?}");

    select(&Value::Null)?;
    let from = Instant::now();
    node.sh(start)?;
    let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    stop()?;
    node.kubelet().ensure_unchanged(&crashed).context("it is replaced")?;

    plane.kubectl(&["-n", "kube-system", "delete", "daemonset/nodevigil", "rolebinding/story"])?;
    node.sh(start)?;
    node.start_kubelet()?;
    let crashed = node.kill_for_good()?;
    stop()?;
    node.kubelet().ensure_unchanged(&crashed).context("it may not read its DaemonSet")?;
    plane.kubectl(&["-n", "kube-system", "create", "rolebinding", "story", "--role=nodevigil-daemonset", &user])?;
    node.sh(start)?;
    node.start_kubelet()?;
    node.kill_for_good()?;
    node.kubelet().wait_for(stop()?, "Unknown", "NodevigilStopped").context("the DaemonSet is deleted")?;
    plane.kubectl(&["-n", "kube-system", "delete", "rolebinding/story"])?;
    node.start_agent()?;
    node.start_kubelet().map(drop)
}

/// systemd remembers how it ended.
pub fn a_crash_while_the_agent_is_stopped_is_reported(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    node.sh("systemctl stop nodevigil")?;
    node.disable_restart()?;
    let from = Instant::now();
    node.kill_kubelet()?;
    node.start_agent()?;
    let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    ensure!(crashed.message.contains("SIGKILL"), "{crashed:?}");
    node.kubelet().ensure_only(from, &["True", "False"])
}

pub fn a_stop_of_the_agent_withdraws_a_false(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let crashed = node.kill_for_good()?;
    wait_a_second();
    let from = Instant::now();
    node.sh("systemctl stop nodevigil")?;
    let stopped = node.kubelet().wait_for(from, "Unknown", "NodevigilStopped")?;
    ensure!(stopped.message.contains("KubeletCrashed"), "{stopped:?}");
    ensure!(stopped.since > crashed.since, "{crashed:?}, then {stopped:?}");
    node.kubelet().ensure_unchanged(&stopped)?;
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(from, &["Unknown", "False", "True"])
}

pub fn a_stop_of_the_agent_keeps_a_true(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let before = node.kubelet().shown()?;
    node.sh("systemctl stop nodevigil")?;
    node.kubelet().ensure_unchanged(&before)?;
    node.start_agent()?;
    node.wait_until_watched()?;
    node.kubelet().ensure_unchanged(&before)
}

/// As a package manager does it: the new program replaces the file of the old one, which is still running.
pub fn an_upgrade_changes_nothing(scene: &Scene) -> Result<()> {
    let upgrade = "cp /usr/bin/nodevigil /usr/bin/nodevigil.new && mv /usr/bin/nodevigil.new /usr/bin/nodevigil
        systemctl restart nodevigil";
    let node = scene.healthy()?;
    let healthy = node.kubelet().shown()?;
    node.restart_agent(upgrade)?;
    node.kubelet().ensure_unchanged(&healthy)?;
    let crashed = node.kill_for_good()?;
    node.restart_agent(upgrade)?;
    node.kubelet().ensure_unchanged(&crashed)?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(crashed.at, &["False", "True"])
}

/// A unit that is slow to stop keeps agent and kubelet for some seconds of the shutdown, in which the kubelet is killed.
/// The node goes down but for the last step, which would be this machine's.
pub fn a_shutdown_is_no_fault(scene: &Scene) -> Result<()> {
    let slow = "[Unit]\nAfter=nodevigil.service kubelet.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
        ExecStart=true\nExecStop=sh -c 'sleep 3; systemctl kill --signal=KILL kubelet; sleep 3'\n";
    let last_step = "[Unit]\nSuccessAction=none\n[Service]\nExecStart=true\n";
    let node = scene.healthy_with(|node| {
        node.file("/etc/systemd/system/slow.service", slow)
            .file("/etc/systemd/system/systemd-poweroff.service.d/60-story.conf", last_step)
    })?;
    node.sh("systemctl start slow")?;
    let from = Instant::now();
    node.sh("systemctl poweroff --no-block")?;
    wait_until("the end of the agent", WAIT, || {
        let (code, _) = node.run("systemctl is-active nodevigil")?;
        Ok((code != 0).then_some(()))
    })?;
    node.kubelet().ensure_unchanged(&node.kubelet().shown()?)?;
    node.kubelet().ensure_only(from, &["True", "Unknown"])?;
    let stopped = node.kubelet().shown_since(from).into_iter().find(|shown| shown.reason == "NodevigilStopped");
    ensure!(stopped.is_none(), "{stopped:?}");
    let marker = node.sh("cat /var/lib/nodevigil/boot.json")?;
    ensure!(marker.contains("\"end\":{\"shutdown\":"), "the next boot does not know of the shutdown: {marker}");
    Ok(())
}

pub fn systemd_finds_no_fault_with_the_unit(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    // It also checks the units that ours names.
    let (_, problems) = node.run("systemd-analyze verify --man=no nodevigil.service")?;
    let ours: Vec<_> = problems.lines().filter(|line| line.contains("nodevigil")).collect();
    ensure!(ours.is_empty(), "{ours:#?}");
    let (code, table) = node.run("systemd-analyze security --no-pager --threshold=30 nodevigil.service")?;
    ensure!(code == 0, "{table}");
    Ok(())
}

/// The history of a condition, by its field in the journal.
pub fn a_transition_has_fields_in_the_journal(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let crashed = node.kill_for_good()?;
    node.sh("journalctl --sync")?;
    let lines = node.sh("journalctl -q -o json NODEVIGIL_REASON=KubeletCrashed")?;
    let lines: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let [line] = &lines[..] else { bail!("{} lines with this field: {lines:#?}", lines.len()) };
    let message = format!("KubeletHealthy is False (KubeletCrashed): {}", crashed.message);
    for (field, value) in [
        ("MESSAGE", message.as_str()),
        ("PRIORITY", "4"),
        ("NODEVIGIL_CONDITION", "KubeletHealthy"),
        ("NODEVIGIL_STATUS", "False"),
        ("NODEVIGIL_UNIT", node.unit("kubelet").as_str()),
        ("_SYSTEMD_UNIT", "nodevigil.service"),
    ] {
        ensure!(line[field] == value, "{field}: {line:#}");
    }
    let id = line["MESSAGE_ID"].as_str().context("MESSAGE_ID")?;
    let history = node.sh(&format!("journalctl -q -o cat MESSAGE_ID={id} NODEVIGIL_CONDITION=KubeletHealthy"))?;
    ensure!(history.lines().count() >= 2 && history.contains("KubeletIsHealthy"), "{history}");
    // The same line once, among the others.
    ensure!(node.journal("nodevigil")?.matches(&message).count() == 1, "{}", node.journal("nodevigil")?);
    node.start_kubelet().map(drop)
}
