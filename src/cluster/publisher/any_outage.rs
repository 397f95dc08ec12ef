//! What is true of the published transition times in any history: of wrong and stepping clocks, outages, lost answers and
//! restarts of the agent.

use proptest::prelude::*;

use super::{super::time::DatedAnswer, *};
use crate::{
    cluster::time::ClusterTime,
    health::{Status, Stored, late},
};

/// The cluster's clock when the host was booted.
const EPOCH_MS: i64 = 1_800_000_000_000;
/// How far an answer's way may be, in milliseconds.
const WAY_MS: u64 = 400;
/// By how much a published time may lie behind the cluster's: the second that `Date` is cut by, that of the field itself, and the
/// way of the answer, with the drift of minutes without one.
const WIDTH_MS: i64 = 2000 + WAY_MS.cast_signed() + 500;
const KIND: PublishedType = PublishedType::KubeletHealthy;

#[derive(Debug, Clone)]
enum Step {
    /// The verdict flips to this.
    Flip(Status),
    /// The API server can be reached, or not.
    Api(bool),
    /// The answers to the next applies are lost; whether each was carried out.
    LoseAnswers(Vec<bool>),
    /// The node's clock is set by so many seconds.
    SetClock(i64),
    /// The verdict flips to this while the next apply without an answer is under way.
    FlipMeanwhile(Status),
    Restart,
    /// Somebody else writes the Node; whether our watch shows it.
    Other(bool),
}

fn any_step() -> impl Strategy<Value = (Step, u64)> {
    let status = prop::sample::select(vec![Status::True, Status::False, Status::Unknown]);
    let step = prop_oneof![
        4 => status.clone().prop_map(Step::Flip),
        1 => status.prop_map(Step::FlipMeanwhile),
        3 => any::<bool>().prop_map(Step::Api),
        2 => prop::collection::vec(any::<bool>(), 1..4).prop_map(Step::LoseAnswers),
        1 => (-40_000..40_000_i64).prop_map(Step::SetClock),
        1 => Just(Step::Restart),
        2 => any::<bool>().prop_map(Step::Other),
    ];
    (
        step,
        prop_oneof![Just(0_u64), 1..20_000_u64, 1..600_000_u64],
    )
}

/// A Node and its API server, an agent's publisher, and what joins them.
struct World {
    now_ms: u64,
    drift_ppm: i64,
    wall_ahead_secs: i64,
    api: bool,
    lose: Vec<bool>,
    flip_meanwhile: Option<Status>,
    time: ClusterTime,
    publisher: Publisher,
    /// What the agent's verdict is, and since when by its own account.
    wish: (Status, Timestamp),
    /// Flips of the verdict since it was published last.
    flips: u32,
    /// What the Node shows, in whole seconds.
    shown: Option<(Status, Timestamp)>,
    /// When the Node was last written without a `False` (the cluster's time, in milliseconds).
    opposite_at: Option<i64>,
    version: u64,
}

impl World {
    fn new(drift_ppm: i64, wall_ahead_secs: i64) -> Self {
        let mut world = Self {
            now_ms: 60_000,
            drift_ppm,
            wall_ahead_secs,
            api: true,
            lose: Vec::new(),
            flip_meanwhile: None,
            time: ClusterTime::default(),
            publisher: Publisher::new("n1"),
            wish: (Status::True, Timestamp::UNIX_EPOCH),
            flips: 0,
            shown: None,
            opposite_at: None,
            version: 0,
        };
        world.want(Status::True);
        world
    }

    fn cluster_ms(&self) -> i64 {
        let uptime = i64::try_from(self.now_ms).unwrap();
        EPOCH_MS + uptime + uptime * self.drift_ppm / 1_000_000
    }

    /// As the agent knows it.
    fn now(&self) -> Now {
        let wall = self.cluster_ms() + self.wall_ahead_secs * 1000;
        self.time.of(Now {
            uptime: Duration::from_millis(self.now_ms),
            wall: Timestamp::from_millisecond(wall).unwrap(),
        })
    }

