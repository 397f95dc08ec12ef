//! The same verdicts in every dialect; whose transition time is whose.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::health::Finding;

fn at(secs: i64) -> Now {
    Now {
        uptime: Duration::from_secs(u64::try_from(secs).unwrap()),
        wall: wall(secs),
    }
}

fn wall(secs: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + secs).unwrap()
}

fn verdict(reason: Reason, since: i64) -> Verdict {
    Verdict {
        status: reason.status(),
        reason,
        message: reason.as_str().to_owned(),
        since: wall(since),
        others: Vec::new(),
        next: None,
    }
}

fn all() -> Choice {
    Choice {
        dialects: Dialect::ALL.to_vec(),
        ..Choice::default()
    }
}

/// What is said of each type after these verdicts, and the transitions.
fn tell(desired: &mut Desired, verdicts: &[Verdict], secs: i64) -> (Vec<String>, Vec<Transition>) {
    let verdicts = verdicts.iter().map(|v| (kind(v.reason), v));
    let transitions = desired.update(verdicts, at(secs));
    let told = desired.conditions().unwrap_or_default();
    let words = told.iter().map(|c| {
        let since = c.last_transition_time.as_second() - wall(0).as_second();
        format!("{}={} {since}", c.r#type.as_str(), c.status.as_str())
    });
    (words.collect(), transitions)
}

fn kind(reason: Reason) -> ConditionType {
    ConditionType::ALL
        .iter()
        .copied()
        .find(|kind| {
            reason.as_str().contains("Config") == (*kind == ConditionType::KubeletConfigValid)
        })
        .unwrap()
}

fn stored(status: Status, reason: &str, secs: i64) -> Stored {
    Stored {
        status,
        reason: reason.to_owned(),
        message: "m".to_owned(),
        since: wall(secs),
    }
}

#[test]
fn every_dialect_says_it_in_its_polarity() {
    let mut desired = Desired::new(all());
    let told = |desired: &mut Desired, reason, secs| {
        let config = verdict(Reason::KubeletConfigIsValid, 1);
        tell(desired, &[verdict(reason, secs), config], secs).0
    };
    assert_eq!(
        told(&mut desired, Reason::KubeletIsHealthy, 1),
        [
            "KubeletHealthy=True 1",
            "KubeletConfigValid=True 1",
            "ContainerRuntimeReady=True 1",
            "KubeletUnhealthy=False 1",
            "FrequentKubeletRestart=False 1"
        ]
    );
    assert_eq!(
        told(&mut desired, Reason::KubeletCrashed, 9)[2..],
        [
            "ContainerRuntimeReady=False 9",
            "KubeletUnhealthy=True 9",
            "FrequentKubeletRestart=False 1"
        ],
        "a single end is no crash loop"
    );
    assert_eq!(
        told(&mut desired, Reason::KubeletStarting, 20)[2..],
        [
            "ContainerRuntimeReady=Unknown 20",
            "KubeletUnhealthy=Unknown 20",
            "FrequentKubeletRestart=Unknown 20"
        ]
    );
    assert_eq!(
        told(&mut desired, Reason::KubeletCrashLooping, 30)[3..],
        ["KubeletUnhealthy=True 30", "FrequentKubeletRestart=True 30"]
    );
}

#[test]
fn a_dialect_that_is_new_on_the_node_starts_its_clock_now() {
    let mut desired = Desired::new(all());
    // The kubelet has been dead for an hour when somebody turns the dialect on: whoever waits, waits from now on.
    desired.adopt(
        PublishedType::KubeletHealthy,
        &stored(Status::False, "KubeletCrashed", 1),
    );
    let (told, transitions) = tell(&mut desired, &[verdict(Reason::KubeletCrashed, 1)], 3600);
    assert_eq!(
        told,
        [
            "KubeletHealthy=False 1",
            "ContainerRuntimeReady=False 3600",
            "KubeletUnhealthy=True 3600",
            "FrequentKubeletRestart=False 3600"
        ]
    );
    assert_eq!(transitions, [], "an old story");
    // A restart: the Node is the memory, even one that comes late.
    let mut desired = Desired::new(all());
    let dead = [verdict(Reason::KubeletCrashed, 1)];
    tell(&mut desired, &dead, 4000);
    desired.adopt(
        PublishedType::KubeletUnhealthy,
        &stored(Status::True, "KubeletCrashed", 3600),
    );
    let (told, _) = tell(&mut desired, &dead, 4001);
    assert_eq!(told[2], "KubeletUnhealthy=True 3600");
    // Once it has flipped, an older record has nothing to teach.
    tell(
        &mut desired,
        &[verdict(Reason::KubeletIsHealthy, 5000)],
        5000,
    );
    desired.adopt(
        PublishedType::KubeletUnhealthy,
        &stored(Status::True, "KubeletCrashed", 3600),
    );
    let (told, _) = tell(
        &mut desired,
        &[verdict(Reason::KubeletIsHealthy, 5000)],
        5001,
    );
    assert_eq!(told[2], "KubeletUnhealthy=False 5000");
}

#[test]
fn what_is_not_to_be_told_is_told_under_no_name() {
    let mut desired = Desired::new(Choice {
        untold: vec![ConditionType::KubeletHealthy],
        ..all()
    });
    let dead = [
        verdict(Reason::KubeletCrashed, 1),
        verdict(Reason::KubeletConfigIsValid, 1),
    ];
    let (told, transitions) = tell(&mut desired, &dead, 1);
    assert_eq!(told, ["KubeletConfigValid=True 1"]);
    assert_eq!(transitions, []);
    assert_eq!(desired.told().len(), 2, "it is known all the same");
    let mut desired = Desired::new(Choice {
        shadow: true,
        ..all()
    });
    assert_eq!(tell(&mut desired, &dead, 1).0, [""; 0]);
    assert_eq!(desired.told().len(), 5);
}

#[test]
fn only_changes_are_worth_an_event() {
    let mut desired = Desired::new(Choice::default());
    let mut worth = |reason, secs| {
        let (_, transitions) = tell(&mut desired, &[verdict(reason, secs)], secs);
        transitions.iter().map(|t| t.reason).collect::<Vec<_>>()
    };
    assert_eq!(worth(Reason::KubeletIsHealthy, 1), [""; 0], "all is well");
    assert_eq!(worth(Reason::KubeletGone, 2), ["KubeletGone"]);
    assert_eq!(worth(Reason::KubeletCrashed, 3), ["KubeletCrashed"]);
    assert_eq!(worth(Reason::KubeletCrashed, 4), [""; 0]);
    assert_eq!(worth(Reason::KubeletIsHealthy, 5), ["KubeletIsHealthy"]);
    // A hint comes and goes while the status stays.
    assert_eq!(worth(Reason::KubeletStarved, 6), ["KubeletStarved"]);
    assert_eq!(worth(Reason::KubeletStarved, 7), [""; 0]);
    assert_eq!(worth(Reason::KubeletIsHealthy, 8), ["KubeletIsHealthy"]);
    assert_eq!(worth(Reason::KubeletStarting, 6), ["KubeletStarting"]);
    assert_eq!(worth(Reason::KubeletNotFound, 7), [""; 0], "still Unknown");
}

#[test]
fn a_foreign_name_is_a_memory_of_the_condition() {
    let sick = stored(Status::True, "KubeletHung", 7);
    let (kind, native) = in_native(PublishedType::KubeletUnhealthy, &sick).unwrap();
    assert_eq!(kind, ConditionType::KubeletHealthy);
    assert_eq!((native.status, native.since), (Status::False, wall(7)));
    let odd = stored(Status::Unknown, "NoReasonOfOurs", 7);
    let (kind, native) = in_native(PublishedType::ContainerRuntimeReady, &odd).unwrap();
    assert_eq!(
        (kind, native.status),
        (ConditionType::KubeletHealthy, Status::Unknown)
    );
    // What does not count under a name is not to be learnt from it.
    let other = stored(Status::True, "KernelPidsExhausted", 7);
    assert_eq!(in_native(PublishedType::KernelReady, &other), None);
}

/// Karpenter replaces by `KernelReady`, and what fills one node fills the next.
#[test]
fn process_ids_that_have_run_out_are_told_under_our_own_name_alone() {
    let mut desired = Desired::new(all());
    let exhausted = verdict(Reason::KernelPidsExhausted, 5);
    let kind = ConditionType::NodeKernelHealthy;
    desired.update(std::iter::once((kind, &exhausted)), at(5));
    let told = desired.conditions().unwrap();
    let status = |kind| told.iter().find(|c| c.r#type == kind).unwrap().status;
    assert_eq!(status(PublishedType::NodeKernelHealthy), Status::False);
    assert_eq!(status(PublishedType::KernelReady), Status::True);
}

proptest! {
    /// Each type's time moves when its status does, and never otherwise.
    #[test]
    fn a_transition_time_is_a_flip(steps in prop::collection::vec((0_usize..4, 1_i64..50), 1..60)) {
        let reasons = [
            Reason::KubeletIsHealthy, Reason::KubeletCrashed, Reason::KubeletHung, Reason::KubeletStarting,
        ];
        let mut desired = Desired::new(all());
        let (mut now, mut since) = (1, 1);
        let mut before: Vec<Condition> = Vec::new();
        for (reason, wait) in steps {
            now += wait;
            let reason = reasons[reason];
            if before.first().is_none_or(|c| c.status != reason.status()) {
                since = now;
            }
            tell(&mut desired, &[verdict(reason, since)], now);
            let told = desired.conditions().unwrap();
            for (old, new) in before.iter().zip(&told) {
                let moved = old.last_transition_time != new.last_transition_time;
                prop_assert_eq!(moved, old.status != new.status);
                prop_assert!(!moved || new.last_transition_time == wall(now));
            }
            before = told;
        }
    }
}

#[test]
fn what_waits_to_be_the_reason_is_an_event_at_once_and_only_once() {
    let mut desired = Desired::new(Choice::default());
    tell(&mut desired, &[verdict(Reason::KubeletCrashed, 5)], 5);
    let looping = Finding {
        reason: Reason::KubeletCrashLooping,
        message: "three ends".to_owned(),
    };
    let waiting = Verdict {
        others: vec![looping],
        next: Some(Reason::KubeletCrashLooping),
        ..verdict(Reason::KubeletCrashed, 5)
    };
    let (_, transitions) = tell(&mut desired, std::slice::from_ref(&waiting), 6);
    let told: Vec<_> = transitions
        .iter()
        .map(|t| (t.reason, &*t.message))
        .collect();
    assert_eq!(told, [("KubeletCrashLooping", "three ends")]);
    assert!(tell(&mut desired, &[waiting], 7).1.is_empty());
    let shown = verdict(Reason::KubeletCrashLooping, 5);
    assert!(tell(&mut desired, &[shown], 306).1.is_empty());
}

#[test]
fn a_reason_that_does_not_count_under_a_name_hides_none_that_does() {
    let mut desired = Desired::new(all());
    let kernel = |others: Vec<Finding>| Verdict {
        others,
        ..verdict(Reason::KernelPidsExhausted, 5)
    };
    let deadlocked = Finding {
        reason: Reason::KernelDeadlocked,
        message: "it waits".to_owned(),
    };
    let mut ready = |verdict: Verdict, secs| {
        let verdicts = [(ConditionType::NodeKernelHealthy, &verdict)];
        desired.update(verdicts.into_iter(), at(secs));
        let mut told = desired.told().iter();
        let ready = told
            .find(|c| c.r#type == PublishedType::KernelReady)
            .unwrap();
        (
            ready.status,
            ready.reason.clone(),
            ready.last_transition_time,
        )
    };
    assert_eq!(ready(kernel(Vec::new()), 5).0, Status::True);
    let wanted = (Status::False, "KernelDeadlocked".to_owned(), at(9).wall);
    assert_eq!(ready(kernel(vec![deadlocked]), 9), wanted);
}
