//! Karpenter as a whole, with its own kwok provider: a pool that is to go when it is empty goes, however often our
//! conditions are written.
//!
//! Its wait (`consolidateAfter`) begins anew with each pod that comes or goes. If it did so with writes of a Node's status,
//! heartbeats would keep every empty node for ever.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::fleet::{Fleet, MERGE, send};
use crate::samples;
use crate::scene::SOON;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::process::Daemon;
use crate::support::{say, tools, wait_until};

const JSON: &str = "application/json";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Longer than the ten seconds for which Karpenter takes two comings and goings of pods for one.
const CONSOLIDATE_AFTER: Duration = Duration::from_secs(15);
/// Of which the agent's own is five minutes: three hundred times as often.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// `consolidateAfter`, Karpenter's look each ten seconds, its second look fifteen later, and the deletion; thrice that.
const EMPTY_BY: Duration = Duration::from_secs(150);
/// A pool that is left alone, and one on whose node pods come and go: its wait never ends.
const QUIET: (&str, usize) = ("quiet", 3);
const BUSY: (&str, usize) = ("busy", 1);

/// Karpenter, and the Nodes that it has made.
struct Kwok {
    plane: Arc<ControlPlane>,
    daemon: Daemon,
    fleet: Fleet,
}

pub(crate) fn a_pool_that_is_empty_goes() -> Result<()> {
    let plane = ControlPlane::start(Options {
        grace: Duration::from_hours(12),
        period: Duration::from_secs(1),
    })?;
    samples::define(&plane)?;
    let mut kwok = Kwok::start(&plane)?;
    kwok.play().with_context(|| kwok.daemon.tail())
}

