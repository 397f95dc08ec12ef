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
mod link;
mod peer;
mod publishing;
mod reading;
mod runtime;
mod sending;
mod standing;
mod state;
mod telling;
#[cfg(test)]
mod tests;
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
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tracing::{debug, warn};

pub use event::{Effect, Event};
pub use exposing::SOCKET_NAME;
pub use state::State;

use crate::{
    checks::{
        Reading,
        kubelet::{Found, PROBE_TIMEOUT, Probe, Process},
    },
    clock::{Alarm, Clock},
    cluster::{api::Api, identity::Known},
    config::Settings,
    desired::Condition,
    helper::{
        boot::{BootNote, BootRequest},
        protocol::ConfigRequest,
    },
    host::{
        files::{Folder, Root, Stamp},
        helper::HelperClient,
        kubelet::Healthz,
        network,
        notify::Notifier,
        packages::LockFiles,
        process::{self, Watched, Where},
        sample::Limits,
        scrapes::Scrape,
        sockets::SocketTable,
        strain::Gauge,
        systemd,
    },
    ledger,
    pause::{self, Pause},
    status::StatusFile,
};

/// Events that wait for the loop; their senders wait when it is full.
const QUEUE: usize = 64;

/// How long systemd's word that the host is going down may come after its signal to end.
const WORD_WITHIN: Duration = Duration::from_millis(100);
/// How long the helper may take to keep it.
const KEPT_WITHIN: Duration = Duration::from_secs(1);

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
    /// The units that systemd is asked about beside the kubelet's.
    beside: watch::Sender<Vec<String>>,
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
    terminate: Signal,
    interrupt: Signal,
}

