//! What the agent knows, and the one place where that changes: [`State::apply`], which does no I/O.

use std::{collections::VecDeque, path::PathBuf, sync::Arc, time::Duration};

use tracing::info;

use super::{
    checking::Checking,
    closer::Looks,
    event::{Effect, Event},
    leaving::Leaving,
    link::Link,
    peer::Peer,
    reading::{Driven, driven},
    standing::Standing,
};
use crate::{
    checks::{
        kubelet::{Kubelet, Process, Sign, StrainLimits, Terms},
        lease::Sight,
    },
    clock::Now,
    cluster::{
        api::Ready, events::EventBook, gate::RequestKind, publisher::Publisher, taints::Tainter,
    },
    config::Settings,
    desired::Desired,
    health::Conditions,
    host::journal::Kind,
    ledger::Ledger,
    metrics::Counted,
    status::News,
};

/// How often a missing kubelet is looked for. (systemd's word brings the look forward.)
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the process's state is read.
pub(super) const STATE_EVERY: Duration = Duration::from_secs(1);
/// How often the status file is written though nothing changed.
const STATUS_EVERY: Duration = Duration::from_mins(1);

/// What is due within this time is done in the turn at hand: one wake-up a second serves everything that is periodic,
/// and each wake-up of an idle process costs some 90 µs of CPU.
pub(super) const SLACK: Duration = Duration::from_millis(100);
/// The turn that comes each second anyway takes along what is due before the next: so whatever is periodic comes to beat in
/// time, and wakes nobody by itself.
pub(super) const BEAT_SLACK: Duration = Duration::from_millis(900);

/// Everything the agent knows.
#[derive(Debug)]
pub struct State {
    pub(super) settings: Settings,
    pub(super) started: Now,
    hostname: String,
    /// `--hostname-override` of the kubelet, once it was read.
    pub(super) hostname_override: Option<String>,
    pub(super) kubelet: Kubelet,
    pub(super) kubelet_since: Now,
    /// The container runtime's process that is watched.
    pub(super) runtime: Option<Process>,
    pub(super) health: Conditions,
    pub(super) desired: Desired,
    pub(super) checking: Checking,
    pub(super) standing: Standing,
    pub(super) closer: Looks,
    /// The checks that the loop drives.
    pub(super) driven: Vec<Driven>,
    /// What the checks were told last of both ends of the kubelet's way to the API server.
    pub(super) sight: Sight,
    /// The Node's `Ready`, as it was seen last.
    pub(super) ready: Ready,
    pub(super) publisher: Option<Publisher>,
    pub(super) tainter: Tainter,
    pub(super) events: EventBook,
    /// Whether we stood down when that was told last.
    pub(super) stands_down: bool,
    pub(super) link: Link,
    pub(super) bus: Peer,
    pub(super) helper: Peer,
    /// The news of late, for `status`.
    pub(super) recent: VecDeque<News>,
    /// What the metrics count.
    pub(super) counted: Counted,
    /// Where the metrics are, once the socket is open.
    pub(super) metrics_socket: Option<PathBuf>,
    /// When the metrics' text file is due (uptime).
    pub(super) textfile_at: Duration,
    /// Bytes of memory that the kernel keeps for us, once that was asked for.
    pub(super) locked_bytes: Option<u64>,
    /// Whether the kernel calls us when tasks begin to wait for memory, once that was asked for.
    pub(super) stall_triggers: Option<bool>,
    /// Whether the rehearsal was set going.
    pub(super) is_rehearsed: bool,
    pub(super) probing: bool,
    pub(super) probe_at: Duration,
    pub(super) look_at: Duration,
    pub(super) process_state_at: Duration,
    pub(super) facts_at: Option<Duration>,
    pub(super) facts_refusal: Option<String>,
    pub(super) status_at: Duration,
    /// The UID of the Node whose conditions were taken back from the ledger, until the Node itself is seen.
    pub(super) past_of: Option<String>,
    /// Until when nothing is due that a short turn does not do (uptime).
    pub(super) rests_until: Duration,
    pub(super) watchdog: Option<(Duration, Duration)>,
    /// Set once the agent is stopped for good.
    pub(super) leaving: Option<Leaving>,
}

