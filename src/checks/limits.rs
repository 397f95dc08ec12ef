//! What the kernel gives out up to a limit (process ids, threads, open files, tracked connections): told ahead of the wall,
//! and at the wall. Pure.
//!
//! A count is load, and load is no fault of the node: full is a warning. Process ids alone are more, when the count stands at
//! the limit and the helper has tried to start a process and was refused.

use std::time::Duration;

use crate::{
    checks::{Check, Question, Reading, Spec},
    clock::Now,
    config::Settings,
    health::{
        ConditionType, Finding, Reason,
        timing::{Samples, Window},
    },
    helper::fork::Forked,
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "limits",
    condition: ConditionType::NodeKernelHealthy,
    doc: "Process ids, threads, open files and tracked connections, against the kernel's limits on them.",
};

/// How often all is looked at.
const EVERY: Duration = Duration::from_secs(10);
/// The same, once something is nearly exhausted.
const EVERY_WHEN_NEAR: Duration = Duration::from_secs(2);
/// So far below the threshold what was nearly exhausted no longer is, in percent.
const BACK_OFF_PERCENT: u64 = 5;
/// Looks that find something nearly exhausted.
pub const NEAR: Samples = Samples {
    bad: 2,
    of: 3,
    what: "looks",
};
/// Looks that find it exhausted.
pub const FULL: Samples = Samples {
    bad: 3,
    of: 5,
    what: "looks, two seconds apart",
};

/// How much of something is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// So much of it.
    pub now: u64,
    /// So much there can be.
    pub limit: u64,
}

impl Used {
    fn is_above(self, percent: u64) -> bool {
        u128::from(self.now) * 100 >= u128::from(self.limit) * u128::from(percent)
    }
}

/// What one look has seen; `None`: this host has no such limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Threads against the process ids that can be in use.
    pub pids: Option<Used>,
    /// Threads against the kernel's limit on them.
    pub threads: Option<Used>,
    /// Threads of all pods against the limit on their cgroup.
    pub pod_pids: Option<Used>,
    /// Open files of the whole host.
    pub files: Option<Used>,
    /// Connections that the packet filter keeps track of.
    pub connections: Option<Used>,
}

/// What has a limit.
#[derive(Debug)]
struct Row {
    of: fn(&Sample) -> Option<Used>,
    /// What there is so much of, after the number.
    noun: &'static str,
    /// What follows once it is exhausted.
    then: &'static str,
    near: Reason,
    /// What is said once it is exhausted, if that is more than that it nearly is.
    full: Option<Reason>,
    /// Whether the count alone does not make it so: the helper's fork must be refused as well.
    wants_fork: bool,
}

const ROWS: [Row; 5] = [
    Row {
        of: |sample| sample.pids,
        noun: "process ids that kernel.pid_max leaves",
        then: "no process or thread can be started on this host",
        near: Reason::KernelPidsNearlyExhausted,
        full: Some(Reason::KernelPidsExhausted),
        wants_fork: true,
    },
    Row {
        of: |sample| sample.threads,
        noun: "threads that kernel.threads-max allows",
        then: "no process or thread can be started on this host",
        near: Reason::KernelPidsNearlyExhausted,
        full: Some(Reason::KernelPidsExhausted),
        wants_fork: true,
    },
    Row {
        of: |sample| sample.pod_pids,
        noun: "process ids that the cgroup of all pods may have",
        then: "no process or thread can be started in any pod",
        near: Reason::KernelPodPidsNearlyExhausted,
        full: None,
        wants_fork: false,
    },
    Row {
        of: |sample| sample.files,
        noun: "open files that fs.file-max allows",
        then: "no file or socket can be opened on this host but by root",
        near: Reason::KernelFilesNearlyExhausted,
        full: Some(Reason::KernelFilesExhausted),
        wants_fork: false,
    },
    Row {
        of: |sample| sample.connections,
        noun: "connections that net.netfilter.nf_conntrack_max allows",
        then: "packets of new connections are dropped",
        near: Reason::KernelConntrackNearlyFull,
        full: Some(Reason::KernelConntrackFull),
        wants_fork: false,
    },
];

/// What was seen of one row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    near: Window,
    full: Window,
    state: State,
    limit: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Well,
    Near,
    Full,
}

/// The check.
#[derive(Debug)]
pub struct Limits {
    near_percent: u64,
    full_percent: u64,
    due_at: Duration,
    /// A look that waits for the helper's word on whether a process can be started.
    pending: Option<Sample>,
    seen: [Seen; ROWS.len()],
    findings: Vec<Finding>,
    applies: bool,
}

impl Limits {
    /// With the operator's thresholds.
    pub fn new(settings: &Settings) -> Self {
        let near = settings.number(SPEC.id, "nearly_exhausted_percent");
        let full = settings.number(SPEC.id, "exhausted_percent");
        Self {
            near_percent: near.min(full).into(),
            full_percent: full.into(),
            due_at: Duration::ZERO,
            pending: None,
            seen: Default::default(),
            findings: Vec::new(),
            applies: true,
        }
    }

