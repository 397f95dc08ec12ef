//! What controllers do by the conditions that a profile publishes: their rules, as they are in their sources, against every reason.

use std::collections::BTreeSet;

use crate::condition::profile::{ConditionNames, Profile};
use crate::condition::{Condition, ConditionType, Published, Reason, Status, Uptime};

/// A rule by which a controller acts on a condition of a Node.
struct Rule {
    name: &'static str,
    kind: &'static str,
    matches: fn(&Published) -> bool,
}

/// `NVSentinel`'s policies for conditions of node-problem-detector, each with the machine's replacement: `NVIDIA/NVSentinel`,
/// `distros/kubernetes/nvsentinel/values-npd-remediation.yaml`, 19b4136.
const NVSENTINEL: [Rule; 3] = [
    Rule {
        name: "NPDXfsShutdown",
        kind: "XfsShutdown",
        matches: |c| c.status == Status::True && c.reason == "XfsHasShutdown",
    },
    Rule {
        name: "NPDCperHardwareErrorFatal",
        kind: "CperHardwareErrorFatal",
        matches: |c| c.status == Status::True && c.reason == "CperHardwareErrorFatal",
    },
    Rule {
        name: "NPDReadonlyFilesystem",
        kind: "ReadonlyFilesystem",
        matches: |c| c.status == Status::True && c.reason == "FilesystemIsReadOnly",
    },
];

/// Karpenter's repair policies for AWS, but for those of `Ready` and of types that no profile has: aws/karpenter-provider-aws, 1d92708,
/// `pkg/cloudprovider/cloudprovider.go`, `RepairPolicies`.
const KARPENTER_AWS: [Rule; 3] = [
    Rule { name: "StorageReady", kind: "StorageReady", matches: |c| c.status == Status::False },
    Rule { name: "KernelReady", kind: "KernelReady", matches: |c| c.status == Status::False },
    Rule { name: "ContainerRuntimeReady", kind: "ContainerRuntimeReady", matches: |c| c.status == Status::False },
];

/// The types of machine-controller-manager's default list that a kubelet does not write itself: gardener/machine-controller-manager, 54caf54,
/// `pkg/util/provider/app/options/options.go`. One is a problem unless it is `False`: `isHealthy` in
/// `pkg/util/provider/machinecontroller/machine_util.go`.
const MACHINE_CONTROLLER_MANAGER: [Rule; 2] = [
    Rule { name: "KernelDeadlock", kind: "KernelDeadlock", matches: |c| c.status != Status::False },
    Rule { name: "ReadonlyFilesystem", kind: "ReadonlyFilesystem", matches: |c| c.status != Status::False },
];

fn shown(kind: ConditionType, reason: Reason) -> Condition {
    let spec = reason.spec();
    // As the storage monitor names a file system.
    let message = "/var/lib/kubelet (xfs, /dev/sda1) fails".to_owned();
    Condition { kind, status: spec.status, reason: spec.name.to_owned(), message, since: Uptime::ZERO }
}

/// Which rules act by which reasons, when each condition in turn has each of its reasons and the others are healthy.
fn acts(profile: Profile, rules: &[Rule]) -> BTreeSet<(&'static str, &'static str)> {
    let (names, mut acts) = (ConditionNames { profile, profile_only: false }, BTreeSet::new());
    for kind in ConditionType::ALL {
        for reason in Reason::ALL.iter().filter(|reason| reason.spec().condition.is_none_or(|of| of == *kind)) {
            let of = |one: &ConditionType| if one == kind { *reason } else { Reason::healthy(*one) };
            let conditions: Vec<_> = ConditionType::ALL.iter().map(|one| shown(*one, of(one))).collect();
            let published = names.translate(&conditions, &[], Uptime::ZERO);
            for rule in rules {
                let condition = published.iter().find(|condition| condition.name == rule.kind);
                if (rule.matches)(condition.unwrap_or_else(|| panic!("{} is not published", rule.kind))) {
                    acts.insert((rule.name, reason.spec().name));
                }
            }
        }
    }
    acts
}

#[test]
fn nvsentinel_replaces_a_machine_whose_disk_or_hardware_fails() {
    let expected = [
        ("NPDCperHardwareErrorFatal", "KernelHardwareFailing"),
        ("NPDReadonlyFilesystem", "FilesystemReadOnly"),
        ("NPDXfsShutdown", "StorageIOError"),
    ];
    assert_eq!(acts(Profile::Npd, &NVSENTINEL), expected.into());
}

#[test]
fn machine_controller_manager_replaces_a_machine_for_two_problems_and_never_because_one_is_not_known() {
    let expected = [("KernelDeadlock", "KernelDeadlocked"), ("ReadonlyFilesystem", "FilesystemReadOnly")];
    assert_eq!(acts(Profile::Npd, &MACHINE_CONTROLLER_MANAGER), expected.into());
}

#[test]
fn karpenter_repairs_a_node_for_every_problem_of_kubelet_runtime_storage_and_kernel_and_for_nothing_else() {
    let by = [
        (ConditionType::KubeletHealthy, "ContainerRuntimeReady"),
        (ConditionType::ContainerRuntimeHealthy, "ContainerRuntimeReady"),
        (ConditionType::NodeStorageHealthy, "StorageReady"),
        (ConditionType::NodeKernelHealthy, "KernelReady"),
    ];
    let expected = by.into_iter().flat_map(|(kind, rule)| {
        let specs = Reason::ALL.iter().map(|reason| reason.spec());
        specs
            .filter(move |spec| spec.condition == Some(kind) && spec.status == Status::False)
            .map(move |spec| (rule, spec.name))
    });
    assert_eq!(acts(Profile::Eks, &KARPENTER_AWS), expected.collect());
}
