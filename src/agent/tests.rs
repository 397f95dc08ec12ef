//! Histories of the whole agent, told as events; what it sets going is looked at, nothing is done.

use std::time::Duration;

use jiff::Timestamp;

use super::{Effect, Event, State};
use crate::{
    checks::{
        Reading,
        kubelet::{Found, Probe, Process, Sign, Strain, Unit},
    },
    clock::Now,
    cluster::{
        api::{ApiError, NodeView},
        identity::{Identity, IdentityError},
        publisher::Apply,
        watch::{End, NodeEvent},
    },
    config::Settings,
    desired::PublishedType,
    health::{ConditionType, Status, Stored},
    host::{
        helper::{ClientCertificate, HelperError, KubeletFacts},
        systemd::BusEvent,
    },
    kubelet::healthz::Healthz,
    status::ApiState,
};

const PID: i32 = 100;

fn at(millis: u64) -> Now {
    Now {
        uptime: Duration::from_hours(1) + Duration::from_millis(millis),
        wall: Timestamp::from_millisecond(1_800_000_000_000 + i64::try_from(millis).unwrap())
            .unwrap(),
    }
}

/// An agent and everything it has set going so far.
struct Story {
    state: State,
    effects: Vec<Effect>,
}

impl Story {
    fn new() -> Self {
        let state = State::new(Settings::default(), "N1", None, None, at(0));
        Self {
            state,
            effects: Vec::new(),
        }
    }

    fn tell(&mut self, millis: u64, event: Event) -> &mut Self {
        self.effects = self.state.apply(event, at(millis));
        if self.has(|e| *e == Effect::LookForPackages) {
            // The kernel answers in the same moment.
            let then = self.state.apply(Event::Packages(None), at(millis));
            self.effects.extend(then);
        }
        self
    }

    /// A healthy kubelet, its Node found, the first apply done.
    fn settled() -> Self {
        let mut story = Self::new();
        story.tell(0, Event::Identity(Ok(Identity::Own("/k".into()))));
        story.tell(0, Event::WatchOpened(1));
        story.tell(0, Event::Node(NodeEvent::Seen(view("u1", None))));
        story.kubelet(0, PID);
        story.answers(5);
        let apply = story.applied();
        assert_eq!(apply.conditions[0].status, Status::True);
        story.tell(6, Event::Applied(apply.attempt, Ok(view("u1", None))));
        story
    }

    fn kubelet(&mut self, millis: u64, pid: i32) {
        let process = Process {
            pid,
            started: at(millis).uptime,
        };
        self.tell(millis, Event::Looked(Found::One(process)));
        let facts = KubeletFacts::answering(pid);
        self.tell(millis, Event::Facts(pid, Ok(facts)));
    }

    /// The kubelet answers a probe.
    fn answers(&mut self, millis: u64) {
        let started = at(millis - 1).uptime;
        self.tell(
            millis,
            Event::Probed {
                pid: PID,
                started,
                probe: Probe::Ok,
            },
        );
    }

    fn crash(&mut self, millis: u64) -> &mut Self {
        self.tell(millis, Event::Gone(PID));
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
        self.tell(millis + 2, Event::Bus(BusEvent::Sign(Sign::Unit(unit))))
    }

    /// The apply that the last event set going: the first thing of all, once there is a connection.
    fn applied(&self) -> Apply {
        let mut effects = self.effects.iter();
        match effects.find(|e| !matches!(e, Effect::Connect(_) | Effect::Disconnect)) {
            Some(Effect::Apply(apply)) => apply.clone(),
            other => panic!("no apply, but {other:?}"),
        }
    }

    fn has(&self, wanted: impl Fn(&Effect) -> bool) -> bool {
        self.effects.iter().any(wanted)
    }
}

fn view(uid: &str, stored: Option<Stored>) -> NodeView {
    NodeView {
        uid: uid.to_owned(),
        version: "1".to_owned(),
        conditions: stored
            .map(|s| (PublishedType::KubeletHealthy, s))
            .into_iter()
            .collect(),
        ..NodeView::default()
    }
}

fn network() -> ApiError {
    ApiError::Network("refused".to_owned())
}

