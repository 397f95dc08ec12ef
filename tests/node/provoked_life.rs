//! The kubelet's life as systemd and the process table show it, each trouble provoked on the real kubelet: the right reason
//! on the Node, how long that took, and nothing acted upon.

mod distribution;
mod firewall;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::scene::{KUBELET, Scene, Told};
use crate::support::api::condition;
use crate::support::node_builder::NodeBuilder;
use crate::support::rows::row;
use crate::trial;

const DEFAULTS: &str = "/etc/default/kubelet";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("provoked_life::crash_loop", a_removed_flag_is_a_crash_loop),
        trial("provoked_life::start_limit", systemd_gives_up),
        trial("provoked_life::stop_stuck", a_stop_that_hangs_is_told),
        trial("provoked_life::frozen", ice_is_told_and_thaws),
        trial("provoked_life::forged", a_forged_signal_freezes_nothing),
        trial("provoked_life::watchdog", systemds_watchdog_is_named),
        trial("provoked_life::out_of_memory", a_kill_for_memory_is_named),
        trial("provoked_life::slow_start", a_slow_start_is_told),
        trial("provoked_life::firewall", firewall::a_firewall_is_no_hang),
        trial(
            "provoked_life::firewall_at_start",
            firewall::a_start_behind_a_firewall_is_no_slow_start,
        ),
        trial("provoked_life::port_changed", another_port_is_no_news),
        trial(
            "provoked_life::child",
            distribution::a_child_is_named_with_its_parent,
        ),
        trial(
            "provoked_life::inside",
            distribution::a_kubelet_inside_is_named_so,
        ),
        trial(
            "provoked_life::not_joined",
            before_the_join_nothing_is_wrong,
        ),
    ]
}

/// A drop-in of the kubelet's unit.
fn unit(node: NodeBuilder, lines: &str) -> NodeBuilder {
    let path = "/etc/systemd/system/kubelet.service.d/60-test.conf";
    node.file(path, lines, 0o644)
}

/// A flag that the kubelet had until 1.26.
fn remove_a_flag(scene: &Scene) -> Result<Instant> {
    let from = Instant::now();
    scene.node.sh(&format!(
        "cp {DEFAULTS} /run/kubelet.good
         sed -i 's/$/ --container-runtime=remote/' {DEFAULTS}
         systemctl restart kubelet || true"
    ))?;
    Ok(from)
}

fn mend(scene: &Scene) -> Result<()> {
    let from = Instant::now();
    scene.node.sh(&format!(
        "cp /run/kubelet.good {DEFAULTS}; systemctl reset-failed kubelet; systemctl restart kubelet"
    ))?;
    scene.wait_for(from, "True", "KubeletIsHealthy")?;
    Ok(())
}

/// What the Node says once the kubelet's last words are in it.
fn with_words(scene: &Scene, from: Instant, reason: &str, words: &str) -> Result<Told> {
    scene
        .wait_until_told(from, |told| {
            names(told, reason) && told.message.contains(words)
        })
        .with_context(|| format!("waiting for {reason} with {words:?}"))
}

/// Whether the reason is told: as the reason, or, of another class than what stands, in the message until it has stood for long.
fn names(told: &Told, reason: &str) -> bool {
    let named = told.message.contains(&format!("{reason}: "));
    told.status == "False" && (told.reason == reason || named)
}

