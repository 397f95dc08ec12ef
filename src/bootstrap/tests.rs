use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{clock::Now, rules::UNINITIALIZED};

const NOW: i64 = 1_800_000_000;

fn node(taints: &[&str], provider_id: Option<&str>, ready: bool) -> NodeSeen {
    NodeSeen::There(Box::new(NodeWords {
        name: "n1".to_owned(),
        uid: "u1".to_owned(),
        created: None,
        provider_id: provider_id.map(str::to_owned),
        taints: taints.iter().map(|key| (*key).to_owned()).collect(),
        ready,
        ready_words: String::new(),
    }))
}

fn unit(name: &str, active: &str) -> UnitSeen {
    UnitSeen {
        name: name.to_owned(),
        load: "loaded".to_owned(),
        active: active.to_owned(),
        result: "success".to_owned(),
    }
}

fn found(rule: &str, is_fatal: bool) -> RuleSeen {
    RuleSeen {
        rule: rule.to_owned(),
        is_fatal,
        at: "/f:1".to_owned(),
        message: format!("what {rule} says"),
        fix: "mend it".to_owned(),
    }
}

/// A node that is of use.
fn good() -> Evidence {
    Evidence {
        host: HostSeen {
            cloud_init: CloudInit::Finished { errors: Vec::new() },
            runtime: RuntimeSeen::Answers {
                what: "containerd 1.6.20".to_owned(),
                not_ready: None,
                network_not_ready: None,
            },
            credential: CredentialSeen::Certificate {
                file: "/var/lib/kubelet/pki/kubelet-client-current.pem".to_owned(),
                not_before_secs: NOW - 60,
                not_after_secs: NOW + 3600,
            },
            cni_folder: Some("/etc/cni/net.d".to_owned()),
            cni: Some(vec!["10-net.conflist".to_owned()]),
            external: Some(true),
            ..HostSeen::default()
        },
        run: KubeletRun::Runs { pid: 9 },
        healthz: HealthzSeen::Well,
        server: ServerSeen::Answers,
        node: node(&[], Some("hcloud://1"), true),
        wall_secs: NOW,
        ..Evidence::default()
    }
}

/// The stage that is stuck and its cause's name.
fn stuck(evidence: &Evidence) -> (Option<Stage>, String) {
    let progress = assess(evidence);
    let id = progress.cause.map(|cause| cause.id).unwrap_or_default();
    (progress.stuck, id)
}

fn ensure_stuck(change: impl FnOnce(&mut Evidence), stage: Stage, id: &str) {
    let mut evidence = good();
    change(&mut evidence);
    assert_eq!(
        stuck(&evidence),
        (Some(stage), id.to_owned()),
        "{evidence:#?}"
    );
}

#[test]
fn a_node_of_use_waits_for_nothing() {
    let progress = assess(&good());
    assert!(progress.is_done(), "{progress:#?}");
    assert_eq!(progress.cause, None);
    // A host without cloud-init, with a kubelet that bootstraps by a program, without a cloud.
    let mut plain = good();
    plain.host.cloud_init = CloudInit::Absent;
    plain.host.external = Some(false);
    plain.node = node(&["mine.example.org/dedicated"], None, true);
    plain.host.credential = CredentialSeen::Other {
        what: "a program".to_owned(),
    };
    // Its serving certificate is waited for by nobody.
    plain.host.serving = ServingSeen::Waits;
    assert!(assess(&plain).is_done(), "{:#?}", assess(&plain));
}

#[test]
fn nothing_known_is_nothing_failed() {
    let progress = assess(&Evidence::default());
    assert_eq!(progress.stuck, Some(Stage::Runtime));
    assert_eq!(progress.cause, None);
    let waiting = progress
        .stages
        .iter()
        .filter(|stage| matches!(stage, Standing::Waiting(_)));
    assert_eq!(waiting.count(), 0, "{progress:#?}");
}

