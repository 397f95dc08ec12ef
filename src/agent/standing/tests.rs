use jiff::Timestamp;

use super::*;
use crate::cluster::api::StandingSign;

const DAY: Duration = Duration::from_hours(24);
const DAY_SECS: u64 = 86_400;

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_hours(1) + Duration::from_secs(secs),
        wall: Timestamp::from_second(1_800_000_000 + i64::try_from(secs).unwrap()).unwrap(),
    }
}

/// Those who ask for quiet at that time, in words.
fn asking(standing: &mut Standing, secs: u64) -> Vec<String> {
    standing.settle(at(secs));
    standing.list.iter().map(ToString::to_string).collect()
}

fn pause(secs: u64, length_secs: u64) -> Pause {
    let length = Duration::from_secs(length_secs);
    let reason = Some("swap".to_owned());
    Pause::new(at(secs).wall, length, DAY, None, reason).unwrap()
}

fn standing() -> Standing {
    Standing::new(DAY)
}

fn annotated(value: &str) -> NodeWill {
    NodeWill {
        pause: PauseAnnotation::read(value),
        ..NodeWill::default()
    }
}

/// What was to be told, by reason.
fn news(standing: &mut Standing) -> Vec<String> {
    let all = standing.news.drain(..);
    all.map(|notice| {
        assert!(notice.warning);
        notice.reason
    })
    .collect()
}

#[test]
fn nobody_asks_on_a_quiet_day() {
    let mut standing = standing();
    assert!(asking(&mut standing, 0).is_empty());
    assert_eq!(standing.next_deadline(at(0)), None);
}

#[test]
fn a_pause_begins_at_once_and_ends_by_itself() {
    let mut standing = standing();
    standing.learn_pause(Ok(Some(pause(0, 1800))), at(1));
    let asks = asking(&mut standing, 1);
    assert_eq!(asks.len(), 1);
    assert!(
        asks[0].starts_with("paused by nodevigil pause (swap) until 2027-"),
        "{asks:?}"
    );
    assert_eq!(standing.next_deadline(at(1)), Some(at(1800).uptime));
    assert_eq!(asking(&mut standing, 1799).len(), 1);
    assert!(asking(&mut standing, 1800).is_empty());
    // The same, taken back; and a file that makes no sense is none.
    standing.learn_pause(Ok(Some(pause(0, 1800))), at(1));
    standing.learn_pause(Err("broken".to_owned()), at(2));
    assert!(asking(&mut standing, 2).is_empty());
}

#[test]
fn the_annotation_lasts_until_its_time_or_its_end() {
    let mut standing = standing();
    let mut ask = |value: &str, secs| {
        standing.learn_will(&annotated(value), at(secs));
        asking(&mut standing, secs)
    };
    let until = at(60).wall.to_string();
    assert_eq!(ask(&until, 0).len(), 1);
    assert!(ask(&until, 60).is_empty());
    let words = "paused by annotation nodevigil.io/pause (disk swap) until 2027-01-16T08:01:30Z";
    assert_eq!(ask("disk swap", 90), [words]);
    assert_eq!(ask("30m", 91).len(), 1);
    assert!(ask("", 92).is_empty());
}