fn a_removed_flag_is_a_crash_loop() -> Result<()> {
    // As shipped.
    let settings = "[kubelet]\ncrash_loop_ends = 3\ncrash_loop_within_secs = 300\n[kubernetes]\ndialects = [\"native\", \"npd\"]\n";
    Scene::healthy_with("crash-loop", |node| node.config("60-test.toml", settings))?.play(|scene| {
        let from = remove_a_flag(scene)?;
        let crashed = scene.wait_for(from, "False", "KubeletCrashed")?;
        let looping = scene.wait_until_told(from, |told| names(told, "KubeletCrashLooping"))?;
        ensure!(looping.since == crashed.since, "{crashed:?}, {looping:?}");
        // What a restart does not mend is no reason of its own before five minutes.
        ensure!(looping.reason == "KubeletCrashed", "{looping:?}");
        let told = with_words(
            scene,
            from,
            "KubeletCrashLooping",
            "; its last error: run.go",
        )?;
        let message = "3 times or more within 5 min; the last one exited with code 1";
        ensure!(told.message.contains(message), "{told:?}");
        ensure!(
            told.message.contains("unknown flag: --container-runtime"),
            "{told:?}"
        );
        row(
            "crash loop",
            "a flag that this kubelet no longer knows",
            "KubeletCrashLooping",
            looping.at - from,
        );
        row(
            "the kubelet's last words",
            "the same, from the journal into the message",
            "KubeletCrashLooping",
            told.at - from,
        );
        // It ends ten times a second, and what is said of it is the same but for round numbers.
        let (before, began) = (scene.requests()?.len(), Instant::now());
        scene.ensure_still(&looping)?;
        let writes = scene.requests()?.len() - before;
        ensure!(writes <= 6, "{writes} requests in {:?}", began.elapsed());
        let npd = scene.watch.all();
        let (_, last) = npd.last().context("no event")?;
        let frequent = condition(last, "FrequentKubeletRestart");
        ensure!(
            frequent.is_some_and(|c| c["status"] == "True"),
            "{frequent:?}"
        );
        mend(scene)?;
        scene.ensure_only(from, &["True", "False"])
    })
}

fn systemd_gives_up() -> Result<()> {
    let limit = "[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=4\n";
    // A journal as that of systemd before 246, so that both forms of its files are read for last words in these tests.
    let old = "[Service]\nEnvironment=SYSTEMD_JOURNAL_COMPACT=0 SYSTEMD_JOURNAL_KEYED_HASH=0\n";
    let journald = "/etc/systemd/system/systemd-journald.service.d/60-test.conf";
    let scene = Scene::healthy_with("start-limit", |node| {
        unit(node, limit).file(journald, old, 0o644)
    })?;
    scene.play(|scene| {
        let header = scene.node.sh("journalctl --header | grep Incompatible")?;
        ensure!(
            !header.contains("KEYED") && !header.contains("COMPACT"),
            "{header}"
        );
        // The starts so far count too: one at boot.
        let from = remove_a_flag(scene)?;
        let told = scene.wait_until_told(from, |told| names(told, "KubeletStartLimitHit"))?;
        let text = "Result=start-limit-hit, more than 4 within 60 s";
        ensure!(told.message.contains(text), "{told:?}");
        row(
            "start limit",
            "the same flag, `StartLimitBurst=4`",
            "KubeletStartLimitHit",
            told.at - from,
        );
        with_words(scene, from, "KubeletStartLimitHit", "unknown flag")?;
        scene.ensure_still(&told)?;
        ensure!(scene.property(KUBELET, "ActiveState")? == "failed", "acted");
        mend(scene)?;
        scene.ensure_only(from, &["True", "False"])
    })
}

/// SIGTERM ends every kubelet; with another signal in its place it behaves as one that does not hear it.
fn a_stop_that_hangs_is_told() -> Result<()> {
    let deaf = "[Service]\nKillSignal=SIGURG\nTimeoutStopSec=12\n";
    let scene = Scene::healthy_with("stop-stuck", |node| {
        unit(node, deaf).config("60-grace.toml", "[kubelet]\nstop_grace_secs = 5\n")
    })?;
    scene.play(|scene| {
        let from = Instant::now();
        scene.node.sh("systemctl stop --no-block kubelet")?;
        let told = scene.wait_for(from, "Unknown", "KubeletStopStuck")?;
        ensure!(told.message.contains("a stop job of systemd's"), "{told:?}");
        let grace = told.at - from;
        ensure!(grace >= Duration::from_secs(5), "told after {grace:?}");
        let stopped = scene.wait_for(told.at, "Unknown", "KubeletStoppedByOperator")?;
        ensure!(stopped.since == told.since, "{stopped:?}");
        row(
            "ignores the signal while stopping",
            "systemctl stop of a kubelet deaf to it, stop_grace_secs = 5",
            "KubeletStopStuck (Unknown)",
            grace,
        );
        scene.revive()?;
        scene.ensure_only(from, &["True", "Unknown"])
    })
}

