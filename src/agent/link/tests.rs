//! Hours of each failure of the API, played to the whole state: requests and journal lines are counted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

use crate::{
    agent::{Effect, Event, State},
    checks::kubelet::{Found, Probe, Process, Sign, Unit},
    clock::Now,
    cluster::{
        api::{ApiError, NodeView},
        gate::RequestKind,
        identity::{Identity, IdentityError, Terms, Validity},
        watch::{End, NodeEvent},
    },
    config::Settings,
    host::{helper::KubeletFacts, systemd::BusEvent},
};

const PID: i32 = 100;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

fn at(millis: u64) -> Now {
    let wall = 1_800_000_000_000 + i64::try_from(millis).unwrap();
    Now {
        uptime: Duration::from_hours(1) + Duration::from_millis(millis),
        wall: Timestamp::from_millisecond(wall).unwrap(),
    }
}

/// Which requests the API server fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Apply,
    Watch,
    /// Each watch breaks off as soon as it is open.
    WatchBreaks,
}

/// An API server, and an agent whose requests it counts.
struct World {
    state: State,
    now: u64,
    /// What will happen, and when.
    ahead: BTreeMap<(u64, u64), Event>,
    serial: u64,
    fault: Option<(ApiError, Part)>,
    requests: Vec<u64>,
    told: Vec<(u64, String)>,
    watch: Option<u64>,
    /// What each look at the credential says, if it says anything new.
    terms: Option<Terms>,
    looks: Vec<u64>,
}

impl World {
    /// A healthy kubelet of a node, its condition published, its watch open.
    fn settled(node: &str) -> Self {
        let mut world = Self {
            state: State::new(Settings::default(), node, None, None, at(0)),
            now: 0,
            ahead: BTreeMap::new(),
            serial: 0,
            fault: None,
            requests: Vec::new(),
            told: Vec::new(),
            watch: None,
            terms: None,
            looks: Vec::new(),
        };
        let process = Process {
            pid: PID,
            started: at(0).uptime,
        };
        let facts = KubeletFacts::answering(PID);
        world.later(0, Event::Looked(Found::One(process)));
        world.later(1, Event::Facts(PID, Ok(facts)));
        world.run_until(10_000);
        assert_eq!(world.told.len(), 1, "settled");
        world
    }

    fn later(&mut self, after: u64, event: Event) {
        self.serial += 1;
        self.ahead.insert((self.now + after, self.serial), event);
    }

    fn crash(&mut self) {
        self.later(0, Event::Gone(PID));
        let unit = Unit {
            load_state: "loaded".to_owned(),
            active_state: "activating".to_owned(),
            sub_state: "auto-restart".to_owned(),
            exec_main_pid: 100,
            exec_main_code: 2,
            exec_main_status: 9,
            result: "signal".to_owned(),
            ever_started: true,
            ..Unit::default()
        };
        self.later(2, Event::Bus(BusEvent::Sign(Sign::Unit(unit))));
    }

    /// From now on the API server fails so; the watch that is open breaks off, unless it is only the writes.
    fn begin(&mut self, error: &ApiError, part: Part) {
        self.fault = Some((error.clone(), part));
        self.requests.clear();
        if part != Part::Apply
            && let Some(number) = self.watch.take()
        {
            let reset = ApiError::Network("connection reset".to_owned());
            let end = End::Broke(reset, Some("7".to_owned()));
            self.later(0, Event::WatchEnded(number, end));
        }
    }

