//! When to apply what: the whole set at once on a change, a heartbeat each five minutes, and patience after failures.
//!
//! Pure and level-triggered: there is one wish and one thing in flight; after any outage one apply brings the Node up
//! to date.

use std::time::Duration;

use super::{
    api::{ApiError, NodeView},
    backoff::Backoff,
    watch::NodeEvent,
};
use crate::{clock::Now, desired::Condition};

/// The heartbeat's period, a tenth more or less (as the kubelet's own status report): 11 to 14 writes an hour.
pub const HEARTBEAT: Duration = Duration::from_mins(5);

/// How often what somebody else overwrote is written again.
pub const REPAIR_EVERY: Duration = Duration::from_mins(1);

/// One apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apply {
    /// Its number: an answer that comes after its request was given up must not pass for the next one's.
    pub attempt: u64,
    /// The Node that it is meant for.
    pub uid: String,
    /// The complete set.
    pub conditions: Vec<Condition>,
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

/// What to do after an apply failed, besides trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing more.
    Wait,
    /// The request may still land: its connection must die.
    Reconnect,
    /// Read the credential anew, once.
    ReadCredential,
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
    /// Whether a Node was ever seen in this life, so that the next one is known to be new.
    met: bool,
    wish: Vec<Condition>,
    attempts: u64,
    in_flight: Option<Apply>,
    published: Option<Apply>,
    /// The Node's version after our last apply: what the watch still has to say of older ones is no news.
    version: Option<u64>,
    repair_at: Duration,
    heartbeat_at: Duration,
    retry_at: Option<Duration>,
    backoff: Backoff,
    last_error: Option<ApiError>,
    last_success: Option<Now>,
    credential_was_read: bool,
}

