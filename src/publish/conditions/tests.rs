//! The reconciler against a Node that applies what it is sent, as the API server does, by a made-up clock.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::condition::Reason;
use crate::condition::profile::Profile;

const NATIVE: ConditionNames = ConditionNames { profile: Profile::Native, profile_only: false };

/// A Node in an API server.
struct Server {
    node: Value,
    version: u64,
}

impl Server {
    fn new(uid: &str) -> Self {
        let node = json!({
            "metadata": {"name": "n1", "uid": uid, "creationTimestamp": "2026-11-26T05:00:00Z", "managedFields": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        Self { node, version: 1 }
    }

    /// Carries out an apply of nodevigil's, or refuses it as the API server would.
    fn apply(&mut self, sent: &Node) -> Result<Option<ObservedNode>, Failure> {
        let metadata = &self.node["metadata"];
        let is_stale = sent.metadata.resource_version.as_ref().is_some_and(|sent| *sent != self.version.to_string());
        if sent.metadata.uid.as_deref() != metadata["uid"].as_str() || is_stale {
            return Err(Failure::Changed);
        }
        let sent = serde_json::to_value(&sent.status).unwrap()["conditions"].take();
        let (sent, before) = (sent.as_array().unwrap(), self.read().unwrap());
        // What we own and leave out is removed, whoever owns its fields.
        self.node["status"]["conditions"].as_array_mut().unwrap().retain(|one| {
            let is_sent = sent.iter().any(|sent| sent["type"] == one["type"]);
            is_sent || !before.ownership(one["type"].as_str().unwrap()).ours
        });
        self.write("nodevigil", sent);
        Ok(self.read())
    }

    /// A field manager writes these conditions. It becomes the only owner of those that it changes, and owns the others too.
    fn write(&mut self, manager: &str, conditions: &[Value]) {
        let stored = self.node["status"]["conditions"].as_array_mut().unwrap();
        let key = |condition: &Value| format!("k:{{\"type\":{}}}", condition["type"]);
        let changed: Vec<_> = conditions.iter().filter(|condition| !stored.contains(condition)).map(key).collect();
        for condition in conditions {
            stored.retain(|stored| stored["type"] != condition["type"]);
            stored.push(condition.clone());
        }
        let managed_fields = self.node["metadata"]["managedFields"].as_array_mut().unwrap();
        managed_fields.retain(|entry| entry["manager"] != manager);
        for entry in &mut *managed_fields {
            let is_ours = entry["manager"] == "nodevigil";
            let fields = entry["fieldsV1"]["f:status"]["f:conditions"].as_object_mut().unwrap();
            for key in &changed {
                // Of what it has lost, nodevigil keeps the ownership of the entry itself.
                if fields.remove(key).is_some() && is_ours {
                    fields.insert(key.clone(), json!({"f:type": {}}));
                }
            }
        }
        let fields: serde_json::Map<_, _> =
            conditions.iter().map(|one| (key(one), json!({"f:status": {}, "f:message": {}}))).collect();
        managed_fields.push(json!({"manager": manager, "fieldsV1": {"f:status": {"f:conditions": fields}}}));
        self.version += 1;
    }

    fn read(&self) -> Option<ObservedNode> {
        let mut node = self.node.clone();
        node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        ObservedNode::read(serde_json::from_value(node).unwrap())
    }

    /// What the Node shows: status and transition time.
    fn shown(&self) -> (String, Timestamp) {
        let node = self.read().unwrap();
        let condition = node.facts.condition("KubeletHealthy").unwrap();
        (condition.status.clone(), condition.last_transition.unwrap().timestamp())
    }
}

/// Reconciler and Node, and what is desired.
struct World {
    server: Server,
    reconciler: Reconciler,
    desired: Desired,
}

impl World {
    fn new() -> Self {
        Self {
            server: Server::new("u1"),
            reconciler: Reconciler::new(&TaintSettings::default(), NATIVE),
            desired: Desired::default(),
        }
    }

    /// From now on this is desired of the Node that there is.
    fn desire(&mut self, reason: Reason, since: u64) {
        let (spec, message) = (reason.spec(), "m".to_owned());
        let (name, status, reason) = ("KubeletHealthy", spec.status, spec.name.to_owned());
        let node_uid = self.server.node["metadata"]["uid"].as_str().map(Into::into);
        let published = vec![Published { name, status, reason, message, since: at(since).uptime }];
        self.desired = Desired { node_uid, published, ..Desired::default() };
    }

    /// Does what the reconciler wants until it waits; the number of applies that were carried out.
    fn settle(&mut self, secs: u64) -> usize {
        let mut applied = 0;
        self.reconciler.watched(self.server.read(), at(secs));
        let mut now = at(secs);
        for _ in 0..20 {
            match self.reconciler.step(&self.desired, now) {
                Step::WaitUntil(until) if until > now.uptime + Duration::from_secs(2) => return applied,
                // A refused request is sent again a little later.
                Step::WaitUntil(_) => now = at((now.uptime - Uptime::ZERO).as_secs() + 1),
                Step::Send(Request::Read) => self.reconciler.answered(&Request::Read, Ok(self.server.read()), now),
                Step::Send(Request::Apply(node)) => {
                    let answer = self.server.apply(&node);
                    applied += usize::from(answer.is_ok());
                    self.reconciler.answered(&Request::Apply(node), answer, now);
                }
                Step::Send(Request::Taint(_)) => unreachable!("the reconciler of conditions"),
            }
        }
        panic!("it does not come to rest: {:?}", self.reconciler);
    }

    /// Whether nothing is to be sent now.
    fn waits(&mut self, secs: u64) -> bool {
        matches!(self.reconciler.step(&self.desired, at(secs)), Step::WaitUntil(_))
    }

    /// Until when nothing is to be sent if nothing changes.
    fn waits_until(&mut self, secs: u64) -> Uptime {
        let Step::WaitUntil(until) = self.reconciler.step(&self.desired, at(secs)) else { panic!("it sends") };
        until
    }

    /// Sends an apply whose answer does not come; what was sent.
    fn send_without_answer(&mut self, secs: u64) -> Box<Node> {
        let Step::Send(Request::Apply(node)) = self.reconciler.step(&self.desired, at(secs)) else {
            panic!("nothing to apply")
        };
        self.reconciler.answered(&Request::Apply(node.clone()), Err(Failure::Unanswered), at(secs));
        node
    }
}

fn at(secs: u64) -> Now {
    Now::of(Uptime::from_secs(secs), time(secs))
}

/// The API server's time of day at that uptime.
fn time(secs: u64) -> Timestamp {
    let boot: Timestamp = "2026-11-26T06:00:00Z".parse().unwrap();
    boot + SignedDuration::from_secs(secs.try_into().unwrap())
}

fn shows(status: &str, secs: u64) -> (String, Timestamp) {
    (status.to_owned(), time(secs))
}

#[test]
fn a_change_is_applied_once_and_the_heartbeat_keeps_its_transition_time() {
    let mut world = World::new();
    assert_eq!(world.settle(0), 0, "nothing is desired");
    world.desire(Reason::KubeletIsHealthy, 0);
    assert_eq!(world.settle(10), 1);
    world.desire(Reason::KubeletCrashed, 1);
    assert_eq!(world.settle(20), 1);
    assert_eq!(world.server.shown(), shows("False", 20));
    assert_eq!(world.settle(1500), 0);
    assert_eq!(world.settle(2400), 1, "the heartbeat");
    assert_eq!(world.server.shown(), shows("False", 20));
    let heartbeat = world.server.read().unwrap().facts.condition("KubeletHealthy").unwrap().last_heartbeat;
    assert_eq!(heartbeat, Some(ServerTime::of(time(2400))));
    assert!(world.server.read().unwrap().facts.condition("Ready").is_some(), "others' conditions are left alone");
}

#[test]
fn a_problem_cannot_wait_until_the_node_shows_it_and_neither_can_a_stop() {
    let problem = |reason: Reason| {
        let (spec, kind) = (reason.spec(), ConditionType::KubeletHealthy);
        vec![Condition {
            kind,
            status: spec.status,
            reason: spec.name.into(),
            message: "m".into(),
            since: Uptime::ZERO,
        }]
    };
    let mut world = World::new();
    world.desire(Reason::KubeletIsHealthy, 0);
    assert!(!world.reconciler.is_urgent(&world.desired), "the Node is not known yet");
    world.desire(Reason::KubeletCrashed, 1);
    world.desired.conditions = problem(Reason::KubeletCrashed);
    assert!(world.reconciler.is_urgent(&world.desired), "nor here");
    world.settle(10);
    assert!(!world.reconciler.is_urgent(&world.desired), "it is shown");
    world.desire(Reason::KubeletIsHealthy, 2);
    assert!(!world.reconciler.is_urgent(&world.desired));
    world.desired.without_taints = true;
    assert!(world.reconciler.is_urgent(&world.desired));
}

#[test]
fn another_reason_or_message_with_the_same_status_keeps_the_transition_time() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 0);
    world.settle(10);
    world.desire(Reason::KubeletCrashLooping, 0);
    assert_eq!(world.settle(20), 1);
    let mut applied = 0;
    for secs in 0..100 {
        world.desired.published[0].message = format!("for {secs} s");
        applied += world.settle(30 + secs);
    }
    assert!((1..=12).contains(&applied), "a message that changes all the time is written {applied} times");
    assert_eq!(world.server.shown(), shows("False", 10));
}

#[test]
fn a_reason_that_changes_all_the_time_is_written_each_time_only_if_it_is_that_of_a_problem() {
    let written = |reasons: [Reason; 2]| {
        let mut world = World::new();
        world.desire(reasons[0], 0);
        world.settle(10);
        let change = |secs: usize| {
            world.desire(reasons[secs % 2], 0);
            world.settle(10 + secs as u64)
        };
        (1..=100).map(change).sum::<usize>()
    };
    assert_eq!(written([Reason::KubeletCrashed, Reason::KubeletOOMKilled]), 100);
    assert!((6..=13).contains(&written([Reason::KubeletNotFound, Reason::KubeletStarting])));
}

#[test]
fn a_restarted_agent_keeps_the_transition_time_and_a_status_that_changed_and_changed_back_gets_a_new_one() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 0);
    world.settle(10);
    world.reconciler = Reconciler::new(&TaintSettings::default(), NATIVE);
    // Flips before the engine adopted what the Node shows do not count.
    world.desire(Reason::KubeletCrashed, 1);
    world.settle(100);
    assert_eq!(world.server.shown(), shows("False", 10));
    // It recovered and crashed again while the API server was out of reach.
    world.desire(Reason::KubeletCrashed, 3);
    assert_eq!(world.settle(120), 1);
    assert_eq!(world.server.shown(), shows("False", 120));
}

