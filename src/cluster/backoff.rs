//! How long to wait: exponential steps with jitter after failures, and the heartbeat's rhythm.
//!
//! Pure but for its random numbers, whose seed is handed in, so that the nodes of a fleet spread over time and a test
//! can repeat itself.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

/// The bounds of the first wait; each step doubles them.
const FIRST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));
/// Up to these: four tries a minute, and with a request's deadline the return is noticed within half a minute.
const LAST: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(23));
/// Bounds of the wait after a refusal that time will hardly mend: 401 and 403.
const REFUSED: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(110));
/// Where each try costs two requests, because our Node is read anew before it: the bounds of the first wait, and the last.
const READ_ANEW: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(8));
const READ_ANEW_LAST: (Duration, Duration) =
    (Duration::from_millis(24_500), Duration::from_secs(26));
/// A `Retry-After` beyond this is not believed.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// Random waits.
#[derive(Debug, Clone)]
pub struct Backoff {
    random: fastrand::Rng,
}

impl Backoff {
    /// Seeded by the node's name and what the waits are for.
    pub fn new(node: &str, purpose: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (node, purpose).hash(&mut hasher);
        Self {
            random: fastrand::Rng::with_seed(hasher.finish()),
        }
    }

    /// The wait after that many failures in a row, the first of them 1.
    pub fn step(&mut self, failures: u32) -> Duration {
        let times = 1_u32 << failures.saturating_sub(1).min(16);
        self.between((FIRST.0 * times).min(LAST.0), (FIRST.1 * times).min(LAST.1))
    }

    /// The same where our Node must be read anew before each try.
    pub fn read_anew(&mut self, failures: u32) -> Duration {
        match failures {
            0 | 1 => self.between(READ_ANEW.0, READ_ANEW.1),
            2 => self.between(READ_ANEW.0 * 2, READ_ANEW.1 * 2),
            _ => self.between(READ_ANEW_LAST.0, READ_ANEW_LAST.1),
        }
    }

    /// The wait after a 401 or a 403.
    pub fn refused(&mut self) -> Duration {
        self.between(REFUSED.0, REFUSED.1)
    }

    /// That period, a tenth more or less: the heartbeat's rhythm.
    pub fn around(&mut self, period: Duration) -> Duration {
        self.between(period * 9 / 10, period * 11 / 10)
    }

    fn between(&mut self, from: Duration, to: Duration) -> Duration {
        from + to.saturating_sub(from).mul_f64(self.random.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_up_to_the_last() {
        let mut backoff = Backoff::new("n1", "way");
        let mut last = Duration::ZERO;
        for failures in 1..=5 {
            let step = backoff.step(failures);
            assert!(step >= last, "{step:?} after {last:?}");
            last = step / 2; // each begins where the one before could end
        }
        for failures in [6, 7, 40, u32::MAX] {
            assert!((LAST.0..=LAST.1).contains(&backoff.step(failures)));
        }
    }

    #[test]
    fn a_fleet_spreads() {
        let waits: Vec<_> = (0..1000)
            .map(|i| Backoff::new(&format!("n{i}"), "way").step(10))
            .collect();
        // Each tenth of the range has its share of the nodes.
        let tenth = LAST.1.saturating_sub(LAST.0) / 10;
        for index in 0..10 {
            let range = LAST.0 + tenth * index..LAST.0 + tenth * (index + 1);
            let share = waits.iter().filter(|wait| range.contains(*wait)).count();
            assert!((60..=140).contains(&share), "{share} of 1000 in {range:?}");
        }
    }

    #[test]
    fn the_heartbeats_of_a_fleet_spread() {
        let period = Duration::from_mins(5);
        let beats: Vec<_> = (0..1000)
            .map(|i| Backoff::new(&format!("n{i}"), "heartbeat").around(period))
            .collect();
        let early = beats.iter().filter(|beat| **beat < period).count();
        assert!((400..=600).contains(&early), "{early} of 1000 are early");
    }
}
