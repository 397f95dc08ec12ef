//! Finds the Kubernetes programs that `make tools` builds, and lays them over the nodes' root.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};

use super::enter;

/// The folder with the Kubernetes programs: controller-runtime's convention, so any such folder will do.
const FOLDER: &str = "KUBEBUILDER_ASSETS";

/// The path of one of the Kubernetes programs.
pub(crate) fn path(program: &str) -> Result<PathBuf> {
    let folder = std::env::var_os(FOLDER).with_context(|| {
        format!("{FOLDER} is not set: run `make tools`, or start this through make")
    })?;
    let path = Path::new(&folder).join(program);
    ensure!(
        path.is_file(),
        "{} is missing: run `make tools`",
        path.display()
    );
    Ok(path)
}

/// The folder with the controllers that read our conditions; `make` sets it.
const CONSUMERS: &str = "NODEVIGIL_CONSUMERS";

/// The path of one of the controllers that read our conditions (tests/cluster).
pub(crate) fn consumer(program: &str) -> Result<PathBuf> {
    let folder = std::env::var_os(CONSUMERS)
        .with_context(|| format!("{CONSUMERS} is not set: start this through make"))?;
    let path = Path::new(&folder).join(program);
    ensure!(
        path.is_file(),
        "{} is missing: run `make consumers`",
        path.display()
    );
    Ok(path)
}

/// The folder with the definitions of the samples' types (tests/cluster/crds); `make` says where it is.
pub(crate) fn definitions() -> Result<PathBuf> {
    let folder = std::env::var_os("NODEVIGIL_CRDS").map(PathBuf::from);
    let folder = folder.context("NODEVIGIL_CRDS is not set: start this through make")?;
    ensure!(
        folder.is_dir(),
        "{} is missing: run `make crds`",
        folder.display()
    );
    Ok(folder)
}

/// The folder with node-problem-detector and its configuration files; `make` sets it.
const PEER: &str = "NODEVIGIL_PEER";

/// The path of a program or file of node-problem-detector's (tests/cluster/npd).
pub(crate) fn peer(name: &str) -> Result<PathBuf> {
    let folder = std::env::var_os(PEER)
        .with_context(|| format!("{PEER} is not set: start this through make"))?;
    let path = Path::new(&folder).join(name);
    ensure!(
        path.is_file(),
        "{} is missing: run `make peer`",
        path.display()
    );
    Ok(path)
}

/// The folder with Prometheus' programs; `make` sets it.
const PROMETHEUS: &str = "NODEVIGIL_PROMETHEUS";

/// The path of a program of Prometheus, or of ours around its parsers (tests/cluster/promtool).
pub(crate) fn prometheus(program: &str) -> Result<PathBuf> {
    let folder = std::env::var_os(PROMETHEUS)
        .with_context(|| format!("{PROMETHEUS} is not set: start this through make"))?;
    let path = Path::new(&folder).join(program);
    ensure!(
        path.is_file(),
        "{} is missing: run `make prometheus`",
        path.display()
    );
    Ok(path)
}

/// nfpm, which makes packages; `make` says where it is.
pub(crate) fn nfpm() -> Result<PathBuf> {
    let path = std::env::var_os("NODEVIGIL_NFPM").map(PathBuf::from);
    let path = path.context("NODEVIGIL_NFPM is not set: start this through make")?;
    ensure!(
        path.is_file(),
        "{} is missing: run `make nfpm`",
        path.display()
    );
    Ok(path)
}

/// The agent's executable: `NODEVIGIL_BIN` if that is set, else what cargo built for a test or bench.
pub(crate) fn agent() -> Result<PathBuf> {
    let path = std::env::var_os("NODEVIGIL_BIN")
        .map(PathBuf::from)
        .or_else(|| option_env!("CARGO_BIN_EXE_nodevigil").map(PathBuf::from))
        .context(
            "NODEVIGIL_BIN is not set: name the agent's executable, or start this through make",
        )?;
    ensure!(
        path.is_file() && path.ends_with("nodevigil"),
        "{} is no file named nodevigil",
        path.display()
    );
    Ok(path)
}

/// A lower layer for the nodes' root with these programs in /usr/bin; copied once a run, and shared by its nodes.
pub(crate) fn layer(programs: &[PathBuf]) -> Result<PathBuf> {
    static LAYERS: Mutex<Option<HashMap<Vec<PathBuf>, PathBuf>>> = Mutex::new(None);
    let mut layers = LAYERS.lock().unwrap_or_else(PoisonError::into_inner);
    let layers = layers.get_or_insert_default();
    if let Some(layer) = layers.get(programs) {
        return Ok(layer.clone());
    }
    let layer = enter::work().join("layers").join(layers.len().to_string());
    let folder = layer.join("usr/bin");
    fs::create_dir_all(&folder)?;
    for program in programs {
        let name = program.file_name().context("a program has a name")?;
        fs::copy(program, folder.join(name))
            .with_context(|| format!("copying {}", program.display()))?;
    }
    layers.insert(programs.to_vec(), layer.clone());
    Ok(layer)
}
