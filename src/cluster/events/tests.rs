//! Days in the life of the book.

use proptest::prelude::*;

use super::*;

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(secs),
        wall: Timestamp::from_second(1_800_000_000 + i64::try_from(secs).unwrap()).unwrap(),
    }
}

fn notice(reason: &str) -> Notice {
    Notice {
        warning: true,
        reason: reason.to_owned(),
        action: "SetCondition",
        note: format!("because of {reason}"),
        about: String::new(),
        pace: Pace::Urgent,
    }
}

fn book(per_hour: u32) -> EventBook {
    let mut book = EventBook::new("n1", per_hour);
    book.node(Some("u1"));
    book
}

/// Sends what is due, and the API takes it.
fn send(book: &mut EventBook, secs: u64) -> Option<EventTask> {
    let task = book.next(at(secs))?;
    assert!(book.next(at(secs)).is_none(), "one in flight");
    assert_eq!(book.done(&task, Ok(()), at(secs)), Some(Ok(())));
    Some(task)
}

#[test]
fn the_same_again_within_six_minutes_is_a_series() {
    let mut book = book(20);
    book.record(notice("KubeletCrashed"), at(10));
    let first = send(&mut book, 10).unwrap();
    assert_eq!(
        (first.exists, first.count, first.uid.as_str()),
        (false, 1, "u1")
    );
    book.record(notice("KubeletIsHealthy"), at(70));
    assert_ne!(send(&mut book, 70).unwrap().name, first.name);
    book.record(notice("KubeletCrashed"), at(300));
    let second = send(&mut book, 300).unwrap();
    assert_eq!((second.exists, second.count), (true, 2));
    assert_eq!((&second.name, second.first), (&first.name, first.first));
    assert_eq!(second.last, at(300).wall);
    // From the last of the series on, not from the first.
    book.record(notice("KubeletCrashed"), at(600));
    assert_eq!(send(&mut book, 600).unwrap().count, 3);
    book.record(notice("KubeletCrashed"), at(961));
    let anew = send(&mut book, 961).unwrap();
    assert!(!anew.exists && anew.count == 1 && anew.name != first.name);
}

#[test]
fn what_piles_up_while_one_is_on_its_way_is_counted_on() {
    let mut book = book(20);
    book.record(notice("KubeletCrashed"), at(10));
    let task = book.next(at(10)).unwrap();
    book.record(notice("KubeletCrashed"), at(11));
    book.record(notice("KubeletCrashed"), at(12));
    book.done(&task, Ok(()), at(0));
    let next = send(&mut book, 13).unwrap();
    assert_eq!((next.exists, next.count, next.name), (true, 3, task.name));
    assert!(send(&mut book, 14).is_none());
}

#[test]
fn what_the_api_cannot_take_is_kept_up_to_a_bound_and_then_counted() {
    let mut book = book(20);
    for i in 0..20 {
        book.record(notice(&format!("Reason{i}")), at(i));
    }
    assert_eq!((book.waiting(), book.dropped()), (MAX_WAITING, 4));
    let task = book.next(at(20)).unwrap();
    assert!(
        task.notice
            .note
            .ends_with("(4 earlier events could not be told)")
    );
    let network = ApiError::Network("refused".to_owned());
    assert_eq!(
        book.done(&task, Err(network.clone()), at(0)),
        Some(Err(network.clone()))
    );
    assert_eq!(book.error(), Some(&network));
    let again = book.next(at(40)).unwrap();
    assert_eq!(again.name, task.name);
    book.done(&again, Err(network), at(0));
    let task = send(&mut book, 80).unwrap();
    assert!(task.notice.note.len() <= MAX_NOTE_BYTES);
    assert_eq!(
        send(&mut book, 80).unwrap().notice.note,
        "because of Reason5"
    );
    // An hour later nobody wants to know.
    assert!(book.next(at(4000)).is_none());
    assert_eq!((book.waiting(), book.sent(), book.dropped()), (0, 2, 18));
}

#[test]
fn a_lost_answer_a_lost_event_and_a_refusal() {
    let mut book = book(20);
    book.record(notice("A"), at(1));
    let task = book.next(at(1)).unwrap();
    book.forget_in_flight();
    assert_eq!(book.done(&task, Ok(()), at(0)), None, "it was given up");
    let again = book.next(at(2)).unwrap();
    assert_eq!(again.name, task.name);
    let landed = ApiError::Conflict("already exists".to_owned());
    assert_eq!(book.done(&again, Err(landed), at(0)), Some(Ok(())));
    assert_eq!((book.waiting(), book.sent()), (0, 1));
    // Somebody has deleted it: the series starts anew.
    book.record(notice("A"), at(5));
    let series = book.next(at(5)).unwrap();
    let gone = book.done(&series, Err(ApiError::NotFound), at(0));
    assert_eq!(gone, Some(Ok(())));
    let anew = send(&mut book, 6).unwrap();
    assert!(!anew.exists && anew.name != series.name);
    // What the API will never take does not stand in the way of the next.
    book.record(notice("B"), at(10));
    book.record(notice("C"), at(11));
    let task = book.next(at(11)).unwrap();
    let refused = ApiError::Refused {
        code: 422,
        message: String::new(),
    };
    assert!(matches!(
        book.done(&task, Err(refused), at(0)),
        Some(Err(_))
    ));
    assert_eq!(book.next(at(400)).unwrap().notice.reason, "C");
}

