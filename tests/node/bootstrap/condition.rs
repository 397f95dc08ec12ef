//! `NodeBootstrapped`, as the daemon tells it on the Node.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::support::api;
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;

const CONDITION: &str = "NodeBootstrapped";

/// The daemon tells the same on the Node: on its way, of use, and that for good, through a restart too.
pub(super) fn the_daemon_tells_it_once_and_for_all() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "way-told")
        .kubelet_argument("--cloud-provider=external")
        .config(
            "20-deadline.toml",
            "[bootstrap]\ndeadline_secs = 20\n[kubelet]\nhealthy_for_secs = 1\n",
        )
        .agent()
        .boot()?;
    let watch = plane.watch_node(node.name())?;
    node.start_agent()?;
    let told = |status: &str| {
        let wanted = status.to_owned();
        watch.wait_for(Duration::from_mins(2), move |event| {
            api::condition_status(event, CONDITION) == Some(&wanted)
        })
    };
    let reason =
        |event: &Value| api::condition(event, CONDITION).map(|told| told["reason"].clone());
    told("Unknown").context("on its way")?;
    let (_, late) = told("False").context("late")?;
    ensure!(
        reason(&late) == Some(json!("BootstrapStuckAtCloudController")),
        "{late}"
    );
    let told_late = api::condition(&late, CONDITION)
        .cloned()
        .unwrap_or_default();
    ensure!(
        told_late["message"]
            .as_str()
            .is_some_and(|text| text.contains("CP005")),
        "{told_late}"
    );
    // A cloud controller comes after all.
    initialise(&plane, node.name())?;
    let (at, arrived) = told("True").context("of use")?;
    ensure!(
        reason(&arrived) == Some(json!("NodeIsBootstrapped")),
        "{arrived}"
    );
    // Whatever befalls it later, and whoever tells of it.
    node.sh("systemctl stop kubelet; systemctl restart nodevigil")?;
    watch.wait_since(at, Duration::from_mins(2), |event| {
        api::condition_status(event, "KubeletHealthy") == Some("Unknown")
    })?;
    for (when, event) in watch.all() {
        let status = api::condition_status(&event, CONDITION);
        ensure!(when <= at || status == Some("True"), "{event}");
    }
    let record = node.read("/var/lib/nodevigil-helper/bootstrap-daemon.json")?;
    let record: Value = serde_json::from_str(&record)?;
    ensure!(
        record["result"] == "bootstrapped" && record["by"] == "daemon",
        "{record:#}"
    );
    Ok(())
}

/// What a cloud controller does.
pub(crate) fn initialise(plane: &ControlPlane, name: &str) -> Result<()> {
    let node = plane.node(name)?.context("the Node is there")?;
    let mut taints = node["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    taints.retain(|taint| taint["key"] != "node.cloudprovider.kubernetes.io/uninitialized");
    let patch = json!({"spec": {"providerID": "lab://1", "taints": taints}});
    let path = format!("/api/v1/nodes/{name}");
    let kind = "application/merge-patch+json";
    let (code, answer) = plane.request("PATCH", &path, kind, &patch)?;
    ensure!(code == 200, "{code}: {answer}");
    Ok(())
}