    fn want(&mut self, status: Status) {
        let since = self.now().wall;
        if status != self.wish.0 || self.wish.1 == Timestamp::UNIX_EPOCH {
            self.wish = (status, since);
            self.flips += 1;
        }
        let condition = Condition {
            r#type: KIND,
            status: self.wish.0,
            reason: "R".to_owned(),
            message: "m".to_owned(),
            last_transition_time: self.wish.1,
        };
        let wish = Wish {
            conditions: vec![condition],
            standing_down: None,
        };
        self.publisher.want(Some(wish), self.now());
    }

    /// An answer of the API server, half a way after its request.
    fn answer(&mut self) {
        let sent = Duration::from_millis(self.now_ms);
        self.now_ms += WAY_MS / 2;
        let date = Timestamp::from_second(self.cluster_ms().div_euclid(1000)).unwrap();
        self.now_ms += WAY_MS / 2;
        self.time.learn(&DatedAnswer {
            sent,
            received: Duration::from_millis(self.now_ms),
            date,
        });
    }

    fn view(&self) -> NodeView {
        let stored = |(status, since): (Status, Timestamp)| Stored {
            status,
            reason: "R".to_owned(),
            message: "m".to_owned(),
            since,
        };
        NodeView {
            uid: "u1".to_owned(),
            version: self.version.to_string(),
            conditions: self
                .shown
                .map(|shown| (KIND, stored(shown)))
                .into_iter()
                .collect(),
            ..NodeView::default()
        }
    }

    /// The Node is read.
    fn read(&mut self) {
        self.answer();
        let event = NodeEvent::Seen(self.view());
        let change = self.publisher.node(event, self.now());
        // As `Health::adopt` has it: the same status is the same story.
        if let (NodeChange::First(_), Some((status, since))) = (change, self.shown)
            && status == self.wish.0
        {
            self.wish.1 = since;
            self.flips = 0;
            self.want(status);
        }
    }

    /// Everything that is due now.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        while self.api {
            if !self.publisher.node_is_there() {
                self.read();
                continue;
            }
            let now = self.now();
            let Some(apply) = self.publisher.next(now) else {
                break;
            };
            let is_stale = |version: &String| *version != self.version.to_string();
            if apply.only_version.as_ref().is_some_and(is_stale) {
                let conflict = Err(ApiError::Conflict("the version".to_owned()));
                self.answer();
                self.publisher.done(apply.attempt, &conflict, self.now());
                continue;
            }
            let lost = self.lose.pop();
            self.now_ms += WAY_MS / 2;
            if lost != Some(false) {
                self.land(&apply)?;
            }
            self.now_ms -= WAY_MS / 2;
            let result = if lost.is_some() {
                self.now_ms += 5000;
                // Meanwhile life goes on.
                if let Some(status) = self.flip_meanwhile.take() {
                    self.want(status);
                }
                Err(ApiError::Timeout)
            } else {
                self.answer();
                Ok(self.view())
            };
            self.publisher.done(apply.attempt, &result, self.now());
        }
        Ok(())
    }

    /// The API server carries it out.
    fn land(&mut self, apply: &Apply) -> Result<(), TestCaseError> {
        let [sent] = &apply.conditions[..] else {
            panic!("one condition");
        };
        let (status, cluster_ms) = (sent.status, self.cluster_ms());
        let time = Timestamp::from_second(sent.last_transition_time.as_second()).unwrap();
        prop_assert!(
            time.as_millisecond() <= cluster_ms,
            "in the cluster's future"
        );
        match self.shown {
            Some((was, before)) if was == status && self.flips == 0 => {
                prop_assert_eq!(time, before, "it moved without a flip");
            }
            Some((was, before)) if was == status => {
                prop_assert!(time >= before, "an older flip than the one that is shown");
            }
            _ => {
                let least = self.opposite_at.filter(|_| status == Status::False);
                let least = least.unwrap_or(i64::MIN);
                prop_assert!(
                    time.as_millisecond() + WIDTH_MS >= least,
                    "{} ms before the cluster was shown the opposite",
                    least - time.as_millisecond()
                );
            }
        }
        if status != Status::False {
            self.opposite_at = Some(cluster_ms);
        }
        self.shown = Some((status, time));
        self.flips = 0;
        self.version += 1;
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Flip(status) => self.want(*status),
            Step::Api(api) => self.api = *api,
            Step::LoseAnswers(landed) => self.lose.clone_from(landed),
            Step::FlipMeanwhile(status) => self.flip_meanwhile = Some(*status),
            Step::SetClock(secs) => self.wall_ahead_secs += secs,
            Step::Restart => {
                self.publisher = Publisher::new("n1");
                self.time = ClusterTime::default();
                let (status, _) = self.wish;
                self.want(status);
            }
            Step::Other(seen) => {
                self.version += 1;
                if self.api && *seen {
                    let event = NodeEvent::Seen(self.view());
                    self.publisher.node(event, self.now());
                }
            }
        }
        self.settle()
    }
}

