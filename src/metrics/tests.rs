//! The registry is walked, the largest exposition is rendered, a usual one is shown.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::{
    checks::{
        self, Reading,
        kernel::{event::KernelEvent, state::KernelState},
        kubelet::Probe,
    },
    clock::Now,
    cluster::{
        api::ApiError,
        gate::{Gate, RequestKind},
    },
    health::{self, ConditionType, Reason, Status, Verdict, news::NEWS, suppress::Quiet},
    helper::protocol::{ClientCertificate, VERBS},
    host::systemd::Cause,
    rules,
};

fn verdict(reason: Reason) -> Verdict {
    Verdict {
        status: reason.status(),
        reason,
        message: "not in the metrics".to_owned(),
        since: "2026-11-21T09:00:00.5Z".parse().unwrap(),
        others: Vec::new(),
        next: None,
    }
}

/// Every pair of a condition and a reason that it can have.
fn pairs() -> Vec<(ConditionType, Reason)> {
    let named = health::reasons().map(|spec| spec.reason);
    let of_rules = rules::all().filter_map(|rule| Reason::of_rule(rule.id));
    let reasons: Vec<Reason> = named.chain(of_rules).collect();
    let all = ConditionType::ALL.iter().flat_map(|kind| {
        let own = reasons.iter().filter(|reason| reason.belongs_to(*kind));
        own.map(|reason| (*kind, *reason))
    });
    all.collect()
}

struct Known {
    counted: Counted,
    gate: Gate,
    helper: HelperTally,
    node: String,
}

/// Every question to the helper, with every outcome.
fn every_question(took: Duration) -> HelperTally {
    let mut helper = HelperTally::default();
    for verb in VERBS {
        for outcome in Outcome::ALL {
            helper.asked(verb, outcome, took);
        }
    }
    helper
}

/// All that can be seen was seen, and it took longer than any bound.
fn everything() -> Known {
    const LONG: Duration = Duration::from_secs(99_999_999_999);
    let mut counted = Counted::default();
    for (kind, reason) in pairs() {
        counted.came_to(kind, reason);
    }
    for spec in checks::ALL {
        counted.answered(spec.id, LONG);
    }
    let probes = [
        Probe::Refused,
        Probe::Timeout,
        Probe::Status(500),
        Probe::Impossible(String::new()),
    ];
    for probe in probes {
        counted.probed(&probe, LONG);
    }
    for spec in NEWS {
        counted.heard(spec.news);
    }
    counted.late(LONG);
    counted.turned(LONG);
    let records = u64::MAX;
    counted.read(&Reading::Kernel(KernelEvent::Lost { records }));
    counted.read(&Reading::Certificate(Ok(Some(ClientCertificate {
        file: String::new(),
        not_before_secs: 0,
        not_after_secs: 253_402_207_200,
    }))));
    counted.read(&Reading::KernelState(KernelState {
        hung_task_timeout_secs: Some(120),
        hung_task_warnings: Some(0),
        ..KernelState::default()
    }));
    let mut gate = Gate::new("n");
    let now = |secs| Now {
        uptime: Duration::from_secs(secs),
        wall: Timestamp::UNIX_EPOCH,
    };
    for kind in RequestKind::ALL {
        for error in errors() {
            gate.sent(kind, now(0));
            gate.answered(
                kind,
                error.as_ref().map_or(Ok(()), Err),
                now(99_999_999_999),
            );
        }
    }
    let helper = every_question(LONG);
    Known {
        counted,
        gate,
        helper,
        // The longest name, if somebody gave it to us with the worst of letters.
        node: "\\".repeat(253),
    }
}

fn errors() -> Vec<Option<ApiError>> {
    let text = String::new;
    vec![
        None,
        Some(ApiError::Network(text())),
        Some(ApiError::Timeout),
        Some(ApiError::Unauthorized),
        Some(ApiError::Forbidden(text())),
        Some(ApiError::NotFound),
        Some(ApiError::Conflict(text())),
        Some(ApiError::Expired(text())),
        Some(ApiError::TooMany(None)),
        Some(ApiError::Server {
            code: 500,
            message: text(),
            retry_after: None,
        }),
        Some(ApiError::Refused {
            code: 400,
            message: text(),
        }),
        Some(ApiError::Nonsense(text())),
    ]
}