#[test]
fn cloud_init_is_an_obstacle_until_it_runs_the_users_commands() {
    let at = |stage: &str, is_last| CloudInit::Running {
        stage: stage.to_owned(),
        is_last,
        errors: vec!["no mirror".to_owned()],
    };
    let early = |evidence: &mut Evidence| {
        evidence.host.cloud_init = at("init", false);
        evidence.run = KubeletRun::Down(unit("kubelet.service", "inactive"));
    };
    ensure_stuck(early, Stage::CloudInit, "cloud-init-slow");
    let late = |evidence: &mut Evidence| {
        early(evidence);
        evidence.host.cloud_init = at("modules-final", true);
    };
    ensure_stuck(late, Stage::Kubelet, "kubelet-not-started");
    let mut beside = good();
    beside.host.cloud_init = at("init", false);
    assert!(assess(&beside).is_done(), "a kubelet runs all the same");
    let failed = |evidence: &mut Evidence| {
        evidence.host.cloud_init = CloudInit::Finished {
            errors: vec!["no mirror".to_owned()],
        };
        let mut gone = unit("kubelet.service", "inactive");
        gone.load = "not-found".to_owned();
        evidence.run = KubeletRun::Down(gone);
    };
    ensure_stuck(failed, Stage::Kubelet, "cloud-init-failed");
}

#[test]
fn the_runtime_is_named_with_its_unit_or_the_wrong_endpoint() {
    let silent = |socket: &str, hangs| RuntimeSeen::Silent {
        socket: socket.to_owned(),
        why: "there is no socket".to_owned(),
        hangs,
    };
    let down = |evidence: &mut Evidence| {
        evidence.host.runtime = silent("/run/containerd/containerd.sock", false);
        evidence.host.findings = vec![found("RT001", true)];
        evidence.runtime_unit = Some(unit("containerd.service", "inactive"));
    };
    ensure_stuck(down, Stage::Runtime, "runtime-unit");
    let elsewhere = |evidence: &mut Evidence| {
        evidence.host.runtime = silent("/run/other.sock", false);
        evidence.host.findings = vec![found("KN001", true), found("RT001", true)];
    };
    ensure_stuck(elsewhere, Stage::Runtime, "RT001");
    let hangs = |evidence: &mut Evidence| evidence.host.runtime = silent("/run/x.sock", true);
    ensure_stuck(hangs, Stage::Runtime, "runtime-hangs");
}

#[test]
fn a_kubelet_that_does_not_run_is_explained_by_the_worst_rule_then_by_its_words() {
    let down = |evidence: &mut Evidence| {
        evidence.run = KubeletRun::Down(unit("kubelet.service", "activating"));
        evidence.healthz = HealthzSeen::Unknown;
        evidence.node = NodeSeen::Absent {
            name: "n1".to_owned(),
        };
        evidence.last_words = Some("run.go: no".to_owned());
    };
    let swap = |evidence: &mut Evidence| {
        down(evidence);
        evidence.host.findings = vec![found("FL002", true), found("KN001", true)];
    };
    ensure_stuck(swap, Stage::Kubelet, "KN001");
    let flag = |evidence: &mut Evidence| {
        down(evidence);
        evidence.host.findings = vec![found("RS001", false), found("FL002", true)];
    };
    ensure_stuck(flag, Stage::Kubelet, "FL002");
    ensure_stuck(down, Stage::Kubelet, "kubelet-ends");
    // What is broken by nature before the join explains nothing.
    let unjoined = |evidence: &mut Evidence| {
        down(evidence);
        evidence.host.awaits_join = true;
        evidence.host.findings = vec![found("CF001", true), found("AU001", true)];
    };
    ensure_stuck(unjoined, Stage::Kubelet, "awaits-join");
    let refused = |evidence: &mut Evidence| {
        unjoined(evidence);
        evidence.host.join_words = Some("error execution phase preflight".to_owned());
    };
    ensure_stuck(refused, Stage::Kubelet, "join-failed");
    let silent = |evidence: &mut Evidence| {
        evidence.healthz = HealthzSeen::Bad("answers 500".to_owned());
    };
    ensure_stuck(silent, Stage::Kubelet, "kubelet-silent");
}

