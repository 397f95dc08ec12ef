//! When to apply what: the whole set at once on a change, a heartbeat each five minutes, and patience after failures. A message
//! alone has less of a hurry (`messages`).
//!
//! Every `now` has the cluster's time in the place of the wall clock's ([`super::time::ClusterTime::of`]).
//!
//! Pure and level-triggered: there is one wish and one thing in flight; after any outage one apply brings the Node up
//! to date.

mod messages;
mod transitions;

use std::time::Duration;

use jiff::Timestamp;

use self::transitions::{Transitions, shows};
use super::{
    api::{ApiError, NodeView},
    backoff::Backoff,
    owners::{OwnerNews, Owners, Refusal},
    watch::NodeEvent,
};
use crate::{
    clock::Now,
    desired::{Condition, PublishedType, Wish},
};

/// The heartbeat's period, a tenth more or less (as the kubelet's own status report): 11 to 14 writes an hour.
pub const HEARTBEAT: Duration = Duration::from_mins(5);

/// How often what somebody else overwrote is written again.
pub const REPAIR_EVERY: Duration = Duration::from_mins(1);

/// One apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Apply {
    /// Its number: an answer that comes after its request was given up must not pass for the next one's.
    pub attempt: u64,
    /// The Node that it is meant for.
    pub uid: String,
    /// The complete set, each with its `lastTransitionTime` in the cluster's time.
    pub conditions: Vec<Condition>,
    /// The same as it is wished, each with the time of its flip as the agent saw it.
    pub wished: Vec<Condition>,
    /// `lastHeartbeatTime` of all of them.
    pub heartbeat: Timestamp,
    /// Refused unless the Node still has this version: whether an earlier apply without an answer was carried out is not
    /// known, and to repeat it would move the time of its flip.
    pub only_version: Option<String>,
    /// The annotation that says that we stand down; `None` takes it away.
    pub standing_down: Option<String>,
}

/// What the watch's word changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChange {
    /// Nothing that matters.
    Same,
    /// Our conditions are not as we wrote them: they are written again.
    Overwritten,
    /// The Node is seen for the first time in this life.
    First(NodeView),
    /// Another Node has our name now.
    New(NodeView),
    /// The Node is not there.
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Unread,
    Missing,
    Present(String),
}

/// The writer's state.
#[derive(Debug)]
pub struct Publisher {
    node_name: String,
    subject: Subject,
    /// The Node that was seen last, so that another one is known to be new.
    met: Option<String>,
    /// What the Node should have from us, if nobody else had any of it; `None`: nothing is to be written.
    wish: Option<Wish>,
    owners: Owners,
    /// Whether the Node has something of ours, which an empty set takes away.
    has_ours: bool,
    attempts: u64,
    in_flight: Option<Apply>,
    /// The last apply that had no answer and carried a flip: it may have been carried out.
    unanswered: Option<Apply>,
    /// The Node's version as it was seen last.
    seen_version: Option<String>,
    published: Option<Apply>,
    transitions: Transitions,
    /// The Node's version after our last apply: what the watch still has to say of older ones is no news.
    version: Option<u64>,
    repair_at: Duration,
    /// From when on what was overwritten may be written again.
    overwritten: Option<Duration>,
    /// Until when the messages that were written alone have used up their turns.
    messages_until: Duration,
    heartbeat_at: Duration,
    backoff: Backoff,
    last_success: Option<Now>,
}

impl Publisher {
    /// A writer for `node` that has written nothing yet.
    pub fn new(node: &str) -> Self {
        Self {
            node_name: node.to_owned(),
            subject: Subject::Unread,
            met: None,
            wish: None,
            owners: Owners::default(),
            has_ours: false,
            attempts: 0,
            in_flight: None,
            unanswered: None,
            seen_version: None,
            published: None,
            transitions: Transitions::default(),
            version: None,
            repair_at: Duration::ZERO,
            overwritten: None,
            messages_until: Duration::ZERO,
            heartbeat_at: Duration::ZERO,
            backoff: Backoff::new(node, "heartbeat"),
            last_success: None,
        }
    }

