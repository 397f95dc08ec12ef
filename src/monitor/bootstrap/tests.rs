use jiff::Timestamp;

use super::*;
use crate::facts::ObservedCondition;
use crate::host::bootstrap::Files;
use crate::host::cloud_init::CloudInit;
use crate::host::credential::{ClientCertificate, Credential};
use crate::host::systemd::UnitState;

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const BOOTED: &str = "2026-01-01T00:00:00Z";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn at(secs: u64) -> Uptime {
    Uptime::from_secs(secs)
}

fn moment(after_boot: u64) -> Now {
    let time = BOOTED.parse::<Timestamp>().unwrap() + secs(after_boot);
    Now::of(at(after_boot), time)
}

fn condition(kind: &str, status: &str, message: &str, since: u64) -> ObservedCondition {
    let (kind, status, message) = (kind.into(), status.into(), message.into());
    let last_transition = Some(moment(since).server);
    ObservedCondition { kind, status, reason: "R".into(), message, last_heartbeat: None, last_transition }
}

/// A Node that was created 20 seconds after the boot, and is Ready since second 30 if it is.
fn node(ready: &str, taints: &[&str]) -> NodeFacts {
    NodeFacts {
        name: "n1".into(),
        uid: "u1".into(),
        created: moment(20).server,
        provider_id: Some("hcloud://1".into()),
        taint_keys: taints.iter().map(|key| (*key).to_owned()).collect(),
        conditions: vec![condition("Ready", ready, "kubelet reports so", 30)],
        ..NodeFacts::default()
    }
}

fn unit(name: &str, active_state: &str, main_pid: i32) -> Unit {
    let active_since = (main_pid != 0).then(|| at(10));
    let (name, load_state, active_state) = (name.into(), "loaded".into(), active_state.into());
    Unit { name, state: UnitState { load_state, active_state, main_pid, ..UnitState::default() }, active_since }
}

/// A node that is ready.
fn ready(after_boot: u64) -> Facts {
    let now = moment(after_boot);
    let (valid_from, valid_until) = (now.wall - secs(3600), now.wall + secs(3600));
    let files = Files {
        cloud_init: CloudInit::Finished { at: Some(moment(8).wall), errors: vec![] },
        credential: Credential::Certificate(ClientCertificate {
            file: "/c.pem".into(),
            node: None,
            valid_from,
            valid_until,
        }),
        kubelet: None,
    };
    let host = HostFacts {
        files,
        socket: Ok("/run/containerd/containerd.sock".into()),
        runtime: Some(unit("containerd.service", "active", 7)),
        kubelet: Ok(Some(unit("kubelet.service", "active", 9))),
        healthz: Ok(()),
        last_words: None,
    };
    Facts { host, node: NodeAnswer::Node(Box::new(node("True", &[]))), now }
}

fn no_socket() -> Result<String, String> {
    Err("there is no socket of a container runtime".into())
}

fn with_node(facts: &mut Facts, node: NodeFacts) {
    facts.node = NodeAnswer::Node(Box::new(node));
}

/// The kubelet does not run, and there is no Node.
fn down(facts: &mut Facts, active_state: &str) {
    facts.host.kubelet = Ok(Some(unit("kubelet.service", active_state, 0)));
    facts.host.healthz = Err("is not served".into());
    facts.node = NodeAnswer::NoNode("n1".into());
}

/// The kubelet runs with a bootstrap kubeconfig alone.
fn joining(facts: &mut Facts, node: NodeAnswer) {
    facts.host.files.credential = Credential::Bootstrap { file: "/b.conf".into() };
    facts.host.healthz = Err("is not served yet".into());
    facts.node = node;
}

fn refused(http_status: u16) -> NodeAnswer {
    NodeAnswer::Refused { http_status, message: "no".into() }
}

