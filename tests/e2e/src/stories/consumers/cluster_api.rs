//! Cluster API's `MachineHealthCheck`, of a cluster that manages itself (tests/cluster/clusterapi).

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{WAITS_SECS, apply, define, kubeconfig, program};
use crate::scene::Scene;
use crate::support::control_plane::ControlPlane;
use crate::support::daemon::Daemon;
use crate::support::namespaces;

const VERSION: &str = "cluster.x-k8s.io/v1beta2";
const CLUSTER: &str = "cluster";

/// The controller, and a Machine for the story's node.
#[derive(Debug)]
pub struct ClusterApi {
    plane: Arc<ControlPlane>,
    machine: String,
    daemon: Daemon,
}

impl ClusterApi {
    /// Starts it, with a check on `KubeletHealthy`.
    pub fn start(scene: &Scene) -> Result<Self> {
        let (plane, machine) = (scene.plane(), scene.node_name().to_owned());
        let definitions: Vec<Value> =
            ["Cluster", "Machine", "MachinePool", "MachineHealthCheck"].iter().map(|kind| definition(kind)).collect();
        define(plane, &json!({"apiVersion": "v1", "kind": "List", "items": definitions}))?;
        let kubeconfig = kubeconfig(plane, "cluster-api")?;
        apply(plane, &objects(&machine, &std::fs::read_to_string(&kubeconfig)?))?;
        let is_true = |kind: &str| json!({"type": kind, "status": "True", "reason": "Tested", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let conditions = [is_true("InfrastructureReady"), is_true("ControlPlaneInitialized")];
        let initialization = json!({"infrastructureProvisioned": true});
        let cluster = json!({"status": {"initialization": initialization, "conditions": conditions}});
        let node = json!({"status": {"nodeRef": {"name": machine}}});
        for (kind, name, status) in [("cluster", CLUSTER, cluster), ("machine", &machine, node)] {
            plane.kubectl(&[
                "patch",
                kind,
                name,
                "--subresource=status",
                "--type=merge",
                "--patch",
                &status.to_string(),
            ])?;
        }
        let arguments = [format!("KUBECONFIG={}", kubeconfig.display()), program("clusterapi")?.display().to_string()];
        let daemon = Daemon::start(namespaces::work(), Path::new("/usr/bin/env"), &arguments)?;
        Ok(Self { plane: Arc::clone(plane), machine, daemon })
    }

    /// The end of the controller's log.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// A condition of the Machine; null if it has none of that type.
    pub fn machine_condition(&self, kind: &str) -> Result<Value> {
        let machine: Value =
            serde_json::from_str(&self.plane.kubectl(&["get", "machine", &self.machine, "-o", "json"])?)?;
        let conditions =
            machine["status"]["conditions"].as_array().context("no conditions").cloned().unwrap_or_default();
        Ok(conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default())
    }
}

/// A cluster, its kubeconfig, a Machine and the check of it.
fn objects(machine: &str, kubeconfig: &str) -> Value {
    let infrastructure = |kind: &str, name: &str| json!({"apiGroup": "nodevigil.test", "kind": kind, "name": name});
    let labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER});
    let metadata = |name: &str| json!({"name": name, "namespace": "default", "labels": labels});
    let unhealthy = json!({"type": "KubeletHealthy", "status": "False", "timeoutSeconds": WAITS_SECS});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": metadata(&format!("{CLUSTER}-kubeconfig")), "stringData": {"value": kubeconfig},
        },
        {
            "apiVersion": VERSION, "kind": "Cluster", "metadata": metadata(CLUSTER),
            "spec": {"infrastructureRef": infrastructure("TestCluster", CLUSTER)},
        },
        {
            "apiVersion": VERSION, "kind": "Machine", "metadata": metadata(machine),
            "spec": {
                "clusterName": CLUSTER, "bootstrap": {"dataSecretName": "none"},
                "infrastructureRef": infrastructure("TestMachine", machine),
            },
        },
        {
            "apiVersion": VERSION, "kind": "MachineHealthCheck", "metadata": metadata("check"),
            "spec": {
                "clusterName": CLUSTER, "selector": {"matchLabels": labels},
                "checks": {"unhealthyNodeConditions": [unhealthy]},
            },
        },
    ]})
}

/// A type of Cluster API's without its schema.
fn definition(kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.cluster.x-k8s.io")},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema}],
        },
    })
}
