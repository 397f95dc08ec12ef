//! The loop: wait for an event, let [`State::apply`] decide, set its effects going.
//!
//! [`Agent::next`] only waits; `apply` alone changes state and does no I/O; [`Agent::perform`] starts what was decided
//! and never waits for it: results come back as events. Nothing in here reads a disk.

mod asking;
mod checking;
mod closer;
mod event;
mod exposing;
mod judging;
mod leaving;
mod link;
mod memory;
mod peer;
mod performing;
mod publishing;
mod quiet;
mod reading;
mod rehearsing;
mod runtime;
mod sending;
mod standing;
mod state;
mod telling;
mod view;
mod watching;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, mpsc, watch},
    task::{AbortHandle, JoinSet},
};
use tracing::warn;

pub use event::{Effect, Event};
pub use exposing::SOCKET_NAME;
use memory::PodNames;
pub use state::State;

use crate::{
    checks::{Reading, kubelet::PROBE_TIMEOUT, memory::Who},
    clock::{Alarm, Clock, Now},
    cluster::{api::Api, identity::Known},
    config::Settings,
    host::{
        files::{Folder, Root, Stamp},
        helper::HelperClient,
        kubelet::Healthz,
        memory_groups::MemoryGroups,
        memory_tables::MemoryTables,
        notify::Notifier,
        packages::LockFiles,
        process::Watched,
        sample::Limits,
        scrapes::Scrape,
        sockets::SocketTable,
        strain::Gauge,
    },
    ledger,
    status::StatusFile,
};

/// Events that wait for the loop; their senders wait when it is full.
const QUEUE: usize = 64;

/// How often in a turn readings may ask for readings; what is asked for then is for the next turn.
const MAX_ROUNDS: u32 = 4;

/// Everything that is handed in.
#[derive(Debug)]
pub struct Outside {
    /// The machine's files.
    pub root: Root,
    /// Its clock.
    pub clock: Clock,
    /// The helper.
    pub helper: HelperClient,
    /// systemd's ear.
    pub notifier: Notifier,
    /// Where the ledger lies.
    pub ledger: ledger::Place,
    /// The folder of the status file.
    pub runtime_dir: PathBuf,
}

/// The loop and what it holds open.
pub struct Agent {
    state: State,
    outside: Arc<Outside>,
    settings: Settings,
    healthz: Healthz,
    /// Whom the probe that is under way asks, and when it began (uptime).
    probing: Option<(i32, Duration)>,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
    tasks: JoinSet<()>,
    alarm: Alarm,
    watched: Option<Watched>,
    /// Open while the kubelet does not answer.
    gauge: Option<Gauge>,
    /// The container runtime, and its state if that is none in which it works.
    runtime: Option<Watched>,
    runtime_state: Option<char>,
    /// When it is read next (uptime).
    runtime_state_at: Duration,
    /// The units that systemd is asked about beside the kubelet's.
    beside: watch::Sender<Vec<String>>,
    /// Has systemd asked for the states of all of them.
    anew: Arc<Notify>,
    /// Connections of the identities that were found, each ahead of its event.
    connections: (mpsc::UnboundedSender<Known>, mpsc::UnboundedReceiver<Known>),
    /// The connection of the identity found last, and what is said on it.
    connection: Option<Known>,
    api: Option<Api>,
    node_watch: Option<AbortHandle>,
    applying: Option<AbortHandle>,
    /// Requests for taints and events that are under way.
    besides: Vec<AbortHandle>,
    reading: Option<AbortHandle>,
    following_config: Option<AbortHandle>,
    /// Events that are known already; what waits in the queue goes before them.
    known: VecDeque<Event>,
    disk: Disk,
    /// Where the pause file would be.
    runtime_folder: Folder,
    /// The kernel's list of sockets, once it was asked for; and whether it was said that it cannot be had.
    socket_table: Option<SocketTable>,
    sockets_refused: bool,
    /// Set once it was said that the kubelet's Lease cannot be read.
    lease_refused: Arc<OnceLock<()>>,
    /// The pause file as it was when it was looked at last, if it was there.
    pause_seen: Option<Stamp>,
    /// The package managers' lock files, once a disk has said which there are.
    lock_files: Arc<OnceLock<LockFiles>>,
    /// Who wants the metrics.
    scrapes: mpsc::Receiver<Scrape>,
    /// Whether the metrics' text file could not be written when that was tried last.
    textfile_fails: Arc<AtomicBool>,
    /// When the loop was to go on at the latest (uptime).
    due_at: Duration,
    limits: Limits,
    memory: MemoryTables,
    groups: MemoryGroups,
    pod_names: PodNames,
    /// Who took the memory when that was looked at last.
    grower: Option<Who>,
    /// Kept from turn to turn for its place.
    effects: Vec<Effect>,
}

