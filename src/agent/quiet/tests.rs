//! Short turns against whole ones: two agents are told the same, and one of them is not allowed a short turn.

use std::collections::VecDeque;

use fastrand::Rng;
use jiff::Timestamp;

use super::*;
use crate::{
    checks::{
        Question, Reading,
        kernel::state::KernelState,
        kubelet::{Found, Process},
        lease::{Sockets, Unread},
        limits,
        memory::{self, sample::Level},
    },
    cluster::{api::NodeView, events::Notice, identity::Identity, watch::NodeEvent},
    config::Settings,
    health::{ConditionType, news::Pace},
    helper::{
        fork::Forked,
        protocol::{Heard, RuntimeAnswer, RuntimeStatus},
        storage::StorageAnswer,
    },
    host::helper::KubeletFacts,
    pause::Pause,
};

fn at(millis: u64) -> Now {
    Now {
        uptime: Duration::from_hours(1) + Duration::from_millis(millis),
        wall: Timestamp::from_millisecond(1_800_000_000_000 + i64::try_from(millis).unwrap())
            .unwrap(),
    }
}

/// What may happen, made as often as it is needed.
type Happening = Box<dyn Fn() -> Event>;

/// A host of 8 GiB. At 570 s something begins to take all of it: seconds later a hint says so, and nothing else does.
fn memory_at(millis: u64) -> memory::Sample {
    let taken = millis.saturating_sub(570_000) << 19;
    let level = Level {
        total: 8 << 30,
        available: (6_u64 << 30).saturating_sub(taken).max(1 << 24),
        swap_total: Some(0),
        swap_free: Some(0),
        ..Level::default()
    };
    memory::Sample {
        at: at(millis).uptime,
        level,
        ..memory::Sample::default()
    }
}

struct Both {
    short: State,
    whole: State,
    /// What will be known so soon (milliseconds).
    coming: VecDeque<(u64, Happening)>,
    rng: Rng,
    pid: i32,
    shorts: usize,
    turns: usize,
}

impl Both {
    fn new(seed: u64) -> Self {
        let state = || {
            let watchdog = Some(Duration::from_secs(5));
            State::new(Settings::default(), "n1", None, watchdog, at(0))
        };
        Self {
            short: state(),
            whole: state(),
            coming: VecDeque::new(),
            rng: Rng::with_seed(seed),
            pid: 100,
            shorts: 0,
            turns: 0,
        }
    }

    fn tell(&mut self, millis: u64, happening: &dyn Fn() -> Event) {
        let (now, event) = (at(millis), happening());
        let what = format!("{event:?} at {millis} ms");
        let (before, is_quiet) = (self.short.rests_until, self.short.is_quiet(&event));
        let effects = self.short.apply(event, now);
        let whole = self.whole.apply(happening(), now);
        self.whole.rests_until = Duration::ZERO;
        assert_eq!(effects, whole, "{what}");
        self.turns += 1;
        let was_short =
            is_quiet && now.uptime + BEAT_SLACK < before && before == self.short.rests_until;
        self.shorts += usize::from(was_short);
        for effect in effects {
            self.answer(millis, effect);
        }
    }

    fn later(&mut self, millis: u64, happening: impl Fn() -> Event + 'static) {
        let place = self.coming.partition_point(|(at, _)| *at <= millis);
        self.coming.insert(place, (millis, Box::new(happening)));
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(..many) == 0
    }

    fn answer(&mut self, millis: u64, effect: Effect) {
        match effect {
            Effect::ReadState(process) => {
                let state = if self.one_in(50) { 'D' } else { 'S' };
                self.later(millis, move || Event::ProcessState(process.pid, state));
            }
            Effect::Probe(pid, _) => {
                let probe = match self.rng.u32(..200) {
                    0 => Probe::Timeout,
                    1 => Probe::Status(500),
                    2 => Probe::Refused,
                    _ => Probe::Ok,
                };
                let started = at(millis).uptime;
                self.later(millis + 1, move || Event::Probed {
                    pid,
                    started,
                    probe: probe.clone(),
                });
            }
            Effect::Look(_) => {
                let process = Process {
                    pid: self.pid,
                    started: at(millis).uptime,
                };
                self.later(millis, move || Event::Looked(Found::One(process.clone())));
            }
            Effect::AskFacts(pid) => self.later(millis + 2, move || {
                let facts = KubeletFacts::answering(pid);
                Event::Facts(pid, Ok(facts))
            }),
            Effect::LookForPackages => {
                let manager = self.one_in(4).then_some("dpkg");
                self.later(millis, move || Event::Packages(manager));
            }
            Effect::Apply(apply) => {
                let view = || NodeView {
                    uid: "u1".to_owned(),
                    version: "1".to_owned(),
                    ..NodeView::default()
                };
                self.later(millis + 5, move || {
                    Event::Applied(apply.attempt, Ok(view()))
                });
            }
            Effect::Ask(id, question) => self.ask(millis, id, &question),
            _ => {}
        }
    }

