//! Whose trouble a reason is, and what would mend it: for whoever repairs nodes by our conditions.

use std::fmt;

use super::{ConditionType, Reason, Status};

/// Whether a reason can come to many nodes at once.
///
/// *Local* is said only of what lasts on one machine by itself. Whoever repairs nodes one batch after another carries what is
/// *correlated* through the whole fleet, for the next node has it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This machine's.
    Local,
    /// It may have one of these causes, which many nodes share.
    Correlated(&'static [Cause]),
}

/// What many nodes have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A configuration or an image that is rolled out.
    BadRollout,
    /// An authority or its certificates, which expire together.
    ExpiredAuthority,
    /// A storage that many machines use.
    SharedStorage,
    /// More work than the machines can bear, such as a flood of requests.
    Flood,
    /// The API server, or the way to it.
    ApiOutage,
    /// An upgrade or a failure of nodevigil itself.
    OwnUpgrade,
}

/// The least that mends the node, if it is this node's trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// Nothing that is done to the machine: never a reason to restart, reboot or replace it.
    None,
    /// A restart of the kubelet or the container runtime.
    Restart,
    /// A reboot of the host.
    Reboot,
    /// Another machine.
    Replace,
}

use Cause::{ApiOutage, BadRollout, ExpiredAuthority, Flood, OwnUpgrade, SharedStorage};
use Scope::{Correlated, Local};

impl Reason {
    /// Whose trouble it is; `None`: nobody's, all is well or it is somebody's will.
    pub fn scope(self) -> Option<Scope> {
        self.class().map(|(scope, _)| scope)
    }

    /// What would mend the node.
    pub fn remedy(self) -> Remedy {
        self.class().map_or(Remedy::None, |(_, remedy)| remedy)
    }

    fn class(self) -> Option<(Scope, Remedy)> {
        match self.condition()? {
            ConditionType::KubeletHealthy => self.of_kubelet(),
            ConditionType::KubeletConfigValid => self.of_config(),
            ConditionType::ContainerRuntimeHealthy => self.of_runtime(),
            ConditionType::NodeStorageHealthy => self.of_storage(),
            ConditionType::NodeKernelHealthy => self.of_kernel(),
            ConditionType::NodeMemoryHealthy | ConditionType::MemoryExhaustionImminent => {
                self.of_memory()
            }
            ConditionType::NodeBootstrapped => self.of_bootstrap(),
            // Our own trouble is the whole fleet's as soon as a version of ours is bad.
            ConditionType::NodevigilHealthy => {
                (self.status() != Status::True).then_some((Correlated(&[OwnUpgrade]), Remedy::None))
            }
        }
    }

    fn of_kubelet(self) -> Option<(Scope, Remedy)> {
        Some(match self {
            Self::KubeletStoppedWithDependency
            | Self::KubeletGone
            | Self::KubeletCrashed
            | Self::KubeletExitedClean
            | Self::KubeletHung
            | Self::KubeletHealthzDown
            | Self::KubeletWatchdogKilled
            // systemd thaws what it stops.
            | Self::KubeletFrozen => (Local, Remedy::Restart),
            Self::KubeletOOMKilled => (Correlated(&[Flood]), Remedy::Restart),
            Self::KubeletUnkillable => (Correlated(&[SharedStorage]), Remedy::Reboot),
            // It was restarted often enough.
            Self::KubeletCrashLooping | Self::KubeletStartLimitHit => {
                (Correlated(&[BadRollout]), Remedy::Replace)
            }
            Self::KubeletStartSlow => (Correlated(&[BadRollout, ApiOutage]), Remedy::Restart),
            Self::KubeletAPIConnectionStalled => {
                (Correlated(&[ApiOutage, ExpiredAuthority]), Remedy::Restart)
            }
            Self::KubeletClientCertExpired | Self::KubeletClientCertNotYetValid => {
                (Correlated(&[ExpiredAuthority]), Remedy::Replace)
            }
            Self::KubeletProbeFailed => (Correlated(&[OwnUpgrade]), Remedy::None),
            _ => return None,
        })
    }

    /// The next node is born with the same file.
    fn of_config(self) -> Option<(Scope, Remedy)> {
        match self {
            Self::ConfigRule(_) => Some((Correlated(&[BadRollout]), Remedy::None)),
            Self::KubeletConfigNotChecked => Some((Correlated(&[OwnUpgrade]), Remedy::None)),
            _ => None,
        }
    }

    fn of_runtime(self) -> Option<(Scope, Remedy)> {
        Some(match self {
            // Nobody counts its ends: one that ends at each start, by its configuration, is this too.
            Self::ContainerRuntimeDown | Self::ContainerRuntimeNotReady => {
                (Correlated(&[BadRollout]), Remedy::Restart)
            }
            Self::ContainerRuntimeOOMKilled => (Correlated(&[Flood]), Remedy::Restart),
            // State D: its disk must answer first.
            Self::ContainerRuntimeHung => (Correlated(&[SharedStorage]), Remedy::Reboot),
            Self::ContainerRuntimeProbeFailed => (Correlated(&[OwnUpgrade]), Remedy::None),
            _ => return None,
        })
    }

