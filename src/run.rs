//! The composition root: starts every task, connects the tasks by channels, and runs the loop of the agent.

mod stop;

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{self, ExitCode};
use std::time::Duration;
use std::{future, thread};

use futures::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio::{runtime, task_local};

use crate::agent::{Agent, KubeletSeen};
use crate::condition::{ConditionType, Desired, Occurrence, Uptime, View, custom};
use crate::facts::{ApiFacts, RequestCounts};
use crate::host::clock::{Timer, next_multiple, uptime};
use crate::host::kmsg::KernelLog;
use crate::host::kubelet::{KubeletFacts, Watched};
use crate::host::notify::notify;
use crate::host::pod::is_pod;
use crate::host::systemd::is_service_active;
use crate::host::{blocking, log, memory};
use crate::monitor::kubelet::Senders;
use crate::monitor::{self, HungServices, Inputs};
use crate::publish::Publisher;
use crate::records::{Recorder, last_boot};
use crate::report::metrics::{Metrics, serve};
use crate::settings::custom::definitions;
use crate::settings::{self, EXIT_CONFIG, Settings, accepted};
use crate::timeline::Timeline;
use crate::trouble::{Trouble, Troubles};

/// `EX_SOFTWARE` of sysexits.h: a task of the agent ended or hangs. systemd starts the agent again.
const EXIT_SOFTWARE: u8 = 70;
/// Reports that wait for the engine, and transitions that wait for the publisher.
const WAITING: usize = 64;
/// Files and programs that are waited for at a time.
const BLOCKING_THREADS: usize = 8;
/// A thread for them stays idle for this time: what is read every half minute would else start one each time.
const BLOCKING_THREADS_STAY: Duration = Duration::from_mins(1);
/// How often the pause file is read, the monitors are checked and systemd is notified, which expects it every 15 seconds.
const TICK: Duration = Duration::from_secs(5);
/// A monitor that ended is started again after this time.
const START_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// When one ends this often in `ENDS_COUNT_FOR`, the agent ends.
const MAX_ENDS: usize = 3;
const ENDS_COUNT_FOR: Duration = Duration::from_mins(10);
/// It takes longer only if a disk does not answer.
const LAST_BOOT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the agent in a pod asks whether nodevigil.service runs.
const ASK_SERVICE_EVERY: Duration = Duration::from_secs(10);

/// Runs the agent until it is stopped; `config` replaces the usual settings files if it is not empty.
pub fn run(config: &[PathBuf]) -> ExitCode {
    log::init();
    let troubles = Troubles::default();
    let Some(settings) = settings(config, &troubles) else { return ExitCode::from(EXIT_CONFIG) };
    memory::lock();
    abort_on_panic();
    let code = match runtime() {
        Ok(runtime) => {
            // A task of its own, because what wakes the one of block_on costs a system call.
            let served = runtime.block_on(runtime.spawn(async {
                wait_for_service_to_stop().await;
                serve_until_stopped(settings, troubles).await
            }));
            // Dropped, it would wait for threads that hang in the kernel (state D).
            runtime.shutdown_background();
            served.map_err(anyhow::Error::from).flatten()
        }
        Err(error) => Err(anyhow::anyhow!("cannot start: {error}")),
    };
    let code = code.unwrap_or_else(|error| {
        tracing::error!("{error:#}");
        EXIT_SOFTWARE
    });
    log::flush();
    ExitCode::from(code)
}

/// The runtime of the agent: one thread, and a few for what blocks.
///
/// # Errors
/// When the kernel has no descriptors for it.
pub fn runtime() -> std::io::Result<runtime::Runtime> {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS).thread_keep_alive(BLOCKING_THREADS_STAY).build()
}

/// The settings of the files, else the last accepted ones; none if there are neither.
fn settings(config: &[PathBuf], troubles: &Troubles) -> Option<Settings> {
    match settings::load(Path::new("/"), config) {
        Ok(settings) => {
            let kept = settings.clone();
            // On a thread of its own that is not waited for, because the disk may hang.
            thread::spawn(move || accepted::save(Path::new(accepted::PATH), &kept));
            Some(settings)
        }
        Err(error) => {
            let kept = accepted::read(Path::new(accepted::PATH));
            if kept.is_some() {
                troubles.set(Trouble::ConfigRefused, format!("{error}; the last accepted settings are in effect"));
            } else {
                tracing::error!("{error}; there are no earlier accepted settings to use instead");
                log::flush();
            }
            kept
        }
    }
}

