//! The agent in a pod: the container has the host's root directory in a directory of its own.

use std::env;

use anyhow::Context as _;
use rustix::process::{chdir, chroot};

/// The environment variable that names this directory; the Helm chart sets it.
pub const HOST_ROOT: &str = "NODEVIGIL_HOST_ROOT";

/// The environment variable with the name of the pod's Node; the Helm chart sets it.
pub const NODE_NAME: &str = "NODEVIGIL_NODE_NAME";

/// The environment variable with the name of the pod's `DaemonSet`; the Helm chart sets it.
pub const DAEMONSET: &str = "NODEVIGIL_DAEMONSET";

/// Whether this process was started in a pod.
pub fn is_pod() -> bool {
    env::var_os(HOST_ROOT).is_some()
}

/// In a pod: the name of its Node, as the kubelet has it.
pub fn node_name() -> Option<String> {
    env::var(NODE_NAME).ok().filter(|name| is_pod() && !name.is_empty())
}

/// In a pod: the `DaemonSet` that the pod belongs to.
pub fn daemonset() -> Option<String> {
    env::var(DAEMONSET).ok().filter(|name| is_pod() && !name.is_empty())
}

/// In a pod: makes the host's root directory that of this process, so that every path means the host's file.
///
/// # Errors
/// When it cannot be entered.
pub fn enter_host_root() -> anyhow::Result<()> {
    let Some(root) = env::var_os(HOST_ROOT) else { return Ok(()) };
    let entered = chroot(&root).and_then(|()| chdir("/"));
    entered.with_context(|| format!("{HOST_ROOT}: cannot make {} the root directory", root.display()))
}
