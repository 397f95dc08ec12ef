//! Since when something that asks for suppression stands on the Node, where the Node itself does not say: the agent's first
//! sight of it. Kept across restarts and boots in the annotation `nodevigil.io/standing-down`, which the agent reads back.
//!
//! Pure, and the one place that reckons with such times: what this life saw first by the uptime, so that a wall clock that is
//! set moves no end; what an earlier life saw by the wall clock, the only one that both have, and right once it is right.

use std::{fmt::Write as _, time::Duration};

use jiff::{SignedDuration, Timestamp};

use crate::clock::Now;

/// What begins the record in the annotation, after what is there for people.
const BEGIN: &str = "[first seen ";
/// More than this is never written, and never read.
pub(super) const MAX_RECORD_BYTES: usize = 480;
/// The record's times follow the wall clock only if that was set by more: each change is a write to the Node.
const DRIFT: SignedDuration = SignedDuration::from_mins(1);
/// A record that lies in the future for so long is no clock that is yet to be set: it is nonsense.
const SETTLED: Duration = Duration::from_hours(1);

/// What was seen: a name, and for a value that people choose its fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) fingerprint: Option<u32>,
}

/// One first sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sight {
    subject: Subject,
    /// When it was seen first, as it stands in the record.
    since: Timestamp,
    /// When this life saw it first (uptime).
    met: Duration,
    /// Whether `since` is an earlier life's word, and not this one's.
    is_recorded: bool,
}

/// All of them, in the order in which they were seen.
#[derive(Debug, Default)]
pub(super) struct Sights {
    seen: Vec<Sight>,
    /// What an earlier life kept, until the Node was looked at once.
    past: Option<String>,
    has_looked: bool,
}

impl Sights {
    /// The annotation as it stands on the Node. Only that of the first look counts: later it is this life's own, or older.
    pub(super) fn recall(&mut self, annotation: Option<&str>) {
        if !self.has_looked {
            self.past = annotation.map(str::to_owned);
        }
    }

    /// What stands on the Node now; of all else the sight is lost.
    pub(super) fn see(&mut self, subjects: impl Iterator<Item = Subject>, now: Now) {
        let past = self.past.take();
        self.has_looked = true;
        let mut seen = Vec::new();
        for subject in subjects {
            let known = self.seen.iter().find(|sight| sight.subject == subject);
            let known = known.copied().or_else(|| {
                let since = recorded(past.as_deref()?, subject)?;
                Some(Sight {
                    since,
                    is_recorded: true,
                    ..Sight::new(subject, now)
                })
            });
            seen.push(known.unwrap_or_else(|| Sight::new(subject, now)));
        }
        self.seen = seen;
    }

    /// The Node is another one: whatever stands on it is seen for the first time.
    pub(super) fn begin_anew(&mut self, now: Now) {
        for sight in &mut self.seen {
            *sight = Sight::new(sight.subject, now);
        }
    }

    /// How long ago it was seen first.
    pub(super) fn age(&self, subject: Subject, now: Now) -> Duration {
        let sight = self.seen.iter().find(|sight| sight.subject == subject);
        sight.map_or(Duration::ZERO, |sight| sight.age(now))
    }

    /// When it was seen first, on the wall clock, steady enough to be published.
    pub(super) fn since(&self, subject: Subject) -> Option<Timestamp> {
        let sight = self.seen.iter().find(|sight| sight.subject == subject);
        sight.map(|sight| sight.since)
    }

    /// The wall clock may have been set: the times that are published follow it. `true` if they did.
    pub(super) fn follow_clock(&mut self, now: Now) -> bool {
        let mut any = false;
        for sight in &mut self.seen {
            let lived = sight.lived(now);
            if sight.is_recorded && sight.since > now.wall && lived > SETTLED {
                sight.is_recorded = false;
            }
            let since = before(now.wall, lived);
            if !sight.is_recorded && since.duration_since(sight.since).abs() > DRIFT {
                sight.since = since;
                any = true;
            }
        }
        any
    }

    /// What the annotation keeps of these; nothing if there is nothing to keep.
    pub(super) fn record(&self, of: impl Iterator<Item = Subject>) -> Option<String> {
        let mut text = String::new();
        for subject in of {
            let Some(since) = self.since(subject) else {
                continue;
            };
            let one = entry(subject, since);
            if text.len() + one.len() + BEGIN.len() < MAX_RECORD_BYTES {
                text += if text.is_empty() { BEGIN } else { ", " };
                text += &one;
            }
        }
        (!text.is_empty()).then(|| text + "]")
    }
}