    fn run_until(&mut self, end: u64) {
        loop {
            let deadline = self.state.next_deadline(at(self.now));
            let deadline = deadline.saturating_sub(at(0).uptime);
            let deadline = u64::try_from(deadline.as_millis()).unwrap() + 1;
            let (next, event) = match self.ahead.first_key_value() {
                Some(((when, _), _)) if *when <= deadline => {
                    let ((when, _), event) = self.ahead.pop_first().unwrap();
                    (when, event)
                }
                _ => (deadline, Event::Tick),
            };
            if next > end {
                if !matches!(event, Event::Tick) {
                    self.serial += 1;
                    self.ahead.insert((next, self.serial), event);
                }
                self.now = end;
                return;
            }
            self.now = next.max(self.now);
            for effect in self.state.apply(event, at(self.now)) {
                self.perform(effect);
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::FindIdentity => {
                self.looks.push(self.now);
                match self.terms {
                    Some(terms) => self.later(3, Event::Terms(terms)),
                    None => self.later(3, Event::Identity(Ok(Identity::Own("/k".into())))),
                }
            }
            Effect::Probe(pid, _) => {
                let started = at(self.now).uptime;
                let probe = Probe::Ok;
                self.later(
                    1,
                    Event::Probed {
                        pid,
                        started,
                        probe,
                    },
                );
            }
            Effect::Disconnect => {
                self.watch = None;
                self.ahead.retain(|_, event| {
                    !matches!(
                        event,
                        Event::Applied(..)
                            | Event::WatchOpened(_)
                            | Event::WatchEnded(..)
                            | Event::Read(_)
                    )
                });
            }
            Effect::Apply(apply) => {
                let answer = self.answer(Part::Apply);
                if answer.is_ok() {
                    let reason = apply.conditions[0].reason.clone();
                    self.told.push((self.now, reason));
                }
                let after = took(answer.as_ref().err());
                let answer = answer.map(|()| view());
                self.later(after, Event::Applied(apply.attempt, answer));
            }
            Effect::ReadNode => {
                let answer = self.answer(Part::Watch);
                let after = took(answer.as_ref().err());
                let answer = answer.map(|()| NodeEvent::Seen(view()));
                self.later(after, Event::Read(answer));
            }
            Effect::WatchNode(number, version) => self.watch(number, version.is_none()),
            _ => {}
        }
    }

    fn watch(&mut self, number: u64, lists: bool) {
        self.watch = None;
        for step in 0..=u64::from(lists) {
            if let Err(error) = self.answer(Part::Watch) {
                let after = took(Some(&error));
                return self.later(step + after, Event::WatchEnded(number, End::Failed(error)));
            }
            self.later(step + 1, Event::WatchOpened(number));
            if lists && step == 0 {
                self.later(1, Event::Node(NodeEvent::Seen(view())));
            }
        }
        if let Some((error, Part::WatchBreaks)) = &self.fault {
            let end = End::Broke(error.clone(), Some("7".to_owned()));
            return self.later(5, Event::WatchEnded(number, end));
        }
        self.watch = Some(number);
    }

    /// One request.
    fn answer(&mut self, of: Part) -> Result<(), ApiError> {
        self.requests.push(self.now);
        match &self.fault {
            Some((error, part)) if *part == Part::All || *part == of => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn requests_between(&self, from: u64, to: u64) -> usize {
        let within = |when: &&u64| (from..to).contains(*when);
        self.requests.iter().filter(within).count()
    }
}

fn took(error: Option<&ApiError>) -> u64 {
    match error {
        Some(ApiError::Timeout) => 5000,
        _ => 5,
    }
}

fn view() -> NodeView {
    NodeView {
        uid: "u1".to_owned(),
        version: "7".to_owned(),
        ..NodeView::default()
    }
}

fn failures() -> Vec<ApiError> {
    let said = || "said".to_owned();
    let server = |code, secs: Option<u64>| ApiError::Server {
        code,
        message: said(),
        retry_after: secs.map(Duration::from_secs),
    };
    let refused = |code| ApiError::Refused {
        code,
        message: said(),
    };
    vec![
        ApiError::Network(said()),
        ApiError::Timeout,
        ApiError::Unauthorized,
        ApiError::Forbidden(said()),
        ApiError::NotFound,
        ApiError::Conflict(said()),
        ApiError::Expired(said()),
        ApiError::TooMany(None),
        ApiError::TooMany(Some(Duration::ZERO)),
        ApiError::TooMany(Some(Duration::from_secs(20))),
        server(500, None),
        server(503, Some(5)),
        server(504, None),
        refused(422),
        refused(400),
        ApiError::Nonsense(said()),
    ]
}

/// How long after the return the Node may still say the old thing.
fn told_within(error: &ApiError) -> u64 {
    let secs = match error {
        ApiError::Unauthorized | ApiError::Forbidden(_) => 120,
        ApiError::TooMany(Some(told))
        | ApiError::Server {
            retry_after: Some(told),
            ..
        } => 30 + told.as_secs(),
        _ => 30,
    };
    secs * 1000
}

/// Counts lines of the journal.
struct Lines(Arc<AtomicU32>);

impl<S: Subscriber> Layer<S> for Lines {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counting(work: impl FnOnce(&AtomicU32)) {
    let count = Arc::new(AtomicU32::new(0));
    let subscriber = tracing_subscriber::registry().with(Lines(count.clone()));
    tracing::subscriber::with_default(subscriber, || work(&count));
}

/// An hour of that failure, in which the kubelet dies, and the return.
fn play(node: &str, error: &ApiError, part: Part) {
    let what = format!("{node}, {error:?} to {part:?}");
    let mut world = World::settled(node);
    counting(|lines| {
        let begin = world.now;
        world.begin(error, part);
        world.run_until(begin + 1000);
        world.crash();
        world.run_until(begin + MINUTE);
        let first = world.requests_between(begin, begin + MINUTE);
        assert!(first <= 12, "{first} requests in the first minute: {what}");
        world.run_until(begin + HOUR);
        let rest = world.requests_between(begin + MINUTE, begin + HOUR);
        assert!(rest <= 5 * 59, "{rest} requests in 59 minutes: {what}");
        assert!(rest >= 11, "{rest} requests in 59 minutes: {what}");

        world.fault = None;
        let back = world.now;
        world.run_until(back + told_within(error));
        let crashes = world.told.iter().filter(|(_, why)| why == "KubeletCrashed");
        let told = crashes.map(|(when, _)| *when).collect::<Vec<_>>();
        let early = matches!(part, Part::Watch | Part::WatchBreaks);
        assert!(!told.is_empty(), "not told in time: {what}");
        if early {
            assert!(told[0] < begin + 1100, "late though writes worked: {what}");
        } else {
            assert_eq!(told.len(), 1, "{what}");
        }
        world.run_until(back + 5 * MINUTE);
        assert!(world.watch.is_some(), "no watch: {what}");
        assert!(world.state.link.gate.failure().is_none(), "{what}");
        let lines = lines.load(Ordering::Relaxed) - 2; // of the kubelet: its end, and what that means
        assert!(lines <= 6, "{lines} lines: {what}");
        assert!(
            lines >= 2 || part == Part::WatchBreaks,
            "{lines} lines: {what}"
        );
    });
}

#[test]
fn every_failure_of_the_api_stays_within_its_limits() {
    for error in failures() {
        for node in ["n1", "n2", "worker-17.eu"] {
            play(node, &error, Part::All);
        }
    }
}

#[test]
fn a_failure_of_the_writes_alone_stays_within_its_limits() {
    for error in failures() {
        play("n1", &error, Part::Apply);
    }
}

#[test]
fn a_failure_of_the_watch_alone_does_not_hold_the_writes_up() {
    for error in failures() {
        // Who knows us not, or has told us to wait, is asked for nothing else either.
        let told = matches!(
            error,
            ApiError::Unauthorized
                | ApiError::TooMany(_)
                | ApiError::Server {
                    retry_after: Some(_),
                    ..
                }
        );
        if !told {
            play("n1", &error, Part::Watch);
        }
    }
    play(
        "n1",
        &ApiError::Network("reset".to_owned()),
        Part::WatchBreaks,
    );
}

#[test]
fn a_conflict_costs_one_reading_and_one_retry() {
    let mut world = World::settled("n1");
    world.begin(&ApiError::Conflict("the uid".to_owned()), Part::Apply);
    world.crash();
    let begin = world.now;
    world.run_until(begin + 10); // refused once
    world.fault = None;
    world.run_until(begin + 100);
    let (when, reason) = world.told.last().unwrap();
    assert_eq!(reason, "KubeletCrashed");
    assert!(*when <= begin + 50, "{} ms later", when - begin);
    assert_eq!(world.requests.len(), 3, "apply, reading, apply");
}

#[test]
fn an_api_that_comes_and_goes_for_an_hour_is_six_lines() {
    let mut world = World::settled("n1");
    counting(|lines| {
        let begin = world.now;
        let errors = failures();
        for turn in 0..80 {
            world.begin(&errors[turn % errors.len()], Part::All);
            world.run_until(world.now + 30_000);
            world.fault = None;
            world.run_until(world.now + 15_000);
        }
        let requests = world.requests_between(begin, world.now);
        assert!(requests <= 12 + 59 * 8, "{requests} requests");
        let lines = lines.load(Ordering::Relaxed);
        assert!(lines <= 6, "{lines} lines");
    });
}

/// What users of other agents lost disks to: an API that fails for an hour, and an agent that says so each time.
#[test]
fn no_log_storm() {
    let by_turns = failures();
    // Of the kubelet there are two: its end, and what that means.
    let alone = by_turns.iter().map(|one| (std::slice::from_ref(one), 6));
    for (failures, most) in alone.chain([(by_turns.as_slice(), 6 + 2)]) {
        let mut world = World::settled("n1");
        counting(|lines| {
            let begin = world.now;
            for (turn, error) in (0..360).zip(failures.iter().cycle()) {
                world.begin(error, Part::All);
                if turn == 1 {
                    world.crash();
                }
                world.run_until(begin + (turn + 1) * 10_000);
            }
            assert_eq!(world.now, begin + HOUR);
            world.fault = None;
            world.run_until(begin + HOUR + 10 * MINUTE);
            let lines = lines.load(Ordering::Relaxed);
            assert!((4..=most).contains(&lines), "{lines} lines: {failures:?}");
        });
    }
}

#[test]
fn hosts_of_one_name_wait_by_their_nodes_names() {
    let wait = |node: &str| {
        let mut settings = Settings::default();
        settings.node.name = Some(node.to_owned());
        let mut state = State::new(settings, "localhost", None, None, at(0));
        let gate = &mut state.link.gate;
        gate.answered(RequestKind::Watch, Err(&ApiError::Timeout), at(0));
        gate.opens_at(RequestKind::Watch)
    };
    assert_eq!(wait("n1"), wait("n1"));
    assert_ne!(wait("n1"), wait("n2"));
}

#[test]
fn the_retries_of_a_fleet_spread() {
    // A thousand nodes lose the API server in the same moment; ten minutes later no second has more than its share.
    let mut seconds = BTreeMap::<u64, u32>::new();
    for node in 0..1000 {
        let mut world = World::settled(&format!("n{node}"));
        let begin = world.now;
        world.begin(&ApiError::Network("refused".to_owned()), Part::All);
        world.run_until(begin + 3 * MINUTE);
        for when in world
            .requests
            .iter()
            .filter(|when| **when > begin + 2 * MINUTE)
        {
            *seconds.entry((when - begin) / 1000).or_default() += 1;
        }
    }
    let most = seconds.values().max().unwrap();
    assert!(*most <= 120, "{most} of 1000 in one second");
}

#[test]
fn a_credential_is_looked_at_again_while_it_serves() {
    let after = Duration::from_mins(1);
    let end = |minutes: u64| at(minutes * MINUTE).wall;
    for (terms, looks) in [
        (Terms::Files(after, None), 59..=60),
        (Terms::Program(None), 0..=0),
        // Each look says the same: what is over is asked for each minute.
        (Terms::Program(Some(end(30))), 30..=33),
        (Terms::Program(Some(end(90))), 0..=0),
    ] {
        let mut world = World::settled("n1");
        world.terms = Some(terms);
        world.looks.clear();
        world.later(0, Event::Terms(terms));
        world.run_until(HOUR);
        let seen = world.looks.len();
        assert!(looks.contains(&seen), "{seen} looks in an hour: {terms:?}");
        assert!(world.watch.is_some() && world.requests.len() <= 20);
    }
}

#[test]
fn what_cannot_be_looked_at_again_serves_on_and_is_said_once() {
    let mut world = World::settled("n1");
    counting(|lines| {
        for minute in 1..=5 {
            let slow = IdentityError::Slow { path: "/k".into() };
            world.later(minute * MINUTE, Event::Identity(Err(slow)));
        }
        world.run_until(6 * MINUTE);
        assert_eq!(lines.load(Ordering::Relaxed), 1);
        world.crash();
        world.run_until(6 * MINUTE + 100);
        assert_eq!(world.told.last().unwrap().1, "KubeletCrashed");
    });
}

#[test]
fn a_certificate_whose_end_is_near_is_said_once() {
    let now = at(0).wall.as_second();
    let (day, year) = (24 * 3600, 365 * 24 * 3600);
    let said = |validity: Validity| {
        let mut world = World::settled("n1");
        let terms = Terms::Files(Duration::from_mins(1), Some(validity));
        world.terms = Some(terms);
        let mut said = 0;
        counting(|lines| {
            world.later(0, Event::Terms(terms));
            world.run_until(10 * MINUTE);
            said = lines.load(Ordering::Relaxed);
        });
        said
    };
    let from = now - year;
    for (until, lines) in [(now + 8 * day, 0), (now + 6 * day, 1), (now - day, 1)] {
        assert_eq!(said(Validity { from, until }), lines, "{}", until - now);
    }
    // One of an hour is not near its end from its first minute on.
    let (from, until) = (now - 600, now + 3000);
    assert_eq!(said(Validity { from, until }), 0);
}
