//! Settings that are refused.

use anyhow::{Result, ensure};

use crate::scene::Scene;
use crate::support::{WAIT, wait_until};

const BAD_FILE: &str = "/etc/nodevigil/config.d/90-bad.toml";
const BAD_SETTINGS: &str = "[conditions]\nhealthy_for_secs = 0\n";

pub fn refused_settings_leave_the_last_accepted_ones_in_use(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let before = node.kubelet().shown()?;
    node.sh(&format!("printf '{}' >{BAD_FILE}", BAD_SETTINGS.replace('\n', "\\n")))?;
    node.restart_agent("systemctl restart nodevigil")?;
    node.kubelet().ensure_unchanged(&before)?;
    node.wait_for_trouble("ConfigRefused", &[&format!("{BAD_FILE}:2")])?;
    let (_, table) = node.run("nodevigil status")?;
    ensure!(table.contains(&format!("{BAD_FILE}:2")), "{table}");
    let journal = node.journal("nodevigil")?;
    ensure!(journal.contains(&format!("{BAD_FILE}:2")), "{journal}");
    node.crash_and_recover()?;
    node.sh(&format!("rm {BAD_FILE}"))?;
    node.restart_agent("systemctl restart nodevigil")?;
    node.wait_for_no_trouble()
}

pub fn a_dry_run_reads_everything_and_writes_nothing(scene: &Scene) -> Result<()> {
    let settings = "[kubernetes]\npublish = \"none\"\n";
    let node = scene.ready_with(|node| node.file("/etc/nodevigil/config.d/50-dry-run.toml", settings))?;
    node.start_agent()?;
    wait_until("every condition to be healthy", WAIT, || Ok((node.run("nodevigil status")?.0 == 0).then_some(())))?;
    let (_, table) = node.run("nodevigil status")?;
    ensure!(table.contains("Not published: [kubernetes] publish = \"none\""), "{table}");
    let annotation = "nodevigil.io/pause=2099-01-01T00:00:00Z"; // too far away: that it is read is a trouble
    scene.plane().kubectl(&["annotate", "node", node.name(), annotation])?;
    node.wait_for_trouble("PauseRefused", &["nodevigil.io/pause"])?;
    node.disable_restart()?;
    node.kill_kubelet()?;
    node.wait_for_status("the crash", |status| status["conditions"][0]["reason"] == "KubeletCrashed")?;
    for (_, state) in node.watch().since(None) {
        ensure!(!state.to_string().contains("KubeletHealthy"), "it was written: {state}");
    }
    let events = node.events(scene.plane())?;
    ensure!(events.iter().all(|(_, reason)| reason != "KubeletCrashed"), "{events:?}");
    Ok(())
}

pub fn without_accepted_settings_the_exit_code_is_78(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node.file(BAD_FILE, BAD_SETTINGS))?;
    let (code, _) = node.run("systemctl start nodevigil")?;
    ensure!(code != 0, "the agent has started with {BAD_FILE}");
    wait_until("exit code 78", WAIT, || Ok((node.property("nodevigil", "ExecMainStatus")? == "78").then_some(())))?;
    let journal = node.journal("nodevigil")?;
    ensure!(journal.contains(&format!("{BAD_FILE}:2")), "{journal}");
    node.sh(&format!("rm {BAD_FILE}"))?;
    node.start_agent()
}
