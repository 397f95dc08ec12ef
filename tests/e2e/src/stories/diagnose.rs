//! `nodevigil diagnose` on a node where something is broken: it names it, and ends in time.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::scene::{ObservedNode, Scene};

/// Runs it without the agent. `timeout` ends with 124 if it takes longer than it may.
fn diagnose(node: &ObservedNode) -> Result<Value> {
    let (code, text) = node.run("timeout 10 nodevigil diagnose -o json")?;
    ensure!(code != 124, "it did not end within ten seconds");
    serde_json::from_str(&text).with_context(|| format!("`nodevigil diagnose` ended with {code}: {text}"))
}

/// Status and reason of a condition.
fn condition(findings: &Value, kind: &str) -> (String, String) {
    let all = findings["conditions"].as_array().into_iter().flatten();
    let found = all.filter(|condition| condition["type"] == kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    found.map(|condition| (text(&condition["status"]), text(&condition["reason"]))).next().unwrap_or_default()
}

fn works(findings: &Value, name: &str) -> bool {
    let mut all = findings["access"].as_array().into_iter().flatten();
    all.any(|access| access["name"] == name && access["works"] == true)
}

pub fn a_dead_kubelet_is_named(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    let healthy = diagnose(&node)?;
    ensure!(condition(&healthy, "KubeletHealthy").0 == "True", "{healthy:#}");
    for name in ["settings", "kernel log", "systemd", "API server"] {
        ensure!(works(&healthy, name), "{name}: {healthy:#}");
    }
    node.disable_restart()?;
    node.kill_kubelet()?;
    let dead = diagnose(&node)?;
    ensure!(condition(&dead, "KubeletHealthy") == ("False".into(), "KubeletCrashed".into()), "{dead:#}");
    node.sh("mkdir -p /etc/nodevigil/config.d; printf '[reasons.KubeletCrashed]\\nas = \"warning\"\\n' >/etc/nodevigil/config.d/60-reasons.toml")?;
    let downgraded = diagnose(&node)?;
    ensure!(condition(&downgraded, "KubeletHealthy") == ("True".into(), "KubeletCrashed".into()), "{downgraded:#}");
    Ok(())
}

pub fn a_hung_container_runtime_is_named(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh("systemctl kill --kill-who=main --signal=STOP containerd")?;
    let hung = diagnose(&node)?;
    let (status, reason) = condition(&hung, "ContainerRuntimeHealthy");
    ensure!(status != "True" && !reason.is_empty(), "{hung:#}");
    ensure!(works(&hung, "API server"), "{hung:#}");
    Ok(())
}

pub fn a_bus_that_does_not_answer_is_named(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh("systemctl kill --kill-who=main --signal=STOP dbus")?;
    let findings = diagnose(&node)?;
    ensure!(!works(&findings, "systemd"), "{findings:#}");
    ensure!(condition(&findings, "KubeletHealthy").0 != "False", "{findings:#}");
    Ok(())
}
