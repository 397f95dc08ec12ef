//! The names under which conditions are published: nodevigil's own names, and additionally those of a profile, which other controllers
//! know.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::ConditionType::{self, ContainerRuntimeHealthy, KubeletHealthy, NodeKernelHealthy, NodeStorageHealthy};
use super::{Condition, Reason, Status};

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
    /// See [`Condition::flips`].
    pub flips: u32,
}

impl From<&Condition> for Published {
    fn from(condition: &Condition) -> Self {
        let Condition { kind, status, reason, message, flips } = condition.clone();
        Self { name: kind.name(), status, reason, message, flips }
    }
}

/// A row of a profile.
struct ProfileType {
    name: &'static str,
    /// The conditions of which the worst is shown; of two that are equal, the last one.
    of: &'static [ConditionType],
    /// The only reasons that count as a problem, and the reason while there is none of them; none if all reasons count.
    only: Option<(&'static [Reason], &'static str)>,
}

const EKS: &[ProfileType] = &[
    // The agent of EKS has no condition of the kubelet. By this one Karpenter replaces a node whose kubelet does not work.
    ProfileType { name: "ContainerRuntimeReady", of: &[KubeletHealthy, ContainerRuntimeHealthy], only: None },
    ProfileType { name: "StorageReady", of: &[NodeStorageHealthy], only: None },
    ProfileType { name: "KernelReady", of: &[NodeKernelHealthy], only: None },
];

const NPD: &[ProfileType] = &[
    ProfileType { name: "KubeletUnhealthy", of: &[KubeletHealthy], only: None },
    ProfileType { name: "ContainerRuntimeUnhealthy", of: &[ContainerRuntimeHealthy], only: None },
    ProfileType {
        name: "ReadonlyFilesystem",
        of: &[NodeStorageHealthy],
        only: Some((&[Reason::FilesystemReadOnly], "FilesystemIsNotReadOnly")),
    },
    ProfileType {
        name: "FrequentKubeletRestart",
        of: &[KubeletHealthy],
        only: Some((&[Reason::KubeletCrashLooping], "NoFrequentKubeletRestart")),
    },
];

/// Translates conditions to those that are written on the Node.
#[derive(Debug)]
pub struct Translator {
    profile: Profile,
    /// The last status of each type of the profile, and how often it has changed.
    flips: HashMap<&'static str, (Status, u32)>,
}

impl Translator {
    pub fn new(profile: Profile) -> Self {
        Self { profile, flips: HashMap::new() }
    }

    /// What is written on the Node for these conditions, which are all at one moment. A type is left out until each of its conditions is
    /// known.
    pub fn translate(&mut self, conditions: &[Condition]) -> Vec<Published> {
        let (types, problem_status): (&[ProfileType], _) = match self.profile {
            Profile::Native => (&[], Status::False),
            Profile::Eks => (EKS, Status::False),
            Profile::Npd => (NPD, Status::True),
        };
        let mut published: Vec<_> = conditions.iter().map(Published::from).collect();
        for mut shown in types.iter().filter_map(|row| row.translate(conditions, problem_status)) {
            let (last, flips) = self.flips.entry(shown.name).or_insert((shown.status, 0));
            *flips += u32::from(*last != shown.status);
            *last = shown.status;
            shown.flips = *flips;
            published.push(shown);
        }
        published
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
        let (mut reason, mut message) = (worst.reason.clone(), worst.message.clone());
        let mut is_problem = worst.is_problem();
        if let Some((reasons, otherwise)) = self.only
            && worst.status != Status::Unknown
        {
            is_problem &= reasons.iter().any(|counts| counts.spec().name == worst.reason);
            if !is_problem {
                otherwise.clone_into(&mut reason);
                message = format!("{} is {} ({})", worst.kind.name(), worst.status.name(), worst.reason);
            }
        }
        let status = match (worst.status, is_problem) {
            (Status::Unknown, _) => Status::Unknown,
            (_, true) => problem_status,
            (_, false) => problem_status.opposite(),
        };
        Some(Published { name: self.name, status, reason, message, flips: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(reason: Reason, kind: ConditionType) -> Condition {
        let spec = reason.spec();
        Condition { kind, status: spec.status, reason: spec.name.into(), message: "m".into(), flips: 0 }
    }

    fn conditions(reasons: &[Reason]) -> Vec<Condition> {
        reasons.iter().map(|reason| condition(*reason, reason.spec().condition.unwrap_or(KubeletHealthy))).collect()
    }

    /// Name, status and reason of what the profile adds for conditions with these reasons.
    fn added(profile: Profile, reasons: &[Reason]) -> Vec<String> {
        let published = Translator::new(profile).translate(&conditions(reasons));
        let added = published.iter().skip(reasons.len());
        added.map(|one| format!("{}={} {}", one.name, one.status.name(), one.reason)).collect()
    }

    #[test]
    fn without_a_profile_a_condition_is_written_under_its_own_name() {
        let all = conditions(&[Reason::KubeletCrashed, Reason::MemoryRunsOut]);
        let published = Translator::new(Profile::Native).translate(&all);
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
            ["KubeletUnhealthy=True KubeletCrashed", "FrequentKubeletRestart=False NoFrequentKubeletRestart"]
        );
        assert_eq!(
            of(&[Reason::KubeletCrashLooping]),
            ["KubeletUnhealthy=True KubeletCrashLooping", "FrequentKubeletRestart=True KubeletCrashLooping"]
        );
        assert_eq!(
            of(&[Reason::NodePaused]),
            ["KubeletUnhealthy=Unknown NodePaused", "FrequentKubeletRestart=Unknown NodePaused"]
        );
        assert_eq!(of(&[Reason::StorageFull]), ["ReadonlyFilesystem=False FilesystemIsNotReadOnly"]);
        assert_eq!(of(&[Reason::FilesystemReadOnly]), ["ReadonlyFilesystem=True FilesystemReadOnly"]);
        assert_eq!(of(&[Reason::ContainerRuntimeHung]), ["ContainerRuntimeUnhealthy=True ContainerRuntimeHung"]);
    }

    #[test]
    fn only_changes_of_its_own_status_count_as_flips() {
        let mut translator = Translator::new(Profile::Npd);
        let mut flips = |reason: Reason| {
            let published = translator.translate(&conditions(&[reason]));
            [published[1].flips, published[2].flips]
        };
        assert_eq!(flips(Reason::KubeletIsHealthy), [0, 0]);
        assert_eq!(flips(Reason::KubeletCrashed), [1, 0]);
        assert_eq!(flips(Reason::KubeletIsHealthy), [2, 0]);
        assert_eq!(flips(Reason::KubeletCrashLooping), [3, 1]);
    }

    #[test]
    fn no_profile_has_a_name_that_others_own() {
        let others = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Suspended"];
        for row in EKS.iter().chain(NPD) {
            assert!(!others.contains(&row.name) && ConditionType::by_name(row.name).is_none(), "{}", row.name);
            for reason in row.only.iter().flat_map(|(reasons, _)| *reasons) {
                let spec = reason.spec();
                assert!(
                    row.of.iter().any(|kind| spec.condition == Some(*kind) && spec.status == kind.problem_status())
                );
            }
        }
    }
}
