//! The files in which the kubelet's CPU and memory managers keep their state over restarts.

use std::collections::BTreeMap;
use std::path::Path;

use super::Located;
use crate::kubelet::effective::Settings;
use crate::kubelet::location::Location;
use crate::kubelet::text;
use crate::kubelet::tree::Tree;

/// The setting of a manager's policy, and the manager's file below `--root-dir`.
const FILES: [(&str, &str); 2] =
    [("cpuManagerPolicy", "cpu_manager_state"), ("memoryManagerPolicy", "memory_manager_state")];

/// The policy under which each file was written, by the setting of the policy.
pub(super) fn policies(tree: &dyn Tree, settings: &Settings) -> BTreeMap<&'static str, Located<String>> {
    let root = Path::new(settings.text("--root-dir").unwrap_or("/var/lib/kubelet"));
    let read = |(setting, name): (&'static str, &str)| {
        let path = root.join(name);
        let state: serde_json::Value = serde_json::from_str(&text::small(tree, path.to_str()?)?).ok()?;
        let value = state["policyName"].as_str()?.to_owned();
        Some((setting, Located { value, at: Location::file(&path) }))
    };
    FILES.into_iter().filter_map(read).collect()
}
