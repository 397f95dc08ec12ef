//! Events about the Node: one for each transition, and one an hour while nodevigil itself has a trouble. At most 20 an hour, and as many of
//! custom checks.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;

use super::clock::{sleep_until, whole_seconds};
use super::connection::{ANSWERS_READS, ApiConnection, CREATE_EVENT, Failure, MAX_FAILED_WRITES};
use super::pacing::{Backoff, Budget};
use crate::condition::{Condition, ConditionType, Occurrence, Reason, Transition, Uptime};
use crate::facts::NodeFacts;
use crate::host::clock::{Now, uptime};
use crate::trouble::Troubles;

/// The namespace of Events about objects that have none.
const NAMESPACE: &str = "default";
/// The reporting controller (packaging/kubernetes/policy.yaml allows no other).
pub const REPORTING_CONTROLLER: &str = "nodevigil.io/agent";
/// The reason of the Event about a trouble.
pub const DEGRADED: &str = "NodevigilDegraded";
/// The API's limits on `message` and `reportingInstance`.
const MAX_NOTE_BYTES: usize = 1024;
const MAX_INSTANCE_BYTES: usize = 128;
const MAX_PER_HOUR: usize = 20;
const HOUR: Duration = Duration::from_hours(1);
const CHECK_TROUBLES_EVERY: Duration = Duration::from_mins(1);
/// The longest time between two attempts to create an Event.
const LONGEST_DELAY: Duration = Duration::from_secs(15);
/// After so many attempts, which take about four minutes, an Event is given up if other requests are answered.
const MAX_ATTEMPTS: u32 = 20;

/// The next Event, and how many may still be sent this hour. Transitions wait in their channel.
#[derive(Debug)]
pub struct EventQueue {
    /// It, and when it happened. Kept until it is answered, also by another client.
    next: Option<(Event, Uptime)>,
    /// Whether no Event is sent.
    pub is_dry_run: bool,
    budget: Budget,
    /// The budget of custom checks, which take nothing from nodevigil's own.
    custom_budget: Budget,
    /// When the troubles are checked next. A trouble that ends within a minute rarely becomes an Event.
    check_at: Uptime,
    degraded_at: Option<Uptime>,
    /// The types of the conditions that the Node had when it was first seen. Those of ours are from an earlier run of the agent.
    first_shown: Option<Vec<String>>,
}

impl EventQueue {
    pub fn new(now: Uptime) -> Self {
        let [budget, custom_budget] = [(); 2].map(|()| Budget::new(MAX_PER_HOUR, HOUR));
        let check_at = now + CHECK_TROUBLES_EVERY;
        Self { next: None, is_dry_run: false, budget, custom_budget, check_at, degraded_at: None, first_shown: None }
    }

    /// Sends an Event for each transition until it is dropped.
    pub async fn publish(
        &mut self,
        client: Client,
        api: &ApiConnection,
        occurrences: &mut mpsc::Receiver<Occurrence>,
    ) -> Infallible {
        if self.first_shown.is_none() {
            self.first_shown =
                Some(seen(api, Uptime::MAX).await.conditions.into_iter().map(|condition| condition.kind).collect());
        }
        loop {
            if let Some((event, at)) = &self.next {
                Box::pin(send(&client, api, event, *at)).await;
                self.next = None;
            }
            tokio::select! {
                Some(occurrence) = occurrences.recv() => match occurrence {
                    Occurrence::Transition(transition) => self.add(transition),
                    Occurrence::Note { reason, text, is_warning, at } => self.push(reason.to_owned(), &text, is_warning, false, at),
                },
                () = sleep_until(self.check_at) => self.add_troubles(&api.troubles, uptime()),
            }
        }
    }

