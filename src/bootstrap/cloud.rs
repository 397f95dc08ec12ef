//! Whether the cloud controller has initialised the Node, and if not, whose turn it is: the place of the incident that
//! started this project.
//!
//! ```text
//! the taint is there?  ─ yes ─ the controller's turn (CP005, if it lasts)
//!   └ no ─ providerID? ─ yes ─ initialised
//!       └ no ─ does the kubelet have --cloud-provider=external?
//!           ├ yes ─ the Node is older than the flag: delete it (CL004)
//!           └ no ── does anybody want it? ─ yes ─ the flag was lost (CL001)
//!               └ no ─ there is no cloud controller
//! ```

use super::evidence::{HostSeen, NodeWords};
use crate::rules::UNINITIALIZED;

/// How the Node stands with the cloud controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    /// Nobody expects one.
    NotExpected,
    /// It is not known whether anybody does, since the kubelet's arguments are not.
    Unknown,
    /// It has the Node's `spec.providerID`, and no taint is left.
    Initialised,
    /// The taint waits for the controller.
    Waits,
    /// The kubelet has the flag, and the Node was created without: nobody will initialise it.
    RegisteredBefore,
    /// The flag was to be there and does not reach the kubelet: nobody will initialise the Node.
    FlagLost,
}

/// Judges a Node by what the host's files say of its kubelet.
pub fn judge(node: &NodeWords, host: &HostSeen) -> Cloud {
    if node.taints.iter().any(|taint| taint == UNINITIALIZED) {
        return Cloud::Waits;
    }
    if node.provider_id.is_some() {
        return Cloud::Initialised;
    }
    let is_wanted = host.wants_external || host.findings.iter().any(|one| one.rule == "CL001");
    match host.external {
        Some(true) => Cloud::RegisteredBefore,
        _ if !is_wanted => Cloud::NotExpected,
        Some(false) => Cloud::FlagLost,
        None => Cloud::Unknown,
    }
}