impl State {
    /// The state at start. `watchdog` is how often systemd wants to hear that the loop turns.
    pub fn new(
        settings: Settings,
        hostname: &str,
        ledger: Option<Ledger>,
        watchdog: Option<Duration>,
        now: Now,
    ) -> Self {
        let mut state = Self {
            kubelet: Kubelet::new(settings.kubelet.unit.clone())
                .with_limits(StrainLimits::new(&settings))
                .with(Terms::of(&settings)),
            kubelet_since: now,
            runtime: None,
            health: Conditions::new(settings.kubelet.healthy_for).turned_down(&settings.reasons),
            desired: Desired::new(settings.choice.clone()),
            // Both are made anew below, once the Node's name is known.
            tainter: Tainter::new(settings.taints.clone(), hostname),
            events: EventBook::new(hostname, settings.events.per_hour),
            stands_down: false,
            checking: Checking::default(),
            standing: Standing::new(settings.seconds("suppression", "max_pause_secs")),
            closer: Looks::default(),
            driven: driven(&settings),
            sight: Sight::default(),
            ready: Ready::default(),
            settings,
            started: now,
            hostname: hostname.to_ascii_lowercase(), // as the kubelet does
            hostname_override: None,
            publisher: None,
            link: Link::new(hostname),
            bus: Peer::new("the system bus", (Kind::BusLost, Kind::BusBack)),
            helper: Peer::new("the helper", (Kind::HelperUnavailable, Kind::HelperBack)),
            recent: VecDeque::new(),
            counted: Counted::default(),
            metrics_socket: None,
            textfile_at: Duration::ZERO,
            locked_bytes: None,
            stall_triggers: None,
            is_rehearsed: false,
            probing: false,
            probe_at: Duration::ZERO,
            look_at: Duration::ZERO,
            process_state_at: Duration::ZERO,
            facts_at: None,
            facts_refusal: None,
            status_at: Duration::ZERO,
            past_of: None,
            rests_until: Duration::ZERO,
            watchdog: watchdog.map(|every| (every, Duration::ZERO)),
            leaving: None,
        };
        if state.settings.kubelet.pid_file.is_some() {
            // systemd is not asked about a kubelet that it does not run.
            state.kubelet.apply(Sign::BusLost, now);
        }
        if let Some(ledger) = ledger {
            state.adopt(ledger, now);
        }
        let node = state.node_name();
        state.tell_about(&node);
        // The waits are spread by the Node's name: hosts of one image may all have the same.
        state.link.gate.spread_by(&node);
        // Without a bus and without a kubelet too: the files alone are worth a look.
        state.check_anew(now);
        state
    }

    /// How much memory is locked, for `status`.
    pub fn set_locked_bytes(&mut self, bytes: Option<u64>) {
        self.locked_bytes = bytes;
    }

    /// Our Node's name: configured, else the kubelet's own word, else the host's name.
    pub fn node_name(&self) -> String {
        self.settings
            .node
            .name
            .clone()
            .or_else(|| self.hostname_override.clone())
            .unwrap_or_else(|| self.hostname.clone())
    }

    /// Changes the state; says what to set going.
    pub fn apply(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.apply_onto(event, now, &mut effects);
        effects
    }

    /// The same, onto what is to be set going besides: the loop's place for it is kept from turn to turn.
    pub(super) fn apply_onto(&mut self, event: Event, now: Now, effects: &mut Vec<Effect>) {
        let is_quiet = self.is_quiet(&event);
        self.take(event, now, effects);
        self.go_on(is_quiet, now, effects);
    }

