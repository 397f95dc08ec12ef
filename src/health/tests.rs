//! Histories of one condition, told as findings.

use super::{suppress::Asking, timing::Leave, *};

const CHECK: &str = "kubelet";

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

/// What lets a controller delete the machine is seen in two ways, or in one that nobody else could confirm.
#[test]
fn a_false_has_its_witnesses() {
    for spec in reasons() {
        // A hint, and what is nobody's reason to replace a node.
        let is_exempt = matches!(
            spec.condition,
            Some(
                ConditionType::KubeletConfigValid
                    | ConditionType::NodeBootstrapped
                    | ConditionType::MemoryExhaustionImminent
            )
        );
        if spec.status != Status::False || is_exempt {
            assert!(spec.witnesses.is_empty(), "{}", spec.name);
            continue;
        }
        assert!(witness::are_enough(spec.witnesses), "{}", spec.name);
        assert!(!spec.witnesses.is_empty(), "{}", spec.name);
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
            Some(ConditionType::NodevigilHealthy) => &["Nodevigil"],
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
    conditions.get_mut(config).adopt(
        stored(Status::True, "KubeletConfigIsValid", 5),
        Written::InThisBoot,
    );
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
    assert!(!health.found(Reason::KubeletCrashed, at(50)));
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
    health.adopt(
        stored(Status::False, "KubeletCrashed", 5),
        Written::InThisBoot,
    );
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
    health.adopt(
        stored(Status::True, "KubeletIsHealthy", 5),
        Written::InThisBoot,
    );
    assert_eq!(health.verdict().unwrap().since, at(5).wall);

    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletNotFound, at(30));
    health.adopt(
        stored(Status::Unknown, "KubeletStoppedByOperator", 5),
        Written::InThisBoot,
    );
    assert_eq!(
        health.adopted().unwrap().reason,
        Reason::KubeletStoppedByOperator
    );

    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletIsHealthy, at(30));
    health.adopt(
        stored(Status::False, "KubeletCrashed", 5),
        Written::InThisBoot,
    );
    assert_eq!(health.verdict().unwrap().reason, Reason::KubeletCrashed);
    assert!(!health.found(Reason::KubeletIsHealthy, at(31)));
    assert_eq!(health.next_deadline(), Some(Duration::from_secs(91)));
    assert!(health.found(Reason::KubeletIsHealthy, at(91)));
    assert_eq!(health.verdict().unwrap().since, at(91).wall);
}