#[test]
fn the_bootstrap_is_stuck_at_the_server_the_token_or_the_clock() {
    let server = || "https://10.0.0.1:6443".to_owned();
    let token = |evidence: &mut Evidence| {
        evidence.host.credential = CredentialSeen::Bootstrap {
            file: "/b.conf".to_owned(),
        };
        evidence.node = NodeSeen::Unknown;
    };
    let with = |seen: ServerSeen| {
        move |evidence: &mut Evidence| {
            token(evidence);
            evidence.server = seen;
        }
    };
    let unauthorized = ServerSeen::Unauthorized { server: server() };
    ensure_stuck(with(unauthorized.clone()), Stage::Tls, "AU004");
    let why = "connection refused".to_owned();
    let gone = ServerSeen::Unreachable {
        server: server(),
        why: why.clone(),
    };
    ensure_stuck(with(gone.clone()), Stage::Tls, "AU005");
    ensure_stuck(
        with(ServerSeen::OtherAuthority {
            server: server(),
            why,
        }),
        Stage::Tls,
        "AU005",
    );
    ensure_stuck(with(ServerSeen::Answers), Stage::Tls, "csr-pending");
    let dated = |from, until| CredentialSeen::Certificate {
        file: "/c.pem".to_owned(),
        not_before_secs: from,
        not_after_secs: until,
    };
    let tomorrow = |e: &mut Evidence| e.host.credential = dated(NOW + 86_400, NOW + 172_800);
    ensure_stuck(tomorrow, Stage::Tls, "KN008");
    let expired = |e: &mut Evidence| e.host.credential = dated(NOW - 200, NOW - 100);
    ensure_stuck(expired, Stage::Tls, "AU002");
    // A kubelet that ends for it is no fault of the kubelet's, unless a rule says more.
    let ends = |e: &mut Evidence| {
        token(e);
        e.server = unauthorized.clone();
        e.run = KubeletRun::Down(unit("kubelet.service", "activating"));
        e.healthz = HealthzSeen::Unknown;
    };
    ensure_stuck(ends, Stage::Tls, "AU004");
    let swap = |e: &mut Evidence| {
        ends(e);
        e.host.findings = vec![found("AU002", true), found("KN001", true)];
    };
    ensure_stuck(swap, Stage::Kubelet, "KN001");
}

#[test]
fn with_a_good_certificate_the_server_is_another_stages_matter() {
    let server = "https://10.0.0.1:6443".to_owned();
    let unauthorized = ServerSeen::Unauthorized {
        server: server.clone(),
    };
    let gone = ServerSeen::Unreachable {
        server,
        why: "connection refused".to_owned(),
    };
    let cut_off = |e: &mut Evidence| {
        e.server = gone.clone();
        e.node = NodeSeen::Unknown;
    };
    ensure_stuck(cut_off, Stage::Registered, "AU005");
    let refused = |e: &mut Evidence| {
        e.server = unauthorized.clone();
        e.node = NodeSeen::Unknown;
    };
    ensure_stuck(refused, Stage::Registered, "credential-refused");
}

#[test]
fn the_cloud_controller_is_told_from_a_flag_that_was_lost() {
    let with = |taints: &[&str], id: Option<&str>, external, wants| {
        let mut evidence = good();
        evidence.node = node(taints, id, true);
        evidence.host.external = external;
        evidence.host.wants_external = wants;
        stuck(&evidence)
    };
    let at = |id: &str| (Some(Stage::CloudController), id.to_owned());
    let nothing = (None, String::new());
    assert_eq!(with(&[UNINITIALIZED], None, Some(true), true), at("CP005"));
    assert_eq!(
        with(&[UNINITIALIZED], Some("x://1"), Some(true), true),
        at("CP005")
    );
    assert_eq!(with(&[], None, Some(true), true), at("CL004"));
    assert_eq!(with(&[], None, Some(false), true), at("CL001"));
    assert_eq!(with(&[], None, Some(false), false), nothing);
    assert_eq!(with(&[], Some("x://1"), Some(false), true), nothing);
    // Nobody said that it is wanted, but for a rule that knows it by another node.
    let mut evidence = good();
    evidence.node = node(&[], None, true);
    evidence.host.external = Some(false);
    let mut lost = found("CL001", false);
    lost.fix = "see SD001, which explains the loss; delete the Node".to_owned();
    evidence.host.findings = vec![lost, found("SD001", false)];
    let progress = assess(&evidence);
    assert_eq!(progress.stuck, Some(Stage::CloudController));
    let fix = progress.cause.as_ref().map(|cause| cause.fix.as_str());
    assert_eq!(fix, Some("SD001: mend it; delete the Node"));
    assert!(progress.cause.unwrap().message.contains("/f:1"));
}

