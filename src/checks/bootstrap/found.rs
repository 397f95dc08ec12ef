//! What is said of a Node on its way: findings and their sentences.

use crate::{
    bootstrap::{Progress, Stage, Standing},
    health::{Finding, MAX_MESSAGE_BYTES, Reason, bounded},
};

pub(super) fn arrived() -> Finding {
    Finding {
        reason: Reason::NodeIsBootstrapped,
        message: "the node has become of use".to_owned(),
    }
}

pub(super) fn on_its_way(how: &str) -> Finding {
    let message = format!("the node is on its way from boot to being of use; {how}");
    Finding {
        reason: Reason::NodeBootstrapping,
        message: bounded(&message, MAX_MESSAGE_BYTES),
    }
}

pub(super) fn stuck(stage: Stage, progress: &Progress) -> String {
    let seen = progress.get(stage).words();
    let cause = progress.cause.as_ref().map_or_else(String::new, |cause| {
        format!("; probable cause {}: {}", cause.id, cause.message)
    });
    format!("stuck at {}: {seen}{cause}", stage.name())
}

/// The reason for a stage that is stuck; none if nothing is known against it.
pub(super) fn reason(stage: Stage, standing: &Standing) -> Option<Reason> {
    if !matches!(standing, Standing::Waiting(_)) {
        return None;
    }
    Some(match stage {
        Stage::Runtime => Reason::BootstrapStuckAtRuntime,
        Stage::Instance | Stage::CloudInit | Stage::Kubelet => Reason::BootstrapStuckAtKubelet,
        Stage::Tls | Stage::Registered => Reason::BootstrapStuckAtCredential,
        Stage::CloudController => Reason::BootstrapStuckAtCloudController,
        Stage::Network => Reason::BootstrapStuckAtNetwork,
        Stage::Csi => Reason::BootstrapStuckAtVolumes,
        Stage::Ready | Stage::Serving => Reason::BootstrapStuckAtReady,
    })
}
