//! Histories of one condition, told as findings.

use super::{suppress::Asking, timing::Leave, *};

const CHECK: &str = "a check";

impl Health {
    /// The one check says this, and nobody asks for quiet.
    fn found(&mut self, reason: Reason, now: Now) -> bool {
        self.observe(CHECK, &[finding(reason)], Asking::default(), now)
    }
}

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(secs),
        wall: Timestamp::from_second(1_800_000_000 + i64::try_from(secs).unwrap()).unwrap(),
    }
}

fn finding(reason: Reason) -> Finding {
    Finding {
        reason,
        message: reason.as_str().to_owned(),
    }
}

fn stored(status: Status, reason: &str, secs: u64) -> Stored {
    Stored {
        status,
        reason: reason.to_owned(),
        message: "from before".to_owned(),
        since: at(secs).wall,
    }
}

#[test]
fn registry_is_whole() {
    for (i, spec) in reasons().enumerate() {
        assert!(spec.doc.ends_with('.'), "{}", spec.name);
        // A reason must tell by itself what it is about: dialects put several conditions under one name.
        let about: &[&str] = match spec.condition {
            None => &["Node"],
            Some(ConditionType::KubeletHealthy | ConditionType::KubeletConfigValid) => &["Kubelet"],
            Some(ConditionType::ContainerRuntimeHealthy) => &["ContainerRuntime"],
            Some(ConditionType::NodeStorageHealthy) => &["Storage", "Filesystem"],
            // Under its other name, KernelReady, it stands alone; what runs out is named as the field names it.
            Some(ConditionType::NodeKernelHealthy) => &[""],
            Some(ConditionType::NodeMemoryHealthy | ConditionType::MemoryExhaustionImminent) => {
                &["Memory"]
            }
            Some(ConditionType::NodeBootstrapped) => &["Node", "Bootstrap"],
        };
        let tells = about.iter().any(|about| spec.name.starts_with(about));
        assert!(tells, "{}", spec.name);
        assert_eq!(spec.condition, spec.reason.condition());
        // The status and the severity say the same.
        let status = match spec.severity {
            Severity::Aside | Severity::Healthy | Severity::Warning => Status::True,
            Severity::Unsure => Status::Unknown,
            Severity::Degraded | Severity::Failed => Status::False,
        };
        assert_eq!(spec.status, status, "{}", spec.name);
        // A problem never leaves at once: what is over must be seen to be over.
        let leaves_late = matches!(
            spec.leave,
            Leave::HealthySpell | Leave::Refined | Leave::RefinedBy(_)
        );
        assert!(leaves_late || spec.status != Status::False, "{}", spec.name);
        // What is good, or somebody's will, is no sample.
        let is_sampled = !spec.enter.is_fact();
        assert!(
            !is_sampled || spec.status != Status::True || spec.severity == Severity::Warning,
            "{}",
            spec.name
        );
        assert_eq!(format!("{:?}", spec.reason), spec.name);
        assert_eq!(Reason::parse(spec.name), Some(spec.reason));
        assert!(reasons().take(i).all(|other| other.name != spec.name));
    }
}

#[test]
fn every_condition_has_its_place() {
    let conditions = Conditions::new(Duration::ZERO);
    for kind in ConditionType::ALL {
        assert_eq!(conditions.get(*kind).kind(), *kind);
    }
}

#[test]
fn what_the_node_shows_stays_until_its_own_check_has_run() {
    let mut conditions = Conditions::new(Duration::from_mins(1));
    let config = ConditionType::KubeletConfigValid;
    conditions
        .get_mut(config)
        .adopt(stored(Status::True, "KubeletConfigIsValid", 5));
    assert_eq!(conditions.verdicts().count(), 0);
    let healthy = [finding(Reason::KubeletIsHealthy)];
    conditions.observe(
        ConditionType::KubeletHealthy,
        "kubelet",
        &healthy,
        &[],
        at(30),
    );
    let shown: Vec<_> = conditions.verdicts().map(|(k, v)| (k, v.since)).collect();
    assert_eq!(shown[1], (config, at(5).wall));
    // Another Node's is not this one's.
    conditions.node_is_new();
    assert_eq!(conditions.verdicts().count(), 1);
}

#[test]
fn every_rule_is_a_reason_for_false() {
    for rule in crate::rules::all() {
        let reason = Reason::of_rule(rule.id).unwrap();
        assert_eq!(reason.status(), Status::False);
        assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        assert!(reasons().all(|spec| spec.name != reason.as_str()));
    }
}

