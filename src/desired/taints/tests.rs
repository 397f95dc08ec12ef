//! Lists of taints, ours and others', and what becomes of them.

use proptest::prelude::*;

use super::*;
use crate::health::Reason;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const KEY: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";

fn rules() -> Rules {
    Rules {
        conditions: vec![ConditionType::KubeletHealthy],
        ..Rules::default()
    }
}

fn after(reason: Option<Reason>, suppression: Suppression) -> Vec<Wished> {
    let verdict = reason.map(|reason| Verdict {
        status: reason.status(),
        reason,
        message: String::new(),
        since: NOW,
        others: Vec::new(),
        next: None,
    });
    let verdicts = verdict.iter().map(|v| (ConditionType::KubeletHealthy, v));
    wished(&rules(), verdicts, suppression)
}

fn ours(effect: &str) -> Value {
    json!({"key": KEY, "value": "KubeletHung", "effect": effect, "timeAdded": "2026-11-21T09:00:00Z"})
}

fn foreign() -> Value {
    json!({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule", "later": {"x": [1]}})
}

#[test]
fn a_problem_taints_beside_the_others() {
    let wished = after(Some(Reason::KubeletCrashed), Suppression::None);
    let added = json!({
        "key": KEY, "value": "KubeletCrashed", "effect": "NoSchedule", "timeAdded": "1970-01-01T00:00:00Z",
    });
    let plan = |current| plan(&rules(), &wished, &current, NOW);
    assert_eq!(plan(Value::Null), Some(json!([added])));
    assert_eq!(plan(json!([foreign()])), Some(json!([foreign(), added])));
    // Its value is the reason of the day it was set, and its time stays.
    assert_eq!(plan(json!([ours("NoSchedule"), foreign()])), None);
    // Another effect is of another configuration.
    assert_eq!(
        plan(json!([ours("NoExecute"), foreign()])),
        Some(json!([foreign(), added]))
    );
}

#[test]
fn it_goes_with_the_problem_and_with_nothing_less() {
    let list = json!([foreign(), ours("NoSchedule")]);
    for (reason, suppression) in [
        (None, Suppression::None),
        (Some(Reason::KubeletStarting), Suppression::None),
        (Some(Reason::KubeletCrashed), Suppression::None),
        (Some(Reason::KubeletCrashed), Suppression::NoNew),
    ] {
        assert_eq!(
            plan(&rules(), &after(reason, suppression), &list, NOW),
            None
        );
    }
    for suppression in [Suppression::None, Suppression::NoNew] {
        let well = after(Some(Reason::KubeletIsHealthy), suppression);
        assert_eq!(plan(&rules(), &well, &list, NOW), Some(json!([foreign()])));
    }
    // An explicit pause lifts them, whatever is found meanwhile.
    for reason in [None, Some(Reason::NodePaused), Some(Reason::KubeletCrashed)] {
        let lifted = after(reason, Suppression::Lifted);
        assert_eq!(
            plan(&rules(), &lifted, &list, NOW),
            Some(json!([foreign()]))
        );
    }
}

#[test]
fn standing_down_adds_none() {
    let wished = after(Some(Reason::KubeletCrashed), Suppression::NoNew);
    assert_eq!(plan(&rules(), &wished, &Value::Null, NOW), None);
}

#[test]
fn orphans_go() {
    let other =
        json!({"key": format!("{DEFAULT_PREFIX}of-an-older-version"), "effect": "NoSchedule"});
    let list = json!([other, foreign(), ours("NoSchedule")]);
    let kept = after(None, Suppression::None);
    assert_eq!(
        plan(&rules(), &kept, &list, NOW),
        Some(json!([foreign(), ours("NoSchedule")]))
    );
    // Taints that are no longer asked for, also under another prefix than today's.
    let off = Rules {
        prefix: "health.example.org/nodevigil-".to_owned(),
        ..Rules::default()
    };
    assert_eq!(plan(&off, &[], &list, NOW), Some(json!([foreign()])));
}

#[test]
fn every_slug_makes_a_key_that_the_api_takes() {
    for kind in ConditionType::ALL {
        let key = Rules::default().key(*kind);
        let (_, name) = key.split_once('/').unwrap();
        assert!(name.len() <= 63 && name.starts_with("nodevigil-"));
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
    }
    assert_eq!(Rules::default().key(ConditionType::KubeletHealthy), KEY);
    let long = value(&"Reason".repeat(30));
    assert!(long.len() <= MAX_VALUE_BYTES && long.parse::<f64>().is_err());
}

fn any_taint() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just(KEY.to_owned()),
        Just(format!("{DEFAULT_PREFIX}x")),
        Just("example.org/nodevigil-x".to_owned()),
        "[a-z]{1,3}",
    ];
    let effect = prop::sample::select(vec!["NoSchedule", "NoExecute", "PreferNoSchedule"]);
    (key, effect, any::<bool>()).prop_map(|(key, effect, extra)| {
        if extra {
            json!({"key": key, "effect": effect, "value": "v", "unknown": null})
        } else {
            json!({"key": key, "effect": effect})
        }
    })
}

proptest! {
    #[test]
    fn what_is_foreign_stays_as_it_is(
        list in prop::collection::vec(any_taint(), 0..6),
        reason in prop::option::of(prop::sample::select(vec![
            Reason::KubeletCrashed, Reason::KubeletIsHealthy, Reason::KubeletStarting,
        ])),
        suppression in prop::sample::select(vec![
            Suppression::None, Suppression::NoNew, Suppression::Lifted,
        ]),
    ) {
        let (rules, wished) = (rules(), after(reason, suppression));
        let foreign = |list: &[Value]| -> Vec<Value> {
            let is_foreign = |t: &&Value| !rules.owns(t["key"].as_str().unwrap());
            list.iter().filter(is_foreign).cloned().collect()
        };
        let current = Value::Array(list.clone());
        if let Some(new) = plan(&rules, &wished, &current, NOW) {
            let written = new.as_array().unwrap();
            prop_assert_eq!(foreign(written), foreign(&list));
            prop_assert_ne!(&new, &current);
            // Done once, there is nothing more to do, and nothing is there twice.
            prop_assert_eq!(plan(&rules, &wished, &new, NOW), None);
        }
    }

    /// Whatever the API server or somebody else puts there.
    #[test]
    fn nonsense_is_kept_or_ignored(text in "[\\[\\]{}\":,a-z0-9]{0,40}") {
        let current: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let _ = plan(&rules(), &after(Some(Reason::KubeletCrashed), Suppression::None), &current, NOW);
    }
}
