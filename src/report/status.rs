//! /run/nodevigil/status.json: what the agent finds and publishes, for `nodevigil status` and programs on the host.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::condition::{Condition, ConditionType, Desired, Status, Uptime};
use crate::facts::{ApiFacts, Reach};
use crate::files;
use crate::host::clock::ServerTime;
use crate::host::pause::Pause;
use crate::trouble::Trouble;

/// Where it is written.
pub const PATH: &str = "/run/nodevigil/status.json";
/// How long after its writing a report still counts as present. The agent writes it on every change and at least every 30 seconds.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// The format's version. It changes when a field is removed or changes its meaning, not when one is added.
const VERSION: u32 = 1;
const MAX_BYTES: u64 = 1 << 20;

/// The content of status.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    pub version: u32,
    pub agent_version: String,
    pub pid: u32,
    pub written_at: Timestamp,
    /// The Node's name.
    pub node: String,
    pub conditions: Vec<ConditionReport>,
    pub published: Publishing,
    pub kubelet: KubeletReport,
    /// The pause that is in effect, if any.
    pub pause: Option<Pause>,
    pub troubles: Vec<TroubleReport>,
    /// How the boot before this one ended; none if that is not known.
    #[serde(default)]
    pub last_boot: Option<String>,
}

/// A condition as nodevigil finds it. The Node shows the same, if it is published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConditionReport {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: Status,
    pub reason: String,
    pub message: String,
    /// Since when it has this status: the Node's `lastTransitionTime`, if the Node shows the same status.
    pub since: Timestamp,
    /// Whether that is a problem. Of most types it is one if the status is `False`.
    #[serde(default)]
    pub is_problem: bool,
}

/// Whether conditions can be published on the Node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Publishing {
    /// Nothing is published, by the settings or for want of an identity.
    Off { reason: String },
    /// No request has been answered yet.
    Untried,
    /// The API server answers since then.
    Reached { since: Timestamp },
    /// It has not answered since then.
    Unreached { since: Timestamp, error: String },
}

/// The kubelet that is watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KubeletReport {
    pub unit: Option<String>,
    pub pid: Option<u32>,
    /// The URL of its /healthz; none if it answers no probes.
    pub healthz: Option<String>,
    /// Why its sync loop is not watched; none if it is, or has not been asked yet.
    #[serde(default)]
    pub sync_loop_unwatched: Option<String>,
}

/// What nodevigil itself cannot do at present.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TroubleReport {
    pub name: String,
    pub message: String,
}

/// What a report is made from.
#[derive(Debug)]
pub struct Present<'a> {
    pub node: &'a str,
    pub desired: &'a Desired,
    pub api: &'a ApiFacts,
    pub kubelet: KubeletReport,
    pub pause: Option<&'a Pause>,
    pub troubles: BTreeMap<Trouble, String>,
    pub last_boot: Option<String>,
    pub now: Timestamp,
    pub uptime: Uptime,
}

impl StatusReport {
    /// The present report; `previous` is the last one of this run of the agent.
    pub fn new(present: Present<'_>, previous: Option<&Self>) -> Self {
        let conditions = present.desired.conditions.iter().map(|condition| ConditionReport {
            kind: condition.kind.name().to_owned(),
            status: condition.status,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: since(condition, &present, previous),
            is_problem: condition.is_problem(),
        });
        let troubles = present.troubles.iter();
        let troubles =
            troubles.map(|(trouble, message)| TroubleReport { name: trouble.name().into(), message: message.clone() });
        Self {
            version: VERSION,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            written_at: present.now,
            node: present.node.to_owned(),
            conditions: conditions.collect(),
            published: published(&present),
            pause: present.pause.cloned(),
            troubles: troubles.collect(),
            kubelet: present.kubelet,
            last_boot: present.last_boot,
        }
    }

    /// Its conditions, for an agent that takes them over.
    pub fn conditions(self, now: Uptime) -> Vec<Condition> {
        let condition = |report: ConditionReport| {
            let ConditionReport { kind, status, reason, message, .. } = report;
            Some(Condition { kind: ConditionType::by_name(&kind)?, status, reason, message, since: now })
        };
        self.conditions.into_iter().filter_map(condition).collect()
    }

    /// Replaces the file at `path`.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        files::replace(path, 0o644, &serde_json::to_string(self)?)
    }

    /// The report at `path`, however old.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_str(&files::read(path, MAX_BYTES)?)?)
    }
}

fn since(condition: &Condition, present: &Present<'_>, previous: Option<&StatusReport>) -> Timestamp {
    let kind = condition.kind.name();
    let on_node = present.api.node.as_ref().and_then(|node| node.condition(kind));
    let on_node = on_node.filter(|shown| shown.status == condition.status.name());
    let mut before = previous.iter().flat_map(|report| &report.conditions);
    let before = before.find(|before| before.kind == kind && before.status == condition.status);
    let on_node = on_node.and_then(|shown| shown.last_transition).map(ServerTime::timestamp);
    let since = on_node.or(before.map(|before| before.since));
    since.unwrap_or(present.now)
}

