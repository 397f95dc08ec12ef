//! The table of reasons, the worst of each condition first. `nodevigil explain` prints it.

use super::ConditionType::{
    self, ContainerRuntimeHealthy, KubeletConfigValid, KubeletHealthy, MemoryExhaustionImminent, NodeBootstrapped,
    NodeGPUHealthy, NodeKernelHealthy, NodeMemoryHealthy, NodeStorageHealthy,
};
use super::custom::CustomReason;
use super::{ReasonSpec, Remedy, Status};

/// One row for each reason: name, condition, status, whether it is sampled, remedy, whether it survives a reboot, meaning.
macro_rules! reasons {
    ($($name:ident: $condition:expr, $status:ident, $sampled:ident, $remedy:ident, $survives_boot:ident, $meaning:literal;)*) => {
        /// The reason of a condition. The smaller of two reasons is the worse one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum Reason {
            $($name,)*
            #[serde(skip)]
            Custom(CustomReason),
        }

        impl Reason {
            /// Those of nodevigil's own conditions.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The reason's row.
            pub fn spec(self) -> &'static ReasonSpec {
                match self {
                    $(Self::$name => &ReasonSpec {
                        name: stringify!($name), condition: $condition, status: Status::$status, sampled: $sampled,
                        remedy: Remedy::$remedy, survives_boot: $survives_boot, meaning: $meaning,
                    },)*
                    Self::Custom(custom) => custom.spec(),
                }
            }
        }
    };
}

const KUBELET: Option<ConditionType> = Some(KubeletHealthy);
const CONFIG: Option<ConditionType> = Some(KubeletConfigValid);
const RUNTIME: Option<ConditionType> = Some(ContainerRuntimeHealthy);
const MEMORY: Option<ConditionType> = Some(NodeMemoryHealthy);
const EXHAUSTION: Option<ConditionType> = Some(MemoryExhaustionImminent);
const STORAGE: Option<ConditionType> = Some(NodeStorageHealthy);
const KERNEL: Option<ConditionType> = Some(NodeKernelHealthy);
const GPU: Option<ConditionType> = Some(NodeGPUHealthy);
const BOOTSTRAP: Option<ConditionType> = Some(NodeBootstrapped);
/// Every condition can have it.
const ANY: Option<ConditionType> = None;
/// Its monitor needs several samples, or time, to detect it.
const SAMPLED: bool = true;
const AT_ONCE: bool = false;
/// A reboot of the host does not end the problem.
const SURVIVES_BOOT: bool = true;
const UNTIL_BOOT: bool = false;

