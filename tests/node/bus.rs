//! The system bus as a way to lie: what others than systemd say there, to the agent alone and as fast as they can, on a real node.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::scene::{AGENT, SOON, Scene, Told};
use crate::support::bus_flood::{self, PROGRAM};
use crate::support::rows::row;
use crate::support::{process, say, wait_until};
use crate::trial;

const METRIC: &str = "nodevigil_dbus_signals_dropped_total";
/// How long the forged signals go on: as long as it takes a kubelet to be stopped, started, killed and well again, and more.
const FLOOD_SECS: u64 = 20;
/// What the kernel takes of the agent's memory while nobody speaks to it differs by as much from time to time.
const FLAT_KIB: u64 = 6 * 1024;

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("bus::nobody", || foreign_signals_change_nothing("nobody")),
        trial("bus::root", || foreign_signals_change_nothing("root")),
        trial("bus::large", large_messages_are_read_past),
        trial("bus::unread", a_full_queue_blinds_nobody),
    ]
}

fn scene(name: &str) -> Result<Scene> {
    let program = bus_flood::program()?;
    Scene::healthy_with(name, |node| node.program(program))
}

/// Has `user` speak to the agent, in a control group of its own.
fn flood(scene: &Scene, user: &str, what: &str, secs: u64) -> Result<()> {
    let agent = scene.node.main_pid(AGENT)?;
    scene.node.sh(&format!(
        "systemctl reset-failed flood 2>/dev/null; systemd-run -q --unit=flood --uid={user} --slice=user.slice \
         --setenv={}='{agent} {what} {secs}' /usr/bin/{PROGRAM}",
        bus_flood::ORDER
    ))?;
    Ok(())
}

/// What the flood said of itself: how many it has sent, within how many milliseconds.
fn sent(scene: &Scene) -> Result<(u64, u64)> {
    wait_until("the flood's end", Duration::from_mins(1), || {
        let state = scene.property("flood.service", "ActiveState")?;
        Ok((state == "inactive" || state == "failed").then_some(()))
    })?;
    let lines = scene
        .node
        .sh("journalctl --sync; journalctl -q -o cat -u flood")?;
    let line = lines.lines().find_map(|line| line.strip_prefix("sent "));
    let mut numbers = line.with_context(|| lines.clone())?.split(' ');
    let mut next = || -> Result<u64> { Ok(numbers.next().context("a number")?.parse()?) };
    Ok((next()?, next()?))
}

/// The agent's dropped messages of all causes.
fn dropped(scene: &Scene) -> Result<u64> {
    let text = scene
        .node
        .sh("curl -sS --fail --unix-socket /run/nodevigil/metrics.sock http://localhost/metrics")?;
    let of = |line: &str| {
        Some(
            line.strip_prefix(METRIC)?
                .rsplit_once(' ')?
                .1
                .parse::<u64>(),
        )
    };
    let counts: Vec<_> = text.lines().filter_map(of).collect();
    ensure!(!counts.is_empty(), "no {METRIC}: {text}");
    Ok(counts.into_iter().sum::<std::result::Result<u64, _>>()?)
}

fn resident_kib(pid: i32) -> Result<u64> {
    let status = procfs::process::Process::new(pid)?.status()?;
    status.vmrss.context("a process has memory")
}

fn ensure_steady(scene: &Scene, before: &Told, seconds: u64) -> Result<()> {
    std::thread::sleep(Duration::from_secs(seconds)); // that nothing happens shows in nothing but time
    scene.ensure_no_flip(before)
}

