//! A configuration that cannot be used: said with file, line and key, and not tried again.

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::scene::{AGENT, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::trial;

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial(
        "config::bad",
        a_bad_configuration_is_said_and_is_final,
    )]
}

fn a_bad_configuration_is_said_and_is_final() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::bare(&plane, "bad-config", NodeBuilder::without_kubelet)?;
    scene.play(|scene| {
        for (file, text, wanted) in [
            (
                "70-unknown-key.toml",
                "[kubelet]\n\nhealthy_for_sec = 1\n",
                "70-unknown-key.toml:3: kubelet.healthy_for_sec: unknown key",
            ),
            (
                "71-unknown-table.toml",
                "[kubelets]\nunit = 1\n",
                "71-unknown-table.toml:1: ",
            ),
            (
                "72-bad-value.toml",
                "[kubelet]\nunit = \"kubelet.service\"\nhealthy_for_secs = \"soon\"\n",
                "72-bad-value.toml:3: kubelet.healthy_for_secs: ",
            ),
            (
                "73-out-of-bounds.toml",
                "[kubelet]\nhealthy_for_secs = 3601\n",
                "73-out-of-bounds.toml:2: kubelet.healthy_for_secs: ",
            ),
        ] {
            refused(scene, file, text, wanted)?;
        }
        // Mended, it starts.
        scene.node.start_agent()
    })
}

fn refused(scene: &Scene, file: &str, text: &str, wanted: &str) -> Result<()> {
    let path = format!("/etc/nodevigil/config.d/{file}");
    let script = format!("cat >{path} <<'END'\n{text}END\nsystemctl start nodevigil");
    let (code, output) = scene.node.run(&script)?;
    ensure!(code != 0, "started with {file}: {output}");
    for (property, wanted) in [
        ("ActiveState", "failed"), // and not on its way to another try
        ("ExecMainStatus", "78"),
        ("NRestarts", "0"),
    ] {
        let is = scene.property(AGENT, property)?;
        ensure!(is == wanted, "{file}: {property}={is}");
    }
    let journal = scene.node.journal(AGENT, &["MESSAGE"])?;
    let wanted = format!("/etc/nodevigil/config.d/{wanted}");
    let times = journal
        .iter()
        .filter_map(|line| line["MESSAGE"].as_str())
        .filter(|line| line.contains(&wanted))
        .count();
    ensure!(times == 1, "{wanted} was said {times} times: {journal:#?}");
    scene
        .node
        .sh(&format!("rm {path}; systemctl reset-failed nodevigil"))?;
    Ok(())
}