#[rustfmt::skip]
reasons! {
    // reason: condition, status, sampled, remedy, survives a boot, meaning
    KubeletClientCertExpired: KUBELET, False, AT_ONCE, Replace, SURVIVES_BOOT, "The kubelet's client certificate has expired by both the host's and the API server's clock. The API server refuses the kubelet, and a restart does not help.";
    KubeletOOMKilled: KUBELET, False, AT_ONCE, Restart, UNTIL_BOOT, "The kernel OOM-killed the kubelet, because the host was out of memory or a cgroup reached its memory limit. Or it OOM-killed another process of the kubelet's unit, and systemd then stopped the unit (OOMPolicy=).";
    KubeletCrashLooping: KUBELET, False, AT_ONCE, Restart, UNTIL_BOOT, "The kubelet ended three times within 5 minutes or five times within 30 minutes, or systemd's start limit was hit.";
    KubeletCrashed: KUBELET, False, AT_ONCE, Restart, UNTIL_BOOT, "The kubelet's process failed or was killed. Or it exited cleanly although nobody stopped it, and neither systemd nor the program that starts the kubelet started it again. Or its unit failed before the kubelet started.";
    KubeletStoppedWithDependency: KUBELET, False, AT_ONCE, Restart, UNTIL_BOOT, "systemd stopped the kubelet because a service failed that it is bound to (BindsTo=), directly or through a unit that it requires. Or systemd did not start the kubelet, because a unit that it requires failed. systemd does not try again.";
    KubeletLeftStopped: KUBELET, False, AT_ONCE, Restart, UNTIL_BOOT, "The kubelet was stopped while a package manager replaced its program or units. Ten minutes after the package manager finished, nobody has started the kubelet, although its unit is enabled.";
    KubeletUnkillable: KUBELET, False, SAMPLED, Reboot, UNTIL_BOOT, "The kubelet does not answer, SIGKILL is pending for it, and the process does not end.";
    KubeletHung: KUBELET, False, SAMPLED, Restart, UNTIL_BOOT, "The kubelet runs but does not work. Three probes of /healthz in a row failed, and its process state, its listening socket or its Lease confirms the hang. Or the kubelet itself reports that its sync loop does not run.";
    KubeletAPIConnectionStalled: KUBELET, False, SAMPLED, Restart, UNTIL_BOOT, "The kubelet answers on /healthz, but the control plane has not heard from it (Ready=Unknown), and it does not renew its Lease. nodevigil reaches the API server.";
    KubeletStoppedByOperator: KUBELET, Unknown, AT_ONCE, None, UNTIL_BOOT, "The kubelet's unit was stopped: by systemctl stop, a shutdown or a package manager.";
    KubeletNotFound: KUBELET, Unknown, AT_ONCE, None, UNTIL_BOOT, "No kubelet runs, and no failure is known. The kubelet is not installed, was not started since boot, cannot be watched, or ended for an unknown reason.";
    KubeletStarting: KUBELET, Unknown, AT_ONCE, None, UNTIL_BOOT, "The kubelet's unit is starting, or the kubelet has not answered yet.";
    KubeletHealthzSilent: KUBELET, Unknown, SAMPLED, None, UNTIL_BOOT, "Three probes of /healthz in a row failed, and nothing else shows whether the kubelet works.";
    KubeletHealthzUnreachable: KUBELET, True, SAMPLED, None, UNTIL_BOOT, "Three probes of /healthz in a row failed, but the kubelet renews its Lease. Something, such as a firewall, blocks the probes.";
    KubeletStarved: KUBELET, True, SAMPLED, None, UNTIL_BOOT, "Three probes of /healthz in a row failed, but the host is too busy to run the kubelet, or a limit of its unit slows it down.";
    KubeletClientCertExpiring: KUBELET, True, AT_ONCE, None, UNTIL_BOOT, "The kubelet's client certificate expires within seven days (within a tenth of its lifetime if that is shorter), and the kubelet has not renewed it.";
    KubeletIsHealthy: KUBELET, True, AT_ONCE, None, UNTIL_BOOT, "The kubelet runs and answers 200 on /healthz.";
    KubeletConfigError: CONFIG, False, SAMPLED, None, SURVIVES_BOOT, "Two runs of `nodevigil check`, a minute apart, found the same error in the configuration that the kubelet uses or will use after its next start. If the error is that the kubelet was not restarted after a change, the runs are half an hour apart. Errors of the rules AU002, NW001, RT001 and SD019 do not count, because other conditions show them.";
    KubeletConfigNotChecked: CONFIG, Unknown, AT_ONCE, None, UNTIL_BOOT, "`nodevigil check` has failed for a minute, or has found an error only once.";
    KubeletConfigIsValid: CONFIG, True, AT_ONCE, None, UNTIL_BOOT, "`nodevigil check` finds no error in the kubelet's configuration. Errors of the rules AU002, NW001, RT001 and SD019 do not count, because other conditions show them.";
    ContainerRuntimeCrashLooping: RUNTIME, False, AT_ONCE, Restart, UNTIL_BOOT, "The container runtime ended three times within 5 minutes or five times within 30 minutes.";
    ContainerRuntimeDown: RUNTIME, False, AT_ONCE, Restart, UNTIL_BOOT, "The container runtime's process failed or was killed, or exited cleanly although nobody stopped it, and systemd did not start it again. Or no process listens on its socket. Or a package upgrade stopped it and did not start it again. Or systemd stopped it, or did not start it, because a unit that it requires failed.";
    ContainerRuntimeHung: RUNTIME, False, SAMPLED, Restart, UNTIL_BOOT, "Three calls to the container runtime in a row timed out, and a second signal confirms the hang: its process is stopped (state T) or waits in the kernel (state D), or the kubelet reports on the Node that the runtime is down.";
    ContainerRuntimeNotReady: RUNTIME, False, SAMPLED, Restart, UNTIL_BOOT, "The container runtime reports that it is not ready, or has failed to list its pods three times in a row. The kubelet also reports on the Node that the runtime is down.";
    ContainerRuntimeUnconfirmed: RUNTIME, Unknown, SAMPLED, None, UNTIL_BOOT, "Three calls to the container runtime in a row failed, and nothing else shows whether it works.";
    ContainerRuntimeNotFound: RUNTIME, Unknown, AT_ONCE, None, UNTIL_BOOT, "No container runtime answers, and no failure is known. The runtime was stopped, is starting, is not installed, or ended while nodevigil was not running.";
    ContainerRuntimeIsHealthy: RUNTIME, True, AT_ONCE, None, UNTIL_BOOT, "The container runtime answers and is ready.";
    MemoryThrashing: MEMORY, False, SAMPLED, Reboot, UNTIL_BOOT, "For a minute, the host has had at most 5 % of its memory available, and has spent its time on paging. All tasks have stalled on memory for 40 % of the time. Or the kernel has read back file pages that it had just dropped, each second at least half as many as fit into memory.";
    MemoryIsHealthy: MEMORY, True, AT_ONCE, None, UNTIL_BOOT, "The host does not thrash.";
    MemoryRunsOut: EXHAUSTION, True, SAMPLED, None, UNTIL_BOOT, "At the current rate, the host runs out of memory within 20 seconds, and the kernel then OOM-kills processes. Or it has just OOM-killed one.";
    MemoryIsEnough: EXHAUSTION, False, AT_ONCE, None, UNTIL_BOOT, "The host's memory is not running out.";
    FilesystemReadOnly: STORAGE, False, AT_ONCE, Replace, SURVIVES_BOOT, "A file system that the kubelet or the container runtime writes to is mounted read-only.";
    StorageIOError: STORAGE, False, AT_ONCE, Replace, SURVIVES_BOOT, "A probe of a file system of the kubelet or the container runtime failed with an I/O error. A probe is a test write, or an fsync of the directory where nodevigil may not write.";
    StorageHung: STORAGE, False, SAMPLED, Reboot, UNTIL_BOOT, "A probe of a file system of the kubelet or the container runtime has run for half a minute. In this time its disk had requests in progress and completed none.";
    StorageFull: STORAGE, False, SAMPLED, Replace, SURVIVES_BOOT, "Three probes in a row found that a file system of the kubelet or the container runtime has no space or no inodes left.";
    StorageProbeFailed: STORAGE, Unknown, SAMPLED, None, UNTIL_BOOT, "A file system of the kubelet or the container runtime could not be probed for a minute.";
    StorageSlow: STORAGE, True, SAMPLED, None, UNTIL_BOOT, "A probe of a file system of the kubelet or the container runtime has run for half a minute, but the probe or other requests to the disk make progress.";
    StorageIsHealthy: STORAGE, True, AT_ONCE, None, UNTIL_BOOT, "Probes of the file systems of the kubelet and the container runtime succeed.";
    KernelHardwareFailing: KERNEL, False, AT_ONCE, Replace, SURVIVES_BOOT, "The kernel logged an uncorrected hardware error within the last day, and a counter or taint flag of the kernel has changed since.";
    KernelLockedUp: KERNEL, False, AT_ONCE, Reboot, UNTIL_BOOT, "The kernel logged a hard lockup, or five soft lockups or RCU stalls within ten minutes, or work that has waited for a processor for two minutes. A second signal confirms the lockup, such as a processor that ran no program for ten seconds.";
    KernelDeadlocked: KERNEL, False, AT_ONCE, Reboot, UNTIL_BOOT, "A thread of the kubelet, the container runtime or PID 1 has been in the same wait in the kernel (state D) for two minutes, and its process does not answer.";
    SystemdCrashed: KERNEL, False, AT_ONCE, Reboot, UNTIL_BOOT, "systemd has not answered on D-Bus for two minutes, although the bus answers and the host is not too busy. It has also closed its own socket, or does not reap its children.";
    KernelLogUnreadable: KERNEL, Unknown, AT_ONCE, None, UNTIL_BOOT, "The kernel's log could not be read for a minute.";
    SystemdSilent: KERNEL, True, AT_ONCE, None, UNTIL_BOOT, "systemd has not answered on D-Bus for two minutes, although the bus answers and the host is not too busy.";
    KernelTroubleLogged: KERNEL, True, AT_ONCE, None, UNTIL_BOOT, "The kernel logged a problem within the last five minutes.";
    KernelLimitNearlyReached: KERNEL, True, AT_ONCE, None, UNTIL_BOOT, "The host is near a limit of the kernel: processes, open files or tracked connections.";
    NodeClockWrong: KERNEL, True, AT_ONCE, None, UNTIL_BOOT, "The host's clock differs from the API server's by more than 30 seconds.";
    KernelIsHealthy: KERNEL, True, AT_ONCE, None, UNTIL_BOOT, "The kernel logs no problem, and no limit is nearly reached.";
    NvidiaGPULost: GPU, True, AT_ONCE, None, UNTIL_BOOT, "NVIDIA's driver has logged that a GPU has fallen off the bus (Xid 79, or without an Xid), and has not been loaded again since. Pods that use the GPU fail until the host is rebooted or the GPU is replaced.";
    NvidiaXidLogged: GPU, True, AT_ONCE, None, UNTIL_BOOT, "Within the last five minutes, NVIDIA's driver has logged one of these: an error (Xid) that is not a program's own fault, a fatal error of an NVSwitch, or a GPU that cannot be initialized. The message contains each code and how often it was logged.";
    GPUIsHealthy: GPU, True, AT_ONCE, None, UNTIL_BOOT, "NVIDIA's driver is loaded and logs no error.";
    BootstrapStuck: BOOTSTRAP, False, AT_ONCE, None, UNTIL_BOOT, "The Node has not become ready within ten minutes ([bootstrap] deadline_secs) and is stuck at the stage that the message names.";
    BootstrapStageLate: BOOTSTRAP, Unknown, AT_ONCE, None, UNTIL_BOOT, "The Node is not ready yet, and the stage of its bootstrap that the message names takes longer than usual.";
    NodeBootstrapping: BOOTSTRAP, Unknown, AT_ONCE, None, UNTIL_BOOT, "The Node is not ready yet, or nodevigil does not know whether it was ever ready.";
    NodeIsBootstrapped: BOOTSTRAP, True, AT_ONCE, None, UNTIL_BOOT, "The Node has become ready, and its startup taints are gone. The condition stays `True` while the Node exists.";
    NodePaused: ANY, Unknown, AT_ONCE, None, UNTIL_BOOT, "`nodevigil pause` or the annotation nodevigil.io/pause is in effect. nodevigil publishes a problem as `Unknown`.";
    NodeInMaintenance: ANY, Unknown, AT_ONCE, None, UNTIL_BOOT, "The Node is in maintenance or is being removed, or a package upgrade was in progress when the agent started. nodevigil publishes a new problem as `Unknown`.";
    NodeJustStarted: ANY, Unknown, AT_ONCE, None, UNTIL_BOOT, "The host booted or the Node was created less than two minutes ago. nodevigil publishes a sampled problem as `Unknown`.";
    MonitorSilent: ANY, Unknown, AT_ONCE, None, UNTIL_BOOT, "The monitor has not reported for a minute, or cannot read what it monitors.";
    NodevigilStopped: ANY, Unknown, AT_ONCE, None, UNTIL_BOOT, "nodevigil was stopped while the condition showed a problem.";
}