#[test]
fn a_transition_time_that_cannot_be_true_is_replaced() {
    for wrong in [json!(null), json!("2026-11-26T06:45:00Z"), json!("2026-11-26T04:20:00Z")] {
        let mut world = World::new();
        world.desire(Reason::KubeletCrashed, 0);
        world.settle(10);
        world.server.write(
            "nodevigil",
            &[json!({"type": "KubeletHealthy", "status": "False", "reason": "KubeletCrashed",
            "message": "m", "lastTransitionTime": wrong})],
        );
        world.reconciler = Reconciler::new(&TaintSettings::default(), NATIVE);
        assert_eq!(world.settle(100), 1, "{wrong}");
        assert_eq!(world.server.shown(), shows("False", 100));
    }
}

#[test]
fn an_apply_that_was_carried_out_without_an_answer_is_found_on_the_node() {
    let mut world = World::new();
    world.desire(Reason::KubeletIsHealthy, 0);
    world.settle(10);
    world.desire(Reason::KubeletCrashed, 1);
    let sent = world.send_without_answer(20);
    world.server.apply(&sent).unwrap();
    assert!(
        matches!(world.reconciler.step(&world.desired, at(30)), Step::Send(Request::Read)),
        "the Node is read first"
    );
    assert_eq!(world.settle(40), 0);
    assert_eq!(world.server.shown(), shows("False", 20), "the transition time of the write that succeeded");
}