fn published(present: &Present<'_>) -> Publishing {
    let timestamp = |since: Uptime| {
        let since = present.now.checked_sub(present.uptime - since).unwrap_or(present.now);
        // Computed from two clocks that are read one after the other, it differs a little each time.
        Timestamp::from_second(since.as_second()).unwrap_or(since)
    };
    match &present.api.reach {
        _ if present.api.is_dry_run => Publishing::Off { reason: "[kubernetes] publish = \"none\"".into() },
        Reach::Off { why } => Publishing::Off { reason: why.clone() },
        Reach::Untried => Publishing::Untried,
        Reach::Reached { since } => Publishing::Reached { since: timestamp(*since) },
        Reach::Unreached { since, error } => Publishing::Unreached { since: timestamp(*since), error: error.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::ConditionType;
    use crate::facts::{NodeFacts, ObservedCondition};

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn desired(status: Status) -> Desired {
        let condition = Condition {
            kind: ConditionType::KubeletHealthy,
            status,
            reason: "KubeletCrashed".into(),
            message: "m".into(),
            since: Uptime::ZERO,
        };
        Desired { conditions: vec![condition], ..Desired::default() }
    }

    fn report(status: Status, api: &ApiFacts, now: &str, previous: Option<&StatusReport>) -> StatusReport {
        let desired = desired(status);
        let present = Present {
            node: "worker-1",
            desired: &desired,
            api,
            kubelet: KubeletReport { unit: Some("kubelet.service".into()), pid: Some(7), ..KubeletReport::default() },
            pause: None,
            troubles: BTreeMap::from([(Trouble::BusLost, "no answer".to_owned())]),
            now: time(now),
            uptime: Uptime::from_secs(100),
            last_boot: Some("the previous boot ended with a shutdown".to_owned()),
        };
        StatusReport::new(present, previous)
    }

    #[test]
    fn the_time_of_a_status_is_the_nodes_and_without_one_that_of_the_change() {
        let mut api = ApiFacts::default();
        let first = report(Status::False, &api, "2026-01-01T00:00:00Z", None);
        assert_eq!(first.conditions[0].since, time("2026-01-01T00:00:00Z"));
        let same = report(Status::False, &api, "2026-01-01T00:00:09Z", Some(&first));
        assert_eq!(same.conditions[0].since, first.conditions[0].since);
        let changed = report(Status::True, &api, "2026-01-01T00:00:09Z", Some(&first));
        assert_eq!(changed.conditions[0].since, time("2026-01-01T00:00:09Z"));

        let shown = ObservedCondition {
            kind: "KubeletHealthy".into(),
            status: "False".into(),
            reason: String::new(),
            message: String::new(),
            last_heartbeat: None,
            last_transition: Some(ServerTime::of(time("2025-12-31T00:00:00Z"))),
        };
        let conditions = vec![shown];
        api.node = Some(NodeFacts { name: "worker-1".into(), conditions, ..NodeFacts::default() });
        let on_node = report(Status::False, &api, "2026-01-01T00:00:09Z", Some(&first));
        assert_eq!(on_node.conditions[0].since, time("2025-12-31T00:00:00Z"));
        let not_yet = report(Status::True, &api, "2026-01-01T00:00:09Z", Some(&first));
        assert_eq!(not_yet.conditions[0].since, time("2026-01-01T00:00:09Z"));
    }

    #[test]
    fn the_file_has_the_documented_fields_and_is_read_back() {
        let api = ApiFacts {
            reach: Reach::Unreached { since: Uptime::from_secs(40), error: "connection refused".into() },
            ..ApiFacts::default()
        };
        let mut report = report(Status::False, &api, "2026-01-01T00:01:00Z", None);
        (report.pid, report.agent_version) = (1, "0".into());
        let pause = Pause { until: time("2026-01-01T01:00:00Z"), by: "ann".into(), reason: Some("new disk".into()) };
        report.pause = Some(pause);
        let expected = r#"{"version":1,"agent_version":"0","pid":1,"written_at":"2026-01-01T00:01:00Z","node":"worker-1",
"conditions":[{"type":"KubeletHealthy","status":"False","reason":"KubeletCrashed","message":"m","since":"2026-01-01T00:01:00Z","is_problem":true}],
"published":{"state":"unreached","since":"2026-01-01T00:00:00Z","error":"connection refused"},
"kubelet":{"unit":"kubelet.service","pid":7,"healthz":null,"sync_loop_unwatched":null},"pause":{"until":"2026-01-01T01:00:00Z","by":"ann","reason":"new disk"},
"troubles":[{"name":"BusLost","message":"no answer"}],"last_boot":"the previous boot ended with a shutdown"}"#;
        assert_eq!(serde_json::to_string(&report).unwrap(), expected.replace('\n', ""));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        report.write(&path).unwrap();
        assert_eq!(StatusReport::read(&path).unwrap(), report);
    }
}