impl Kwok {
    fn start(plane: &Arc<ControlPlane>) -> Result<Self> {
        let class = json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": "class"},
        });
        let classes = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses";
        send(plane, "POST", classes, JSON, &class)?;
        for (pool, _) in [QUIET, BUSY] {
            send(
                plane,
                "POST",
                "/apis/karpenter.sh/v1/nodepools",
                JSON,
                &nodepool(pool),
            )?;
        }
        let kubeconfig = plane.folder().join("kwok.conf");
        let admin = plane.kubeconfig("kwok", &["system:masters"], "127.0.0.1")?;
        std::fs::write(&kubeconfig, admin.to_string()).context("writing a kubeconfig")?;
        // It knows its kubeconfig by the environment alone.
        let arguments = [
            format!("KUBECONFIG={}", kubeconfig.display()),
            tools::consumer("karpenter/kwok")?.display().to_string(),
            "--disable-leader-election=true".to_owned(),
            "--metrics-port=0".to_owned(),
            "--health-probe-port=0".to_owned(),
            "--log-level=debug".to_owned(),
        ];
        let daemon = Daemon::start(plane.folder(), "kwok", "/usr/bin/env".as_ref(), &arguments)?;
        Ok(Self {
            plane: Arc::clone(plane),
            daemon,
            fleet: Fleet::empty(plane)?,
        })
    }

    fn play(&mut self) -> Result<()> {
        for (pool, pods) in [QUIET, BUSY] {
            for number in 0..pods {
                self.want(&format!("{pool}-{number}"), pool)?;
            }
        }
        let nodes = self.made()?;
        for pool in [QUIET, BUSY] {
            let of_pool = nodes.iter().filter(|node| pool_of(node) == Some(pool.0));
            ensure!(of_pool.count() == pool.1, "{}: {nodes:?}", pool.0);
        }
        self.take_pods_away(&nodes)?;
        let busy = nodes.iter().find(|node| pool_of(node) == Some(BUSY.0));
        let busy = name_of(busy.context("a busy node")?)?;
        let names: Vec<_> = nodes.iter().map(name_of).collect::<Result<_>>()?;
        let started = Instant::now();
        let mut beats = 0;
        loop {
            self.daemon.check()?;
            let left = self.nodes()?;
            let is_of = |pool: &str| left.iter().filter(|n| pool_of(n) == Some(pool)).count();
            ensure!(
                is_of(BUSY.0) == BUSY.1,
                "the busy pool's node went: pods did not reset its wait"
            );
            if is_of(QUIET.0) == 0 {
                break;
            }
            ensure!(
                started.elapsed() < EMPTY_BY,
                "nodes of an empty pool stay: {left:?}"
            );
            let there: Vec<_> = left.iter().map(name_of).collect::<Result<_>>()?;
            let there: Vec<_> = there.into_iter().filter(|n| names.contains(n)).collect();
            beats += self.beat(&there)?;
            self.come_and_go(&busy)?;
            std::thread::sleep(HEARTBEAT);
        }
        let took = started.elapsed();
        ensure!(
            took > CONSOLIDATE_AFTER,
            "gone after {took:?}, before its wait was over"
        );
        let text = format!(
            "karpenter: a WhenEmpty pool of {} reached zero nodes {:.0} s after its last pod went (consolidateAfter {CONSOLIDATE_AFTER:?}), over {beats} heartbeats; the one on which pods came and went stayed",
            QUIET.1,
            took.as_secs_f64(),
        );
        say(&text);
        Ok(())
    }

    /// A pod that nobody has a node for. There is no scheduler here: its word is ours.
    fn want(&self, name: &str, pool: &str) -> Result<()> {
        send(
            &self.plane,
            "POST",
            PODS,
            JSON,
            &pod(name, &json!({"karpenter.sh/nodepool": pool}), None),
        )?;
        let status = json!({"status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "no node", "lastTransitionTime": Timestamp::now(),
        }]}});
        send(
            &self.plane,
            "PATCH",
            &format!("{PODS}/{name}/status"),
            MERGE,
            &status,
        )
    }

    /// Waits for the Nodes, gives each a kubelet's word and ours, and returns them when Karpenter calls all of them initialized.
    fn made(&mut self) -> Result<Vec<Value>> {
        let wanted = QUIET.1 + BUSY.1;
        let nodes = wait_until("Karpenter's Nodes", 2 * SOON, || {
            self.daemon.check()?;
            let nodes = self.nodes()?;
            Ok((nodes.len() == wanted).then_some(nodes))
        })?;
        let mut names = Vec::new();
        for node in &nodes {
            let name = name_of(node)?;
            let ready = json!({"status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastTransitionTime": Timestamp::now(), "lastHeartbeatTime": Timestamp::now(),
            }]}});
            let path = format!("/api/v1/nodes/{name}/status");
            send(&self.plane, "PATCH", &path, MERGE, &ready)?;
            self.fleet.adopt(node);
            names.push(name);
        }
        self.fleet.say(&names, None)?;
        wait_until("Karpenter to call them initialized", 2 * SOON, || {
            let nodes = self.nodes()?;
            let is_initialized =
                |node: &Value| node["metadata"]["labels"]["karpenter.sh/initialized"] == "true";
            Ok(nodes.iter().all(is_initialized).then_some(nodes))
        })
    }

    /// Binds each pod to a node of its pool, as the scheduler would, and then deletes it.
    fn take_pods_away(&self, nodes: &[Value]) -> Result<()> {
        for (pool, pods) in [QUIET, BUSY] {
            let nodes = nodes.iter().filter(|node| pool_of(node) == Some(pool));
            for (number, node) in (0..pods).zip(nodes) {
                let pod = format!("{pool}-{number}");
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": name_of(node)?},
                });
                send(
                    &self.plane,
                    "POST",
                    &format!("{PODS}/{pod}/binding"),
                    JSON,
                    &binding,
                )?;
                self.delete_pod(&pod)?;
            }
        }
        Ok(())
    }

    fn delete_pod(&self, name: &str) -> Result<()> {
        let at_once = json!({"gracePeriodSeconds": 0});
        send(
            &self.plane,
            "DELETE",
            &format!("{PODS}/{name}"),
            JSON,
            &at_once,
        )
    }

    fn come_and_go(&self, node: &str) -> Result<()> {
        send(
            &self.plane,
            "POST",
            PODS,
            JSON,
            &pod("guest", &json!({}), Some(node)),
        )?;
        self.delete_pod("guest")
    }

    /// A heartbeat of each; how many. A Node may go meanwhile.
    fn beat(&self, names: &[String]) -> Result<usize> {
        let mut beats = 0;
        for name in names {
            match self
                .fleet
                .beat(std::slice::from_ref(name), Timestamp::now())
            {
                Ok(()) => beats += 1,
                Err(error) if self.plane.node(name)?.is_some() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(beats)
    }

    fn nodes(&self) -> Result<Vec<Value>> {
        let (code, list) = self.plane.get("/api/v1/nodes")?;
        ensure!(code == 200, "{code}: {list}");
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }
}

fn nodepool(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": format!("{}s", CONSOLIDATE_AFTER.as_secs()),
                "budgets": [{"nodes": "100%"}],
            },
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "class"},
                // One processor: one of our pods fits.
                "requirements": [{
                    "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-1x-amd64-linux"],
                }],
            }},
        },
    })
}

fn pod(name: &str, selector: &Value, node: Option<&str>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": selector,
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "600m"}}}],
        },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

fn pool_of(node: &Value) -> Option<&str> {
    node["metadata"]["labels"]["karpenter.sh/nodepool"].as_str()
}

fn name_of(node: &Value) -> Result<String> {
    let name = node["metadata"]["name"].as_str();
    Ok(name.context("a name")?.to_owned())
}