#[test]
fn a_crash_is_applied_in_the_turn_that_knows_its_cause() {
    let mut story = Story::settled();
    let apply = story.crash(10_000).applied();
    assert_eq!(apply.uid, "u1");
    assert_eq!(apply.conditions[0].reason, "KubeletCrashed");
    assert!(story.has(|e| matches!(e, Effect::SaveLedger(..))));
    assert!(story.has(|e| matches!(e, Effect::WriteStatus(_))));
}

#[test]
fn the_first_apply_that_is_taken_is_rehearsed_once_and_none_that_is_refused() {
    let is_rehearsal = |e: &Effect| matches!(e, Effect::Rehearse(_));
    let mut story = Story::settled();
    assert!(story.has(is_rehearsal));
    let apply = story.crash(10_000).applied();
    story.tell(10_010, Event::Applied(apply.attempt, Ok(view("u1", None))));
    assert!(!story.has(is_rehearsal), "once");
    let mut story = Story::new();
    story.tell(0, Event::Identity(Ok(Identity::Own("/k".into()))));
    story.tell(0, Event::WatchOpened(1));
    story.tell(0, Event::Node(NodeEvent::Seen(view("u1", None))));
    story.kubelet(0, PID);
    story.answers(5);
    let apply = story.applied();
    assert!(!story.has(is_rehearsal), "nothing before the first apply");
    let refused = ApiError::Forbidden("no".to_owned());
    story.tell(6, Event::Applied(apply.attempt, Err(refused)));
    assert!(!story.has(is_rehearsal));
}

#[test]
fn nothing_is_applied_before_the_check_has_run() {
    let mut story = Story::new();
    story.tell(0, Event::Identity(Ok(Identity::Own("/k".into()))));
    let stored = Stored {
        status: Status::False,
        reason: "KubeletCrashed".to_owned(),
        message: "m".to_owned(),
        since: at(0).wall,
    };
    story.tell(
        1,
        Event::Node(NodeEvent::Seen(view("u1", Some(stored.clone())))),
    );
    assert!(!story.has(|e| matches!(e, Effect::Apply(_))));
    // The kubelet is well again: the problem stays through its healthy spell, with its own time.
    story.kubelet(2, PID);
    story.answers(5);
    let apply = story.applied();
    assert_eq!(apply.conditions[0].status, Status::False);
    assert_eq!(apply.conditions[0].last_transition_time, stored.since);
}

/// The Node still says what was before the reboot: that kubelet is no more.
#[test]
fn a_crash_of_an_earlier_boot_is_not_taken_back() {
    let booted = at(0).wall.as_second() - 3600;
    for (since, status) in [(booted - 60, Status::True), (booted + 60, Status::False)] {
        let mut story = Story::new();
        story.tell(0, Event::Identity(Ok(Identity::Own("/k".into()))));
        story.tell(0, Event::WatchOpened(1));
        let stored = Stored {
            status: Status::False,
            reason: "KubeletCrashed".to_owned(),
            message: "m".to_owned(),
            since: Timestamp::from_second(since).unwrap(),
        };
        let seen = NodeEvent::Seen(view("u1", Some(stored)));
        story.tell(1, Event::Node(seen));
        story.kubelet(2, PID);
        story.answers(5);
        assert_eq!(story.applied().conditions[0].status, status);
    }
}

#[test]
fn an_outage_costs_one_apply_when_it_ends() {
    let mut story = Story::settled();
    let attempt = story.crash(10_000).applied().attempt;
    story.tell(10_010, Event::Applied(attempt, Err(network())));
    let broke = End::Broke(network(), Some("1".to_owned()));
    story.tell(10_020, Event::WatchEnded(1, broke));
    assert!(!story.has(|e| matches!(e, Effect::Apply(_) | Effect::WatchNode(..))));
    // At its time one request goes, and what is to be told is the one.
    story.tell(11_020, Event::Tick);
    let apply = story.applied();
    assert_eq!(apply.conditions[0].reason, "KubeletCrashed");
    assert!(!story.has(|e| matches!(e, Effect::WatchNode(..))));
    story.tell(11_030, Event::Applied(apply.attempt, Ok(view("u1", None))));
    assert!(
        story.has(|e| *e == Effect::WatchNode(2, Some("1".to_owned()))),
        "from where it broke off: {:?}",
        story.effects
    );
    story.tell(11_040, Event::Tick);
    assert!(!story.has(|e| matches!(e, Effect::Apply(_))));
}

