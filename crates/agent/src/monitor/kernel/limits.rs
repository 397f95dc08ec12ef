//! Limits of the kernel that are nearly reached. To be near one is load, so a warning.

use crate::{
    condition::{Finding, Reason},
    host::kernel::{Usage, Usages},
};

/// A limit is nearly reached from 90 % on, until its use falls below 85 %.
const NEAR_PERCENT: u64 = 90;
const FAR_PERCENT: u64 = 85;
/// So many looks in a row have to find it so.
const LOOKS: u32 = 3;

/// A row of [`LIMITS`].
struct Limit {
    of: fn(&Usages) -> Option<Usage>,
    /// What there are so many of, behind the number.
    what: &'static str,
    /// What happens at the limit.
    then: &'static str,
}

const LIMITS: [Limit; 4] = [
    Limit {
        of: |usages| usages.pids,
        what: "process ids that kernel.pid_max allows (300 are reserved)",
        then: "no process or thread can be started",
    },
    Limit {
        of: |usages| usages.threads,
        what: "threads that kernel.threads-max allows",
        then: "no process or thread can be started",
    },
    Limit {
        of: |usages| usages.files,
        what: "open files that fs.file-max allows",
        then: "only root can open files and sockets",
    },
    Limit {
        of: |usages| usages.connections,
        what: "tracked connections that net.netfilter.nf_conntrack_max allows",
        then: "packets of new connections are dropped",
    },
];

/// What the last looks found, a value for each of [`LIMITS`].
#[derive(Debug, Default)]
pub(super) struct Limits([State; LIMITS.len()]);

#[derive(Debug, Default)]
struct State {
    limit: u64,
    /// Looks in a row that found it nearly reached.
    looks: u32,
}

impl Limits {
    /// Takes in a look.
    pub(super) fn looked(&mut self, usages: &Usages) {
        for (row, state) in LIMITS.iter().zip(&mut self.0) {
            let percent = (row.of)(usages).map_or(0, Usage::percent);
            let is_near = percent >= NEAR_PERCENT || (state.looks >= LOOKS && percent >= FAR_PERCENT);
            state.limit = (row.of)(usages).map_or(0, |usage| usage.limit);
            state.looks = if is_near { state.looks.saturating_add(1) } else { 0 };
        }
    }

    /// The limits that are nearly reached. Not how near: each number would be another message.
    pub(super) fn finding(&self) -> Option<Finding> {
        let near = LIMITS.iter().zip(&self.0).filter(|(_, state)| state.looks >= LOOKS);
        let message = |(Limit { what, then, .. }, State { limit, .. }): (&Limit, &State)| {
            format!("nearly all of the {limit} {what} are in use; at the limit {then}")
        };
        let messages: Vec<_> = near.map(message).collect();
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

    fn looked(limits: &mut Limits, used: u64) -> bool {
        let pids = Some(Usage { used, limit: 1000 });
        limits.looked(&Usages { pids, files: Some(Usage { used: 1, limit: u64::MAX }), ..Usages::default() });
        limits.finding().is_some()
    }

    #[test]
    fn the_third_look_near_a_limit_is_a_warning_until_it_is_far() {
        let mut limits = Limits::default();
        for (used, is_near) in [
            (950, false),
            (950, false),
            (899, false),
            (900, false),
            (900, false),
            (1000, true),
            (850, true),
            (849, false),
            (899, false),
        ] {
            assert_eq!(looked(&mut limits, used), is_near, "{used}");
        }
    }

    #[test]
    fn the_message_has_each_limit_and_no_usage() {
        let mut limits = Limits::default();
        for used in [930, 940, 950] {
            let usage = Some(Usage { used, limit: 1000 });
            limits.looked(&Usages { pids: usage, connections: usage, ..Usages::default() });
        }
        let message = limits.finding().unwrap().message;
        let wanted = "nearly all of the 1000 process ids that kernel.pid_max allows (300 are reserved) are in use; at the limit no process or thread can be started; \
                      nearly all of the 1000 tracked connections that net.netfilter.nf_conntrack_max allows are in use; at the limit packets of new connections are dropped";
        assert_eq!(message, wanted);
        limits.looked(&Usages::default());
        assert_eq!(limits.finding(), None, "the kernel has no such limit any more");
    }
}
