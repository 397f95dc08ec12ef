//! The table of reasons, worst first within a condition. `nodevigil explain` prints it.

use super::{
    ConditionType::{self, KubeletHealthy},
    ReasonSpec, Remedy, Status,
};

/// One row a reason: name, condition, status, whether it is sampled, the remedy, whether it can outlive a reboot, its meaning.
macro_rules! reasons {
    ($($name:ident: $condition:expr, $status:ident, $sampled:literal, $remedy:ident, $survives_boot:literal, $meaning:literal;)*) => {
        /// Why a condition is as it is. Of two reasons the smaller one is worse.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum Reason { $($name),* }

        impl Reason {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The reason's row.
            pub const fn spec(self) -> &'static ReasonSpec {
                match self {
                    $(Self::$name => &ReasonSpec {
                        name: stringify!($name), condition: $condition, status: Status::$status, sampled: $sampled,
                        remedy: Remedy::$remedy, survives_boot: $survives_boot, meaning: $meaning,
                    }),*
                }
            }
        }
    };
}

const KUBELET: Option<ConditionType> = Some(KubeletHealthy);
/// Every condition can have it.
const ANY: Option<ConditionType> = None;

#[rustfmt::skip]
reasons! {
    // reason: condition, status, sampled, remedy, survives a boot, meaning
    KubeletOOMKilled: KUBELET, False, false, Restart, false, "The kernel OOM-killed the kubelet, for the host's memory or for a limit of its cgroup.";
    KubeletCrashLooping: KUBELET, False, false, Restart, false, "The kubelet ended three times within 5 minutes or five times within 30, or systemd's start limit was hit.";
    KubeletCrashed: KUBELET, False, false, Restart, false, "The kubelet's process ended, and no stop job was queued for its unit.";
    KubeletStoppedWithDependency: KUBELET, False, false, Restart, false, "systemd stopped the kubelet because the service that it is bound to (BindsTo=) failed, and has not started it again.";
    KubeletUnkillable: KUBELET, False, true, Reboot, false, "The kubelet does not answer and does not end: a thread waits in the kernel (state D), or the process outlived SIGKILL.";
    KubeletHung: KUBELET, False, true, Restart, false, "Three probes of /healthz in a row failed, and the kubelet's process state, its listening socket or its Lease confirms that it does not work.";
    KubeletStoppedByOperator: KUBELET, Unknown, false, None, false, "systemd had a stop job for the kubelet's unit: systemctl stop, a shutdown or a package.";
    KubeletNotFound: KUBELET, Unknown, false, None, false, "No kubelet runs, and none ended while nodevigil watched.";
    KubeletStarting: KUBELET, Unknown, false, None, false, "The kubelet's unit is starting, or the kubelet has not answered yet.";
    KubeletHealthzSilent: KUBELET, Unknown, true, None, false, "Three probes of /healthz in a row failed, and nothing else says whether the kubelet works.";
    KubeletHealthzUnreachable: KUBELET, True, true, None, false, "Three probes of /healthz in a row failed, but the kubelet renews its Lease: something such as a firewall is in the way.";
    KubeletStarved: KUBELET, True, true, None, false, "Three probes of /healthz in a row failed, but the host's load keeps the kubelet from running.";
    KubeletIsHealthy: KUBELET, True, false, None, false, "The kubelet runs and /healthz answers 200.";
    NodePaused: ANY, Unknown, false, None, false, "`nodevigil pause` is in effect: a problem is not published as False.";
    NodeJustStarted: ANY, Unknown, false, None, false, "The host booted or the Node was created less than two minutes ago: a sampled problem is not published as False yet.";
    MonitorSilent: ANY, Unknown, false, None, false, "The monitor has not reported for a minute.";
    NodevigilStopped: ANY, Unknown, false, None, false, "nodevigil was stopped; before that the condition was False.";
}

impl Reason {
    /// The reason of that name, for conditions that an earlier run of the agent published.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.spec().name == name)
    }

    /// The reason of a condition without a problem: the last row of the table that is of this condition.
    pub fn healthy(condition: ConditionType) -> Self {
        let mut rows = Self::ALL.iter().rev().copied().filter(|reason| reason.spec().condition == Some(condition));
        rows.next().expect("every condition has a row in the table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_ends_with_health_and_every_problem_has_a_remedy() {
        for kind in ConditionType::ALL {
            assert_eq!(Reason::healthy(*kind).spec().status, Status::True);
        }
        for reason in Reason::ALL {
            let spec = reason.spec();
            assert_eq!(spec.status == Status::False, spec.remedy != Remedy::None, "{}", spec.name);
            assert_eq!(Reason::by_name(spec.name), Some(*reason));
            assert!(spec.status != Status::False || spec.condition.is_some(), "{}", spec.name);
        }
    }
}