#[test]
fn a_request_that_hangs_costs_its_connection() {
    let mut story = Story::settled();
    let attempt = story.crash(10_000).applied().attempt;
    story.tell(15_000, Event::Applied(attempt, Err(ApiError::Timeout)));
    assert!(story.has(|e| *e == Effect::Disconnect));
    story.tell(16_001, Event::Tick);
    assert_eq!(story.applied().conditions[0].reason, "KubeletCrashed");
    // What the watch still said on the old connection counts for nothing.
    story.tell(
        16_002,
        Event::WatchEnded(1, End::Failed(ApiError::Unauthorized)),
    );
    assert!(!story.has(|e| matches!(e, Effect::FindIdentity)));
}

#[test]
fn another_credential_is_used_by_what_was_refused() {
    let mut story = Story::settled();
    let attempt = story.crash(10_000).applied().attempt;
    story.tell(10_010, Event::Applied(attempt, Err(ApiError::Unauthorized)));
    assert!(story.has(|e| matches!(e, Effect::FindIdentity)), "once");
    assert!(!story.has(|e| *e == Effect::Disconnect));
    story.tell(10_020, Event::Identity(Ok(Identity::Own("/k".into()))));
    let position = |wanted: &dyn Fn(&Effect) -> bool| story.effects.iter().position(wanted);
    let connect = position(&|e| *e == Effect::Connect("n1".to_owned()));
    let apply = position(&|e| matches!(e, Effect::Apply(_)));
    assert!(
        connect.is_some() && connect < apply,
        "no apply with the old one: {:?}",
        story.effects
    );
    let attempt = story.applied().attempt;
    story.tell(10_030, Event::Applied(attempt, Err(ApiError::Unauthorized)));
    assert!(!story.has(|e| matches!(e, Effect::FindIdentity)));
    assert!(story.state.next_deadline(at(10_031)) <= at(12_000).uptime);
    story.tell(60_000, Event::Tick);
    assert!(!story.has(|e| matches!(e, Effect::Apply(_))), "minutes");
}

#[test]
fn a_node_made_anew_gets_what_is_true_of_it() {
    let mut story = Story::settled();
    let attempt = story.crash(10_000).applied().attempt;
    story.tell(10_010, Event::Applied(attempt, Ok(view("u1", None))));
    story.tell(11_000, Event::Node(NodeEvent::Missing));
    story.tell(12_000, Event::Node(NodeEvent::Seen(view("u2", None))));
    let apply = story.applied();
    assert_eq!(
        (apply.uid.as_str(), apply.conditions[0].reason.as_str()),
        ("u2", "KubeletCrashed")
    );
    // The next one is born while its kubelet starts: the old crash is not its story.
    story.kubelet(13_000, 101);
    story.tell(14_000, Event::Node(NodeEvent::Missing));
    story.tell(15_000, Event::Node(NodeEvent::Seen(view("u3", None))));
    assert!(
        !story.has(|e| matches!(e, Effect::Apply(_)))
            || story.applied().conditions[0].status != Status::False
    );
}

/// A Node is deleted while something is written to it: the watch's word and the refusal come in any order.
#[test]
fn a_node_that_goes_while_it_is_written_is_missing_and_no_trouble() {
    for refused_first in [true, false] {
        let mut story = Story::settled();
        let attempt = story.crash(10_000).applied().attempt;
        let gone = Event::Node(NodeEvent::Missing);
        let refused = Event::Applied(attempt, Err(ApiError::NotFound));
        let [first, then] = if refused_first {
            [refused, gone]
        } else {
            [gone, refused]
        };
        story.tell(10_010, first).tell(10_020, then);
        if story.has(|e| *e == Effect::ReadNode) {
            story.tell(10_030, Event::Read(Ok(NodeEvent::Missing)));
        }
        let api = story.state.status(at(10_040)).api;
        assert_eq!(api.state, ApiState::NodeMissing, "{refused_first}: {api:?}");
        assert_eq!((api.last_error, api.failures), (None, 0), "{refused_first}");
        story.tell(12_000, Event::Node(NodeEvent::Seen(view("u2", None))));
        assert_eq!(story.applied().uid, "u2", "{refused_first}: at once");
    }
}