/// What waits to be written, while one write is under way: the newest of each kind.
#[derive(Debug, Default)]
struct Disk {
    busy: Option<tokio::task::JoinHandle<()>>,
    ledger: Option<(String, Vec<Condition>)>,
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
        let beside = watch::Sender::new(runtime::units(&settings));
        Ok(Self {
            state,
            settings,
            healthz: Healthz::default(),
            probing: None,
            events,
            sender,
            tasks: JoinSet::new(),
            alarm: Alarm::new()?,
            watched: None,
            gauge: None,
            runtime: None,
            runtime_state: None,
            beside,
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
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            outside: Arc::new(outside),
        })
    }

    /// Turns until it is asked to stop.
    pub async fn run(mut self) {
        if self.settings.kubelet.pid_file.is_none() {
            self.watch_unit();
        }
        self.watch_kernel();
        self.watch_clock();
        let (found, outside) = (self.lock_files.clone(), self.outside.clone());
        tokio::task::spawn_blocking(move || found.set(LockFiles::find(&outside.root)));
        self.expose_on_socket();
        self.outside.notifier.ready();
        loop {
            let event = self.next().await;
            if self.turn(event) {
                self.outside.notifier.stopping();
                return self.last_words().await;
            }
        }
    }

    /// If the host is going down, that is kept for the next boot to know. systemd's word of it may come a moment after its
    /// signal to us.
    async fn last_words(&mut self) {
        let mut going_down = self.state.standing.is_going_down();
        let word = async {
            while let Some(event) = self.events.recv().await {
                if matches!(event, Event::Bus(systemd::BusEvent::ShuttingDown(true))) {
                    return true;
                }
            }
            false
        };
        if !going_down {
            going_down = timeout(WORD_WITHIN, word).await.unwrap_or(false);
        }
        if going_down {
            let note = Some(BootNote::GoingDown);
            let kept = self.outside.helper.boot(BootRequest { note });
            // systemd waits five seconds for us, and for the helper until we are gone.
            if let Err(error) = timeout(KEPT_WITHIN, kept).await {
                debug!(%error, "that the host is going down could not be kept");
            }
        }
    }

    fn turn(&mut self, event: Event) -> bool {
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
        for effect in self.state.apply(event, now) {
            if effect == Effect::Exit {
                return true;
            }
            self.perform(effect, now.uptime);
        }
        if !self.state.kubelet.is_suspect() {
            self.gauge = None;
        }
        while self.tasks.try_join_next().is_some() {}
        self.write();
        let took = self.outside.clock.now().uptime.saturating_sub(now.uptime);
        self.state.counted.turned(took);
        false
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
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
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

    fn perform(&mut self, effect: Effect, uptime: Duration) {
        match effect {
            Effect::Apply(apply) => self.apply(apply),
            Effect::Look(group) => self.look(group),
            Effect::Watch(process) => self.watch(process),
            Effect::Probe(pid, url) => self.probe(pid, &url, uptime),
            Effect::ReadState(process) => self.read_state(&process),
            Effect::ReadStrain(process, group) => self.read_strain(process, &group, uptime),
            Effect::ReadRuntimeState => self.read_runtime_state(),
            Effect::WatchRuntime(process) => self.watch_runtime(process),
            Effect::FollowUnit(unit) => self.follow_unit(unit),
            Effect::AskFacts(pid) => {
                let helper = self.outside.helper.clone();
                self.spawn(async move { Event::Facts(pid, helper.kubelet(pid).await) });
            }
            Effect::Sample(pid) => self.sample(pid),
            Effect::AskWords(run) => self.ask_words(run),
            Effect::Ask(check, question) => self.ask(check, question),
            Effect::FollowConfig(question, request) => self.follow_config(question, *request),
            Effect::LookForPause => self.look_for_pause(),
            Effect::LookForPackages => {
                let files = self.lock_files.get();
                let manager = files.and_then(|files| files.held(&self.outside.root));
                self.known.push_back(Event::Packages(manager));
            }
            Effect::FindIdentity(pid) => self.find_identity(pid),
            Effect::Disconnect => self.disconnect(),
            Effect::Connect(node) => self.connect(&node),
            Effect::ReadNode => self.read_node(),
            Effect::WatchNode(number, version) => self.watch_node(number, version),
            Effect::Taint(task) => self.taint(*task),
            Effect::TellEvent(task) => self.tell_event(task),
            Effect::SaveLedger(node, conditions) => self.disk.ledger = Some((node, conditions)),
            Effect::WriteStatus(mut status) => {
                status.pid = Some(std::process::id());
                self.disk.status = Some(status);
            }
            Effect::WriteMetrics => self.expose_as_file(),
            Effect::NotifyStatus(line) => self.outside.notifier.status(&line),
            Effect::NotifyWatchdog => self.outside.notifier.watchdog(),
            Effect::Exit => {}
        }
    }

    fn spawn(&mut self, work: impl Future<Output = Event> + Send + 'static) -> AbortHandle {
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            // The loop has ended: nobody wants the result.
            sender.send(work.await).await.ok();
        })
    }

    fn watch_unit(&mut self) {
        let (sender, mut events) = mpsc::channel(QUEUE);
        let units = self.settings.kubelet.units();
        self.tasks
            .spawn(systemd::watch(units, self.beside.subscribe(), sender));
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            while let Some(event) = events.recv().await {
                if sender.send(Event::Bus(event)).await.is_err() {
                    return;
                }
            }
        });
    }

    /// One question is open at a time: a new one takes the place of the last.
    fn follow_config(&mut self, question: u64, mut request: ConfigRequest) {
        if let Some(last) = self.following_config.take() {
            last.abort();
        }
        let (helper, sender) = (self.outside.helper.clone(), self.sender.clone());
        let outside = self.outside.clone();
        self.following_config = Some(self.tasks.spawn(async move {
            // A table of routes may be long.
            let reading = tokio::task::spawn_blocking(move || network::read(&outside.root));
            request.network = reading.await.ok();
            let (answers_to, mut answers) = mpsc::channel(1);
            let forwarding = async {
                while let Some(answer) = answers.recv().await {
                    let event = Event::Config(question, Ok(answer));
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
            };
            let (ended, ()) = tokio::join!(helper.follow_config(request, answers_to), forwarding);
            if let Err(error) = ended {
                sender.send(Event::Config(question, Err(error))).await.ok();
            }
        }));
    }

    fn look(&mut self, group: String) {
        let place = match &self.settings.kubelet.pid_file {
            Some(path) => Where::PidFile(path.clone()),
            None => Where::ControlGroup(group),
        };
        let root = &self.outside.root;
        let found = process::find_kubelet(root, &place);
        let carried = match &found {
            Found::One(process) => Some((process.pid, process::carrier(root, process))),
            Found::None(_) | Found::Many(_) => None,
        };
        self.known.push_back(Event::Looked(found));
        let carried =
            carried.map(|(pid, carrier)| Event::Closer(event::Closer::Carried(pid, carrier)));
        self.known.extend(carried);
    }

    /// The folder is in memory.
    fn look_for_pause(&mut self) {
        let (root, dir) = (&self.outside.root, &self.outside.runtime_dir);
        if !self.runtime_folder.may_have_changed(root) {
            return;
        }
        let stamp = root.stamp(dir.join(pause::FILE_NAME));
        if self.pause_seen != stamp {
            self.pause_seen = stamp;
            let read = Pause::read(root, dir).map_err(|e| e.to_string());
            self.known.push_back(Event::Pause(read));
        }
    }

    fn watch(&mut self, process: Process) {
        let pid = process.pid;
        match Watched::open(&self.outside.root, process) {
            Ok(Some(watched)) => self.watched = Some(watched),
            Ok(None) => self.known.push_back(Event::Gone(pid)),
            // Its state is read each second all the same, which shows its end too, only later.
            Err(e) => {
                warn!(pid, error = %e, "the kubelet's pidfd cannot be had; its end will be seen up to a second late");
            }
        }
    }

    /// It ends within [`PROBE_TIMEOUT`].
    fn probe(&mut self, pid: i32, url: &str, started: Duration) {
        self.probing = Some((pid, started));
        self.healthz.start(url);
    }

    fn probed(&mut self, probe: Probe) -> Event {
        let Some((pid, started)) = self.probing.take() else {
            return Event::Tick; // none is under way, so none ends
        };
        debug!(pid, ?probe, "probed");
        Event::Probed {
            pid,
            started,
            probe,
        }
    }

    /// The alarm is also the deadline of the probe that is under way: a timer of tokio's would wake the loop once more.
    fn rung(&mut self, probe_ends: Option<Duration>) -> Event {
        let now = self.outside.clock.now();
        if probe_ends.is_some_and(|at| now.uptime >= at) {
            let probe = self.healthz.overdue();
            self.healthz.give_up();
            return self.probed(probe);
        }
        Event::Tick
    }

    fn read_state(&mut self, process: &Process) {
        let watched = self.watched.as_ref().filter(|w| w.process == *process);
        // Without a pidfd its row is looked up anew each time.
        let state = watched.map_or_else(
            || process::state(&self.outside.root, process),
            Watched::state,
        );
        let event = match state {
            Some(state) => Event::ProcessState(process.pid, state),
            None => Event::Gone(process.pid),
        };
        self.known.push_back(event);
    }

    fn read_strain(&mut self, process: Process, group: &str, uptime: Duration) {
        let pid = process.pid;
        self.gauge.take_if(|gauge| *gauge.process() != process);
        let root = &self.outside.root;
        let open = || Gauge::open(root, process, group);
        let strain = self.gauge.get_or_insert_with(open).read(uptime);
        self.known.push_back(Event::Strain(pid, strain));
    }

    /// One write at a time, on the blocking worker: the folder is in memory, but memory may be short.
    fn write(&mut self) {
        let nothing = self.disk.ledger.is_none()
            && self.disk.status.is_none()
            && self.disk.textfile.is_none();
        let busy = self
            .disk
            .busy
            .as_ref()
            .is_some_and(|write| !write.is_finished());
        if nothing || busy {
            return;
        }
        let outside = self.outside.clone();
        let (ledger, status) = (self.disk.ledger.take(), self.disk.status.take());
        let write_textfile = self.textfile_writer();
        self.disk.busy = Some(tokio::task::spawn_blocking(move || {
            let kept = ledger.map_or(Ok(()), |(node, conditions)| {
                outside.ledger.save(node, conditions)
            });
            let written = status.map_or(Ok(()), |status| {
                status.write(&outside.root, &outside.runtime_dir)
            });
            if let Err(e) = kept {
                warn!(error = %e, "the ledger could not be written");
            }
            if let Err(e) = written {
                warn!(error = %e, "the status file could not be written");
            }
            write_textfile();
        }));
    }
}