#[test]
fn an_apply_that_was_lost_is_sent_again_with_the_time_of_that_attempt() {
    let mut world = World::new();
    world.desire(Reason::KubeletIsHealthy, 0);
    world.settle(10);
    world.desire(Reason::KubeletCrashed, 1);
    world.send_without_answer(20);
    assert_eq!(world.settle(60), 1);
    assert_eq!(world.server.shown(), shows("False", 60));
}

#[test]
fn a_fault_that_could_not_be_published_for_more_than_five_seconds_has_its_own_time_in_the_message() {
    let message = |world: &World| world.server.node["status"]["conditions"][1]["message"].as_str().unwrap().to_owned();
    let mut world = World::new();
    world.desire(Reason::KubeletIsHealthy, 0);
    world.settle(10);
    world.desire(Reason::KubeletCrashed, 20); // the API server does not answer
    world.settle(24);
    assert_eq!(message(&world), "m");
    world.desire(Reason::KubeletIsHealthy, 30);
    world.settle(90);
    assert_eq!(message(&world), "m", "it is no fault");
    world.desire(Reason::KubeletCrashed, 122);
    world.settle(200);
    assert_eq!((message(&world).as_str(), world.server.shown()), ("m (since 06:02:02Z)", shows("False", 200)));
    assert_eq!(world.settle(400), 0, "it stays the same");
    world.desired.published[0].message = "x".repeat(2000);
    world.settle(500);
    assert!(message(&world).ends_with("x… (since 06:02:02Z)") && message(&world).len() <= MAX_MESSAGE_BYTES);
}

