//! The one table of condition types on the Node: our verdicts under the names, and in the polarity, that consumers have
//! compiled in.

use serde::{Deserialize, Serialize};

use crate::health::{ConditionType, Reason, Status};

/// A set of names that some consumers understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Our own names; `False` is bad.
    Native,
    /// What Karpenter on AWS and EKS's node repair match; `False` is bad.
    Eks,
    /// What node-problem-detector's users match; `True` is bad.
    Npd,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: &[Self] = &[Self::Native, Self::Eks, Self::Npd];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Eks => "eks",
            Self::Npd => "npd",
        }
    }
}

/// A condition type as it stands on the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "TYPES documents each, and a test walks it")]
pub enum PublishedType {
    KubeletHealthy,
    KubeletConfigValid,
    ContainerRuntimeHealthy,
    NodeStorageHealthy,
    NodeKernelHealthy,
    NodeMemoryHealthy,
    MemoryExhaustionImminent,
    NodeBootstrapped,
    NodevigilHealthy,
    ContainerRuntimeReady,
    StorageReady,
    KernelReady,
    KubeletUnhealthy,
    ContainerRuntimeUnhealthy,
    ReadonlyFilesystem,
    FrequentKubeletRestart,
}

/// What the table knows of a type.
#[derive(Debug, Clone, Copy)]
pub struct TypeSpec {
    /// The type.
    pub published: PublishedType,
    /// Its name on the Node.
    pub name: &'static str,
    /// The dialect that it belongs to.
    pub dialect: Dialect,
    /// The status that means a problem; the other one means that there is none. `Unknown` is `Unknown` in all of them.
    pub bad: Status,
    /// The conditions that feed it; the worst of them shows.
    pub fed_by: &'static [ConditionType],
    /// The reasons for `False` that count under this name; empty: all of them.
    pub only: &'static [Reason],
    /// The reasons for `False` that do not count under this name.
    pub except: &'static [Reason],
    /// What it says, and to whom.
    pub doc: &'static str,
}

