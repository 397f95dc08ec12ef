//! Limits of the kernel that are nearly reached. To be near one is load, so a warning.

use crate::condition::{Finding, Reason};
use crate::host::kernel::{Usage, Usages};

/// A limit is nearly reached from 90 % on, until its use falls below 85 %.
const NEAR_PERCENT: u64 = 90;
const FAR_PERCENT: u64 = 85;
/// How many readings in a row have to find it nearly reached.
const READINGS_IN_A_ROW: u32 = 3;

struct Limit {
    of: fn(&Usages) -> Option<Usage>,
    /// What the number counts, as the message names it, and what happens at the limit.
    what: &'static str,
    then: &'static str,
}

const LIMITS: [Limit; 3] = [
    Limit {
        of: |usages| usages.pids.into_iter().chain(usages.threads).max_by_key(|usage| usage.percent()),
        what: "process ids or threads (kernel.pid_max, kernel.threads-max)",
        then: "no process or thread can be started",
    },
    Limit { of: |usages| usages.files, what: "open files (fs.file-max)", then: "only root can open files and sockets" },
    Limit {
        of: |usages| usages.connections,
        what: "tracked connections (net.netfilter.nf_conntrack_max)",
        then: "packets of new connections are dropped",
    },
];

/// For each of [`LIMITS`], how many readings in a row found it nearly reached.
#[derive(Debug, Default)]
pub(super) struct Limits([u32; LIMITS.len()]);

impl Limits {
    /// The limits that are nearly reached. Not how near: each number would be another message.
    pub(super) fn observe(&mut self, usages: &Usages) -> Option<Finding> {
        let mut messages = Vec::new();
        for (Limit { of, what, then }, readings) in LIMITS.iter().zip(&mut self.0) {
            let usage = of(usages).unwrap_or(Usage { used: 0, limit: 1 });
            let near = if *readings >= READINGS_IN_A_ROW { FAR_PERCENT } else { NEAR_PERCENT };
            // At the limit things fail that other monitors see: what it is has to be said first.
            let counted = if usage.percent() >= 100 { READINGS_IN_A_ROW } else { readings.saturating_add(1) };
            *readings = if usage.percent() >= near { counted } else { 0 };
            if *readings >= READINGS_IN_A_ROW {
                let nearly = format!("nearly all of the {} {what} are in use", usage.limit);
                messages.push(format!("{nearly}; at the limit {then}: find what uses them, or raise the limit"));
            }
        }
        (!messages.is_empty()).then(|| Finding::new(Reason::KernelLimitNearlyReached, messages.join("; ")))
    }
}

impl Usage {
    fn percent(self) -> u64 {
        let percent = u128::from(self.used) * 100 / u128::from(self.limit.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(limits: &mut Limits, used: u64) -> bool {
        let pids = Some(Usage { used, limit: 1000 });
        let files = Some(Usage { used: 1, limit: u64::MAX });
        limits.observe(&Usages { pids, files, ..Usages::default() }).is_some()
    }

    #[test]
    fn the_third_reading_near_a_limit_is_a_warning_until_the_use_falls() {
        let mut limits = Limits::default();
        for (used, is_near) in [
            (950, false),
            (950, false),
            (899, false),
            (900, false),
            (900, false),
            (999, true),
            (850, true),
            (849, false),
            (899, false),
        ] {
            assert_eq!(observe(&mut limits, used), is_near, "{used}");
        }
    }

    #[test]
    fn a_limit_that_is_reached_counts_at_once() {
        let mut limits = Limits::default();
        assert!(!observe(&mut limits, 999));
        assert!(observe(&mut limits, 1000));
    }

    #[test]
    fn the_message_has_each_limit_and_no_usage() {
        let mut limits = Limits::default();
        let found = [930, 940, 950].map(|used| {
            let usage = Some(Usage { used, limit: 1000 });
            limits.observe(&Usages { pids: usage, connections: usage, ..Usages::default() })
        });
        let message = &found[2].as_ref().unwrap().message;
        let wanted = "nearly all of the 1000 process ids or threads (kernel.pid_max, kernel.threads-max) are in use; at the limit no process or thread can be started: find what uses them, or raise the limit; \
                      nearly all of the 1000 tracked connections (net.netfilter.nf_conntrack_max) are in use; at the limit packets of new connections are dropped: find what uses them, or raise the limit";
        assert_eq!(message, wanted);
        assert_eq!(limits.observe(&Usages::default()), None, "the kernel has no such limit any more");
    }
}