#[test]
fn the_annotation_is_ignored_over_the_bound_until_it_changes() {
    let mut standing = standing();
    standing.learn_will(&annotated("firmware"), at(0));
    assert_eq!(asking(&mut standing, 0).len(), 1);
    assert_eq!(
        standing.next_deadline(at(0)),
        Some(at(DAY_SECS - 3600).uptime)
    );
    assert_eq!(asking(&mut standing, DAY_SECS - 3601).len(), 1);
    assert!(news(&mut standing).is_empty());
    assert_eq!(asking(&mut standing, DAY_SECS - 3600).len(), 1);
    assert_eq!(news(&mut standing), ["PauseEnding"]);
    assert_eq!(asking(&mut standing, DAY_SECS - 1).len(), 1);
    assert_eq!(
        standing.next_deadline(at(DAY_SECS - 1)),
        Some(at(DAY_SECS).uptime)
    );
    assert!(asking(&mut standing, DAY_SECS).is_empty());
    assert_eq!(news(&mut standing), ["PauseTooLong"]);
    assert_eq!(standing.next_deadline(at(DAY_SECS)), None);
    let annotation = standing.annotation().unwrap();
    assert!(
        annotation.starts_with(
            "ignored: annotation nodevigil.io/pause (firmware) since 2027-01-15T08:00:00Z, longer than max_pause_secs [first seen pause#"
        ),
        "{annotation}"
    );
    assert_eq!(
        standing.words(),
        None,
        "taints and Events stand down no more"
    );
    // The next life knows it, and says so in the journal alone.
    let mut next = Standing::new(DAY);
    next.recall(Some(&annotation));
    next.learn_will(&annotated("firmware"), at(2 * DAY_SECS));
    assert!(asking(&mut next, 2 * DAY_SECS).is_empty());
    assert!(news(&mut next).is_empty());
    assert_eq!(next.annotation(), Some(annotation));
    // Another value is another pause, and the end of it ends all.
    next.learn_will(&annotated("firmware again"), at(2 * DAY_SECS + 1));
    assert_eq!(asking(&mut next, 2 * DAY_SECS + 1).len(), 1);
    next.learn_will(&NodeWill::default(), at(2 * DAY_SECS + 2));
    assert!(asking(&mut next, 2 * DAY_SECS + 2).is_empty());
    assert_eq!(next.annotation(), None);
}

#[test]
fn an_annotation_with_a_time_too_far_away_ends_by_the_bound() {
    let mut standing = standing();
    standing.learn_will(&annotated("2099-01-01T00:00:00Z"), at(0));
    let asks = asking(&mut standing, 0);
    assert!(asks[0].ends_with("until 2027-01-16T08:00:00Z"), "{asks:?}");
    assert_eq!(asking(&mut standing, DAY_SECS - 60).len(), 1);
    assert!(asking(&mut standing, DAY_SECS).is_empty());
    assert_eq!(news(&mut standing), ["PauseEnding", "PauseTooLong"]);
    // Its own time comes: nothing is ignored any more.
    let late = Now {
        wall: "2099-01-01T00:00:00Z".parse().unwrap(),
        ..at(DAY_SECS)
    };
    standing.settle(late);
    assert_eq!(standing.annotation(), None);
}

#[test]
fn a_pause_is_warned_of_once_an_hour_before_its_end_and_a_short_one_not() {
    let mut standing = standing();
    standing.learn_pause(Ok(Some(pause(0, 7200))), at(0));
    assert_eq!(
        standing.next_deadline(at(0)),
        None,
        "nothing was judged yet"
    );
    asking(&mut standing, 0);
    assert_eq!(standing.next_deadline(at(0)), Some(at(3600).uptime));
    for secs in (0..7200).step_by(50) {
        asking(&mut standing, secs);
        let wanted: &[&str] = if secs == 3600 { &["PauseEnding"] } else { &[] };
        assert_eq!(news(&mut standing), wanted, "{secs}");
    }
    assert!(
        asking(&mut standing, 7200).is_empty(),
        "it ended as it was to"
    );
    assert!(news(&mut standing).is_empty());
    for length_secs in [60, 3600] {
        standing.learn_pause(Ok(Some(pause(10_000, length_secs))), at(10_000));
        for secs in [10_000, 10_030, 10_000 + length_secs] {
            asking(&mut standing, secs);
            assert!(news(&mut standing).is_empty(), "{length_secs}: {secs}");
        }
    }
}

/// Asks for a pause, at that second.
type Ask<'a> = &'a dyn Fn(&mut Standing, u64);