    /// Whether the look alone does not say how bad it is.
    fn wants_fork(&self, sample: &Sample) -> bool {
        let full = self.full_percent;
        let mut rows = ROWS.iter().filter(|row| row.wants_fork);
        rows.any(|row| (row.of)(sample).is_some_and(|used| used.is_above(full)))
    }

    /// `is_refused`: the helper could start no process, for no limit of its own.
    fn learn(&mut self, sample: &Sample, is_refused: bool, now: Now) {
        let before = (self.seen.map(|seen| (seen.state, seen.limit)), self.applies);
        let mut is_hot = false;
        self.applies = false;
        for (row, seen) in ROWS.iter().zip(&mut self.seen) {
            let Some(used) = (row.of)(sample) else {
                *seen = Seen::default();
                continue;
            };
            self.applies = true;
            is_hot |= used.is_above(self.near_percent);
            let is_full = used.is_above(self.full_percent) && (is_refused || !row.wants_fork);
            seen.learn(used, self.near_percent, is_full);
            is_hot |= seen.state != State::Well;
        }
        if is_hot {
            self.due_at = self.due_at.min(now.uptime + EVERY_WHEN_NEAR);
        }
        let after = (self.seen.map(|seen| (seen.state, seen.limit)), self.applies);
        if self.findings.is_empty() || before != after {
            self.findings = self.assess();
        }
    }

    /// What is to be said of what was seen.
    fn assess(&self) -> Vec<Finding> {
        let (near, full) = (self.near_percent, self.full_percent);
        let word = |(row, seen): (&Row, &Seen)| {
            let Row { noun, then, .. } = row;
            let (reason, percent, when) = match (seen.state, row.full) {
                (State::Well, _) => return None,
                (State::Full, Some(reason)) if row.wants_fork => {
                    (reason, full, "the kernel starts no other, ")
                }
                (State::Full, Some(reason)) => (reason, full, ""),
                (State::Full, None) => (row.near, full, ""),
                (State::Near, _) => (row.near, near, "at the limit "),
            };
            let limit = seen.limit;
            let message =
                format!("{percent} % or more of the {limit} {noun} are in use: {when}{then}");
            Some(Finding { reason, message })
        };
        let bad: Vec<Finding> = ROWS.iter().zip(&self.seen).filter_map(word).collect();
        match (bad.is_empty(), self.applies) {
            (false, _) => bad,
            (true, false) => Vec::new(),
            (true, true) => vec![Finding {
                reason: Reason::KernelIsHealthy,
                message: "no limit of the kernel's is nearly reached".to_owned(),
            }],
        }
    }
}

impl Seen {
    fn learn(&mut self, used: Used, near: u64, is_full: bool) {
        self.limit = used.limit;
        self.near.push(used.is_above(near));
        self.full.push(is_full);
        // What was near stays so until it is well below.
        let lasts =
            || self.state != State::Well && used.is_above(near.saturating_sub(BACK_OFF_PERCENT));
        self.state = if self.full.is_full(FULL) {
            State::Full
        } else if self.near.is_full(NEAR) || lasts() {
            State::Near
        } else {
            State::Well
        };
    }
}

