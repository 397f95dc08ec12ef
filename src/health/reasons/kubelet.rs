//! The reasons of `KubeletHealthy`.

use super::{
    Badness, ConditionType, DEGRADED, Enter, FAILED, GOOD, Leave, PROBES, Reason, ReasonSpec,
    START_GRACE, UNSURE, WARNING, spec,
};

pub(super) const TABLE: &[ReasonSpec] = &[
    row(
        Reason::KubeletIsHealthy,
        "KubeletIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet's process lives and its healthz answers 200.",
    ),
    row(
        Reason::KubeletNotFound,
        "KubeletNotFound",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "There is no kubelet to watch: its unit is not installed or was never started, or more than one process could be it.",
    ),
    row(
        Reason::KubeletStarting,
        "KubeletStarting",
        UNSURE,
        (Enter::AtOnce, Leave::Within(START_GRACE)),
        "The kubelet's process is young and its healthz has not answered yet.",
    ),
    row(
        Reason::KubeletStoppedByOperator,
        "KubeletStoppedByOperator",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet's process is gone and systemd had a stop job for its unit (systemctl stop, a shutdown): that is no fault.",
    ),
    row(
        Reason::KubeletProbeFailed,
        "KubeletProbeFailed",
        UNSURE,
        (Enter::Sampled(PROBES), Leave::MinimumHold),
        "The kubelet's process lives, but its healthz could not be asked: the probe itself failed, or its address is not known.",
    ),
    row(
        Reason::KubeletGone,
        "KubeletGone",
        FAILED,
        (Enter::AtOnce, Leave::Refined),
        "The kubelet's process is gone, nobody had asked for that, and systemd has not said how it ended.",
    ),
    row(
        Reason::KubeletCrashed,
        "KubeletCrashed",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kubelet's process ended by a signal or with an exit code other than 0, and nobody had asked for that.",
    ),
    row(
        Reason::KubeletExitedClean,
        "KubeletExitedClean",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kubelet exited with code 0 and nobody had asked for that; with Restart=on-failure it stays away for ever.",
    ),
    row(
        Reason::KubeletHung,
        "KubeletHung",
        DEGRADED,
        (Enter::Sampled(PROBES), Leave::HealthySpell),
        "The kubelet's process lives, but probes of its healthz time out.",
    ),
    row(
        Reason::KubeletHealthzDown,
        "KubeletHealthzDown",
        DEGRADED,
        (Enter::Sampled(PROBES), Leave::HealthySpell),
        "The kubelet's process lives, but its healthz refuses probes or answers them with an error.",
    ),
    row(
        Reason::KubeletCrashLooping,
        "KubeletCrashLooping",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kubelet has ended three times or more within five minutes, and nobody had asked for that.",
    ),
    row(
        Reason::KubeletStartLimitHit,
        "KubeletStartLimitHit",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "systemd has given up starting the kubelet (Result=start-limit-hit): it stays away until somebody starts it.",
    ),
    row(
        Reason::KubeletStarved,
        "KubeletStarved",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet answers late or not at all because the host leaves it no time to run: no fault of its own.",
    ),
];

const fn row(
    reason: Reason,
    name: &'static str,
    badness: Badness,
    timing: (Enter, Leave),
    doc: &'static str,
) -> ReasonSpec {
    spec(
        Some(ConditionType::KubeletHealthy),
        reason,
        name,
        (badness, timing),
        doc,
    )
}
