//! What the stories do to a node with the agent and read from it, so that each reads as its story.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::support::control_plane::ControlPlane;
use crate::support::node::{Node, NodeBuilder};
use crate::support::watch::NodeWatch;
use crate::support::{WAIT, namespaces, wait_until};

/// How long a story watches before it takes for granted that something does not happen: longer than the test settings'
/// `healthy_for_secs` and three probes of /healthz. That nothing happens shows in nothing but time.
const WATCHED_FOR: Duration = Duration::from_secs(5);

/// What a story has: a control plane, and the nodes that it boots.
#[derive(Debug)]
pub struct Scene {
    plane: Arc<ControlPlane>,
    node_name: String,
    nodes: Mutex<Vec<Arc<ObservedNode>>>,
    watches: Mutex<Vec<Arc<NodeWatch>>>,
}

/// A node with a watch on its Node object from before it booted.
#[derive(Debug)]
pub struct ObservedNode {
    node: Node,
    watch: Arc<NodeWatch>,
}

/// A condition type on a Node, for waiting for what it shows.
#[derive(Debug, Clone, Copy)]
pub struct ConditionView<'a> {
    watch: &'a NodeWatch,
    kind: &'static str,
}

/// A condition as the Node showed it.
#[derive(Debug, Clone)]
pub struct Condition {
    /// When the watch had it.
    pub at: Instant,
    pub status: String,
    pub reason: String,
    pub message: String,
    /// `lastTransitionTime`, which sorts as text.
    pub since: String,
    /// The Node's uid.
    pub uid: String,
    /// The Node's `creationTimestamp`.
    pub node_created: String,
}

impl Scene {
    /// The scene of the story of that name.
    pub fn new(plane: &Arc<ControlPlane>, story: &str) -> Self {
        Self {
            plane: Arc::clone(plane),
            node_name: node_name(story),
            nodes: Mutex::default(),
            watches: Mutex::default(),
        }
    }

    /// The control plane.
    pub fn plane(&self) -> &Arc<ControlPlane> {
        &self.plane
    }

    /// The name of its node.
    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    /// A node whose kubelet is Ready and whose agent shows `True`.
    pub fn healthy(&self) -> Result<Arc<ObservedNode>> {
        self.healthy_with(|node| node)
    }

    /// The same, changed by `change` before it boots.
    pub fn healthy_with(&self, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Result<Arc<ObservedNode>> {
        let node = self.ready_with(change)?;
        let from = Instant::now();
        node.start_agent()?;
        node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
        Ok(node)
    }

    /// A node whose kubelet is Ready, and whose agent is installed and not started.
    pub fn ready_with(&self, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Result<Arc<ObservedNode>> {
        self.boot(&self.node_name, |node| change(node.agent()))
    }

    /// One of several nodes, whose kubelet is Ready, and without the agent. Its name ends with `suffix`.
    pub fn ready_without_agent(&self, suffix: &str) -> Result<Arc<ObservedNode>> {
        // The nodes share one network.
        let listen = format!("[metrics]\nlisten = \"127.0.0.1:{}\"\n", namespaces::port());
        let name = format!("{}-{suffix}", self.node_name);
        self.boot(&name, |node| node.file("/etc/nodevigil/config.d/10-e2e.toml", &listen))
    }

    fn boot(&self, name: &str, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Result<Arc<ObservedNode>> {
        let (watch, from) = (self.watch_of(name)?, Instant::now());
        let node = change(NodeBuilder::new(&self.plane, name)).boot()?;
        let node = Arc::new(ObservedNode { node, watch });
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&node));
        node.watch.wait_ready(from)?;
        Ok(node)
    }

    /// Waits for the kubelet's Lease: a node that has just joined has none for some seconds.
    pub fn wait_for_lease(&self) -> Result<()> {
        let lease = || self.plane.kubectl(&["get", "lease", "-n", "kube-node-lease", &self.node_name]);
        wait_until("the kubelet's Lease", WAIT, || Ok(lease().ok())).map(drop)
    }

    /// Starts to watch its Node, which need not exist yet.
    pub fn watch(&self) -> Result<Arc<NodeWatch>> {
        self.watch_of(&self.node_name)
    }

    fn watch_of(&self, name: &str) -> Result<Arc<NodeWatch>> {
        let watch = Arc::new(NodeWatch::start(Arc::clone(&self.plane), name)?);
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&watch));
        Ok(watch)
    }

    /// The watches that were started so far.
    pub fn watches(&self) -> Vec<Arc<NodeWatch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The nodes that were booted so far.
    pub fn nodes(&self) -> Vec<Arc<ObservedNode>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the nodes, deletes their Node objects, and starts the API server if the story has stopped it.
    pub fn end(&self) -> Result<()> {
        self.plane.start_apiserver()?;
        for node in self.nodes() {
            node.end()?;
            self.plane.delete_node(node.name())?;
        }
        self.plane.delete_node(&self.node_name)
    }
}