#[test]
fn an_old_apply_that_is_carried_out_late_is_corrected() {
    let mut world = World::new();
    world.desire(Reason::KubeletIsHealthy, 0);
    world.settle(10);
    world.desire(Reason::KubeletCrashed, 1);
    let late = world.send_without_answer(20);
    world.desire(Reason::KubeletIsHealthy, 2);
    world.settle(30);
    world.server.apply(&late).unwrap();
    assert_eq!(world.settle(40), 1);
    assert_eq!(world.server.shown(), shows("True", 40));

    // The same status, but the transition time of the earlier crash: machines would be deleted too early by it.
    world.desire(Reason::KubeletCrashed, 3);
    world.settle(50);
    world.server.apply(&late).unwrap();
    assert_eq!(world.settle(60), 1);
    assert_eq!(world.server.shown(), shows("False", 50));
    world.send_without_answer(3000); // the heartbeat
    world.server.apply(&late).unwrap();
    assert_eq!(world.settle(3010), 1);
    assert_eq!(world.server.shown(), shows("False", 50));
}

#[test]
fn an_event_of_the_watch_that_is_older_than_our_own_write_is_ignored() {
    let mut world = World::new();
    world.desire(Reason::KubeletIsHealthy, 0);
    world.settle(10);
    let before = world.server.read();
    world.desire(Reason::KubeletCrashed, 1);
    world.settle(20);
    world.reconciler.watched(before, at(21));
    assert!(world.waits(21));
}

#[test]
fn the_first_transition_time_is_not_before_the_nodes_creation() {
    let mut world = World::new();
    world.server.node["metadata"]["creationTimestamp"] = json!(time(11).to_string());
    world.desire(Reason::KubeletIsHealthy, 0);
    assert_eq!(world.settle(10), 1);
    assert_eq!(world.server.shown(), shows("True", 11));
}

#[test]
fn a_node_that_was_re_created_inherits_nothing_and_is_written_only_when_the_engine_has_adopted_it() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 5);
    world.settle(10);
    world.server = Server::new("u2");
    world.server.version = 100;
    let sent_to_old =
        Node { metadata: ObjectMeta { uid: Some("u1".into()), ..ObjectMeta::default() }, ..Node::default() };
    assert!(world.server.apply(&sent_to_old).is_err());
    assert_eq!(world.settle(20), 0, "the desired conditions are those of the old Node");
    world.reconciler.watched(None, at(25));
    assert_eq!(world.reconciler.node(), None);
    world.desire(Reason::KubeletCrashed, 5);
    assert_eq!(world.settle(30), 1);
    assert_eq!(world.server.shown(), shows("False", 30));
}

#[test]
fn a_condition_that_another_manager_owns_is_not_written() {
    let mut world = World::new();
    let foreign = json!({"type": "KubeletHealthy", "status": "True", "lastTransitionTime": "2026-11-26T05:30:00Z"});
    world.server.write("node-problem-detector", &[foreign]);
    world.desire(Reason::KubeletCrashed, 0);
    assert_eq!(world.settle(10), 0);
    let message = world.reconciler.foreign_owners().unwrap();
    assert!(message.contains("KubeletHealthy") && message.contains("node-problem-detector"), "{message}");
    assert_eq!(world.server.shown().0, "True");
}

