//! What the cloud says of the machine, as cloud-init has written it down
//! (<https://docs.cloud-init.io/en/latest/explanation/instancedata.html>). `instance-data-sensitive.json`, which has the
//! user data, is not read.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::label;
use super::location::Location;
use super::snapshot::CloudFacts;
use super::tree::{Tree, Unreadable};

const PATH: &str = "/run/cloud-init/instance-data.json";
/// The id of the instance that cloud-init has set up. It stays on the disk that an image is made of.
const INSTANCE_ID: &str = "/var/lib/cloud/data/instance-id";
/// The file has some ten KiB.
const MAX_BYTES: usize = 1 << 20;
const MAX_ID_BYTES: usize = 4096;

/// The keys that are read; `v1` has them with hyphens as well.
#[derive(Deserialize)]
struct InstanceData {
    v1: Standard,
    #[serde(default)]
    ds: Value,
}

#[derive(Deserialize)]
struct Standard {
    cloud_name: String,
    instance_id: String,
    local_hostname: Option<String>,
    availability_zone: Option<String>,
}

/// The facts, of the clouds whose names and ids are known to be those of their cloud controller; else what is lacking.
pub(super) fn read(tree: &dyn Tree) -> Result<CloudFacts, &'static str> {
    let bytes = tree.read_bounded(Path::new(PATH), MAX_BYTES).map_err(|error| match error {
        Unreadable::NotFound => "the cloud's data on this machine: no /run/cloud-init/instance-data.json, no --facts",
        Unreadable::TooLarge { .. } => "/run/cloud-init/instance-data.json, which is larger than 1 MiB",
        _ => "/run/cloud-init/instance-data.json, which cannot be read",
    })?;
    // The parser's own error may quote the text.
    let InstanceData { v1, ds } = serde_json::from_slice(&bytes)
        .map_err(|_| "/run/cloud-init/instance-data.json, which is cut off or is not cloud-init's JSON")?;
    let set_up = tree.read_bounded(Path::new(INSTANCE_ID), MAX_ID_BYTES);
    if set_up.is_ok_and(|id| id.trim_ascii() != v1.instance_id.as_bytes()) {
        return Err(
            "/run/cloud-init/instance-data.json of this instance: /var/lib/cloud/data/instance-id has another id",
        );
    }
    if !matches!(v1.cloud_name.as_str(), "hetzner" | "aws") {
        return Err("the name and the id by which a cloud other than AWS and Hetzner knows this machine");
    }
    // With its domain: as Hetzner's data source has it, and as AWS' has.
    let full = ["/meta_data/local-hostname", "/meta-data/local-hostname"];
    let full = full.iter().find_map(|key| ds.pointer(key)?.as_str()).map(str::to_owned);
    let is_plain = |text: &String| label::check_domain(text).is_ok();
    Ok(CloudFacts {
        provider: Some(v1.cloud_name),
        instance_id: Some(v1.instance_id).filter(is_plain),
        name: full.or(v1.local_hostname).map(|name| name.to_lowercase()).filter(is_plain),
        zone: v1.availability_zone.filter(is_plain),
        at: Some(Location::file(PATH)),
    })
}

impl CloudFacts {
    /// The `spec.providerID` that the cloud's controller gives the Node of this machine, where its form is known.
    pub fn provider_id(&self) -> Option<String> {
        let id = self.instance_id.as_deref()?;
        match self.provider.as_deref()? {
            "hetzner" => Some(format!("hcloud://{id}")),
            "aws" => Some(format!("aws:///{}/{id}", self.zone.as_deref()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