#[test]
fn without_the_helper_the_default_address_is_only_a_guess() {
    let mut story = Story::new();
    let process = Process {
        pid: PID,
        started: Duration::ZERO,
    };
    story.tell(0, Event::Looked(Found::One(process)));
    assert!(story.has(|e| *e == Effect::AskFacts(PID)));
    let absent = HelperError::TimedOut {
        verb: "kubelet",
        secs: 1,
    };
    story.tell(1_000, Event::Facts(PID, Err(absent)));
    assert!(story.has(
        |e| matches!(e, Effect::Probe(PID, url) if &**url == "http://127.0.0.1:10248/healthz")
    ));
    for i in 0..3 {
        let started = at(1_000 + i).uptime;
        story.tell(
            2_000 + i,
            Event::Probed {
                pid: PID,
                started,
                probe: Probe::Refused,
            },
        );
    }
    assert_eq!(
        story
            .state
            .health
            .get(ConditionType::KubeletHealthy)
            .verdict()
            .unwrap()
            .status,
        Status::Unknown
    );
    story.tell(12_000, Event::Tick);
    assert!(story.has(|e| *e == Effect::AskFacts(PID)), "asked again");
}

#[test]
fn the_kubelets_own_word_names_the_node() {
    let mut story = Story::new();
    story.tell(0, Event::Identity(Ok(Identity::Own("/k".into()))));
    assert!(
        story.has(|e| *e == Effect::Connect("n1".to_owned())),
        "the host's name, in lower case"
    );
    story.tell(
        1,
        Event::Looked(Found::One(Process {
            pid: PID,
            started: at(1).uptime,
        })),
    );
    let facts = KubeletFacts {
        pid: PID,
        runtime_socket: None,
        healthz: Healthz::Disabled,
        hostname_override: Some("Other".to_owned()),
        kubeconfig: None,
        config: None,
        root_dir: None,
    };
    story.tell(2, Event::Facts(PID, Ok(facts)));
    assert!(story.has(|e| *e == Effect::Connect("other".to_owned())));
}

#[test]
fn standing_alone_it_looks_for_an_identity_more_and_more_slowly() {
    let mut story = Story::new();
    let mut looks = 0;
    let mut next = 0;
    while next < 600_000 {
        story.tell(next, Event::Tick);
        if story.has(|e| matches!(e, Effect::FindIdentity)) {
            looks += 1;
            let slow = IdentityError::Slow { path: "/k".into() };
            story.tell(next, Event::Identity(Err(slow)));
        }
        next += 500;
    }
    assert!((10..=16).contains(&looks), "{looks} looks in ten minutes");
}

#[test]
fn an_idle_hour_is_quiet() {
    let mut story = Story::settled();
    let (mut now, mut turns, mut writes, mut probes) = (at(10).uptime, 0, 0, 0);
    let end = at(3_600_000).uptime;
    while now < end {
        now = story.state.next_deadline(Now {
            uptime: now,
            ..at(0)
        });
        let millis = u64::try_from(now.saturating_sub(at(0).uptime).as_millis()).unwrap() + 1;
        story.tell(millis, Event::Tick);
        turns += 1;
        let effects = std::mem::take(&mut story.effects);
        for effect in effects {
            match effect {
                Effect::Probe(pid, _) => {
                    probes += 1;
                    let started = at(millis).uptime;
                    story.tell(
                        millis,
                        Event::Probed {
                            pid,
                            started,
                            probe: Probe::Ok,
                        },
                    );
                }
                Effect::Apply(apply) => {
                    writes += 1;
                    story.tell(millis, Event::Applied(apply.attempt, Ok(view("u1", None))));
                }
                _ => {}
            }
        }
    }
    // All that is periodic is done in one turn a second.
    assert!(turns <= 3600 + 20, "{turns} turns");
    assert!((11..=14).contains(&writes), "{writes} writes");
    assert!((1700..=1801).contains(&probes), "{probes} probes");
}

#[test]
fn a_node_that_others_write_to_all_the_time_costs_one_question_a_second() {
    let mut story = Story::settled();
    let mut questions = 0;
    for step in 1..=200_u64 {
        let mut view = view("u1", None);
        view.facts.taints = vec![format!("a.rival/{step}")];
        story.tell(6 + step * 50, Event::Node(NodeEvent::Seen(view)));
        questions += usize::from(story.has(|e| matches!(e, Effect::FollowConfig(..))));
    }
    assert!((8..=11).contains(&questions), "{questions} in ten seconds");
}