#[test]
fn a_stop_in_a_package_upgrade_is_no_news_and_a_death_is() {
    let kind = ConditionType::KubeletHealthy;
    let dpkg = [Suppressor::PackageUpgrade {
        manager: "dpkg".to_owned(),
    }];
    let mut conditions = Conditions::new(Duration::from_mins(1));
    let mut told = |reason, quiet: &[Suppressor], secs| {
        conditions.observe(kind, CHECK, &[finding(reason)], quiet, at(secs));
        conditions.get(kind).verdict().unwrap().status
    };
    assert_eq!(told(Reason::KubeletIsHealthy, &[], 1), Status::True);
    let stopped = Reason::KubeletStoppedByOperator;
    assert_eq!(told(stopped, &dpkg, 2), Status::True);
    assert_eq!(told(Reason::KubeletIsHealthy, &dpkg, 3), Status::True);
    // Its end: what was kept back is told, if it is still so.
    assert_eq!(told(stopped, &dpkg, 4), Status::True);
    assert_eq!(told(stopped, &[], 5), Status::Unknown);
    assert_eq!(told(Reason::KubeletIsHealthy, &[], 6), Status::True);
    assert_eq!(told(Reason::KubeletCrashed, &dpkg, 7), Status::False);
}

#[test]
fn a_node_is_not_born_with_what_was_wrong_before_it_could_join() {
    let kind = ConditionType::KubeletConfigValid;
    let rule = Reason::of_rule("CF001").unwrap();
    let mut conditions = Conditions::new(Duration::from_mins(1));
    let told = |conditions: &mut Conditions, reason, quiet: &[Suppressor], secs| {
        conditions.observe(kind, CHECK, &[finding(reason)], quiet, at(secs));
        conditions.get(kind).verdict().unwrap().status
    };
    assert_eq!(told(&mut conditions, rule, &[], 1), Status::False);
    conditions.node_is_new();
    let grace = [Suppressor::BootGrace];
    assert_eq!(told(&mut conditions, rule, &grace, 2), Status::Unknown);
    let valid = Reason::KubeletConfigIsValid;
    assert_eq!(told(&mut conditions, valid, &grace, 3), Status::True);
    // One that is still so when the grace ends is told.
    conditions.node_is_new();
    assert_eq!(told(&mut conditions, rule, &grace, 4), Status::True);
    assert_eq!(told(&mut conditions, rule, &[], 30), Status::False);
}

#[test]
fn a_problem_leaves_only_after_a_healthy_spell() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    assert!(health.found(Reason::KubeletIsHealthy, at(1)));
    assert!(health.found(Reason::KubeletCrashed, at(10)));
    assert!(!health.found(Reason::KubeletIsHealthy, at(20)));
    assert_eq!(health.next_deadline(), Some(Duration::from_secs(80)));
    // A relapse starts the spell anew.
    assert!(health.found(Reason::KubeletHung, at(50)));
    assert!(!health.found(Reason::KubeletIsHealthy, at(60)));
    assert!(!health.found(Reason::KubeletIsHealthy, at(119)));
    assert!(health.found(Reason::KubeletIsHealthy, at(120)));
    assert_eq!(health.verdict().unwrap().since, at(120).wall);
}

#[test]
fn a_refined_reason_keeps_the_transition_time() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletGone, at(10));
    assert!(health.found(Reason::KubeletCrashed, at(11)));
    assert_eq!(health.verdict().unwrap().since, at(10).wall);
}

#[test]
fn a_restart_keeps_status_and_time() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.adopt(stored(Status::False, "KubeletCrashed", 5));
    assert_eq!(
        health.verdict(),
        None,
        "nothing is said before the check ran"
    );
    assert!(health.found(Reason::KubeletCrashed, at(30)));
    assert_eq!(health.verdict().unwrap().since, at(5).wall);
}

#[test]
fn a_late_record_gives_its_time_and_its_problem() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletIsHealthy, at(30));
    health.adopt(stored(Status::True, "KubeletIsHealthy", 5));
    assert_eq!(health.verdict().unwrap().since, at(5).wall);

    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletNotFound, at(30));
    health.adopt(stored(Status::Unknown, "KubeletStoppedByOperator", 5));
    assert_eq!(
        health.adopted().unwrap().reason,
        Reason::KubeletStoppedByOperator
    );

    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletIsHealthy, at(30));
    health.adopt(stored(Status::False, "KubeletCrashed", 5));
    assert_eq!(health.verdict().unwrap().reason, Reason::KubeletCrashed);
    assert_eq!(health.next_deadline(), Some(Duration::from_secs(90)));
    assert!(health.found(Reason::KubeletIsHealthy, at(90)));
    assert_eq!(health.verdict().unwrap().since, at(90).wall);
}

