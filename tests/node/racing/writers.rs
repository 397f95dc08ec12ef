//! Those who write to one Node at the same time, each in the way of the program that it stands for.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use jiff::Timestamp;
use nodevigil::cluster::api::{Api as Ours, TaintTry};
use nodevigil::cluster::connection::Connection;
use nodevigil::cluster::publisher::Apply;
use nodevigil::cluster::taints::Tainted;
use nodevigil::desired::taints::{Effect, Rules, Want, Wished};
use nodevigil::desired::{Condition, PublishedType};
use nodevigil::health::{ConditionType, Status};
use nodevigil::host::files::Root;
use nodevigil::kubeconfig;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::history::{Acknowledged, number};
use crate::support::api::Api;
use crate::support::audit::CROWD;
use crate::support::control_plane::ControlPlane;
use crate::support::enter;
use crate::support::proxy::Proxy;

/// How a writer writes; the name says who does it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The kubelet: a strategic merge patch of its own condition, with the order of all, without precondition.
    KubeletStatus,
    /// The lifecycle controller: a PUT of the whole status that it has read, with its resource version.
    LifecycleStatus,
    /// The lifecycle controller: a strategic merge patch of all taints, with the resource version.
    LifecycleTaint,
    /// kured and others: a JSON Patch that tests the taints that it has read.
    TestedTaint,
    /// Our own code: `Api::apply`.
    OurConditions,
    /// Our own code: `Api::taint`.
    OurTaints,
    /// Nobody should: a JSON merge patch of all conditions that it has read.
    BlindStatus,
    /// Nobody should: a strategic merge patch of all taints that it has read.
    BlindTaint,
}

/// When a race is over, and what its writers were told.
#[derive(Debug)]
pub(crate) struct Race {
    node: String,
    uid: String,
    writes: usize,
    least: usize,
    done: Mutex<Vec<Acknowledged>>,
}

/// What a writer did.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) writer: &'static str,
    pub(crate) acknowledged: usize,
    pub(crate) requests: usize,
    /// Refused because somebody else had written: 409, or 422 of a JSON Patch's test.
    pub(crate) conflicts: usize,
    /// The most tries that one write took.
    pub(crate) tries: usize,
}

/// One of the writers.
pub(crate) struct Writer<'a> {
    race: &'a Race,
    way: Way,
    name: &'static str,
    api: Api,
    ours: Option<OurCode>,
    tally: Tally,
}

