//! Three hundred Nodes that carry what the agent would publish, by the agent's own code, and an hour of their lives.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use jiff::Timestamp;
use nodevigil::clock::Now;
use nodevigil::cluster::api::Api;
use nodevigil::cluster::connection::Connection;
use nodevigil::cluster::publisher::Apply;
use nodevigil::desired::{Choice, Desired, Dialect};
use nodevigil::health::{ConditionType, Reason, Scope, Severity, Verdict, reasons};
use nodevigil::host::files::Root;
use nodevigil::kubeconfig;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::stepped::Did;
use crate::support::control_plane::{ControlPlane, Options};

pub(crate) const MERGE: &str = "application/merge-patch+json";

const NODES: usize = 300;
const HOUR_MINUTES: usize = 60;
const MINUTE: Duration = Duration::from_mins(1);
/// How many minutes after a machine was deleted its successor joins.
const JOINING_MINUTES: usize = 2;
/// What is wrong with one machine by itself, and with many at once. The samples match the status and cannot see the difference.
const LOCAL: Reason = Reason::KubeletHung;
const CORRELATED: Reason = Reason::KubeletCrashLooping;

/// Which of the nodes become bad in the hour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) bad: usize,
    /// All of them in one minute, and whatever replaces them as well; else one after the other, and a new machine is well.
    pub(crate) is_correlated: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Hour {
    pub(crate) deleted: usize,
    /// The first minute in which the controller's limit held it back.
    pub(crate) held_from: Option<usize>,
}

/// Who deletes machines, and its records of them. What it deletes is deleted, and ordered anew, by [`Fleet`].
pub(crate) trait Keeper: Sized {
    fn start(plane: &Arc<ControlPlane>) -> Result<Self>;
    /// The labels of a Node in its care.
    fn node_labels(&self) -> Value;
    /// A machine of this name is wanted.
    fn order(&self, name: &str) -> Result<()>;
    /// Its Node has come.
    fn joined(&self, name: &str) -> Result<()>;
    /// The machine is no more.
    fn gone(&self, name: &str) -> Result<()>;
    /// Steps its clock.
    fn step(&mut self, now: Timestamp) -> Result<Did>;
    /// The end of its log.
    fn tail(&self) -> String;
}

/// The Nodes, each under its machine's name.
pub(crate) struct Fleet {
    plane: Arc<ControlPlane>,
    runtime: Runtime,
    connection: Connection,
    now: Timestamp,
    nodes: BTreeMap<String, Member>,
    made: usize,
}

/// What the agent on one Node knows.
struct Member {
    uid: String,
    desired: Desired,
    is_bad: bool,
}

impl Fleet {
    /// All Nodes, well, in somebody's care.
    pub(crate) fn kept<K: Keeper>() -> Result<(Self, K)> {
        ensure!(LOCAL.scope() == Some(Scope::Local), "{LOCAL:?}");
        let is_correlated = matches!(CORRELATED.scope(), Some(Scope::Correlated(_)));
        ensure!(is_correlated, "{CORRELATED:?}");
        // Nobody renews a Lease here, and nobody is to be called silent for it.
        let plane = ControlPlane::start(Options {
            grace: Duration::from_hours(12),
            ..Options::default()
        })?;
        let mut keeper = K::start(&plane)?;
        let mut fleet = Self::empty(&plane)?;
        for _ in 0..NODES {
            let name = fleet.order(&keeper)?;
            fleet.join(&keeper, &name)?;
        }
        let names: Vec<_> = fleet.nodes.keys().cloned().collect();
        fleet.say(&names, None)?;
        keeper.step(fleet.now)?;
        Ok((fleet, keeper))
    }

