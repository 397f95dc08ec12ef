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
    assert_eq!(book.done(&task, Ok(())), Some(Ok(())));
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
    book.done(&task, Ok(()));
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
        book.done(&task, Err(network.clone())),
        Some(Err(network.clone()))
    );
    assert_eq!(book.error(), Some(&network));
    let again = book.next(at(40)).unwrap();
    assert_eq!(again.name, task.name);
    book.done(&again, Err(network));
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
    assert_eq!(book.done(&task, Ok(())), None, "it was given up");
    let again = book.next(at(2)).unwrap();
    assert_eq!(again.name, task.name);
    let landed = ApiError::Conflict("already exists".to_owned());
    assert_eq!(book.done(&again, Err(landed)), Some(Ok(())));
    assert_eq!((book.waiting(), book.sent()), (0, 1));
    // Somebody has deleted it: the series starts anew.
    book.record(notice("A"), at(5));
    let series = book.next(at(5)).unwrap();
    let gone = book.done(&series, Err(ApiError::NotFound));
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
    assert!(matches!(book.done(&task, Err(refused)), Some(Err(_))));
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
    /// Whatever happens, no hour costs more requests than were allowed, and a deadline that has come is a request.
    #[test]
    fn an_hour_is_bounded(per_hour in 1_u32..60, steps in prop::collection::vec((0_u8..30, 1_u64..200), 1..400)) {
        let mut book = book(per_hour);
        let (mut now, mut sent) = (1000, Vec::new());
        for (reason, wait) in steps {
            now += wait;
            book.record(notice(&format!("Reason{reason}")), at(now));
            if let Some(due) = book.next_deadline()
                && due <= at(now).uptime
                && book.waiting.front().is_some_and(|e| now - e.last.uptime.as_secs() <= 3600)
            {
                prop_assert!(book.next(at(now)).is_some());
                book.forget_in_flight();
                sent.push(now);
            }
            let hour = sent.iter().filter(|at| now - **at < 3600).count();
            prop_assert!(hour <= usize::try_from(per_hour).unwrap().max(1), "{hour} of {per_hour}");
            prop_assert!(book.waiting.len() <= MAX_WAITING && book.recent.len() <= MAX_RECENT);
        }
    }
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
