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
    wish: Vec<Condition>,
    attempts: u64,
    in_flight: Option<Apply>,
    published: Option<Apply>,
    /// The Node's version after our last apply: what the watch still has to say of older ones is no news.
    version: Option<u64>,
    repair_at: Duration,
    /// From when on what was overwritten may be written again.
    overwritten: Option<Duration>,
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
            wish: Vec::new(),
            attempts: 0,
            in_flight: None,
            published: None,
            version: None,
            repair_at: Duration::ZERO,
            overwritten: None,
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

    /// What the Node should have from now on.
    pub fn want(&mut self, conditions: Vec<Condition>) {
        self.wish = conditions;
    }

    /// When an apply last succeeded.
    pub fn last_success(&self) -> Option<Now> {
        self.last_success
    }

    /// Whether the Node shows what we wish.
    pub fn is_current(&self) -> bool {
        self.overwritten.is_none() && self.wish_is_published()
    }

    fn wish_is_published(&self) -> bool {
        self.published.as_ref().is_some_and(|published| {
            published.conditions == self.wish
                && self.subject == Subject::Present(published.uid.clone())
        })
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
                self.published = None;
                return change;
            }
            NodeEvent::Seen(view) => view,
        };
        let was_missing = self.subject == Subject::Missing;
        self.subject = Subject::Present(view.uid.clone());
        let met = self.met.replace(view.uid.clone());
        if met.as_ref() == Some(&view.uid) {
            return self.repair(&view, now);
        }
        (self.published, self.overwritten) = (None, None);
        // A Node that was not there when we first looked is as new as one that replaced another.
        if met.is_some() || was_missing {
            NodeChange::New(view)
        } else {
            NodeChange::First(view)
        }
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
        if known || shows(view, &published.conditions) {
            return NodeChange::Same;
        }
        self.overwritten = Some(self.repair_at.max(now.uptime));
        self.repair_at = now.uptime + REPAIR_EVERY;
        NodeChange::Overwritten
    }

    /// The apply that is due now, if any; it is in flight from then on until [`Publisher::done`].
    pub fn next(&mut self, now: Now) -> Option<Apply> {
        self.next_deadline().filter(|at| now.uptime >= *at)?;
        let Subject::Present(uid) = &self.subject else {
            return None;
        };
        self.attempts += 1;
        let apply = Apply {
            attempt: self.attempts,
            uid: uid.clone(),
            conditions: self.wish.clone(),
        };
        self.in_flight = Some(apply.clone());
        Some(apply)
    }

    /// When the next apply is due (uptime), unless what is known changes.
    pub fn next_deadline(&self) -> Option<Duration> {
        let idle = matches!(self.subject, Subject::Present(_))
            && self.in_flight.is_none()
            && !self.wish.is_empty();
        idle.then(|| {
            if self.wish_is_published() {
                self.overwritten.unwrap_or(self.heartbeat_at)
            } else {
                Duration::ZERO
            }
        })
    }

    /// Whatever was in flight will not come back: its connection was dropped.
    pub fn forget_in_flight(&mut self) {
        if self.in_flight.take().is_some() {
            self.published = None;
        }
    }

    /// Takes in how an apply ended; `false` if it is one that was given up.
    pub fn done(&mut self, attempt: u64, result: &Result<NodeView, ApiError>, now: Now) -> bool {
        let Some(applied) = self.in_flight.take_if(|apply| apply.attempt == attempt) else {
            return false;
        };
        match result {
            Ok(node) => {
                self.published = Some(applied);
                self.overwritten = None;
                self.version = node.version.parse().ok();
                self.heartbeat_at = now.uptime + self.backoff.around(HEARTBEAT);
                self.last_success = Some(now);
            }
            // It is not the Node that we knew: it is read anew before the next try.
            Err(ApiError::NotFound | ApiError::Conflict(_)) => self.subject = Subject::Unread,
            // It may have been carried out, or may yet be: what the Node shows is not known.
            Err(_) => self.published = None,
        }
        true
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

    #[expect(clippy::needless_pass_by_value, reason = "the calls read better")]
    fn done(publisher: &mut Publisher, result: Result<NodeView, ApiError>, now: Now) {
        publisher.done(publisher.attempts, &result, now);
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
        publisher.want(vec![condition(Status::False)]);
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
}
