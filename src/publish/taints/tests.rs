//! What becomes of the Node's taints, by a made-up clock.

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::settings::TaintEffect;
use crate::settings::custom::TypeName;

const OURS: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";

/// As `[taints] conditions` lists them.
fn listed() -> BTreeSet<TypeName> {
    ["KubeletHealthy".to_owned().try_into().unwrap()].into()
}

/// A Node, and what the conditions ask of its taints.
struct World {
    taints: Value,
    version: u64,
    tainter: Tainter,
    desired: Desired,
}

impl World {
    /// A Node with a taint of another client.
    fn new() -> Self {
        Self {
            taints: json!([foreign("example.com/a")]),
            version: 1,
            tainter: Tainter::new(&TaintSettings { conditions: listed(), ..TaintSettings::default() }),
            desired: Desired { node_uid: Some("u1".into()), ..Desired::default() },
        }
    }

    fn desire(&mut self, reason: Reason, since: u64) {
        let (kind, spec) = (ConditionType::KubeletHealthy, reason.spec());
        let (reason, message) = (spec.name.to_owned(), "m".to_owned());
        self.desired.conditions =
            vec![Condition { kind, status: spec.status, reason, message, since: at(since).uptime }];
    }

    fn node(&self) -> ObservedNode {
        let metadata = json!({"name": "n1", "uid": "u1", "resourceVersion": self.version.to_string()});
        let node = json!({"metadata": metadata, "spec": {"taints": self.taints}});
        ObservedNode::read(serde_json::from_value(node).unwrap()).unwrap()
    }

    fn step(&mut self, secs: u64) -> Step {
        self.tainter.step(&self.desired, &self.node(), at(secs))
    }

    /// Whether something is to be written.
    fn writes(&mut self, secs: u64) -> bool {
        matches!(self.step(secs), Step::Send(_))
    }

    /// Writes what is to be written, and returns our taints of the Node, with values and effects.
    fn settle(&mut self, secs: u64) -> Vec<String> {
        if let Step::Send(Request::Taint(patch)) = self.step(secs) {
            assert_eq!(patch["metadata"]["resourceVersion"], self.version.to_string());
            self.set(&patch["spec"]["taints"]);
            self.tainter.answered(at(secs));
            assert!(!self.writes(secs), "it does not come to rest");
        }
        assert_eq!(self.taints[0], foreign("example.com/a"), "others' taints stay as they were");
        let ours = self.node().taints.into_iter().filter(is_ours);
        ours.map(|taint| format!("{}={}:{}", taint.key, taint.value.unwrap(), taint.effect)).collect()
    }

    fn set(&mut self, taints: &Value) {
        self.taints = taints.clone();
        self.version += 1;
    }
}

fn foreign(key: &str) -> Value {
    json!({"key": key, "effect": "NoExecute", "timeAdded": "2026-11-26T05:00:00Z"})
}

fn at(secs: u64) -> Now {
    let boot: Timestamp = "2026-11-26T06:00:00Z".parse().unwrap();
    let server = boot + SignedDuration::from_secs(secs.try_into().unwrap());
    Now::of(Uptime::from_secs(secs), server)
}

#[test]
fn a_fact_taints_at_once_and_health_takes_the_taint_away() {
    let mut world = World::new();
    assert!(world.settle(1).is_empty(), "nothing is known yet");
    world.desire(Reason::KubeletIsHealthy, 0);
    assert!(world.settle(2).is_empty());
    world.desire(Reason::KubeletCrashed, 1);
    assert_eq!(world.settle(10), [format!("{OURS}=KubeletCrashed:NoSchedule")]);
    assert_eq!(world.taints[1]["timeAdded"], "2026-11-26T06:00:10Z");
    world.desire(Reason::KubeletCrashLooping, 1);
    assert_eq!(world.settle(20), [format!("{OURS}=KubeletCrashed:NoSchedule")], "another reason is no reason to write");
    world.desire(Reason::KubeletStoppedByOperator, 2);
    assert_eq!(world.settle(30).len(), 1, "whether the kubelet works is not known");
    world.desire(Reason::KubeletIsHealthy, 3);
    assert!(world.settle(40).is_empty());
}