#[test]
fn the_end_of_a_pause_is_warned_of_once_over_restarts() {
    let restarted = |kept: &Standing, ask: Ask<'_>| {
        let mut standing = standing();
        standing.have_warned(kept.warned());
        // It is settled before the pause is read, as at each start.
        asking(&mut standing, 3700);
        assert_eq!(standing.warned(), kept.warned());
        ask(&mut standing, 3700);
        asking(&mut standing, 3701);
        standing
    };
    let by_file = |standing: &mut Standing, secs| {
        standing.learn_pause(Ok(Some(pause(0, 7200))), at(secs));
    };
    let by_annotation = |standing: &mut Standing, secs| {
        let until = at(7200).wall.to_string();
        standing.learn_will(&annotated(&until), at(secs));
    };
    let ways: [Ask<'_>; 2] = [&by_file, &by_annotation];
    for ask in ways {
        let mut first = standing();
        ask(&mut first, 0);
        asking(&mut first, 3599);
        assert_eq!((news(&mut first).len(), first.warned().len()), (0, 0));
        first.changed = false;
        asking(&mut first, 3600);
        assert_eq!(news(&mut first), ["PauseEnding"]);
        assert!(first.changed, "it is kept");
        let mut second = restarted(&first, ask);
        assert!(news(&mut second).is_empty(), "it was said");
        let mut third = restarted(&second, ask);
        assert!(news(&mut third).is_empty(), "it was said");
        // Another pause is another one.
        third.learn_will(&NodeWill::default(), at(8000));
        third.learn_pause(Ok(Some(pause(8000, 7200))), at(8000));
        asking(&mut third, 8000 + 3600);
        assert_eq!(news(&mut third), ["PauseEnding"]);
        assert_eq!(third.warned().len(), 1, "the other one is over");
    }
}

#[test]
fn a_pause_file_that_asks_for_more_is_bounded_and_that_is_said() {
    let mut standing = Standing::new(Duration::from_mins(10));
    standing.learn_pause(Ok(Some(pause(0, 3000))), at(1));
    assert_eq!(asking(&mut standing, 599).len(), 1);
    assert!(asking(&mut standing, 601).is_empty());
    assert_eq!(news(&mut standing), ["PauseTooLong"]);
    let annotation = standing.annotation().unwrap();
    assert_eq!(standing.ignored(), std::slice::from_ref(&annotation));
    assert!(
        annotation.starts_with("ignored: nodevigil pause (swap)"),
        "{annotation}"
    );
    asking(&mut standing, 3000);
    assert_eq!(standing.annotation(), None);
}

/// One row of each kind: from which second on it counts no more.
fn signs_and_their_ends() -> [(Option<StandingSign>, u64); 8] {
    let (condition, taint) = (StandingSign::condition, StandingSign::taint);
    let annotation = StandingSign::annotation;
    let day_old = at(0).wall - DAY;
    let almost = day_old + Duration::from_mins(1);
    let flatcar = "flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress";
    let kured = "weave.works/kured-reboot-in-progress";
    [
        (condition("Drained", Some(at(0).wall)), DAY_SECS),
        (condition("Drained", Some(day_old)), 0),
        (condition("Drained", None), DAY_SECS),
        // A time in the future makes it no younger than its first sight.
        (condition("Drained", Some(at(9 * DAY_SECS).wall)), DAY_SECS),
        (taint("node.kubernetes.io/out-of-service", Some(almost)), 60),
        (taint("karpenter.sh/rebooting", None), DAY_SECS),
        (annotation(flatcar, "true"), DAY_SECS),
        (annotation(kured, "2027-01-15T08:00:00Z"), DAY_SECS),
    ]
}

#[test]
fn a_sign_of_maintenance_that_was_forgotten_no_longer_counts() {
    let will = |maintenance| NodeWill {
        maintenance,
        ..NodeWill::default()
    };
    for (sign, ends) in signs_and_their_ends() {
        let sign = sign.unwrap();
        let mut standing = standing();
        standing.learn_will(&will(vec![sign]), at(0));
        if ends > 0 {
            let words = format!("the Node has {}", sign.name());
            assert_eq!(asking(&mut standing, 0), [words]);
            assert_eq!(asking(&mut standing, ends - 1).len(), 1, "{sign:?}");
            let deadline = standing.next_deadline(at(ends - 1));
            assert_eq!(deadline, Some(at(ends).uptime), "{sign:?}");
            // Only what has no time of its own is kept for the next life.
            let annotation = standing.annotation().unwrap();
            let is_kept = annotation.contains("[first seen");
            assert_eq!(is_kept, sign.since.is_none(), "{annotation}");
        }
        assert!(asking(&mut standing, ends).is_empty(), "{sign:?}");
        let annotation = standing.annotation().unwrap();
        assert!(
            annotation.starts_with("ignored: the Node has"),
            "{annotation}"
        );
        assert!(news(&mut standing).is_empty(), "no Event: nobody paused");
        standing.learn_will(&will(Vec::new()), at(ends + 1));
        assert!(asking(&mut standing, ends + 1).is_empty());
        assert_eq!(standing.annotation(), None);
    }
}

