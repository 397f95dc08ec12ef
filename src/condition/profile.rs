//! The names under which conditions are published: nodevigil's own, and those of a profile, which other controllers know, in addition or
//! instead.

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
    /// What the message of a problem that counts contains.
    with: &'static str,
    /// The reasons with a problem and without one, as consumers match them; none if they are nodevigil's.
    reasons: Option<Pair>,
}

type Pair = (&'static str, &'static str);

const fn eks(name: &'static str, of: &'static [ConditionType]) -> ProfileType {
    ProfileType { name, of, only: &[], with: "", reasons: None }
}

const fn npd(name: &'static str, of: &'static [ConditionType], only: &'static [Reason], reasons: Pair) -> ProfileType {
    ProfileType { name, of, only, with: "", reasons: Some(reasons) }
}

const EKS: &[ProfileType] = &[
    // The agent of EKS has no condition of the kubelet. By this one Karpenter replaces a node whose kubelet does not work.
    eks("ContainerRuntimeReady", &[KubeletHealthy, ContainerRuntimeHealthy]),
    eks("StorageReady", &[NodeStorageHealthy]),
    eks("KernelReady", &[NodeKernelHealthy]),
];

/// Types and reasons as in <https://github.com/kubernetes/node-problem-detector/tree/master/config>. The reasons of its `KernelDeadlock`
/// are of programs that few nodes have, so that one has ours.
#[rustfmt::skip]
const NPD: &[ProfileType] = &[
    npd("KubeletUnhealthy", &[KubeletHealthy], &[], ("KubeletUnhealthy", "KubeletIsHealthy")),
    npd("ContainerRuntimeUnhealthy", &[ContainerRuntimeHealthy], &[], ("ContainerdUnhealthy", "ContainerRuntimeIsHealthy")),
    npd("ReadonlyFilesystem", &[NodeStorageHealthy], &[Reason::FilesystemReadOnly], ("FilesystemIsReadOnly", "FilesystemIsNotReadOnly")),
    npd("FrequentKubeletRestart", &[KubeletHealthy], &[Reason::KubeletCrashLooping], ("FrequentKubeletRestart", "NoFrequentKubeletRestart")),
    npd("FrequentContainerdRestart", &[ContainerRuntimeHealthy], &[Reason::ContainerRuntimeCrashLooping], ("FrequentContainerdRestart", "NoFrequentContainerdRestart")),
    npd("KernelDeadlock", &[NodeKernelHealthy], &[Reason::KernelDeadlocked], ("KernelDeadlocked", "KernelHasNoDeadlock")),
    npd("CperHardwareErrorFatal", &[NodeKernelHealthy], &[Reason::KernelHardwareFailing], ("CperHardwareErrorFatal", "CperHardwareHasNoFatalError")),
    // After an error of its journal or its metadata XFS shuts down: every write fails. The monitor names the file system's type.
    ProfileType { with: "(xfs, ", ..npd("XfsShutdown", &[NodeStorageHealthy], &[Reason::StorageIOError], ("XfsHasShutdown", "XfsHasNotShutDown")) },
];

/// Whether the profile `npd` has a type of this name.
pub fn is_of_npd(name: &str) -> bool {
    NPD.iter().any(|row| row.name == name)
}

/// Whether a profile has a type of this name.
pub fn adds(name: &str) -> bool {
    is_of_npd(name) || EKS.iter().any(|row| row.name == name)
}

/// Under which names conditions are written on the Node.
#[derive(Debug, Clone, Copy)]
pub struct ConditionNames {
    pub profile: Profile,
    /// Whether nodevigil's own names are left out. Without a profile they never are.
    pub profile_only: bool,
}

impl ConditionNames {
    /// The profile's types, and their status while there is a problem.
    const fn types(self) -> (&'static [ProfileType], Status) {
        match self.profile {
            Profile::Native => (&[], Status::False),
            Profile::Eks => (EKS, Status::False),
            Profile::Npd => (NPD, Status::True),
        }
    }