fn snapshot<'a>(known: &'a Known, verdicts: &'a [(ConditionType, Verdict)]) -> Snapshot<'a> {
    Snapshot {
        wall: "2026-11-21T10:00:00Z".parse().unwrap(),
        version: "1.2.3",
        node: known.node.clone(),
        started: "2026-11-21T08:00:00Z".parse().unwrap(),
        shadow: false,
        quiet: vec![Quiet::StandDown],
        conditions: verdicts.iter().map(|(kind, v)| (*kind, v)).collect(),
        transitions: verdicts.iter().map(|(kind, v)| (*kind, v.since)).collect(),
        published: vec![ConditionType::KubeletHealthy],
        counted: &known.counted,
        requests: known.gate.tally(),
        helper: known.helper,
        peers: Peer::ALL.map(|peer| (peer, Some(peer != Peer::Kmsg))),
        heartbeat: Some("2026-11-21T09:59:00.25Z".parse().unwrap()),
        clock_ahead: Some(SignedDuration::from_millis(-2_400_250)),
        events_sent: 3,
        events_dropped: 0,
        log_lines_dropped: 0,
        notifications_dropped: 0,
        bus_dropped: Cause::ALL.map(|cause| (cause, 0)),
        process: Some(Process {
            resident_bytes: 7_000_000,
            locked_bytes: 12_000_000,
            major_faults: 3,
            cpu: Duration::from_millis(1230),
            open_fds: 17,
            threads: 2,
        }),
    }
}

/// The longest reason of each condition.
fn longest() -> Vec<(ConditionType, Verdict)> {
    let all = ConditionType::ALL.iter().map(|kind| {
        let own = pairs().into_iter().filter(|(of, _)| of == kind);
        let (_, reason) = own.max_by_key(|(_, reason)| reason.as_str().len()).unwrap();
        (*kind, verdict(reason))
    });
    all.collect()
}

#[test]
fn the_largest_exposition_is_within_its_bound() {
    let (known, verdicts) = (everything(), longest());
    let mut now = snapshot(&known, &verdicts);
    // Every whole number as long as it gets.
    (now.events_sent, now.events_dropped) = (u64::MAX, u64::MAX);
    (now.log_lines_dropped, now.notifications_dropped) = (u64::MAX, u64::MAX);
    now.bus_dropped = Cause::ALL.map(|cause| (cause, u64::MAX));
    for format in [Format::OpenMetrics, Format::Text] {
        let text = render(&now, format);
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        // Its counters are short; a number has at most twenty digits.
        let largest = text.len() + lines * 20;
        println!("{format:?}: {lines} samples, {largest} bytes at most");
        assert!(largest <= MAX_BYTES, "{largest}");
    }
}

#[test]
fn the_registry_is_whole() {
    let mut names = BTreeSet::new();
    for family in families() {
        let name = family.name;
        assert!(names.insert(name), "{name} twice");
        let allowed = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(name.starts_with("nodevigil_") && name.chars().all(allowed));
        assert!(family.help.ends_with('.'), "{name}");
        let escapes = family.help.contains(['\\', '"', '\n']);
        assert!(!escapes, "{name}: its help needs no escaping");
        if let Some(unit) = family.unit {
            assert!(name.ends_with(&format!("_{unit}")), "{name}");
        }
        // What a reader strips from a sample's name must not be a part of the family's.
        for suffix in ["_total", "_info", "_bucket", "_count", "_sum", "_created"] {
            assert!(!name.ends_with(suffix), "{name}");
        }
        assert_eq!(
            family.kind == Kind::Histogram,
            family.samples_are_durations()
        );
    }
}

impl Family {
    /// By its name.
    fn samples_are_durations(&self) -> bool {
        self.unit == Some("seconds")
            && ["_duration_seconds", "_lateness_seconds", "_turn_seconds"]
                .iter()
                .any(|end| self.name.ends_with(end))
    }
}

