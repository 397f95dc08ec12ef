use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{
    bootstrap::{CredentialSeen, RuntimeSeen},
    checks::{
        kubelet::Process,
        lease::{Healthz, Sight},
    },
    health::Reason,
    rules::UNINITIALIZED,
};

const BORN: i64 = 1_800_000_000;
const DEADLINE: u64 = 600;

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(1000 + secs),
        wall: Timestamp::from_second(BORN + i64::try_from(secs).unwrap()).unwrap(),
    }
}

fn node(uid: &str, ready: bool, taints: &[&str], shown: Option<Status>) -> Reading {
    let words = NodeWords {
        name: "n1".to_owned(),
        uid: uid.to_owned(),
        created: Some(Timestamp::from_second(BORN).unwrap()),
        provider_id: Some("x://1".to_owned()),
        taints: taints.iter().map(|key| (*key).to_owned()).collect(),
        ready,
        ready_words: String::new(),
    };
    Reading::Node(Some(Box::new(NodeReading { words, shown })))
}

fn host() -> Reading {
    Reading::Bootstrap(Ok(Box::new(HostSeen {
        runtime: RuntimeSeen::Answers {
            what: "containerd 2".to_owned(),
            not_ready: None,
            network_not_ready: None,
        },
        credential: CredentialSeen::Other {
            what: "a program".to_owned(),
        },
        cni_folder: Some("/etc/cni/net.d".to_owned()),
        cni: Some(vec!["1.conf".to_owned()]),
        external: Some(true),
        ..HostSeen::default()
    })))
}

/// One beside a kubelet that runs and answers.
fn check() -> Bootstrap {
    let mut check = Bootstrap::new(&Settings::default());
    let process = Process {
        pid: 9,
        started: Duration::from_secs(3),
    };
    check.take(&Reading::Kubelet(Some(process)), at(0));
    let sight = Sight {
        healthz: Healthz::Answers,
        ..Sight::default()
    };
    check.take(&Reading::Sight(sight), at(0));
    check
}

fn reasons(check: &Bootstrap) -> Vec<Reason> {
    check.findings().iter().map(|found| found.reason).collect()
}

#[test]
fn a_young_node_is_followed_until_it_is_of_use_and_never_again() {
    let mut check = check();
    assert_eq!((reasons(&check), check.due_at()), (vec![], None));
    check.take(&node("u1", false, &[UNINITIALIZED], None), at(1));
    assert_eq!(reasons(&check), [], "nobody has looked yet");
    let question = check.turn(at(1));
    assert!(matches!(question, Some(Question::Bootstrap(request)) if request.keep.is_none()));
    check.take(&host(), at(2));
    assert_eq!(reasons(&check), [Reason::NodeBootstrapping]);
    assert!(check.findings()[0].message.contains("cloud-controller"));
    check.take(&node("u1", true, &[], None), at(20));
    assert_eq!(reasons(&check), [Reason::NodeIsBootstrapped]);
    let kept = check.turn(at(20));
    assert!(
        matches!(kept, Some(Question::Bootstrap(request)) if request.keep.as_ref().unwrap().result == RecordedResult::Bootstrapped)
    );
    // Whatever befalls it later.
    assert_eq!(check.due_at(), None);
    check.take(
        &node("u1", false, &["node.kubernetes.io/not-ready"], None),
        at(5000),
    );
    check.take(&Reading::Kubelet(None), at(5000));
    assert_eq!(reasons(&check), [Reason::NodeIsBootstrapped]);
}

#[test]
fn a_node_that_is_late_is_stuck_at_what_is_seen_against_it() {
    let mut check = check();
    check.take(&node("u1", true, &[UNINITIALIZED], None), at(1));
    check.take(&host(), at(2));
    assert!(
        check.findings()[0]
            .message
            .ends_with("it waits for cloud-controller")
    );
    // It takes longer than such a stage may: told, and no fault of the node's yet.
    check.turn(at(DEADLINE - 1));
    assert_eq!(reasons(&check), [Reason::NodeBootstrapping]);
    let message = &check.findings()[0].message;
    assert!(
        message.contains("it is stuck at cloud-controller") && message.contains("CP005"),
        "{message}"
    );
    check.turn(at(DEADLINE));
    assert_eq!(reasons(&check), [Reason::BootstrapStuckAtCloudController]);
    let message = &check.findings()[0].message;
    assert!(
        message.contains("CP005") && message.len() <= MAX_MESSAGE_BYTES,
        "{message}"
    );
    // Late is no end.
    check.take(&node("u1", true, &[], None), at(DEADLINE + 100));
    assert_eq!(reasons(&check), [Reason::NodeIsBootstrapped]);
}

