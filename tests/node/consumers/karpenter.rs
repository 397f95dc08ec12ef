//! Karpenter's health controller with the AWS provider's list, over a pool of the shipped sample.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::fleet::{Keeper, MERGE, send};
use super::stepped::{Did, Stepped};
use crate::samples;
use crate::scene::SOON;
use crate::support::control_plane::ControlPlane;
use crate::support::{repository, wait_until};

const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
/// What the AWS provider of v1.14.1 has compiled in (docs/consumers.md).
const POLICIES: &[&str] = &[
    "Ready=False=30m",
    "Ready=Unknown=30m",
    "AcceleratedHardwareReady=False=10m",
    "StorageReady=False=30m",
    "NetworkingReady=False=30m",
    "KernelReady=False=30m",
    "ContainerRuntimeReady=False=30m",
];

pub(crate) struct Karpenter {
    plane: Arc<ControlPlane>,
    program: Stepped,
    pool: String,
}

impl Karpenter {
    fn labels(&self) -> Value {
        json!({"karpenter.sh/nodepool": self.pool, "nodevigil.test/testclass": "class"})
    }
}

impl Keeper for Karpenter {
    fn start(plane: &Arc<ControlPlane>) -> Result<Self> {
        let policies = POLICIES.iter().map(|policy| format!("--policy={policy}"));
        let arguments: Vec<_> = policies.chain(["--stepped".to_owned()]).collect();
        let program = Stepped::start(plane, "karpenter", &arguments)?;
        wait_until("Karpenter's types", SOON, || {
            Ok((plane.get(CLAIMS)?.0 == 200).then_some(()))
        })
        .with_context(|| program.tail())?;
        let file = repository().join("packaging/kubernetes/samples/karpenter-nodepool.yaml");
        let pool = samples::apply(plane, &file)?;
        let pool = pool.first().context("a pool")?["metadata"]["name"]
            .as_str()
            .context("a name")?
            .to_owned();
        Ok(Self {
            plane: Arc::clone(plane),
            program,
            pool,
        })
    }

    fn node_labels(&self) -> Value {
        self.labels()
    }

    fn order(&self, name: &str) -> Result<()> {
        let claim = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            // With a finalizer: so it stays to be counted.
            "metadata": {"name": name, "labels": self.labels(), "finalizers": ["nodevigil.test/keep"]},
            "spec": {
                "nodeClassRef": {"group": "nodevigil.test", "kind": "TestClass", "name": "class"},
                "requirements": [],
            },
        });
        send(&self.plane, "POST", CLAIMS, "application/json", &claim)?;
        let status = json!({"status": {"providerID": format!("nodevigil://{name}")}});
        let path = format!("{CLAIMS}/{name}/status");
        send(&self.plane, "PATCH", &path, MERGE, &status)
    }

    fn joined(&self, _name: &str) -> Result<()> {
        Ok(()) // by the provider's id
    }

    fn gone(&self, name: &str) -> Result<()> {
        let released = json!({"metadata": {"finalizers": null}});
        let path = format!("{CLAIMS}/{name}");
        send(&self.plane, "PATCH", &path, MERGE, &released)
    }

    fn step(&mut self, now: Timestamp) -> Result<Did> {
        self.program.step(now)
    }

    fn tail(&self) -> String {
        self.program.tail()
    }
}
