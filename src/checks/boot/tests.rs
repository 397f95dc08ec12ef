//! Each end and the words for it; when it is asked, and what is kept.

use super::*;
use crate::checks::kernel::event::OomKill;

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(secs),
        wall: Timestamp::UNIX_EPOCH,
    }
}

fn second(secs: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + secs).unwrap()
}

fn boot() -> LastBootRecord {
    LastBootRecord {
        boot_id: "b".to_owned(),
        started: second(0),
        seen: second(10_000),
        going_down: None,
        out_of_memory: None,
        asked: true,
    }
}

fn known(boot: LastBootRecord) -> LastBoot {
    LastBoot {
        record: Kept::Known(boot),
        ..LastBoot::default()
    }
}

fn told(last: &LastBoot) -> (bool, String) {
    let told = judge(last).unwrap();
    assert_eq!(told.news, News::LastBootEnded);
    (told.warning, told.note)
}

#[test]
fn each_end_has_its_words_and_says_no_more_than_is_known() {
    let shut_down = known(LastBootRecord {
        going_down: Some(second(9_990)),
        ..boot()
    });
    let (warning, note) = told(&shut_down);
    assert!(!warning && note.contains("was shut down"), "{note}");
    let oom = |secs| {
        known(LastBootRecord {
            out_of_memory: Some((second(secs), "java".to_owned())),
            ..boot()
        })
    };
    let (warning, note) = told(&oom(9_900));
    assert!(
        warning && note.contains("killed java") && note.contains("is not known"),
        "{note}"
    );
    // Hours before: not named.
    for last in [oom(1_000), known(boot())] {
        let (warning, note) = told(&last);
        assert!(
            warning && note.contains("left no trace") && !note.contains("java"),
            "{note}"
        );
    }
    let panic = |record: Kept| LastBoot {
        panic: Some("Kernel panic - not syncing: x".to_owned()),
        watchdog: Some("iTCO_wdt".to_owned()),
        record,
        ..LastBoot::default()
    };
    let (warning, note) = told(&panic(Kept::Known(boot())));
    assert!(
        warning && note.contains("ended in a kernel panic"),
        "{note}"
    );
    let (_, note) = told(&panic(Kept::Absent));
    assert!(note.contains("is not known"), "{note}");
    let watchdog = LastBoot {
        panic: None,
        ..panic(shut_down.record)
    };
    let (warning, note) = told(&watchdog);
    assert!(
        warning && note.contains("iTCO_wdt") && note.contains("going down"),
        "{note}"
    );
}

#[test]
fn of_a_first_boot_and_of_another_machines_record_nothing_is_told() {
    for record in [Kept::Absent, Kept::Foreign] {
        let last = LastBoot {
            record,
            ..LastBoot::default()
        };
        assert_eq!(judge(&last), None);
    }
    let why = "boot.json: no record".to_owned();
    let unreadable = LastBoot {
        record: Kept::Unreadable { why },
        ..LastBoot::default()
    };
    let (warning, note) = told(&unreadable);
    assert!(!warning && note.contains("is not known"), "{note}");
    let again = LastBoot {
        asked_before: true,
        ..known(boot())
    };
    assert_eq!(judge(&again), None);
}

#[test]
fn it_is_asked_until_it_is_answered_and_told_once() {
    let mut check = Boot::default();
    let away = || Reading::Boot(Err("no answer".to_owned()));
    for secs in [0, 30, 60] {
        assert_eq!(check.due_at(), Some(at(secs).uptime));
        let question = check.turn(at(secs));
        assert_eq!(question, Some(Question::Boot(BootRequest { note: None })));
        check.take(&away(), at(secs));
    }
    check.take(&Reading::Boot(Ok(known(boot()))), at(90));
    assert!(check.told().is_some());
    assert_eq!((check.told(), check.due_at()), (None, None));
    check.take(&Reading::Boot(Ok(known(boot()))), at(91));
    assert_eq!(check.told(), None);
    // A helper that never answers is left alone in the end.
    let mut check = Boot::default();
    for _ in 0..MAX_TRIES {
        check.turn(at(0));
        check.take(&away(), at(0));
    }
    assert_eq!(check.due_at(), None);
}

fn oom(scope: Scope) -> Reading {
    Reading::Kernel(KernelEvent::OomKill(Box::new(OomKill {
        at: Duration::ZERO,
        pid: 7,
        comm: "java".to_owned(),
        cgroup: None,
        limit_cgroup: None,
        limit_bytes: None,
        scope,
        pod: None,
        rss_bytes: None,
    })))
}

fn kept(check: &mut Boot, now: Now) -> Option<BootNote> {
    check.due_at()?;
    match check.turn(now)? {
        Question::Boot(request) => request.note,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_way_down_and_a_host_out_of_memory_are_kept() {
    let mut check = Boot::default();
    check.take(&Reading::Boot(Ok(LastBoot::default())), at(0));
    check.take(&oom(Scope::Cgroup), at(1));
    assert_eq!(check.due_at(), None, "a pod's limit is no end of a host");
    for _ in 0..1000 {
        check.take(&oom(Scope::Host), at(2));
    }
    let victim = "java".to_owned();
    let note = BootNote::OutOfMemory { victim };
    assert_eq!(kept(&mut check, at(2)), Some(note.clone()));
    assert_eq!(check.due_at(), None, "once a minute");
    check.take(&oom(Scope::Host), at(63));
    check.take(&Reading::GoingDown(false), at(63)); // as at each start
    check.take(&Reading::GoingDown(true), at(63));
    assert_eq!(kept(&mut check, at(63)), Some(BootNote::GoingDown));
    assert_eq!(kept(&mut check, at(63)), Some(note));
    check.take(&Reading::GoingDown(false), at(64));
    assert_eq!(kept(&mut check, at(64)), Some(BootNote::StaysUp));
    assert_eq!(check.due_at(), None);
}

#[test]
fn what_befalls_before_the_answer_is_kept_after_it() {
    let mut check = Boot::default();
    check.take(&Reading::GoingDown(true), at(1));
    assert_eq!(kept(&mut check, at(1)), None, "first the question");
    check.take(&Reading::Boot(Ok(LastBoot::default())), at(2));
    assert_eq!(kept(&mut check, at(2)), Some(BootNote::GoingDown));
}
