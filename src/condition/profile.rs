//! The names under which conditions are published: nodevigil's own names, and additionally those of a profile, which other controllers
//! know.

use serde::{Deserialize, Serialize};

use super::ConditionType::{self, ContainerRuntimeHealthy, KubeletHealthy, NodeKernelHealthy, NodeStorageHealthy};
use super::{Condition, Reason, Status, Uptime};

/// Which names are published in addition to nodevigil's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// None.
    #[default]
    Native,
    /// Those of the EKS node monitoring agent, by which Karpenter on AWS and EKS repair nodes. Do not use it together with that agent.
    Eks,
    /// Those of node-problem-detector, with its polarity: `True` is a problem. Do not use it together with node-problem-detector.
    Npd,
}

/// A condition as it is written on the Node, without its times.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    pub name: &'static str,
    pub status: Status,
    pub reason: String,
    pub message: String,
    /// See [`Condition::since`].
    pub since: Uptime,
}

impl From<&Condition> for Published {
    fn from(condition: &Condition) -> Self {
        let Condition { kind, status, reason, message, since } = condition.clone();
        Self { name: kind.name(), status, reason, message, since }
    }
}

/// A row of a profile.
struct ProfileType {
    name: &'static str,
    /// The conditions of which the worst is shown; of two that are equal, the last one.
    of: &'static [ConditionType],
    /// The only reasons that count as a problem; all if there are none.
    only: &'static [Reason],
    /// The reasons with a problem and without one, as consumers match them; none if they are nodevigil's.
    reasons: Option<(&'static str, &'static str)>,
}

const EKS: &[ProfileType] = &[
    // The agent of EKS has no condition of the kubelet. By this one Karpenter replaces a node whose kubelet does not work.
    ProfileType {
        name: "ContainerRuntimeReady",
        of: &[KubeletHealthy, ContainerRuntimeHealthy],
        only: &[],
        reasons: None,
    },
    ProfileType { name: "StorageReady", of: &[NodeStorageHealthy], only: &[], reasons: None },
    ProfileType { name: "KernelReady", of: &[NodeKernelHealthy], only: &[], reasons: None },
];

/// Types and reasons as in <https://github.com/kubernetes/node-problem-detector/tree/master/config>. Its `KernelDeadlock` has reasons of
/// programs that few nodes have, so that one has ours.
const NPD: &[ProfileType] = &[
    ProfileType {
        name: "KubeletUnhealthy",
        of: &[KubeletHealthy],
        only: &[],
        reasons: Some(("KubeletUnhealthy", "KubeletIsHealthy")),
    },
    ProfileType {
        name: "ContainerRuntimeUnhealthy",
        of: &[ContainerRuntimeHealthy],
        only: &[],
        reasons: Some(("ContainerdUnhealthy", "ContainerRuntimeIsHealthy")),
    },
    ProfileType {
        name: "ReadonlyFilesystem",
        of: &[NodeStorageHealthy],
        only: &[Reason::FilesystemReadOnly],
        reasons: Some(("FilesystemIsReadOnly", "FilesystemIsNotReadOnly")),
    },
    ProfileType {
        name: "FrequentKubeletRestart",
        of: &[KubeletHealthy],
        only: &[Reason::KubeletCrashLooping],
        reasons: Some(("FrequentKubeletRestart", "NoFrequentKubeletRestart")),
    },
    ProfileType {
        name: "KernelDeadlock",
        of: &[NodeKernelHealthy],
        only: &[Reason::KernelDeadlocked],
        reasons: Some(("KernelDeadlocked", "KernelHasNoDeadlock")),
    },
    ProfileType {
        name: "CperHardwareErrorFatal",
        of: &[NodeKernelHealthy],
        only: &[Reason::KernelHardwareFailing],
        reasons: Some(("CperHardwareErrorFatal", "CperHardwareHasNoFatalError")),
    },
];