/// The tasks that watch and publish, and the ends of their channels that the loop of the agent holds.
pub struct Tasks {
    pub running: JoinSet<&'static str>,
    pub reports: mpsc::Receiver<(ConditionType, View)>,
    pub desired: watch::Sender<Desired>,
    pub transitions: mpsc::Sender<Occurrence>,
    pub api: watch::Receiver<ApiFacts>,
    pub kubelet: watch::Receiver<Option<KubeletFacts>>,
    pub watched: watch::Receiver<Watched>,
    pub kernel_log: KernelLog,
    pub timeline: Timeline,
    pub metrics: Metrics,
}

impl Tasks {
    /// Starts every monitor and the publisher. Nothing is written to the API server before [`Desired::node_uid`] is set.
    pub fn start(settings: &Settings, troubles: &Troubles) -> Self {
        // Settings that contradict themselves are refused when they are read.
        custom::register(definitions(&settings.custom).unwrap_or_default());
        let (reports, received) = mpsc::channel(WAITING);
        let (transitions, transitions_receiver) = mpsc::channel(WAITING);
        let (desired, desired_receiver) = watch::channel(Desired::default());
        let (api_sender, api) = watch::channel(ApiFacts::default());
        let (requests, kernel_log) = (RequestCounts::default(), KernelLog::default());
        let metrics = Metrics::new(desired_receiver.clone(), api.clone(), requests.clone(), troubles.clone());
        let (facts, kubelet) = watch::channel(None);
        let (watched_sender, watched) = watch::channel(Watched::default());
        let (lease_wanted_sender, lease_wanted) = watch::channel(false);
        let (directories, runtime_directories) = watch::channel(Vec::new());
        let probe_seconds = metrics.probe_seconds.clone();
        let senders = Senders { facts, watched: watched_sender, lease_wanted: lease_wanted_sender, probe_seconds };
        let inputs = Inputs {
            settings: settings.clone(),
            reports,
            api: api.clone(),
            kubelet: kubelet.clone(),
            watched: watched.clone(),
            runtime_directories,
            kernel_log: kernel_log.clone(),
            hung: HungServices::default(),
            timeline: Timeline::default(),
            troubles: troubles.clone(),
        };
        let timeline = inputs.timeline.clone();
        let publisher = Publisher {
            settings: settings.kubernetes.clone(),
            taints: settings.taints.clone(),
            kubelet: kubelet.clone(),
            desired: desired_receiver,
            facts: api_sender,
            lease_wanted,
            watched: watched.clone(),
            transitions: transitions_receiver,
            requests,
            troubles: troubles.clone(),
        };
        let mut running = JoinSet::new();
        let of_kubelet = |(inputs, senders)| monitor::kubelet::run(inputs, senders);
        running.spawn(again("the kubelet's monitor", (inputs.clone(), senders), of_kubelet));
        running.spawn(again("the configuration's monitor", inputs.clone(), monitor::config::run));
        let of_runtime = |(inputs, directories)| monitor::runtime::run(inputs, directories);
        running.spawn(again("the container runtime's monitor", (inputs.clone(), directories), of_runtime));
        running.spawn(again("the memory's monitor", inputs.clone(), monitor::memory::run));
        running.spawn(again("the storage's monitor", inputs.clone(), monitor::storage::run));
        running.spawn(again("the kernel's monitor", inputs.clone(), monitor::kernel::run));
        running.spawn(again("the custom checks' monitor", inputs.clone(), monitor::custom::run));
        running.spawn(again("the bootstrap's monitor", inputs, monitor::bootstrap::run));
        running.spawn(named("the publisher", publisher.run()));
        // After the monitors, which ask for its lines when they start.
        running.spawn(named("the reader of the kernel's log", kernel_log.clone().follow(troubles.clone())));
        Self { running, reports: received, desired, transitions, api, kubelet, watched, kernel_log, timeline, metrics }
    }
}

