//! Events about the Node: one for each transition, and one an hour while nodevigil itself has a trouble.
//!
//! At most 20 an hour. Events that cannot be sent now wait in a bounded queue.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::mpsc, time::sleep};

use super::{
    clock::{Now, left},
    connection::{ApiConnection, Failure},
    node::changed,
    pacing::Budget,
};
use crate::{
    condition::{Condition, Reason, Transition, Uptime},
    host::{api::NodeFacts, clock::uptime, trouble::Troubles},
};

/// The namespace of Events about objects that have none.
const NAMESPACE: &str = "default";
/// Who reports them (packaging/kubernetes/policy.yaml allows no other).
const REPORTING_CONTROLLER: &str = "nodevigil.io/agent";
/// The API's limits on `note` and `reportingInstance`.
const MAX_NOTE_BYTES: usize = 1024;
const MAX_INSTANCE_BYTES: usize = 128;
const MAX_WAITING: usize = 32;
const MAX_PER_HOUR: usize = 20;
const HOUR: Duration = Duration::from_hours(1);
const LOOK_FOR_TROUBLES_EVERY: Duration = Duration::from_mins(1);

/// The Events that wait, and how many may still be sent this hour.
#[derive(Debug)]
pub struct EventQueue {
    waiting: VecDeque<Waiting>,
    budget: Budget,
    dropped: u64,
    /// When the troubles are looked at next. One that ends within a minute seldom becomes an Event.
    look_at: Option<Uptime>,
    degraded_at: Option<Uptime>,
}

#[derive(Debug, Clone, PartialEq)]
struct Waiting {
    /// When it happened.
    at: Uptime,
    /// Random, and the same in each request, so that an Event whose answer was lost is not created twice.
    name: String,
    reason: String,
    note: String,
    warning: bool,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            budget: Budget::new(MAX_PER_HOUR, HOUR),
            dropped: 0,
            look_at: None,
            degraded_at: None,
        }
    }
}

impl EventQueue {
    /// Takes in transitions and sends them as Events until it is dropped.
    pub async fn publish(
        &mut self,
        client: Client,
        api: &ApiConnection,
        transitions: &mut mpsc::Receiver<Transition>,
    ) -> Infallible {
        let events = Api::<Event>::namespaced(client, NAMESPACE);
        loop {
            let next = self.waiting.front().cloned();
            let done = tokio::select! {
                () = self.collect(&api.troubles, transitions) => false,
                () = send(&events, api, next.as_ref()) => true,
            };
            if done {
                self.waiting.pop_front();
            }
        }
    }

    /// Waits for a transition, or until troubles have to be reported, and queues an Event for it.
    pub async fn collect(&mut self, troubles: &Troubles, transitions: &mut mpsc::Receiver<Transition>) {
        loop {
            let look_at = *self.look_at.get_or_insert_with(|| uptime() + LOOK_FOR_TROUBLES_EVERY);
            tokio::select! {
                Some(transition) = transitions.recv() => return self.add(transition, uptime()),
                () = sleep(left(look_at, uptime())) => self.look_at = None,
            }
            if self.add_troubles(troubles, uptime()) {
                return;
            }
        }
    }

    fn add(&mut self, Transition { from, to }: Transition, now: Uptime) {
        let warning = is_warning(&to);
        // What is shown first is news only if it is bad: each start of the agent would be an Event.
        if from.is_some() || warning {
            let note = format!("{} is {}: {}", to.kind.name(), to.status.name(), to.message);
            self.push(to.reason, &note, warning, now);
        }
    }

    /// Queues an Event about the present troubles; `false` if there are none or it is too early.
    fn add_troubles(&mut self, troubles: &Troubles, now: Uptime) -> bool {
        let present = troubles.present();
        if present.is_empty() || self.degraded_at.is_some_and(|at| now < at + HOUR) {
            return false;
        }
        self.degraded_at = Some(now);
        let all: Vec<_> = present.iter().map(|(trouble, message)| format!("{}: {message}", trouble.name())).collect();
        self.push("NodevigilDegraded".to_owned(), &all.join("; "), true, now);
        true
    }

    fn push(&mut self, reason: String, note: &str, warning: bool, at: Uptime) {
        if !self.budget.take(at) {
            return self.count_dropped(&format!("there were {MAX_PER_HOUR} within an hour"));
        }
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.count_dropped(&format!("{MAX_WAITING} wait for the API server already"));
        }
        let name = format!("nodevigil-{:016x}", fastrand::u64(..));
        self.waiting.push_back(Waiting { at, name, reason, note: redact::bounded(note, MAX_NOTE_BYTES), warning });
    }

    fn count_dropped(&mut self, why: &str) {
        self.dropped += 1;
        // One line for the first, second, fourth, eighth …, so that the log is bounded as well.
        if self.dropped.is_power_of_two() {
            tracing::warn!("an Event is dropped, because {why}; {} so far", self.dropped);
        }
    }
}

/// Whether the Event is of type Warning: the condition shows a problem, or has the status of health with another reason. A bootstrap that
/// is late is one too: autoscalers give a Node up before its condition is `False`.
fn is_warning(condition: &Condition) -> bool {
    let is_healthy = condition.reason == Reason::healthy(condition.kind).spec().name;
    let is_late = condition.reason == Reason::BootstrapStageLate.spec().name;
    condition.is_problem() || is_late || (condition.status == condition.kind.healthy_status() && !is_healthy)
}

