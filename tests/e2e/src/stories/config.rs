//! `nodevigil check` on a node, the condition `KubeletConfigValid`, and the check before the kubelet starts.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::scene::Scene;
use crate::support::node::{Node, NodeBuilder};
use crate::support::{WAIT, kinds, wait_until};

/// The flag is in a drop-in, as in a cloud's manual, and the file of the package, which systemd reads later, replaces it.
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-hcloud.conf";
const WRONG: &str = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n";
const PACKAGED: &str = "/etc/default/kubelet";
/// What was written to the node's console.
const CONSOLE: &str = "/run/console.log";
/// A sampled problem is not shown before the Node is two minutes old, and an error counts a minute after it was first found.
const SHOWN: Duration = Duration::from_mins(5);

pub fn with_lost_flag(node: NodeBuilder) -> NodeBuilder {
    let intent = "[intent]\ncloud_provider = \"external\"\n";
    node.file(DROP_IN, WRONG).file("/etc/nodevigil/config.d/60-intent.toml", intent)
}

fn report(node: &Node) -> Result<Value> {
    let (code, text) = node.run("nodevigil check -o json")?;
    serde_json::from_str(&text).with_context(|| format!("`nodevigil check -o json` ended with {code}: {text}"))
}

fn ensure_resolved_as_it_runs(node: &Node) -> Result<()> {
    let report = report(node)?;
    let pid = node.main_pid("kubelet")?;
    let command_line = node.sh(&format!("tr '\\0' '\\n' </proc/{pid}/cmdline"))?;
    let resolved = report["argv"].as_array().context("no argv")?.iter().filter_map(Value::as_str);
    ensure!(resolved.eq(command_line.lines()), "{report:#}\nruns {command_line}");
    ensure!(report["running"]["pid"] == pid && report["notes"] == serde_json::json!([]), "{report:#}");
    Ok(())
}

pub fn a_flag_in_the_wrong_file_is_found(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(with_lost_flag)?;
    ensure_lost_flag_is_found(&node)
}

pub fn ensure_lost_flag_is_found(node: &Node) -> Result<()> {
    let (code, text) = node.run("nodevigil check --severity error")?;
    ensure!(code == 1, "{code}: {text}");
    let drop_in = kinds::current().translate(&format!("{DROP_IN}:2"));
    for part in ["error[SD001 env-overridden-by-file]", &format!("{PACKAGED}:1"), &drop_in] {
        ensure!(text.contains(part), "no {part} in {text}");
    }
    ensure_resolved_as_it_runs(node)
}

pub fn an_error_is_shown_until_the_file_is_corrected(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(with_lost_flag)?;
    let config = node.condition("KubeletConfigValid");
    let from = Instant::now();
    node.start_agent()?;
    let shown = config.wait_longer_for(from, SHOWN, "False", "KubeletConfigError")?;
    for part in ["SD001", "env-overridden-by-file", PACKAGED, "--cloud-provider=external"] {
        ensure!(shown.message.contains(part), "no {part} in {shown:?}");
    }
    let corrected = Instant::now();
    node.sh("nodevigil check --fix | patch -p1 -d / && systemctl restart kubelet")?;
    config.wait_for(corrected, "True", "KubeletConfigIsValid")?;
    ensure_resolved_as_it_runs(&node)?;
    node.sh("grep -qze --cloud-provider=external /proc/$(systemctl show --property=MainPID --value kubelet)/cmdline")?;
    // The kubelet is not restarted: a changed file is enough.
    let changed = Instant::now();
    node.sh(&format!("sed -i 's/ --cloud-provider=external//' {PACKAGED}"))?;
    config.wait_longer_for(changed, SHOWN, "False", "KubeletConfigError").map(drop)
}

pub fn a_file_that_was_changed_after_the_start_is_compared_with_the_running_kubelet(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    let found = || -> Result<Option<String>> {
        let report = report(&node)?;
        let unchecked = report["not_checked"].as_array().context("no not_checked")?;
        ensure!(unchecked.iter().all(|skipped| skipped["rule"] != "CF010"), "{report:#}");
        let findings = report["findings"].as_array().context("no findings")?;
        let found = findings.iter().find(|finding| finding["rule"] == "CF010");
        Ok(found.and_then(|finding| finding["message"].as_str()).map(str::to_owned))
    };
    let before = found()?;
    ensure!(before.is_none(), "nothing has changed: {before:?}");
    node.sh("sed -i 's/\"kind\":/\"maxPods\":42,&/' /var/lib/kubelet/config.yaml")?;
    let changed = found()?;
    ensure!(changed.as_ref().is_some_and(|message| message.contains("maxPods is 110 and not 42")), "{changed:?}");
    node.sh("systemctl restart kubelet")?;
    wait_until("the new configuration to run", WAIT, || Ok(found().is_ok_and(|found| found.is_none()).then_some(())))
}

pub fn the_check_prints_before_the_kubelet_starts(scene: &Scene) -> Result<()> {
    let preflight = "nodevigil-preflight";
    let node =
        scene.ready_with(|node| with_lost_flag(node).kubelet_unit("[Unit]\nWants=nodevigil-preflight.service\n"))?;
    let ended = node.property(preflight, "ExecMainExitTimestampMonotonic")?.parse::<u64>()?;
    let started = node.property("kubelet", "ExecMainStartTimestampMonotonic")?.parse::<u64>()?;
    ensure!(0 < ended && ended < started, "the check ended at {ended} µs, the kubelet started at {started} µs");
    ensure!(node.property(preflight, "Result")? == "success", "{}", node.journal(preflight)?);
    let printed = node.journal(preflight)?;
    ensure!(printed.contains("SD001") && printed.contains(PACKAGED), "{printed}");

    // The same is not printed again, and something else is, on the console too: a terminal, which is recorded.
    let record = "mount --bind $(tty) /dev/console && exec sleep infinity";
    node.sh(&format!("systemd-run --quiet script --quiet --flush --command '{record}' {CONSOLE}"))?;
    wait_until("the console", WAIT, || Ok((node.run("mountpoint -q /dev/console")?.0 == 0).then_some(())))?;
    node.sh(&format!("systemctl restart {preflight}; journalctl --sync"))?;
    let again = node.sh(&format!("cat {CONSOLE}"))?;
    ensure!(!again.contains("SD001"), "{again}");
    node.sh(&format!("rm {DROP_IN}; systemctl daemon-reload; systemctl restart {preflight}"))?;
    let printed = || {
        Ok(node.sh(&format!("cat {CONSOLE}"))?.contains(" in /usr/lib/systemd/system/kubelet.service").then_some(()))
    };
    wait_until("the check on the console", WAIT, printed).with_context(|| node.journal(preflight).unwrap_or_default())
}