    /// The Node's name.
    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    /// Whether the API said that there is no such Node.
    pub fn node_is_missing(&self) -> bool {
        self.subject == Subject::Missing
    }

    /// Whether the Node is there.
    pub fn node_is_there(&self) -> bool {
        self.uid().is_some()
    }

    /// What the Node should have from now on; `None`: nothing is to be written.
    pub fn want(&mut self, wish: Option<Wish>, now: Now) {
        if let Some(wish) = &wish {
            self.transitions.wish(&wish.conditions, now.uptime);
        }
        self.wish = wish;
        let types = self.wished_types();
        self.owners.wished(&types);
    }

    /// Whether an apply is under way.
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The types that are left out because they are somebody else's.
    pub fn refused(&self) -> &[Refusal] {
        self.owners.refused()
    }

    /// What is new about others' claims.
    pub fn owner_news(&mut self) -> Vec<OwnerNews> {
        self.owners.take_news()
    }

    /// When an apply last succeeded.
    pub fn last_success(&self) -> Option<Now> {
        self.last_success
    }

    /// What the API server took last, if nothing has happened since that makes it doubtful.
    pub fn published(&self) -> Option<&Apply> {
        self.published.as_ref()
    }

    /// Whether the Node shows what we wish, but for a message that waits for its turn.
    pub fn is_current(&self) -> bool {
        self.overwritten.is_none() && (self.wish_is_published() || self.differs_in_messages_alone())
    }

    /// The UID of the Node that is there.
    pub fn uid(&self) -> Option<&str> {
        match &self.subject {
            Subject::Present(uid) => Some(uid),
            Subject::Unread | Subject::Missing => None,
        }
    }