/// Returns when the Event is created or refused for good; never if there is none.
async fn send(events: &Api<Event>, api: &ApiConnection, waiting: Option<&Waiting>) {
    let Some(waiting) = waiting else { return std::future::pending().await };
    let mut facts = api.facts.subscribe();
    loop {
        let node = facts.borrow_and_update().node.clone();
        let Some(node) = node else {
            changed(&mut facts).await;
            continue;
        };
        let answer = events.create(&PostParams::default(), &event(waiting, &node, api.now())).await;
        api.record_answer("create an Event", &node.name, answer.as_ref().err());
        // What is refused is dropped. 409 is the answer if an earlier attempt has created it.
        if !matches!(&answer, Err(error) if Failure::of(error) == Failure::Unanswered) {
            return;
        }
    }
}

fn event(waiting: &Waiting, node: &NodeFacts, now: Now) -> Event {
    let age = SignedDuration::try_from(now.uptime.saturating_sub(waiting.at)).unwrap_or_default();
    let happened = now.server.checked_sub(age).unwrap_or(now.server);
    let micros = Timestamp::from_microsecond(happened.as_microsecond()).unwrap_or(happened);
    Event {
        metadata: ObjectMeta {
            name: Some(waiting.name.clone()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(micros)),
        reporting_controller: Some(REPORTING_CONTROLLER.to_owned()),
        reporting_instance: Some(redact::bounded(&node.name, MAX_INSTANCE_BYTES)),
        action: Some("Report".to_owned()),
        reason: Some(waiting.reason.clone()),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.name.clone()),
            uid: Some(node.uid.clone()),
            ..ObjectReference::default()
        }),
        note: Some(waiting.note.clone()),
        type_: Some(if waiting.warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{condition::ConditionType, host::trouble::Trouble};

    fn condition(reason: Reason) -> Condition {
        let spec = reason.spec();
        let (kind, message) = (ConditionType::KubeletHealthy, "m".repeat(2000));
        Condition { kind, status: spec.status, reason: spec.name.into(), message, flips: 0 }
    }

    fn transition(to: Reason) -> Transition {
        Transition { from: Some(condition(Reason::KubeletStarting)), to: condition(to) }
    }

    fn at(secs: u64) -> Uptime {
        Duration::from_secs(secs)
    }

    #[test]
    fn what_is_bad_or_a_warning_is_of_type_warning() {
        let of = |reason| {
            let mut queue = EventQueue::default();
            queue.add(transition(reason), at(0));
            queue.waiting.pop_front().unwrap()
        };
        assert!(of(Reason::KubeletCrashed).warning);
        assert!(of(Reason::KubeletHealthzUnreachable).warning);
        assert!(!of(Reason::KubeletIsHealthy).warning);
        assert!(!of(Reason::KubeletStoppedByOperator).warning);
        assert!(of(Reason::BootstrapStageLate).warning);
        assert!(of(Reason::KubeletCrashed).note.len() <= MAX_NOTE_BYTES, "the API's limit");
    }

    #[test]
    fn an_hour_has_twenty_events_and_thirty_two_wait() {
        let mut queue = EventQueue::default();
        (0..25).for_each(|_| queue.add(transition(Reason::KubeletCrashed), at(1)));
        assert_eq!((queue.waiting.len(), queue.dropped), (20, 5));
        queue.add(transition(Reason::KubeletCrashed), at(3601));
        assert_eq!(queue.waiting.len(), 21, "the next hour");
        for hour in 2..100 {
            (0..20).for_each(|_| queue.add(transition(Reason::KubeletCrashed), at(3600 * hour)));
        }
        assert_eq!(queue.waiting.len(), MAX_WAITING);
    }

    #[test]
    fn a_trouble_becomes_an_event_once_an_hour_while_it_lasts() {
        let (mut queue, troubles) = (EventQueue::default(), Troubles::default());
        assert!(!queue.add_troubles(&troubles, at(0)));
        troubles.set(Trouble::BusLost, "the bus is gone".into());
        assert!(queue.add_troubles(&troubles, at(60)));
        assert!(!queue.add_troubles(&troubles, at(3600)));
        assert!(queue.add_troubles(&troubles, at(3660)));
        assert_eq!(queue.waiting[0].reason, "NodevigilDegraded");
        assert!(queue.waiting[0].note.contains("BusLost: the bus is gone"));
    }

    #[test]
    fn an_event_that_had_to_wait_has_the_time_at_which_it_happened() {
        let mut queue = EventQueue::default();
        queue.add(transition(Reason::KubeletCrashed), at(100));
        let server = "2026-11-26T06:17:00Z".parse().unwrap();
        let node = NodeFacts { name: "n1".into(), uid: "u1".into(), created: server, ..NodeFacts::default() };
        let event = event(&queue.waiting[0], &node, Now { uptime: at(130), server });
        assert_eq!(event.event_time.unwrap().0, "2026-11-26T06:16:30Z".parse().unwrap());
        assert_eq!(event.regarding.unwrap().uid.as_deref(), Some("u1"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
}
