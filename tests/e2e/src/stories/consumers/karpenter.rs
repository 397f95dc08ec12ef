//! The whole of Karpenter, for machines that exist already (tests/cluster/karpenter).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{WAITS_SECS, apply, define, kubeconfig, program};
use crate::scene::{ObservedNode, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::daemon::Daemon;
use crate::support::{WAIT, namespaces, output, wait_until};

pub const POOL: &str = "pool";

/// Karpenter and the `NodeClaim` for the story's node.
#[derive(Debug)]
pub struct Karpenter {
    plane: Arc<ControlPlane>,
    node: String,
    daemon: Option<Daemon>,
}

impl Karpenter {
    /// Starts it with a repair policy for crashes of the kubelet.
    pub fn start(scene: &Scene, action: &str) -> Result<Self> {
        let (plane, program) = (scene.plane(), program("karpenter")?);
        define(plane, &serde_json::from_str(&output(Command::new(&program).arg("crds"))?)?)?;
        let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "class"}, "spec": {}});
        let pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": POOL},
            "spec": {
                // An empty node is not removed for being empty.
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
                "template": {"spec": {"nodeClassRef": class_of_nodes(), "requirements": []}},
            },
        });
        apply(plane, &json!({"apiVersion": "v1", "kind": "List", "items": [class, pool]}))?;
        let arguments = [
            format!("KUBECONFIG={}", kubeconfig(plane, "karpenter")?.display()),
            format!("REPAIR_POLICIES={}", policies(action)),
            program.display().to_string(),
            "--feature-gates=NodeRepair=true".to_owned(),
            "--disable-leader-election=true".to_owned(),
            format!("--metrics-port={}", namespaces::port()),
            format!("--health-probe-port={}", namespaces::port()),
        ];
        let directory = namespaces::work().join(format!("karpenter-{}", scene.node_name()));
        fs::create_dir_all(&directory)?;
        let daemon = Daemon::start(&directory, Path::new("/usr/bin/env"), &arguments)?;
        Ok(Self { plane: Arc::clone(plane), node: scene.node_name().to_owned(), daemon: Some(daemon) })
    }

    /// Gives it the node; returns when Karpenter has taken it.
    pub fn manage(&self, node: &ObservedNode) -> Result<()> {
        let provider_id = json!({"spec": {"providerID": format!("kwok://{}", self.node)}});
        self.plane.kubectl(&["patch", "node", &self.node, "--patch", &provider_id.to_string()])?;
        let labels = json!({
            "karpenter.sh/nodepool": POOL, "karpenter.kwok.sh/kwoknodeclass": "class", "karpenter.sh/capacity-type": "on-demand",
            "node.kubernetes.io/instance-type": "c-1x-amd64-linux", "topology.kubernetes.io/zone": "test-zone-a",
        });
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            // The finalizer keeps it after its deletion.
            "metadata": {"name": self.node, "labels": labels, "finalizers": ["nodevigil.test/keep"]},
            "spec": {"nodeClassRef": class_of_nodes(), "requirements": []},
        });
        apply(&self.plane, &claim)?;
        let is_initialized = |node: &Value| node["metadata"]["labels"]["karpenter.sh/initialized"] == "true";
        let waited = wait_until("Karpenter to take the node", WAIT, || {
            let node = self.plane.node(node.name())?.unwrap_or_default();
            Ok(is_initialized(&node).then_some(()))
        });
        waited.with_context(|| self.log())
    }

    /// The end of Karpenter's log.
    pub fn log(&self) -> String {
        self.daemon.as_ref().map(Daemon::log).unwrap_or_default()
    }

    /// Sets how many nodes of the pool may be repaired at a time.
    pub fn set_budget(&self, nodes: &str) -> Result<()> {
        let budgets = json!({"spec": {"disruption": {"budgets": [{"nodes": nodes, "reasons": ["Unhealthy"]}]}}});
        self.plane.kubectl(&["patch", "nodepool", POOL, "--type=merge", "--patch", &budgets.to_string()]).map(drop)
    }

    /// Waits for an Event about the object of that name with this text.
    pub fn wait_for_event(&self, object: &str, text: &str) -> Result<()> {
        let selector = format!("--field-selector=involvedObject.name={object}");
        let has_text = || {
            let events = self.plane.kubectl(&["get", "events", "--all-namespaces", "-o", "json", &selector])?;
            Ok(events.contains(text).then_some(()))
        };
        wait_until(&format!("an Event about {object} with {text:?}"), WAIT, has_text).with_context(|| self.log())
    }

    /// The `NodeClaim` of the node.
    pub fn claim(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.plane.kubectl(&["get", "nodeclaim", &self.node, "-o", "json"])?)?)
    }
}

impl Drop for Karpenter {
    /// Ends it, and removes the finalizers that no controller removes any more.
    fn drop(&mut self) {
        self.daemon = None;
        let without = r#"{"metadata":{"finalizers":null}}"#;
        for kind in ["nodeclaim", "node"] {
            let _ = self.plane.kubectl(&["patch", kind, &self.node, "--type=merge", "--patch", without]); // it may be gone
        }
        let _ = self.plane.kubectl(&["delete", "nodeclaim", &self.node, "--ignore-not-found"]);
    }
}

fn class_of_nodes() -> Value {
    json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "class"})
}

/// One by reason, and the fallback without which Karpenter does not start. Times are nanoseconds.
fn policies(action: &str) -> Value {
    let seconds = |secs: u64| secs * 1_000_000_000;
    json!([
        {"ConditionType": "Ready", "ConditionStatus": "False", "TolerationDuration": seconds(1800), "Action": "ReplaceNode"},
        {
            "ConditionType": "KubeletHealthy", "ConditionStatus": "False", "ReasonRegex": "^Kubelet(Crashed|OOMKilled)$",
            "TolerationDuration": seconds(WAITS_SECS), "TerminationGracePeriod": 0, "Action": action,
        },
    ])
}