/// Every type that is fed by a check, in the order of [`PublishedType`]. No name is here before its check is: absent, it
/// misleads nobody.
pub const TYPES: &[TypeSpec] = &[
    TypeSpec {
        published: PublishedType::KubeletHealthy,
        name: "KubeletHealthy",
        dialect: Dialect::Native,
        bad: Status::False,
        fed_by: &[ConditionType::KubeletHealthy],
        only: &[],
        except: &[],
        doc: "The kubelet's process lives and its healthz answers.",
    },
    TypeSpec {
        published: PublishedType::KubeletConfigValid,
        name: "KubeletConfigValid",
        dialect: Dialect::Native,
        bad: Status::False,
        fed_by: &[ConditionType::KubeletConfigValid],
        only: &[],
        except: &[],
        doc: "What the kubelet got, and will get at its next start, is what it needs. A hint: no other dialect has it, \
              and no controller should replace a node for it.",
    },
    TypeSpec {
        published: PublishedType::ContainerRuntimeHealthy,
        name: "ContainerRuntimeHealthy",
        dialect: Dialect::Native,
        bad: Status::False,
        fed_by: &[ConditionType::ContainerRuntimeHealthy],
        only: &[],
        except: &[],
        doc: "The container runtime's process lives and answers over CRI.",
    },
    TypeSpec {
        published: PublishedType::NodeStorageHealthy,
        name: "NodeStorageHealthy",
        dialect: Dialect::Native,
        bad: Status::False,
        fed_by: &[ConditionType::NodeStorageHealthy],
        only: &[],
        except: &[],
        doc: "The file systems of the kubelet and the container runtime can be written to.",
    },
    TypeSpec {
        published: PublishedType::NodeKernelHealthy,
        name: "NodeKernelHealthy",
        dialect: Dialect::Native,
        bad: Status::False,
        fed_by: &[ConditionType::NodeKernelHealthy],
        only: &[],
        except: &[],
        doc: "The kernel is sound.",
    },
    TypeSpec {
        published: PublishedType::NodeMemoryHealthy,
        name: "NodeMemoryHealthy",
        dialect: Dialect::Native,
        bad: Status::False,
        fed_by: &[ConditionType::NodeMemoryHealthy],
        only: &[],
        except: &[],
        doc: "The host does not thrash, and the kernel kills neither the kubelet nor the container runtime for memory. No other \
              dialect has a name for it.",
    },
    TypeSpec {
        published: PublishedType::MemoryExhaustionImminent,
        name: "MemoryExhaustionImminent",
        dialect: Dialect::Native,
        bad: Status::True,
        fed_by: &[ConditionType::MemoryExhaustionImminent],
        only: &[],
        except: &[],
        doc: "The host's memory is about to be exhausted. A hint, in the polarity of MemoryPressure: no other dialect has it, and \
              no controller should replace a node for it.",
    },
    TypeSpec {
        published: PublishedType::NodeBootstrapped,
        name: "NodeBootstrapped",
        dialect: Dialect::Native,
        bad: Status::False,
        fed_by: &[ConditionType::NodeBootstrapped],
        only: &[],
        except: &[],
        doc: "The node has become of use since its Node was created; it stays True whatever befalls it later.",
    },
    TypeSpec {
        published: PublishedType::NodevigilHealthy,
        name: "NodevigilHealthy",
        dialect: Dialect::Native,
        bad: Status::False,
        fed_by: &[ConditionType::NodevigilHealthy],
        only: &[],
        except: &[],
        doc: "nodevigil itself works as configured. Never False: no other dialect has it, and no controller should act on a node \
              for it.",
    },
    TypeSpec {
        published: PublishedType::ContainerRuntimeReady,
        name: "ContainerRuntimeReady",
        dialect: Dialect::Eks,
        bad: Status::False,
        fed_by: &[
            ConditionType::KubeletHealthy,
            ConditionType::ContainerRuntimeHealthy,
        ],
        only: &[],
        except: &[],
        doc: "Under this name EKS's node monitoring agent tells of a failed kubelet too; Karpenter replaces the node \
              when it has been False for 30 minutes. Not beside that agent: a type with another owner is refused.",
    },
    TypeSpec {
        published: PublishedType::StorageReady,
        name: "StorageReady",
        dialect: Dialect::Eks,
        bad: Status::False,
        fed_by: &[ConditionType::NodeStorageHealthy],
        only: &[],
        except: &[],
        doc: "The name of EKS's node monitoring agent; Karpenter replaces the node when it has been False for 30 minutes.",
    },
    TypeSpec {
        published: PublishedType::KernelReady,
        name: "KernelReady",
        dialect: Dialect::Eks,
        bad: Status::False,
        fed_by: &[ConditionType::NodeKernelHealthy],
        only: &[],
        except: &[Reason::KernelPidsExhausted],
        doc: "The name of EKS's node monitoring agent; Karpenter replaces the node when it has been False for 30 minutes. Process ids that have run out do not make it False: what fills one node fills the next.",
    },
    TypeSpec {
        published: PublishedType::KubeletUnhealthy,
        name: "KubeletUnhealthy",
        dialect: Dialect::Npd,
        bad: Status::True,
        fed_by: &[ConditionType::KubeletHealthy],
        only: &[],
        except: &[],
        doc: "node-problem-detector's name and polarity. Gardener's machine-controller-manager takes Unknown of a type \
              that it was told to watch for sick: with it, a kubelet that was stopped on purpose counts as a problem.",
    },
    TypeSpec {
        published: PublishedType::ContainerRuntimeUnhealthy,
        name: "ContainerRuntimeUnhealthy",
        dialect: Dialect::Npd,
        bad: Status::True,
        fed_by: &[ConditionType::ContainerRuntimeHealthy],
        only: &[],
        except: &[],
        doc: "node-problem-detector's name and polarity.",
    },
    TypeSpec {
        published: PublishedType::ReadonlyFilesystem,
        name: "ReadonlyFilesystem",
        dialect: Dialect::Npd,
        bad: Status::True,
        fed_by: &[ConditionType::NodeStorageHealthy],
        only: &[Reason::FilesystemReadOnly],
        except: &[],
        doc: "node-problem-detector's name and polarity. Only a file system that has become read-only makes it True; GKE's Karpenter replaces the node after 5 minutes of that.",
    },
    TypeSpec {
        published: PublishedType::FrequentKubeletRestart,
        name: "FrequentKubeletRestart",
        dialect: Dialect::Npd,
        bad: Status::True,
        fed_by: &[ConditionType::KubeletHealthy],
        only: &[Reason::KubeletCrashLooping, Reason::KubeletStartLimitHit],
        except: &[],
        doc: "node-problem-detector's name and polarity. Only a kubelet that ends again and again makes it True.",
    },
];