type Case = (fn(&mut Facts), Stage, Progress, &'static str);

/// What is changed on a node that is ready, 1000 seconds after its boot; the stage that it then waits for, and a part of the message.
const CASES: &[Case] = &[
    (
        |facts| {
            down(facts, "inactive");
            facts.host.files.cloud_init = CloudInit::Running { stage: "init".into(), errors: vec!["no mirror".into()] };
        },
        Stage::CloudInit,
        Progress::Late,
        "in stage init, with errors: no mirror",
    ),
    (
        |facts| {
            down(facts, "inactive");
            facts.host.files.cloud_init = CloudInit::RunningCommands { since: None, errors: vec![] };
            facts.host.kubelet = Ok(None);
        },
        Stage::Kubelet,
        Progress::Late,
        "no unit of a kubelet is installed; cloud-init is still running",
    ),
    (
        |facts| {
            down(facts, "inactive");
            facts.host.files.cloud_init = CloudInit::Finished { at: None, errors: vec!["no mirror".into()] };
            (facts.host.socket, facts.host.runtime) = (no_socket(), None);
        },
        Stage::Runtime,
        Progress::Late,
        "cloud-init had errors: no mirror",
    ),
    (
        |facts| {
            down(facts, "activating");
            facts.host.socket = no_socket();
            facts.host.runtime = Some(unit("containerd.service", "failed", 0));
            facts.host.runtime.as_mut().unwrap().state.result = "exit-code".into();
        },
        Stage::Runtime,
        Progress::Failed,
        "containerd.service is failed (exit-code), and there is no socket",
    ),
    (
        |facts| {
            down(facts, "activating");
            facts.host.last_words = Some("its last error: unknown flag: --x".into());
        },
        Stage::Kubelet,
        Progress::Late,
        "kubelet.service is activating, and no kubelet runs; its last error: unknown flag: --x",
    ),
    (
        |facts| {
            down(facts, "activating");
            facts.host.files.credential = Credential::Missing;
        },
        Stage::Kubelet,
        Progress::Late,
        "this host has not joined a cluster",
    ),
    (|facts| down(facts, "inactive"), Stage::Kubelet, Progress::Late, "it was not started"),
    (|facts| joining(facts, refused(401)), Stage::Credential, Progress::Late, "does not accept the token in /b.conf"),
    (
        |facts| {
            joining(facts, refused(401));
            facts.host.kubelet = Ok(Some(unit("kubelet.service", "activating", 0)));
        },
        Stage::Credential,
        Progress::Late,
        "does not accept the token in /b.conf",
    ),
    (
        |facts| joining(facts, refused(403)),
        Stage::Credential,
        Progress::Late,
        "the kubelet has /b.conf, but no client certificate yet",
    ),
    (
        |facts| joining(facts, NodeAnswer::Unreached("connection refused".into())),
        Stage::Credential,
        Progress::Late,
        "cannot be reached: connection refused",
    ),
    (
        |facts| {
            facts.node = refused(401);
            let (valid_from, valid_until) = (facts.now.wall + secs(60), facts.now.wall + secs(3600));
            facts.host.files.credential = Credential::Certificate(ClientCertificate {
                file: "/c.pem".into(),
                node: None,
                valid_from,
                valid_until,
            });
        },
        Stage::Credential,
        Progress::Failed,
        "this host's clock shows",
    ),
    (
        |facts| {
            facts.node = refused(401);
            let (valid_from, valid_until) = (facts.now.wall - secs(3600), facts.now.wall - secs(60));
            facts.host.files.credential = Credential::Certificate(ClientCertificate {
                file: "/c.pem".into(),
                node: None,
                valid_from,
                valid_until,
            });
        },
        Stage::Credential,
        Progress::Failed,
        "has expired",
    ),
    (|facts| facts.node = refused(403), Stage::Registered, Progress::Late, "answers 403: no"),
    (|facts| facts.node = NodeAnswer::NoNode("n1".into()), Stage::Registered, Progress::Late, "has no Node n1"),
    (
        |facts| facts.node = NodeAnswer::NotAsked("no identity".into()),
        Stage::Registered,
        Progress::Unknown,
        "no identity",
    ),
    (
        |facts| with_node(facts, node("True", &[UNINITIALIZED])),
        Stage::CloudController,
        Progress::Late,
        "no cloud controller runs",
    ),
    (
        |facts| {
            let mut node = node("False", &[]);
            node.conditions[0].message = "container runtime network not ready: cni plugin not initialized".into();
            with_node(facts, node);
        },
        Stage::Network,
        Progress::Late,
        "cni plugin not initialized",
    ),
    (
        |facts| with_node(facts, node("False", &[])),
        Stage::Ready,
        Progress::Late,
        "Ready is False (R): kubelet reports so",
    ),
    (
        |facts| with_node(facts, node("True", &["node.cilium.io/agent-not-ready"])),
        Stage::Ready,
        Progress::Late,
        "still has the taint node.cilium.io/agent-not-ready",
    ),
];

#[test]
fn the_first_stage_that_is_not_done_is_named_with_its_cause_and_advice() {
    for (change, stage, status, part) in CASES {
        let mut facts = ready(1000);
        change(&mut facts);
        let assessment = assess(&facts);
        let current = assessment.current().unwrap_or_else(|| panic!("{part}"));
        assert_eq!((current.stage, current.state.status), (*stage, *status), "{assessment:#?}");
        assert!(current.state.message.contains(part), "{current:?}");
        assert_eq!(current.state.advice.is_empty(), *status == Progress::Unknown, "{current:?}");
        let later = assessment.stages.iter().filter(|report| report.stage > *stage);
        assert!(
            later.clone().all(|report| !matches!(report.state.status, Progress::Late | Progress::Failed)),
            "{later:#?}"
        );
    }
}

#[test]
fn a_ready_node_is_done_with_ages_even_if_the_host_keeps_things_elsewhere() {
    let assessment = assess(&ready(100));
    assert_eq!(assessment.current(), None);
    let ages: Vec<_> = assessment.stages.iter().map(|report| report.age_secs).collect();
    let (credential, cloud_controller) = (None, None);
    let wanted = [Some(100), Some(92), Some(90), Some(90), credential, Some(80), cloud_controller, Some(70), Some(70)];
    assert_eq!(ages, wanted);

    let mut elsewhere = ready(100);
    (elsewhere.host.socket, elsewhere.host.runtime) = (no_socket(), None);
    elsewhere.host.kubelet = Err("no bus".into());
    elsewhere.host.files.credential = Credential::Missing;
    elsewhere.host.files.cloud_init = CloudInit::Running { stage: "init".into(), errors: vec![] };
    assert_eq!(assess(&elsewhere).current(), None, "cloud-init is no obstacle either");

    let mut plain = node("True", &["example.org/dedicated"]);
    plain.provider_id = None;
    with_node(&mut elsewhere, plain);
    let assessment = assess(&elsewhere);
    let cloud_controller = &assessment.stages[6];
    assert_eq!((assessment.current(), cloud_controller.state.status), (None, Progress::Skipped), "no cloud controller");
}

#[test]
fn a_stage_is_late_when_it_takes_longer_than_usual_after_the_one_before() {
    let at = |after_boot| {
        let mut facts = ready(after_boot);
        with_node(&mut facts, node("False", &[UNINITIALIZED]));
        let assessment = assess(&facts);
        let current = assessment.current().unwrap();
        (current.state.status, current.age_secs)
    };
    // The Node was created at second 20, and a cloud controller has two minutes.
    assert_eq!(at(139), (Progress::Running, Some(119)));
    assert_eq!(at(140), (Progress::Late, Some(120)));
}

fn api(node: Option<NodeFacts>) -> ApiFacts {
    ApiFacts { reach: Reach::Reached { since: Uptime::ZERO }, node, ..ApiFacts::default() }
}

/// The status and reason of what is reported of `facts`, with a Node as in them.
fn reported(followed: &mut Followed, facts: &Facts) -> (Status, Reason) {
    let node = if let NodeAnswer::Node(node) = &facts.node { Some((**node).clone()) } else { None };
    let api = match &facts.node {
        NodeAnswer::Unreached(error) => {
            ApiFacts { reach: Reach::Unreached { since: Uptime::ZERO, error: error.clone() }, ..ApiFacts::default() }
        }
        _ => api(node),
    };
    followed.observe(&api, secs(600), facts.now);
    let view = followed.settled().unwrap_or_else(|| followed.view(facts, &assess(facts)));
    match view {
        View::Seen { findings, .. } => findings.first().map_or((Status::True, Reason::NodeIsBootstrapped), of_finding),
        View::Unknown(finding) | View::Excused(finding) => of_finding(&finding),
        other => panic!("{other:?}"),
    }
}

fn of_finding(finding: &Finding) -> (Status, Reason) {
    (finding.status, finding.reason)
}

const BOOTSTRAPPING: (Status, Reason) = (Status::Unknown, Reason::NodeBootstrapping);
const LATE: (Status, Reason) = (Status::Unknown, Reason::BootstrapStageLate);
const STUCK: (Status, Reason) = (Status::False, Reason::BootstrapStuck);
const BOOTSTRAPPED: (Status, Reason) = (Status::True, Reason::NodeIsBootstrapped);

fn uninitialized(after_boot: u64) -> Facts {
    let mut facts = ready(after_boot);
    with_node(&mut facts, node("True", &[UNINITIALIZED]));
    facts
}

#[test]
fn a_young_node_is_first_late_then_stuck_and_bootstrapped_for_good_once_it_is_ready() {
    let mut followed = Followed::Unseen { until: Uptime::ZERO };
    let mut facts = ready(15);
    facts.node = NodeAnswer::NoNode("n1".into());
    assert_eq!(reported(&mut followed, &facts), BOOTSTRAPPING);
    for after_boot in [100, 139] {
        assert_eq!(reported(&mut followed, &uninitialized(after_boot)), BOOTSTRAPPING);
    }
    for after_boot in [300, 460, 619] {
        assert_eq!(reported(&mut followed, &uninitialized(after_boot)), LATE);
    }
    assert_eq!(reported(&mut followed, &uninitialized(620)), STUCK, "ten minutes after its creation");
    assert_eq!(reported(&mut followed, &ready(700)), BOOTSTRAPPED);
    assert_eq!(reported(&mut followed, &uninitialized(2000)), BOOTSTRAPPED);
    let mut other = uninitialized(2000);
    let mut young = node("False", &[]);
    (young.uid, young.created) = ("u2".into(), moment(1990).server);
    young.conditions.push(condition("NodeBootstrapped", "True", "of the former Node", 700));
    with_node(&mut other, young);
    assert_eq!(reported(&mut followed, &other), BOOTSTRAPPING, "another Node of the same name");
}

#[test]
fn after_an_outage_or_a_suspend_a_young_node_has_its_time_again() {
    let mut followed = Followed::Unseen { until: Uptime::ZERO };
    assert_eq!(reported(&mut followed, &uninitialized(100)), BOOTSTRAPPING);
    for after_boot in (200..=3000).step_by(100) {
        let mut outage = uninitialized(after_boot);
        outage.node = NodeAnswer::Unreached("no answer".into());
        assert_eq!(reported(&mut followed, &outage), LATE);
    }
    for after_boot in [3001, 3100, 3200, 3300, 3400, 3500, 3599] {
        assert_eq!(reported(&mut followed, &uninitialized(after_boot)), LATE);
    }
    assert_eq!(reported(&mut followed, &uninitialized(3600)), STUCK);
    let mut outage = uninitialized(3700);
    outage.node = NodeAnswer::Unreached("no answer".into());
    reported(&mut followed, &outage);
    assert_eq!(reported(&mut followed, &uninitialized(3800)), STUCK, "it was stuck before");

    let mut suspended = Followed::Unseen { until: Uptime::ZERO };
    assert_eq!(reported(&mut suspended, &uninitialized(100)), BOOTSTRAPPING);
    assert_eq!(reported(&mut suspended, &uninitialized(9000)), LATE);
}

#[test]
fn neither_a_stopped_unit_nor_ignorance_makes_a_node_stuck() {
    let mut followed = Followed::Young { uid: "u1".into(), deadline: at(620), read_at: at(619) };
    for state in ["inactive", "deactivating"] {
        let mut stopped = uninitialized(700);
        with_node(&mut stopped, node("Unknown", &[UNINITIALIZED]));
        stopped.host.kubelet = Ok(Some(unit("kubelet.service", state, 0)));
        assert_eq!(reported(&mut followed, &stopped), LATE);
    }
    let mut unknown = uninitialized(700);
    with_node(&mut unknown, node("Unknown", &[UNINITIALIZED]));
    unknown.host.kubelet = Err("systemctl: timed out".into());
    (unknown.host.socket, unknown.host.runtime) = (no_socket(), None);
    unknown.host.files.credential = Credential::Unreadable("timed out".into());
    assert_eq!(reported(&mut followed, &unknown).0, Status::False, "the rest is known");
    unknown.host.socket = Ok("/run/containerd/containerd.sock".into());
    assert_eq!(reported(&mut followed, &unknown), STUCK, "a registered Node had a kubelet and a credential");
}

#[test]
fn an_older_node_is_judged_by_what_it_shows() {
    let first = |ready: &str, shown: Option<&str>| {
        let mut facts = ready_old();
        let mut node = node(ready, &[]);
        node.conditions.extend(shown.map(|status| condition("NodeBootstrapped", status, "m", 30)));
        with_node(&mut facts, node);
        reported(&mut Followed::Unseen { until: Uptime::ZERO }, &facts)
    };
    assert_eq!(first("True", None), BOOTSTRAPPED);
    assert_eq!(first("False", None), BOOTSTRAPPING, "whether it ever was ready is not known");
    assert_eq!(first("False", Some("Unknown")), BOOTSTRAPPING);
    assert_eq!(first("False", Some("True")), BOOTSTRAPPED);
    assert_eq!(first("False", Some("False")), STUCK);
    let mut followed = Followed::Unseen { until: Uptime::ZERO };
    let mut facts = ready_old();
    with_node(&mut facts, node("False", &[]));
    assert_eq!(reported(&mut followed, &facts), BOOTSTRAPPING);
    assert_eq!(reported(&mut followed, &ready_old()), BOOTSTRAPPED, "now it is ready");
}

fn ready_old() -> Facts {
    ready(100_000)
}

#[test]
fn what_the_node_shows_is_kept_until_the_node_is_seen() {
    let mut followed = Followed::Unseen { until: at(700) };
    let mut view = |node: NodeAnswer, after_boot| {
        let facts = Facts { node, ..ready(after_boot) };
        followed.view(&facts, &assess(&facts))
    };
    let absent = || NodeAnswer::NoNode("n1".into());
    assert!(matches!(view(absent(), 699), View::Unchanged(_)));
    assert!(matches!(view(NodeAnswer::Unreached("no answer".into()), 900), View::Unchanged(_)));
    assert!(matches!(view(absent(), 700), View::Seen { .. }), "there is no Node");
}

#[test]
fn a_host_is_read_every_ten_seconds_until_its_deadline_and_rarely_once_only_the_node_is_waited_for() {
    let young = || Followed::Young { uid: "u1".into(), deadline: at(620), read_at: at(610) };
    for (followed, until) in [
        (Followed::Unseen { until: at(30) }, 600),
        (Followed::Unseen { until: at(90_030) }, 90_030),
        (young(), 620),
        (Followed::Gone, 600),
    ] {
        let after = |then, stage| (followed.read_again_at(at(then), stage, secs(600)) - at(then)).as_secs();
        let kubelet = Some(Stage::Kubelet);
        assert_eq!([after(0, kubelet), after(until - 4, kubelet), after(until, kubelet)], [10, 4, 300], "{followed:?}");
        let controller = Some(Stage::CloudController);
        let of_node = [after(0, controller), after(until - 4, controller), after(until, controller)];
        assert_eq!(of_node, [300, 4, 300], "{followed:?}");
    }
}