#[test]
fn a_name_that_the_settings_no_longer_ask_for_goes_at_once() {
    let mut world = World::new();
    world.server.write("nodevigil", &[json!({"type": "KubeletUnhealthy", "status": "True"})]);
    world.desire(Reason::KubeletIsHealthy, 0);
    assert_eq!(world.settle(10), 1);
    assert_eq!(world.settle(20), 0);
    world.server.write(
        "nodevigil",
        &[
            json!({"type": "KubeletHealthy", "status": "True", "reason": "KubeletIsHealthy", "message": "m",
            "lastTransitionTime": "2026-11-26T06:00:10Z"}),
            json!({"type": "KubeletUnhealthy", "status": "True"}),
        ],
    );
    world.reconciler = Reconciler::new(&TaintSettings::default(), NATIVE);
    assert_eq!(world.settle(30), 1, "the agent was restarted with another profile");
    assert!(world.server.read().unwrap().facts.condition("KubeletUnhealthy").is_none());
    assert_eq!(world.server.shown(), shows("True", 10));
}

#[test]
fn the_first_apply_fails_if_another_manager_has_become_the_owner_since() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 0);
    world.reconciler.watched(world.server.read(), at(5));
    let Step::Send(Request::Apply(sent)) = world.reconciler.step(&world.desired, at(5)) else {
        panic!("nothing to apply")
    };
    world.server.write("other", &[json!({"type": "KubeletHealthy", "status": "True"})]);
    let answer = world.server.apply(&sent);
    assert!(answer.is_err());
    world.reconciler.answered(&Request::Apply(sent), answer, at(5));
    assert_eq!(world.settle(10), 0);
    assert!(world.reconciler.foreign_owners().is_some());
}

#[test]
fn what_another_manager_overwrites_is_written_again_three_times_an_hour_and_then_left_to_it() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 0);
    let (name, status, reason) = ("NodeStorageHealthy", Status::True, "StorageIsHealthy".to_owned());
    world.desired.published.push(Published { name, status, reason, message: "m".into(), since: at(0).uptime });
    world.settle(10);
    let overwrite = json!({"type": "KubeletHealthy", "status": "True", "reason": "Theirs", "message": "theirs",
        "lastHeartbeatTime": "2026-11-26T06:00:00Z", "lastTransitionTime": "2026-11-26T06:00:00Z"});
    let theirs = ("True".to_owned(), time(0));
    for round in 1..=5 {
        world.server.write("other", std::slice::from_ref(&overwrite));
        let is_written = round <= 3;
        assert_eq!(world.settle(100 * round), usize::from(is_written), "round {round}");
        assert_eq!(world.server.shown(), if is_written { shows("False", 10) } else { theirs.clone() }, "round {round}");
        assert_eq!(world.reconciler.foreign_owners().is_none(), is_written, "round {round}");
    }
    assert!(world.reconciler.foreign_owners().unwrap().contains("field manager other"));
    // Another condition of ours changes: the apply neither deletes theirs nor changes it.
    world.desired.published[1].status = Status::False;
    world.desired.published[1].since = at(1).uptime;
    assert_eq!(world.settle(600), 1);
    assert_eq!(world.server.shown(), theirs);
    assert!(world.server.node["status"]["conditions"].as_array().unwrap().contains(&overwrite));
    assert_eq!(world.settle(601), 0);
    assert!(world.reconciler.foreign_owners().is_some());
    // Three more in the next hour.
    assert_eq!(world.settle(100 + 3600), 1);
    assert_eq!(world.server.shown(), shows("False", 10));
}

#[test]
fn a_write_that_fails_while_reads_succeed_is_tried_again_ever_less_often() {
    for failure in [Failure::Refused, Failure::Changed, Failure::Unanswered] {
        let mut world = World::new();
        world.desire(Reason::KubeletCrashed, 0);
        world.reconciler.watched(world.server.read(), at(0));
        let mut tries = 0;
        for secs in 0..600 {
            while let Step::Send(request) = world.reconciler.step(&world.desired, at(secs)) {
                let is_read = matches!(request, Request::Read);
                tries += u32::from(!is_read);
                assert!(tries < 100, "{failure:?}: at {secs} s");
                let answer = if is_read { Ok(world.server.read()) } else { Err(failure) };
                world.reconciler.answered(&request, answer, at(secs));
            }
        }
        assert!((10..=30).contains(&tries), "{failure:?}: {tries} in ten minutes");
    }
}