#[test]
fn a_sampled_reason_taints_after_a_minute_without_a_break() {
    let mut world = World::new();
    world.desire(Reason::KubeletHung, 1);
    assert!(world.settle(100).is_empty());
    assert!(matches!(world.step(130), Step::WaitUntil(until) if until == at(160).uptime));
    // It recovered and hung again, which the publisher may see as one change.
    world.desire(Reason::KubeletHung, 150);
    assert!(world.settle(150).is_empty() && world.settle(209).is_empty());
    assert_eq!(world.settle(210).len(), 1);
    // A restarted agent leaves it as it is.
    world.tainter = Tainter::new(&TaintSettings { conditions: listed(), ..TaintSettings::default() });
    assert_eq!(world.settle(211).len(), 1);
}

#[test]
fn a_short_hang_taints_nothing_though_it_is_shown_for_a_minute_after_its_end() {
    let mut world = World::new();
    world.desire(Reason::KubeletHung, 1);
    assert!(world.settle(100).is_empty());
    world.desired.ending = vec![ConditionType::KubeletHealthy];
    assert!(world.settle(104).is_empty() && world.settle(165).is_empty());
    world.desired.ending.clear();
    assert!(world.settle(170).is_empty(), "it hangs again");
    assert_eq!(world.settle(230).len(), 1);
    world.desired.ending = vec![ConditionType::KubeletHealthy];
    assert_eq!(world.settle(240).len(), 1, "it is shown until it is over");
}

#[test]
fn a_pause_or_a_stop_takes_the_taint_away_whatever_the_condition_is() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 1);
    assert_eq!(world.settle(10).len(), 1);
    for (secs, reason) in
        [(20, Reason::NodePaused), (120, Reason::KubeletStoppedByOperator), (220, Reason::NodevigilStopped)]
    {
        world.desire(reason, 2);
        world.desired.without_taints = true;
        assert!(world.settle(secs).is_empty());
        world.desired.without_taints = false;
        world.desire(Reason::KubeletCrashed, 3);
        assert_eq!(world.settle(secs + 10).len(), 1, "the pause is over");
    }
}

#[test]
fn a_taint_that_another_writer_drops_is_set_again_but_not_for_ever() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 1);
    world.settle(10);
    let mut written = 0;
    for secs in 20..120 {
        // As Karpenter does it: a merge patch with the list that it read before ours was set.
        world.set(&json!([foreign("example.com/a"), foreign("karpenter.sh/rebooting")]));
        written += world.settle(secs).len();
        assert_eq!(world.taints[1]["key"], "karpenter.sh/rebooting");
    }
    assert!((5..=12).contains(&written), "{written} times");
    assert_eq!(world.settle(400).len(), 1);
}

#[test]
fn after_a_conflict_the_new_list_is_the_one_that_is_changed() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 1);
    assert!(world.writes(10));
    world.set(&json!([foreign("example.com/a"), foreign("example.com/b")]));
    world.tainter.answered(at(10));
    assert!(!world.writes(10), "not at once");
    assert_eq!(world.settle(11).len(), 1);
    assert_eq!(world.taints[1], foreign("example.com/b"));
}

#[test]
fn a_refusal_is_tried_again_ever_less_often() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 1);
    let mut tries = 0;
    for secs in 0..7200 {
        if world.writes(secs) {
            tries += 1;
            world.tainter.answered(at(secs));
        }
    }
    assert!((10..=40).contains(&tries), "{tries} in two hours");
}

#[test]
fn what_the_settings_no_longer_ask_for_is_taken_away() {
    let mut world = World::new();
    world.desire(Reason::KubeletCrashed, 1);
    world.settle(10);
    world.tainter = Tainter::new(&TaintSettings { conditions: listed(), effect: TaintEffect::PreferNoSchedule });
    assert_eq!(world.settle(20), [format!("{OURS}=KubeletCrashed:PreferNoSchedule")]);
    world.tainter = Tainter::new(&TaintSettings::default());
    assert!(world.settle(30).is_empty());
}

#[test]
fn each_condition_has_a_key_that_the_api_server_accepts() {
    for kind in ConditionType::ALL {
        let taint = json!({"key": key(*kind), "effect": "NoSchedule"});
        let taint: Taint = serde_json::from_value(taint).unwrap();
        let name = taint.key.split_once('/').unwrap().1;
        assert!(is_ours(&taint) && name.len() <= 63, "{}", taint.key);
    }
}

#[test]
fn the_taint_of_a_custom_check_has_a_valid_key() {
    let [_, chrony, _] = crate::condition::custom::tests::registered();
    let key = key(chrony);
    assert_eq!(key, "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-check-example.com_ChronyHealthy");
    assert!(key.rsplit('/').next().unwrap().len() <= 63);
}