#[test]
fn the_network_the_drivers_and_who_left_a_taint() {
    let no_cni = |e: &mut Evidence| {
        e.node = node(&["node.kubernetes.io/not-ready"], Some("x://1"), false);
        e.host.cni = Some(Vec::new());
    };
    ensure_stuck(no_cni, Stage::Network, "NW001");
    let driver = |e: &mut Evidence| {
        e.node = node(&["ebs.csi.aws.com/agent-not-ready"], Some("x://1"), true);
    };
    ensure_stuck(driver, Stage::Csi, "CP004");
    for key in ["karpenter.sh/unregistered", "readiness.k8s.io/net"] {
        let left = |e: &mut Evidence| e.node = node(&[key], Some("x://1"), true);
        ensure_stuck(left, Stage::Ready, "taint-left");
    }
    let unready = |e: &mut Evidence| e.node = node(&[], Some("x://1"), false);
    ensure_stuck(unready, Stage::Ready, "not-ready");
}

#[test]
fn each_part_of_the_deadline_is_told_once() {
    let at = Duration::from_secs;
    let mut timeline = Timeline::new(at(100), at(10), patient());
    assert_eq!(timeline.next_word(), Some(at(105)));
    let marks: Vec<_> = (100..=112).map(|secs| timeline.mark(at(secs))).collect();
    let mut wanted = vec![None; 13];
    (wanted[5], wanted[8], wanted[10]) = (Some(Mark::Half), Some(Mark::Most), Some(Mark::Over));
    assert_eq!(marks, wanted);
    assert_eq!(timeline.next_word(), None);
    // Who looks late hears of the last alone.
    let mut timeline = Timeline::new(at(0), at(10), patient());
    assert_eq!(
        (timeline.mark(at(9)), timeline.mark(at(9))),
        (Some(Mark::Most), None)
    );
    assert_eq!(timeline.mark(at(50)), Some(Mark::Over));
}

/// Every stage may take an hour.
fn patient() -> Patience {
    Patience::new(|_| Duration::from_hours(1))
}

#[test]
fn a_stage_that_takes_too_long_is_told_once_counted_from_the_stage_before() {
    let at = Duration::from_secs;
    let secs = |key| Duration::from_secs(if key == "network_secs" { 20 } else { 60 });
    let mut timeline = Timeline::new(at(100), at(600), Patience::new(secs));
    let mut evidence = good();
    evidence.host.runtime = RuntimeSeen::Silent {
        socket: "/run/x.sock".to_owned(),
        why: "nobody listens".to_owned(),
        hangs: false,
    };
    timeline.take(&assess(&evidence), at(130));
    // The first look was late: what it waits for is waited for since the beginning.
    assert_eq!(timeline.newly_late(at(159)), None);
    assert_eq!(timeline.next_word(), Some(at(160)));
    assert_eq!(timeline.newly_late(at(160)), Some(Stage::Runtime));
    assert_eq!(timeline.newly_late(at(161)), None);
    assert_eq!(timeline.next_word(), Some(at(400)));
    let mut evidence = good();
    evidence.node = node(&[], None, false);
    evidence.host.cni = Some(Vec::new());
    evidence.host.external = Some(false);
    let progress = assess(&evidence);
    assert_eq!(progress.stuck, Some(Stage::Network));
    timeline.take(&progress, at(200));
    assert_eq!(timeline.newly_late(at(219)), None);
    assert_eq!(timeline.newly_late(at(220)), Some(Stage::Network));
    assert!(timeline.was_late(Stage::Runtime) && !timeline.was_late(Stage::Ready));
    timeline.take(&assess(&good()), at(230));
    assert_eq!(timeline.newly_late(at(9999)), None);
}