#[test]
fn the_annotation_is_no_longer_than_the_policy_allows() {
    let all = |text: &str| text.repeat(400);
    let mut standing = standing();
    let signs = [
        StandingSign::taint("karpenter.sh/rebooting", None),
        StandingSign::condition("Drained", None),
        StandingSign::condition("DrainInProgress", None),
        StandingSign::condition("MaintenanceInProgress", None),
        StandingSign::condition("GracefulNodeShutdownInProgress", None),
    ];
    standing.learn_will(
        &NodeWill {
            pause: PauseAnnotation::read(&all("\u{1f980}")),
            maintenance: signs.into_iter().flatten().collect(),
            deletion: Some("karpenter.sh/disrupted"),
        },
        at(0),
    );
    asking(&mut standing, 0);
    let annotation = standing.annotation().unwrap();
    assert!(
        annotation.len() <= 1024 && annotation.ends_with(']'),
        "{annotation}"
    );
    // And nothing of it is lost on the way.
    let mut next = Standing::new(DAY);
    next.recall(Some(&annotation));
    next.learn_will(&standing.will, at(DAY_SECS));
    assert_eq!(
        asking(&mut next, DAY_SECS),
        ["the Node is being deleted (karpenter.sh/disrupted)"]
    );
}

#[test]
fn maintenance_deletion_and_shutdown_come_and_go() {
    let mut standing = standing();
    standing.learn_will(
        &NodeWill {
            maintenance: StandingSign::condition("MaintenanceInProgress", None)
                .into_iter()
                .collect(),
            deletion: Some("karpenter.sh/disrupted"),
            pause: None,
        },
        at(0),
    );
    standing.learn_shutdown(true);
    let asks = asking(&mut standing, 0);
    assert_eq!(asks.len(), 3);
    assert!(asks[2].contains("karpenter.sh/disrupted"), "{asks:?}");
    standing.learn_will(&NodeWill::default(), at(1));
    standing.learn_shutdown(false);
    assert!(asking(&mut standing, 1).is_empty());
}

#[test]
fn a_package_manager_holds_while_it_works_and_not_for_ever() {
    let mut standing = standing();
    assert!(standing.packages.is_stale(at(0)));
    standing.learn_packages(Some("dpkg"), at(0));
    assert!(!standing.packages.is_stale(at(0)));
    assert_eq!(asking(&mut standing, 0), ["dpkg is changing packages"]);
    assert_eq!(standing.next_deadline(at(0)), Some(at(1).uptime));
    let end = PACKAGE_UPGRADE_HOLDS.as_secs();
    for secs in (1..end).step_by(10) {
        standing.learn_packages(Some("dpkg"), at(secs));
        assert_eq!(asking(&mut standing, secs).len(), 1);
    }
    standing.learn_packages(Some("dpkg"), at(end));
    assert!(asking(&mut standing, end).is_empty());
    // It ended, and another began.
    standing.learn_packages(None, at(end + 1));
    standing.learn_packages(Some("rpm"), at(end + 2));
    assert_eq!(asking(&mut standing, end + 2).len(), 1);
    standing.learn_packages(None, at(end + 3));
    assert!(asking(&mut standing, end + 3).is_empty());
}

#[test]
fn a_young_host_and_a_young_node_have_their_grace() {
    let mut standing = standing();
    let booted = Now {
        uptime: Duration::from_secs(5),
        ..at(0)
    };
    standing.settle(booted);
    assert_eq!(standing.list, [Suppressor::BootGrace]);
    assert_eq!(standing.next_deadline(booted), Some(HOST_GRACE));
    assert!(asking(&mut standing, 0).is_empty());
    standing.node_is_new(at(0));
    assert_eq!(asking(&mut standing, 0).len(), 1);
    let end = NODE_GRACE.as_secs();
    assert_eq!(standing.next_deadline(at(0)), Some(at(end).uptime));
    assert!(asking(&mut standing, end).is_empty());
}
