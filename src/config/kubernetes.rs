//! `[kubernetes]`: as whom the agent speaks to the cluster. What it tells there is [`crate::desired::Choice`].

use std::path::PathBuf;

use super::{error::ConfigError, fragment::Merged, settings::text, values};

/// How to reach the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesSettings {
    /// The agent's own kubeconfig, an absolute path; `None`: the default places are looked at.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the kubelet's identity is used where there is none of the agent's own.
    pub kubelet_identity: bool,
}

impl Default for KubernetesSettings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            kubelet_identity: true,
        }
    }
}

/// Takes them out.
pub(super) fn settings(merged: &mut Merged) -> Result<KubernetesSettings, ConfigError> {
    let lends = merged.lends.take();
    let lends = lends.map(|placed| placed.check("", Ok)).transpose()?;
    Ok(KubernetesSettings {
        kubeconfig: text(
            merged.kubeconfig.take(),
            "kubernetes.kubeconfig",
            values::absolute_path,
        )?,
        kubelet_identity: lends.unwrap_or(true),
    })
}
