//! The reasons of `NodeBootstrapped`.

use std::time::Duration;

use super::{ConditionType, DEGRADED, Enter, GOOD, Leave, Of, Reason, ReasonSpec, UNSURE};

const OF: Of = Of(Some(ConditionType::NodeBootstrapped));

/// The deadline as it is by default; the check counts it, as configured.
const LATE: (Enter, Leave) = (Enter::After(Duration::from_mins(10)), Leave::Refined);

pub(super) const TABLE: &[ReasonSpec] = &[
    OF.row(
        Reason::NodeIsBootstrapped,
        "NodeIsBootstrapped",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The node has become of use: Ready, without a start-up taint, initialised by its cloud controller where one is expected. It stays so as long as the Node exists, whatever befalls it later.",
    ),
    OF.row(
        Reason::NodeBootstrapping,
        "NodeBootstrapping",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "The node is on its way from boot to being of use, and has time left; or it is late and what it waits for cannot be told. The message names the stage.",
    ),
    OF.row(
        Reason::BootstrapStuckAtRuntime,
        "BootstrapStuckAtRuntime",
        DEGRADED,
        LATE,
        "The deadline ([bootstrap] deadline_secs, from the Node's creation) has passed, and the container runtime does not answer at the kubelet's endpoint.",
    ),
    OF.row(
        Reason::BootstrapStuckAtKubelet,
        "BootstrapStuckAtKubelet",
        DEGRADED,
        LATE,
        "The deadline has passed, and the kubelet, which has made the Node, does not run or answer.",
    ),
    OF.row(
        Reason::BootstrapStuckAtCredential,
        "BootstrapStuckAtCredential",
        DEGRADED,
        LATE,
        "The deadline has passed, and the kubelet has no credential that is good now.",
    ),
    OF.row(
        Reason::BootstrapStuckAtCloudController,
        "BootstrapStuckAtCloudController",
        DEGRADED,
        LATE,
        "The deadline has passed, and no cloud controller has initialised the Node: it does not come, or nothing tells it to (CL001, CL004).",
    ),
    OF.row(
        Reason::BootstrapStuckAtNetwork,
        "BootstrapStuckAtNetwork",
        DEGRADED,
        LATE,
        "The deadline has passed, and there is no network for pods: no CNI configuration, or the runtime says why not.",
    ),
    OF.row(
        Reason::BootstrapStuckAtVolumes,
        "BootstrapStuckAtVolumes",
        DEGRADED,
        LATE,
        "The deadline has passed, and a taint still waits for a driver of volumes.",
    ),
    OF.row(
        Reason::BootstrapStuckAtReady,
        "BootstrapStuckAtReady",
        DEGRADED,
        LATE,
        "The deadline has passed, and the Node is not Ready, or has a taint that somebody was to take away.",
    ),
];