#[test]
fn not_to_know_takes_nothing_back_and_evidence_does() {
    let at = Duration::from_secs;
    let mut timeline = Timeline::new(at(0), at(600), patient());
    let mut evidence = good();
    assert!(!timeline.take(&assess(&evidence), at(1)).is_empty());
    assert!(timeline.was_before(Stage::Kubelet));
    evidence.run = KubeletRun::Unknown {
        why: "no bus".to_owned(),
    };
    evidence.node = NodeSeen::Unknown;
    assert_eq!(timeline.take(&assess(&evidence), at(2)), []);
    assert_eq!(timeline.reached(Stage::Ready), Some(at(1)));
    evidence.run = KubeletRun::Down(unit("kubelet.service", "failed"));
    assert_eq!(
        timeline.take(&assess(&evidence), at(3)),
        [Moved::Lost(Stage::Kubelet)]
    );
    let moved = timeline.take(&assess(&good()), at(4));
    assert_eq!(moved, [Moved::Reached(Stage::Kubelet)]);
    assert!(!timeline.was_before(Stage::Kubelet));
}

#[test]
fn the_record_tells_the_whole_way() {
    let at = Duration::from_secs;
    let now = Now {
        uptime: at(42),
        wall: Timestamp::from_second(NOW).unwrap(),
    };
    let mut timeline = Timeline::new(at(40), at(600), patient());
    let mut evidence = good();
    evidence.host.cni = None;
    evidence.node = node(&[], Some("x://1"), false);
    evidence.host.cni_folder = Some("/etc/cni/net.d".repeat(100));
    let progress = assess(&evidence);
    timeline.take(&progress, now.uptime);
    let record = Record::new(
        By::Command,
        RecordedResult::UnderWay,
        &timeline,
        &progress,
        now,
    );
    assert_eq!(record.stages.len(), Stage::ALL.len());
    assert_eq!(record.stuck.as_deref(), Some("network"));
    let text = serde_json::to_string(&record).unwrap();
    assert!(text.len() < 16 * 1024, "{}", text.len());
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
}

#[test]
fn the_table_of_causes_is_whole() {
    for row in cause::CAUSES {
        assert!(row.doc.ends_with('.') && !row.id.is_empty(), "{row:?}");
    }
    let order: Vec<_> = cause::CAUSES.iter().map(|row| row.stage).collect();
    assert!(order.is_sorted(), "by stage");
    for stage in Stage::ALL {
        assert_eq!(Stage::ALL[stage.index()], stage);
        assert!(stage.doc().ends_with('.'));
        // Of the machine itself nobody could tell; the serving certificate is not waited for.
        let is_free = matches!(stage, Stage::Instance | Stage::Serving);
        assert!(is_free || order.contains(&stage), "{stage:?} has causes");
    }
}

/// Any evidence: each part good, bad or not known.
fn any_evidence() -> impl Strategy<Value = Evidence> {
    let parts = (
        0..4_u8,
        0..5_u8,
        0..4_u8,
        0..5_u8,
        0..6_u8,
        0..8_u8,
        any::<[bool; 4]>(),
    );
    parts.prop_map(|(init, runtime, run, credential, server, there, flags)| {
        let mut evidence = good();
        evidence.host.cloud_init = some_cloud_init(init);
        evidence.host.runtime = some_runtime(runtime, flags[0]);
        evidence.run = match run {
            0 => KubeletRun::default(),
            1 => KubeletRun::Down(unit("kubelet.service", "failed")),
            _ => evidence.run,
        };
        evidence.healthz = match run {
            2 => HealthzSeen::Bad("no".to_owned()),
            3 => HealthzSeen::Well,
            _ => HealthzSeen::Unknown,
        };
        evidence.host.credential = match credential {
            0 => CredentialSeen::default(),
            1 => CredentialSeen::Missing,
            2 => CredentialSeen::Bootstrap {
                file: "/b".to_owned(),
            },
            3 => CredentialSeen::Bad {
                why: "no".to_owned(),
            },
            _ => evidence.host.credential,
        };
        evidence.server = some_server(server);
        evidence.node = match there {
            0 => NodeSeen::Unknown,
            1 => NodeSeen::Absent {
                name: "n1".to_owned(),
            },
            2 => node(&[UNINITIALIZED], None, flags[1]),
            3 => node(&["karpenter.sh/unregistered"], Some("x://1"), flags[1]),
            4 => node(&["ebs.csi.aws.com/agent-not-ready"], None, flags[1]),
            5 => node(&[], None, flags[1]),
            _ => node(&[], Some("x://1"), flags[1]),
        };
        evidence.host.external = [None, Some(true), Some(false)][usize::from(init) % 3];
        evidence.host.wants_external = flags[2];
        evidence.host.awaits_join = flags[3];
        evidence
    })
}

