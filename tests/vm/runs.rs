//! Runs a load in a guest and keeps what was recorded.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::guest::Guest;
use super::scenarios::Scenario;
use super::support::control_plane::ControlPlane;
use super::support::say;
use super::trace::Trace;

/// How long nothing happens before a load.
const QUIET: Duration = Duration::from_secs(4);
/// How long is recorded after the host itself ran out of memory.
const AFTER_KILL: u64 = 6;

/// Records a load in a guest of its own.
pub(crate) fn record(scenario: &Scenario, folder: &Path) -> Result<()> {
    let plane = ControlPlane::shared()?;
    let mut guest = Guest::boot(&plane, scenario.setting)?;
    settle(&mut guest)?;
    let trace = play(&mut guest, scenario)?;
    let name = scenario.name;
    trace.write(
        &folder.join(format!("{name}.jsonl")),
        name,
        scenario.what,
        scenario.swap(),
    )?;
    say(&describe(scenario, &trace));
    Ok(())
}

/// Lets the boot's own work end.
pub(crate) fn settle(guest: &mut Guest) -> Result<()> {
    guest.sh("sync; sleep 5")?;
    Ok(())
}

/// Runs a load from its beginning to its end.
pub(crate) fn play(guest: &mut Guest, scenario: &Scenario) -> Result<Trace> {
    guest.limit_disks(scenario.disk)?;
    let began = Instant::now();
    let total = guest.sh("sed -n 's/MemTotal: *//p' /proc/meminfo")?;
    let total_kib = total.split_whitespace().next().context("no MemTotal")?;
    let script = scenario.script(total_kib.parse::<u64>()? / 1024);
    let recording = if scenario.lead > 0 {
        guest.sh(&script)?;
        std::thread::sleep(Duration::from_secs(scenario.lead));
        guest.record(scenario.seconds, AFTER_KILL)?
    } else {
        let recording = guest.record(scenario.seconds, AFTER_KILL)?;
        std::thread::sleep(QUIET);
        guest.sh(&script)?;
        recording
    };
    let trace = recording.finish(Duration::from_secs(scenario.seconds * 2 + 60));
    guest.limit_disks(0)?;
    let trace = trace.with_context(|| format!("{}: after {:?}", scenario.name, began.elapsed()))?;
    let _ = guest.run("systemctl stop cri-containerd-hog cri-containerd-readers cri-containerd-reader cri-containerd-writer; rm -rf /var/lib/layers");
    Ok(trace)
}

/// A line on what a trace shows.
pub(crate) fn describe(scenario: &Scenario, trace: &Trace) -> String {
    let column = |name: &str| trace.column(name);
    let least = column("available_mib")
        .iter()
        .fold(f64::MAX, |least, (_, value)| least.min(*value));
    let most = |name: &str| {
        column(name)
            .iter()
            .fold(0.0_f64, |most, (_, value)| most.max(*value))
    };
    let kills: Vec<String> = trace
        .kernel
        .iter()
        .filter(|line| line.is_kill())
        .map(|line| {
            let victim = line.victim().unwrap_or("?");
            format!(
                "{}{victim}",
                if line.is_global_kill() {
                    ""
                } else {
                    "in a limit: "
                }
            )
        })
        .collect();
    format!(
        "{}: {} samples, {} kB; least available {least:.0} of {} MiB, some {:.0} % and full {:.0} % at most, stand-in stalls {:.0}; killed: {kills:?}",
        scenario.name,
        trace.samples.len(),
        trace.samples.iter().map(String::len).sum::<usize>() / 1000,
        trace.total_mib,
        most("psi_some_pct"),
        most("psi_full_pct"),
        column("stalls").iter().map(|(_, value)| value).sum::<f64>(),
    )
}