    /// An empty set is written only to take away what the Node has of ours.
    fn has_something_to_write(&self) -> bool {
        self.wish.as_ref().is_some_and(|wish| {
            self.has_ours
                || wish.standing_down.is_some()
                || (wish.conditions.iter()).any(|c| !self.owners.refuses(c.r#type))
        })
    }

    fn wished_types(&self) -> Vec<PublishedType> {
        let wish = self.wish.as_ref();
        wish.map(|wish| types(&wish.conditions)).unwrap_or_default()
    }

    fn look_at_owners(&mut self, view: &NodeView, now: Now) {
        self.has_ours = view.owners.iter().any(|owner| owner.ours);
        let wished = self.wished_types();
        self.owners.seen(&view.owners, &wished, now);
    }

    /// Takes in what the watch saw.
    pub fn node(&mut self, event: NodeEvent, now: Now) -> NodeChange {
        let view = match event {
            NodeEvent::Missing => {
                let change = match self.subject {
                    Subject::Missing => NodeChange::Same,
                    _ => NodeChange::Missing,
                };
                self.subject = Subject::Missing;
                self.forget_shown();
                return change;
            }
            NodeEvent::Seen(view) => view,
        };
        let was_missing = self.subject == Subject::Missing;
        let was_refused = self.subject == Subject::Unread;
        self.subject = Subject::Present(view.uid.clone());
        self.seen_version = Some(view.version.clone());
        let met = self.met.replace(view.uid.clone());
        if met.as_ref() == Some(&view.uid) {
            self.read_back(&view, was_refused);
            self.look_at_owners(&view, now);
            return self.repair(&view, now);
        }
        self.forget_shown();
        self.overwritten = None;
        self.owners.forget();
        self.look_at_owners(&view, now);
        // A Node that was not there when we first looked is as new as one that replaced another.
        if met.is_some() || was_missing {
            NodeChange::New(view)
        } else {
            self.transitions.adopt(&view);
            NodeChange::First(view)
        }
    }

    /// What the Node shows of an apply that had no answer was carried out. `is_settled`: and what it does not show was not.
    fn read_back(&mut self, view: &NodeView, is_settled: bool) {
        let Some(apply) = &self.unanswered else {
            return;
        };
        self.transitions.read_back(apply, view);
        if is_settled {
            self.unanswered = None;
            self.transitions.settle();
        }
    }

    fn forget_shown(&mut self) {
        (self.published, self.unanswered) = (None, None);
        self.transitions.forget();
    }

    /// A request that we gave up may land late and stand on the Node until the next heartbeat; another writer may have
    /// overwritten us. Either is put right, at most once in [`REPAIR_EVERY`]: with a writer that insists nobody wins.
    fn repair(&mut self, view: &NodeView, now: Now) -> NodeChange {
        let Some(published) = &self.published else {
            return NodeChange::Same;
        };
        let older = match (view.version.parse::<u64>().ok(), self.version) {
            (Some(seen), Some(ours)) => seen <= ours,
            _ => true,
        };
        let known = older || self.in_flight.is_some() || self.overwritten.is_some();
        let mut wrong = (published.conditions.iter())
            .filter(|c| !shows(view, c))
            .peekable();
        if known || wrong.peek().is_none() {
            return NodeChange::Same;
        }
        for condition in wrong {
            self.owners.overwritten(condition.r#type, now);
        }
        self.overwritten = Some(self.repair_at.max(now.uptime));
        self.repair_at = now.uptime + REPAIR_EVERY;
        NodeChange::Overwritten
    }

    /// The apply that is due now, if any; it is in flight from then on until [`Publisher::done`].
    pub fn next(&mut self, now: Now) -> Option<Apply> {
        self.next_deadline().filter(|at| now.uptime >= *at)?;
        let Wish {
            conditions: mut wished,
            standing_down,
        } = self.wish.clone()?;
        wished.retain(|c| !self.owners.refuses(c.r#type));
        let apply = Apply {
            attempt: self.attempts + 1,
            uid: self.uid()?.to_owned(),
            conditions: self.transitions.stamp(&wished, now),
            wished,
            heartbeat: now.wall,
            only_version: self.unanswered.as_ref().and(self.seen_version.clone()),
            standing_down,
        };
        if self.differs_in_messages_alone() {
            self.takes_a_turn(now);
        }
        self.attempts = apply.attempt;
        self.in_flight = Some(apply.clone());
        Some(apply)
    }

    /// Whether the answer to that attempt says only that the Node is another version than it was to be: it is read anew, and
    /// that is no failure of the API server's.
    pub fn is_outdated(&self, attempt: u64, result: &Result<NodeView, ApiError>) -> bool {
        let guarded = |apply: &Apply| apply.attempt == attempt && apply.only_version.is_some();
        matches!(result, Err(ApiError::Conflict(_))) && self.in_flight.as_ref().is_some_and(guarded)
    }

    /// When the next apply is due (uptime), unless what is known changes.
    pub fn next_deadline(&self) -> Option<Duration> {
        let idle =
            self.uid().is_some() && self.in_flight.is_none() && self.has_something_to_write();
        idle.then(|| {
            let due_anyway = self.overwritten.unwrap_or(self.heartbeat_at);
            if self.wish_is_published() {
                due_anyway
            } else if self.differs_in_messages_alone() {
                self.message_is_due_at().min(due_anyway)
            } else {
                Duration::ZERO
            }
        })
    }

    /// Whatever was in flight will not come back: its connection was dropped.
    pub fn forget_in_flight(&mut self) {
        if let Some(apply) = self.in_flight.take() {
            self.doubt(apply);
        }
    }

    /// It may have been carried out, or may yet be: what the Node shows is not known.
    fn doubt(&mut self, apply: Apply) {
        self.published = None;
        self.unanswered = Some(apply).filter(|apply| self.transitions.doubt(apply));
    }

    /// Takes in how an apply ended; `false` if it is one that was given up.
    pub fn done(&mut self, attempt: u64, result: &Result<NodeView, ApiError>, now: Now) -> bool {
        let Some(applied) = self.in_flight.take_if(|apply| apply.attempt == attempt) else {
            return false;
        };
        match result {
            Ok(node) => {
                self.owners.wrote(types(&applied.conditions));
                self.look_at_owners(node, now);
                self.transitions.published(&applied);
                self.unanswered = None;
                self.seen_version = Some(node.version.clone());
                self.published = Some(applied);
                self.overwritten = None;
                self.version = node.version.parse().ok();
                self.heartbeat_at = now.uptime + self.backoff.around(HEARTBEAT);
                self.last_success = Some(now);
            }
            // The watch was faster.
            Err(ApiError::NotFound) if self.node_is_missing() => {}
            // It is not the Node that we knew: it is read anew before the next try.
            Err(ApiError::NotFound | ApiError::Conflict(_)) => self.subject = Subject::Unread,
            Err(error) if error.is_refusal() => self.published = None,
            Err(_) => self.doubt(applied),
        }
        true
    }
}

fn types(conditions: &[Condition]) -> Vec<PublishedType> {
    conditions.iter().map(|c| c.r#type).collect()
}

#[cfg(test)]
mod any_outage;
#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::messages::MESSAGE_EVERY;
    use super::*;
    use crate::{
        cluster::api::Ownership,
        health::{Status, Stored},
    };

    fn at(millis: u64) -> Now {
        Now {
            uptime: Duration::from_millis(millis),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn condition(status: Status) -> Condition {
        Condition {
            r#type: PublishedType::KubeletHealthy,
            status,
            reason: "KubeletIsHealthy".to_owned(),
            message: String::new(),
            last_transition_time: Timestamp::UNIX_EPOCH,
        }
    }

    fn view(uid: &str) -> NodeView {
        NodeView {
            uid: uid.to_owned(),
            version: "1".to_owned(),
            ..NodeView::default()
        }
    }

    fn seen(uid: &str) -> NodeEvent {
        NodeEvent::Seen(view(uid))
    }

    #[expect(clippy::needless_pass_by_value, reason = "the calls read better")]
    fn done(publisher: &mut Publisher, result: Result<NodeView, ApiError>, now: Now) {
        publisher.done(publisher.attempts, &result, now);
    }

    fn want(publisher: &mut Publisher, conditions: Vec<Condition>) {
        let wish = Wish {
            conditions,
            standing_down: None,
        };
        publisher.want(Some(wish), at(0));
    }

    fn ready() -> Publisher {
        let mut publisher = Publisher::new("n1");
        publisher.node(seen("u1"), at(0));
        want(&mut publisher, vec![condition(Status::True)]);
        publisher
    }

    #[test]
    fn once_on_a_change_then_heartbeats() {
        let mut publisher = ready();
        let apply = publisher.next(at(1)).unwrap();
        assert_eq!(apply.uid, "u1");
        assert_eq!(publisher.next(at(2)), None, "one in flight");
        done(&mut publisher, Ok(view("u1")), at(10));
        assert_eq!(publisher.next(at(11)), None);
        let due = publisher.next_deadline().unwrap();
        assert!((Duration::from_secs(270)..=Duration::from_secs(331)).contains(&due));
        assert!(publisher.next(at(331_000)).is_some());
        done(&mut publisher, Ok(view("u1")), at(331_005));
        want(&mut publisher, vec![condition(Status::False)]);
        assert!(
            publisher.next(at(331_006)).is_some(),
            "a change does not wait"
        );
    }

    #[test]
    fn healthy_hour_stays_within_fourteen_writes() {
        let (mut publisher, mut writes) = (ready(), 0);
        for second in 1..=3600_u64 {
            if publisher.next(at(second * 1000)).is_some() {
                writes += 1;
                done(&mut publisher, Ok(view("u1")), at(second * 1000 + 5));
            }
        }
        assert!((11..=14).contains(&writes), "{writes}");
    }

    #[test]
    fn the_time_that_is_shown_is_the_one_that_was_published() {
        let at = |millis: u64| Now {
            wall: Timestamp::from_millisecond(i64::try_from(millis).unwrap()).unwrap(),
            ..at(millis)
        };
        let mut publisher = ready();
        publisher.next(at(1)).unwrap();
        done(&mut publisher, Ok(view("u1")), at(5));
        let own = Condition {
            last_transition_time: at(10_000).wall,
            ..condition(Status::False)
        };
        assert_eq!(publisher.shown_since(&own), None, "it shows another status");
        let wish = Wish {
            conditions: vec![own.clone()],
            standing_down: None,
        };
        publisher.want(Some(wish), at(10_000));
        publisher.next(at(10_000)).unwrap();
        let refused = Err(ApiError::Forbidden("no".to_owned()));
        done(&mut publisher, refused, at(10_010));
        assert_eq!(publisher.shown_since(&own), None, "nothing is known");
        let apply = publisher.next(at(60_000)).unwrap();
        done(&mut publisher, Ok(view("u1")), at(60_005));
        let shown = publisher.shown_since(&own);
        assert_eq!(shown, Some(apply.conditions[0].last_transition_time));
        assert_eq!(shown, Some(at(60_000).wall));
    }

    #[test]
    fn messages_alone_wait_for_their_turn_and_nothing_else_does() {
        let says = |status, message: u64| {
            let message = format!("for {message} s");
            vec![Condition {
                message,
                ..condition(status)
            }]
        };
        let mut publisher = ready();
        publisher.next(at(1)).unwrap();
        done(&mut publisher, Ok(view("u1")), at(5));
        let (mut writes, mut last) = (Vec::new(), String::new());
        for second in 1..=7200_u64 {
            want(&mut publisher, says(Status::True, second));
            if let Some(apply) = publisher.next(at(second * 1000)) {
                writes.push(second);
                last.clone_from(&apply.conditions[0].message);
                assert_eq!(last, format!("for {second} s"), "the newest");
                done(&mut publisher, Ok(view("u1")), at(second * 1000 + 5));
            } else {
                let due = publisher.next_deadline().unwrap();
                assert!(due <= at(second * 1000).uptime + MESSAGE_EVERY);
            }
        }
        assert_eq!(writes[..4], [1, 2, 3, 4], "some at once");
        let first_hour = writes.iter().filter(|at| **at <= 3600).count();
        assert!((60..=64).contains(&first_hour), "{first_hour}");
        assert!((119..=124).contains(&writes.len()), "{}", writes.len());
        // A status and a reason wait for nothing, and carry the message.
        let mut conditions = says(Status::True, 7201);
        want(&mut publisher, conditions.clone());
        assert_eq!(publisher.next(at(7_200_100)), None);
        conditions[0].reason = "KubeletStarting".to_owned();
        want(&mut publisher, conditions);
        assert!(publisher.next(at(7_200_200)).is_some());
        done(&mut publisher, Ok(view("u1")), at(7_200_205));
        want(&mut publisher, says(Status::False, 7202));
        assert!(publisher.next(at(7_200_300)).is_some());
        done(&mut publisher, Ok(view("u1")), at(7_200_305));
        // What was not taken is no message alone.
        want(&mut publisher, says(Status::False, 7203));
        assert_eq!(publisher.next(at(7_200_400)), None);
        publisher.node(NodeEvent::Missing, at(7_200_500));
        publisher.node(seen("u2"), at(7_200_600));
        assert!(publisher.next(at(7_200_600)).is_some());
    }

    #[test]
    fn a_change_during_flight_is_sent_after_it() {
        let mut publisher = ready();
        publisher.next(at(1)).unwrap();
        want(&mut publisher, vec![condition(Status::False)]);
        done(&mut publisher, Ok(view("u1")), at(5));
        assert_eq!(
            publisher.next(at(5)).unwrap().conditions[0].status,
            Status::False
        );
    }

    #[test]
    fn a_node_made_anew_is_written_again() {
        let mut publisher = ready();
        publisher.next(at(1)).unwrap();
        done(&mut publisher, Ok(view("u1")), at(5));
        assert_eq!(
            publisher.node(NodeEvent::Missing, at(6)),
            NodeChange::Missing
        );
        assert_eq!(publisher.next(at(7)), None);
        assert_eq!(
            publisher.node(seen("u2"), at(8)),
            NodeChange::New(view("u2"))
        );
        assert_eq!(publisher.next(at(9)).unwrap().uid, "u2");
    }

    #[test]
    fn a_node_that_was_missing_at_first_is_new() {
        let mut publisher = Publisher::new("n1");
        publisher.node(NodeEvent::Missing, at(0));
        assert_eq!(
            publisher.node(seen("u1"), at(1)),
            NodeChange::New(view("u1"))
        );
    }

    #[test]
    fn after_a_conflict_the_node_is_read_before_the_next_try() {
        for error in [ApiError::Conflict(String::new()), ApiError::NotFound] {
            let mut publisher = ready();
            publisher.next(at(1)).unwrap();
            done(&mut publisher, Err(error), at(2));
            assert_eq!(publisher.next(at(3)), None);
            assert_eq!(publisher.next_deadline(), None);
            assert_eq!(
                publisher.node(seen("u1"), at(4)),
                NodeChange::Same,
                "it is no other Node"
            );
            assert!(publisher.next(at(4)).is_some());
        }
    }

    #[test]
    fn what_an_old_request_overwrote_is_put_right_and_a_rival_is_not_fought() {
        let mut publisher = ready();
        publisher.next(at(1)).unwrap();
        done(
            &mut publisher,
            Ok(NodeView {
                version: "7".to_owned(),
                ..view("u1")
            }),
            at(2),
        );
        let overwritten = |version: &str| {
            NodeEvent::Seen(NodeView {
                version: version.to_owned(),
                ..view("u1")
            })
        };
        assert_eq!(
            publisher.node(overwritten("6"), at(3)),
            NodeChange::Same,
            "older than our apply"
        );
        assert_eq!(
            publisher.node(overwritten("8"), at(4)),
            NodeChange::Overwritten
        );
        assert!(publisher.next(at(4)).is_some());
        done(
            &mut publisher,
            Ok(NodeView {
                version: "9".to_owned(),
                ..view("u1")
            }),
            at(5),
        );
        assert_eq!(
            publisher.node(overwritten("10"), at(6)),
            NodeChange::Overwritten
        );
        assert_eq!(publisher.node(overwritten("11"), at(7)), NodeChange::Same);
        assert_eq!(publisher.next(at(50_000)), None);
        assert!(publisher.next(at(60_005)).is_some());
    }

    #[test]
    fn a_change_does_not_wait_for_the_turn_of_a_repair() {
        let mut publisher = ready();
        for version in [7, 9] {
            publisher.next(at(version)).unwrap();
            let node = |version: u64| NodeView {
                version: version.to_string(),
                ..view("u1")
            };
            done(&mut publisher, Ok(node(version)), at(version));
            let change = publisher.node(NodeEvent::Seen(node(version + 1)), at(version + 1));
            assert_eq!(change, NodeChange::Overwritten);
        }
        assert_eq!(publisher.next(at(1_000)), None);
        want(&mut publisher, vec![condition(Status::False)]);
        assert!(publisher.next(at(1_000)).is_some());
    }

    #[test]
    fn the_answer_to_a_request_that_was_given_up_counts_for_nothing() {
        let mut publisher = ready();
        let given_up = publisher.next(at(1)).unwrap().attempt;
        publisher.forget_in_flight();
        publisher.next(at(2)).unwrap();
        publisher.done(given_up, &Ok(view("u1")), at(3));
        assert!(!publisher.is_current());
    }

    fn owned(version: &str, ours: bool, foreign: Option<&str>, stored: &Condition) -> NodeEvent {
        NodeEvent::Seen(NodeView {
            version: version.to_owned(),
            conditions: vec![(
                stored.r#type,
                Stored {
                    status: stored.status,
                    reason: stored.reason.clone(),
                    message: stored.message.clone(),
                    since: stored.last_transition_time,
                },
            )],
            owners: vec![Ownership {
                r#type: stored.r#type,
                ours,
                foreign: foreign.map(str::to_owned),
            }],
            ..view("u1")
        })
    }

    #[test]
    fn what_another_had_first_is_never_written_and_taken_when_it_goes() {
        for wish_first in [true, false] {
            let mut publisher = Publisher::new("n1");
            let theirs = condition(Status::False);
            let wish = vec![condition(Status::True)];
            if wish_first {
                want(&mut publisher, wish.clone());
            }
            publisher.node(owned("1", false, Some("npd"), &theirs), at(0));
            want(&mut publisher, wish.clone());
            assert_eq!(publisher.next(at(1)), None, "nothing is left to write");
            assert_eq!(publisher.refused()[0].manager, "npd");
            assert!(matches!(
                publisher.owner_news()[..],
                [OwnerNews::Refused(Refusal {
                    contested: false,
                    ..
                })]
            ));
            publisher.node(owned("2", false, Some("npd"), &theirs), at(2));
            assert_eq!(publisher.owner_news(), [], "said once");
            publisher.node(NodeEvent::Seen(view("u1")), at(3));
            assert_eq!(
                publisher.owner_news(),
                [OwnerNews::Taken(PublishedType::KubeletHealthy)]
            );
            assert_eq!(publisher.next(at(3)).unwrap().conditions, wish);
        }
    }

    #[test]
    fn what_is_ours_is_put_right_three_times_and_then_given_up() {
        let mut publisher = ready();
        let (ours, theirs) = (condition(Status::True), condition(Status::False));
        let (mut version, mut repairs, mut now) = (1, 0, 1);
        let mut refused_at = None;
        for _ in 0..10 {
            while let Some(apply) = publisher.next(at(now)) {
                version += 1;
                repairs += u32::from(!apply.conditions.is_empty());
                let NodeEvent::Seen(node) = owned(&version.to_string(), true, None, &ours) else {
                    panic!("seen");
                };
                done(&mut publisher, Ok(node), at(now));
            }
            version += 1;
            publisher.node(
                owned(&version.to_string(), true, Some("kubectl-edit"), &theirs),
                at(now + 1),
            );
            now += 61_000;
            if !publisher.refused().is_empty() {
                refused_at.get_or_insert(repairs);
            }
        }
        assert_eq!(refused_at, Some(4), "the first apply and three repairs");
        assert_eq!(repairs, 4);
        assert!(publisher.refused()[0].contested);
        // An hour after, and with nobody else there, it is ours again.
        now += 3_600_000;
        version += 1;
        publisher.node(owned(&version.to_string(), false, None, &theirs), at(now));
        assert_eq!(publisher.refused(), []);
        assert!(!publisher.next(at(now)).unwrap().conditions.is_empty());
    }

    #[test]
    fn nothing_to_publish_takes_away_what_is_there_and_is_then_quiet() {
        let mut publisher = Publisher::new("n1");
        let ours = condition(Status::True);
        publisher.node(owned("1", true, None, &ours), at(0));
        assert_eq!(publisher.next(at(1)), None, "nothing is known yet");
        want(&mut publisher, Vec::new());
        assert_eq!(publisher.next(at(1)).unwrap().conditions, []);
        done(&mut publisher, Ok(view("u1")), at(2));
        assert_eq!(publisher.next(at(4_000_000)), None);
        assert_eq!(publisher.next_deadline(), None);
        publisher.want(None, at(0));
        publisher.node(owned("9", true, None, &ours), at(4_000_001));
        assert_eq!(publisher.next(at(4_000_001)), None, "in the shadow");
    }
}
