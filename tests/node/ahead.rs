//! Limits of the kernel's, told ahead of the wall and at it, and the wall clock being set.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use nix::time::{ClockId, clock_gettime, clock_settime};
use procfs::{Current as _, LoadAverage};

use crate::scene::{AGENT, KUBELET, Scene};
use crate::support::api::condition;
use crate::support::rows::row;
use crate::support::wait_until;
use crate::trial;

const KERNEL: &str = "NodeKernelHealthy";
/// Looks are ten seconds apart, and a Node that was just born has fifteen of grace.
const SOON: Duration = Duration::from_mins(1);
/// Longer than the looks that would find it exhausted.
const FULL_FOR: Duration = Duration::from_secs(20);
/// Steps the machine's clock for a moment, for real: not a thing to do unasked.
const CLOCK_STEP: &str = "CLOCK_STEP";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("ahead::pids", process_ids_run_out),
        trial("ahead::clock", the_clock_is_set),
    ]
}

/// Waits until the Node says so; the message, and how long that took.
fn wait_for(
    scene: &Scene,
    from: Instant,
    status: &str,
    reason: &str,
) -> Result<(String, Duration)> {
    let says = |event: &serde_json::Value| {
        let told = condition(event, KERNEL);
        told.is_some_and(|told| told["status"] == status && told["reason"] == reason)
    };
    let arrival = scene.watch.wait_since(from, SOON, says);
    let (at, event) = arrival.with_context(|| format!("waiting for {status}/{reason}"))?;
    let message = condition(&event, KERNEL).and_then(|told| told["message"].as_str());
    Ok((message.unwrap_or_default().to_owned(), at - from))
}

fn pid_max() -> Result<u32> {
    Ok(u32::try_from(procfs::sys::kernel::pid_max()?)?)
}

/// Starts so many processes on the node, as a unit of that name.
fn crowd(scene: &Scene, unit: &str, count: u32) -> Result<()> {
    scene.node.sh(&format!(
        "systemd-run -q --unit={unit} -p TasksMax=infinity sh -c \
         'i=0; while [ $i -lt {count} ]; do sleep 600 & i=$((i+1)); done; wait'"
    ))?;
    Ok(())
}

/// Takes every process id that the node's own PID namespace still has, for so many seconds; what takes them stays as it is when
/// there are no more. (Nobody could be asked to end it: not even a command can be started on the node meanwhile.)
fn fill(scene: &Scene, unit: &str, secs: u32) -> Result<()> {
    // The first of these shells ends when it cannot fork; the other only waits, for which it needs no process.
    scene.node.sh(&format!(
        "mkfifo /run/{unit}; systemd-run -q --unit={unit} -p TasksMax=infinity sh -c \
         '(while :; do sleep {secs} & done); read line </run/{unit}'"
    ))?;
    Ok(())
}