impl Reason {
    /// The reason with this name that is in the table.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.spec().name == name)
    }

    /// The reason of this condition with this name, to read conditions that an earlier run of the agent published. None if every condition
    /// can have it.
    pub fn of(condition: ConditionType, name: &str) -> Option<Self> {
        match condition {
            ConditionType::Custom(custom) => custom.reasons().find(|reason| reason.spec().name == name),
            _ => Self::by_name(name).filter(|reason| reason.spec().condition == Some(condition)),
        }
    }

    /// The reason of a healthy condition: the last row of the table for this condition.
    pub fn healthy(condition: ConditionType) -> Self {
        if let ConditionType::Custom(custom) = condition {
            return custom.reasons().next_back().expect("it has one of health");
        }
        let mut rows = Self::ALL.iter().rev().copied().filter(|reason| reason.spec().condition == Some(condition));
        rows.next().expect("every condition has a row in the table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conditions and reasons are the only words of these files that begin so.
    #[test]
    fn packaged_samples_name_only_conditions_and_reasons_that_exist() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes/samples");
        let mut named = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.starts_with("kind:"));
            for word in lines.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric())) {
                let begins =
                    ["Kubelet", "ContainerRuntime", "Storage", "Filesystem", "Kernel", "NodeK", "NodeS", "NodeM"];
                let is_ours = begins.iter().any(|begin| word.starts_with(begin));
                let is_known =
                    Reason::by_name(word).is_some() || ConditionType::ALL.iter().any(|kind| kind.name() == word);
                assert!(!is_ours || is_known, "{word}");
                named += usize::from(is_ours);
            }
        }
        assert!(named > 10, "{named}");
    }

    #[test]
    fn every_condition_ends_with_health_and_only_problems_have_a_remedy() {
        for kind in ConditionType::ALL {
            assert_eq!(Reason::healthy(*kind).spec().status, kind.healthy_status());
        }
        for reason in Reason::ALL {
            let spec = reason.spec();
            let is_problem = spec.condition.is_some_and(|kind| kind.problem_status() == spec.status);
            assert!(is_problem || spec.remedy == Remedy::None, "{}", spec.name);
            assert_eq!(Reason::by_name(spec.name), Some(*reason));
            assert!(spec.condition.is_some() || spec.status == Status::Unknown, "{}", spec.name);
        }
    }

    /// docs/consumers.md has one regular expression for each remedy.
    #[test]
    fn the_regular_expressions_for_controllers_name_the_reasons_of_each_remedy() {
        let document = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/consumers.md");
        let text = std::fs::read_to_string(document).unwrap();
        for remedy in [Remedy::Restart, Remedy::Reboot, Remedy::Replace] {
            let specs = Reason::ALL.iter().map(|reason| reason.spec()).filter(|spec| spec.remedy == remedy);
            let expression = format!("^({})$", specs.map(|spec| spec.name).collect::<Vec<_>>().join("|"));
            assert!(text.lines().any(|line| line == expression), "docs/consumers.md has no line {expression}");
        }
    }
}