#[test]
fn after_an_apply_that_succeeded_the_failures_before_it_delay_nothing() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 0);
    let conflict = Request::Apply(Box::default());
    (0..10).for_each(|_| world.reconciler.answered(&conflict, Err(Failure::Changed), at(0)));
    assert_eq!(world.settle(70), 1);
    world.reconciler.answered(&conflict, Err(Failure::Changed), at(71));
    let step = world.reconciler.step(&world.desired, at(71));
    assert!(matches!(step, Step::WaitUntil(until) if until < at(72).uptime), "{step:?}");
}

#[test]
fn at_a_stop_conditions_and_taints_are_written_at_once_whatever_failed_before() {
    let mut world = World::new();
    let (kind, effect) = (ConditionType::KubeletHealthy, TaintSettings::default().effect);
    world.reconciler = Reconciler::new(
        &TaintSettings { conditions: [kind.name().to_owned().try_into().unwrap()].into(), effect },
        NATIVE,
    );
    let taint = json!({"key": super::super::taints::key(kind), "effect": format!("{effect:?}")});
    world.server.node["spec"] = json!({"taints": [taint]});
    world.desire(Reason::KubeletCrashed, 1);
    world.reconciler.watched(world.server.read(), at(10));
    for request in [Request::Apply(Box::default()), Request::Taint(Value::Null)] {
        (0..10).for_each(|_| world.reconciler.answered(&request, Err(Failure::Refused), at(10)));
    }
    assert!(world.waits(10));
    world.desire(Reason::NodevigilStopped, 2);
    world.desired.without_taints = true;
    let Step::Send(Request::Apply(node)) = world.reconciler.step(&world.desired, at(10)) else {
        panic!("nothing to apply")
    };
    let answer = world.server.apply(&node);
    world.reconciler.answered(&Request::Apply(node), answer, at(10));
    let Step::Send(taint @ Request::Taint(_)) = world.reconciler.step(&world.desired, at(10)) else {
        panic!("no taint")
    };
    world.reconciler.answered(&taint, Err(Failure::Refused), at(10));
    assert!(world.waits(10), "failures from here on count");
}

/// Does what the reconciler wants, with a policy that refuses these types, until it waits for longer than half a minute.
fn settle_under_policy(world: &mut World, refused: &[&str], secs: u64) -> usize {
    let (mut now, mut refusals) = (at(secs), 0);
    world.reconciler.watched(world.server.read(), now);
    for _ in 0..40 {
        let request = match world.reconciler.step(&world.desired, now) {
            Step::WaitUntil(until) if until > now.uptime + Duration::from_secs(30) => return refusals,
            Step::WaitUntil(_) => {
                now = at((now.uptime - Uptime::ZERO).as_secs() + 1);
                continue;
            }
            Step::Send(request) => request,
        };
        let Request::Apply(node) = &request else { unreachable!("{request:?}") };
        let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let shown = world.server.read().unwrap().facts;
        let is_changed = |name: &&str| {
            let sent = conditions.iter().find(|one| one.type_ == **name).cloned();
            sent != shown.condition(name).map(theirs)
        };
        if refused.iter().any(is_changed) {
            refusals += 1;
            if !world.reconciler.refused(&request, "not listed", now) {
                world.reconciler.answered(&request, Err(Failure::Refused), now);
            }
        } else {
            let answer = world.server.apply(node);
            world.reconciler.answered(&request, answer, now);
        }
    }
    panic!("it does not come to rest")
}

/// Wants the kubelet's condition and those of these custom checks.
fn world_with_checks(kinds: &[ConditionType]) -> World {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 1);
    let published = |kind: &ConditionType| Published {
        name: kind.name(),
        status: kind.healthy_status(),
        reason: "CheckPassed".into(),
        message: "m".into(),
        since: at(1).uptime,
    };
    world.desired.published.extend(kinds.iter().map(published));
    world
}