/// The agent's own way to the API. It knows one field manager and its own types, and on this Node both are the real
/// agent's: on their way through a proxy they get other names.
struct OurCode {
    runtime: Runtime,
    api: Ours,
    proxy: Proxy,
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const OUR_TYPE: &str = "RacingKubeletHealthy";
/// Another than the default, in which the real agent tidies up.
const OUR_PREFIX: &str = "racing.test/nodevigil-";
const OTHER_NAMES: &[(&str, &str)] = &[
    ("fieldManager=nodevigil", "fieldManager=nodevigil-racing"),
    ("KubeletHealthy", OUR_TYPE),
];

impl Race {
    /// Ends after `writes` acknowledged writes of which each writer has its share: at least a tenth of an even one.
    pub(crate) fn new(node: &Value, writes: usize, writers: usize) -> Result<Self> {
        let text = |pointer: &str| {
            node.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        Ok(Self {
            node: text("/metadata/name").context("a Node has a name")?,
            uid: text("/metadata/uid").context("a Node has a uid")?,
            writes,
            least: writes / writers / 10,
            done: Mutex::default(),
        })
    }

    /// Everything that was acknowledged.
    pub(crate) fn into_done(self) -> Vec<Acknowledged> {
        self.done
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> MutexGuard<'_, Vec<Acknowledged>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        plane: &ControlPlane,
        race: &'a Race,
        name: &'static str,
        way: Way,
    ) -> Result<Self> {
        let user = format!("racing:{name}");
        let groups: &[&str] = match way {
            Way::OurTaints => &["system:masters"], // in the audit log
            _ => &["system:masters", CROWD],
        };
        let kubeconfig = &plane.kubeconfig(&user, groups, "127.0.0.1")?;
        let ours = matches!(way, Way::OurConditions | Way::OurTaints)
            .then(|| OurCode::new(plane, kubeconfig, &race.node));
        Ok(Self {
            race,
            way,
            name,
            api: Api::new(kubeconfig)?,
            ours: ours.transpose()?,
            tally: Tally {
                writer: name,
                ..Tally::default()
            },
        })
    }

    /// Writes until the race is over.
    pub(crate) fn run(mut self) -> Result<Tally> {
        let mut turn = 0;
        while self.race.done().len() < self.race.writes || self.tally.acknowledged < self.race.least
        {
            turn += 1;
            let mut tries = 1;
            while !self
                .write(turn)
                .with_context(|| format!("{}, write {turn}", self.name))?
            {
                self.tally.conflicts += 1;
                tries += 1;
                ensure!(
                    tries < 200,
                    "{}: write {turn} does not get through",
                    self.name
                );
            }
            self.tally.tries = self.tally.tries.max(tries);
        }
        if let Some(ours) = &self.ours {
            self.tally.requests = ours.proxy.traffic().requests.len();
        }
        Ok(self.tally)
    }

    /// Reads what it needs and tries a write; `false` if somebody else came between.
    fn write(&mut self, turn: usize) -> Result<bool> {
        let (status, message) = (
            if turn.is_multiple_of(2) {
                "True"
            } else {
                "False"
            },
            format!("write {turn}"),
        );
        let condition = json!({
            "type": self.name, "status": status, "reason": "Racing", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        });
        let value = Some(format!("{status} {message}"));
        let answer = match self.way {
            Way::OurConditions => return self.apply(turn, value),
            Way::OurTaints => return self.taint(turn),
            Way::KubeletStatus => {
                let node = self.read()?;
                let types = node["status"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten();
                let mut order: Vec<Value> = types.map(|c| json!({"type": c["type"]})).collect();
                if !order.iter().any(|one| one["type"] == self.name) {
                    order.push(json!({"type": self.name}));
                }
                let body = json!({"status": {"$setElementOrder/conditions": order, "conditions": [condition]}});
                self.send("PATCH", "/status", STRATEGIC, Some(&body))?
            }
            Way::LifecycleStatus => {
                let mut node = self.read()?;
                replace(
                    &mut node["status"]["conditions"],
                    "type",
                    self.name,
                    Some(condition),
                );
                self.send("PUT", "/status", "application/json", Some(&node))?
            }
            Way::BlindStatus => {
                let mut node = self.read()?;
                replace(
                    &mut node["status"]["conditions"],
                    "type",
                    self.name,
                    Some(condition),
                );
                let body = json!({"status": {"conditions": node["status"]["conditions"]}});
                self.send("PATCH", "/status", MERGE, Some(&body))?
            }
            Way::LifecycleTaint | Way::TestedTaint | Way::BlindTaint => return self.toggle(turn),
        };
        self.note(self.name, value, answer)
    }

    /// Our own code. It says who was in the way, if anybody was, by an error.
    fn apply(&mut self, turn: usize, value: Option<String>) -> Result<bool> {
        let status = if turn.is_multiple_of(2) {
            Status::True
        } else {
            Status::False
        };
        let condition = Condition {
            r#type: PublishedType::KubeletHealthy,
            status,
            reason: "Racing".to_owned(),
            message: format!("write {turn}"),
            last_transition_time: Timestamp::now(),
        };
        let apply = Apply {
            uid: self.race.uid.clone(),
            conditions: vec![condition],
            heartbeat: Timestamp::now(),
            ..Apply::default()
        };
        let ours = self.ours.as_ref().context("our code has its client")?;
        let sent = ours.api.apply(&apply);
        let node = ours.runtime.block_on(sent)?;
        let answer = json!({"metadata": {"resourceVersion": node.version}});
        self.note(OUR_TYPE, value, Some(answer))
    }

    /// Our own code, for the taints. Its answer has no version: what was acknowledged is in the audit log.
    fn taint(&mut self, turn: usize) -> Result<bool> {
        let want = match turn % 2 {
            1 => Want::Present(format!("w{turn}")),
            _ => Want::Absent,
        };
        let rules = Rules {
            conditions: vec![ConditionType::KubeletHealthy],
            prefix: OUR_PREFIX.to_owned(),
            effect: Effect::PreferNoSchedule,
            after: std::time::Duration::ZERO,
        };
        let task = TaintTry {
            attempt: 1,
            uid: self.race.uid.clone(),
            wished: vec![Wished {
                key: rules.key(ConditionType::KubeletHealthy),
                want,
                waits: false,
            }],
            rules,
        };
        let ours = self.ours.as_ref().context("our code has its client")?;
        let sent = ours.api.taint(&task, Timestamp::now());
        let done = ours.runtime.block_on(sent)? != Tainted::Raced;
        self.tally.acknowledged += usize::from(done);
        Ok(done)
    }

    /// Sets its taint, or takes it away.
    fn toggle(&mut self, turn: usize) -> Result<bool> {
        let key = format!("racing.test/{}", self.name);
        let node = self.read()?;
        let before = node["spec"]["taints"].clone();
        let value = (turn % 2 == 1).then(|| format!("w{turn}"));
        let taint = value
            .as_ref()
            .map(|value| json!({"key": key, "value": value, "effect": "PreferNoSchedule"}));
        let mut taints = before.clone();
        replace(&mut taints, "key", &key, taint);
        let (kind, body) = match self.way {
            Way::TestedTaint => (
                JSON_PATCH,
                json!([
                    {"op": "test", "path": "/spec/taints", "value": before},
                    {"op": "add", "path": "/spec/taints", "value": taints},
                ]),
            ),
            Way::LifecycleTaint => {
                let version = &node["metadata"]["resourceVersion"];
                (
                    STRATEGIC,
                    json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}),
                )
            }
            _ => (STRATEGIC, json!({"spec": {"taints": taints}})),
        };
        let answer = self.send("PATCH", "", kind, Some(&body))?;
        self.note(&key, value, answer)
    }

