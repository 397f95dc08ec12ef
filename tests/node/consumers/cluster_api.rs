//! Cluster API's `MachineHealthCheck` reconciler with the shipped sample. Management and workload cluster are one.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::fleet::{Keeper, MERGE, send};
use super::stepped::{Did, Stepped};
use crate::samples;
use crate::support::control_plane::ControlPlane;
use crate::support::repository;

const GROUP: &str = "/apis/cluster.x-k8s.io/v1beta2";

pub(crate) struct ClusterApi {
    plane: Arc<ControlPlane>,
    program: Stepped,
    namespace: String,
    cluster: String,
    labels: Value,
}

impl ClusterApi {
    fn machines(&self) -> String {
        format!("{GROUP}/namespaces/{}/machines", self.namespace)
    }
}

impl Keeper for ClusterApi {
    fn start(plane: &Arc<ControlPlane>) -> Result<Self> {
        samples::define(plane)?;
        let folder = repository().join("packaging/kubernetes/samples");
        let check = samples::apply(plane, &folder.join("cluster-api-machinehealthcheck.yaml"))?;
        let check = check.first().context("a MachineHealthCheck")?;
        let text = |pointer: &str| {
            let value = check.pointer(pointer).and_then(Value::as_str);
            value.map(str::to_owned).context(pointer.to_owned())
        };
        let (namespace, cluster) = (text("/metadata/namespace")?, text("/spec/clusterName")?);
        make_cluster(plane, &namespace, &cluster)?;
        let mut labels = check["spec"]["selector"]["matchLabels"].clone();
        labels["cluster.x-k8s.io/cluster-name"] = json!(cluster);
        Ok(Self {
            plane: Arc::clone(plane),
            program: Stepped::start(plane, "clusterapi", &[])?,
            namespace,
            cluster,
            labels,
        })
    }

    fn node_labels(&self) -> Value {
        json!({})
    }

    fn order(&self, name: &str) -> Result<()> {
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": {"name": name, "labels": self.labels},
            "spec": {
                "clusterName": self.cluster,
                "bootstrap": {"dataSecretName": "none"},
                "infrastructureRef": {"apiGroup": "nodevigil.test", "kind": "TestMachine", "name": name},
            },
        });
        send(
            &self.plane,
            "POST",
            &self.machines(),
            "application/json",
            &machine,
        )
    }

    fn joined(&self, name: &str) -> Result<()> {
        let status = json!({"status": {"nodeRef": {"name": name}}});
        let path = format!("{}/{name}/status", self.machines());
        send(&self.plane, "PATCH", &path, MERGE, &status)
    }

    fn gone(&self, name: &str) -> Result<()> {
        let path = format!("{}/{name}", self.machines());
        send(&self.plane, "DELETE", &path, "application/json", &json!({}))
    }

    fn step(&mut self, now: Timestamp) -> Result<Did> {
        self.program.step(now)
    }

    fn tail(&self) -> String {
        self.program.tail()
    }
}

/// A cluster that is there: before that the reconciler blames no machine.
fn make_cluster(plane: &ControlPlane, namespace: &str, name: &str) -> Result<()> {
    let clusters = format!("{GROUP}/namespaces/{namespace}/clusters");
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"infrastructureRef": {"apiGroup": "nodevigil.test", "kind": "TestCluster", "name": name}},
    });
    send(plane, "POST", &clusters, "application/json", &cluster)?;
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "Tested", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let kinds = ["InfrastructureReady", "ControlPlaneInitialized"].map(condition);
    let path = format!("{clusters}/{name}/status");
    send(
        plane,
        "PATCH",
        &path,
        MERGE,
        &json!({"status": {"conditions": kinds}}),
    )
}