#[test]
fn a_missing_permission_is_not_blamed_on_custom_checks() {
    let [ntp, chrony, _] = crate::condition::custom::tests::registered();
    let mut world = world_with_checks(&[ntp, chrony]);
    // An earlier run of the agent had another check.
    world.server.write("nodevigil", &[json!({"type": "FormerCheck", "status": "False"})]);
    world.reconciler.watched(world.server.read(), at(10));
    for secs in 10..300 {
        while let Step::Send(request) = world.reconciler.step(&world.desired, at(secs)) {
            if !world.reconciler.refused(&request, "forbidden", at(secs)) {
                world.reconciler.answered(&request, Err(Failure::Refused), at(secs));
            }
            assert_eq!(world.reconciler.refused_types(), None, "at {secs} s");
        }
    }
    // It is granted.
    assert_eq!(settle_under_policy(&mut world, &[], 400), 0);
    for kind in ["KubeletHealthy", ntp.name(), chrony.name()] {
        assert!(world.server.read().unwrap().facts.condition(kind).is_some(), "{kind}");
    }
    assert_eq!(world.reconciler.refused_types(), None);
}

#[test]
fn a_custom_type_that_a_policy_refuses_holds_no_other_condition_back() {
    let [ntp, chrony, _] = crate::condition::custom::tests::registered();
    let mut world = world_with_checks(&[ntp, chrony]);
    let shows = |world: &World, name: &str| world.server.read().unwrap().facts.condition(name).is_some();
    assert_eq!(settle_under_policy(&mut world, &[ntp.name()], 10), 2, "both at once, then the one that is refused");
    assert!(shows(&world, "KubeletHealthy") && shows(&world, chrony.name()) && !shows(&world, ntp.name()));
    let trouble = world.reconciler.refused_types().unwrap();
    assert!(trouble.contains("condition NTPProblem ") && trouble.contains("not listed") && !trouble.contains("Chrony"));
    assert!(!world.reconciler.is_urgent(&world.desired), "it is not waited for");
    assert_eq!(settle_under_policy(&mut world, &[ntp.name()], 60), 0, "it is not tried all the time");
    assert_eq!(settle_under_policy(&mut world, &[ntp.name()], 3600), 1, "with the heartbeat");
    assert_eq!(settle_under_policy(&mut world, &[], 4300), 0);
    assert!(shows(&world, ntp.name()) && world.reconciler.refused_types().is_none());
    let since = world.server.read().unwrap().facts.condition(ntp.name()).unwrap().last_transition.unwrap().timestamp();
    assert!(since > "2026-11-26T07:00:00Z".parse().unwrap(), "{since}: that of the write, not of the first refusal");
    // The policy no longer lists what the Node has: it can be neither changed nor removed.
    world.desired.published[1].reason = "NTPIsUp".into();
    world.desired.published[1].status = Status::True;
    assert_eq!(settle_under_policy(&mut world, &[ntp.name()], 4400), 2);
    assert!(shows(&world, ntp.name()));
}

#[test]
fn what_a_policy_does_not_let_be_removed_stays_and_holds_no_other_condition_back() {
    let mut world = World::new();
    world.desire(Reason::KubeletIsHealthy, 1);
    world.settle(10);
    let mut own = world.server.node["status"]["conditions"].as_array().unwrap().clone();
    own.retain(|one| one["type"] != "Ready");
    own.push(json!({"type": "FormerCheck", "status": "True", "reason": "CheckPassed", "message": "m",
        "lastTransitionTime": "2026-11-26T06:00:00Z"}));
    world.server.write("nodevigil", &own);
    // A restarted agent: neither its settings nor the policy have the check any more.
    world.reconciler = Reconciler::new(&TaintSettings::default(), NATIVE);
    world.desire(Reason::KubeletCrashed, 100);
    let status = |world: &World, name: &str| {
        world.server.read().unwrap().facts.condition(name).map(|shown| shown.status.clone())
    };
    assert_eq!(settle_under_policy(&mut world, &["FormerCheck"], 100), 1);
    assert_eq!(status(&world, "KubeletHealthy").as_deref(), Some("False"));
    let trouble = world.reconciler.refused_types().unwrap();
    assert!(trouble.contains("condition FormerCheck") && trouble.contains("removed"), "{trouble}");
    assert_eq!(settle_under_policy(&mut world, &[], 4000), 0);
    assert_eq!(status(&world, "FormerCheck"), None, "the policy lists it again");
    assert!(world.reconciler.refused_types().is_none());
}

