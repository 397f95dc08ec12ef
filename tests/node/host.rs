//! What is sick on the host beside the kubelet: no bus, a frozen or absent helper, a frozen journald, a proxy.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use nodevigil::host::journal::Kind;

use crate::scene::{AGENT, HELPER, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::trial;

const JOURNALD: &str = "systemd-journald.service";
/// Something in the way of a crash's way to the Node would cost a timeout, and none of ours is shorter.
const AT_ONCE: Duration = Duration::from_secs(1);

const PROXY: &str = "\
[Service]
Environment=http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 all_proxy=http://127.0.0.1:9
Environment=HTTP_PROXY=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9
Environment=no_proxy= NO_PROXY=
";
/// All that every library has to say: hundreds of lines a second.
const TALKATIVE: &str =
    "[Service]\nExecStart=\nExecStart=/usr/bin/nodevigil run --log-level trace,nodevigil=trace\n";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("host::proxy", a_proxy_in_the_environment_is_not_asked),
        trial("host::journald_frozen", a_frozen_journald_delays_nothing),
        trial("host::journald_full", a_full_journal_socket_delays_nothing),
        trial("host::helper_frozen", a_frozen_helper_delays_nothing),
        trial("host::helper_absent", without_a_helper_a_guess_is_no_fault),
        trial("host::no_bus", without_a_bus_a_death_has_no_cause),
    ]
}

fn a_proxy_in_the_environment_is_not_asked() -> Result<()> {
    let scene = Scene::healthy_with("proxy", |node| node.file(&drop_in("proxy"), PROXY, 0o644))?;
    scene.play(|scene| {
        let environment = scene.property(AGENT, "Environment")?;
        ensure!(environment.contains("https_proxy="), "{environment}");
        let told = scene.now()?;
        scene.ensure_still(&told)?; // further probes
        scene.crash_and_recover()
    })
}

fn a_frozen_journald_delays_nothing() -> Result<()> {
    Scene::healthy("journald-frozen")?.play(|scene| {
        scene.node.signal_unit(JOURNALD, Signal::SIGSTOP)?;
        told_at_once(scene)?;
        scene.node.signal_unit(JOURNALD, Signal::SIGCONT)?;
        let lines = scene.lines(Kind::ConditionChanged)?;
        let last = lines.last().context("no line of a change")?;
        ensure!(last["REASON"] == "KubeletCrashed", "{last:#}");
        Ok(())
    })
}

fn a_full_journal_socket_delays_nothing() -> Result<()> {
    let scene = Scene::healthy_with("journald-full", |node| {
        node.file(&drop_in("talkative"), TALKATIVE, 0o644)
    })?;
    scene.play(|scene| {
        let pid = scene.node.main_pid(AGENT)?;
        scene.node.signal_unit(JOURNALD, Signal::SIGSTOP)?;
        // It talks as long as it lives; here until the socket and its own queue are full.
        for _ in 0..3 {
            scene.crash_and_recover()?;
        }
        scene.status_file("lines to be dropped", |file| {
            file["log_lines_dropped"].as_u64().is_some_and(|n| n > 0)
        })?;
        told_at_once(scene)?;
        scene.node.signal_unit(JOURNALD, Signal::SIGCONT)?;
        scene.revive()?;
        let said = scene.lines(Kind::LogDropped)?;
        ensure!(!said.is_empty(), "that lines were dropped is not said");
        ensure!(scene.node.main_pid(AGENT)? == pid, "another agent");
        Ok(())
    })
}

fn a_frozen_helper_delays_nothing() -> Result<()> {
    Scene::healthy("helper-frozen")?.play(|scene| {
        let pid = scene.node.main_pid(AGENT)?;
        scene.node.signal_unit(HELPER, Signal::SIGSTOP)?;
        let death = scene.kill_kubelet()?;
        let told = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
        ensure!(
            told.at - death.gone < AT_ONCE,
            "told {:?} later",
            told.at - death.gone
        );
        scene.status_file("the helper's silence", |file| {
            file["helper"]["state"] == "unavailable"
        })?;
        // Where the next kubelet's healthz is cannot be known: that neither clears the problem nor makes one.
        let again = scene.kill_kubelet()?;
        scene.wait_until_told(again.killed, |told| {
            told.message.contains(&format!("pid {} ", again.pid))
        })?;
        scene.ensure_only(told.at, &["False"])?;
        scene.node.signal_unit(HELPER, Signal::SIGCONT)?;
        scene.wait_for(again.gone, "True", "KubeletIsHealthy")?;
        let lines = scene.lines(Kind::HelperUnavailable)?;
        ensure!(lines.len() == 1, "said {} times: {lines:#?}", lines.len());
        ensure!(
            scene.lines(Kind::HelperBack)?.len() == 1,
            "its return is not said once"
        );
        ensure!(scene.node.main_pid(AGENT)? == pid, "another agent");
        Ok(())
    })
}

fn without_a_helper_a_guess_is_no_fault() -> Result<()> {
    let scene = Scene::booted(&ControlPlane::shared()?, "helper-absent", |node| node)?;
    scene.play(|scene| {
        let from = Instant::now();
        scene.node.sh(
            "systemctl mask nodevigil-helper.socket nodevigil-helper.service
             systemctl start nodevigil",
        )?;
        let told = scene.wait_for(from, "Unknown", "KubeletStarting")?;
        scene.ensure_still(&told)?; // four probes of an address where nobody listens
        scene.ensure_only(from, &["Unknown"])?;
        let lines = scene.lines(Kind::HelperUnavailable)?;
        ensure!(lines.len() == 1, "said {} times: {lines:#?}", lines.len());
        told_at_once(scene)?;
        let lines = scene.lines(Kind::HelperUnavailable)?;
        ensure!(lines.len() == 1, "said {} times: {lines:#?}", lines.len());
        Ok(())
    })
}

fn without_a_bus_a_death_has_no_cause() -> Result<()> {
    Scene::healthy_with("no-bus", NodeBuilder::without_bus)?.play(|scene| {
        scene.keep_dead()?;
        let death = scene.kill_kubelet()?;
        let told = scene.wait_for(death.killed, "False", "KubeletGone")?;
        ensure!(
            told.at - death.gone < AT_ONCE,
            "told {:?} later",
            told.at - death.gone
        );
        ensure!(
            told.message.contains(&format!("pid {} ", death.pid)),
            "{told:?}"
        );
        scene.ensure_still(&told)?;
        let file = scene.node.status_json()?;
        ensure!(file["bus"]["state"] == "unavailable", "{file:#}");
        let lines = scene.lines(Kind::BusLost)?;
        ensure!(lines.len() == 1, "said {} times: {lines:#?}", lines.len());
        scene.revive()?;
        Ok(())
    })
}

/// Kills the kubelet for good, which must be told without any delay that a timeout would make.
fn told_at_once(scene: &Scene) -> Result<()> {
    scene.keep_dead()?;
    let death = scene.kill_kubelet()?;
    let told = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
    let late = told.at - death.gone;
    ensure!(late < AT_ONCE, "told {late:?} after the kubelet was gone");
    Ok(())
}

fn drop_in(name: &str) -> String {
    format!("/etc/systemd/system/nodevigil.service.d/60-{name}.conf")
}