/// The limit is that of the node's own PID namespace, which has one since Linux 6.14; the threads are the machine's, because
/// the kernel counts no others.
fn process_ids_run_out() -> Result<()> {
    Scene::healthy("pids")?.play(|scene| {
        let (machines, before) = (pid_max()?, Instant::now());
        let pids = [KUBELET, AGENT].map(|unit| scene.node.main_pid(unit).unwrap_or_default());
        wait_for(scene, scene.node.started(), "True", "KernelIsHealthy")?;
        let threads = LoadAverage::current()?.max;
        let limit = 2 * threads.max(500);
        let set = |max: u32| {
            let command = format!("echo {max} >/proc/sys/kernel/pid_max");
            scene.node.sh(&command)
        };
        set(limit + 300)?;
        if pid_max()? != machines {
            set(machines)?;
            bail!("this kernel has one pid_max for all PID namespaces: it wants Linux 6.14");
        }
        let from = Instant::now();
        crowd(scene, "crowd", limit * 93 / 100 - threads)?;
        let near = "KernelPidsNearlyExhausted";
        let (message, late) = wait_for(scene, from, "True", near)?;
        ensure!(message.contains("kernel.pid_max"), "{message}");
        let how = "pid_max of the node's own PID namespace, and processes up to 93 % of it";
        row("process ids nearly exhausted", how, near, late);
        // As many as it counts, and yet there are ids left in the namespace: load, and no fault.
        crowd(scene, "more", limit / 10)?;
        std::thread::sleep(FULL_FOR);
        let now = scene.plane.condition(scene.node.name(), KERNEL)?;
        let now = now.context("no condition of the kernel")?;
        ensure!(now["status"] == "True" && now["reason"] == near, "{now:#}");
        row(
            "threads at their limit, and a process can still be started",
            "more of them, with process ids left in the node's own PID namespace",
            "KernelPidsNearlyExhausted (True)",
            None,
        );
        let from = Instant::now();
        fill(scene, "all", 45)?;
        let (message, late) = wait_for(scene, from, "False", "KernelPidsExhausted")?;
        ensure!(message.contains("the kernel starts no other"), "{message}");
        let how =
            "every process id of the node's own PID namespace taken: the helper's fork gets EAGAIN";
        row("process ids exhausted", how, "KernelPidsExhausted", late);
        let from = Instant::now();
        let stop = || Ok(scene.node.sh("systemctl stop crowd more all").ok());
        wait_until("room for a command", SOON, stop)?;
        wait_for(scene, from, "True", "KernelIsHealthy")?;
        let after = [KUBELET, AGENT].map(|unit| scene.node.main_pid(unit).unwrap_or_default());
        ensure!(pids == after, "acted upon: {pids:?}, then {after:?}");
        scene.ensure_only(before, &["True"])
    })
}

/// The notes of the agent's Events on steps of the clock.
fn told_steps(scene: &Scene) -> Result<Vec<String>> {
    let (_, list) = scene
        .plane
        .get("/apis/events.k8s.io/v1/namespaces/default/events")?;
    let events = list["items"].as_array().context("no items")?.iter();
    let ours = events.filter(|event| {
        event["regarding"]["name"] == scene.node.name() && event["reason"] == "ClockStepped"
    });
    Ok(ours
        .map(|event| event["note"].as_str().unwrap_or_default().to_owned())
        .collect())
}

fn set_clock(ahead: Duration, back: Duration) -> Result<()> {
    let clock = ClockId::CLOCK_REALTIME;
    let now: Duration = clock_gettime(clock)?.into();
    clock_settime(clock, (now + ahead).saturating_sub(back).into())
        .context("setting the machine's clock")
}

/// Set to what it is, the kernel wakes the agent as for any step, and there is nothing to tell. A real step is the whole
/// machine's, so it is taken only if asked for.
fn the_clock_is_set() -> Result<()> {
    Scene::healthy("clock")?.play(|scene| {
        let before = scene.now()?;
        let step = Duration::from_secs(if std::env::var_os(CLOCK_STEP).is_some() {
            6
        } else {
            0
        });
        let from = Instant::now();
        set_clock(step, Duration::ZERO)?;
        std::thread::sleep(Duration::from_millis(200)); // long enough for the agent to look, short for everybody else
        set_clock(Duration::ZERO, step)?;
        if step.is_zero() {
            scene.ensure_still(&before)?;
            let told = told_steps(scene)?;
            ensure!(told.is_empty(), "{told:?}");
            return Ok(());
        }
        let told = wait_until("the Event", SOON, || Ok(told_steps(scene)?.pop()))?;
        ensure!(
            told.contains("was set forward by 6.") || told.contains("was set forward by 5.9"),
            "{told}"
        );
        row(
            "the clock is set",
            "`clock_settime` 6 s ahead, and back after 0.2 s",
            "Event ClockStepped",
            from.elapsed(),
        );
        scene.ensure_no_flip(&before)
    })
}