fn some_cloud_init(which: u8) -> CloudInit {
    match which {
        0 => CloudInit::Absent,
        1 => CloudInit::Unknown {
            why: "no".to_owned(),
        },
        2 => CloudInit::Running {
            stage: "init".to_owned(),
            is_last: false,
            errors: Vec::new(),
        },
        _ => CloudInit::Finished {
            errors: vec!["e".to_owned()],
        },
    }
}

fn some_runtime(which: u8, hangs: bool) -> RuntimeSeen {
    let answers = |not_ready: Option<&str>, network: Option<&str>| RuntimeSeen::Answers {
        what: "c".to_owned(),
        not_ready: not_ready.map(str::to_owned),
        network_not_ready: network.map(str::to_owned),
    };
    match which {
        0 => RuntimeSeen::default(),
        1 => RuntimeSeen::Silent {
            socket: "/s".to_owned(),
            why: "no".to_owned(),
            hangs,
        },
        2 => answers(Some("no"), None),
        3 => answers(None, Some("no")),
        _ => answers(None, None),
    }
}

fn some_server(which: u8) -> ServerSeen {
    let (server, why) = ("https://s".to_owned(), "no".to_owned());
    match which {
        0 => ServerSeen::default(),
        1 => ServerSeen::Unreachable { server, why },
        2 => ServerSeen::OtherAuthority { server, why },
        3 => ServerSeen::Unauthorized { server },
        4 => ServerSeen::Trouble { server, why },
        _ => ServerSeen::Answers,
    }
}

proptest! {
    #[test]
    fn the_stuck_stage_is_the_first_that_is_not_behind(evidence in any_evidence()) {
        let progress = assess(&evidence);
        let Some(stage) = progress.stuck else {
            let ready = progress.get(Stage::Ready);
            prop_assert!(matches!(ready, Standing::Reached(_)), "{progress:?}");
            prop_assert_eq!(&progress.cause, &None);
            return Ok(());
        };
        prop_assert!(!progress.get(stage).is_behind());
        for earlier in Stage::ALL.into_iter().filter(|other| *other < stage) {
            // Passed over is only cloud-init beside a kubelet that runs, and what a later stage proves.
            let waits = matches!(progress.get(earlier), Standing::Waiting(_));
            prop_assert!(!waits || earlier == Stage::CloudInit, "{earlier:?} {progress:?}");
        }
        if let Some(cause) = &progress.cause {
            prop_assert!(!cause.message.is_empty() && !cause.fix.is_empty());
            prop_assert!(cause.message.len() < 2048);
        } else {
            // Only of what could not be looked at, or of a Node that is not there yet, none may be known.
            let is_unknown = matches!(progress.get(stage), Standing::Unknown(_));
            let is_later = stage > Stage::Registered;
            prop_assert!(is_unknown || is_later, "{progress:?}");
        }
    }

    #[test]
    fn a_stage_goes_back_on_evidence_alone(ways in prop::collection::vec(any_evidence(), 1..20)) {
        let mut timeline = Timeline::new(Duration::ZERO, Duration::from_mins(1), patient());
        let mut marks = 0;
        for (i, evidence) in ways.iter().enumerate() {
            let at = Duration::from_secs(i as u64 * 5);
            let before: Vec<_> = Stage::ALL.map(|stage| timeline.reached(stage)).to_vec();
            let progress = assess(evidence);
            let moved = timeline.take(&progress, at);
            prop_assert!(moved.len() <= Stage::ALL.len());
            for stage in Stage::ALL {
                let (was, is) = (before[stage.index()], timeline.reached(stage));
                match (was, is) {
                    (Some(_), None) => prop_assert!(matches!(progress.get(stage), Standing::Waiting(_))),
                    (None, Some(since)) => {
                        prop_assert_eq!(since, at);
                        prop_assert!(matches!(progress.get(stage), Standing::Reached(_)));
                    }
                    (was, is) => prop_assert_eq!(was, is),
                }
            }
            marks += usize::from(timeline.mark(at).is_some());
        }
        prop_assert!(marks <= 3);
    }
}
