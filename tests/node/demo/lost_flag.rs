//! The mistake that started this project: `--cloud-provider=external` in a drop-in, on a Debian whose package ships an
//! empty `/etc/default/kubelet`. The flag is lost, the Node is born without the taint that the cloud controller waits
//! for, and the autoscaler deletes the machine; here it is named instead.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::acts::Stage;
use super::paper::took;
use super::support::api::condition;
use super::support::node_builder::NodeBuilder;
use super::support::wait_until;
use super::{NODE, PATIENCE, text};

const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-hcloud.conf";
const DEFAULTS: &str = "/etc/default/kubelet";
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The mistake, as cloud-init would write it.
pub(crate) fn mistake(builder: NodeBuilder) -> NodeBuilder {
    builder
        .config(
            "60-intent.toml",
            "[intent]\ncloud_provider = \"external\"\n",
        )
        .file(DEFAULTS, "KUBELET_EXTRA_ARGS=\n", 0o644)
        .file(
            DROP_IN,
            "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n",
            0o644,
        )
}

impl Stage<'_> {
    /// The node is Ready, and lost all the same.
    pub(crate) fn flag_is_lost(&mut self) -> Result<()> {
        self.paper.heading("A flag that never reaches the kubelet");
        self.paper.line(&format!(
            "{DROP_IN} sets --cloud-provider=external; {NODE} is Ready, and has {} the taint that a cloud controller waits for",
            if self.has_taint()? { "got" } else { "not got" }
        ));
        ensure!(!self.has_taint()?, "the flag was not lost");
        let (code, output) = self
            .node
            .run("COLUMNS=100 nodevigil check --severity error")?;
        self.paper
            .line(&format!("on the node: nodevigil check (exit code {code})"));
        self.paper.detail(&output);
        ensure!(code == 1, "check ended with {code}");
        ensure!(
            output.contains(&format!("{DEFAULTS}:1")),
            "check did not name {DEFAULTS}:1"
        );
        Ok(())
    }

    /// The agent says it on the Node.
    pub(crate) fn lost_flag_is_told(&mut self, started: Instant) -> Result<()> {
        let (at, said) = self.hear_config(started, "False")?;
        let after = took(at - started);
        self.paper.line_at(
            at,
            &format!("watch: KubeletConfigValid=False {}", text(&said, "/reason")),
        );
        self.paper
            .detail(&format!("\"{}\"", text(&said, "/message")));
        let word = format!("KubeletConfigValid=False {}", text(&said, "/reason"));
        self.paper.row("  it checks the configuration", word, after);
        Ok(())
    }

    /// One line moved, the Node made anew.
    pub(crate) fn flag_is_mended(&mut self) -> Result<()> {
        self.paper.heading("The flag is written where it is read");
        let mended = Instant::now();
        self.node.sh(&format!(
            "echo KUBELET_EXTRA_ARGS=--cloud-provider=external >{DEFAULTS}; rm {DROP_IN}; systemctl daemon-reload; systemctl stop kubelet"
        ))?;
        self.node.plane().delete_node(NODE)?;
        self.node.sh("systemctl start kubelet")?;
        self.paper.line_at(
            mended,
            "moved to /etc/default/kubelet, the Node deleted, the kubelet started: the taint is set only at birth",
        );
        wait_until("the Node to be born with the taint", PATIENCE, || {
            Ok(self.has_taint()?.then_some(()))
        })?;
        self.paper.line(&format!("{NODE} is born with {TAINT}"));
        let (at, said) = self.hear_config(mended, "True")?;
        self.paper.line_at(
            at,
            &format!("watch: KubeletConfigValid=True {}", text(&said, "/reason")),
        );
        self.paper.row(
            "the flag is mended",
            format!("KubeletConfigValid=True {}", text(&said, "/reason")),
            took(at - mended),
        );
        self.node.wait_ready(PATIENCE).map(|_| ())
    }

    fn hear_config(&self, from: Instant, status: &str) -> Result<(Instant, Value)> {
        let (at, event) = self
            .watch
            .wait_since(from, PATIENCE, |event| {
                condition(event, "KubeletConfigValid")
                    .is_some_and(|found| text(found, "/status") == status)
            })
            .with_context(|| format!("waited for KubeletConfigValid={status}"))?;
        let said = condition(&event, "KubeletConfigValid").cloned();
        Ok((at, said.context("it was there")?))
    }

    fn has_taint(&self) -> Result<bool> {
        let object = self.node.plane().node(NODE)?.unwrap_or_default();
        let taints = object["spec"]["taints"].as_array().cloned();
        Ok(taints
            .unwrap_or_default()
            .iter()
            .any(|taint| taint["key"] == TAINT))
    }
}