fn foreign_signals_change_nothing(user: &str) -> Result<()> {
    scene(&format!("bus-{user}"))?.play(|scene| {
        let before = scene.now()?;
        let pid = scene.node.unit_pid(AGENT)?;
        let (memory, cpu, from) = (resident_kib(pid)?, process::cpu(pid)?, Instant::now());
        flood(scene, user, "lies", FLOOD_SECS)?;
        ensure_steady(scene, &before, 4)?;

        let asked = Instant::now();
        scene.node.sh("systemctl stop kubelet")?;
        let stopped = scene.wait_for(asked, "Unknown", "KubeletStoppedByOperator")?;
        scene.revive()?;
        scene.ensure_only(asked, &["True", "Unknown"])?;
        let death = scene.kill_kubelet()?;
        let crashed = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
        ensure!(crashed.message.contains("SIGKILL (9)"), "{crashed:?}");
        let late = crashed.at - death.killed;
        ensure!(late < Duration::from_millis(1500), "told after {late:?}");
        let well = scene.wait_for(crashed.at, "True", "KubeletIsHealthy")?;
        let was_on = scene.property("flood.service", "ActiveState")?;
        ensure!(was_on == "active", "the flood was over before: {was_on}");

        let most = resident_kib(pid)?;
        let (sent, millis) = sent(scene)?;
        let took = process::cpu(pid)?.saturating_sub(cpu);
        let part = took.as_secs_f64() / from.elapsed().as_secs_f64();
        ensure_steady(scene, &well, 2)?;
        let after = resident_kib(pid)?;
        let dropped = dropped(scene)?;
        say(&format!(
            "{user}: {sent} sent within {millis} ms, {dropped} dropped; CPU {took:?} of {:?} ({:.1} %); \
             memory {memory} KiB, then {most}, then {after}; stop told after {:?}, death after {late:?}",
            from.elapsed(),
            part * 100.0,
            stopped.at - asked
        ));
        ensure!(sent * 1000 / millis.max(1) >= 5_000, "{sent} within {millis} ms");
        ensure!(dropped >= sent, "{dropped} of {sent} counted");
        ensure!(most.max(after) < memory + FLAT_KIB, "{memory}, {most}, {after} KiB");
        ensure!(part < 0.5, "{part:.2} of a CPU");
        ensure!(scene.node.unit_pid(AGENT)? == pid, "another agent");
        row(
            "death among forged signals",
            &format!("`kill -9` while {user} sends the agent 10 000 forged signals a second"),
            &crashed.reason,
            late,
        );
        Ok(())
    })
}

/// The agent may have 64 MiB, and a message of this bus may have 32.
fn large_messages_are_read_past() -> Result<()> {
    scene("bus-large")?.play(|scene| {
        let before = scene.now()?;
        let pid = scene.node.unit_pid(AGENT)?;
        let memory = resident_kib(pid)?;
        flood(scene, "nobody", "large", 5)?;
        let mut most = 0;
        for _ in 0..50 {
            most = most.max(resident_kib(pid).context("the agent is gone")?);
            std::thread::sleep(Duration::from_millis(100));
        }
        let (sent, millis) = sent(scene)?;
        say(&format!(
            "{sent} of 16 MiB within {millis} ms: memory {memory} KiB, then {most} at most"
        ));
        ensure!(sent > 5, "{sent}");
        ensure!(most < memory + FLAT_KIB, "{memory}, {most} KiB");
        ensure!(scene.node.unit_pid(AGENT)? == pid, "another agent");
        wait_until("one to be counted", SOON, || {
            Ok((dropped(scene)? > 0).then_some(()))
        })?;
        ensure_steady(scene, &before, 2)?;
        scene.crash_and_recover()
    })
}

/// Nothing is read for a while: the bus's queue for us is full, and systemd's own words are lost or the connection is.
fn a_full_queue_blinds_nobody() -> Result<()> {
    scene("bus-unread")?.play(|scene| {
        let before = scene.now()?;
        let pid = scene.node.unit_pid(AGENT)?;
        flood(scene, "nobody", "large", 6)?;
        process::signal(pid, Signal::SIGSTOP)?;
        std::thread::sleep(Duration::from_secs(4));
        process::signal(pid, Signal::SIGCONT)?;
        let (sent, millis) = sent(scene)?;
        let (_, said) = scene
            .node
            .run("journalctl -q -o cat -u flood -u dbus -u nodevigil --since -15s | tail -5")?;
        say(&format!(
            "{sent} of 16 MiB within {millis} ms, 4 s of them unread:\n{said}"
        ));
        ensure_steady(scene, &before, 3)?;
        wait_until("the bus to answer", SOON, || {
            let file = scene.node.status_json()?;
            Ok((file["bus"]["state"] == "ok").then_some(()))
        })
        .with_context(|| format!("{:#}", scene.node.status_json().unwrap_or_default()))?;
        let asked = Instant::now();
        scene.node.sh("systemctl stop kubelet")?;
        scene.wait_for(asked, "Unknown", "KubeletStoppedByOperator")?;
        scene.revive()?;
        scene.ensure_only(before.at, &["True", "Unknown"])?;
        scene.crash_and_recover()
    })
}