/// What waits to be written, while one write is under way: the newest of each kind.
#[derive(Debug, Default)]
struct Disk {
    busy: Option<tokio::task::JoinHandle<()>>,
    ledger: Option<ledger::Kept>,
    status: Option<Box<StatusFile>>,
    textfile: Option<String>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// Makes the loop; nothing has been read or sent yet.
    ///
    /// # Errors
    /// When the signals or the timer cannot be had.
    pub fn new(state: State, settings: Settings, outside: Outside) -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            tasks.spawn(stop_at(signal(kind)?, sender.clone()));
        }
        let beside = watch::Sender::new(runtime::units(&settings));
        Ok(Self {
            state,
            settings,
            healthz: Healthz::default(),
            probing: None,
            events,
            sender,
            tasks,
            alarm: Alarm::new()?,
            watched: None,
            gauge: None,
            runtime: None,
            runtime_state: None,
            runtime_state_at: Duration::ZERO,
            beside,
            anew: Arc::default(),
            connections: mpsc::unbounded_channel(),
            connection: None,
            api: None,
            node_watch: None,
            applying: None,
            besides: Vec::new(),
            reading: None,
            following_config: None,
            known: VecDeque::new(),
            disk: Disk::default(),
            runtime_folder: Folder::new(&outside.runtime_dir),
            socket_table: None,
            sockets_refused: false,
            lease_refused: Arc::default(),
            pause_seen: None,
            lock_files: Arc::default(),
            scrapes: mpsc::channel(1).1, // closed, until there is a socket
            textfile_fails: Arc::default(),
            due_at: Duration::MAX,
            limits: Limits::new(&outside.root),
            memory: MemoryTables::new(&outside.root),
            groups: MemoryGroups::new(&outside.root),
            pod_names: PodNames::default(),
            grower: None,
            effects: Vec::new(),
            outside: Arc::new(outside),
        })
    }

    /// Turns until it is asked to stop.
    pub async fn run(mut self) {
        if self.settings.kubelet.pid_file.is_none() {
            self.watch_unit();
        }
        self.watch_kernel();
        self.watch_stalls();
        self.watch_clock();
        let (found, outside) = (self.lock_files.clone(), self.outside.clone());
        tokio::task::spawn_blocking(move || found.set(LockFiles::find(&outside.root)));
        self.expose_on_socket();
        self.outside.notifier.ready();
        loop {
            let event = self.next().await;
            if self.turn(event).await {
                return Box::pin(self.end()).await;
            }
        }
    }

    /// The apply is the first that is set going, and is on the wire before anything else is: what its turn does besides, files,
    /// a look at the processes, may take a host that is short of memory a while.
    async fn turn(&mut self, event: Event) -> bool {
        let now = self.outside.clock.now();
        let due_at = std::mem::replace(&mut self.due_at, Duration::MAX);
        if let Some(late) = now.uptime.checked_sub(due_at) {
            self.state.counted.late(late);
        }
        if let Event::Scrape(scrape) = event {
            let text = self.expose(scrape.format, now);
            scrape.answer(text);
            return false;
        }
        self.learn_the_time();
        let mut effects = std::mem::take(&mut self.effects);
        self.state.apply_onto(event, now, &mut effects);
        for round in 0.. {
            self.look_whether_it_dies(&mut effects, now);
            for effect in effects.drain(..) {
                if matches!(effect, Effect::Exit) {
                    return true;
                }
                let is_apply = matches!(effect, Effect::Apply(_));
                self.perform(effect, now.uptime);
                if is_apply {
                    tokio::task::yield_now().await;
                }
            }
            if round == MAX_ROUNDS || !self.take_readings(now, &mut effects) {
                break;
            }
        }
        self.effects = effects;
        if !self.state.kubelet.is_suspect() {
            self.gauge = None;
        }
        while self.tasks.try_join_next().is_some() {}
        // What is known already, the end of a process perhaps, is told before anything is written.
        if self.known.is_empty() {
            self.write();
        }
        let took = self.outside.clock.now().uptime.saturating_sub(now.uptime);
        self.state.counted.turned(took);
        false
    }

    /// Takes in what was read meanwhile, all at once: each turn of its own would judge everything anew. `true` if there was
    /// anything. What may be the end of a process or the beginning of one has a turn of its own, and waits for the queue.
    fn take_readings(&mut self, now: Now, effects: &mut Vec<Effect>) -> bool {
        let (mut any, mut are_quiet) = (false, true);
        while self.events.is_empty()
            && let Some(event) = self.known.pop_front_if(|event| event.is_reading())
        {
            are_quiet &= self.state.is_quiet(&event);
            self.state.take(event, now, effects);
            any = true;
        }
        if any {
            self.state.go_on(are_quiet, now, effects);
        }
        any
    }

    /// Waits for what comes first. The queue goes before the pidfd: a job that systemd announced before it ended the
    /// process must be known when the process is gone.
    async fn next(&mut self) -> Event {
        if !self.known.is_empty()
            && let Some(event) = self
                .events
                .try_recv()
                .ok()
                .or_else(|| self.known.pop_front())
        {
            return event;
        }
        let now = self.outside.clock.now();
        self.due_at = self.state.next_deadline(now);
        let probe_ends = self.probing.map(|(_, started)| started + PROBE_TIMEOUT);
        if let Err(e) = self
            .alarm
            .set(probe_ends.map_or(self.due_at, |at| at.min(self.due_at)))
        {
            // Only a time beyond the kernel's years could be refused; the watchdog would end a loop that sleeps on.
            warn!(error = %e, "the timer cannot be set");
        }
        let gone = runtime::gone(self.watched.as_ref());
        let runtime_gone = runtime::gone(self.runtime.as_ref());
        let event = tokio::select! {
            biased;
            Some(event) = self.events.recv() => event,
            pid = gone => Event::Gone(pid),
            pid = runtime_gone => Event::Observed(Reading::RuntimeGone(pid)),
            probe = self.healthz.probe() => self.probed(probe),
            () = self.alarm.rings() => self.rung(probe_ends),
            // Last: nobody who looks on delays what he looks at.
            Some(scrape) = self.scrapes.recv() => Event::Scrape(scrape),
        };
        if matches!(&event, Event::Gone(pid) if self.watched.as_ref().is_some_and(|w| w.process.pid == *pid))
        {
            self.watched = None;
        }
        if matches!(&event, Event::Observed(Reading::RuntimeGone(pid)) if self.runtime.as_ref().is_some_and(|w| w.process.pid == *pid))
        {
            self.runtime = None;
        }
        event
    }
}

/// Has the loop stop at that signal. The loop itself waits for few things: at each turn it looks at all of them.
async fn stop_at(mut signal: Signal, events: mpsc::Sender<Event>) {
    if signal.recv().await.is_some() {
        let _ = events.send(Event::Stop).await; // it may have stopped already
    }
}

#[cfg(test)]
mod tests;