proptest! {
    #[test]
    fn any_outage_keeps_the_times_right(
        steps in prop::collection::vec(any_step(), 1..80),
        drift_ppm in -500..500_i64,
        wall_ahead_secs in -40_000..40_000_i64,
    ) {
        let mut world = World::new(drift_ppm, wall_ahead_secs);
        world.settle()?;
        for (step, wait) in steps {
            world.now_ms += wait;
            world.step(&step)?;
        }
        // What is true at the end is shown, once the API is back.
        (world.api, world.lose) = (true, Vec::new());
        world.settle()?;
        prop_assert_eq!(world.shown.unwrap().0, world.wish.0);
    }
}

fn flip(world: &mut World, wait: u64, status: Status) {
    world.now_ms += wait;
    world.step(&Step::Flip(status)).unwrap();
}

/// A node whose clock is 40 minutes behind, and one crash: each consumer's wait would be over already.
#[test]
fn a_wrong_clock_is_not_published() {
    for wall_ahead_secs in [-2400, 2400] {
        let mut world = World::new(0, wall_ahead_secs);
        world.settle().unwrap();
        flip(&mut world, 5000, Status::False);
        let (status, time) = world.shown.unwrap();
        assert_eq!(status, Status::False);
        let behind = world.cluster_ms() - time.as_millisecond();
        assert!((0..WIDTH_MS).contains(&behind), "{behind} ms");
    }
}

#[test]
fn what_was_seen_in_an_outage_has_the_time_of_its_publication_and_says_when_it_began() {
    let mut world = World::new(0, 0);
    world.settle().unwrap();
    world.step(&Step::Api(false)).unwrap();
    flip(&mut world, 1000, Status::False);
    let began = world.cluster_ms();
    world.now_ms += 1_500_000;
    let wished = world.publisher.wish.clone().unwrap().conditions;
    let sent = world.publisher.transitions.stamp(&wished, world.now());
    let said = late::began(&sent[0].message).expect("it says so");
    assert!((began - said.as_millisecond()).abs() <= WIDTH_MS);
    world.step(&Step::Api(true)).unwrap();
    let (_, time) = world.shown.unwrap();
    let drift_ms = 1500;
    assert!(world.cluster_ms() - time.as_millisecond() <= WIDTH_MS + drift_ms);
    // And so it stays.
    flip(&mut world, 400_000, Status::False);
    assert_eq!(world.shown.unwrap().1, time);
}

#[test]
fn health_between_two_problems_of_an_outage_gives_the_newer_time() {
    let mut world = World::new(0, 0);
    world.settle().unwrap();
    flip(&mut world, 1000, Status::False);
    let first = world.shown.unwrap().1;
    world.step(&Step::Api(false)).unwrap();
    flip(&mut world, 100_000, Status::True);
    flip(&mut world, 100_000, Status::False);
    world.step(&Step::Api(true)).unwrap();
    let second = world.shown.unwrap().1;
    assert!(
        second.as_second() >= first.as_second() + 200,
        "{first} {second}"
    );
}

#[test]
fn a_write_without_an_answer_is_not_repeated_blindly() {
    for landed in [true, false] {
        let mut world = World::new(0, 0);
        world.settle().unwrap();
        world.step(&Step::LoseAnswers(vec![landed])).unwrap();
        let before = world.version;
        flip(&mut world, 1000, Status::False);
        assert_eq!(world.version, before + 2 - u64::from(!landed));
        let behind = world.cluster_ms() - world.shown.unwrap().1.as_millisecond();
        let retried = behind < 5000;
        assert_eq!(retried, !landed, "{behind} ms");
    }
}
