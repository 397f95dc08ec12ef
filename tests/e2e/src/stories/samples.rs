//! packaging/kubernetes/samples and the Helm chart, as the API server takes them with the controllers' own definitions.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::scene::Scene;
use crate::support::{namespaces, repository};

pub fn an_api_server_takes_each_sample(scene: &Scene) -> Result<()> {
    let directory =
        std::env::var("NODEVIGIL_CRDS").context("NODEVIGIL_CRDS is not set: start this by `make stories`")?;
    let own = repository().join("tests/cluster/crds/stand-ins").display().to_string();
    let plane = scene.plane();
    plane.kubectl(&["apply", "--server-side", "-f", &directory, "-f", &own])?;
    plane.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"])?;
    let dry_run =
        |path: &Path| plane.kubectl(&["apply", "--server-side", "--dry-run=server", "-f", &path.display().to_string()]);
    let mut paths = vec![repository().join("dist/nodevigil.yaml")];
    for directory in ["dist/chart", "packaging/kubernetes/samples"] {
        for entry in fs::read_dir(repository().join(directory))? {
            paths.push(entry?.path());
        }
    }
    // The one has values of a Helm chart, and the other renders nothing.
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.retain(|path| {
        !path.ends_with("nvsentinel-object-monitor.yaml") && !path.ends_with("disabled-dependency.yaml")
    });
    ensure!(paths.len() >= 11, "only {paths:?}");
    let wrong = namespaces::work().join("wrong.yaml");
    for path in paths {
        dry_run(&path)?;
        fs::write(&wrong, fs::read_to_string(&path)?.replace("\nspec:\n", "\nspec:\n  noSuchField: 1\n"))?;
        ensure!(dry_run(&wrong).is_err(), "{}: a field that does not exist is taken", path.display());
    }
    Ok(())
}