#[test]
fn another_node_is_another_story() {
    let mut book = book(20);
    book.record(notice("A"), at(1));
    book.node(None);
    assert!(book.next(at(1)).is_none());
    book.node(Some("u1"));
    assert!(book.next(at(1)).is_some(), "it was only out of sight");
    book.forget_in_flight();
    book.node(Some("u2"));
    assert!(book.next(at(2)).is_none());
}

#[test]
fn none_is_none() {
    let mut book = book(0);
    book.record(notice("A"), at(1));
    assert!(book.next(at(1)).is_none() && book.next_deadline().is_none());
}

proptest! {
    /// Whatever happens, no hour costs more requests than were allowed, half of them are left to changes of conditions, and
    /// a deadline that has come is a request.
    #[test]
    fn an_hour_is_bounded(per_hour in 1_u32..60, steps in prop::collection::vec((0_u8..30, 0_u8..3, 1_u64..200), 1..400)) {
        let mut book = book(per_hour);
        let (mut now, mut sent) = (1000, Vec::new());
        for (reason, pace, wait) in steps {
            now += wait;
            let pace = [Pace::Urgent, Pace::Ordinary, Pace::Merged][usize::from(pace)];
            book.record(Notice { pace, ..notice(&format!("Reason{reason}")) }, at(now));
            if let Some(due) = book.next_deadline()
                && due <= at(now).uptime
                && book.waiting.iter().all(|e| now - e.last.uptime.as_secs() <= 3600)
            {
                let task = book.next(at(now));
                prop_assert!(task.is_some());
                let task = task.unwrap();
                book.done(&task, Ok(()), at(now));
                sent.push((now, task.notice.pace));
            }
            let lately = || sent.iter().filter(|(at, _)| now - at < 3600);
            let hour = u32::try_from(lately().count()).unwrap();
            prop_assert!(hour <= per_hour, "{hour} of {per_hour}");
            let others = lately().filter(|(_, pace)| *pace != Pace::Urgent).count();
            prop_assert!(u32::try_from(others).unwrap() <= per_hour / 2, "{others} of {per_hour}");
            prop_assert!(book.waiting.len() <= MAX_WAITING && book.recent.len() <= MAX_RECENT);
        }
    }

    /// After an hour without a change of a condition the next one is sent at once, whatever else there is to tell.
    #[test]
    fn nothing_else_holds_up_a_transition(
        per_hour in 1_u32..60,
        steps in prop::collection::vec((0_u8..30, any::<bool>(), 1_u64..200), 20..400),
    ) {
        let mut book = book(per_hour);
        let mut now = 1000;
        for (reason, merged, wait) in steps {
            now += wait;
            let pace = if merged { Pace::Merged } else { Pace::Ordinary };
            book.record(Notice { pace, ..notice(&format!("Reason{reason}")) }, at(now));
            send(&mut book, now);
        }
        book.record(notice("KubeletCrashed"), at(now));
        prop_assert_eq!(send(&mut book, now).unwrap().notice.reason, "KubeletCrashed");
    }
}

#[test]
fn an_event_from_before_the_first_answer_has_the_clusters_time() {
    let mut book = book(20);
    let wrong = Now {
        wall: at(100).wall - jiff::SignedDuration::from_hours(1),
        ..at(100)
    };
    book.record(notice("KubeletCrashed"), wrong);
    let task = book.next(at(130)).unwrap();
    assert_eq!((task.first, task.last), (at(100).wall, at(100).wall));
}

#[test]
fn a_transition_is_dropped_last_and_sent_first() {
    let mut book = book(20);
    book.record(notice("KubeletCrashed"), at(0));
    for i in 0..30 {
        let pace = Pace::Ordinary;
        book.record(
            Notice {
                pace,
                ..notice(&format!("Reason{i}"))
            },
            at(1 + i),
        );
    }
    book.record(notice("KubeletIsHealthy"), at(40));
    assert_eq!((book.waiting(), book.dropped()), (MAX_WAITING, 16));
    let reasons: Vec<_> = (0..4)
        .filter_map(|_| Some(send(&mut book, 41)?.notice.reason))
        .collect();
    let first = ["KubeletCrashed", "KubeletIsHealthy", "Reason16", "Reason17"];
    assert_eq!(reasons, first);
    // Of changes alone the oldest goes.
    for i in 0..20 {
        book.record(notice(&format!("Change{i}")), at(50));
    }
    assert_eq!(book.waiting(), MAX_WAITING);
    assert!(book.waiting.iter().all(|e| e.notice.is_urgent()));
    assert_eq!(book.waiting[0].notice.reason, "Change4");
}

