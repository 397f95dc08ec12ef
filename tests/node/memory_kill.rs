//! The kernel kills the kubelet for memory, by the unit's own `MemoryLimit=`: how soon the Node says so, with scope and limit.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::scene::{KUBELET, SOON, Scene, Told};
use crate::support::kmsg::Listener;
use crate::support::process::ending;
use crate::support::rows::row;
use crate::support::stats::Sample;
use crate::support::{say, wait_until};
use crate::trial;

/// The promise.
const WITHIN_MS: f64 = 250.0;
/// So many kills are measured.
const KILLS: usize = 20;
/// What the unit may have beside the kubelet's own pages; the hog takes more.
const ROOM_MIB: u64 = 24;
const HOG_MIB: u64 = 40;

/// Else the spell of health grows with each relapse.
pub(crate) const AT_ONCE: &str = "[kubelet]\nhealthy_for_secs = 0\n";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial("memory_kill::own_limit", the_units_own_limit)]
}

/// The unit's group of the controller memory, as the node sees it.
const GROUP: &str = "/sys/fs/cgroup/memory/system.slice/kubelet.service";

/// One kill.
pub(crate) struct Kill {
    /// When the kernel's line that names the dead was in its log, and when the process was gone.
    line: Instant,
    gone: Instant,
    told: Told,
}

fn the_units_own_limit() -> Result<()> {
    let scene = Scene::healthy_with("memory-kill", |node| node.config("60-spell.toml", AT_ONCE))?;
    scene.play(|scene| {
        let kernel = Listener::start()?;
        let mut kills = Vec::with_capacity(KILLS);
        for number in 1..=KILLS {
            let kill = kill(scene, &kernel).with_context(|| format!("kill {number}"))?;
            say(&format!(
                "kill {number}: gone {:.1?} after the kernel's line, told {:.1?}",
                kill.gone.saturating_duration_since(kill.line),
                kill.told.at.saturating_duration_since(kill.line)
            ));
            kills.push(kill);
        }
        let millis = |time: fn(&Kill) -> Duration| -> Sample {
            let times = kills.iter().map(time);
            times.map(|time| time.as_secs_f64() * 1000.0).collect()
        };
        let told = millis(|kill| kill.told.at.saturating_duration_since(kill.line));
        let gone = millis(|kill| kill.gone.saturating_duration_since(kill.line));
        for (what, sample) in [("told", &told), ("gone", &gone)] {
            let of = |percent| sample.percentile(percent).unwrap_or_default();
            say(&format!(
                "the kernel's line → {what}: p50 {:.1} ms, p90 {:.1}, p95 {:.1}, max {:.1} (n={})",
                of(50),
                of(90),
                of(95),
                of(100),
                sample.n()
            ));
        }
        let p95 = told.percentile(95).context("no kill")?;
        row(
            "killed for memory by its own limit, while it was well",
            &format!("MemoryLimit= near what it has, and a hog in its unit; from the kernel's line on, the 95th percentile of {KILLS}"),
            "KubeletOOMKilled",
            Duration::from_secs_f64(p95 / 1000.0),
        );
        ensure!(p95 <= WITHIN_MS, "told {p95:.0} ms after the kernel's line");
        Ok(())
    })
}

/// The kernel counts whole pages.
fn in_words(bytes: u64) -> String {
    match bytes / 4096 * 4 {
        kib if kib % 1024 == 0 => format!("{} MiB", kib / 1024),
        kib => format!("{kib} KiB"),
    }
}

/// A limit a little above what the kubelet has, and somebody in its unit who takes that little: the kernel kills the largest.
pub(crate) fn kill(scene: &Scene, kernel: &Listener) -> Result<Kill> {
    let node = &scene.node;
    let inner = node.main_pid(KUBELET)?;
    let end = ending(node.kubelet_pid()?)?;
    let rss = node.sh(&format!(
        "awk '$1 == \"total_rss\" {{ print $2 }}' {GROUP}/memory.stat"
    ))?;
    let limit = rss.trim().parse::<u64>().context(rss.clone())? + ROOM_MIB * 1024 * 1024;
    node.sh(&format!(
        "systemctl set-property --runtime kubelet MemoryLimit={limit}"
    ))?;
    let from = Instant::now();
    // A child of the shell's, so that the shell's own end is not that of the unit's.
    node.run(&format!(
        "sh -c 'echo $$ >{GROUP}/cgroup.procs; head -c {HOG_MIB}M /dev/zero | tail -c {HOG_MIB}M >/dev/null'"
    ))?;
    let gone = end.wait(SOON)?;
    let told = scene.wait_for(from, "False", "KubeletOOMKilled")?;
    let group = format!("{}/system.slice/kubelet.service", node.group());
    // Its pid is that of the machine, which nobody in here knows.
    let line = wait_until("the kernel's line", SOON, || {
        let lines = kernel.since(from);
        let line = lines
            .iter()
            .find(|(_, text)| text.contains(&format!("{group},task=kubelet,pid=")));
        Ok(line.map(|(at, _)| *at))
    })?;
    for words in [
        format!("kubelet pid {inner} was killed by the kernel for memory"),
        format!("its own memory limit of {} was reached", in_words(limit)),
        format!("that of the cgroup /{group}"),
    ] {
        ensure!(told.message.contains(&words), "no {words:?} in {told:?}");
    }
    node.sh("systemctl set-property --runtime kubelet MemoryLimit=infinity")?;
    scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
    Ok(Kill { line, gone, told })
}