/// Starts all tasks, and works until systemd stops us or a task ends; returns the exit code.
async fn serve_until_stopped(settings: Settings, troubles: Troubles) -> anyhow::Result<u8> {
    let mut stops = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let Tasks { mut running, mut reports, desired, transitions, mut api, kubelet, watched, timeline, metrics, .. } =
        Tasks::start(&settings, &troubles);
    let (recorder, recording) = Recorder::new(settings.records.clone(), timeline, troubles.clone());
    running.spawn(named("the recorder", recording));
    if settings.metrics.enabled {
        running.spawn(named("the metrics server", serve(settings.metrics.listen, metrics.clone(), troubles.clone())));
    }
    let kubelet = KubeletSeen { facts: kubelet, watched };
    let mut agent = Agent::new(&settings, metrics, troubles, desired, transitions, kubelet, recorder);
    let (timer, mut next_tick) = (Timer::new(), next_multiple(uptime(), TICK));
    let mut service_started = pin!(service_started());
    let mut last_boot =
        pin!(blocking::run("finding out how the last boot ended", LAST_BOOT_TIMEOUT, last_boot::begin).fuse());
    let mut is_ready = notify("READY=1");
    agent.tick();
    loop {
        tokio::select! {
            biased;
            // First: a monitor may already report what this change has shown it. Before the Node's conditions are adopted that would look
            // like a transition.
            Ok(()) = api.changed() => agent.api_changed(&api.borrow_and_update().clone()),
            Some((kind, view)) = reports.recv() => {
                agent.report(kind, view);
                // The monitors report at the same times.
                while let Ok((kind, view)) = reports.try_recv() {
                    agent.report(kind, view);
                }
            }
            Some(ended) = running.join_next() => anyhow::bail!("{} ended", ended.unwrap_or("a task")),
            () = stopped(&mut stops) => {
                notify("STOPPING=1");
                return Ok(stop::stop(&mut agent, api, &settings.kubernetes).await);
            }
            Ok(Some(found)) = &mut last_boot => agent.last_boot_found(found),
            () = &mut service_started => {
                tracing::warn!("nodevigil.service has started on this host, so this pod ends; it will wait when it is started again");
                return Ok(0);
            }
            () = timer.at(next_tick) => {
                next_tick = next_multiple(uptime(), TICK);
                agent.tick();
                is_ready = is_ready || notify("READY=1");
                notify("WATCHDOG=1");
            }
        }
        agent.show().await?;
    }
}

/// In a pod: waits while nodevigil.service runs on the host. The service goes on without the kubelet and the container runtime.
async fn wait_for_service_to_stop() {
    let mut is_first = true;
    while is_pod() && matches!(is_service_active().await, Ok(true)) {
        if is_first {
            tracing::info!(
                "nodevigil.service runs on this host, so this pod only waits; to have the pod work: systemctl disable --now nodevigil"
            );
        }
        is_first = false;
        sleep(ASK_SERVICE_EVERY).await;
    }
}

/// Returns when nodevigil.service has started on the host of the pod in which this runs; never elsewhere.
async fn service_started() {
    if !is_pod() {
        return future::pending().await;
    }
    while !matches!(is_service_active().await, Ok(true)) {
        sleep(ASK_SERVICE_EVERY).await;
    }
}

task_local! {
    /// Set in the tasks that a panic ends alone.
    static STARTED_AGAIN: ();
}

/// Ends the process at a panic, except in what is started again by [`again`]: without a task of its own a monitor would be half alive.
fn abort_on_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        print(panic);
        if STARTED_AGAIN.try_with(|()| ()).is_err() {
            process::abort();
        }
    }));
}

/// Runs a task that should never end, and returns its name when it does.
async fn named<T>(name: &'static str, task: impl Future<Output = T>) -> &'static str {
    task.await;
    name
}

/// Runs a task that should never end, and again after it ended or panicked; returns its name when it ends too often.
async fn again<I: Clone, F: Future>(name: &'static str, inputs: I, task: impl Fn(I) -> F) -> &'static str {
    let mut ends = Vec::new();
    loop {
        AssertUnwindSafe(STARTED_AGAIN.scope((), task(inputs.clone()))).catch_unwind().await.ok();
        if end_too_often(&mut ends, uptime()) {
            return name;
        }
        tracing::error!("{name} ended; it is restarted in {} s", START_AGAIN_AFTER.as_secs());
        sleep(START_AGAIN_AFTER).await;
    }
}

/// Whether an end now is the third within ten minutes; `ends` are those before it.
fn end_too_often(ends: &mut Vec<Uptime>, now: Uptime) -> bool {
    ends.retain(|end| now < *end + ENDS_COUNT_FOR);
    ends.push(now);
    ends.len() >= MAX_ENDS
}

async fn stopped([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_monitor_that_panics_is_started_again_twice() {
        let starts = Cell::new(0);
        let monitor = async |starts: &Cell<u32>| {
            starts.set(starts.get() + 1);
            assert!(STARTED_AGAIN.try_with(|()| ()).is_err(), "the panic of this test");
        };
        assert_eq!((again("a monitor", &starts, monitor).await, starts.get()), ("a monitor", 3));
    }

    #[test]
    fn only_ends_of_the_last_ten_minutes_count() {
        let mut ends = Vec::new();
        let mut end = |secs| end_too_often(&mut ends, Uptime::from_secs(secs));
        assert_eq!([0, 599, 600, 1198].map(&mut end), [false, false, false, true]);
    }
}
