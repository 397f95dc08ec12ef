//! Condition types and reasons of custom checks. The settings define them, and they are registered once, before the engine is made.

use std::sync::OnceLock;

use super::{ConditionType, Reason, ReasonSpec, Remedy, Status};

/// Every type, with its reasons: those of problems, then [`UNKNOWN`], then that of health.
static TYPES: OnceLock<Vec<(Definition, Vec<ReasonSpec>)>> = OnceLock::new();

/// Types that a custom check may never have: others write them, or controllers act on them without being told to. The types of nodevigil
/// and its profiles are refused as well.
const RESERVED: &[&str] = &[
    // The kubelet's, those of the node lifecycle controller, and a former one.
    "Ready",
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "NetworkUnavailable",
    "OutOfDisk",
    // Maintenance signals (KEP-5683), which hold problems back.
    "DrainInProgress",
    "Drained",
    "MaintenanceInProgress",
    "MaintenancePlanned",
    "GracefulNodeShutdownInProgress",
    // EKS and Karpenter on AWS replace a node by these (https://docs.aws.amazon.com/eks/latest/userguide/node-health.html).
    "NetworkingReady",
    "AcceleratedHardwareReady",
    "AcceleratedInstanceReady",
];
/// A condition's reason while its check cannot be evaluated, or what it checks was stopped on purpose.
pub const UNKNOWN: &str = "CheckUnknown";

/// What the settings say of a condition type.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    pub name: String,
    pub problem_status: Status,
    /// Whether it is written on the Node. Of one that is not, a problem is a warning: it becomes an Event.
    pub is_published: bool,
    /// The reasons of problems, worst first, and whether each is sampled.
    pub reasons: Vec<(String, bool)>,
    pub healthy_reason: String,
}

/// A registered type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CustomType(u8);

/// A reason of a registered type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CustomReason {
    kind: CustomType,
    index: u8,
}

/// Whether a custom check may not have this type.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || ConditionType::ALL.iter().any(|kind| kind.name() == name) || super::profile::adds(name)
}

/// Registers the types of all custom checks. A process has one set of settings: later calls change nothing.
pub fn register(definitions: Vec<Definition>) {
    let with_reasons = |(index, one): (u8, Definition)| {
        let reasons = one.specs(CustomType(index));
        (one, reasons)
    };
    TYPES.get_or_init(|| (0..).zip(definitions).map(with_reasons).collect());
}

/// All registered types.
pub fn all() -> impl Iterator<Item = ConditionType> {
    (0..).zip(types()).map(|(index, _)| ConditionType::Custom(CustomType(index)))
}

fn types() -> &'static [(Definition, Vec<ReasonSpec>)] {
    TYPES.get().map_or(&[], Vec::as_slice)
}

impl Definition {
    fn specs(&self, kind: CustomType) -> Vec<ReasonSpec> {
        let (problem, healthy) = (self.problem_status, self.problem_status.opposite());
        let shown = if self.is_published { problem } else { healthy };
        let problems = self.reasons.iter().map(|(name, sampled)| (name.as_str(), shown, *sampled));
        let rest = [(UNKNOWN, Status::Unknown, false), (&self.healthy_reason, healthy, false)];
        let spec = |(name, status, sampled): (&str, _, _)| ReasonSpec {
            // There are few, once in a process.
            name: name.to_owned().leak(),
            condition: Some(ConditionType::Custom(kind)),
            status,
            sampled,
            remedy: Remedy::None,
            survives_boot: false,
            meaning: "A custom check of the settings.",
        };
        problems.chain(rest).map(spec).collect()
    }
}

impl CustomType {
    pub(super) fn definition(self) -> &'static Definition {
        &types()[usize::from(self.0)].0
    }

    /// All its reasons, worst first and that of health last.
    pub(super) fn reasons(self) -> impl DoubleEndedIterator<Item = Reason> {
        let count = u8::try_from(types()[usize::from(self.0)].1.len()).unwrap_or(u8::MAX);
        (0..count).map(move |index| Reason::Custom(CustomReason { kind: self, index }))
    }

    /// The reason while it cannot be evaluated.
    pub fn unknown(self) -> Reason {
        self.reasons().rev().nth(1).expect("every type has this one and that of health")
    }
}