#[test]
fn a_custom_type_that_a_policy_refuses_delays_no_later_change() {
    let [ntp, ..] = crate::condition::custom::tests::registered();
    let mut world = world_with_checks(&[ntp]);
    settle_under_policy(&mut world, &[ntp.name()], 10);
    for (secs, reason) in (20..40).zip([Reason::KubeletIsHealthy, Reason::KubeletCrashed].into_iter().cycle()) {
        let (spec, kubelet) = (reason.spec(), &mut world.desired.published[0]);
        (kubelet.status, kubelet.reason, kubelet.since) = (spec.status, spec.name.into(), at(secs).uptime);
        world.reconciler.watched(world.server.read(), at(secs));
        let step = world.reconciler.step(&world.desired, at(secs));
        let Step::Send(Request::Apply(node)) = step else { panic!("at {secs} s: {step:?}") };
        let answer = world.server.apply(&node);
        world.reconciler.answered(&Request::Apply(node), answer, at(secs));
    }
}

#[test]
fn what_is_undone_again_and_again_is_written_ever_less_often_and_named() {
    let condition = |reason: &str, transition: u64| {
        json!({"type": "KubeletHealthy", "status": "False", "reason": reason, "message": "m",
            "lastTransitionTime": time(transition).to_string()})
    };
    // Another agent with another time, and a policy that changes the reason.
    for undo in [condition("KubeletCrashed", 5), condition("Theirs", 10)] {
        let mut world = World::new();
        world.desire(Reason::KubeletCrashed, 0);
        world.settle(10);
        let mut applied = 0;
        for secs in 20..600 {
            world.server.write("nodevigil", std::slice::from_ref(&undo));
            applied += world.settle(secs);
        }
        assert!((3..=20).contains(&applied), "{applied} times in ten minutes: {undo}");
        let trouble = world.reconciler.foreign_owners().unwrap();
        assert!(trouble.contains("KubeletHealthy") && trouble.contains("another nodevigil"), "{trouble}");
        world.desire(Reason::KubeletIsHealthy, 620);
        assert_eq!(world.settle(620), 1, "what is new does not wait");
        assert!(world.settle(2000) <= 1 && world.reconciler.foreign_owners().is_none(), "it has ended");
    }
}

#[test]
fn a_condition_that_was_removed_comes_back_with_its_transition_time() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 0);
    world.settle(10);
    // A merge patch that replaces the list.
    world.server.node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    world.server.node["metadata"]["managedFields"] = json!([]);
    world.server.version += 1;
    assert_eq!(world.settle(100), 1);
    assert_eq!(world.server.shown(), shows("False", 10));
}

#[test]
fn what_is_left_alone_is_looked_at_again_when_it_may_be_written() {
    let mut removed = World::new();
    removed.desire(Reason::KubeletCrashed, 0);
    removed.settle(10);
    for round in 1..=4 {
        removed.server.node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        removed.server.node["metadata"]["managedFields"] = json!([]);
        removed.server.version += 1;
        removed.settle(20 * round);
    }
    assert!(removed.reconciler.foreign_owners().is_some());
    assert_eq!(removed.waits_until(81), at(20 + 600).uptime, "ten minutes after the first of three");
    assert_eq!(removed.settle(20 + 600), 1);

    let mut overwritten = World::new();
    overwritten.desire(Reason::KubeletCrashed, 0);
    overwritten.settle(10);
    for round in 1..=4 {
        let theirs = json!({"type": "KubeletHealthy", "status": "True", "reason": "Theirs", "message": "theirs",
            "lastTransitionTime": time(0).to_string()});
        overwritten.server.write("other", &[theirs]);
        overwritten.settle(100 * round);
    }
    assert_eq!(overwritten.settle(3600), 1, "the heartbeat, with their values");
    assert_eq!(overwritten.waits_until(3601), at(100 + 3600).uptime, "an hour after the first of three");
}

#[test]
fn the_last_message_waits_no_longer_than_for_its_turn() {
    let mut world = World::new();
    world.desire(Reason::KubeletIsHealthy, 0);
    world.settle(10);
    for secs in 11..31 {
        world.desired.published[0].message = secs.to_string();
        world.settle(secs);
    }
    assert_eq!(world.waits_until(31), at(11 + 300).uptime);
}

#[test]
fn a_restarted_agent_is_no_later_with_the_heartbeat_than_the_one_before() {
    for _ in 0..20 {
        let mut world = World::new();
        world.desire(Reason::KubeletIsHealthy, 0);
        world.settle(10);
        world.reconciler = Reconciler::new(&TaintSettings::default(), NATIVE);
        let early = world.settle(10 + 32 * 60);
        assert!(early + world.settle(10 + 33 * 60) >= 1);
    }
}
