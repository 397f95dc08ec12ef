//! What keeps a kubelet that answers from the API server: its client certificate, its connection.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::scene::{ObservedNode, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::namespaces::ADDRESS;

const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
/// Longer than [`WAIT`](crate::support::WAIT): a sampled problem shows as such once the Node is two minutes old.
const STALL_WAIT: Duration = Duration::from_mins(4);

pub fn an_expired_client_certificate_is_reported_until_it_is_renewed(scene: &Scene) -> Result<()> {
    // No controller signs a new one.
    let flags = "KUBELET_KUBEADM_ARGS=--rotate-certificates=false\n";
    let node = scene.healthy_with(|node| node.file("/var/lib/kubelet/kubeadm-flags.env", flags))?;
    let user = format!("system:node:{}", node.name());
    let short = scene.plane().kubeconfig_that_expires(&user, "system:nodes", 10)?;
    let from = Instant::now();
    node.sh(&format!(
        "cp -p {KUBECONFIG} /run/valid; cat >{KUBECONFIG} <<'END'\n{short}\nEND\nsystemctl restart kubelet"
    ))?;
    let expired = node.kubelet().wait_for(from, "False", "KubeletClientCertExpired")?;
    ensure!(expired.message.contains(KUBECONFIG), "{expired:?}");
    node.kubelet().ensure_only(from, &["True", "False"])?;
    let renewed = Instant::now();
    node.sh(&format!("cp -p /run/valid {KUBECONFIG}; systemctl restart kubelet"))?;
    node.kubelet().wait_for(renewed, "True", "KubeletIsHealthy")?;
    Ok(())
}

/// A group whose packets can be distinguished from those of everybody else on this machine.
const GROUP: &str = "[Service]\nGroup=daemon\n";

/// Has what the group sends to the API server get lost on the way. What is dropped where it leaves the host would count as never sent.
fn cut(node: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    node.sh(&format!(
        "nft add table ip e2e
         nft add chain ip e2e output '{{ type filter hook output priority 0; }}'
         nft add rule ip e2e output ip daddr {ADDRESS} tcp dport {} meta skgid daemon meta mark set 0x9e11
         nft add chain ip e2e input '{{ type filter hook input priority 0; }}'
         nft add rule ip e2e input meta mark 0x9e11 drop",
        plane.port()
    ))?;
    Ok(())
}

fn reconnect(node: &ObservedNode) -> Result<()> {
    node.sh("nft delete table ip e2e").map(drop)
}

pub fn a_stalled_connection_of_the_kubelet_alone_is_reported(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(|node| node.kubelet_unit(GROUP))?;
    scene.wait_for_lease()?;
    let pid = node.main_pid("kubelet")?;
    let from = Instant::now();
    cut(&node, scene.plane())?;
    let stalled = node.kubelet().wait_longer_for(from, STALL_WAIT, "False", "KubeletAPIConnectionStalled")?;
    node.kubelet().ensure_unchanged(&stalled)?;
    let reconnected = Instant::now();
    reconnect(&node)?;
    node.kubelet().wait_for(reconnected, "True", "KubeletIsHealthy")?;
    ensure!(node.main_pid("kubelet")? == pid, "the kubelet was restarted");
    Ok(())
}

pub fn an_outage_for_kubelet_and_agent_is_no_fault(scene: &Scene) -> Result<()> {
    let agent = "/etc/systemd/system/nodevigil.service.d/50-group.conf";
    let node = scene.healthy_with(|node| node.kubelet_unit(GROUP).file(agent, GROUP))?;
    scene.wait_for_lease()?;
    let from = Instant::now();
    cut(&node, scene.plane())?;
    sleep(Duration::from_mins(1)); // the watch is given up once it has been silent for two minutes
    node.wait_for_status("the outage", |status| status["published"]["state"] == "unreached")?;
    sleep(Duration::from_secs(30)); // the Lease is old by then
    reconnect(&node)?;
    node.wait_for_status("the end of the outage", |status| status["published"]["state"] == "reached")?;
    sleep(Duration::from_secs(45)); // a stall would have been reported
    node.kubelet().ensure_only(from, &["True"])
}