impl Profile {
    /// What is written on the Node for these conditions, which are all at one moment; `before` is what was written before. A type is left
    /// out until each of its conditions is known.
    pub fn translate(self, conditions: &[Condition], before: &[Published], now: Uptime) -> Vec<Published> {
        let (types, problem_status): (&[ProfileType], _) = match self {
            Self::Native => (&[], Status::False),
            Self::Eks => (EKS, Status::False),
            Self::Npd => (NPD, Status::True),
        };
        let own = conditions.iter().map(Published::from);
        let others = types.iter().filter_map(|row| row.translate(conditions, problem_status)).map(|mut shown| {
            let same = before.iter().find(|before| (before.name, before.status) == (shown.name, shown.status));
            shown.since = same.map_or(now, |before| before.since);
            shown
        });
        own.chain(others).collect()
    }
}

impl ProfileType {
    fn translate(&self, conditions: &[Condition], problem_status: Status) -> Option<Published> {
        let mut worst: Option<&Condition> = None;
        for kind in self.of {
            let condition = conditions.iter().find(|condition| condition.kind == *kind)?;
            worst = worst.filter(|worst| worst.is_worse_than(condition)).or(Some(condition));
        }
        let worst = worst?;
        let counts = self.only.is_empty() || self.only.iter().any(|counts| counts.spec().name == worst.reason);
        let is_problem = worst.is_problem() && counts;
        let (mut reason, mut message) = (worst.reason.clone(), worst.message.clone());
        if let Some((problem, healthy)) = self.reasons.filter(|_| worst.status != Status::Unknown) {
            let named = if is_problem { problem } else { healthy };
            if named != worst.reason {
                // Without a problem the message stays the same: each change is a write.
                let why = if is_problem { format!(": {message}") } else { String::new() };
                message = format!("{} is {} ({}){why}", worst.kind.name(), worst.status.name(), worst.reason);
            }
            named.clone_into(&mut reason);
        }
        let status = match (worst.status, is_problem) {
            (Status::Unknown, _) => Status::Unknown,
            (_, true) => problem_status,
            (_, false) => problem_status.opposite(),
        };
        Some(Published { name: self.name, status, reason, message, since: Uptime::ZERO })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(reason: Reason, kind: ConditionType) -> Condition {
        let spec = reason.spec();
        Condition { kind, status: spec.status, reason: spec.name.into(), message: "m".into(), since: Uptime::ZERO }
    }

    fn conditions(reasons: &[Reason]) -> Vec<Condition> {
        reasons.iter().map(|reason| condition(*reason, reason.spec().condition.unwrap_or(KubeletHealthy))).collect()
    }

    /// Name, status and reason of what the profile adds for conditions with these reasons.
    fn added(profile: Profile, reasons: &[Reason]) -> Vec<String> {
        let published = profile.translate(&conditions(reasons), &[], Uptime::ZERO);
        let added = published.iter().skip(reasons.len());
        added.map(|one| format!("{}={} {}", one.name, one.status.name(), one.reason)).collect()
    }

    #[test]
    fn without_a_profile_a_condition_is_written_under_its_own_name() {
        let all = conditions(&[Reason::KubeletCrashed, Reason::MemoryRunsOut]);
        let published = Profile::Native.translate(&all, &[], Uptime::ZERO);
        assert_eq!(published, all.iter().map(Published::from).collect::<Vec<_>>());
        assert_eq!((published[1].name, published[1].status), ("MemoryExhaustionImminent", Status::True));
    }

    #[test]
    fn the_names_of_eks_show_the_worst_of_their_conditions() {
        let of = |reasons: &[Reason]| added(Profile::Eks, reasons);
        assert!(of(&[Reason::KubeletCrashed]).is_empty(), "nothing is known of the container runtime");
        let healthy = [
            Reason::KubeletIsHealthy,
            Reason::ContainerRuntimeIsHealthy,
            Reason::StorageIsHealthy,
            Reason::KernelTroubleLogged,
        ];
        assert_eq!(
            of(&healthy),
            [
                "ContainerRuntimeReady=True ContainerRuntimeIsHealthy",
                "StorageReady=True StorageIsHealthy",
                "KernelReady=True KernelTroubleLogged"
            ]
        );
        for (kubelet, runtime, shown) in [
            (Reason::KubeletCrashed, Reason::ContainerRuntimeIsHealthy, "False KubeletCrashed"),
            (Reason::KubeletIsHealthy, Reason::ContainerRuntimeDown, "False ContainerRuntimeDown"),
            (Reason::KubeletCrashed, Reason::ContainerRuntimeNotFound, "False KubeletCrashed"),
            (Reason::KubeletNotFound, Reason::ContainerRuntimeIsHealthy, "Unknown KubeletNotFound"),
        ] {
            assert_eq!(of(&[kubelet, runtime]), [format!("ContainerRuntimeReady={shown}")]);
        }
    }

    #[test]
    fn the_names_of_node_problem_detector_have_its_polarity_and_only_their_own_reasons() {
        let of = |reasons: &[Reason]| added(Profile::Npd, reasons);
        assert_eq!(
            of(&[Reason::KubeletCrashed]),
            ["KubeletUnhealthy=True KubeletUnhealthy", "FrequentKubeletRestart=False NoFrequentKubeletRestart"]
        );
        assert_eq!(
            of(&[Reason::KubeletCrashLooping]),
            ["KubeletUnhealthy=True KubeletUnhealthy", "FrequentKubeletRestart=True FrequentKubeletRestart"]
        );
        assert_eq!(
            of(&[Reason::NodePaused]),
            ["KubeletUnhealthy=Unknown NodePaused", "FrequentKubeletRestart=Unknown NodePaused"]
        );
        assert_eq!(of(&[Reason::StorageFull]), ["ReadonlyFilesystem=False FilesystemIsNotReadOnly"]);
        assert_eq!(of(&[Reason::FilesystemReadOnly]), ["ReadonlyFilesystem=True FilesystemIsReadOnly"]);
        assert_eq!(of(&[Reason::ContainerRuntimeHung]), ["ContainerRuntimeUnhealthy=True ContainerdUnhealthy"]);
        let kernel = |deadlock: &str, hardware: &str| {
            [format!("KernelDeadlock={deadlock}"), format!("CperHardwareErrorFatal={hardware}")]
        };
        let (no_deadlock, no_error) = ("False KernelHasNoDeadlock", "False CperHardwareHasNoFatalError");
        assert_eq!(of(&[Reason::KernelIsHealthy]), kernel(no_deadlock, no_error));
        assert_eq!(of(&[Reason::KernelDeadlocked]), kernel("True KernelDeadlocked", no_error));
        assert_eq!(of(&[Reason::KernelHardwareFailing]), kernel(no_deadlock, "True CperHardwareErrorFatal"));
        assert_eq!(of(&[Reason::KernelLockedUp]), kernel(no_deadlock, no_error));
    }

    #[test]
    fn a_name_of_a_profile_has_the_time_of_its_own_last_change() {
        let mut published = Vec::new();
        let mut since = |reason: Reason, secs| {
            published = Profile::Npd.translate(&conditions(&[reason]), &published, Uptime::from_secs(secs));
            [published[1].since.as_secs(), published[2].since.as_secs()]
        };
        assert_eq!(since(Reason::KubeletIsHealthy, 1), [1, 1]);
        assert_eq!(since(Reason::KubeletCrashed, 2), [2, 1]);
        assert_eq!(since(Reason::KubeletCrashLooping, 3), [2, 3]);
        assert_eq!(since(Reason::KubeletIsHealthy, 4), [4, 4]);
    }

    #[test]
    fn no_profile_has_a_name_that_others_own() {
        let others = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Suspended"];
        for row in EKS.iter().chain(NPD) {
            assert!(!others.contains(&row.name) && ConditionType::by_name(row.name).is_none(), "{}", row.name);
            for reason in row.only {
                let spec = reason.spec();
                assert!(
                    row.of.iter().any(|kind| spec.condition == Some(*kind) && spec.status == kind.problem_status())
                );
            }
        }
    }
}