#[test]
fn what_was_thought_before_the_record_came_is_no_flip() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletStarting, at(30));
    health.found(Reason::KubeletCrashed, at(31));
    health.adopt(stored(Status::False, "KubeletCrashed", 5));
    assert_eq!(health.verdict().unwrap().since, at(5).wall);
    // But what has been told since the record is.
    health.found(Reason::KubeletIsHealthy, at(32));
    health.found(Reason::KubeletIsHealthy, at(92));
    health.adopt(stored(Status::True, "KubeletIsHealthy", 5));
    assert_eq!(health.verdict().unwrap().since, at(92).wall);
}

#[test]
fn a_new_node_is_not_born_with_an_old_crash() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletCrashed, at(10));
    health.node_is_new();
    assert_eq!(
        health.verdict().unwrap().reason,
        Reason::KubeletCrashed,
        "it lasts"
    );
    health.found(Reason::KubeletStarting, at(11));
    health.node_is_new();
    assert!(health.found(Reason::KubeletStarting, at(12)));
    assert!(health.found(Reason::KubeletIsHealthy, at(13)));
    assert_eq!(health.verdict().unwrap().status, Status::True);
}

/// One condition that is fed by one check, and who asks for quiet.
struct Story {
    conditions: Conditions,
    quiet: Vec<Suppressor>,
}

impl Story {
    const KIND: ConditionType = ConditionType::KubeletHealthy;

    fn healthy() -> Self {
        let mut story = Self {
            conditions: Conditions::new(Duration::from_mins(1)),
            quiet: Vec::new(),
        };
        assert_eq!(
            story.tell(1, &[Reason::KubeletIsHealthy]).status,
            Status::True
        );
        story
    }

    fn tell(&mut self, secs: u64, reasons: &[Reason]) -> Verdict {
        let findings: Vec<Finding> = reasons.iter().map(|reason| finding(*reason)).collect();
        let kind = Self::KIND;
        self.conditions
            .observe(kind, CHECK, &findings, &self.quiet, at(secs));
        self.conditions.get(kind).verdict().unwrap().clone()
    }
}

fn paused() -> Vec<Suppressor> {
    vec![Suppressor::Paused {
        by: "nodevigil pause".to_owned(),
        until: None,
    }]
}

#[test]
fn what_is_still_true_when_a_stand_down_ends_is_told_at_once() {
    let mut story = Story::healthy();
    story.quiet = vec![Suppressor::Maintenance];
    let quiet = story.tell(10, &[Reason::KubeletCrashed]);
    assert_eq!(
        (quiet.status, quiet.reason),
        (Status::Unknown, Reason::NodeInMaintenance)
    );
    let wanted =
        "the Node has MaintenanceInProgress=True; held back: KubeletCrashed: KubeletCrashed";
    assert_eq!(quiet.message, wanted);
    story.quiet = Vec::new();
    let told = story.tell(20, &[]);
    assert_eq!(
        (told.status, told.reason, told.since),
        (Status::False, Reason::KubeletCrashed, at(20).wall)
    );
}

#[test]
fn what_was_told_before_a_stand_down_stays_until_it_is_well() {
    let mut story = Story::healthy();
    story.tell(10, &[Reason::KubeletCrashed]);
    story.quiet = paused();
    let told = story.tell(11, &[Reason::KubeletCrashed]);
    assert_eq!((told.status, told.since), (Status::False, at(10).wall));
    let wanted = "KubeletCrashed; standing down: paused by nodevigil pause";
    assert_eq!(told.message, wanted);
    story.tell(20, &[Reason::KubeletIsHealthy]);
    assert_eq!(
        story.tell(79, &[Reason::KubeletIsHealthy]).status,
        Status::False
    );
    assert_eq!(
        story.tell(80, &[Reason::KubeletIsHealthy]).status,
        Status::True
    );
}

#[test]
fn what_a_stand_down_keeps_back_leaves_by_a_healthy_spell_too() {
    let mut story = Story::healthy();
    story.quiet = paused();
    story.tell(10, &[Reason::KubeletHung]);
    story.tell(20, &[Reason::KubeletIsHealthy]);
    let quiet = story.tell(79, &[Reason::KubeletIsHealthy]);
    assert_eq!(
        (quiet.status, quiet.reason),
        (Status::Unknown, Reason::NodePaused)
    );
    assert_eq!(
        story.tell(80, &[Reason::KubeletIsHealthy]).status,
        Status::True
    );
    // Over when the will ends, it is told as nothing.
    story.tell(90, &[Reason::KubeletCrashed]);
    story.tell(91, &[Reason::KubeletIsHealthy]);
    story.quiet = Vec::new();
    assert_eq!(story.tell(92, &[]).status, Status::True);
}

