//! A histogram of durations: fixed bounds, fixed memory.

use std::time::Duration;

/// The upper bounds, as each format spells them (`le` is a float, and in OpenMetrics looks like one), and in
/// microseconds: from what a local socket takes to the longest deadline that anything of ours has.
pub const BOUNDS: &[(&str, &str, u64)] = &[
    ("0.001", "0.001", 1_000),
    ("0.0025", "0.0025", 2_500),
    ("0.005", "0.005", 5_000),
    ("0.01", "0.01", 10_000),
    ("0.025", "0.025", 25_000),
    ("0.05", "0.05", 50_000),
    ("0.1", "0.1", 100_000),
    ("0.25", "0.25", 250_000),
    ("0.5", "0.5", 500_000),
    ("1.0", "1", 1_000_000),
    ("2.5", "2.5", 2_500_000),
    ("5.0", "5", 5_000_000),
    ("10.0", "10", 10_000_000),
];

/// How often something took how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many took at most each bound and more than the one before; the last: longer than any bound.
    buckets: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// One more.
    pub fn observe(&mut self, took: Duration) {
        let micros = took.as_nanos().div_ceil(1000);
        let longer = |(_, _, bound): &&(&str, &str, u64)| micros > u128::from(*bound);
        let bucket = BOUNDS.iter().take_while(longer).count();
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
        self.sum = self.sum.saturating_add(took);
    }

    /// How many so far.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// All together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// How many took at most each of [`BOUNDS`].
    pub fn cumulative(&self) -> impl Iterator<Item = u64> + '_ {
        let mut sum = 0_u64;
        self.buckets[..BOUNDS.len()].iter().map(move |n| {
            sum = sum.saturating_add(*n);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_within_its_bucket() {
        let mut histogram = Histogram::default();
        for nanos in [0, 1_000_000, 1_000_001, 10_000_000_000, 10_000_000_001] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let cumulative: Vec<u64> = histogram.cumulative().collect();
        assert_eq!(cumulative[..2], [2, 3]);
        assert_eq!(cumulative[BOUNDS.len() - 2..], [3, 4]);
        assert_eq!(histogram.count(), 5);
        assert_eq!(histogram.sum(), Duration::from_nanos(20_002_000_002));
    }

    #[test]
    fn nothing_overflows() {
        let mut histogram = Histogram {
            buckets: [u64::MAX; BOUNDS.len() + 1],
            sum: Duration::MAX,
        };
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.count(), u64::MAX);
    }

    #[test]
    fn the_bounds_are_what_they_say() {
        for (open_metrics, text, micros) in BOUNDS {
            for spelled in [open_metrics, text] {
                let seconds: f64 = spelled.parse().unwrap();
                assert_eq!(
                    Duration::from_secs_f64(seconds),
                    Duration::from_micros(*micros)
                );
            }
            assert!(open_metrics.contains('.'), "a float, by its looks");
        }
        assert!(BOUNDS.is_sorted_by_key(|(_, _, micros)| *micros));
    }
}
