//! Some of the failures again, on a whole node: under the real systemd, with its watchdog, journal and sandbox.

use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::scene::{AGENT, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::enter;
use crate::support::proxy::Proxy;
use crate::support::proxy::fault::Fault;
use crate::trial;

const LASTING: Duration = Duration::from_secs(30);
const TOLD_WITHIN: Duration = Duration::from_secs(30);
const LINES: usize = 6;

/// The tests of this topic.
pub(super) fn tests() -> Vec<Trial> {
    vec![
        trial("faults::hang_under_systemd", || {
            a_death_is_told_after("fault-unit-hang", Fault::Hang)
        }),
        trial("faults::503_under_systemd", || {
            a_death_is_told_after("fault-unit-503", Fault::Status(503))
        }),
    ]
}

fn a_death_is_told_after(name: &str, fault: Fault) -> Result<()> {
    let plane = ControlPlane::shared()?;
    let identity = plane.agent_kubeconfig(name)?;
    let proxy = Proxy::start(&plane, &identity, enter::ADDRESS)?;
    let kubeconfig = proxy.kubeconfig(&identity)?.to_string();
    let scene = Scene::healthy_with(name, |node| {
        node.file("/etc/nodevigil/other", &kubeconfig, 0o644)
            .config(
                "60-kubeconfig.toml",
                "[kubernetes]\nkubeconfig = \"/etc/nodevigil/other\"\n",
            )
    })?;
    scene.play(|scene| {
        scene.keep_dead()?;
        let pid = scene.node.main_pid(AGENT)?;
        let lines = scene.node.journal(AGENT, &[])?.len();
        let began = proxy.set(Some(fault));
        let death = scene.kill_kubelet()?;
        std::thread::sleep(LASTING.saturating_sub(began.elapsed())); // the failure is to last so long
        scene.ensure_only(death.killed, &["True"])?;
        let ended = proxy.set(None);
        let told = scene.wait_for(ended, "False", "KubeletCrashed")?;
        let late = told.at.saturating_duration_since(ended);
        ensure!(late <= TOLD_WITHIN, "told {late:?} after the end");
        scene.ensure_still(&told)?;
        ensure!(scene.node.main_pid(AGENT)? == pid, "another agent");
        let restarts = scene.property(AGENT, "NRestarts")?;
        ensure!(restarts == "0", "restarted {restarts} times");
        let said = scene.node.journal(AGENT, &[])?.split_off(lines);
        let said: Vec<_> = said
            .iter()
            .map(|line| line["MESSAGE"].to_string())
            .collect();
        ensure!(said.len() <= LINES, "{} lines: {said:#?}", said.len());
        Ok(())
    })
}