    fn add(&mut self, Transition { from, to, at }: Transition) {
        let (warning, is_custom) = (is_warning(&to), matches!(to.kind, ConditionType::Custom(_)));
        // Of a custom check only a problem and the end of one that was on the Node: there may be many.
        let ends = from.as_ref().is_some_and(Condition::is_problem) && to.kind.is_published();
        if is_custom && !warning && !ends {
            return;
        }
        // The first state is an Event only if it is a warning; otherwise each start of the agent would create Events. If the Node shows this
        // condition from an earlier run of the agent, the transition from there follows, if there is one.
        let is_on_node = || self.first_shown.iter().flatten().any(|shown| shown == to.kind.name());
        if from.is_some() || (warning && !is_on_node()) {
            let note = format!("{} is {}: {}", to.kind.name(), to.status.name(), to.message);
            self.push(to.reason, &note, warning, is_custom, at);
        }
    }

    fn add_troubles(&mut self, troubles: &Troubles, now: Uptime) {
        self.check_at = now + CHECK_TROUBLES_EVERY;
        let present = troubles.present();
        if !present.is_empty() && self.degraded_at.is_none_or(|at| now >= at + HOUR) {
            self.degraded_at = Some(now);
            let all: Vec<_> = present.iter().map(|(trouble, why)| format!("{}: {why}", trouble.name())).collect();
            self.push(DEGRADED.to_owned(), &all.join("; "), true, false, now);
        }
    }