    fn of_storage(self) -> Option<(Scope, Remedy)> {
        Some(match self {
            Self::StorageFull | Self::StorageInodesExhausted => (Local, Remedy::Replace),
            Self::StorageHung => (Correlated(&[SharedStorage]), Remedy::Reboot),
            Self::StorageIOError | Self::FilesystemReadOnly => {
                (Correlated(&[SharedStorage]), Remedy::Replace)
            }
            Self::StorageProbeFailed => (Correlated(&[OwnUpgrade]), Remedy::None),
            _ => return None,
        })
    }

    fn of_kernel(self) -> Option<(Scope, Remedy)> {
        Some(match self {
            Self::KernelLockedUp | Self::KernelOopsRepeated => (Local, Remedy::Reboot),
            Self::KernelHardwareFailing => (Local, Remedy::Replace),
            Self::KernelDeadlocked => (Correlated(&[SharedStorage]), Remedy::Reboot),
            Self::KernelPidsExhausted => (Correlated(&[Flood]), Remedy::Reboot),
            _ => return None,
        })
    }

    /// The next node gets the same pods.
    fn of_memory(self) -> Option<(Scope, Remedy)> {
        Some(match self {
            Self::MemoryThrashing => (Correlated(&[Flood]), Remedy::Reboot),
            Self::MemoryKilledKubelet | Self::MemoryKilledContainerRuntime => {
                (Correlated(&[Flood]), Remedy::Restart)
            }
            Self::MemoryRunsOut | Self::MemoryPodsRunOut => (Correlated(&[Flood]), Remedy::None),
            _ => return None,
        })
    }

    /// What keeps one new node from being of use mostly keeps every new node from it.
    fn of_bootstrap(self) -> Option<(Scope, Remedy)> {
        let causes: &[Cause] = match self {
            Self::BootstrapStuckAtCredential => &[ExpiredAuthority, ApiOutage],
            Self::BootstrapStuckAtVolumes => &[BadRollout, SharedStorage],
            _ if self.status() == Status::False => &[BadRollout, ApiOutage],
            _ => return None,
        };
        Some((Correlated(causes), Remedy::None))
    }
}

impl Remedy {
    /// The word in the documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Restart => "restart",
            Self::Reboot => "reboot",
            Self::Replace => "replace",
        }
    }
}

impl Cause {
    /// The words in the documents.
    pub fn as_str(self) -> &'static str {
        match self {
            BadRollout => "a bad rollout",
            ExpiredAuthority => "an expired authority",
            SharedStorage => "shared storage",
            Flood => "a flood",
            ApiOutage => "an API outage",
            OwnUpgrade => "nodevigil's own upgrade",
        }
    }
}

impl Scope {
    /// `local`, or `correlated`.
    pub fn as_str(self) -> &'static str {
        match self {
            Local => "local",
            Correlated(_) => "correlated",
        }
    }
}

/// In the documents: `local`, or `correlated (shared storage)`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        if let Correlated(causes) = self {
            let names: Vec<_> = causes.iter().map(|cause| cause.as_str()).collect();
            write!(f, " ({})", names.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{health::reasons, rules};

    #[test]
    fn every_reason_that_is_false_has_a_scope_and_what_mends_it() {
        let of_rules = rules::all().filter_map(|rule| Reason::of_rule(rule.id));
        let all = reasons().map(|spec| spec.reason).chain(of_rules);
        let mut bad = 0;
        for reason in all {
            let name = reason.as_str();
            let (scope, remedy) = (reason.scope(), reason.remedy());
            if let Some(Correlated(causes)) = scope {
                assert!(!causes.is_empty(), "{name}");
            }
            if reason.status() != Status::False {
                assert_eq!(remedy, Remedy::None, "{name}");
                continue;
            }
            bad += 1;
            assert!(scope.is_some(), "{name} has no scope");
            // Nobody's reason to delete a machine; every other one mends by something.
            let is_exempt = matches!(
                reason.condition(),
                Some(
                    ConditionType::KubeletConfigValid
                        | ConditionType::NodeBootstrapped
                        | ConditionType::MemoryExhaustionImminent
                )
            );
            assert_eq!(remedy == Remedy::None, is_exempt, "{name}: {remedy:?}");
        }
        assert!(bad > 40, "{bad}");
    }

    /// What cannot be looked at while the helper is away is the fleet's trouble, and nobody's reason to do anything.
    #[test]
    fn our_own_trouble_is_never_a_nodes() {
        for reason in [
            Reason::NodevigilHelperAway,
            Reason::NodevigilConfigRefused,
            Reason::StorageProbeFailed,
            Reason::KubeletConfigNotChecked,
            Reason::ContainerRuntimeProbeFailed,
        ] {
            assert_eq!(reason.scope(), Some(Correlated(&[OwnUpgrade])));
            assert_eq!(reason.remedy(), Remedy::None);
            assert_eq!(reason.status(), Status::Unknown);
        }
    }
}