impl Check for Limits {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        match reading {
            Reading::Limits(sample) if self.wants_fork(sample) => self.pending = Some(*sample),
            Reading::Limits(sample) => self.learn(sample, false, now),
            Reading::Fork(forked) => {
                if let Some(sample) = self.pending.take() {
                    self.learn(&sample, *forked == Ok(Forked::Refused), now);
                }
            }
            _ => {}
        }
    }

    fn due_at(&self) -> Option<Duration> {
        Some(self.pending.map_or(self.due_at, |_| Duration::ZERO))
    }

    fn turn(&mut self, now: Now) -> Option<Question> {
        if self.pending.is_some() {
            return Some(Question::Fork);
        }
        self.due_at = now.uptime + EVERY;
        Some(Question::Limits)
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn applies(&self) -> bool {
        self.applies
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_secs(secs),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn pids(now: u64) -> Sample {
        Sample {
            pids: Some(Used { now, limit: 1000 }),
            files: Some(Used {
                now: 1,
                limit: u64::MAX,
            }),
            ..Sample::default()
        }
    }

    fn limits() -> Limits {
        Limits::new(&Settings::default())
    }

    fn reasons(limits: &Limits) -> Vec<Reason> {
        limits.findings().iter().map(|f| f.reason).collect()
    }

    const REFUSED: Result<Forked, String> = Ok(Forked::Refused);

    /// Looks so many times; the helper can start a process or not; what is found then.
    fn look_with(
        limits: &mut Limits,
        (now, times): (u64, u32),
        forked: &Result<Forked, String>,
    ) -> Vec<Reason> {
        for _ in 0..times {
            limits.take(&Reading::Limits(pids(now)), at(0));
            if limits.pending.is_some() {
                assert_eq!(limits.due_at(), Some(Duration::ZERO));
                assert_eq!(limits.turn(at(0)), Some(Question::Fork));
                limits.take(&Reading::Fork(forked.clone()), at(0));
            }
        }
        reasons(limits)
    }

    /// The same, where no process can be started.
    fn look(limits: &mut Limits, now: u64, times: u32) -> Vec<Reason> {
        look_with(limits, (now, times), &REFUSED)
    }

    /// The count is load; that nothing can be started a fork alone says.
    #[test]
    fn a_full_table_is_a_warning_until_a_fork_was_refused() {
        let near = [Reason::KernelPidsNearlyExhausted];
        for forked in [
            Ok(Forked::Possible),
            Ok(Forked::OwnLimit(
                "pids.max of the cgroup /x/ is reached".to_owned(),
            )),
            Err("connect to the helper: not there".to_owned()),
        ] {
            let mut limits = limits();
            assert_eq!(look_with(&mut limits, (1000, 50), &forked), near);
            assert_eq!(look(&mut limits, 1000, 2), near);
            assert_eq!(look(&mut limits, 1000, 1), [Reason::KernelPidsExhausted]);
            assert_eq!(look_with(&mut limits, (1000, 3), &forked), near);
        }
        // Nobody forks below the wall.
        let mut limits = limits();
        limits.take(&Reading::Limits(pids(980)), at(0));
        assert_eq!(limits.turn(at(2)), Some(Question::Limits));
        limits.take(&Reading::Fork(REFUSED), at(2));
        assert_eq!(reasons(&limits), [Reason::KernelIsHealthy]);
        for reason in [Reason::KernelFilesExhausted, Reason::KernelConntrackFull] {
            assert_eq!(reason.status(), crate::health::Status::True);
        }
    }

    #[test]
    fn the_wall_is_told_ahead_and_at_it_and_one_look_is_none() {
        let mut limits = limits();
        assert_eq!(limits.findings(), []);
        assert_eq!(look(&mut limits, 899, 1), [Reason::KernelIsHealthy]);
        assert_eq!(look(&mut limits, 900, 1), [Reason::KernelIsHealthy]);
        assert_eq!(
            look(&mut limits, 1000, 1),
            [Reason::KernelPidsNearlyExhausted]
        );
        assert_eq!(
            look(&mut limits, 950, 1),
            [Reason::KernelPidsNearlyExhausted]
        );
        assert_eq!(look(&mut limits, 1000, 2), [Reason::KernelPidsExhausted]);
        let said = limits.findings()[0].message.clone();
        assert!(
            said.starts_with("99 % or more of the 1000 process ids"),
            "{said}"
        );
        look(&mut limits, 999, 1);
        assert_eq!(limits.findings()[0].message, said, "no counter in it");
        // Down again, and not each time that it swings around the threshold.
        assert_eq!(
            look(&mut limits, 860, 5),
            [Reason::KernelPidsNearlyExhausted]
        );
        assert_eq!(look(&mut limits, 840, 1), [Reason::KernelIsHealthy]);
    }

    #[test]
    fn a_look_every_ten_seconds_and_faster_near_the_wall() {
        let mut limits = limits();
        assert_eq!(limits.due_at(), Some(Duration::ZERO));
        assert_eq!(limits.turn(at(5)), Some(Question::Limits));
        limits.take(&Reading::Limits(pids(1)), at(5));
        assert_eq!(limits.due_at(), Some(Duration::from_secs(15)));
        limits.turn(at(15));
        limits.take(&Reading::Limits(pids(900)), at(15));
        assert_eq!(limits.due_at(), Some(Duration::from_secs(17)));
    }

    #[test]
    fn each_limit_has_its_reasons_and_pods_at_theirs_are_no_fault_of_the_node() {
        let all = Some(Used { now: 10, limit: 10 });
        let sample = Sample {
            pids: all,
            threads: all,
            pod_pids: all,
            files: all,
            connections: all,
        };
        let mut limits = limits();
        for _ in 0..3 {
            limits.take(&Reading::Limits(sample), at(0));
            limits.take(&Reading::Fork(REFUSED), at(0));
        }
        assert_eq!(
            reasons(&limits),
            [
                Reason::KernelPidsExhausted,
                Reason::KernelPidsExhausted,
                Reason::KernelPodPidsNearlyExhausted,
                Reason::KernelFilesExhausted,
                Reason::KernelConntrackFull,
            ]
        );
        // One went: its table is no longer there.
        let sample = Sample {
            connections: None,
            ..sample
        };
        limits.take(&Reading::Limits(sample), at(0));
        limits.take(&Reading::Fork(REFUSED), at(0));
        assert!(!reasons(&limits).contains(&Reason::KernelConntrackFull));
    }

    #[test]
    fn where_nothing_has_a_limit_the_check_does_not_apply() {
        let mut limits = limits();
        limits.take(&Reading::Limits(Sample::default()), at(0));
        assert!(!limits.applies() && limits.findings().is_empty());
        limits.take(&Reading::Limits(pids(1)), at(0));
        assert!(limits.applies() && !limits.findings().is_empty());
    }
}
