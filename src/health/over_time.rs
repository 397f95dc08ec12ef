//! What hours of trouble come to: a kubelet that stops and goes on, probed as it is in truth, and how long the condition
//! then says `False`.

use proptest::prelude::*;

use super::*;
use crate::checks::kubelet::{PROBE_EVERY, PROBE_TIMEOUT};

const KIND: ConditionType = ConditionType::KubeletHealthy;
const CHECK: &str = "kubelet";
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// When the trouble begins, in uptime.
const START: u64 = 10_000 * SECOND;

/// From when to when the kubelet stands still, in milliseconds.
type Pieces = Vec<(u64, u64)>;

fn at(millis: u64) -> Now {
    Now {
        uptime: Duration::from_millis(millis),
        wall: Timestamp::from_millisecond(1_800_000_000_000 + i64::try_from(millis).unwrap())
            .unwrap(),
    }
}

/// The kubelet's probes, one after the other: each begins so long after the last, and counts as missed if it is not answered in
/// time.
struct Probes<'a> {
    pieces: &'a [(u64, u64)],
    next: u64,
    misses: u32,
}

impl Probes<'_> {
    /// When the next one ends, and what the check then says: nothing new after too few misses.
    fn probe(&mut self) -> (u64, Option<Reason>) {
        let [every, timeout] =
            [PROBE_EVERY, PROBE_TIMEOUT].map(|time| u64::try_from(time.as_millis()).unwrap());
        let begin = self.next;
        while self.pieces.first().is_some_and(|(_, to)| *to <= begin) {
            self.pieces = &self.pieces[1..];
        }
        let stands = self.pieces.first().filter(|(from, _)| *from <= begin);
        let answered = stands.map_or(begin, |(_, to)| *to) + 2;
        if answered - begin <= timeout {
            (self.misses, self.next) = (0, begin + every);
            return (answered, Some(Reason::KubeletIsHealthy));
        }
        self.misses += 1;
        self.next = begin + if self.misses < 5 { timeout } else { every };
        let hung = self.misses >= PROBES.bad;
        (begin + timeout, hung.then_some(Reason::KubeletHung))
    }
}

/// When the condition was `False`.
fn false_times(pieces: &[(u64, u64)], until: u64) -> Pieces {
    let mut conditions = Conditions::new(Duration::from_mins(1));
    let mut probes = Probes {
        pieces,
        next: START - MINUTE,
        misses: 0,
    };
    let (mut told, mut since, mut word) = (Pieces::new(), None, Vec::new());
    loop {
        let (ends, reason) = probes.probe();
        // The loop's own turns: when a wait ends.
        let due = conditions.next_deadline(at(ends.saturating_sub(2000)));
        let due = due.map(|due| u64::try_from(due.as_millis()).unwrap());
        let turns = due.filter(|due| *due < ends).into_iter().chain([ends]);
        for turn in turns {
            if turn == ends {
                word = reason
                    .map(|reason| Finding {
                        reason,
                        message: reason.as_str().to_owned(),
                    })
                    .into_iter()
                    .collect();
            }
            conditions.observe(KIND, CHECK, &word, &[], at(turn));
            let verdict = conditions.get(KIND).verdict();
            let is_false = verdict.is_some_and(|v| v.status == Status::False);
            match (since, is_false) {
                (None, true) => since = Some(turn),
                (Some(from), false) => {
                    told.push((from, turn));
                    since = None;
                }
                _ => {}
            }
        }
        if ends >= until {
            told.extend(since.map(|from| (from, until)));
            return told;
        }
    }
}

/// How much of `from..to` lies in the pieces.
fn within(pieces: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let cut = |(a, b): &(u64, u64)| (*b).min(to).saturating_sub((*a).max(from));
    pieces.iter().map(cut).sum()
}

fn longest(pieces: &[(u64, u64)]) -> u64 {
    pieces.iter().map(|(from, to)| to - from).max().unwrap_or(0)
}

/// The most of any hour.
fn most_of_an_hour(pieces: &[(u64, u64)]) -> u64 {
    let hours = pieces
        .iter()
        .flat_map(|(from, to)| [(*from, *from + HOUR), (to.saturating_sub(HOUR), *to)]);
    hours
        .map(|(from, to)| within(pieces, from, to))
        .max()
        .unwrap_or(0)
}

