//! Where a reason comes from: which check names it, who must say so, and whether it can come from before the boot.

use super::{ConditionType, OneOf, Reason, ReasonSpec};

impl Reason {
    /// The check that names it: its word alone ends the problem.
    pub fn check(self) -> &'static str {
        match (self, self.condition()) {
            (Self::KubeletAPIConnectionStalled, _) => "lease",
            (
                Self::KubeletClientCertExpired
                | Self::KubeletClientCertNotYetValid
                | Self::KubeletClientCertExpiring
                | Self::KubeletClientCertDoubtful,
                _,
            ) => "certificate",
            (Self::KernelPidsExhausted, _) => "limits",
            (_, Some(ConditionType::KubeletHealthy)) => "kubelet",
            (_, Some(ConditionType::KubeletConfigValid)) => "config",
            (_, Some(ConditionType::ContainerRuntimeHealthy)) => "runtime",
            (_, Some(ConditionType::NodeStorageHealthy)) => "storage",
            (_, Some(ConditionType::NodeKernelHealthy)) => "kernel",
            (_, Some(ConditionType::NodeMemoryHealthy)) => "memory",
            (_, Some(ConditionType::MemoryExhaustionImminent)) => "memory_outlook",
            (_, Some(ConditionType::NodeBootstrapped)) => "bootstrap",
            (_, Some(ConditionType::NodevigilHealthy)) => "nodevigil",
            (_, None) => "",
        }
    }

    /// Whether the problem can still be there after the host was booted anew. No process does, nothing in the kernel, and nothing in
    /// memory; what lies on a disk does, and how far a Node has come.
    pub fn survives_boot(self) -> bool {
        match self.condition() {
            Some(
                ConditionType::KubeletConfigValid
                | ConditionType::NodeStorageHealthy
                | ConditionType::NodeBootstrapped,
            ) => true,
            _ => matches!(
                self,
                Self::KubeletClientCertExpired | Self::KubeletClientCertNotYetValid
            ),
        }
    }
}

impl ReasonSpec {
    /// The same, of which these are the witnesses.
    pub(super) const fn seen_by(self, witnesses: &'static [OneOf]) -> Self {
        Self { witnesses, ..self }
    }
}
