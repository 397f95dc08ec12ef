//! `--facts FILE`: what no file of the host says, as JSON.

use std::path::Path;

use serde::Deserialize;

use crate::{
    host::files::Root,
    kubelet::snapshot::{CloudFacts, ClusterFacts},
};

const MAX_BYTES: usize = 1 << 20;

/// The file's shape.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Facts {
    /// What the API says.
    pub(super) cluster: Option<ClusterFacts>,
    /// What the cloud's metadata service says.
    pub(super) cloud: Option<CloudFacts>,
    /// What the host says that its files do not.
    pub(super) host: HostFacts,
}

/// What the host says that its files do not.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct HostFacts {
    pub(super) hostname: Option<String>,
    pub(super) kubelet_version: Option<String>,
    pub(super) runtime_version: Option<String>,
    pub(super) systemd_version: Option<u32>,
    pub(super) cgroup_v2: Option<bool>,
    pub(super) addresses: Option<Vec<String>>,
    /// Whether the server of k3s or RKE2 runs with `--disable-cloud-controller`.
    pub(super) server_disables_cloud_controller: Option<bool>,
    /// Seconds since 1970.
    pub(super) now_secs: Option<i64>,
}

/// Reads the file.
pub(super) fn read(path: &Path) -> anyhow::Result<Facts> {
    let path = std::path::absolute(path)?;
    let bytes = Root::default().read(&path, MAX_BYTES)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| anyhow::anyhow!("--facts {}: {error}", path.display()))
}