#[test]
fn a_deadline_that_passed_without_effect_does_not_spin() {
    // An old kubelet that has never answered: the end of its grace lies behind us.
    let mut story = Story::new();
    story.tell(
        0,
        Event::Looked(Found::One(Process {
            pid: PID,
            started: Duration::ZERO,
        })),
    );
    let now = at(10);
    assert!(story.state.next_deadline(now) >= now.uptime + Duration::from_millis(1));
    // A problem whose healthy spell would be over, but a probe fails.
    let mut story = Story::settled();
    story.tell(
        10_000,
        Event::Looked(Found::One(Process {
            pid: PID,
            started: at(0).uptime,
        })),
    );
    let mut turns = 0;
    let mut next = at(10_000).uptime;
    while next < at(20_000).uptime {
        let now = Now {
            uptime: next,
            ..at(0)
        };
        story.effects = story.state.apply(Event::Tick, now);
        next = story.state.next_deadline(now);
        turns += 1;
    }
    assert!(turns <= 30, "{turns} turns in ten seconds");
}

#[test]
fn the_watchdog_is_fed_by_the_loop_alone() {
    let every = Duration::from_secs(5);
    let mut state = State::new(Settings::default(), "n1", None, Some(every), at(0));
    assert!(
        state
            .apply(Event::Tick, at(0))
            .contains(&Effect::NotifyWatchdog)
    );
    assert!(
        !state
            .apply(Event::Tick, at(3_999))
            .contains(&Effect::NotifyWatchdog)
    );
    assert!(state.next_deadline(at(3_999)) <= at(5_000).uptime);
    assert!(
        state
            .apply(Event::Tick, at(5_000))
            .contains(&Effect::NotifyWatchdog)
    );
}

/// The certificate's dates, in seconds after the story's beginning.
fn certificate(from: i64, to: i64) -> Event {
    let base = at(0).wall.as_second();
    let read = ClientCertificate {
        file: "/pki/current.pem".to_owned(),
        not_before_secs: base + from,
        not_after_secs: base + to,
    };
    Event::Answered("certificate", Reading::Certificate(Ok(Some(read))))
}

fn verdict(story: &Story) -> Option<(Status, &'static str)> {
    let verdict = story.state.health.get(ConditionType::KubeletHealthy);
    verdict.verdict().map(|v| (v.status, v.reason.as_str()))
}

#[test]
fn a_good_certificate_is_no_health_of_a_kubelet_that_nobody_has_seen() {
    for (to, reason) in [
        (100 * 86_400, "KubeletIsHealthy"),
        (3600, "KubeletClientCertExpiring"),
    ] {
        let mut story = Story::new();
        story.tell(1, certificate(-864_000, to));
        assert_eq!(verdict(&story), None);
        story.kubelet(2, PID);
        story.answers(5);
        story.tell(6, Event::Tick);
        assert_eq!(verdict(&story), Some((Status::True, reason)));
        // A crash is worse, and a restart after it no different.
        story.crash(10_000);
        assert_eq!(verdict(&story), Some((Status::False, "KubeletCrashed")));
    }
    // That it has expired is a problem whoever looks first, once the API server's clock says so too.
    let mut story = Story::new();
    story.tell(1, certificate(-864_000, -1));
    assert_eq!(verdict(&story), None);
    story
        .state
        .link
        .time
        .learn(&crate::cluster::time::DatedAnswer {
            sent: at(1).uptime,
            received: at(1).uptime,
            date: at(60_000).wall,
        });
    story.tell(2, certificate(-864_000, -1));
    assert_eq!(
        verdict(&story),
        Some((Status::False, "KubeletClientCertExpired"))
    );
}

#[test]
fn all_well_beside_is_not_said() {
    let mut story = Story::settled();
    let message = |story: &Story| {
        let health = story.state.health.get(ConditionType::KubeletHealthy);
        health.verdict().unwrap().message.clone()
    };
    let before = message(&story);
    story.tell(100, certificate(-864_000, 8_640_000));
    assert!(!story.has(|e| matches!(e, Effect::Apply(_))));
    assert_eq!(message(&story), before);
}