impl Deref for ObservedNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl ObservedNode {
    /// The watch on its Node object.
    pub fn watch(&self) -> &NodeWatch {
        &self.watch
    }

    /// Its condition of this type.
    pub fn condition(&self, kind: &'static str) -> ConditionView<'_> {
        ConditionView::new(&self.watch, kind)
    }

    /// Its condition `KubeletHealthy`.
    pub fn kubelet(&self) -> ConditionView<'_> {
        self.condition("KubeletHealthy")
    }

    /// Sends SIGKILL to the kubelet's process; returns its pid on the node.
    pub fn kill_kubelet(&self) -> Result<u32> {
        let pid = self.main_pid("kubelet")?;
        self.sh(&format!("kill -KILL {pid}"))?;
        Ok(pid)
    }

    /// Has systemd not restart the kubelet when it ends.
    pub fn disable_restart(&self) -> Result<()> {
        let directory = "/run/systemd/system/kubelet.service.d";
        let file = format!("{directory}/90-no-restart.conf");
        self.sh(&format!("mkdir -p {directory}; printf '[Service]\\nRestart=no\\n' >{file}; systemctl daemon-reload"))?;
        Ok(())
    }

    /// Kills the kubelet, which stays dead; returns what the Node then shows.
    pub fn kill_for_good(&self) -> Result<Condition> {
        self.disable_restart()?;
        let from = Instant::now();
        self.kill_kubelet()?;
        self.kubelet().wait_for(from, "False", "KubeletCrashed")
    }

    /// Starts a kubelet that does not run, and waits until the Node shows `True`.
    pub fn start_kubelet(&self) -> Result<Condition> {
        let from = Instant::now();
        self.sh("systemctl start kubelet")?;
        self.kubelet().wait_for(from, "True", "KubeletIsHealthy")
    }

    /// Kills the kubelet, which systemd restarts, and waits until the Node shows both.
    pub fn crash_and_recover(&self) -> Result<Condition> {
        let from = Instant::now();
        self.kill_kubelet()?;
        let crashed = self.kubelet().wait_for(from, "False", "KubeletCrashed")?;
        self.kubelet().wait_for(crashed.at, "True", "KubeletIsHealthy")
    }

    /// What `nodevigil status -o json` prints.
    pub fn status(&self) -> Result<Value> {
        let (code, text) = self.run("nodevigil status -o json")?;
        serde_json::from_str(&text).with_context(|| format!("`nodevigil status -o json` ended with {code}: {text}"))
    }

    /// What it prints once `wanted` holds for it.
    pub fn wait_for_status(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let found = wait_until(what, WAIT, || {
            last = self.status().unwrap_or_default(); // none while the agent starts
            Ok(wanted(&last).then_some(()))
        });
        found.with_context(|| format!("nodevigil status: {last:#}"))?;
        Ok(last)
    }

    /// Waits until `nodevigil status` shows a trouble of that name whose message contains each of `parts`.
    pub fn wait_for_trouble(&self, name: &str, parts: &[&str]) -> Result<()> {
        let is_it = |trouble: &Value| {
            let message = trouble["message"].as_str().unwrap_or_default();
            trouble["name"] == name && parts.iter().all(|part| message.contains(part))
        };
        let what = format!("the trouble {name} with {parts:?}");
        let is_shown = |status: &Value| status["troubles"].as_array().is_some_and(|all| all.iter().any(is_it));
        self.wait_for_status(&what, is_shown).map(drop)
    }

    /// Waits until the agent has logged a line with this text.
    pub fn wait_for_log(&self, text: &str) -> Result<()> {
        wait_until(&format!("the agent's log to have {text:?}"), WAIT, || {
            Ok(self.journal("nodevigil")?.contains(text).then_some(()))
        })
    }

    /// Waits until `nodevigil status` shows no trouble.
    pub fn wait_for_no_trouble(&self) -> Result<()> {
        let is_shown = |status: &Value| status["troubles"].as_array().is_some_and(Vec::is_empty);
        self.wait_for_status("the end of all troubles", is_shown).map(drop)
    }

    /// Ends the agent by a command after which systemd starts it again, and waits until the next one has reported.
    pub fn restart_agent(&self, command: &str) -> Result<()> {
        let before = self.main_pid("nodevigil")?;
        self.sh(command)?;
        let is_next = |status: &Value| status["pid"].as_u64().is_some_and(|pid| pid != u64::from(before));
        self.wait_for_status("the next agent's report", |status| {
            is_next(status) && is_published(status) && status["conditions"][0]["type"] == "KubeletHealthy"
        })?;
        let now = self.main_pid("nodevigil")?;
        ensure!(now != before, "the agent is the one that was to be ended");
        Ok(())
    }

    /// Waits until the agent watches the kubelet that runs now, and it is healthy.
    pub fn wait_until_watched(&self) -> Result<()> {
        let pid = self.main_pid("kubelet")?;
        self.wait_for_status("the agent to see the new kubelet", |status| {
            status["kubelet"]["pid"] == pid && status["conditions"][0]["status"] == "True"
        })?;
        Ok(())
    }

