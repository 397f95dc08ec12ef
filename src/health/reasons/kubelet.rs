//! The reasons of `KubeletHealthy`.

use super::{
    ASIDE, ConditionType, DEGRADED, Enter, FAILED, GOOD, LEASE_LOOKS, Leave, Of, OneOf, PROBES,
    Reason, ReasonSpec, START_GRACE, UNKILLABLE_AFTER, UNSURE, WARNING, Witness as W,
};

/// What may be learnt of an end only a moment after it.
const ENDS_THAT_SAY_MORE: &[Reason] = &[
    Reason::KubeletOOMKilled,
    Reason::KubeletWatchdogKilled,
    Reason::KubeletCrashLooping,
    Reason::KubeletStartLimitHit,
];

const OF: Of = Of(Some(ConditionType::KubeletHealthy));

/// Of a kubelet that does not answer.
const SILENT: &[OneOf] = &[&[W::Probes], &[W::ProcessState, W::Sockets, W::Lease]];

pub(super) const TABLE: &[ReasonSpec] = &[
    OF.row(
        Reason::KubeletIsHealthy,
        "KubeletIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet's process lives and its healthz answers 200.",
    ),
    OF.row(
        Reason::KubeletNotFound,
        "KubeletNotFound",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "There is no kubelet to watch: its unit is not installed or was never started, or more than one process could be it.",
    ),
    OF.row(
        Reason::KubeletStarting,
        "KubeletStarting",
        UNSURE,
        (Enter::AtOnce, Leave::Within(START_GRACE)),
        "The kubelet's process is young and its healthz has not answered yet.",
    ),
    OF.row(
        Reason::KubeletStoppedByOperator,
        "KubeletStoppedByOperator",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet's process is gone and systemd had a stop job for its unit (systemctl stop, a shutdown), or for a unit that it is stopped with: that is no fault.",
    ),
    OF.row(
        Reason::KubeletAwaitsDependency,
        "KubeletAwaitsDependency",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "systemd stopped the kubelet with a unit that it depends on (BindsTo=, Requires=, PartOf=, Conflicts=), that unit is back or has ended by itself, and the kubelet may take [kubelet] start_grace_secs to come back.",
    ),
    OF.row(
        Reason::KubeletStoppedWithDependency,
        "KubeletStoppedWithDependency",
        FAILED,
        (Enter::After(START_GRACE), Leave::HealthySpell),
        "systemd stopped the kubelet with a unit that it depends on (BindsTo=, Requires=, PartOf=, Conflicts=), and nothing has started it within [kubelet] start_grace_secs since that unit was active again or ended by itself: nobody asked for that, and it stays away until somebody starts it. While the other unit is down by a stop job of its own, the kubelet is KubeletStoppedByOperator. Witnesses: the end of the kubelet's pidfd, and systemd's jobs and states of both units.",
    ).seen_by(&[&[W::ProcessEnd], &[W::SystemdJobs]]),
    OF.row(
        Reason::KubeletProbeFailed,
        "KubeletProbeFailed",
        UNSURE,
        (Enter::Sampled(PROBES), Leave::MinimumHold),
        "The kubelet's process lives, but its healthz could not be asked: the probe itself failed, or its address is not known.",
    ),
    OF.row(
        Reason::KubeletGone,
        "KubeletGone",
        FAILED,
        (Enter::AtOnce, Leave::Refined),
        "The kubelet's process is gone, nobody had asked for that, and systemd has not said how it ended.",
    ).seen_by(&[&[W::ProcessEnd]]),
    OF.row(
        Reason::KubeletCrashed,
        "KubeletCrashed",
        FAILED,
        (Enter::AtOnce, Leave::RefinedBy(ENDS_THAT_SAY_MORE)),
        "The kubelet's process ended by a signal or with an exit code other than 0, and nobody had asked for that. The message ends with its last words, as soon as its log was read.",
    ).seen_by(&[&[W::ProcessEnd]]),
    OF.row(
        Reason::KubeletExitedClean,
        "KubeletExitedClean",
        FAILED,
        (Enter::AtOnce, Leave::RefinedBy(ENDS_THAT_SAY_MORE)),
        "The kubelet exited with code 0 and nobody had asked for that; with Restart=on-failure it stays away for ever.",
    ).seen_by(&[&[W::ProcessEnd]]),
    OF.row(
        Reason::KubeletHung,
        "KubeletHung",
        DEGRADED,
        (
            Enter::Sampled(PROBES),
            Leave::RefinedBy(&[Reason::KubeletFrozen, Reason::KubeletUnkillable]),
        ),
        "The kubelet's process lives, but probes of its healthz time out, and a second witness says that it does not work: its process is stopped or stuck in the kernel (state T or D), connections wait at its port and it takes none (sock_diag), or its Lease is older than 40 s.",
    ).seen_by(SILENT),
    OF.row(
        Reason::KubeletHealthzDown,
        "KubeletHealthzDown",
        DEGRADED,
        (Enter::Sampled(PROBES), Leave::HealthySpell),
        "The kubelet's process lives, but its healthz refuses probes or answers them with an error, and a second witness says that it does not work: the kernel has no listener at its port (sock_diag), its process is stopped or stuck in the kernel (state T or D), or its Lease is older than 40 s.",
    ).seen_by(SILENT),
    OF.row(
        Reason::KubeletHealthzUnreachable,
        "KubeletHealthzUnreachable",
        WARNING,
        (Enter::Sampled(PROBES), Leave::AtOnce),
        "Probes of the kubelet's healthz fail, perhaps since it was started, but it renews its Lease: it works. A firewall on the port, or another program there, keeps the probes from it, or it says by itself that a part of it is not well (an HTTP status other than 200).",
    ),
    OF.row(
        Reason::KubeletHealthzSilent,
        "KubeletHealthzSilent",
        UNSURE,
        (Enter::Sampled(PROBES), Leave::MinimumHold),
        "Probes of the kubelet's healthz fail, and nothing else says whether it works: its process is neither stopped nor stuck, no connections wait at its port, and its Lease could not be read or was not seen to grow old.",
    ),
    OF.row(
        Reason::KubeletCrashLooping,
        "KubeletCrashLooping",
        FAILED,
        (
            Enter::AtOnce,
            Leave::RefinedBy(&[Reason::KubeletStartLimitHit]),
        ),
        "Runs of the kubelet's unit end again and again and nobody had asked for that: three within five minutes ([kubelet] crash_loop_ends, crash_loop_within_secs), counted by the unit's InvocationID; systemd's own counter begins anew at each restart by hand. The message tells the last end and the last words.",
    ).seen_by(&[&[W::ProcessEnd, W::SystemdResult]]),
    OF.row(
        Reason::KubeletStartLimitHit,
        "KubeletStartLimitHit",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "systemd has given up starting the kubelet (Result=start-limit-hit): it stays away until somebody starts it.",
    ).seen_by(&[&[W::SystemdResult]]),
    OF.row(
        Reason::KubeletWatchdogKilled,
        "KubeletWatchdogKilled",
        FAILED,
        (
            Enter::AtOnce,
            Leave::RefinedBy(&[Reason::KubeletCrashLooping, Reason::KubeletStartLimitHit]),
        ),
        "systemd killed the kubelet because it gave no sign of life within its unit's WatchdogSec= (Result=watchdog).",
    ).seen_by(&[&[W::SystemdResult]]),
    OF.row(
        Reason::KubeletOOMKilled,
        "KubeletOOMKilled",
        FAILED,
        (
            Enter::AtOnce,
            Leave::RefinedBy(&[Reason::KubeletCrashLooping, Reason::KubeletStartLimitHit]),
        ),
        "The kernel killed the kubelet for memory: its log says so (with the pid, the cgroup, and whether the host ran out or which limit was reached), or systemd does (Result=oom-kill).",
    ).seen_by(&[&[W::OomRecord, W::SystemdResult]]),
    OF.row(
        Reason::KubeletUnkillable,
        "KubeletUnkillable",
        FAILED,
        (Enter::After(UNKILLABLE_AFTER), Leave::HealthySpell),
        "The kubelet does not answer, and a thread of it has been waiting in the kernel, uninterruptible (state D), or it has outlived systemd's SIGKILL, which the kernel shows as pending for it: no signal and no restart helps, its disk or mount must answer first, or the host be rebooted.",
    ).seen_by(&[&[W::Probes], &[W::ProcessState, W::PendingSignals]]),
    OF.row(
        Reason::KubeletFrozen,
        "KubeletFrozen",
        DEGRADED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kubelet does not answer, and its cgroup is frozen by the cgroup's own file (cgroup.events, freezer.state), as by systemctl freeze: nothing thaws it by itself.",
    ).seen_by(&[&[W::Probes], &[W::Freezer]]),
    OF.row(
        Reason::KubeletStartSlow,
        "KubeletStartSlow",
        DEGRADED,
        (Enter::After(START_GRACE), Leave::HealthySpell),
        "The kubelet was started, its healthz has not answered within [kubelet] start_grace_secs, and a second witness says that it does not work, as of KubeletHung; or its unit is still busy with what comes before it, and no process is the kubelet. With a fresh Lease it is KubeletHealthzUnreachable, without any witness KubeletHealthzSilent.",
    ).seen_by(&[
        &[W::Probes, W::SystemdJobs],
        &[W::ProcessState, W::Sockets, W::Lease, W::ProcessList],
    ]),
    OF.row(
        Reason::KubeletStopStuck,
        "KubeletStopStuck",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet is to end and does not, for longer than [kubelet] stop_grace_secs. Unknown, not False: that it ends is somebody's will, and systemd kills it when the unit's TimeoutStopSec= has passed; if it outlives that, it is KubeletUnkillable.",
    ),
    OF.row(
        Reason::KubeletAwaitsJoin,
        "KubeletAwaitsJoin",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet ends again and again because it has no credentials yet, neither a kubeconfig nor one to bootstrap with, and has no Node: before kubeadm join that is by design.",
    ),
    OF.row(
        Reason::KubeletStarved,
        "KubeletStarved",
        WARNING,
        (Enter::Sampled(PROBES), Leave::AtOnce),
        "The kubelet's healthz times out, or takes no connection, while the host leaves it no time to run, so it is called neither hung nor down: processor (`[kubelet] starved_cpu_percent`, `starved_wait_percent`) or memory (`starved_memory_percent`) is short. It is over when five probes in a row were answered.",
    ),
    OF.row(
        Reason::KubeletAPIConnectionStalled,
        "KubeletAPIConnectionStalled",
        DEGRADED,
        (Enter::Sampled(LEASE_LOOKS), Leave::HealthySpell),
        "The kubelet's healthz answers and the API server answers nodevigil, but the kubelet does not renew its Lease, and a second witness says that it does not get through: nothing of what root sends there is acknowledged or root has no connection there any more (sock_diag), it has not written the Node's status for eight minutes, or the control plane has given it up. A connection that is half open heals by itself after 45 s with kubelets since 1.22; if this lasts, something between the two lets the kubelet's packets not through, or the API server refuses it.",
    ).seen_by(&[&[W::Lease], &[W::Sockets, W::NodeStatus]]),
    OF.row(
        Reason::KubeletClientCertExpired,
        "KubeletClientCertExpired",
        FAILED,
        (Enter::WhenRead, Leave::HealthySpell),
        "The certificate that the kubelet shows to the API server has expired, by this machine's clock and by the API server's: the API server refuses it, and the kubelet exits. An agent without an identity of its own speaks with that certificate, and cannot publish this.",
    ).seen_by(&[&[W::NodeClock], &[W::ClusterClock]]),
    OF.row(
        Reason::KubeletClientCertNotYetValid,
        "KubeletClientCertNotYetValid",
        DEGRADED,
        (Enter::WhenRead, Leave::HealthySpell),
        "The certificate that the kubelet shows to the API server is not valid yet, by this machine's clock and by the API server's: the API server refuses it.",
    ).seen_by(&[&[W::NodeClock], &[W::ClusterClock]]),
    OF.row(
        Reason::KubeletClientCertExpiring,
        "KubeletClientCertExpiring",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "The certificate that the kubelet shows to the API server is about to expire, and nothing has renewed it: within `[kubelet] certificate_expiring_hours`, or when the last tenth of its life has begun, if that is later.",
    ),
    OF.row(
        Reason::KubeletClientCertDoubtful,
        "KubeletClientCertDoubtful",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "By one clock the certificate that the kubelet shows to the API server has expired or is not valid yet, and the other does not say so: this machine's clock or the API server's is wrong, or the API server's is not known, because it has not answered since nodevigil was started.",
    ),
    OF.row(
        Reason::KubeletNothingBeside,
        "KubeletNothingBeside",
        ASIDE,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet's certificate or its connection to the API server is well. Never shown by itself: what the kubelet's own check says is.",
    ),
];
