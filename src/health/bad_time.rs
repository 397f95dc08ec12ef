//! How much of the last hour was bad: sums in bins of ten seconds, so that any history has the same bounded size.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

/// How far back it goes.
pub(super) const HISTORY: Duration = Duration::from_hours(1);
const BIN: Duration = Duration::from_secs(10);
#[cfg(test)]
/// An hour touches one bin more than it is long.
const MAX_BINS: usize = 361;

/// What was bad in the last hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BadTime {
    bins: VecDeque<Bin>,
    /// Since when it has been bad without a break, and until when that is counted (uptime).
    now: Option<(Duration, Duration)>,
}

/// The bin's number, counted from boot, and how many milliseconds of it were bad: never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bin(u64, u64);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn number(uptime: Duration) -> u64 {
    uptime.as_secs() / BIN.as_secs()
}

impl BadTime {
    /// So it is now. What was bad at the last look was bad until this one.
    pub(super) fn note(&mut self, is_bad: bool, uptime: Duration) {
        let since = self.now.map(|(since, counted)| {
            self.add(counted, uptime);
            since
        });
        self.now = is_bad.then(|| (since.unwrap_or(uptime), uptime));
        let oldest = number(uptime.saturating_sub(HISTORY));
        while self.bins.front().is_some_and(|bin| bin.0 < oldest) {
            self.bins.pop_front();
        }
    }

    fn add(&mut self, from: Duration, to: Duration) {
        let mut from = from.max(to.saturating_sub(HISTORY));
        while from < to {
            let bin = number(from);
            let ends = (BIN * u32::try_from(bin + 1).unwrap_or(u32::MAX)).min(to);
            let Some(time) = ends.checked_sub(from).filter(|time| !time.is_zero()) else {
                return; // after 1361 years
            };
            match self.bins.back_mut().filter(|last| last.0 == bin) {
                Some(last) => last.1 += millis(time),
                None => self.bins.push_back(Bin(bin, millis(time))),
            }
            from = ends;
        }
    }

    /// Since when it has been bad without a break (uptime).
    pub(super) fn since(&self) -> Option<Duration> {
        self.now.map(|(since, _)| since)
    }

    /// How much of the last `window`, at most [`HISTORY`], was bad. Of the bin in which the window begins as much counts as fits.
    pub(super) fn within(&self, window: Duration, uptime: Duration) -> Duration {
        let from = uptime.saturating_sub(window);
        let first = number(from);
        let room = millis(BIN) - millis(from) % millis(BIN);
        let bins = self.bins.iter().filter(|bin| bin.0 >= first);
        let sum = bins.map(|bin| bin.1.min(if bin.0 == first { room } else { u64::MAX }));
        Duration::from_millis(sum.sum())
    }

    /// To be kept over a restart.
    pub(super) fn bins(&self) -> Vec<Bin> {
        self.bins.iter().copied().collect()
    }

    /// What was kept, as far as it can be true now.
    pub(super) fn of(bins: &[Bin], uptime: Duration) -> Self {
        let (oldest, newest) = (number(uptime.saturating_sub(HISTORY)), number(uptime));
        let mut kept = Self::default();
        for bin in bins {
            let is_next = kept.bins.back().is_none_or(|last| last.0 < bin.0);
            if is_next && (oldest..=newest).contains(&bin.0) && bin.1 <= millis(BIN) {
                kept.bins.push_back(*bin);
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_bad_is_summed_over_any_window() {
        let mut bad = BadTime::default();
        for (is_bad, secs) in [(true, 103), (true, 108), (false, 125), (true, 200)] {
            bad.note(is_bad, secs * SECOND);
        }
        bad.note(true, 204 * SECOND);
        assert_eq!(bad.since(), Some(200 * SECOND));
        assert_eq!(bad.within(120 * SECOND, 204 * SECOND), 26 * SECOND);
        assert_eq!(
            bad.within(84 * SECOND, 204 * SECOND),
            9 * SECOND,
            "from 120 on"
        );
        assert_eq!(bad.within(40 * SECOND, 204 * SECOND), 4 * SECOND);
        bad.note(false, 204 * SECOND);
        assert_eq!(bad.since(), None);
        assert_eq!(bad.within(HISTORY, 3704 * SECOND), 25 * SECOND);
        bad.note(false, 3800 * SECOND);
        assert_eq!(bad.bins().len(), 1, "the last bin alone is of this hour");
    }

    proptest! {
        #[test]
        fn any_history_is_bounded_and_survives(
            looks in prop::collection::vec((any::<bool>(), 1..2_000_000_u64), 1..600)
        ) {
            let (mut bad, mut now) = (BadTime::default(), Duration::from_hours(2));
            for (is_bad, millis) in looks {
                now += Duration::from_millis(millis);
                bad.note(is_bad, now);
                prop_assert!(bad.bins.len() <= MAX_BINS);
                prop_assert!(bad.within(HISTORY, now) <= HISTORY);
                let kept = BadTime::of(&bad.bins(), now);
                prop_assert_eq!(&kept.bins, &bad.bins);
            }
        }

        #[test]
        fn nonsense_is_not_taken_back(bins in prop::collection::vec((any::<u64>(), any::<u64>()), 0..900)) {
            let bins: Vec<Bin> = bins.into_iter().map(|(number, millis)| Bin(number % 800, millis % 20_000)).collect();
            let kept = BadTime::of(&bins, Duration::from_mins(100));
            prop_assert!(kept.bins.len() <= MAX_BINS);
            prop_assert!(kept.within(HISTORY, Duration::from_mins(100)) <= HISTORY + BIN);
        }
    }
}