impl Sight {
    fn new(subject: Subject, now: Now) -> Self {
        Self {
            subject,
            since: now.wall,
            met: now.uptime,
            is_recorded: false,
        }
    }

    /// How long this life has known it.
    fn lived(&self, now: Now) -> Duration {
        now.uptime.saturating_sub(self.met)
    }

    fn age(&self, now: Now) -> Duration {
        let lived = self.lived(now);
        if self.is_recorded {
            lived.max(between(self.since, now.wall))
        } else {
            lived
        }
    }
}

/// How long it is from one moment to the other; nothing if that lies before.
pub(super) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// The moment so long before.
pub(super) fn before(at: Timestamp, length: Duration) -> Timestamp {
    let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    at.checked_sub(length).unwrap_or(Timestamp::MIN)
}

/// The moment so long after.
pub(super) fn after(at: Timestamp, length: Duration) -> Timestamp {
    let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    at.checked_add(length).unwrap_or(Timestamp::MAX)
}

fn entry(subject: Subject, since: Timestamp) -> String {
    let mut text = subject.name.to_owned();
    if let Some(fingerprint) = subject.fingerprint {
        write!(text, "#{fingerprint:08x}").expect("a String takes everything");
    }
    text + &format!(" {since:.0}")
}

/// When that was seen first, as the annotation has it. Whoever edits the annotation is not believed more than it makes sense.
fn recorded(annotation: &str, subject: Subject) -> Option<Timestamp> {
    let (_, record) = annotation.strip_suffix(']')?.rsplit_once(BEGIN)?;
    if record.len() > MAX_RECORD_BYTES {
        return None;
    }
    record.split(", ").find_map(|one| {
        let (name, since) = one.split_once(' ')?;
        let since: Timestamp = since.parse().ok()?;
        let (name, fingerprint) = match name.split_once('#') {
            Some((name, digits)) => (name, Some(u32::from_str_radix(digits, 16).ok()?)),
            None => (name, None),
        };
        (name == subject.name && fingerprint == subject.fingerprint).then_some(since)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAUSE: Subject = Subject {
        name: "pause",
        fingerprint: Some(0xab),
    };
    const SIGN: Subject = Subject {
        name: "flatcar",
        fingerprint: None,
    };

    fn at(uptime_secs: u64, wall_secs: i64) -> Now {
        Now {
            uptime: Duration::from_secs(uptime_secs),
            wall: Timestamp::from_second(1_800_000_000 + wall_secs).unwrap(),
        }
    }

    fn see(sights: &mut Sights, subjects: &[Subject], now: Now) {
        sights.see(subjects.iter().copied(), now);
    }

    fn kept(sights: &Sights) -> String {
        let record = sights.record([PAUSE, SIGN].into_iter());
        format!("paused by somebody {}", record.unwrap())
    }

    /// The next life, which finds that annotation.
    fn next_life(annotation: &str, subjects: &[Subject], now: Now) -> Sights {
        let mut sights = Sights::default();
        sights.recall(Some(annotation));
        see(&mut sights, subjects, now);
        sights
    }

    #[test]
    fn a_first_sight_outlives_restart_and_reboot() {
        let mut first = Sights::default();
        see(&mut first, &[PAUSE, SIGN], at(1000, 0));
        let annotation = kept(&first);
        assert_eq!(
            annotation,
            "paused by somebody [first seen pause#000000ab 2027-01-15T08:00:00Z, flatcar 2027-01-15T08:00:00Z]"
        );
        // After a reboot the uptime begins anew.
        let next = next_life(&annotation, &[PAUSE, SIGN], at(30, 600));
        assert_eq!(next.age(PAUSE, at(40, 610)), Duration::from_secs(610));
        assert_eq!(next.age(SIGN, at(40, 610)), Duration::from_secs(610));
        assert_eq!(kept(&next), annotation, "and is kept as it was");
        // Another value is another pause.
        let other = Subject {
            fingerprint: Some(0xac),
            ..PAUSE
        };
        let next = next_life(&annotation, &[other], at(30, 600));
        assert_eq!(next.age(other, at(40, 610)), Duration::from_secs(10));
    }

    #[test]
    fn what_was_gone_is_seen_anew_and_the_past_counts_once() {
        let mut sights = next_life(
            "x [first seen pause#000000ab 2027-01-15T07:00:00Z]",
            &[],
            at(5, 0),
        );
        // It was not there at the first look: what stands in an annotation from then on is older than it.
        sights.recall(Some("x [first seen pause#000000ab 2027-01-15T07:00:00Z]"));
        see(&mut sights, &[PAUSE], at(10, 5));
        assert_eq!(sights.age(PAUSE, at(12, 7)), Duration::from_secs(2));
        see(&mut sights, &[], at(20, 15));
        assert!(sights.seen.is_empty());
        see(&mut sights, &[PAUSE], at(30, 25));
        assert_eq!(sights.age(PAUSE, at(30, 25)), Duration::ZERO);
        sights.begin_anew(at(40, 35));
        assert_eq!(sights.age(PAUSE, at(41, 36)), Duration::from_secs(1));
    }

    #[test]
    fn a_wall_clock_that_is_set_moves_no_end() {
        // Booted in 2001, and put right later.
        let mut sights = Sights::default();
        see(&mut sights, &[PAUSE], at(10, -800_000_000));
        let right = at(100, 90);
        assert_eq!(sights.age(PAUSE, right), Duration::from_secs(90));
        assert!(sights.follow_clock(right));
        assert_eq!(sights.since(PAUSE), Some(at(0, 0).wall));
        // What a clock drifts is no reason to write.
        assert!(!sights.follow_clock(at(200, 160)));
        assert_eq!(sights.since(PAUSE), Some(at(0, 0).wall));
    }

    #[test]
    fn a_record_is_read_by_whatever_clock_there_is_and_again_by_a_better_one() {
        let mut first = Sights::default();
        see(&mut first, &[PAUSE], at(1000, 0));
        let annotation = kept(&first);
        // Two days ahead after the boot: over any bound, until the clock is right.
        let mut next = next_life(&annotation, &[PAUSE], at(10, 172_800));
        assert_eq!(
            next.age(PAUSE, at(20, 172_810)),
            Duration::from_secs(172_810)
        );
        assert_eq!(next.age(PAUSE, at(30, 620)), Duration::from_secs(620));
        assert!(!next.follow_clock(at(30, 620)), "the record is right");
        // Years behind: it counts from this life on, until the clock is right.
        let mut next = next_life(&annotation, &[PAUSE], at(10, -800_000_000));
        let age = |next: &Sights, now| next.age(PAUSE, now).as_secs();
        assert_eq!(age(&next, at(40, -799_999_970)), 30);
        assert!(!next.follow_clock(at(40, -799_999_970)));
        assert_eq!(age(&next, at(50, 700)), 700);
        // It never becomes right: the record was nonsense.
        let mut next = next_life(&annotation, &[PAUSE], at(10, -900_000));
        assert!(next.follow_clock(at(3611, -896_399)));
        assert_eq!(next.since(PAUSE), Some(at(0, -900_000).wall));
    }

    #[test]
    fn the_record_is_bounded() {
        let subjects: Vec<Subject> = (0..20)
            .map(|number| Subject {
                fingerprint: Some(number),
                ..PAUSE
            })
            .collect();
        let mut sights = Sights::default();
        see(&mut sights, &subjects, at(0, 0));
        let record = sights.record(subjects.iter().copied()).unwrap();
        assert!(
            record.len() <= MAX_RECORD_BYTES && record.ends_with(']'),
            "{record}"
        );
        let next = next_life(&record, &subjects[..1], at(0, 60));
        assert_eq!(next.age(subjects[0], at(0, 60)), Duration::from_mins(1));
    }

    proptest! {
        #[test]
        fn whatever_somebody_writes_there_ends_in_time(text in "(\\PC{0,40}\\[first seen )?(pause#000000ab )?\\PC{0,40}\\]?", secs in 0_u64..1000) {
            let sights = next_life(&text, &[PAUSE], at(5, 0));
            prop_assert!(sights.age(PAUSE, at(5 + secs, 0)) >= Duration::from_secs(secs));
        }
    }
}