    fn push(&mut self, reason: String, note: &str, warning: bool, is_custom: bool, at: Uptime) {
        if self.is_dry_run {
            return;
        }
        let budget = if is_custom { &mut self.custom_budget } else { &mut self.budget };
        if !budget.take(at) {
            return tracing::warn!(
                "an Event with reason {reason} is dropped: nodevigil has sent {MAX_PER_HOUR} Events within an hour"
            );
        }
        // Random, and the same in each request, so that an Event whose answer was lost is not created twice.
        let name = Some(format!("nodevigil-{:016x}", fastrand::u64(..)));
        let event = Event {
            metadata: ObjectMeta { name, namespace: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
            reporting_component: Some(REPORTING_CONTROLLER.to_owned()),
            action: Some("Report".to_owned()),
            reason: Some(reason),
            message: Some(redact::bounded(note, MAX_NOTE_BYTES)),
            count: Some(1),
            type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        };
        self.next = Some((event, at));
    }
}

/// Whether the Event is of type Warning: the condition shows a problem, or has the status of health with another reason. A bootstrap that
/// is late is one too: autoscalers give a Node up before its condition is `False`.
fn is_warning(condition: &Condition) -> bool {
    let is_healthy = condition.reason == Reason::healthy(condition.kind).spec().name;
    let is_late = condition.reason == Reason::BootstrapStageLate.spec().name;
    condition.is_problem() || is_late || (condition.status == condition.kind.healthy_status() && !is_healthy)
}

/// Returns when the Event is created, refused for good or given up. A kubelet before 1.35 may create Events of the core group alone.
async fn send(client: &Client, api: &ApiConnection, event: &Event, at: Uptime) {
    let (events, mut backoff) = (Api::namespaced(client.clone(), NAMESPACE), Backoff::new(LONGEST_DELAY));
    let mut failures = 0;
    loop {
        let node = seen(api, at).await;
        let answer = events.create(&PostParams::default(), &about(event, at, &node, api.now())).await;
        let error = answer.as_ref().err();
        api.record_answer(CREATE_EVENT, &node.name, error);
        // What is refused is dropped. 409 is the answer if an earlier attempt has created it.
        if error.map(Failure::of) != Some(Failure::Unanswered) {
            return;
        }
        // In an outage an Event waits for its end.
        failures = if api.is_unreached() { 0 } else { failures + 1 };
        if failures >= MAX_FAILED_WRITES {
            api.record_refusal(CREATE_EVENT, &node.name, error.map(|error| (error, ANSWERS_READS)));
        }
        if failures >= MAX_ATTEMPTS {
            return;
        }
        // `ApiConnection` alone would not delay this while reads are answered and writes are not.
        backoff.failed(uptime(), Duration::ZERO);
        sleep_until(backoff.until(uptime()).unwrap_or_default()).await;
    }
}

/// Waits until the Node exists. It has the uid of the one that was there at that time, which may have been deleted since.
async fn seen(api: &ApiConnection, at: Uptime) -> NodeFacts {
    let mut facts = api.facts.subscribe();
    let seen = facts.wait_for(|facts| facts.node.is_some()).await.ok().and_then(|facts| {
        let former = facts.former.as_ref().filter(|(_, gone)| at < *gone).map(|(uid, _)| uid.clone());
        let node = facts.node.clone()?;
        Some(NodeFacts { uid: former.unwrap_or_else(|| node.uid.clone()), ..node })
    });
    seen.expect("`api` holds the sender, and the Node was just seen")
}

/// The Event about a Node, with the time at which it happened by the API server's clock.
fn about(event: &Event, at: Uptime, node: &NodeFacts, now: Now) -> Event {
    let happened = now.server_at(at);
    let micros = Timestamp::from_microsecond(happened.timestamp().as_microsecond()).unwrap_or(happened.timestamp());
    let (time, host) =
        (Some(Time::from(whole_seconds(happened))), Some(redact::bounded(&node.name, MAX_INSTANCE_BYTES)));
    let involved_object = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        uid: Some(node.uid.clone()),
        ..ObjectReference::default()
    };
    Event {
        involved_object,
        source: Some(EventSource { component: event.reporting_component.clone(), host: host.clone() }),
        first_timestamp: time.clone(),
        last_timestamp: time,
        event_time: Some(MicroTime(micros)),
        reporting_instance: host,
        ..event.clone()
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::watch;
    use tokio::time::timeout;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::facts::{ApiFacts, RequestCounts};
    use crate::trouble::Trouble;

    fn condition(reason: Reason) -> Condition {
        let spec = reason.spec();
        let (kind, message) = (ConditionType::KubeletHealthy, "m".repeat(2000));
        Condition { kind, status: spec.status, reason: spec.name.into(), message, since: Uptime::ZERO }
    }

    fn transition(to: Reason, at: Uptime) -> Transition {
        Transition { from: Some(condition(Reason::KubeletStarting)), to: condition(to), at }
    }

    fn queue() -> EventQueue {
        EventQueue::new(at(0))
    }

    fn at(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    #[test]
    fn what_is_bad_or_a_warning_is_of_type_warning() {
        let of = |reason| {
            let mut queue = queue();
            queue.add(transition(reason, at(0)));
            queue.next.unwrap().0
        };
        for (reason, wanted) in [
            (Reason::KubeletCrashed, "Warning"),
            (Reason::KubeletHealthzUnreachable, "Warning"),
            (Reason::KubeletIsHealthy, "Normal"),
            (Reason::KubeletStoppedByOperator, "Normal"),
            (Reason::BootstrapStageLate, "Warning"),
        ] {
            assert_eq!(of(reason).type_.as_deref(), Some(wanted), "{reason:?}");
        }
        assert!(of(Reason::KubeletCrashed).message.unwrap().len() <= MAX_NOTE_BYTES, "the API's limit");
    }

    #[test]
    fn what_is_shown_first_becomes_an_event_if_it_is_a_problem_that_no_earlier_run_of_the_agent_has_shown() {
        let mut queue = queue();
        let mut is_sent = |to, on_node: &[&str]| {
            queue.first_shown = Some(on_node.iter().map(ToString::to_string).collect());
            queue.add(Transition { from: None, to: condition(to), at: at(0) });
            queue.next.take().is_some()
        };
        assert!(is_sent(Reason::KubeletCrashed, &["Ready"]));
        assert!(!is_sent(Reason::KubeletCrashed, &["Ready", "KubeletHealthy"]), "the agent was restarted");
        assert!(!is_sent(Reason::KubeletIsHealthy, &["Ready"]));
    }

    #[test]
    fn custom_checks_have_events_of_problems_and_a_budget_of_their_own() {
        let [ntp, _, oom] = crate::condition::custom::tests::registered();
        let mut queue = queue();
        let custom = |kind: ConditionType, reason: &str| {
            let status = Reason::of(kind, reason).unwrap().spec().status;
            Condition { kind, status, reason: reason.into(), message: "m".into(), since: at(0) }
        };
        let mut is_sent = |kind, from: &str, to: &str| {
            queue.add(Transition { from: Some(custom(kind, from)), to: custom(kind, to), at: at(0) });
            queue.next.take().is_some()
        };
        assert!(!is_sent(ntp, "CheckUnknown", "NTPIsUp") && !is_sent(ntp, "NTPIsUp", "CheckUnknown"));
        assert!(is_sent(ntp, "NTPIsUp", "NTPIsDown") && is_sent(ntp, "NTPIsDown", "NTPIsUp"));
        assert!(is_sent(oom, "CheckPassed", "OOMKilling") && !is_sent(oom, "OOMKilling", "CheckPassed"));
        let sent = (0..MAX_PER_HOUR).filter(|_| is_sent(oom, "CheckPassed", "OOMKilling")).count();
        assert_eq!(sent, MAX_PER_HOUR - 3);
        queue.add(transition(Reason::KubeletCrashed, at(0)));
        assert!(queue.next.is_some(), "they take nothing from nodevigil's own");
    }

    #[test]
    fn an_hour_has_twenty_events() {
        let mut queue = queue();
        let mut is_sent = |secs| {
            queue.add(transition(Reason::KubeletCrashed, at(secs)));
            queue.next.take().is_some()
        };
        assert_eq!((0..25).filter(|_| is_sent(1)).count(), 20);
        assert!(is_sent(3601), "the next hour");
    }

    #[test]
    fn a_trouble_becomes_an_event_once_an_hour_while_it_lasts() {
        let (mut queue, troubles) = (queue(), Troubles::default());
        let mut check = |troubles: &Troubles, secs| {
            queue.add_troubles(troubles, at(secs));
            queue.next.take()
        };
        assert!(check(&troubles, 0).is_none());
        troubles.set(Trouble::BusLost, "the bus is gone".into());
        let (event, _) = check(&troubles, 60).unwrap();
        assert_eq!(event.reason.as_deref(), Some("NodevigilDegraded"));
        assert!(event.message.unwrap().contains("BusLost: the bus is gone"));
        assert!(check(&troubles, 3600).is_none());
        assert!(check(&troubles, 3660).is_some());
    }

    #[test]
    fn an_event_that_had_to_wait_has_the_time_at_which_it_happened() {
        let mut queue = queue();
        queue.add(transition(Reason::KubeletCrashed, at(100)));
        let node = NodeFacts { name: "n1".into(), uid: "u1".into(), ..NodeFacts::default() };
        let (event, happened_at) = queue.next.unwrap();
        let event = about(&event, happened_at, &node, Now::of(at(130), "2026-11-26T06:17:00Z".parse().unwrap()));
        assert_eq!(event.event_time.unwrap().0, "2026-11-26T06:16:30Z".parse().unwrap());
        assert_eq!(event.involved_object.uid.as_deref(), Some("u1"));
    }

    /// Sends Events to an API server that answers each with this HTTP status; returns what was posted, and the troubles.
    async fn posted(code: u16, count: usize) -> (Vec<Value>, Troubles) {
        let (posted, api) = posted_within(Duration::from_secs(2), code, count).await;
        (posted, api.troubles)
    }

    /// The same within this time.
    async fn posted_within(time: Duration, code: u16, count: usize) -> (Vec<Value>, ApiConnection) {
        let (sender, mut posted) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Body>| {
            let sender = sender.clone();
            async move {
                assert_eq!(request.uri().path(), "/api/v1/namespaces/default/events");
                let body = request.into_body().collect_bytes().await?;
                sender.send(serde_json::from_slice(&body)?)?;
                let refusal = json!({"kind": "Status", "status": "Failure", "code": code, "message": "refused"});
                let answer = if code == 201 { body } else { refusal.to_string().into_bytes().into() };
                Ok::<_, BoxError>(Response::builder().status(code).body(Body::from(answer))?)
            }
        });
        let node = NodeFacts { name: "n1".into(), uid: "u1".into(), ..NodeFacts::default() };
        let facts = watch::Sender::new(ApiFacts { node: Some(node), ..ApiFacts::default() });
        let api = ApiConnection::new(facts, RequestCounts::default(), Troubles::default());
        let client = api.wrap(Client::new(service, "default"));
        let (transitions, mut received) = mpsc::channel(count);
        for _ in 0..count {
            transitions.try_send(Occurrence::Transition(transition(Reason::KubeletCrashed, uptime()))).unwrap();
        }
        let mut queue = EventQueue::new(uptime());
        drop(timeout(time, queue.publish(client, &api, &mut received)).await);
        (std::iter::from_fn(|| posted.try_recv().ok()).collect(), api)
    }

    #[tokio::test]
    async fn what_happened_before_the_node_was_re_created_is_about_the_former_node() {
        let (node, former) = (NodeFacts { uid: "new".into(), ..NodeFacts::default() }, Some(("old".into(), at(100))));
        let facts = watch::Sender::new(ApiFacts { node: Some(node), former, ..ApiFacts::default() });
        let api = ApiConnection::new(facts, RequestCounts::default(), Troubles::default());
        assert_eq!((seen(&api, at(99)).await.uid, seen(&api, at(100)).await.uid), ("old".into(), "new".into()));
    }

    #[tokio::test]
    async fn a_dry_run_sends_no_event() {
        let mut queue = EventQueue { is_dry_run: true, ..queue() };
        queue.add(transition(Reason::KubeletCrashed, at(0)));
        assert!(queue.next.is_none());
    }

    #[tokio::test]
    async fn an_event_is_about_the_node_and_what_is_refused_is_a_trouble() {
        let (posted_first, troubles) = posted(201, 2).await;
        assert!(posted_first.len() == 2 && troubles.present().is_empty(), "{:?}", troubles.present());
        let event = &posted_first[0];
        assert_eq!((&event["apiVersion"], &event["kind"]), (&json!("v1"), &json!("Event")));
        let about = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"});
        assert_eq!((&event["involvedObject"], &event["type"]), (&about, &json!("Warning")));
        assert_eq!(event["source"], json!({"component": REPORTING_CONTROLLER, "host": "n1"}));
        assert_eq!((&event["reportingComponent"], &event["count"]), (&json!(REPORTING_CONTROLLER), &json!(1)));
        assert_eq!(event["firstTimestamp"], event["lastTimestamp"]);
        assert!(event["firstTimestamp"].is_string() && event["eventTime"].is_string(), "{event}");
        for code in [403, 422] {
            let (sent, troubles) = posted(code, 2).await;
            assert_eq!(sent.len(), 2, "each is tried once");
            assert!(troubles.present()[&Trouble::ApiRefused].contains("refuses to create an Event"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_fails_at_events_alone_is_reached_and_an_event_is_given_up_after_minutes() {
        let (sent, api) = posted_within(Duration::from_mins(10), 500, 1).await;
        let first = &sent[0]["metadata"]["name"];
        let attempts = sent.iter().filter(|event| event["metadata"]["name"] == *first).count();
        assert!((10..=30).contains(&attempts), "{attempts}");
        let trouble = api.troubles.present()[&Trouble::ApiRefused].clone();
        assert!(trouble.contains("refuses to create an Event") && trouble.contains("webhooks"), "{trouble}");
        assert!(!api.is_unreached(), "{:?}", api.facts.borrow().reach);
    }
}
