//! Suppression of problems: by a pause, maintenance, a package upgrade, or because the host has just started.

use std::fmt;
use std::time::Duration;

use super::Uptime;

/// A package upgrade counts for this long at most.
const UPGRADE_LASTS: Duration = Duration::from_mins(5);

/// Why problems are suppressed at present. Of several the first one applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suppression {
    /// nodevigil is paused: a problem becomes `Unknown`. `why` has the user and the end of the pause.
    Paused { why: String },
    /// The Node is in maintenance: a new problem becomes `Unknown`, a published one stays. `why` names the maintenance signal.
    InMaintenance { why: String },
    /// A package manager changes the host's programs: no status becomes worse. `why` names it.
    PackageUpgrade { why: String },
    /// The host booted or the Node was created less than two minutes ago: no sampled problem is published as one.
    JustStarted,
}

impl Suppression {
    /// The reason of the suppression; none after a start.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Paused { why } | Self::InMaintenance { why } | Self::PackageUpgrade { why } => Some(why),
            Self::JustStarted => None,
        }
    }
}

/// An entry on the Node which shows that the Node is in maintenance or is being removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceSignal {
    /// A condition of that type with status `True`.
    Condition(&'static str),
    /// The same, only while the Node is cordoned (`spec.unschedulable`). An administrator clears the condition, and may forget to.
    Drain(&'static str),
    /// A label with that key and one of these values.
    Label(&'static str, &'static [&'static str]),
    /// An annotation with that key and one of these values; any but an empty one if none is listed.
    Annotation(&'static str, &'static [&'static str]),
    /// A taint with that key, whatever its value and effect.
    Taint(&'static str),
    /// `metadata.deletionTimestamp`
    Deletion,
}

/// The maintenance signals, each with what sets it. They do not include plans (`MaintenancePlanned`) and candidates for removal
/// (`DeletionCandidateOfClusterAutoscaler`): weeks may pass before these are carried out.
pub const MAINTENANCE_SIGNALS: &[(MaintenanceSignal, &str)] = {
    use MaintenanceSignal::{Annotation, Condition, Deletion, Drain, Label, Taint};
    &[
        (Drain("DrainInProgress"), "an administrator (KEP-5683)"),
        (Drain("Drained"), "an administrator (KEP-5683)"),
        (Condition("MaintenanceInProgress"), "an administrator (KEP-5683)"),
        (Condition("GracefulNodeShutdownInProgress"), "an administrator (KEP-5683)"),
        (Annotation("weave.works/kured-reboot-in-progress", &[]), "kured with --annotate-nodes"),
        // It stays as "false" after a reboot.
        (
            Annotation("flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress", &["true"]),
            "Flatcar Linux Update Operator",
        ),
        // Degraded and Unreconcilable are no maintenance.
        (
            Annotation("machineconfiguration.openshift.io/state", &["Working", "Rebooting"]),
            "OpenShift Machine Config Operator",
        ),
        (Taint("node.kubernetes.io/out-of-service"), "an administrator or a controller (KEP-2268)"),
        (Taint("karpenter.sh/rebooting"), "Karpenter, for a repair by reboot"),
        (Taint("karpenter.sh/disrupted"), "Karpenter, for the Node's removal"),
        (Taint("ToBeDeletedByClusterAutoscaler"), "cluster-autoscaler"),
        // Its other states are final and stay: drain-failed, remediation-succeeded, remediation-failed.
        (
            Label("dgxc.nvidia.com/nvsentinel-state", &["quarantined", "draining", "drain-succeeded", "remediating"]),
            "NVSentinel",
        ),
        (Taint("nvsentinel.dgxc.nvidia.com/external-remediation"), "NVSentinel, for a remediation by others"),
        (Taint("cloud.google.com/impending-node-termination"), "Google Cloud"),
        (Taint("aws-node-termination-handler/spot-itn"), "AWS Node Termination Handler"),
        (Taint("aws-node-termination-handler/asg-lifecycle-termination"), "AWS Node Termination Handler"),
        (Deletion, "the API server, when the Node is deleted"),
    ]
};

impl fmt::Display for MaintenanceSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition(kind) => write!(f, "condition {kind}=True"),
            Self::Drain(kind) => write!(f, "condition {kind}=True (cordoned)"),
            Self::Label(key, values) => write!(f, "label {key}={}", values.join("|")),
            Self::Annotation(key, []) => write!(f, "annotation {key}"),
            Self::Annotation(key, values) => write!(f, "annotation {key}={}", values.join("|")),
            Self::Taint(key) => write!(f, "taint {key}"),
            Self::Deletion => f.write_str("deletionTimestamp"),
        }
    }
}

/// What may suppress problems at present.
#[derive(Debug, Clone, Default)]
pub struct Circumstances<'a> {
    /// By whom nodevigil is paused and until when, if it is.
    pub pause: Option<String>,
    /// The maintenance signals on the Node, and how old each is if it says so.
    pub signals: &'a [(MaintenanceSignal, Option<Duration>)],
    /// The package manager that holds its lock, if one does.
    pub package_manager: Option<&'static str>,
    /// Whether the host booted or the Node was created less than two minutes ago.
    pub has_just_started: bool,
}

/// Decides which suppression applies, and limits how long it lasts.
#[derive(Debug)]
pub struct Suppressor {
    /// A maintenance signal applies for at most this long.
    max: Duration,
    /// The signals on the Node, and when each was first seen.
    signals: Vec<(MaintenanceSignal, Uptime)>,
    /// When the package upgrade was first and last seen.
    upgrade: Option<(Uptime, Uptime)>,
}

impl Suppressor {
    /// A signal of maintenance counts for at most `max` by its own time, else after it was first seen.
    pub const fn new(max: Duration) -> Self {
        Self { max, signals: Vec::new(), upgrade: None }
    }

    /// The suppression that applies, if any.
    pub fn decide(&mut self, circumstances: Circumstances<'_>, now: Uptime) -> Option<Suppression> {
        let signal = self.current_signal(&circumstances, now);
        let package_manager = circumstances.package_manager.filter(|_| self.upgrade_counts(now));
        if let Some(why) = circumstances.pause {
            Some(Suppression::Paused { why })
        } else if let Some(signal) = signal {
            Some(Suppression::InMaintenance { why: format!("the Node has {signal}") })
        } else if let Some(name) = package_manager {
            Some(Suppression::PackageUpgrade { why: format!("{name} is installing or removing packages") })
        } else {
            circumstances.has_just_started.then_some(Suppression::JustStarted)
        }
    }

    fn current_signal(&mut self, present: &Circumstances<'_>, now: Uptime) -> Option<MaintenanceSignal> {
        let known = |signal| self.signals.iter().find(|(known, _)| *known == signal).map(|(_, since)| *since);
        self.signals = present.signals.iter().map(|(signal, _)| (*signal, known(*signal).unwrap_or(now))).collect();
        let mut signals = present.signals.iter().zip(&self.signals);
        let age = |own: Option<Duration>, since: Uptime| own.unwrap_or(now - since);
        signals.find(|((_, own), (_, since))| age(*own, *since) < self.max).map(|((signal, _), _)| *signal)
    }

    /// Whether the upgrade that is seen now has not lasted too long. One that is seen again within `UPGRADE_LASTS` is the same one: else a
    /// package manager that is started again and again would suppress problems for ever.
    fn upgrade_counts(&mut self, now: Uptime) -> bool {
        let same = self.upgrade.filter(|(_, last)| now < *last + UPGRADE_LASTS);
        let since = same.map_or(now, |(since, _)| since);
        self.upgrade = Some((since, now));
        now < since + UPGRADE_LASTS
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::ConditionType::KubeletHealthy;
    use super::super::engine::Engine;
    use super::super::{Condition, Finding, Reason, Status, View};
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn at(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    /// An engine whose kubelet is healthy, or has this problem, shortly after `secs`.
    fn report(engine: &mut Engine, problem: Option<Reason>, secs: u64) {
        let findings = problem.map(|reason| Finding::new(reason, "m")).into_iter().collect();
        engine.report(KubeletHealthy, View::Seen { healthy: "it answers".into(), findings }, at(secs));
    }

    fn engine() -> Engine {
        Engine::new(Duration::from_mins(1), BTreeMap::new())
    }

    #[track_caller]
    fn assert_shows(engine: &mut Engine, secs: u64, status: Status, reason: &str) -> String {
        let condition = engine.evaluate(at(secs)).remove(0);
        assert_eq!((condition.status, condition.reason.as_str()), (status, reason));
        condition.message
    }

    fn in_maintenance() -> Suppression {
        Suppression::InMaintenance { why: "the Node has taint a".into() }
    }

    fn upgrade() -> Suppression {
        Suppression::PackageUpgrade { why: "dpkg is installing or removing packages".into() }
    }

    #[test]
    fn a_pause_lifts_a_problem_and_its_end_shows_it_again() {
        let mut engine = engine();
        report(&mut engine, Some(Reason::KubeletCrashed), 1);
        assert_shows(&mut engine, 1, Status::False, "KubeletCrashed");
        engine.suppress(Some(Suppression::Paused { why: "paused by root".into() }));
        let message = assert_shows(&mut engine, 2, Status::Unknown, "NodePaused");
        assert_eq!(message, "paused by root; KubeletCrashed: m");
        engine.suppress(None);
        assert_shows(&mut engine, 3, Status::False, "KubeletCrashed");
    }

    #[test]
    fn maintenance_keeps_a_problem_and_makes_a_new_one_unknown() {
        let mut engine = engine();
        report(&mut engine, Some(Reason::KubeletCrashed), 1);
        assert_shows(&mut engine, 1, Status::False, "KubeletCrashed");
        engine.suppress(Some(in_maintenance()));
        assert_shows(&mut engine, 2, Status::False, "KubeletCrashed");
        report(&mut engine, None, 3);
        report(&mut engine, None, 63);
        assert_shows(&mut engine, 63, Status::True, "KubeletIsHealthy");
        report(&mut engine, Some(Reason::KubeletOOMKilled), 64);
        let message = assert_shows(&mut engine, 64, Status::Unknown, "NodeInMaintenance");
        assert_eq!(message, "the Node has taint a; KubeletOOMKilled: m");
        engine.suppress(None);
        assert_shows(&mut engine, 65, Status::False, "KubeletOOMKilled");
    }

    #[test]
    fn what_was_found_before_the_node_was_seen_is_a_new_problem_in_maintenance() {
        let mut engine = engine();
        report(&mut engine, Some(Reason::KubeletCrashed), 1);
        assert_shows(&mut engine, 1, Status::False, "KubeletCrashed");
        let (kind, reason, message) = (KubeletHealthy, "KubeletIsHealthy".to_owned(), "m".to_owned());
        engine.adopt(Condition { kind, status: Status::True, reason, message, since: at(2) }, false, at(2));
        engine.suppress(Some(in_maintenance()));
        assert_shows(&mut engine, 2, Status::Unknown, "NodeInMaintenance");
    }

    /// As in an upgrade of nodevigil itself: dpkg holds its lock while its script restarts the agent.
    #[test]
    fn an_agent_that_a_package_upgrade_restarts_keeps_the_problem_that_the_node_shows() {
        let mut engine = engine();
        engine.suppress(Some(upgrade()));
        report(&mut engine, Some(Reason::KubeletCrashed), 1);
        assert_shows(&mut engine, 1, Status::Unknown, "NodeInMaintenance");
        let (kind, reason, message) = (KubeletHealthy, "KubeletCrashed".to_owned(), "m".to_owned());
        engine.adopt(Condition { kind, status: Status::False, reason, message, since: at(0) }, false, at(2));
        assert_shows(&mut engine, 2, Status::False, "KubeletCrashed");
        assert_eq!(engine.evaluate(at(3))[0].since, at(0));
    }

    #[test]
    fn in_a_package_upgrade_no_status_becomes_worse_and_a_recovery_shows() {
        let mut engine = engine();
        report(&mut engine, None, 1);
        assert_shows(&mut engine, 1, Status::True, "KubeletIsHealthy");
        engine.suppress(Some(upgrade()));
        report(&mut engine, Some(Reason::KubeletCrashed), 2);
        assert_eq!(assert_shows(&mut engine, 2, Status::True, "KubeletIsHealthy"), "it answers");
        engine.report(KubeletHealthy, View::Excused(Finding::new(Reason::KubeletStoppedByOperator, "m")), at(3));
        assert_shows(&mut engine, 3, Status::True, "KubeletIsHealthy");
        engine.suppress(None);
        assert_shows(&mut engine, 4, Status::Unknown, "KubeletStoppedByOperator");
        report(&mut engine, Some(Reason::KubeletCrashed), 5);
        assert_shows(&mut engine, 5, Status::False, "KubeletCrashed");
        engine.suppress(Some(upgrade()));
        report(&mut engine, None, 6);
        report(&mut engine, None, 66);
        assert_shows(&mut engine, 66, Status::True, "KubeletIsHealthy");
    }

    #[test]
    fn a_problem_that_is_over_when_its_suppression_ends_is_never_shown_as_one() {
        for suppression in [upgrade(), in_maintenance(), Suppression::Paused { why: "paused".into() }] {
            let mut engine = engine();
            report(&mut engine, None, 1);
            assert_shows(&mut engine, 1, Status::True, "KubeletIsHealthy");
            engine.suppress(Some(suppression));
            report(&mut engine, Some(Reason::KubeletCrashed), 2);
            assert_ne!(engine.evaluate(at(2))[0].status, Status::False);
            report(&mut engine, None, 3);
            engine.suppress(Some(Suppression::JustStarted));
            assert_shows(&mut engine, 3, Status::True, "KubeletIsHealthy");
        }
    }

    #[test]
    fn what_an_agent_sees_first_in_a_package_upgrade_is_no_problem_yet() {
        let mut engine = engine();
        engine.suppress(Some(upgrade()));
        report(&mut engine, Some(Reason::KubeletCrashed), 1);
        assert_shows(&mut engine, 1, Status::Unknown, "NodeInMaintenance");
    }

    #[test]
    fn shortly_after_boot_only_facts_become_false() {
        let mut engine = engine();
        engine.suppress(Some(Suppression::JustStarted));
        report(&mut engine, Some(Reason::KubeletHung), 100);
        assert_shows(&mut engine, 100, Status::Unknown, "NodeJustStarted");
        report(&mut engine, Some(Reason::KubeletCrashed), 101);
        assert_shows(&mut engine, 101, Status::False, "KubeletCrashed");
    }

    #[test]
    fn each_signal_applies_for_a_day_after_it_was_first_observed() {
        for (signal, _) in MAINTENANCE_SIGNALS {
            let mut suppressor = Suppressor::new(DAY);
            let mut decide =
                |signals, secs| suppressor.decide(Circumstances { signals, ..Circumstances::default() }, at(secs));
            let on_node = [(*signal, None)];
            let expected = Some(Suppression::InMaintenance { why: format!("the Node has {signal}") });
            assert_eq!(decide(&on_node[..], 1000), expected);
            assert_eq!(decide(&on_node[..], 1000 + 86_399), expected);
            assert_eq!(decide(&on_node[..], 1000 + 86_400), None, "{signal} is older than a day");
            let another = [(*signal, None), (MaintenanceSignal::Taint("example.com/new"), None)];
            assert!(decide(&another[..], 90_000).is_some(), "a new signal counts in addition to an old one");
            assert_eq!(decide(&[], 100_000), None);
            assert_eq!(decide(&on_node[..], 100_001), expected, "it was set again");
        }
    }

    #[test]
    fn a_signal_with_a_time_of_its_own_counts_from_there_also_after_a_restart_of_the_agent_or_a_reboot() {
        let decide = |age: u64, secs| {
            let signals = [(MaintenanceSignal::Drain("Drained"), Some(Duration::from_secs(age)))];
            let circumstances = Circumstances { signals: &signals, ..Circumstances::default() };
            Suppressor::new(DAY).decide(circumstances, at(secs)).is_some()
        };
        assert!(decide(86_399, 10) && decide(0, 100_000));
        assert!(!decide(86_400, 10), "the host has booted since");
    }

    #[test]
    fn a_package_upgrade_counts_for_five_minutes_even_if_it_goes_on_or_begins_again() {
        let mut suppressor = Suppressor::new(DAY);
        let mut decide = |package_manager, secs| {
            suppressor.decide(Circumstances { package_manager, ..Circumstances::default() }, at(secs)).is_some()
        };
        assert!(decide(Some("dpkg"), 1000) && decide(Some("dpkg"), 1299));
        assert!(!decide(Some("dpkg"), 1300) && !decide(None, 1301) && !decide(Some("dpkg"), 1500));
        assert!(decide(Some("dpkg"), 1800), "another one, five minutes later");
    }

    #[test]
    fn a_pause_counts_before_maintenance_and_that_before_an_upgrade_and_a_start() {
        let mut all = Circumstances {
            pause: Some("paused".into()),
            signals: &[(MaintenanceSignal::Deletion, None)],
            package_manager: Some("rpm"),
            has_just_started: true,
        };
        let mut suppressor = Suppressor::new(DAY);
        let mut decide = |all: &Circumstances<'_>| suppressor.decide(all.clone(), at(1));
        assert_eq!(decide(&all), Some(Suppression::Paused { why: "paused".into() }));
        all.pause = None;
        assert_eq!(decide(&all), Some(Suppression::InMaintenance { why: "the Node has deletionTimestamp".into() }));
        all.signals = &[];
        assert_eq!(
            decide(&all),
            Some(Suppression::PackageUpgrade { why: "rpm is installing or removing packages".into() })
        );
        all.package_manager = None;
        assert_eq!(decide(&all), Some(Suppression::JustStarted));
    }
}
