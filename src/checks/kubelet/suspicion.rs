//! What a closer look at a kubelet that does not answer shows: frozen, or stuck in the kernel.

use std::time::Duration;

use super::signs::{Listening, Sample, Waiting};
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
    /// Who listens at its port, and whether it was so, with as many waiting or fewer, at the look before.
    pub(super) listening: Listening,
    keeps_waiting: bool,
}

impl Suspicion {
    pub(super) fn sampled(&mut self, sample: Sample, uptime: Duration) {
        (self.frozen_by, self.looked) = (sample.frozen_by, uptime);
        self.keeps_waiting = matches!(
            (self.listening, sample.listening),
            (Listening::Waiting(before @ 1..), Listening::Waiting(now)) if now >= before
        );
        self.listening = sample.listening;
        self.waits.retain(|(wait, _)| sample.waiting.contains(wait));
        for wait in sample.waiting {
            let is_new = self.waits.iter().all(|(known, _)| *known != wait);
            if is_new && self.waits.len() < MAX_FOLLOWED {
                self.waits.push((wait, uptime));
            }
        }
    }

    /// Whether connections wait at its port from one look to the next, and it takes none of them.
    pub(super) fn queue_fills(&self) -> bool {
        self.keeps_waiting
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
            listening: Listening::Unknown,
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
    fn a_queue_fills_if_nobody_takes_from_it_between_two_looks() {
        use Listening::{Nobody, Unknown, Waiting};
        for (looks, fills) in [
            ([Waiting(1), Waiting(1)], true),
            ([Waiting(1), Waiting(2)], true),
            ([Waiting(2), Waiting(1)], false),
            ([Waiting(0), Waiting(1)], false),
            ([Unknown, Waiting(9)], false),
            ([Waiting(1), Nobody], false),
        ] {
            let mut suspicion = Suspicion::default();
            for listening in looks {
                let sample = Sample {
                    listening,
                    ..Sample::default()
                };
                suspicion.sampled(sample, Duration::ZERO);
            }
            assert_eq!(suspicion.queue_fills(), fills, "{looks:?}");
        }
    }

    #[test]
    fn what_is_followed_is_bounded() {
        let mut suspicion = Suspicion::default();
        let many: Vec<_> = (0..1000).map(|tid| (tid, 1)).collect();
        suspicion.sampled(sample(&many), Duration::ZERO);
        assert_eq!(suspicion.waits.len(), MAX_FOLLOWED);
    }
}