/// A bus delivers a signal to whom it names, whoever sends it: one that says "frozen" makes nothing so.
fn a_forged_signal_freezes_nothing() -> Result<()> {
    Scene::healthy("forged")?.play(|scene| {
        let told = scene.now()?;
        let unit = "/org/freedesktop/systemd1/unit/kubelet_2eservice org.freedesktop.DBus.Properties PropertiesChanged";
        let agents = "busctl --system list --no-legend | awk '$3 == \"nodevigil\" && $4 == \"nodevigil\" {print $1}'";
        scene.node.sh(&format!(
            "to=$({agents}); test -n \"$to\"
             for name in $to; do
                 runuser -u nobody -- busctl --system emit --destination=$name {unit} \"sa{{sv}}as\" org.freedesktop.systemd1.Unit 2 FreezerState s frozen SubState s stop-sigkill 0
             done"
        ))?;
        std::thread::sleep(Duration::from_secs(11)); // as long as one must outlive SIGKILL
        scene.ensure_no_flip(&told)?;
        scene.ensure_only(told.at, &["True"])
    })
}

/// On this machine cgroups are of version 1, where systemd has no freezer of its own.
fn ice_is_told_and_thaws() -> Result<()> {
    Scene::healthy("frozen")?.play(|scene| {
        let folder = "/sys/fs/cgroup/freezer/ice";
        let state = |state: &str| {
            let command = format!("echo {state} >{folder}/freezer.state");
            scene.node.sh(&command)
        };
        let pid = scene.node.main_pid(KUBELET)?;
        let cgroup = format!("mkdir -p {folder}; echo {pid} >{folder}/cgroup.procs");
        scene.node.sh(&cgroup)?;
        let from = Instant::now();
        state("FROZEN")?;
        let seen = scene
            .wait_for(from, "False", "KubeletFrozen")
            .and_then(|told| {
                ensure!(told.message.contains("/ice"), "{told:?}");
                scene.ensure_still(&told)?;
                let now = scene.now()?;
                ensure!(now.reason == "KubeletFrozen", "{now:?}");
                Ok(told)
            });
        // Whatever was seen: nothing can end a process on ice.
        let thawed = Instant::now();
        state("THAWED")?;
        let told = seen?;
        row(
            "frozen",
            "the freezer of cgroup v1",
            "KubeletFrozen",
            told.at - from,
        );
        scene.wait_for(thawed, "True", "KubeletIsHealthy")?;
        ensure!(scene.node.main_pid(KUBELET)? == pid, "another kubelet");
        scene.ensure_only(from, &["True", "False"])
    })
}

fn systemds_watchdog_is_named() -> Result<()> {
    let watchdog = "[Service]\nWatchdogSec=5\nTimeoutAbortSec=2\n";
    Scene::healthy_with("watchdog", |node| unit(node, watchdog))?.play(|scene| {
        // The kubelet feeds it, or it would be dead by now.
        let told = scene.now()?;
        scene.ensure_still(&told)?;
        let stopped = scene.node.signal_unit(KUBELET, Signal::SIGSTOP)?;
        let told = scene.wait_for(stopped, "False", "KubeletWatchdogKilled")?;
        ensure!(told.message.contains("WatchdogSec=5 s"), "{told:?}");
        row(
            "killed by systemd's watchdog",
            "SIGSTOP, WatchdogSec=5, TimeoutAbortSec=2",
            "KubeletWatchdogKilled",
            told.at - stopped,
        );
        scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        scene.ensure_only(stopped, &["True", "False"])
    })
}