/// Autoscalers do not wait for the deadline.
#[test]
fn a_stage_over_its_patience_is_reported_at_once_and_once() {
    let mut check = check();
    let first = node("u1", false, &[UNINITIALIZED], None);
    check.take(&first, at(1));
    check.turn(at(1));
    check.take(&host(), at(2));
    assert_eq!(check.told(), None);
    // The cloud controller may take two minutes, and the check wakes when they are over.
    let wakes = (0..20).fold(3, |clock, _| {
        let due = check.due_at().unwrap().as_secs() - 1000;
        if due > 120 || clock == 120 {
            return clock;
        }
        assert!(due > clock, "{due} after {clock}");
        check.turn(at(due));
        check.take(&host(), at(due));
        due
    });
    assert_eq!(wakes, 120);
    let told = check.told().unwrap();
    assert_eq!((told.news, told.warning), (News::BootstrapStageLate, true));
    assert_eq!(told.about, "cloud-controller");
    for part in ["stuck at cloud-controller", "CP005", "may take 120 s"] {
        assert!(told.note.contains(part), "{}", told.note);
    }
    assert_eq!(reasons(&check), [Reason::NodeBootstrapping], "no fault yet");
    for secs in 130..DEADLINE {
        check.turn(at(secs));
        check.take(&host(), at(secs));
        assert_eq!(check.told(), None);
    }
    // Another Node of that name has its own.
    check.take(
        &node("u2", false, &[UNINITIALIZED], None),
        at(DEADLINE - 100),
    );
    check.take(&host(), at(DEADLINE - 99));
    assert!(check.told().is_some());
}

#[test]
fn not_to_be_told_how_far_it_is_is_no_fault() {
    let mut check = check();
    check.take(&node("u1", true, &[], None), at(1));
    check.turn(at(DEADLINE + 5));
    check.take(
        &Reading::Bootstrap(Err("away".to_owned())),
        at(DEADLINE + 5),
    );
    assert_eq!(reasons(&check), [Reason::NodeBootstrapping]);
}

#[test]
fn what_is_not_found_where_it_is_looked_for_fails_no_node_that_is_ready() {
    let mut check = Bootstrap::new(&Settings::default());
    let elsewhere = HostSeen {
        runtime: RuntimeSeen::Silent {
            socket: "/run/containerd/containerd.sock".to_owned(),
            why: "there is no socket".to_owned(),
            hangs: false,
        },
        credential: CredentialSeen::Missing,
        ..HostSeen::default()
    };
    check.take(
        &node("u1", true, &["karpenter.sh/unregistered"], None),
        at(1),
    );
    check.take(&Reading::Bootstrap(Ok(Box::new(elsewhere))), at(2));
    check.turn(at(DEADLINE));
    assert_eq!(reasons(&check), [Reason::BootstrapStuckAtReady]);
    check.take(&node("u1", true, &[], None), at(DEADLINE + 1));
    assert_eq!(reasons(&check), [Reason::NodeIsBootstrapped]);
}

#[test]
fn an_old_node_is_judged_by_what_it_is_or_not_at_all() {
    let old = 10 * DEADLINE;
    let first = |reading: &Reading| {
        let mut check = check();
        check.take(reading, at(old));
        (reasons(&check), check.applies())
    };
    assert_eq!(
        first(&node("u1", true, &[], None)),
        (vec![Reason::NodeIsBootstrapped], true)
    );
    assert_eq!(first(&node("u1", false, &[], None)), (vec![], false));
    // What an earlier life of ours has said goes on.
    let told = node("u1", false, &[], Some(Status::True));
    assert_eq!(first(&told), (vec![Reason::NodeIsBootstrapped], true));
    let mut check = check();
    check.take(
        &node("u1", false, &[UNINITIALIZED], Some(Status::False)),
        at(old),
    );
    assert_eq!(reasons(&check), [], "the helper looks first");
    check.take(&host(), at(old));
    assert_eq!(reasons(&check), [Reason::BootstrapStuckAtCloudController]);
}

#[test]
fn a_node_made_anew_goes_its_own_way() {
    let mut check = check();
    check.take(&node("u1", true, &[], Some(Status::True)), at(1));
    assert_eq!(reasons(&check), [Reason::NodeIsBootstrapped]);
    check.take(&Reading::Node(None), at(2));
    assert_eq!(reasons(&check), []);
    check.take(&node("u2", false, &[], None), at(3));
    assert_eq!(reasons(&check), [], "what was seen before is not its own");
    check.take(&host(), at(4));
    assert_eq!(reasons(&check), [Reason::NodeBootstrapping]);
}

proptest! {
    #[test]
    fn once_bootstrapped_it_stays_so(steps in prop::collection::vec((0..5_u8, any::<bool>(), 1..400_u64), 1..40)) {
        let mut check = check();
        let mut clock = 0;
        let mut done = false;
        for (step, flag, secs) in steps {
            clock += secs;
            let now = at(clock);
            match step {
                0 => check.take(&node("u1", flag, &[], None), now),
                1 => check.take(&node("u1", flag, &[UNINITIALIZED], None), now),
                2 => check.take(&host(), now),
                3 => check.take(&Reading::Sight(Sight { healthz: if flag { Healthz::Answers } else { Healthz::Unknown }, ..Sight::default() }), now),
                _ => { check.turn(now); }
            }
            let is_true = reasons(&check) == [Reason::NodeIsBootstrapped];
            prop_assert!(!done || is_true);
            done |= is_true;
            prop_assert!(check.findings().len() <= 1);
        }
    }
}
