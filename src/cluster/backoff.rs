//! How long to wait after a failed request: capped exponential backoff with full jitter, by kind of failure.
//!
//! Pure but for its random numbers, whose seed is handed in, so that the nodes of a fleet spread over time and a test
//! can repeat itself.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use super::api::ApiError;

/// The first step's bound.
const BASE: Duration = Duration::from_millis(250);
/// The last step's bound, for a server that is away or in trouble.
pub const CAP: Duration = Duration::from_secs(15);
/// Bounds of the wait after a refusal that time will hardly mend: 401, 403, a request it does not understand.
pub const SLOW: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(5));
/// A `Retry-After` beyond this is not believed.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// The memory of one kind of request's failures.
#[derive(Debug, Clone)]
pub struct Backoff {
    failures: u32,
    random: fastrand::Rng,
}

impl Backoff {
    /// Seeded by the node's name and what the requests are for.
    pub fn new(node: &str, purpose: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (node, purpose).hash(&mut hasher);
        Self {
            failures: 0,
            random: fastrand::Rng::with_seed(hasher.finish()),
        }
    }

    /// A request succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How long to wait after this failure.
    pub fn after(&mut self, error: &ApiError) -> Duration {
        self.failures = self.failures.saturating_add(1);
        match error {
            ApiError::Unauthorized | ApiError::Forbidden(_) | ApiError::Refused { .. } => {
                self.between(SLOW.0, SLOW.1)
            }
            ApiError::TooMany(Some(wait))
            | ApiError::Server {
                retry_after: Some(wait),
                ..
            } => {
                // Everybody was told the same number: spread behind it, never before.
                let wait = (*wait).min(MAX_RETRY_AFTER);
                self.between(wait, wait + self.step())
            }
            _ => self.between(Duration::ZERO, self.step()),
        }
    }

    /// Five minutes, a tenth more or less: the heartbeat's rhythm.
    pub fn around(&mut self, period: Duration) -> Duration {
        self.between(period * 9 / 10, period * 11 / 10)
    }

    fn step(&self) -> Duration {
        BASE.saturating_mul(1_u32 << self.failures.saturating_sub(1).min(16))
            .min(CAP)
    }

    fn between(&mut self, from: Duration, to: Duration) -> Duration {
        from + to.saturating_sub(from).mul_f64(self.random.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> ApiError {
        ApiError::Network("refused".to_owned())
    }

    #[test]
    fn grows_to_the_cap_and_starts_anew() {
        let mut backoff = Backoff::new("n1", "apply");
        for failure in 0..40 {
            let bound = (BASE * 2_u32.pow(failure.min(16))).min(CAP);
            assert!(backoff.after(&network()) <= bound);
        }
        backoff.reset();
        assert!(backoff.after(&network()) <= BASE);
    }

    #[test]
    fn a_fleet_spreads() {
        let waits: Vec<_> = (0..1000)
            .map(|i| {
                let mut backoff = Backoff::new(&format!("n{i}"), "apply");
                for _ in 0..10 {
                    backoff.after(&network());
                }
                backoff.after(&network())
            })
            .collect();
        // Full jitter: each tenth of the range has its share of the nodes.
        for tenth in 0..10 {
            let range = CAP / 10 * tenth..CAP / 10 * (tenth + 1);
            let share = waits.iter().filter(|wait| range.contains(*wait)).count();
            assert!((60..=140).contains(&share), "{share} of 1000 in {range:?}");
        }
    }

    #[test]
    fn refusals_slow_down_to_minutes() {
        let mut backoff = Backoff::new("n1", "apply");
        for error in [ApiError::Unauthorized, ApiError::Forbidden(String::new())] {
            let wait = backoff.after(&error);
            assert!((SLOW.0..=SLOW.1).contains(&wait));
        }
    }

    #[test]
    fn retry_after_is_honoured_and_bounded() {
        let mut backoff = Backoff::new("n1", "apply");
        let told = Duration::from_secs(20);
        assert!(backoff.after(&ApiError::TooMany(Some(told))) >= told);
        let wait = backoff.after(&ApiError::TooMany(Some(Duration::from_hours(24))));
        assert!(wait <= MAX_RETRY_AFTER + CAP);
    }
}
