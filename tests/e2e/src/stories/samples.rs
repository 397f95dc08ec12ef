//! packaging/kubernetes/samples, as the API server takes them with the controllers' own definitions.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use crate::{
    scene::Scene,
    support::{namespaces, repository},
};

pub fn an_api_server_takes_each_sample(scene: &Scene) -> Result<()> {
    let directory =
        std::env::var("NODEVIGIL_CRDS").context("NODEVIGIL_CRDS is not set: start this by `make stories`")?;
    let own = repository().join("tests/cluster/crds/stand-ins").display().to_string();
    let plane = scene.plane();
    plane.kubectl(&["apply", "--server-side", "-f", &directory, "-f", &own])?;
    plane.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"])?;
    let mut count = 0;
    for entry in fs::read_dir(repository().join("packaging/kubernetes/samples"))? {
        let path = entry?.path();
        // Values of a Helm chart, and no object.
        if path.file_name() == Some("nvsentinel-object-monitor.yaml".as_ref()) {
            continue;
        }
        let dry_run = |path: &Path| {
            plane.kubectl(&["create", "--dry-run=server", "--validate=strict", "-f", &path.display().to_string()])
        };
        dry_run(&path)?;
        let wrong = namespaces::work().join("wrong.yaml");
        fs::write(&wrong, fs::read_to_string(&path)?.replace("\nspec:\n", "\nspec:\n  noSuchField: 1\n"))?;
        ensure!(dry_run(&wrong).is_err(), "{}: a field that does not exist is taken", path.display());
        count += 1;
    }
    ensure!(count >= 4, "only {count} samples");
    Ok(())
}