impl Publisher {
    /// A writer for `node` that has written nothing yet.
    pub fn new(node: &str) -> Self {
        Self {
            node_name: node.to_owned(),
            subject: Subject::Unread,
            met: false,
            wish: Vec::new(),
            attempts: 0,
            in_flight: None,
            published: None,
            version: None,
            repair_at: Duration::ZERO,
            heartbeat_at: Duration::ZERO,
            retry_at: None,
            backoff: Backoff::new(node, "apply"),
            last_error: None,
            last_success: None,
            credential_was_read: false,
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

    /// What the Node should have from now on.
    pub fn want(&mut self, conditions: Vec<Condition>) {
        self.wish = conditions;
    }

    /// The last failure that no success has followed, and how many there were in a row.
    pub fn failure(&self) -> Option<(&ApiError, u32)> {
        Some((self.last_error.as_ref()?, self.backoff.failures()))
    }

    /// When an apply last succeeded.
    pub fn last_success(&self) -> Option<Now> {
        self.last_success
    }

    /// Whether the Node shows what we wish.
    pub fn is_current(&self) -> bool {
        self.published.as_ref().is_some_and(|published| {
            published.conditions == self.wish
                && self.subject == Subject::Present(published.uid.clone())
        })
    }

    /// Takes in what the watch saw.
    pub fn node(&mut self, event: NodeEvent, now: Now) -> NodeChange {
        let view = match event {
            NodeEvent::Failed(_) => return NodeChange::Same,
            NodeEvent::Missing => {
                self.hasten(now);
                let change = match self.subject {
                    Subject::Missing => NodeChange::Same,
                    _ => NodeChange::Missing,
                };
                self.subject = Subject::Missing;
                self.published = None;
                return change;
            }
            NodeEvent::Seen(view) => view,
        };
        self.hasten(now);
        let subject = Subject::Present(view.uid.clone());
        if self.subject == subject {
            return self.repair(&view, now);
        }
        let was_missing = self.subject == Subject::Missing;
        self.subject = subject;
        self.published = None;
        // A Node that was not there when we first looked is as new as one that replaced another.
        let change = if self.met || was_missing {
            NodeChange::New(view)
        } else {
            NodeChange::First(view)
        };
        self.met = true;
        change
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
        if older || self.in_flight.is_some() || shows(view, &published.conditions) {
            return NodeChange::Same;
        }
        self.published = None;
        self.retry_at = self.retry_at.max(Some(self.repair_at));
        self.repair_at = now.uptime + REPAIR_EVERY;
        NodeChange::Overwritten
    }

    /// The API answers again: what waits for that need not wait out its backoff. A refusal does.
    fn hasten(&mut self, now: Now) {
        let away = matches!(
            self.last_error,
            Some(
                ApiError::Network(_)
                    | ApiError::Timeout
                    | ApiError::NotFound
                    | ApiError::Conflict(_)
            )
        );
        if away && self.retry_at.is_some() {
            self.retry_at = Some(now.uptime);
        }
    }

    /// The apply that is due now, if any; it is in flight from then on until [`Publisher::done`].
    pub fn next(&mut self, now: Now) -> Option<Apply> {
        let Subject::Present(uid) = &self.subject else {
            return None;
        };
        let waits = self.retry_at.is_some_and(|at| now.uptime < at);
        if self.in_flight.is_some() || self.wish.is_empty() || waits {
            return None;
        }
        if self.is_current() && now.uptime < self.heartbeat_at {
            return None;
        }
        self.attempts += 1;
        let apply = Apply {
            attempt: self.attempts,
            uid: uid.clone(),
            conditions: self.wish.clone(),
        };
        self.in_flight = Some(apply.clone());
        Some(apply)
    }

    /// When to ask again though nothing happens (uptime).
    pub fn next_deadline(&self) -> Option<Duration> {
        let idle = matches!(self.subject, Subject::Present(_))
            && self.in_flight.is_none()
            && !self.wish.is_empty();
        idle.then(|| {
            self.retry_at.unwrap_or(if self.is_current() {
                self.heartbeat_at
            } else {
                Duration::ZERO
            })
        })
    }

    /// Whatever was in flight will not come back: its connection was dropped.
    pub fn forget_in_flight(&mut self) {
        self.in_flight = None;
    }

    /// The identity changed: what the old one was refused, the new one may be granted.
    pub fn credential_renewed(&mut self, now: Now) {
        if self.retry_at.is_some() {
            self.retry_at = Some(now.uptime);
        }
    }

    fn succeeded(&mut self, applied: Apply, node: &NodeView, now: Now) {
        self.published = Some(applied);
        self.version = node.version.parse().ok();
        self.heartbeat_at = now.uptime + self.backoff.around(HEARTBEAT);
        self.backoff.reset();
        (self.retry_at, self.last_error) = (None, None);
        self.last_success = Some(now);
        self.credential_was_read = false;
    }

    /// Takes in how an apply ended.
    pub fn done(&mut self, attempt: u64, result: Result<NodeView, ApiError>, now: Now) -> Remedy {
        let Some(applied) = self.in_flight.take_if(|apply| apply.attempt == attempt) else {
            return Remedy::Wait;
        };
        let error = match result {
            Ok(node) => {
                self.succeeded(applied, &node, now);
                return Remedy::Wait;
            }
            Err(e) => e,
        };
        self.retry_at = Some(now.uptime + self.backoff.after(&error));
        let remedy = match &error {
            ApiError::Timeout => Remedy::Reconnect,
            ApiError::Unauthorized if !self.credential_was_read => {
                self.credential_was_read = true;
                Remedy::ReadCredential
            }
            ApiError::NotFound => {
                self.subject = Subject::Missing;
                Remedy::Wait
            }
            _ => Remedy::Wait,
        };
        self.last_error = Some(error);
        remedy
    }
}

/// Whether the Node has these conditions. Times on the Node have whole seconds.
fn shows(view: &NodeView, conditions: &[Condition]) -> bool {
    conditions.iter().all(|wished| {
        view.conditions.iter().any(|(r#type, stored)| {
            *r#type == wished.r#type
                && stored.status == wished.status
                && stored.reason == wished.reason
                && stored.message == wished.message
                && stored.since.as_second() == wished.last_transition_time.as_second()
        })
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        cluster::api::NodeFacts,
        health::{ConditionType, Status},
    };

    fn at(millis: u64) -> Now {
        Now {
            uptime: Duration::from_millis(millis),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn condition(status: Status) -> Condition {
        Condition {
            r#type: ConditionType::KubeletHealthy,
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
            conditions: Vec::new(),
            facts: NodeFacts::default(),
        }
    }

    fn seen(uid: &str) -> NodeEvent {
        NodeEvent::Seen(view(uid))
    }

    fn done(publisher: &mut Publisher, result: Result<NodeView, ApiError>, now: Now) -> Remedy {
        publisher.done(publisher.attempts, result, now)
    }

    fn ready() -> Publisher {
        let mut publisher = Publisher::new("n1");
        publisher.node(seen("u1"), at(0));
        publisher.want(vec![condition(Status::True)]);
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
        publisher.want(vec![condition(Status::False)]);
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
    fn a_change_during_flight_is_sent_after_it() {
        let mut publisher = ready();
        publisher.next(at(1)).unwrap();
        publisher.want(vec![condition(Status::False)]);
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
    fn an_api_that_returns_is_written_to_at_once_but_a_refusal_waits() {
        let mut publisher = ready();
        publisher.next(at(1)).unwrap();
        for _ in 0..12 {
            publisher.in_flight = Some(Apply {
                attempt: 1,
                uid: "u1".to_owned(),
                conditions: Vec::new(),
            });
            done(
                &mut publisher,
                Err(ApiError::Network("refused".to_owned())),
                at(2),
            );
        }
        publisher.node(seen("u1"), at(3));
        assert!(publisher.next(at(3)).is_some());
        assert_eq!(
            done(
                &mut publisher,
                Err(ApiError::Forbidden(String::new())),
                at(4)
            ),
            Remedy::Wait
        );
        publisher.node(seen("u1"), at(5));
        assert_eq!(publisher.next(at(59_000)), None);
        assert!(publisher.next(at(301_000)).is_some());
    }

    #[test]
    fn failures_ask_for_their_remedy() {
        let mut publisher = ready();
        publisher.next(at(1)).unwrap();
        assert_eq!(
            done(&mut publisher, Err(ApiError::Timeout), at(2)),
            Remedy::Reconnect
        );
        publisher.next(at(20_000)).unwrap();
        assert_eq!(
            done(&mut publisher, Err(ApiError::Unauthorized), at(20_001)),
            Remedy::ReadCredential
        );
        publisher.credential_renewed(at(20_002));
        publisher.next(at(20_003)).unwrap();
        assert_eq!(
            done(&mut publisher, Err(ApiError::Unauthorized), at(20_004)),
            Remedy::Wait,
            "once"
        );
        assert!(publisher.next_deadline().unwrap() >= Duration::from_secs(80));
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
        assert_eq!(publisher.next(at(50_000)), None);
        assert!(publisher.next(at(60_005)).is_some());
    }

    #[test]
    fn the_answer_to_a_request_that_was_given_up_counts_for_nothing() {
        let mut publisher = ready();
        let given_up = publisher.next(at(1)).unwrap().attempt;
        publisher.forget_in_flight();
        publisher.next(at(2)).unwrap();
        publisher.done(given_up, Ok(view("u1")), at(3));
        assert!(!publisher.is_current());
    }
}