/// A kill of one pod and a kill of another are two Events; a second kill of the first is one more of its series.
#[test]
fn what_is_about_another_is_an_event_of_its_own() {
    let mut book = EventBook::new("n1", 100);
    book.node(Some("u1"));
    let about = |who: &str| Notice {
        about: who.to_owned(),
        ..notice("ProcessOOMKilled")
    };
    for who in ["a", "b", "a"] {
        book.record(about(who), at(0));
    }
    assert_eq!(book.waiting(), 2);
    assert_eq!(book.next(at(0)).unwrap().count, 2);
}

fn kill(whose: &str) -> Notice {
    Notice {
        about: whose.to_owned(),
        pace: Pace::Merged,
        ..notice("ProcessOOMKilled")
    }
}

/// A pod that is OOM-killed each five minutes for six hours, and a kubelet that dies in the sixth.
#[test]
fn six_hours_of_kills_hold_up_no_transition() {
    let mut book = book(20);
    let death = 5 * 3600 + 1801;
    let (mut told, mut kills) = (None, Vec::new());
    for secs in 1..6 * 3600 {
        if secs % 300 == 0 {
            book.record(kill("default/hog"), at(secs));
        }
        if secs == death {
            book.record(notice("KubeletCrashed"), at(secs));
        }
        let Some(task) = send(&mut book, secs) else {
            continue;
        };
        match task.notice.reason.as_str() {
            "KubeletCrashed" => told = told.or(Some(secs)),
            _ => kills.push(task),
        }
    }
    let told = told.expect("the transition was never sent");
    assert!(told - death <= 1, "after {} s", told - death);
    // One Event, which is made once and counted on less and less often.
    assert!(
        kills
            .iter()
            .skip(1)
            .all(|task| task.exists && task.name == kills[0].name)
    );
    let counts: Vec<_> = kills.iter().map(|task| task.count).collect();
    assert_eq!(counts, [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]);
    assert_eq!(book.dropped(), 0);
}

/// As many as there are pods on a node: each workload an Event, and the transition goes ahead of all.
#[test]
fn kills_of_many_pods_hold_up_no_transition() {
    let mut book = book(20);
    let death = 5 * 3600 + 1801;
    let mut told = None;
    for secs in 1..6 * 3600 {
        if secs % 10 == 0 {
            book.record(kill(&format!("default/hog-{}", secs / 10 % 30)), at(secs));
        }
        if secs == death {
            book.record(notice("KubeletCrashed"), at(secs));
        }
        if let Some(task) = send(&mut book, secs)
            && task.notice.reason == "KubeletCrashed"
        {
            told = told.or(Some(secs));
        }
    }
    assert_eq!(told, Some(death));
}

#[test]
fn what_repeats_is_one_event_within_an_hour_and_its_count_arrives() {
    let mut book = book(20);
    book.record(kill("a/web"), at(10));
    let first = send(&mut book, 10).unwrap();
    // More than six minutes later, and a count that is due.
    book.record(kill("a/web"), at(1000));
    book.record(kill("b/web"), at(1001));
    let second = send(&mut book, 1001).unwrap();
    assert_eq!((second.count, &second.name), (2, &first.name));
    assert_ne!(send(&mut book, 1001).unwrap().name, first.name);
    // The next count waits, and arrives though nothing more happens.
    book.record(kill("a/web"), at(1100));
    assert!(send(&mut book, 1100).is_none());
    let due = book.next_deadline().unwrap().as_secs();
    assert_eq!(due, 1001 + 600);
    let third = send(&mut book, due).unwrap();
    assert_eq!((third.count, third.name), (3, first.name.clone()));
    assert_eq!(book.next_deadline(), None);
    // After an hour without it is another Event.
    book.record(kill("a/web"), at(1100 + 3601));
    let anew = send(&mut book, 1100 + 3601).unwrap();
    assert!(!anew.exists && anew.name != first.name);
}

/// The API server keeps it, though the agent that told it has forgotten it.
#[test]
fn what_is_told_once_has_the_same_name_in_another_life() {
    let late = |about: &str| Notice {
        about: about.to_owned(),
        pace: Pace::Once,
        ..notice("BootstrapStageLate")
    };
    let told = |about: &str, secs| {
        let mut book = book(20);
        book.record(late(about), at(secs));
        let task = book.next(at(secs)).unwrap();
        let there = ApiError::Conflict("already exists".to_owned());
        assert_eq!(book.done(&task, Err(there), at(secs)), Some(Ok(())));
        assert_eq!((book.waiting(), book.dropped()), (0, 0));
        task.name
    };
    assert_eq!(told("network", 10), "n1.u1.bootstrapstagelate.network");
    assert_eq!(told("network", 10), told("network", 999));
    assert_ne!(told("network", 10), told("ready", 10));
    // The longest names there are.
    let mut book = EventBook::new(&"n".repeat(253), 20);
    book.node(Some("01234567-89ab-cdef-0123-456789abcdef"));
    book.record(late("serving-certificate"), at(1));
    assert!(book.next(at(1)).unwrap().name.len() <= 253);
}
