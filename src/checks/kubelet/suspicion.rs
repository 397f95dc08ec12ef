//! What a closer look at a kubelet that does not answer shows: frozen, or stuck in the kernel.

use std::time::Duration;

use super::signs::{Sample, Waiting};
use crate::health::UNKILLABLE_AFTER;

/// Threads whose waits are followed; one that is stuck is enough.
const MAX_FOLLOWED: usize = 32;

/// What was seen of the process since it stopped answering.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// The freezer that holds it.
    pub(super) frozen_by: Option<String>,
    /// Each wait in the kernel, and since when it has been seen (uptime).
    waits: Vec<(Waiting, Duration)>,
    /// When it was looked at last (uptime).
    looked: Duration,
}

impl Suspicion {
    pub(super) fn sampled(&mut self, sample: Sample, uptime: Duration) {
        (self.frozen_by, self.looked) = (sample.frozen_by, uptime);
        self.waits.retain(|(wait, _)| sample.waiting.contains(wait));
        for wait in sample.waiting {
            let is_new = self.waits.iter().all(|(known, _)| *known != wait);
            if is_new && self.waits.len() < MAX_FOLLOWED {
                self.waits.push((wait, uptime));
            }
        }
    }

    /// The thread that has been seen in one and the same wait for too long.
    pub(super) fn stuck(&self) -> Option<i32> {
        let is_stuck = |since: Duration| self.looked >= since + UNKILLABLE_AFTER;
        let mut waits = self.waits.iter();
        let (wait, _) = waits.find(|(_, since)| is_stuck(*since))?;
        Some(wait.tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(waiting: &[(i32, u64)]) -> Sample {
        Sample {
            frozen_by: None,
            waiting: waiting
                .iter()
                .map(|(tid, turns)| Waiting {
                    tid: *tid,
                    turns: *turns,
                })
                .collect(),
        }
    }

    #[test]
    fn one_wait_of_ten_seconds_is_stuck_and_many_short_ones_are_a_busy_disk() {
        let mut suspicion = Suspicion::default();
        for second in 0..10 {
            suspicion.sampled(sample(&[(7, 1), (8, second)]), Duration::from_secs(second));
            assert_eq!(suspicion.stuck(), None);
        }
        suspicion.sampled(sample(&[(7, 1), (8, 10)]), Duration::from_secs(10));
        assert_eq!(suspicion.stuck(), Some(7));
        suspicion.sampled(sample(&[(8, 11)]), Duration::from_secs(11));
        assert_eq!(suspicion.stuck(), None);
    }

    #[test]
    fn what_is_followed_is_bounded() {
        let mut suspicion = Suspicion::default();
        let many: Vec<_> = (0..1000).map(|tid| (tid, 1)).collect();
        suspicion.sampled(sample(&many), Duration::ZERO);
        assert_eq!(suspicion.waits.len(), MAX_FOLLOWED);
    }
}