    /// Type and reason of each Event about the Node.
    pub fn events(&self, plane: &ControlPlane) -> Result<Vec<(String, String)>> {
        let selector = format!("--field-selector=involvedObject.name={}", self.name());
        let text = plane.kubectl(&["get", "events", "-n", "default", &selector, "-o", "json"])?;
        let list: Value = serde_json::from_str(&text)?;
        let Some(items) = list["items"].as_array() else { bail!("no list of Events: {text}") };
        let text = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
        Ok(items.iter().map(|event| (text(event, "type"), text(event, "reason"))).collect())
    }
}

impl<'a> ConditionView<'a> {
    /// The condition of this type on the Node of `watch`.
    pub const fn new(watch: &'a NodeWatch, kind: &'static str) -> Self {
        Self { watch, kind }
    }

    /// What the Node shows now.
    pub fn shown(self) -> Result<Condition> {
        let states = self.watch.since(None);
        let shown = states.iter().rev().find_map(|(at, node)| Condition::read(*at, node, self.kind));
        shown.with_context(|| format!("the Node has no condition {}", self.kind))
    }

    /// What the Node has shown after `from`.
    pub fn shown_since(self, from: Instant) -> Vec<Condition> {
        let states = self.watch.since(Some(from));
        states.iter().filter_map(|(at, node)| Condition::read(*at, node, self.kind)).collect()
    }

    /// Waits for this status and reason after `from`.
    pub fn wait_for(self, from: Instant, status: &str, reason: &str) -> Result<Condition> {
        self.wait_longer_for(from, WAIT, status, reason)
    }

    /// The same, for as long as `timeout`.
    pub fn wait_longer_for(self, from: Instant, timeout: Duration, status: &str, reason: &str) -> Result<Condition> {
        let is_it = |condition: &Condition| condition.status == status && condition.reason == reason;
        self.wait(from, timeout, is_it).with_context(|| format!("waiting for {} {status}/{reason}", self.kind))
    }

    /// Waits for a condition after `from` for which `wanted` holds.
    pub fn wait_until_shown(self, from: Instant, wanted: impl Fn(&Condition) -> bool) -> Result<Condition> {
        self.wait(from, WAIT, wanted)
    }

    fn wait(self, from: Instant, timeout: Duration, wanted: impl Fn(&Condition) -> bool) -> Result<Condition> {
        let read = |at: Instant, node: &Value| Condition::read(at, node, self.kind).filter(&wanted);
        let waited = self.watch.wait_since(from, timeout, read);
        waited.with_context(|| format!("the last condition: {:?}", self.shown().ok()))
    }

    /// Fails if the Node has shown a status other than these after `from`.
    pub fn ensure_only(self, from: Instant, statuses: &[&str]) -> Result<()> {
        let shown = self.shown_since(from);
        let other = shown.iter().find(|condition| !statuses.contains(&condition.status.as_str()));
        ensure!(other.is_none(), "not one of {statuses:?}: {other:?}");
        Ok(())
    }

    /// Fails if the Node has shown another status or transition time since `before`, or does so in the next seconds.
    pub fn ensure_no_flip(self, before: &Condition) -> Result<()> {
        sleep(WATCHED_FOR);
        for now in self.shown_since(before.at) {
            let is_same = (&now.status, &now.since) == (&before.status, &before.since);
            ensure!(is_same, "it flipped from {before:?} to {now:?}");
        }
        let now = self.shown()?;
        ensure!(now.status == before.status, "{now:?}");
        Ok(())
    }

    /// The same, and the reason stays too.
    pub fn ensure_unchanged(self, before: &Condition) -> Result<()> {
        self.ensure_no_flip(before)?;
        let reason = self.shown()?.reason;
        ensure!(reason == before.reason, "{before:?}, then {reason}");
        Ok(())
    }
}

/// Waits so long that what happens next has a later time on the Node: the API's times are whole seconds.
pub fn wait_a_second() {
    sleep(Duration::from_secs(1));
}

/// The name of a story's node.
pub fn node_name(story: &str) -> String {
    story.replace("::", "-").replace('_', "-")
}

/// Whether the agent reaches the API server.
fn is_published(status: &Value) -> bool {
    status["published"]["state"] == "reached"
}

impl Condition {
    /// The condition of this type of a Node object, if it has one.
    pub fn read(at: Instant, node: &Value, kind: &str) -> Option<Self> {
        let conditions = node.pointer("/status/conditions")?.as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(Self {
            at,
            status: text(&condition["status"]),
            reason: text(&condition["reason"]),
            message: text(&condition["message"]),
            since: text(&condition["lastTransitionTime"]),
            uid: text(&node["metadata"]["uid"]),
            node_created: text(&node["metadata"]["creationTimestamp"]),
        })
    }
}