    /// Notes an acknowledged write.
    fn note(&mut self, key: &str, value: Option<String>, answer: Option<Value>) -> Result<bool> {
        let Some(node) = answer else { return Ok(false) };
        self.tally.acknowledged += 1;
        self.race.done().push(Acknowledged {
            writer: self.name,
            key: key.to_owned(),
            value,
            version: number(&node)?,
        });
        Ok(true)
    }

    fn read(&mut self) -> Result<Value> {
        self.send("GET", "", "application/json", None)?
            .context("a read has no rival")
    }

    /// The answer; none if the server says that somebody else came between.
    fn send(
        &mut self,
        method: &str,
        subresource: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Option<Value>> {
        let path = format!("/api/v1/nodes/{}{subresource}", self.race.node);
        self.tally.requests += 1;
        match self.api.request(method, &path, kind, body)? {
            (200, answer) => Ok(Some(answer)),
            (409 | 422, _) => Ok(None),
            (code, answer) => bail!("{method} answered {code}: {answer}"),
        }
    }
}

/// Puts an element in the place of the one with that name in a list, or takes it away. An empty list is none.
fn replace(list: &mut Value, name: &str, wanted: &str, element: Option<Value>) {
    let mut elements = list.as_array().cloned().unwrap_or_default();
    elements.retain(|element| element[name] != wanted);
    elements.extend(element);
    *list = if elements.is_empty() {
        Value::Null
    } else {
        Value::Array(elements)
    };
}

impl OurCode {
    fn new(plane: &ControlPlane, identity: &Value, node: &str) -> Result<Self> {
        let proxy = Proxy::start(plane, identity, enter::ADDRESS)?;
        proxy.rename(OTHER_NAMES);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let text = proxy.kubeconfig(identity)?.to_string();
        let access = kubeconfig::read(&Root::new("/"), Path::new("/kubeconfig"), &text)
            .map_err(|fault| anyhow!("{fault:?}"))?;
        let connection = {
            let _context = runtime.enter();
            Connection::new(access, None)?
        };
        Ok(Self {
            runtime,
            api: Ours::new(connection, node),
            proxy,
        })
    }
}
