//! `NodeBootstrapped`, as the daemon tells it on the Node.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::{api, say, wait_until};

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

/// An autoscaler deletes a Node that does not become Ready long before our deadline; what it was stuck at is still to be read.
pub(super) fn a_late_stage_is_an_event_that_outlives_the_node() -> Result<()> {
    const PATIENCE: &str = "[bootstrap]\ncloud_controller_secs = 5\n";
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "way-late")
        .kubelet_argument("--cloud-provider=external")
        .config("20-patience.toml", PATIENCE)
        .agent()
        .boot()?;
    node.start_agent()?;
    let late = || -> Result<Vec<Value>> {
        let (code, list) = plane.get("/apis/events.k8s.io/v1/namespaces/default/events")?;
        ensure!(code == 200, "{code}: {list}");
        let events = list["items"].as_array().context("no items")?;
        let ours = events.iter().filter(|event| {
            event["regarding"]["name"] == node.name() && event["reason"] == "BootstrapStageLate"
        });
        Ok(ours.cloned().collect())
    };
    let event = wait_until("the Event", Duration::from_mins(1), || Ok(late()?.pop()))?;
    let note = event["note"].as_str().unwrap_or_default();
    for part in ["stuck at cloud-controller", "CP005", "may take 5 s"] {
        ensure!(note.contains(part), "{part}: {note}");
    }
    ensure!(event["type"] == "Warning", "{event:#}");
    let status = plane.condition(node.name(), CONDITION)?;
    ensure!(
        status.is_some_and(|told| told["status"] == "Unknown"),
        "the deadline has not passed"
    );
    // An agent that has forgotten it does not make another.
    let sent = |node: &Node| Ok::<_, anyhow::Error>(node.status_json()?["events"]["sent"].as_u64());
    node.sh("systemctl restart nodevigil")?;
    wait_until("it is said again", Duration::from_mins(1), || {
        Ok(sent(&node)?.filter(|sent| *sent > 0))
    })?;
    ensure!(late()?.len() == 1 && late()?[0] == event, "{:#?}", late()?);
    node.sh("systemctl stop kubelet")?;
    plane.delete_node(node.name())?;
    wait_until("the agent has seen that", Duration::from_mins(1), || {
        Ok(plane.node(node.name())?.is_none().then_some(()))
    })?;
    ensure!(late()? == [event.clone()], "{:#?}", late()?);
    say(&format!("the Node is deleted; {}: {note}", event["reason"]));
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