/// The most flips in any hour.
fn most_flips(pieces: &[(u64, u64)]) -> usize {
    let flips: Vec<u64> = pieces.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let in_an_hour = |from: u64| (flips.iter()).filter(move |at| (from..from + HOUR).contains(at));
    flips
        .iter()
        .map(|from| in_an_hour(*from).count())
        .max()
        .unwrap_or(0)
}

/// Pieces and gaps, one after the other, from the start on.
fn laid_out(lengths: impl IntoIterator<Item = (u64, u64)>) -> Pieces {
    let mut now = START;
    let lay = |(piece, gap): (u64, u64)| {
        let from = now;
        now += piece + gap;
        (from, from + piece)
    };
    lengths.into_iter().map(lay).collect()
}

#[test]
fn eight_seconds_of_trouble_each_ten_minutes_do_not_add_up() {
    for every in [5, 10, 12] {
        let pieces = laid_out((0..48).map(|_| (8 * SECOND, every * MINUTE - 8 * SECOND)));
        let told = false_times(&pieces, START + 4 * HOUR);
        let longest = longest(&told) / SECOND;
        assert!(!told.is_empty(), "it is told once");
        assert!(
            longest <= 300,
            "each {every} minutes: False for {longest} s on end"
        );
    }
}

/// At most ten seconds of trouble in any hundred.
fn well_nine_tenths() -> impl Strategy<Value = Pieces> {
    let lengths = (1..=100_u64, prop_oneof![1..=300_u64, 1..=3000_u64]);
    let any = prop::collection::vec(lengths, 1..300);
    let again = (1..=100_u64, 0..=20_u64).prop_map(|lengths| vec![lengths; 300]);
    prop_oneof![any, again].prop_map(|lengths| {
        let mut pieces = Pieces::new();
        let mut now = START;
        for (piece, gap) in lengths {
            let piece = piece * 100;
            now += gap * 100;
            let is_much = |from: u64| {
                // No more than a hundred of them fit into the hundred seconds.
                let last: &[_] = &pieces[pieces.len().saturating_sub(100)..];
                let bad = within(last, (from + piece).saturating_sub(100 * SECOND), from);
                bad + piece > 10 * SECOND
            };
            while is_much(now) {
                now += 100;
            }
            pieces.push((now, now + piece));
            now += piece;
        }
        pieces
    })
}

/// As much trouble as health, a few pieces and gaps of any order at a time.
fn bad_half_of_the_time(most: u64, hours: u64) -> impl Strategy<Value = Pieces> {
    let few = prop::collection::vec(10..=most, 1..4)
        .prop_flat_map(|gaps| (Just(gaps.clone()).prop_shuffle(), Just(gaps)));
    let count = usize::try_from(hours * 3600 / 20).unwrap();
    prop::collection::vec(few, count..=count).prop_map(move |all| {
        let one = |(pieces, gaps): (Vec<u64>, Vec<u64>)| pieces.into_iter().zip(gaps);
        let lengths = all.into_iter().flat_map(one);
        let mut pieces = laid_out(lengths.map(|(p, g)| (p * SECOND, g * SECOND)));
        pieces.retain(|(_, to)| *to < START + (hours + 1) * HOUR);
        pieces
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_node_that_is_well_nine_tenths_is_never_false_for_long(pieces in well_nine_tenths()) {
        let until = pieces.last().unwrap().1 + HOUR;
        let told = false_times(&pieces, until);
        prop_assert!(longest(&told) <= 5 * MINUTE, "{} s on end", longest(&told) / SECOND);
        let most = most_of_an_hour(&told);
        prop_assert!(most <= 30 * MINUTE, "{} s of an hour", most / SECOND);
        prop_assert!(most_flips(&told) <= 16);
    }

    #[test]
    fn a_node_that_is_bad_half_of_the_time_is_false(pieces in bad_half_of_the_time(60, 3)) {
        let (from, until) = (START + 2 * MINUTE, START + 3 * HOUR);
        let told = false_times(&pieces, until);
        let share = within(&told, from, until) * 100 / (until - from);
        prop_assert!(share >= 90, "False for {share} % of the time");
        prop_assert!(most_flips(&told) <= 16);
    }

    #[test]
    fn in_the_end_it_is_so_with_longer_gaps_too(pieces in bad_half_of_the_time(300, 4)) {
        let (from, until) = (START + HOUR, START + 4 * HOUR);
        let told = false_times(&pieces, until);
        let share = within(&told, from, until) * 100 / (until - from);
        prop_assert!(share >= 90, "False for {share} % of the time");
        prop_assert!(most_flips(&told) <= 16);
    }
}
