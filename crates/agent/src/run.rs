//! The composition root: starts every task, hands each its channels, and turns reports into what is shown.

use std::{
    path::{Path, PathBuf},
    process::{self, ExitCode},
    thread,
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    agent::Agent,
    condition::{Condition, Desired},
    host::{
        api::{ApiFacts, RequestCounts},
        log, memory,
        notify::Notifier,
        systemd::{Ending, why_ending},
        trouble::{Trouble, Troubles},
    },
    monitor::kubelet::{Monitor, Watched},
    publish::Publisher,
    report::metrics::{Metrics, serve},
    settings::{self, EXIT_CONFIG, Settings, accepted},
};

/// `EX_SOFTWARE` of sysexits.h: a task of the agent ended or hangs. systemd starts the agent again.
const EXIT_SOFTWARE: u8 = 70;
/// Reports that wait for the engine.
const REPORTS: usize = 64;
/// Transitions that wait for the publisher.
const TRANSITIONS: usize = 64;
/// Files and programs that are waited for at a time.
const BLOCKING_THREADS: usize = 8;
/// How often the pause file is read, the monitors are checked and systemd is notified.
const TICK: Duration = Duration::from_secs(2);
/// At a stop the API server is given this time to take the last conditions.
const STOP_WAIT: Duration = Duration::from_millis(1500);
/// The same for systemd, to say why we stop.
const WHY_WAIT: Duration = Duration::from_millis(500);

/// Runs the agent until it is stopped; `config` replaces the usual settings files if it is not empty.
pub fn run(config: &[PathBuf]) -> ExitCode {
    log::init();
    let troubles = Troubles::default();
    let Some(settings) = settings(config, &troubles) else {
        return ExitCode::from(EXIT_CONFIG);
    };
    memory::lock();
    let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build();
    let code = match runtime {
        Ok(runtime) => runtime.block_on(serve_until_stopped(settings, troubles)).unwrap_or_else(|error| {
            tracing::error!("{error:#}");
            EXIT_SOFTWARE
        }),
        Err(error) => {
            tracing::error!("cannot start: {error}");
            EXIT_SOFTWARE
        }
    };
    log::flush();
    // Not by returning: the runtime would wait for threads that hang in the kernel (state D).
    #[expect(clippy::exit, reason = "see above")]
    process::exit(i32::from(code))
}

/// The settings of the files, else the last accepted ones; none if there are neither.
fn settings(config: &[PathBuf], troubles: &Troubles) -> Option<Settings> {
    match settings::load(Path::new("/"), config) {
        Ok(settings) => {
            let kept = settings.clone();
            // On a thread, as the disk may hang; nobody waits for it.
            thread::spawn(move || accepted::save(Path::new(accepted::PATH), &kept));
            Some(settings)
        }
        Err(error) => {
            let kept = accepted::read(Path::new(accepted::PATH));
            if kept.is_some() {
                troubles.set(Trouble::ConfigRefused, format!("{error}; the last accepted settings are in effect"));
            } else {
                tracing::error!("{error}; there are no accepted settings to go on with");
                log::flush();
            }
            kept
        }
    }
}

/// Starts all tasks, and works until systemd stops us or a task ends; returns the exit code.
async fn serve_until_stopped(settings: Settings, troubles: Troubles) -> anyhow::Result<u8> {
    let mut stops = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let (reports, mut received) = mpsc::channel(REPORTS);
    let (transitions, transitions_receiver) = mpsc::channel(TRANSITIONS);
    let (desired, desired_receiver) = watch::channel(Desired::default());
    let (api_sender, mut api) = watch::channel(ApiFacts::default());
    let (kubelet_sender, kubelet_receiver) = watch::channel(None);
    let (watched, watched_receiver) = watch::channel(Watched::default());
    let (lease_wanted, lease_wanted_receiver) = watch::channel(false);
    let requests = RequestCounts::default();
    let metrics = Metrics::new(desired_receiver.clone(), requests.clone(), troubles.clone());

    let mut tasks = JoinSet::new();
    let monitor = Monitor {
        settings: settings.kubelet.clone(),
        reports,
        facts: kubelet_sender,
        watched,
        api: api.clone(),
        lease_wanted,
        probe_seconds: metrics.probe_seconds.clone(),
        troubles: troubles.clone(),
    };
    let publisher = Publisher {
        settings: settings.kubernetes.clone(),
        kubelet: kubelet_receiver.clone(),
        desired: desired_receiver,
        facts: api_sender,
        lease_wanted: lease_wanted_receiver,
        transitions: transitions_receiver,
        requests,
        troubles: troubles.clone(),
    };
    tasks.spawn(named("the kubelet's monitor", monitor.run()));
    tasks.spawn(named("the publisher", publisher.run()));
    if settings.metrics.enabled {
        tasks.spawn(named("the metrics server", serve(settings.metrics.listen, metrics.clone(), troubles.clone())));
    }

    let mut agent = Agent::new(&settings, metrics, troubles, desired, transitions, kubelet_receiver, watched_receiver);
    let (notifier, mut ticks) = (Notifier::new(), interval(TICK));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    notifier.notify(NotifyState::Ready);
    loop {
        tokio::select! {
            biased;
            Some((kind, view)) = received.recv() => agent.report(kind, view),
            Ok(()) = api.changed() => agent.api_changed(&api.borrow_and_update().clone()),
            Some(ended) = tasks.join_next() => anyhow::bail!("{} ended", ended.unwrap_or("a task")),
            () = stopped(&mut stops) => {
                notifier.notify(NotifyState::Stopping);
                return Ok(stop(&mut agent, api).await);
            }
            _ = ticks.tick() => {
                agent.tick()?;
                notifier.notify(NotifyState::Watchdog);
            }
        }
        agent.show();
    }
}

/// Runs a task that should never end, and returns its name when it does.
async fn named<T>(name: &'static str, task: impl Future<Output = T>) -> &'static str {
    task.await;
    name
}

async fn stopped([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Ends the agent. If our unit was stopped, nobody watches from now on, and what is `False` is no longer known to be so; before a
/// restart or a shutdown everything stays as it is.
async fn stop(agent: &mut Agent, mut api: watch::Receiver<ApiFacts>) -> u8 {
    let why = timeout(WHY_WAIT, why_ending()).await;
    if !matches!(why, Ok(Ok(Ending::Stopped))) {
        return 0;
    }
    let last = agent.withdraw_false();
    let is_shown = |api: &ApiFacts| {
        let shown = |wanted: &Condition| {
            let node = api.node.as_ref()?;
            let found = node.conditions.iter().find(|shown| shown.kind == wanted.kind.name())?;
            Some(found.reason == wanted.reason)
        };
        last.iter().all(|wanted| shown(wanted).unwrap_or_default())
    };
    if !last.is_empty() {
        timeout(STOP_WAIT, api.wait_for(is_shown)).await.ok();
    }
    0
}