#[test]
fn a_kubelet_that_does_not_answer_is_looked_at_for_strain() {
    let mut story = Story::settled();
    assert!(!story.has(|e| matches!(e, Effect::ReadStrain(..))));
    let started = at(3000).uptime;
    let probe = Probe::Timeout;
    story.tell(
        3800,
        Event::Probed {
            pid: PID,
            started,
            probe,
        },
    );
    assert!(story.has(|e| matches!(e, Effect::ReadStrain(..))));
    story.tell(3801, Event::Strain(PID, Strain::default()));
    assert!(!story.has(|e| matches!(e, Effect::ReadStrain(..))));
}

/// The deadline of an agent that leaves, so many milliseconds after the beginning.
fn until(millis: u64) -> Duration {
    at(millis).uptime
}

#[test]
fn who_is_stopped_leaves_nothing_bad_and_the_next_life_finds_it_anew() {
    let mut story = Story::settled();
    let apply = story.crash(10_000).applied();
    story.tell(10_010, Event::Applied(apply.attempt, Ok(view("u1", None))));
    story.state.leave(at(20_000));
    story.tell(20_000, Event::Tick);
    let last = story.applied();
    let shown = |apply: &Apply, index: usize| {
        let condition = &apply.conditions[index];
        (condition.status, condition.reason.clone())
    };
    let stopped = (Status::Unknown, "NodevigilStopped".to_owned());
    assert_eq!(shown(&last, 0), stopped);
    assert_eq!(last.conditions[0].last_transition_time, at(20_000).wall);
    assert_eq!(last.conditions[1..], apply.conditions[1..], "the whole set");
    assert!(!story.has(|e| matches!(e, Effect::SaveLedger(_))));
    assert!(!story.state.has_left(until(22_000), at(20_001)));
    // What happens meanwhile is no verdict any more.
    story.kubelet(20_002, 101);
    story.tell(20_003, Event::Gone(101));
    story.tell(20_010, Event::Applied(last.attempt, Ok(view("u1", None))));
    assert!(!story.has(|e| matches!(e, Effect::SaveLedger(_))));
    assert!(story.state.has_left(until(22_000), at(20_010)));
    let kept = story.state.left().unwrap().conditions;
    assert_eq!(kept[0], last.conditions[0]);

    let stored = Stored {
        status: kept[0].status,
        reason: kept[0].reason.clone(),
        message: kept[0].message.clone(),
        since: kept[0].last_transition_time,
    };
    let next = |is_dead: bool| {
        let mut story = Story::new();
        story.tell(30_000, Event::Identity(Ok(Identity::Own("/k".into()))));
        story.tell(30_000, Event::WatchOpened(1));
        let seen = view("u1", Some(stored.clone()));
        story.tell(30_000, Event::Node(NodeEvent::Seen(seen)));
        story.kubelet(30_000, PID);
        if is_dead {
            story.crash(30_001);
        } else {
            story.answers(30_001);
        }
        let verdict = story.state.health.get(ConditionType::KubeletHealthy);
        let verdict = verdict.verdict().unwrap();
        (verdict.status, verdict.since > stored.since)
    };
    assert_eq!(next(true), (Status::False, true), "a new flip");
    assert_eq!(next(false), (Status::True, true));
}

#[test]
fn who_is_stopped_in_health_writes_nothing_and_waits_for_nothing() {
    let mut story = Story::settled();
    story.state.leave(at(10_000));
    story.tell(10_000, Event::Tick);
    assert!(!story.has(|e| matches!(e, Effect::Apply(_))));
    assert!(story.state.has_left(until(12_000), at(10_000)));
    assert_eq!(story.state.left(), None);
}

#[test]
fn what_it_did_not_hear_of_its_last_write_the_next_life_has_from_the_node() {
    let mut story = Story::settled();
    let apply = story.crash(10_000).applied();
    story.tell(10_010, Event::Applied(apply.attempt, Ok(view("u1", None))));
    story.state.leave(at(20_000));
    story.tell(20_000, Event::Tick);
    let last = story.applied();
    assert!(!story.state.has_left(until(22_000), at(20_001)));
    story.tell(20_010, Event::Applied(last.attempt, Err(network())));
    assert!(
        story.state.has_left(until(20_020), at(20_010)),
        "no try comes so soon"
    );
    assert_eq!(story.state.left().unwrap().conditions, []);
}
