//! The reasons of `KubeletHealthy`.

use super::{
    ASIDE, Badness, ConditionType, DEGRADED, Enter, FAILED, GOOD, LEASE_LOOKS, Leave, PROBES,
    Reason, ReasonSpec, START_GRACE, UNSURE, WARNING, spec,
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
        (Enter::Sampled(PROBES), Leave::AtOnce),
        "The kubelet's healthz times out while the host leaves it no time to run, so it is not called hung: processor (`[kubelet] starved_cpu_percent`, `starved_wait_percent`) or memory (`starved_memory_percent`) is short. It is over when five probes in a row were answered.",
    ),
    row(
        Reason::KubeletAPIConnectionStalled,
        "KubeletAPIConnectionStalled",
        DEGRADED,
        (Enter::Sampled(LEASE_LOOKS), Leave::HealthySpell),
        "The kubelet's healthz answers and the API server answers nodevigil, but the kubelet does not renew its Lease. A connection that is half open heals by itself after 45 s with kubelets since 1.22; if this lasts, something between the two lets the kubelet's packets not through, or the API server refuses it.",
    ),
    row(
        Reason::KubeletClientCertExpired,
        "KubeletClientCertExpired",
        FAILED,
        (Enter::WhenRead, Leave::HealthySpell),
        "The certificate that the kubelet shows to the API server has expired: the API server refuses it, and the kubelet exits.",
    ),
    row(
        Reason::KubeletClientCertNotYetValid,
        "KubeletClientCertNotYetValid",
        DEGRADED,
        (Enter::WhenRead, Leave::HealthySpell),
        "The certificate that the kubelet shows to the API server is not valid yet, by this machine's clock: the clock or the certificate is wrong.",
    ),
    row(
        Reason::KubeletClientCertExpiring,
        "KubeletClientCertExpiring",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "The certificate that the kubelet shows to the API server is about to expire, and nothing has renewed it: within `[kubelet] certificate_expiring_hours`, or when the last tenth of its life has begun, if that is later.",
    ),
    row(
        Reason::KubeletNothingBeside,
        "KubeletNothingBeside",
        ASIDE,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet's certificate or its connection to the API server is well. Never shown by itself: what the kubelet's own check says is.",
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