    fn ask(&mut self, millis: u64, id: &'static str, question: &Question) {
        let is_bad = self.one_in(60);
        let reading: Box<dyn Fn() -> Reading> = match question {
            Question::Limits => Box::new(move || limits_read(is_bad)),
            Question::Fork => Box::new(|| Reading::Fork(Ok(Forked::Refused))),
            Question::KernelState(_) => Box::new(move || {
                Reading::KernelState(KernelState {
                    tainted: Some(if is_bad { 1 << 7 } else { 0 }),
                    ..KernelState::default()
                })
            }),
            Question::Sockets => Box::new(move || {
                Reading::Sockets(Some(Sockets {
                    open: 1,
                    stalled: u32::from(is_bad),
                    sending_again: u32::from(is_bad),
                }))
            }),
            Question::Runtime(_) => Box::new(move || {
                let status = RuntimeStatus {
                    name: "containerd".to_owned(),
                    version: "1".to_owned(),
                    not_ready: is_bad.then(|| "not ready".to_owned()),
                    network_not_ready: None,
                };
                Reading::Runtime(Ok(RuntimeAnswer {
                    is_guess: false,
                    socket: "/run/containerd/containerd.sock".into(),
                    listener: None,
                    took_micros: 900,
                    io_full_percent: None,
                    heard: Heard::Status(status),
                }))
            }),
            Question::Storage => Box::new(|| {
                Reading::Storage(Ok(StorageAnswer {
                    file_systems: Vec::new(),
                    stuck: None,
                }))
            }),
            Question::Memory(_) => Box::new(move || Reading::Memory(Ok(memory_at(millis)))),
            Question::Clock => Box::new(|| Reading::Clock(None)),
            Question::Bootstrap(_) => Box::new(|| Reading::Bootstrap(Err("none".to_owned()))),
            Question::Boot(_) => Box::new(|| Reading::Boot(Err("none".to_owned()))),
            Question::Certificate => Box::new(|| Reading::Certificate(Ok(None))),
            Question::Lease => Box::new(|| Reading::Lease(Err(Unread::Failed))),
            Question::Pod(_) => Box::new(|| Reading::Pod(None)),
        };
        let known_at_once = matches!(
            question,
            Question::Limits | Question::KernelState(_) | Question::Sockets | Question::Memory(_)
        );
        let wait = if known_at_once { 0 } else { 3 };
        self.later(millis + wait, move || Event::Answered(id, reading()));
    }

    /// Something that nobody asked for.
    fn happen(&mut self, millis: u64) {
        match self.rng.u32(..4000) {
            0 => {
                let pid = self.pid;
                self.pid += 1;
                self.tell(millis, &|| Event::Gone(pid));
            }
            1 => {
                let end = Duration::from_mins(self.rng.u64(1..5));
                self.tell(millis, &|| {
                    let longest = Duration::from_hours(24);
                    let pause = Pause::new(at(millis).wall, end, longest, None, None).unwrap();
                    Event::Pause(Ok(Some(pause)))
                });
            }
            2 => self.tell(millis, &|| Event::Pause(Ok(None))),
            3 => {
                let notice = || Notice {
                    warning: false,
                    reason: "Test".to_owned(),
                    action: "Observe",
                    note: "something".to_owned(),
                    about: String::new(),
                    pace: Pace::Ordinary,
                };
                self.short.events.record(notice(), at(millis));
                self.whole.events.record(notice(), at(millis));
                self.tell(millis, &|| Event::WatchOpened(1));
            }
            _ => {}
        }
    }

    /// Until that time.
    fn live(&mut self, millis: u64) {
        let mut clock = 0;
        while clock < millis {
            let deadline = self.short.next_deadline(at(clock));
            let whole = self.whole.next_deadline(at(clock));
            assert!(deadline <= whole, "{deadline:?} is after {whole:?}");
            let tick = deadline
                .saturating_sub(at(0).uptime)
                .as_nanos()
                .div_ceil(1_000_000);
            let tick = u64::try_from(tick).unwrap().max(clock);
            match self.coming.front() {
                Some((due, _)) if *due <= tick => {
                    let (due, happening) = self.coming.pop_front().unwrap();
                    clock = clock.max(due);
                    self.tell(clock, &*happening);
                }
                _ => {
                    clock = tick;
                    self.tell(clock, &|| Event::Tick);
                }
            }
            self.happen(clock);
        }
    }
}

#[test]
fn a_short_turn_comes_to_what_a_whole_one_would() {
    let (mut shorts, mut turns, mut hints) = (0, 0, 0);
    for seed in 0..6 {
        let mut both = Both::new(seed);
        both.tell(0, &|| Event::Identity(Ok(Identity::Own("/k".into()))));
        both.tell(0, &|| Event::WatchOpened(1));
        let view = || NodeView {
            uid: "u1".to_owned(),
            version: "1".to_owned(),
            ..NodeView::default()
        };
        both.tell(0, &|| Event::Node(NodeEvent::Seen(view())));
        both.live(10 * 60 * 1000);
        let hint = ConditionType::MemoryExhaustionImminent;
        let shown = both.short.health.get(hint).verdict().map(|v| v.reason);
        hints += u32::from(shown == Some(Reason::MemoryRunsOut));
        shorts += both.shorts;
        turns += both.turns;
    }
    // Whoever stands down in that moment tells it as unknown.
    assert!(hints >= 3, "{hints} told of the memory");
    assert!(shorts > turns / 3, "{shorts} of {turns} were short");
}

fn limits_read(is_bad: bool) -> Reading {
    let now = if is_bad { 990 } else { 10 };
    let used = Some(limits::Used { now, limit: 1000 });
    Reading::Limits(limits::Sample {
        files: used,
        pids: used,
        ..limits::Sample::default()
    })
}
