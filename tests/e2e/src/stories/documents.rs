//! The commands of README.md and docs/operate.md, on a node and as they are written.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::scene::Scene;
use crate::support::{programs, repository};

pub fn each_block_of_commands_runs(scene: &Scene) -> Result<()> {
    let kubectl = programs::layer("kubectl", &programs::kubernetes("kubectl")?)?;
    let admin = scene.plane().kubeconfig("admin", "system:masters")?;
    let node = scene.ready_with(|node| node.layer(kubectl).file("/root/.kube/config", &admin))?;
    scene.wait_for_lease()?;
    // Exit code 2 of nodevigil is that it cannot tell yet, as in the first seconds of an agent.
    let before = r#"set -e; export HOME=/root; nodevigil() { command nodevigil "$@" || [ $? = 2 ]; }"#;
    for (document, least) in [("README.md", 2), ("docs/operate.md", 12)] {
        let text = fs::read_to_string(repository().join(document))?;
        // Blocks that no node of the stories can run are marked `sh no_run`.
        let blocks: Vec<&str> = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        ensure!(blocks.len() >= least, "{document} has {} blocks", blocks.len());
        for block in blocks {
            node.sh(&format!("{before}; NODE={}\n{block}", node.name())).context(document)?;
        }
    }
    Ok(())
}