#[test]
fn a_hold_keeps_back_what_is_sampled_until_it_ends_and_no_fact() {
    let dpkg = vec![Suppressor::PackageUpgrade {
        manager: "dpkg".to_owned(),
    }];
    let mut story = Story::healthy();
    story.quiet.clone_from(&dpkg);
    let held = story.tell(10, &[Reason::KubeletHung]);
    assert_eq!(
        (held.status, held.reason),
        (Status::True, Reason::KubeletIsHealthy)
    );
    let wanted =
        "KubeletIsHealthy; held back while dpkg is changing packages: KubeletHung: KubeletHung";
    assert_eq!(held.message, wanted);
    let until = Duration::from_secs(10) + suppress::PACKAGE_UPGRADE_HOLDS;
    assert_eq!(story.conditions.next_deadline(at(10)), Some(until));
    assert_eq!(story.tell(309, &[Reason::KubeletHung]).status, Status::True);
    assert_eq!(story.tell(310, &[]).status, Status::False, "not for ever");

    let mut story = Story::healthy();
    story.quiet = dpkg;
    assert_eq!(
        story.tell(10, &[Reason::KubeletCrashed]).status,
        Status::False
    );
    // What is over before it was told was nothing.
    let mut story = Story::healthy();
    story.quiet = vec![Suppressor::BootGrace];
    story.tell(10, &[Reason::KubeletHung]);
    let well = story.tell(11, &[Reason::KubeletIsHealthy]);
    assert_eq!(
        (well.status, well.message.as_str()),
        (Status::True, "KubeletIsHealthy")
    );
}

#[test]
fn two_problems_that_alternate_show_one_reason() {
    let mut story = Story::healthy();
    for secs in (10..300).step_by(10) {
        let reason = if secs % 20 == 10 {
            Reason::KubeletHung
        } else {
            Reason::KubeletHealthzDown
        };
        let told = story.tell(secs, &[reason]);
        assert_eq!(told.reason, Reason::KubeletHung, "at {secs}");
        let both = "KubeletHung; also KubeletHealthzDown: KubeletHealthzDown";
        assert!(secs == 10 || told.message == both, "{}", told.message);
    }
    // Without it the other one takes its place after a spell, in the same False.
    story.tell(310, &[Reason::KubeletHealthzDown]);
    let told = story.tell(370, &[Reason::KubeletHealthzDown]);
    assert_eq!(
        (told.reason, told.since),
        (Reason::KubeletHealthzDown, at(10).wall)
    );
    // A worse one is shown at once.
    let told = story.tell(371, &[Reason::KubeletHealthzDown, Reason::KubeletCrashed]);
    assert_eq!(told.reason, Reason::KubeletCrashed);
}

#[test]
fn each_relapse_makes_the_way_back_longer() {
    let mut story = Story::healthy();
    let mut now = 100;
    for spell in [60, 120, 240, 480, 900, 900] {
        let told = story.tell(now, &[Reason::KubeletCrashed]);
        assert_eq!((told.status, told.since), (Status::False, at(now).wall));
        story.tell(now + 1, &[Reason::KubeletIsHealthy]);
        let late = story.tell(now + spell, &[Reason::KubeletIsHealthy]);
        assert_eq!(late.status, Status::False);
        let over = story.tell(now + 1 + spell, &[Reason::KubeletIsHealthy]);
        assert_eq!(over.status, Status::True);
        now += spell + 30;
    }
}

#[test]
fn a_sample_waits_for_the_minimum_hold_and_a_fact_does_not() {
    let mut story = Story::healthy();
    story.tell(10, &[Reason::KubeletCrashed]);
    story.tell(11, &[Reason::KubeletIsHealthy]);
    assert_eq!(
        story.tell(71, &[Reason::KubeletIsHealthy]).status,
        Status::True
    );
    let held = story.tell(80, &[Reason::KubeletHung]);
    assert_eq!(held.status, Status::True);
    assert!(
        held.message
            .contains("held back because the status has just flipped: KubeletHung")
    );
    assert_eq!(
        story.conditions.next_deadline(at(80)),
        Some(Duration::from_secs(131))
    );
    let told = story.tell(81, &[Reason::KubeletGone, Reason::KubeletHung]);
    assert_eq!(
        (told.status, told.reason),
        (Status::False, Reason::KubeletGone)
    );
}

#[test]
fn a_reason_of_another_version_gives_way_to_the_first_that_is_known() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.adopt(stored(Status::False, "KubeletOnFire", 5));
    assert!(health.found(Reason::KubeletHung, at(30)));
    let told = health.verdict().unwrap();
    assert_eq!(
        (told.reason, told.message.as_str(), told.since),
        (Reason::KubeletHung, "KubeletHung", at(5).wall)
    );
}
