//! The kubelet's life as a real API server tells it: each way to end with its reason, and back to health.

use std::time::Duration;

use anyhow::Result;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::{
    support::{control_plane::ControlPlane, node_builder::NodeBuilder, process::ending, say},
    trial,
};

const SOON: Duration = Duration::from_secs(20);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial("life::smoke", smoke)]
}

fn smoke() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let watch = plane.watch_node("smoke")?;
    let node = NodeBuilder::new(&plane, "smoke")
        .agent()
        .config("50-test.toml", "[kubelet]\nhealthy_for_secs = 1\n")
        .restart_sec(Duration::from_millis(100))
        .boot()?;
    node.wait_ready(SOON)?;
    node.start_agent()?;
    let r = (|| -> Result<()> {
        watch.wait_for(SOON, |e| crate::support::api::condition_status(e, "KubeletHealthy") == Some("True"))?;
        for _ in 0..3 {
            let pid = node.kubelet_pid()?;
            let end = ending(pid)?;
            let killed = node.signal_unit("kubelet.service", Signal::SIGKILL)?;
            let gone = end.wait(SOON)?;
            let (at, e) = watch.wait_since(killed, SOON, |e| crate::support::api::condition_status(e, "KubeletHealthy") == Some("False"))?;
            say(&format!("killed -> gone {:?}, gone -> watch {:?}: {:?}", gone - killed, at - gone, crate::support::api::condition(&e, "KubeletHealthy")));
            let (back, _) = watch.wait_since(at, SOON, |e| crate::support::api::condition_status(e, "KubeletHealthy") == Some("True"))?;
            say(&format!("healthy again after {:?}", back - at));
        }
        Ok(())
    })();
    say(&node.sh("journalctl -u nodevigil -u nodevigil-helper -o short-precise --no-pager | tail -60; nodevigil status; cat /run/nodevigil/ledger.json")?);
    r
}