#[test]
fn what_was_thought_before_the_record_came_is_no_flip() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.found(Reason::KubeletStarting, at(30));
    health.found(Reason::KubeletCrashed, at(31));
    health.adopt(
        stored(Status::False, "KubeletCrashed", 5),
        Written::InThisBoot,
    );
    assert_eq!(health.verdict().unwrap().since, at(5).wall);
    // But what has been told since the record is.
    health.found(Reason::KubeletIsHealthy, at(32));
    health.found(Reason::KubeletIsHealthy, at(92));
    health.adopt(
        stored(Status::True, "KubeletIsHealthy", 5),
        Written::InThisBoot,
    );
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
    story.quiet = vec![Suppressor::Maintenance {
        sign: "MaintenanceInProgress=True".to_owned(),
    }];
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
fn what_was_told_before_an_unasked_stand_down_stays_until_it_is_well() {
    let mut story = Story::healthy();
    story.tell(10, &[Reason::KubeletCrashed]);
    story.quiet = vec![Suppressor::Maintenance {
        sign: "MaintenanceInProgress=True".to_owned(),
    }];
    let told = story.tell(11, &[Reason::KubeletCrashed]);
    assert_eq!((told.status, told.since), (Status::False, at(10).wall));
    let wanted = "KubeletCrashed; standing down: the Node has MaintenanceInProgress=True";
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
    let quiet = story.tell(69, &[Reason::KubeletIsHealthy]);
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

/// Several checks that are well say so in one sentence, once; a warning is said alone.
#[test]
fn what_is_healthy_is_one_sentence() {
    let mut health = Health::new(ConditionType::NodeKernelHealthy, Duration::from_mins(1));
    let mut say = |check, reason, message: &str| {
        let message = message.to_owned();
        health.observe(
            check,
            &[Finding { reason, message }],
            Asking::default(),
            at(1),
        );
        health.verdict().unwrap().message.clone()
    };
    let well = Reason::KernelIsHealthy;
    assert_eq!(say("clock", well, "the clock is kept"), "the clock is kept");
    say("limits", well, "no limit of the kernel's is nearly reached");
    let all = say("kernel", well, "the kernel reports no trouble");
    assert_eq!(
        all,
        "the kernel reports nothing that would need another node"
    );
    let hint = "waiting in the kernel for minutes";
    assert_eq!(say("kernel", Reason::KernelTaskHung, hint), hint);
    assert_eq!(say("kernel", well, "the kernel reports no trouble"), all);
}

#[test]
fn each_return_of_what_is_sampled_makes_the_way_back_longer() {
    let mut story = Story::healthy();
    let mut now = 100;
    for (wait, spell) in [
        (0, 60),
        (20, 120),
        (20, 240),
        (20, 480),
        (20, 900),
        (20, 900),
    ] {
        if wait > 0 {
            let held = story.tell(now, &[Reason::KubeletHung]);
            assert_eq!(held.status, Status::True);
            let note = "KubeletIsHealthy; held back until it has lasted 20 s, since the last such trouble ended within the \
                        hour: KubeletHung: KubeletHung";
            assert_eq!(held.message, note);
            let due = Duration::from_secs(now + wait);
            assert_eq!(story.conditions.next_deadline(at(now)), Some(due));
        }
        now += wait;
        let told = story.tell(now, &[Reason::KubeletHung]);
        assert_eq!((told.status, told.since), (Status::False, at(now).wall));
        // Bad for so long that it is over by a whole spell alone.
        now += spell;
        story.tell(now, &[Reason::KubeletIsHealthy]);
        let late = story.tell(now + spell - 1, &[Reason::KubeletIsHealthy]);
        assert_eq!(late.status, Status::False);
        now += spell;
        let over = story.tell(now, &[Reason::KubeletIsHealthy]);
        assert_eq!(over.status, Status::True);
        now += 150;
    }
}

#[test]
fn a_fact_enters_at_once_and_leaves_by_the_first_spell_each_time() {
    let mut story = Story::healthy();
    for now in (100..4000).step_by(90) {
        let told = story.tell(now, &[Reason::KubeletCrashed]);
        assert_eq!((told.status, told.since), (Status::False, at(now).wall));
        story.tell(now + 1, &[Reason::KubeletIsHealthy]);
        let late = story.tell(now + 60, &[Reason::KubeletIsHealthy]);
        assert_eq!(late.status, Status::False);
        let over = story.tell(now + 61, &[Reason::KubeletIsHealthy]);
        assert_eq!(over.status, Status::True);
    }
    // What is sampled has not come back: it was never there.
    assert_eq!(
        story.tell(4100, &[Reason::KubeletHung]).status,
        Status::False
    );
}

#[test]
fn what_returns_for_a_moment_is_not_told_and_a_fact_beside_it_is() {
    let mut story = Story::healthy();
    story.tell(10, &[Reason::KubeletHung]);
    story.tell(15, &[Reason::KubeletIsHealthy]);
    let over = story.tell(75, &[Reason::KubeletIsHealthy]);
    assert_eq!(over.status, Status::True);
    assert_eq!(story.tell(300, &[Reason::KubeletHung]).status, Status::True);
    let well = story.tell(310, &[Reason::KubeletIsHealthy]);
    assert_eq!(
        (well.status, well.message.as_str()),
        (Status::True, "KubeletIsHealthy")
    );
    let told = story.tell(600, &[Reason::KubeletGone, Reason::KubeletHung]);
    assert_eq!(
        (told.status, told.reason),
        (Status::False, Reason::KubeletGone)
    );
}

#[test]
fn an_explicit_pause_lifts_and_its_end_tells_what_is_still_true() {
    for reason in [Reason::KubeletCrashed, Reason::KubeletHung] {
        let mut story = Story::healthy();
        story.tell(10, &[reason]);
        story.quiet = vec![
            Suppressor::Maintenance {
                sign: "MaintenanceInProgress=True".to_owned(),
            },
            paused().remove(0),
        ];
        let lifted = story.tell(20, &[reason]);
        let seen = (lifted.status, lifted.reason, lifted.since);
        assert_eq!(seen, (Status::Unknown, Reason::NodePaused, at(20).wall));
        let name = reason.as_str();
        let wanted = format!("paused by nodevigil pause; held back: {name}: {name}");
        assert_eq!(lifted.message, wanted);
        assert_eq!(story.tell(500, &[]), lifted, "it stays so without a word");
        // What has not lifted by itself does not bring it back.
        story.quiet.pop();
        assert_eq!(story.tell(510, &[reason]).reason, Reason::NodeInMaintenance);
        story.quiet.clear();
        let told = story.tell(520, &[]);
        let seen = (told.status, told.reason, told.since);
        assert_eq!(seen, (Status::False, reason, at(520).wall));
        // It was one trouble, not two: the spell is the first one.
        story.tell(530, &[Reason::KubeletIsHealthy]);
        let late = story.tell(589, &[Reason::KubeletIsHealthy]);
        assert_eq!(late.status, Status::False);
        let over = story.tell(590, &[Reason::KubeletIsHealthy]);
        assert_eq!(over.status, Status::True);
    }
}

#[test]
fn what_is_over_when_a_pause_ends_is_not_told_again() {
    let mut story = Story::healthy();
    story.tell(10, &[Reason::KubeletCrashed]);
    story.quiet = paused();
    story.tell(20, &[Reason::KubeletIsHealthy]);
    story.quiet.clear();
    let told = story.tell(30, &[]);
    assert_eq!((told.status, told.since), (Status::True, at(30).wall));
}

/// Process ids were used up once, and then the kernel's log cannot be read: the one has nothing to do with the other.
#[test]
fn another_checks_unknown_keeps_nothing_alive() {
    let kind = ConditionType::NodeKernelHealthy;
    let mut conditions = Conditions::new(Duration::from_mins(1));
    let mut tell = |check, reason, secs| {
        conditions.observe(kind, check, &[finding(reason)], &[], at(secs));
        conditions.get(kind).verdict().unwrap().clone()
    };
    tell("kernel", Reason::KernelIsHealthy, 1);
    assert_eq!(
        tell("limits", Reason::KernelPidsExhausted, 10).status,
        Status::False
    );
    tell("kernel", Reason::KernelLogUnreadable, 20);
    tell("limits", Reason::KernelIsHealthy, 30);
    assert_eq!(
        tell("kernel", Reason::KernelLogUnreadable, 89).status,
        Status::False
    );
    assert_eq!(
        tell("limits", Reason::KernelIsHealthy, 90).status,
        Status::Unknown
    );
    // Its own check's does: nobody has seen that it is over.
    let mut story = Story::healthy();
    story.tell(10, &[Reason::KubeletCrashed]);
    story.tell(20, &[Reason::KubeletNotFound]);
    assert_eq!(
        story.tell(9999, &[Reason::KubeletNotFound]).status,
        Status::False
    );
}

#[test]
fn what_a_check_said_goes_with_the_check() {
    let kind = ConditionType::NodeKernelHealthy;
    let mut conditions = Conditions::new(Duration::from_mins(1));
    let tell = |conditions: &mut Conditions, check, reason, secs| {
        conditions.observe(kind, check, &[finding(reason)], &[], at(secs));
        conditions.get(kind).verdict().unwrap().status
    };
    tell(&mut conditions, "limits", Reason::KernelPidsExhausted, 1);
    let well = Reason::KernelIsHealthy;
    assert_eq!(tell(&mut conditions, "kernel", well, 2), Status::False);
    assert!(!conditions.is_withdrawn(kind, "limits"));
    conditions.withdraw(kind, "limits");
    assert!(conditions.is_withdrawn(kind, "limits"));
    assert_eq!(tell(&mut conditions, "kernel", well, 3), Status::True);
}

#[test]
fn what_cannot_survive_a_boot_is_not_taken_back_from_before_it() {
    let kernel = ConditionType::NodeKernelHealthy;
    let lockup = || stored(Status::False, "KernelLockedUp", 5);
    let after = |written, late: bool| {
        let mut health = Health::new(kernel, Duration::from_mins(1));
        let well = [finding(Reason::KernelIsHealthy)];
        if late {
            health.observe("kernel", &well, Asking::default(), at(900));
        }
        health.adopt(lockup(), written);
        assert!(health.adopted().is_some(), "the Node keeps what it shows");
        health.observe("kernel", &well, Asking::default(), at(1000));
        health.verdict().unwrap().status
    };
    for late in [false, true] {
        assert_eq!(after(Written::InThisBoot, late), Status::False);
        assert_eq!(after(Written::InAnEarlierBoot, late), Status::True);
    }
    // One that is found again is the same False, and a disk is as it was.
    let mut health = Health::new(kernel, Duration::from_mins(1));
    health.adopt(lockup(), Written::InAnEarlierBoot);
    let found = [finding(Reason::KernelLockedUp)];
    health.observe("kernel", &found, Asking::default(), at(1000));
    let told = health.verdict().unwrap();
    assert_eq!((told.status, told.since), (Status::False, at(5).wall));
    let mut health = Health::new(ConditionType::NodeStorageHealthy, Duration::from_mins(1));
    health.adopt(
        stored(Status::False, "FilesystemReadOnly", 5),
        Written::InAnEarlierBoot,
    );
    let well = [finding(Reason::StorageIsHealthy)];
    health.observe("storage", &well, Asking::default(), at(1000));
    assert_eq!(health.verdict().unwrap().status, Status::False);
    for spec in reasons().filter(|spec| spec.status == Status::False) {
        let words = ["Kubelet", "Killed", "Kernel", "Memory", "ContainerRuntime"];
        let is_process = words.iter().any(|word| spec.name.contains(word));
        let is_certificate = spec.name.contains("ClientCert");
        assert_eq!(
            spec.reason.survives_boot(),
            !is_process || is_certificate || spec.name.starts_with("Bootstrap"),
            "{}",
            spec.name
        );
    }
}

#[test]
fn every_reason_is_named_by_a_check_of_its_condition() {
    for spec in reasons().filter(|spec| spec.condition.is_some()) {
        let check = spec.reason.check();
        let checks = &mut crate::checks::ALL.iter();
        let known = checks.find(|known| known.id == check);
        assert_eq!(
            known.map(|known| known.condition),
            spec.condition,
            "{}",
            spec.name
        );
    }
}

#[test]
fn a_restart_forgets_neither_the_trouble_nor_the_pause() {
    let mut story = Story::healthy();
    story.tell(10, &[Reason::KubeletHung]);
    story.tell(15, &[Reason::KubeletIsHealthy]);
    story.tell(75, &[Reason::KubeletIsHealthy]);
    let restarted = |story: &Story, secs| {
        let mut next = Conditions::new(Duration::from_mins(1));
        next.remember(&story.conditions.remembered(), at(secs));
        let shown = story.conditions.get(Story::KIND).verdict().unwrap();
        next.get_mut(Story::KIND)
            .adopt(Stored::from(shown), Written::InThisBoot);
        assert_eq!(
            next.get(Story::KIND).adopted(),
            Some(shown),
            "nothing flips"
        );
        Story {
            conditions: next,
            quiet: story.quiet.clone(),
        }
    };
    let mut story = restarted(&story, 80);
    assert_eq!(
        story.tell(90, &[Reason::KubeletIsHealthy]).since,
        at(75).wall
    );
    assert_eq!(story.tell(100, &[Reason::KubeletHung]).status, Status::True);
    assert_eq!(story.tell(117, &[]).status, Status::True);
    assert_eq!(story.tell(120, &[]).status, Status::False);
    story.quiet = paused();
    let lifted = story.tell(130, &[]);
    let mut story = restarted(&story, 135);
    assert_eq!(story.tell(140, &[Reason::KubeletHung]).since, lifted.since);
    story.quiet.clear();
    assert_eq!(story.tell(150, &[]).status, Status::False);
}

#[test]
fn a_reason_of_another_version_gives_way_to_the_first_that_is_known() {
    let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
    health.adopt(
        stored(Status::False, "KubeletOnFire", 5),
        Written::InThisBoot,
    );
    assert!(health.found(Reason::KubeletHung, at(30)));
    let told = health.verdict().unwrap();
    assert_eq!(
        (told.reason, told.message.as_str(), told.since),
        (Reason::KubeletHung, "KubeletHung", at(5).wall)
    );
}

#[test]
fn under_a_false_that_stands_a_reason_of_another_class_waits_for_five_minutes() {
    let mut story = Story::healthy();
    assert_eq!(story.tell(10, &[Reason::KubeletHung]).status, Status::False);
    // It is refined, by what a restart does not mend.
    let told = story.tell(20, &[Reason::KubeletUnkillable]);
    assert_eq!(
        (told.reason, told.since),
        (Reason::KubeletHung, at(10).wall)
    );
    assert_eq!(told.next, Some(Reason::KubeletUnkillable));
    assert_eq!(
        told.message,
        "KubeletHung; also KubeletUnkillable: KubeletUnkillable"
    );
    let health = story.conditions.get(Story::KIND);
    assert_eq!(health.next_deadline(), Some(Duration::from_secs(320)));
    let told = story.tell(319, &[Reason::KubeletUnkillable]);
    assert_eq!(told.reason, Reason::KubeletHung);
    let told = story.tell(320, &[]);
    assert_eq!(told.reason, Reason::KubeletUnkillable);
    assert_eq!((told.status, told.since), (Status::False, at(10).wall));
    assert_eq!(
        (told.next, told.message.as_str()),
        (None, "KubeletUnkillable")
    );
}

#[test]
fn from_what_is_not_false_every_class_is_shown_at_once_and_within_a_class_too() {
    let mut story = Story::healthy();
    let told = story.tell(10, &[Reason::KubeletCrashLooping]);
    assert_eq!(
        (told.reason, told.next),
        (Reason::KubeletCrashLooping, None)
    );
    let told = story.tell(11, &[Reason::KubeletStartLimitHit]);
    assert_eq!(
        (told.reason, told.next),
        (Reason::KubeletStartLimitHit, None)
    );
}

#[test]
fn a_reason_that_is_over_while_another_class_waits_stays_until_then_and_no_longer() {
    let mut story = Story::healthy();
    story.tell(10, &[Reason::KubeletCrashed]);
    story.tell(20, &[Reason::KubeletCrashLooping]);
    // The loop is over before it was shown: the condition is well, by the loop's own spell.
    story.tell(30, &[Reason::KubeletIsHealthy]);
    assert_eq!(
        story.tell(89, &[Reason::KubeletIsHealthy]).reason,
        Reason::KubeletCrashed
    );
    assert_eq!(
        story.tell(90, &[Reason::KubeletIsHealthy]).status,
        Status::True
    );
}
