//! D-Bus signals in systemd's name that systemd has not sent. The bus delivers a signal to whom it is addressed to,
//! any sender.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::{ObservedNode, Scene};
use crate::support::{WAIT, kinds, wait_until};

const MANAGER: &str = "/org/freedesktop/systemd1 org.freedesktop.systemd1.Manager";
const UNIT: &str = "/org/freedesktop/systemd1/unit/kubelet_2eservice org.freedesktop.DBus.Properties PropertiesChanged";

/// The line that the script prints when it has sent one of each.
const SENT: &str = "one of each was sent";

/// One of each kind that the agent could listen to, in the words of `busctl emit`.
fn forged_signals() -> Vec<String> {
    let changed = |interface: &str, property: &str| {
        format!("{UNIT} 'sa{{sv}}as' org.freedesktop.systemd1.{interface} 1 {property} 0")
    };
    vec![
        format!("{MANAGER} JobNew uos 4242 /org/freedesktop/systemd1/job/4242 kubelet.service"),
        format!("{MANAGER} JobRemoved uoss 4242 /org/freedesktop/systemd1/job/4242 kubelet.service done"),
        format!("{MANAGER} Reloading b true"),
        changed("Unit", "ActiveState s failed"),
        changed("Unit", "FreezerState s frozen"),
        changed("Service", "MainPID u 1"),
        changed("Service", "Result s oom-kill"),
        "/org/freedesktop/DBus org.freedesktop.DBus NameOwnerChanged sss org.freedesktop.systemd1 :1.0 :1.9999"
            .to_owned(),
    ]
}

/// A script that sends each of the signals to each of the agent's connections.
fn script(node: &ObservedNode) -> Result<String> {
    let pid = node.main_pid("nodevigil")?;
    let names = node.sh(&format!("busctl --system list --no-legend | awk '$2 == {pid} && /^:/ {{ print $1 }}'"))?;
    ensure!(!names.trim().is_empty(), "the agent (pid {pid}) is not on the bus");
    let mut lines = Vec::new();
    for name in names.split_whitespace() {
        lines.extend(
            forged_signals().iter().map(|signal| format!("busctl --system emit --destination={name} {signal}")),
        );
    }
    Ok(lines.join("\n"))
}

/// Runs it as the user nobody in the background, `times` times, as the unit `forger`.
fn forge(node: &ObservedNode, times: u32) -> Result<()> {
    let script = script(node)?;
    node.sh(&format!(
        "cat >/run/forge.sh <<'EOF'\nset -e\nfor time in $(seq {times}); do\n{script}\necho {SENT}\ndone\nEOF
         systemd-run --quiet --unit=forger --uid=nobody --property=RemainAfterExit=yes sh /run/forge.sh"
    ))?;
    Ok(())
}

/// The same once; returns when all have been sent.
fn forge_once(node: &ObservedNode) -> Result<()> {
    forge(node, 1)?;
    let state = || node.property("forger", "SubState");
    let state = wait_until("the forger's end", WAIT, || Ok(Some(state()?).filter(|state| state != "running")))?;
    ensure!(state == "exited", "the signals were not sent: {state}\n{}", node.journal("forger")?);
    Ok(())
}

pub fn forged_signals_change_nothing(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let before = node.kubelet().shown()?;
    forge_once(&node)?;
    node.kubelet().ensure_unchanged(&before)?;
    // With a stop job forged a moment before, a crash is a crash all the same.
    node.sh("systemctl stop forger")?;
    node.disable_restart()?;
    forge_once(&node)?;
    let from = Instant::now();
    node.kill_kubelet()?;
    let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    ensure!(crashed.message.contains("SIGKILL"), "{crashed:?}");
    node.kubelet().ensure_unchanged(&crashed)?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(before.at, &["True", "False"])
}

pub fn a_crash_among_forged_signals_is_seen(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let from = Instant::now();
    forge(&node, 10_000)?;
    let enough = 300 / kinds::current().patience().pow(2); // a process each, which an emulated processor starts slowly
    wait_until(&format!("{enough} forged signals"), WAIT, || {
        let passes = node.journal("forger")?.matches(SENT).count();
        Ok((passes * forged_signals().len() > enough as usize).then_some(()))
    })?;
    node.kubelet().ensure_only(from, &["True"])?;
    let crashed = node.kill_for_good()?;
    ensure!(crashed.message.contains("SIGKILL"), "{crashed:?}");
    node.start_kubelet()?;
    let stopped_at = Instant::now();
    node.sh("systemctl stop kubelet")?;
    node.kubelet().wait_for(stopped_at, "Unknown", "KubeletStoppedByOperator")?;
    let state = node.property("forger", "SubState")?;
    ensure!(state == "running", "the signals had ended before: {state}\n{}", node.journal("forger")?);
    node.kubelet().ensure_only(from, &["True", "False", "Unknown"])
}