/// Its limit, on cgroup v1; the kernel's log speaks of the machine's pids and cgroups.
fn a_kill_for_memory_is_named() -> Result<()> {
    let scene = Scene::healthy_with("memory", |node| node.restart_sec(Duration::from_secs(3)))?;
    scene.play(|scene| {
        scene
            .node
            .sh("systemctl set-property --runtime kubelet MemoryLimit=8M")?;
        let from = Instant::now();
        scene.node.sh("systemctl restart kubelet || true")?;
        let told = scene.wait_for(from, "False", "KubeletOOMKilled")?;
        ensure!(
            told.message.contains("killed by the kernel for memory: its own memory limit of 8 MiB was reached"),
            "{told:?}"
        );
        ensure!(told.message.contains("kubelet.service"), "{told:?}");
        row(
            "killed for memory, its own limit",
            "MemoryLimit=8M and a restart",
            "KubeletOOMKilled",
            told.at - from,
        );
        scene
            .node
            .sh("systemctl set-property --runtime kubelet MemoryLimit=infinity; systemctl restart kubelet")?;
        scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        scene.ensure_only(from, &["True", "False"])
    })
}

/// As on AKS, whose unit waits for other things first.
fn a_slow_start_is_told() -> Result<()> {
    let slow = "[Service]\nExecStartPre=/bin/sh -c 'while test -e /run/slow; do sleep 0.1; done'\n";
    let scene = Scene::healthy_with("slow-start", |node| {
        unit(node, slow).config("60-grace.toml", "[kubelet]\nstart_grace_secs = 10\n")
    })?;
    scene.play(|scene| {
        let from = Instant::now();
        scene
            .node
            .sh("touch /run/slow; systemctl restart --no-block kubelet")?;
        let told = scene.wait_for(from, "False", "KubeletStartSlow")?;
        ensure!(told.message.contains("activating (start-pre)"), "{told:?}");
        let late = told.at - from;
        ensure!(late >= Duration::from_secs(10), "told after {late:?}");
        row(
            "slow start",
            "ExecStartPre= that waits, start_grace_secs = 10",
            "KubeletStartSlow",
            late,
        );
        scene.node.sh("rm /run/slow")?;
        scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        scene.ensure_only(from, &["True", "False"])
    })
}

fn another_port_is_no_news() -> Result<()> {
    Scene::healthy("port-changed")?.play(|scene| {
        let told = scene.now()?;
        let (old, new) = (scene.node.ports().healthz, scene.node.ports().healthz + 1);
        scene.node.sh(&format!(
            "sed -i 's/\"healthzPort\":{old}/\"healthzPort\":{new}/' /var/lib/kubelet/config.yaml &&
             grep -q {new} /var/lib/kubelet/config.yaml && systemctl restart kubelet"
        ))?;
        let url = format!("http://127.0.0.1:{new}/healthz");
        let now = scene.wait_until_told(told.at, |told| told.message.contains(&url))?;
        ensure!(now.status == "True" && now.since == told.since, "{now:?}");
        row(
            "healthz port changed",
            "another healthzPort and a restart",
            "none: no flip",
            None,
        );
        scene.ensure_no_flip(&told)
    })
}

/// As a machine is before `kubeadm join`: the packages are there, and their kubelet crash-loops.
fn before_the_join_nothing_is_wrong() -> Result<()> {
    let scene = Scene::healthy("not-joined")?;
    scene.play(|scene| {
        scene.node.sh("systemctl stop nodevigil kubelet")?;
        scene.plane.delete_node(scene.node.name())?;
        scene.node.sh(
            "rm /etc/kubernetes/kubelet.conf /run/nodevigil/*; systemctl start --no-block kubelet",
        )?;
        scene.node.start_agent()?;
        let file = scene.status_file("what an unjoined host is", |file| {
            file["conditions"][0]["reason"] == "KubeletAwaitsJoin"
        })?;
        ensure!(file["conditions"][0]["status"] == "Unknown", "{file:#}");
        row(
            "not joined yet",
            "no kubeconfig, none to bootstrap with, no Node; the kubelet ends ten times a second",
            "KubeletAwaitsJoin (Unknown)",
            None,
        );
        Ok(())
    })
}