impl PublishedType {
    /// The table's row.
    pub fn spec(self) -> &'static TypeSpec {
        // The table has the enum's order, which a test keeps.
        &TYPES[self as usize]
    }

    /// The name on the Node.
    pub fn as_str(self) -> &'static str {
        self.spec().name
    }

    /// The type of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let spec = TYPES.iter().find(|spec| spec.name == name)?;
        Some(spec.published)
    }

    /// The condition's own name.
    pub fn native(kind: ConditionType) -> Self {
        match kind {
            ConditionType::KubeletHealthy => Self::KubeletHealthy,
            ConditionType::KubeletConfigValid => Self::KubeletConfigValid,
            ConditionType::ContainerRuntimeHealthy => Self::ContainerRuntimeHealthy,
            ConditionType::NodeStorageHealthy => Self::NodeStorageHealthy,
            ConditionType::NodeKernelHealthy => Self::NodeKernelHealthy,
            ConditionType::NodeMemoryHealthy => Self::NodeMemoryHealthy,
            ConditionType::MemoryExhaustionImminent => Self::MemoryExhaustionImminent,
            ConditionType::NodeBootstrapped => Self::NodeBootstrapped,
            ConditionType::NodevigilHealthy => Self::NodevigilHealthy,
        }
    }
}

impl TypeSpec {
    /// What a condition with this reason says under this name.
    pub fn show(&self, reason: Reason) -> Status {
        let counts =
            !self.except.contains(&reason) && (self.only.is_empty() || self.only.contains(&reason));
        self.turn(match reason.status() {
            Status::False if !counts => Status::True,
            status => status,
        })
    }

    /// Whether this is the condition under its own name.
    pub fn is_native(&self) -> bool {
        self.dialect == Dialect::Native
    }

    /// A verdict's status in this type's polarity, and back: it is its own inverse.
    pub fn turn(&self, status: Status) -> Status {
        match (self.bad, status) {
            (Status::True, Status::True) => Status::False,
            (Status::True, Status::False) => Status::True,
            _ => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Karpenter on AWS and EKS's node repair delete machines by.
    #[test]
    fn process_ids_that_have_run_out_replace_no_node() {
        let exhausted = Reason::KernelPidsExhausted;
        assert_eq!(exhausted.status(), Status::False);
        let of_kernel = |spec: &&TypeSpec| spec.fed_by.contains(&ConditionType::NodeKernelHealthy);
        let others = TYPES.iter().filter(|spec| !spec.is_native());
        for spec in others.filter(of_kernel) {
            assert_ne!(spec.show(exhausted), spec.bad, "{}", spec.name);
        }
        let ready = PublishedType::KernelReady.spec();
        assert_eq!(ready.show(Reason::KernelDeadlocked), Status::False);
        assert_eq!(ready.show(Reason::KernelLogUnreadable), Status::Unknown);
        let native = PublishedType::NodeKernelHealthy.spec();
        assert_eq!(native.show(exhausted), Status::False);
    }

    #[test]
    fn the_table_is_whole() {
        // Written by others, or reserved (facts/consumers.md §1).
        let never = [
            "Ready",
            "MemoryPressure",
            "DiskPressure",
            "PIDPressure",
            "NetworkUnavailable",
            "Suspended",
            "MaintenanceInProgress",
            // KEP-5394's.
            "SystemMemoryContentionPressure",
            "SystemDiskContentionPressure",
            "KubepodsMemoryContentionPressure",
            "KubepodsDiskContentionPressure",
        ];
        for (i, spec) in TYPES.iter().enumerate() {
            assert_eq!(spec.published as usize, i);
            assert_eq!(format!("{:?}", spec.published), spec.name);
            assert_eq!(
                serde_json::to_string(&spec.published).unwrap(),
                format!("{:?}", spec.name)
            );
            assert_eq!(PublishedType::parse(spec.name), Some(spec.published));
            assert!(!never.contains(&spec.name) && spec.doc.ends_with('.'));
            assert!(spec.bad != Status::Unknown && !spec.fed_by.is_empty());
            for reason in spec.except {
                assert!(!spec.only.contains(reason), "{}", spec.name);
                let feeds = reason
                    .condition()
                    .is_some_and(|kind| spec.fed_by.contains(&kind));
                assert!(feeds && reason.status() == Status::False, "{}", spec.name);
            }
            for status in [Status::True, Status::False, Status::Unknown] {
                assert_eq!(spec.turn(spec.turn(status)), status);
            }
            assert_eq!(spec.turn(Status::False), spec.bad);
            assert_eq!(spec.turn(Status::Unknown), Status::Unknown);
        }
        for kind in ConditionType::ALL {
            let spec = PublishedType::native(*kind).spec();
            assert!(spec.is_native() && spec.fed_by == [*kind]);
            assert_eq!(spec.bad, kind.shown(Status::False), "one polarity");
            assert_eq!(spec.name, kind.as_str());
        }
        for hint in [
            ConditionType::KubeletConfigValid,
            ConditionType::MemoryExhaustionImminent,
            ConditionType::NodevigilHealthy,
        ] {
            let of_hint = TYPES.iter().filter(|spec| spec.fed_by.contains(&hint));
            assert_eq!(of_hint.count(), 1, "no remediation sample names it");
        }
    }
}