impl CustomReason {
    pub(super) fn spec(self) -> &'static ReasonSpec {
        &types()[usize::from(self.kind.0)].1[usize::from(self.index)]
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::condition::engine::Engine;
    use crate::condition::{Suppression, Uptime, View};

    /// Registers the types that tests use: `NTPProblem`, `example.com/ChronyHealthy` and, not on the Node, `oom-killing`.
    pub fn registered() -> [ConditionType; 3] {
        let definition = |name: &str, problem_status, is_published, reasons: &[&str], healthy: &str| Definition {
            name: name.into(),
            problem_status,
            is_published,
            reasons: reasons.iter().map(|name| ((*name).to_owned(), true)).collect(),
            healthy_reason: healthy.into(),
        };
        register(vec![
            definition("NTPProblem", Status::True, true, &["NTPIsDown", "NTPIsLate"], "NTPIsUp"),
            definition("example.com/ChronyHealthy", Status::False, true, &["ChronyFailed"], "CheckPassed"),
            definition("oom-killing", Status::False, false, &["OOMKilling"], "CheckPassed"),
        ]);
        let all: Vec<_> = all().collect();
        all.try_into().expect("only tests register here")
    }

    #[test]
    fn a_registered_type_is_found_by_its_name_and_has_its_reasons() {
        let [ntp, chrony, oom] = registered();
        assert_eq!(ConditionType::by_name("example.com/ChronyHealthy"), Some(chrony));
        assert_eq!((ntp.problem_status(), chrony.problem_status()), (Status::True, Status::False));
        let of = |kind: ConditionType, name: &str| Reason::of(kind, name).unwrap();
        assert!(of(ntp, "NTPIsDown") < of(ntp, "NTPIsLate"), "the worse one comes first");
        assert_eq!(Reason::of(chrony, "NTPIsDown"), None);
        assert_eq!(Reason::healthy(ntp).spec().name, "NTPIsUp");
        assert_eq!(of(ntp, "CheckUnknown").spec().status, Status::Unknown);
        assert_eq!(of(oom, "OOMKilling").spec().status, oom.healthy_status(), "a warning");
        assert!(!oom.is_published() && ntp.is_published());
    }

    #[test]
    fn a_warning_of_a_check_without_a_condition_is_held_back_like_a_problem() {
        let [.., oom] = registered();
        let found = || View::found(Reason::of(oom, "OOMKilling").unwrap(), "m");
        let shown = |before: Option<View>, by: Suppression| {
            let mut engine = Engine::new(Duration::ZERO, BTreeMap::new());
            if let Some(before) = before {
                engine.report(oom, before, Uptime::ZERO);
                engine.evaluate(Uptime::ZERO);
            }
            engine.suppress(Some(by));
            engine.report(oom, found(), Uptime::ZERO);
            engine.evaluate(Uptime::ZERO).pop().unwrap().reason
        };
        let why = String::new;
        // At first, after health, and after the same warning.
        for (by, reasons) in [
            (Suppression::Paused { why: why() }, ["NodePaused", "NodePaused", "NodePaused"]),
            (Suppression::InMaintenance { why: why() }, ["NodeInMaintenance", "NodeInMaintenance", "OOMKilling"]),
            (Suppression::PackageUpgrade { why: why() }, ["NodeInMaintenance", "CheckPassed", "OOMKilling"]),
            (Suppression::JustStarted, ["NodeJustStarted", "NodeJustStarted", "OOMKilling"]),
        ] {
            let before = [None, Some(View::healthy("m")), Some(found())];
            assert_eq!(before.map(|before| shown(before, by.clone())), reasons, "{by:?}");
        }
    }

    #[test]
    fn the_types_of_others_are_reserved() {
        for name in
            ["Ready", "PIDPressure", "KubeletHealthy", "StorageReady", "KernelDeadlock", "AcceleratedHardwareReady"]
        {
            assert!(is_reserved(name), "{name}");
        }
        assert!(!is_reserved("NTPProblem") && !is_reserved("example.com/Ready"));
    }
}
