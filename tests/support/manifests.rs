//! Applies Kubernetes manifests of the repository to the control plane.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::api::Api;

/// Applies every YAML file of a folder, in the order in which `kubectl apply -f FOLDER` would.
pub(crate) fn apply_folder(api: &Api, folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?
    {
        files.push(entry?.path());
    }
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    ensure!(!files.is_empty(), "no manifest in {}", folder.display());
    files.iter().try_for_each(|file| apply(api, file))
}

/// Applies every document of a YAML file, server side.
pub(crate) fn apply(api: &Api, file: &Path) -> Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("reading {}", file.display()))?;
    for document in documents.iter().filter(|document| !document.is_null()) {
        let path = format!(
            "{}?fieldManager=nodevigil-tests&force=true",
            path(document)?
        );
        let (code, answer) = api.request(
            "PATCH",
            &path,
            "application/apply-patch+yaml",
            Some(document),
        )?;
        ensure!(
            code < 300,
            "{}: {path} answered {code}: {answer}",
            file.display()
        );
    }
    Ok(())
}

/// Where an object lives in the API. The plural is made by the API's own habit, which holds for all kinds we ship.
fn path(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let version = text("/apiVersion").context("a manifest has an apiVersion")?;
    let kind = text("/kind")
        .context("a manifest has a kind")?
        .to_lowercase();
    let name = text("/metadata/name").context("a manifest has a name")?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    let namespace = text("/metadata/namespace")
        .map(|name| format!("namespaces/{name}/"))
        .unwrap_or_default();
    Ok(format!("/{root}/{version}/{namespace}{plural}/{name}"))
}
