//! The reasons of `ContainerRuntimeHealthy`.

use super::{
    ConditionType, DEGRADED, Enter, FAILED, GOOD, Leave, Of, Reason, ReasonSpec, START_GRACE,
    UNSURE, WARNING, Witness as W,
};
use crate::health::timing::Samples;

/// Questions over CRI that make a problem. (The field's own: NPD takes one, gardener-node-agent a minute of them; one
/// alone has killed healthy runtimes under load, kubernetes/kubernetes#125228.)
pub const CRI_PROBES: Samples = Samples {
    bad: 3,
    of: 3,
    what: "failed questions over CRI",
};

const OF: Of = Of(Some(ConditionType::ContainerRuntimeHealthy));

pub(super) const TABLE: &[ReasonSpec] = &[
    OF.row(
        Reason::ContainerRuntimeIsHealthy,
        "ContainerRuntimeIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The container runtime lives and answers over CRI.",
    ),
    OF.row(
        Reason::ContainerRuntimeSlow,
        "ContainerRuntimeSlow",
        WARNING,
        (Enter::Sampled(CRI_PROBES), Leave::MinimumHold),
        "The container runtime does not answer over CRI in time while every task of the host waits for its disks. After two minutes it is judged as if they did not.",
    ),
    OF.row(
        Reason::ContainerRuntimeNotFound,
        "ContainerRuntimeNotFound",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "There is no container runtime to watch: its unit has not been started since boot, it ended before nodevigil watched it, or what listens does not speak CRI and the kubelet has not said that it is its own.",
    ),
    OF.row(
        Reason::ContainerRuntimeStarting,
        "ContainerRuntimeStarting",
        UNSURE,
        (Enter::AtOnce, Leave::Within(START_GRACE)),
        "The container runtime's process is young and has not answered yet.",
    ),
    OF.row(
        Reason::ContainerRuntimeStoppedByOperator,
        "ContainerRuntimeStoppedByOperator",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "The container runtime's process is gone and systemd had a stop job for its unit (systemctl stop, a shutdown): that is no fault.",
    ),
    OF.row(
        Reason::ContainerRuntimeProbeFailed,
        "ContainerRuntimeProbeFailed",
        UNSURE,
        (Enter::Sampled(CRI_PROBES), Leave::MinimumHold),
        "The container runtime could not be asked: the helper is away, or may not open its socket; or a connection to it is refused though the kernel's list of sockets has a listener there. That says nothing of the runtime.",
    ),
    OF.row(
        Reason::ContainerRuntimeDown,
        "ContainerRuntimeDown",
        FAILED,
        (Enter::AtOnce, Leave::Refined),
        "The container runtime's process is gone and nobody had asked for that, or nobody listens at its socket, as a connection that is refused and the kernel's list of sockets say. Pods that run go on; none can be started, stopped or looked at.",
    ).seen_by(&[
        &[W::ProcessEnd, W::SystemdResult, W::Probes],
        &[W::ProcessEnd, W::SystemdResult, W::Sockets],
    ]),
    OF.row(
        Reason::ContainerRuntimeOOMKilled,
        "ContainerRuntimeOOMKilled",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kernel killed the container runtime because memory ran out: the host's, or that of a cgroup with a limit.",
    ).seen_by(&[&[W::OomRecord, W::SystemdResult]]),
    OF.row(
        Reason::ContainerRuntimeHung,
        "ContainerRuntimeHung",
        DEGRADED,
        (Enter::Sampled(CRI_PROBES), Leave::HealthySpell),
        "The container runtime's process lives and takes connections, but does not answer over CRI in time, and it is stopped or stuck in the kernel (state T or D).",
    ).seen_by(&[&[W::Probes], &[W::ProcessState]]),
    OF.row(
        Reason::ContainerRuntimeSilent,
        "ContainerRuntimeSilent",
        UNSURE,
        (Enter::Sampled(CRI_PROBES), Leave::MinimumHold),
        "The container runtime's process lives and takes connections, but does not answer over CRI in time, and nothing else says whether it works: its process is neither stopped nor stuck (state T or D).",
    ),
    OF.row(
        Reason::ContainerRuntimeNotReady,
        "ContainerRuntimeNotReady",
        DEGRADED,
        (Enter::Sampled(CRI_PROBES), Leave::HealthySpell),
        "The container runtime answers over CRI that it is not ready (RuntimeReady), or answers with an error, and the kubelet says so too: its Node is not Ready for that. (Without its CRI plugin the kubelet cannot work with it.) That the network is not ready (NetworkReady) is not the runtime's fault.",
    ).seen_by(&[&[W::RuntimeStatus], &[W::NodeStatus]]),
    OF.row(
        Reason::ContainerRuntimeUnconfirmed,
        "ContainerRuntimeUnconfirmed",
        UNSURE,
        (Enter::Sampled(CRI_PROBES), Leave::MinimumHold),
        "The container runtime answers over CRI that it is not ready (RuntimeReady), or answers with an error, and the Node does not say that the kubelet has met that too: it says so within 40 s, if it runs and reaches the API server.",
    ),
];
