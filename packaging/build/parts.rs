//! The list of parts (SBOM), as `CycloneDX` 1.5 in JSON: every crate that is linked, with its checksum, licence and what it uses.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::crates::Crate;

pub(super) fn json(linked: &[Crate], target: &str, epoch: u32) -> Result<String> {
    let own = linked.iter().find(|part| part.name == "nodevigil");
    let own = own.context("nodevigil is not among its own parts")?;
    let mut components = linked
        .iter()
        .filter(|part| part.name != own.name)
        .map(component)
        .collect::<Result<Vec<_>>>()?;
    // In every binary for musl, and in no lock file.
    for (name, license) in [("std", "MIT OR Apache-2.0"), ("musl", "MIT")] {
        components.push(json!({
            "type": "library", "name": name, "bom-ref": name,
            "description": "as it comes with the Rust toolchain",
            "licenses": [{"expression": license}],
        }));
    }
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|part| json!({"ref": part.reference(), "dependsOn": part.uses}))
        .collect();
    let time = Timestamp::from_second(epoch.into()).unwrap_or_default();
    let mut this = component(own)?;
    this["type"] = json!("application");
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.to_string(),
            "component": this,
            "properties": [{"name": "cargo:target", "value": target}],
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn component(part: &Crate) -> Result<Value> {
    let mut value = json!({
        "type": "library",
        "bom-ref": part.reference(),
        "name": part.name,
        "version": part.version,
        "purl": format!("pkg:cargo/{}@{}", part.name, part.version),
        "licenses": [{"expression": part.expression()?}],
    });
    if let Some(checksum) = &part.checksum {
        value["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &part.repository {
        value["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    Ok(value)
}