    /// Takes an event in. What it comes to is seen when [`State::go_on`] is called: after each event, or after several that are
    /// readings of one moment.
    pub(super) fn take(&mut self, event: Event, now: Now, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick => self.kubelet.tick(now),
            Event::Bus(event) => self.apply_bus(event, now),
            Event::Looked(found) => self.apply_looked(found, now, effects),
            Event::Gone(pid) => self.apply_gone(pid, now, effects),
            Event::Probed {
                pid,
                started,
                probe,
            } => self.apply_probed(pid, started, probe, now),
            Event::ProcessState(pid, state) => {
                self.kubelet.apply(Sign::ProcessState(pid, state), now);
            }
            Event::Dying(pid, is_dying) => self.kubelet.apply(Sign::Dying(pid, is_dying), now),
            Event::Closer(seen) => self.apply_closer(seen, now),
            Event::Strain(pid, strain) => self.kubelet.apply(Sign::Strain(pid, strain), now),
            Event::Facts(pid, facts) => self.apply_facts(pid, facts, now, effects),
            Event::Config(question, answer) => self.apply_config(question, answer, now),
            Event::Pause(pause) => self.standing.learn_pause(pause, now),
            Event::Packages(manager) => self.standing.learn_packages(manager, now),
            Event::Identity(result) => self.apply_identity(result, now, effects),
            Event::Terms(terms) => self.link.look_again(terms, now),
            Event::Node(event) => self.apply_node(event, now, effects),
            Event::Read(result) => self.apply_read(result, now, effects),
            Event::WatchOpened(number) => self.apply_watch_opened(number, now),
            Event::WatchEnded(number, end) => {
                self.apply_watch_ended(number, end, now, effects);
            }
            Event::Applied(attempt, result) => {
                self.apply_applied(attempt, &result, now, effects);
            }
            Event::Answered(id, reading) => self.take_answer(id, &reading, now, effects),
            Event::Observed(reading) => self.observe(&reading, now, effects),
            Event::Besides(told) => self.apply_besides(told, now, effects),
            Event::Scrape(_) => {} // the loop's other half answers
            Event::Stop => {
                info!(message_id = Kind::Stopped.id(), "stopping");
                effects.push(Effect::Exit);
            }
        }
    }

    /// A whole turn: judges what is known, and says what to set going.
    pub(super) fn settle(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.take_turns(now, effects);
        let stands_otherwise = self.settle_standing(now);
        let changed = self.judge(now, effects);
        if changed || stands_otherwise {
            self.tell(now, effects);
        }
        self.tell_news(now);
        if stands_otherwise || self.surroundings_changed() {
            self.status_at = now.uptime;
        }
        self.set_going(now, changed, effects);
    }

    /// Whether a program or a way that we depend on came or went since the last turn.
    fn surroundings_changed(&mut self) -> bool {
        let around = [
            self.bus.take_changed(),
            self.helper.take_changed(),
            self.link.take_changed(),
        ];
        around.contains(&true)
    }

    /// When to apply a [`Event::Tick`] though nothing happens (uptime); always later than `now`, so that a deadline that
    /// has passed without effect cannot make the loop spin.
    pub fn next_deadline(&self, now: Now) -> Duration {
        let soonest = now.uptime + Duration::from_millis(1);
        let ahead = |at: Option<Duration>| at.filter(|at| *at > now.uptime);
        let is_resting = now.uptime < self.rests_until;
        let mut next = if is_resting {
            self.rests_until
        } else {
            self.status_at
        };
        let mut also = |at: Option<Duration>| next = at.map_or(next, |at| at.min(next));
        if !is_resting {
            also(self.next_of_others(now));
            also(ahead(self.next_besides(now)));
        }
        also(self.watchdog.map(|(_, at)| at));
        also(ahead(self.next_turn()));
        if self.kubelet.process().is_none() {
            also(Some(self.look_at));
        } else {
            also(Some(self.process_state_at));
            also(self.facts_at);
            also((!self.probing && self.url().is_some()).then_some(self.probe_at));
        }
        next.max(soonest)
    }

    /// Until when what is due is done now (uptime).
    pub(super) fn soon(&self, now: Now) -> Duration {
        let beat = match self.kubelet.process() {
            Some(_) => self.process_state_at,
            None => self.look_at,
        };
        let is_beat = now.uptime + SLACK >= beat;
        now.uptime + if is_beat { BEAT_SLACK } else { SLACK }
    }

    /// Starts what is due. The apply comes first, once there is a connection to send it on: nothing else may stand
    /// between a fact and the Node.
    fn set_going(&mut self, now: Now, changed: bool, effects: &mut Vec<Effect>) {
        self.ask_the_api(now, effects);
        let soon_by_beat = self.soon(now);
        self.follow_process(now, effects);
        self.look_closer(now, effects);
        self.ask_about_config(now, effects);
        self.follow_packages(now, effects);
        if self.link.is_due(now) {
            effects.push(Effect::FindIdentity);
        }
        self.feed_watchdog(now, effects);
        self.write_metrics(now, effects);
        if changed || soon_by_beat >= self.status_at {
            self.status_at = now.uptime + STATUS_EVERY;
            effects.push(Effect::WriteStatus(Box::new(self.status(now))));
        }
    }

    /// The beat, or the look for a process; the probe.
    pub(super) fn follow_process(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let soon = now.uptime + SLACK;
        if let Some(process) = self.kubelet.process().cloned() {
            let mut is_beat = soon >= self.process_state_at;
            if !self.probing
                && soon >= self.probe_at
                && let Some(url) = self.url()
            {
                effects.push(Effect::Probe(process.pid, Arc::clone(url)));
                self.probing = true;
                is_beat = true; // else the two would wake the loop by turns
            }
            if self.facts_at.is_some_and(|at| now.uptime >= at) {
                effects.push(Effect::AskFacts(process.pid));
                self.facts_at = None;
            }
            if is_beat {
                self.process_state_at = now.uptime + STATE_EVERY;
                effects.push(Effect::LookForPause);
                effects.push(Effect::ReadRuntimeState);
                effects.push(Effect::ReadState(process.clone()));
            }
            if self.kubelet.take_strain_is_wanted() {
                effects.push(Effect::ReadStrain(process, self.control_group()));
            }
        } else if now.uptime >= self.look_at {
            self.look_at = now.uptime + LOOK_EVERY;
            effects.push(Effect::LookForPause);
            effects.push(Effect::ReadRuntimeState);
            effects.push(Effect::Look(self.control_group()));
        }
    }

    pub(super) fn feed_watchdog(&mut self, now: Now, effects: &mut Vec<Effect>) {
        // A little early is no harm to it.
        if let Some((every, at)) = &mut self.watchdog
            && now.uptime + BEAT_SLACK >= *at
        {
            *at = now.uptime + *every;
            effects.push(Effect::NotifyWatchdog);
        }
    }

    /// What the gate lets through: the apply first, then the watch.
    fn ask_the_api(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.link.is_connected()
            && self.link.gate.is_open(RequestKind::Apply, now)
            && let Some(apply) =
                (self.publisher.as_mut()).and_then(|p| p.next(self.link.time.of(now)))
        {
            self.link.gate.sent(RequestKind::Apply, now);
            let connection = effects
                .iter()
                .rposition(|e| matches!(e, Effect::Connect(_) | Effect::Disconnect));
            effects.insert(connection.map_or(0, |i| i + 1), Effect::Apply(apply));
        }
        self.send_besides(now, effects);
        effects.extend(self.link.next_reading(now));
        effects.extend(self.link.next_watch(now));
        self.link.speak(now);
    }
}