    /// That name, if conditions are written under it.
    pub fn find(self, name: &str) -> Option<&'static str> {
        let has_native = !self.profile_only || self.profile == Profile::Native;
        let is_written = |kind: &ConditionType| match kind {
            ConditionType::Custom(_) => kind.is_published(),
            _ => has_native,
        };
        let native = ConditionType::by_name(name).filter(is_written).map(ConditionType::name);
        native.or_else(|| self.types().0.iter().map(|row| row.name).find(|row| *row == name))
    }

    /// What is written for these conditions, all of one moment. A type stays as it was written `before` until all its conditions are known.
    pub fn translate(self, conditions: &[Condition], before: &[Published], now: Uptime) -> Vec<Published> {
        let (types, problem_status) = self.types();
        let own = conditions.iter().map(Published::from).filter(|one| self.find(one.name).is_some());
        let others = types.iter().filter_map(|row| {
            let before = before.iter().find(|before| before.name == row.name);
            let Some(mut shown) = row.translate(conditions, problem_status) else { return before.cloned() };
            shown.since = before.filter(|before| before.status == shown.status).map_or(now, |before| before.since);
            Some(shown)
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
        let is_problem = worst.is_problem() && counts && worst.message.contains(self.with);
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
        let status = match worst.status {
            _ if is_problem => problem_status,
            // node-problem-detector's conditions say that there is a problem or that none is known. To machine-controller-manager
            // `Unknown` is a problem.
            Status::Unknown if problem_status == Status::False => Status::Unknown,
            _ => problem_status.opposite(),
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

    const fn alongside(profile: Profile) -> ConditionNames {
        ConditionNames { profile, profile_only: false }
    }

    /// Name, status and reason of what the profile adds for conditions with these reasons.
    fn added(profile: Profile, reasons: &[Reason]) -> Vec<String> {
        let published = alongside(profile).translate(&conditions(reasons), &[], Uptime::ZERO);
        let added = published.iter().skip(reasons.len());
        added.map(|one| format!("{}={} {}", one.name, one.status.name(), one.reason)).collect()
    }

    #[test]
    fn without_a_profile_a_condition_is_written_under_its_own_name() {
        let all = conditions(&[Reason::KubeletCrashed, Reason::MemoryRunsOut]);
        let published = alongside(Profile::Native).translate(&all, &[], Uptime::ZERO);
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
            ["KubeletUnhealthy=False NodePaused", "FrequentKubeletRestart=False NodePaused"],
            "it is never Unknown"
        );
        let storage =
            |read_only: &str, xfs: &str| [format!("ReadonlyFilesystem={read_only}"), format!("XfsShutdown={xfs}")];
        let (writable, runs) = ("False FilesystemIsNotReadOnly", "False XfsHasNotShutDown");
        assert_eq!(of(&[Reason::StorageFull]), storage(writable, runs));
        assert_eq!(of(&[Reason::FilesystemReadOnly]), storage("True FilesystemIsReadOnly", runs));
        assert_eq!(of(&[Reason::StorageIOError]), storage(writable, runs), "of another file system");
        let mut of_xfs = conditions(&[Reason::StorageIOError]);
        of_xfs[0].message = "/var/lib/kubelet (xfs, /dev/sda1) fails: write: EIO".into();
        let published = alongside(Profile::Npd).translate(&of_xfs, &[], Uptime::ZERO);
        assert_eq!((published[2].name, published[2].status), ("XfsShutdown", Status::True));
        assert_eq!(published[2].reason, "XfsHasShutdown");
        let runtime = |unhealthy: &str, frequent: &str| {
            [format!("ContainerRuntimeUnhealthy={unhealthy}"), format!("FrequentContainerdRestart={frequent}")]
        };
        assert_eq!(
            of(&[Reason::ContainerRuntimeHung]),
            runtime("True ContainerdUnhealthy", "False NoFrequentContainerdRestart")
        );
        assert_eq!(
            of(&[Reason::ContainerRuntimeCrashLooping]),
            runtime("True ContainerdUnhealthy", "True FrequentContainerdRestart")
        );
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
        let (mut published, at) = (Vec::new(), Uptime::from_secs);
        let mut since = |reason: Reason, secs| {
            published = alongside(Profile::Npd).translate(&conditions(&[reason]), &published, at(secs));
            [published[1].since, published[2].since]
        };
        assert_eq!(since(Reason::KubeletIsHealthy, 1), [1, 1].map(at));
        assert_eq!(since(Reason::KubeletCrashed, 2), [2, 1].map(at));
        assert_eq!(since(Reason::KubeletCrashLooping, 3), [2, 3].map(at));
        assert_eq!(since(Reason::KubeletIsHealthy, 4), [4, 4].map(at));
    }

    #[test]
    fn in_place_of_the_native_names_those_of_the_profile_stay_until_they_are_known() {
        let only = |profile| ConditionNames { profile, profile_only: true };
        let healthy = [Reason::KubeletIsHealthy, Reason::ContainerRuntimeIsHealthy];
        let names = |published: &[Published]| published.iter().map(|one| one.name).collect::<Vec<_>>();
        let published = only(Profile::Eks).translate(&conditions(&healthy), &[], Uptime::ZERO);
        assert_eq!(names(&published), ["ContainerRuntimeReady"]);
        let (reason, message) = ("KubeletCrashed".to_owned(), "m".to_owned());
        let since = Uptime::from_secs(1);
        let before = [Published { name: "ContainerRuntimeReady", status: Status::False, reason, message, since }];
        let later = Uptime::from_secs(9);
        assert_eq!(only(Profile::Eks).translate(&[], &before, later), before, "the agent has just started");
        let crashed = conditions(&[Reason::KubeletHung, Reason::ContainerRuntimeIsHealthy]);
        assert_eq!(only(Profile::Eks).translate(&crashed, &before, later)[0].since, since);
        assert_eq!(only(Profile::Eks).translate(&conditions(&healthy), &before, later)[0].since, later);
        let native = only(Profile::Native).translate(&conditions(&healthy), &[], Uptime::ZERO);
        assert_eq!(names(&native), ["KubeletHealthy", "ContainerRuntimeHealthy"], "without a profile");
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