#[test]
fn every_sample_is_of_a_family_with_labels_and_values_out_of_the_registry() {
    let (known, verdicts) = (everything(), longest());
    let text = render(&snapshot(&known, &verdicts), Format::OpenMetrics);
    let (body, end) = text.split_at(text.len() - 6);
    assert_eq!(end, "# EOF\n");
    let mut seen = BTreeSet::new();
    let mut family: Option<&Family> = None;
    for line in body.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            assert!(
                seen.insert(name.to_owned()),
                "{name} is written in two places"
            );
            family = families().find(|family| family.name == name);
            assert_eq!(family.unwrap().kind.as_str(), kind);
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let family = family.unwrap();
        let name = line.split(['{', ' ']).next().unwrap();
        let suffix = name.strip_prefix(family.name).unwrap();
        let wanted: &[&str] = match family.kind {
            Kind::Gauge => &[""],
            Kind::Counter => &["_total"],
            Kind::Info => &["_info"],
            Kind::Histogram => &["_bucket", "_count", "_sum"],
        };
        assert!(wanted.contains(&suffix), "{line}");
        let labels = line
            .split_once('{')
            .map_or("", |(_, rest)| rest.split_once("} ").unwrap().0);
        let mut labels: Vec<_> = labels
            .split(',')
            .filter_map(|l| l.split_once('='))
            .collect();
        if suffix == "_bucket" {
            assert_eq!(labels.pop().unwrap().0, "le");
        }
        assert_eq!(labels.len(), family.labels.len(), "{line}");
        for (label, (name, value)) in family.labels.iter().zip(labels) {
            assert_eq!(label.name(), name);
            if let Some(values) = label.values() {
                let value = value.trim_matches('"');
                assert!(values.iter().any(|one| one == value), "{line}");
            }
        }
    }
    let all: BTreeSet<_> = families().map(|family| family.name.to_owned()).collect();
    assert_eq!(
        seen, all,
        "everything has a sample when everything has happened"
    );
}

#[test]
fn the_values_of_a_label_are_short_words() {
    let (known, verdicts) = (everything(), longest());
    let now = snapshot(&known, &verdicts);
    for family in families() {
        for label in family.labels {
            let Some(values) = label.values() else {
                assert!(matches!(label, Label::Node | Label::Version));
                continue;
            };
            let distinct: BTreeSet<_> = values.iter().collect();
            assert_eq!(distinct.len(), values.len(), "{label:?}");
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            assert!(
                values
                    .iter()
                    .all(|value| value.len() <= 64 && value.chars().all(allowed))
            );
        }
    }
    assert_eq!(now.conditions.len(), ConditionType::ALL.len());
}

#[test]
fn a_label_is_escaped() {
    let (mut known, verdicts) = (everything(), longest());
    known.node = "a\"b\\c\nd".to_owned();
    let text = render(&snapshot(&known, &verdicts), Format::Text);
    assert!(text.contains("nodevigil_node_info{node=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

/// A node on which little has happened.
fn usual() -> Known {
    let mut counted = Counted::default();
    counted.probed(&Probe::Ok, Duration::from_micros(1800));
    counted.probed(&Probe::Timeout, Duration::from_secs(1));
    counted.came_to(ConditionType::KubeletHealthy, Reason::KubeletIsHealthy);
    counted.came_to(ConditionType::KubeletHealthy, Reason::KubeletCrashed);
    counted.came_to(ConditionType::KubeletHealthy, Reason::KubeletIsHealthy);
    counted.came_to(ConditionType::KubeletHealthy, Reason::KubeletCrashed);
    Known {
        counted,
        gate: Gate::new("n"),
        helper: HelperTally::default(),
        node: "worker-1".to_owned(),
    }
}

#[test]
fn both_formats_look_as_documented() {
    let known = usual();
    let verdicts = [(
        ConditionType::KubeletHealthy,
        verdict(Reason::KubeletCrashed),
    )];
    let mut now = snapshot(&known, &verdicts);
    now.heartbeat = None;
    now.process = None;
    insta::assert_snapshot!("open_metrics", render(&now, Format::OpenMetrics));
    insta::assert_snapshot!("text", render(&now, Format::Text));
    assert_eq!(verdicts[0].1.status, Status::False);
}

#[test]
fn to_count_again_takes_no_memory() {
    let mut known = usual();
    let before = known.counted.reasons().len();
    for _ in 0..100 {
        known
            .counted
            .came_to(ConditionType::KubeletHealthy, Reason::KubeletCrashed);
    }
    assert_eq!(known.counted.reasons().len(), before);
    let crashes = known.counted.reasons().iter().map(|row| row.count).max();
    assert_eq!(crashes, Some(102));
}
