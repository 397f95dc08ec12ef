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
    for (i, spec) in REASONS.iter().enumerate() {
        assert!(spec.doc.ends_with('.'), "{}", spec.name);
        let about = if spec.condition.is_some() {
            "Kubelet"
        } else {
            "Node"
        };
        assert!(spec.name.starts_with(about), "{}", spec.name);
        assert_eq!(spec.condition, spec.reason.condition());
        // The status and the severity say the same.
        let status = match spec.severity {
            Severity::Healthy => Status::True,
            Severity::Unsure => Status::Unknown,
            Severity::Degraded | Severity::Failed => Status::False,
        };
        assert_eq!(spec.status, status, "{}", spec.name);
        // A problem never leaves at once: what is over must be seen to be over.
        let leaves_late = matches!(spec.leave, Leave::HealthySpell | Leave::Refined);
        assert!(leaves_late || spec.status != Status::False, "{}", spec.name);
        // What is good, or somebody's will, is no sample.
        let is_sampled = !spec.enter.is_fact();
        assert!(!is_sampled || spec.status != Status::True, "{}", spec.name);
        assert_eq!(format!("{:?}", spec.reason), spec.name);
        assert_eq!(Reason::parse(spec.name), Some(spec.reason));
        assert!(REASONS[..i].iter().all(|other| other.name != spec.name));
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
        assert!(REASONS.iter().all(|spec| spec.name != reason.as_str()));
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