    /// No Nodes yet.
    pub(crate) fn empty(plane: &Arc<ControlPlane>) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let text = plane
            .kubeconfig("fleet", &["system:masters"], "127.0.0.1")?
            .to_string();
        let access = kubeconfig::read(&Root::new("/"), Path::new("/kubeconfig"), &text)
            .map_err(|fault| anyhow!("{fault:?}"))?;
        let connection = {
            let _context = runtime.enter();
            Connection::new(access, None)?
        };
        Ok(Self {
            plane: Arc::clone(plane),
            runtime,
            connection,
            now: Timestamp::from_second(Timestamp::now().as_second())?,
            nodes: BTreeMap::new(),
            made: 0,
        })
    }

    /// An hour of the keeper's clock. Everybody is well at its end, as at its beginning.
    pub(crate) fn hour(&mut self, keeper: &mut impl Keeper, trouble: Trouble) -> Result<Hour> {
        let victims: Vec<_> = self.nodes.keys().take(trouble.bad).cloned().collect();
        let mut joining: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let mut hour = Hour {
            deleted: 0,
            held_from: None,
        };
        for minute in 0..=HOUR_MINUTES {
            let joined = joining.remove(&minute).unwrap_or_default();
            for name in &joined {
                self.join(keeper, name)?;
            }
            self.say(&joined, trouble.is_correlated.then_some(CORRELATED))?;
            self.say(&trouble.breaks_at(minute, &victims), Some(trouble.reason()))?;
            let did = keeper.step(self.now)?;
            if did.blocked {
                hour.held_from.get_or_insert(minute);
            }
            hour.deleted += did.deleted.len();
            for name in did.deleted {
                self.leave(keeper, &name)?;
                let successor = self.order(keeper)?;
                let at = minute + JOINING_MINUTES;
                joining.entry(at).or_default().push(successor);
            }
            self.now += MINUTE;
        }
        for name in joining.into_values().flatten() {
            self.join(keeper, &name)?;
            self.say(&[name], None)?;
        }
        let bad = self.nodes.iter().filter(|(_, node)| node.is_bad);
        let bad: Vec<_> = bad.map(|(name, _)| name.clone()).collect();
        self.say(&bad, None)?;
        self.now += MINUTE;
        let after = keeper.step(self.now)?;
        ensure!(after.deleted.is_empty(), "all are well: {after:?}");
        ensure!(self.nodes.len() == NODES, "{} nodes", self.nodes.len());
        Ok(hour)
    }

    /// Wants another machine; its name.
    fn order(&mut self, keeper: &impl Keeper) -> Result<String> {
        let name = format!("fleet-{:04}", self.made);
        self.made += 1;
        keeper.order(&name)?;
        Ok(name)
    }

    fn join(&mut self, keeper: &impl Keeper, name: &str) -> Result<()> {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": keeper.node_labels()},
            "spec": {"providerID": format!("nodevigil://{name}")},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastTransitionTime": self.now, "lastHeartbeatTime": self.now,
            }]},
        });
        let (code, made) =
            self.plane
                .request("POST", "/api/v1/nodes", "application/json", &node)?;
        ensure!(code == 201, "{code}: {made}");
        self.adopt(&made);
        keeper.joined(name)
    }

    /// An agent that is new on this Node.
    pub(crate) fn adopt(&mut self, node: &Value) {
        let text = |pointer: &str| {
            let value = node.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let choice = Choice {
            dialects: vec![Dialect::Native, Dialect::Eks],
            ..Choice::default()
        };
        let member = Member {
            uid: text("/metadata/uid"),
            desired: Desired::new(choice),
            is_bad: false,
        };
        self.nodes.insert(text("/metadata/name"), member);
    }

    fn leave(&mut self, keeper: &impl Keeper, name: &str) -> Result<()> {
        self.plane.delete_node(name)?;
        self.nodes.remove(name);
        keeper.gone(name)
    }

    /// These Nodes' agents find them bad, or well, and say so.
    pub(crate) fn say(&mut self, names: &[String], bad: Option<Reason>) -> Result<()> {
        let now = Now {
            uptime: Duration::ZERO,
            wall: self.now,
        };
        for name in names {
            let Some(member) = self.nodes.get_mut(name) else {
                continue; // one that has been replaced meanwhile
            };
            member.is_bad = bad.is_some();
            let verdicts = verdicts(bad, self.now);
            let verdicts = verdicts.iter().map(|(kind, verdict)| (*kind, verdict));
            member.desired.update(verdicts, now);
        }
        self.beat(names, self.now)
    }

    /// A heartbeat of each: what stands is applied once more.
    pub(crate) fn beat(&self, names: &[String], now: Timestamp) -> Result<()> {
        for name in names {
            let Some(member) = self.nodes.get(name) else {
                continue;
            };
            let conditions = member.desired.conditions().unwrap_or_default();
            ensure!(!conditions.is_empty(), "nothing is said");
            let apply = Apply {
                uid: member.uid.clone(),
                wished: conditions.clone(),
                conditions,
                heartbeat: now,
                ..Apply::default()
            };
            let api = Api::new(self.connection.clone(), name.as_str());
            let applied = self.runtime.block_on(api.apply(&apply));
            applied.map_err(|error| anyhow!("{name}: {error:?}"))?;
        }
        Ok(())
    }
}

impl Trouble {
    fn reason(self) -> Reason {
        if self.is_correlated {
            CORRELATED
        } else {
            LOCAL
        }
    }

    /// Who of them becomes bad in this minute.
    fn breaks_at(self, minute: usize, victims: &[String]) -> Vec<String> {
        let at = |index: usize| {
            if self.is_correlated {
                0
            } else {
                index * HOUR_MINUTES / victims.len()
            }
        };
        let due = victims.iter().enumerate().filter(|(i, _)| at(*i) == minute);
        due.map(|(_, name)| name.clone()).collect()
    }
}

/// What an agent finds: everything well, or one thing bad.
fn verdicts(bad: Option<Reason>, since: Timestamp) -> Vec<(ConditionType, Verdict)> {
    let mut found = Vec::new();
    for kind in ConditionType::ALL {
        let well = reasons().find(|spec| {
            spec.condition == Some(*kind) && spec.reason.severity() == Severity::Healthy
        });
        let Some(well) = well else { continue };
        let bad = bad.filter(|reason| reason.condition() == Some(*kind));
        let reason = bad.unwrap_or(well.reason);
        let verdict = Verdict {
            status: reason.status(),
            reason,
            message: reason.as_str().to_owned(),
            since,
            others: Vec::new(),
            next: None,
        };
        found.push((*kind, verdict));
    }
    found
}

/// A request as the administrator.
pub(crate) fn send(
    plane: &ControlPlane,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> Result<()> {
    let (code, answer) = plane.request(method, path, kind, body)?;
    ensure!(code < 300, "{method} {path} answered {code}: {answer}");
    Ok(())
}
