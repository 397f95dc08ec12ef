//! Who says that a problem is there. A `False` lets somebody else delete the machine, so it takes two that do not err together, or
//! one of the four that nobody else could confirm.

use std::fmt;

/// One way in which a problem shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// The end of the watched process, by its pidfd.
    ProcessEnd,
    /// The kernel's record that it OOM-killed that very process.
    OomRecord,
    /// systemd's `Result` of the unit: believed from the connection that the bus names as systemd's, and from no other.
    SystemdResult,
    /// A write or a fork of the helper that fails.
    HelperAttempt,
    /// Probes that fail.
    Probes,
    /// The state of the process or of a thread in `/proc`: T or D.
    ProcessState,
    /// The kernel's list of sockets: nobody listens, or connections wait and nobody takes them.
    Sockets,
    /// The kubelet's Lease, which it does not renew.
    Lease,
    /// What the Node shows of the kubelet: its own words there, that it writes none, or that the control plane gave it up.
    NodeStatus,
    /// `/proc` and the unit's control group: no process there is the kubelet.
    ProcessList,
    /// The freezer's own file of the control group.
    Freezer,
    /// Signals that wait for the process.
    PendingSignals,
    /// systemd's states and jobs, believed as its `Result` is.
    SystemdJobs,
    /// The kernel's log.
    KernelLog,
    /// A counter of the kernel's, or a flag of its taint.
    KernelCounter,
    /// The thread's counts of context switches, which stay the same.
    ContextSwitches,
    /// What the host's memory has available, or how long tasks wait for it (PSI).
    MemoryTables,
    /// What the container runtime says of itself over CRI.
    RuntimeStatus,
    /// The certificate's dates, by this machine's clock.
    NodeClock,
    /// The certificate's dates, by the clock of the API server.
    ClusterClock,
}

/// Witnesses of which one will do.
pub type OneOf = &'static [Witness];

impl Witness {
    /// Whether it counts without a second one: nobody else could tell.
    pub fn counts_alone(self) -> bool {
        matches!(
            self,
            Self::ProcessEnd | Self::OomRecord | Self::SystemdResult | Self::HelperAttempt
        )
    }
}

/// In the documents.
impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProcessEnd => "end of the process (pidfd)",
            Self::OomRecord => "the kernel's OOM record of that pid",
            Self::SystemdResult => "systemd's Result",
            Self::HelperAttempt => "the helper's own write or fork",
            Self::Probes => "probes",
            Self::ProcessState => "process state",
            Self::Sockets => "the kernel's list of sockets",
            Self::Lease => "Lease",
            Self::NodeStatus => "the Node's status",
            Self::ProcessList => "no such process",
            Self::Freezer => "the cgroup's freezer file",
            Self::PendingSignals => "pending signals",
            Self::SystemdJobs => "systemd's states and jobs",
            Self::KernelLog => "kernel log",
            Self::KernelCounter => "kernel counter or taint flag",
            Self::ContextSwitches => "context switches",
            Self::MemoryTables => "available memory or pressure",
            Self::RuntimeStatus => "the runtime's word over CRI",
            Self::NodeClock => "its dates by this machine's clock",
            Self::ClusterClock => "its dates by the API server's clock",
        })
    }
}

/// Whether these are enough for a `False`: one that counts alone, or two that are not the same. One that counts alone may stand
/// for both.
pub fn are_enough(witnesses: &[OneOf]) -> bool {
    let alone = |one_of: &OneOf| one_of.iter().all(|one| one.counts_alone());
    let differ = |(at, one_of): (usize, &OneOf)| {
        let others = witnesses[at + 1..].iter();
        let is_another = |other: &OneOf| {
            let mut ones = one_of.iter();
            ones.all(|one| one.counts_alone() || !other.contains(one))
        };
        others.clone().count() > 0 && others.clone().all(is_another)
    };
    let is_there = |one_of: &OneOf| !one_of.is_empty();
    witnesses.iter().all(is_there)
        && (witnesses.iter().any(alone) || witnesses.iter().enumerate().any(differ))
}

/// `probes; and process state or Lease`, after those that stand for both: `systemd's Result; else probes; and Lease`.
pub fn in_words(witnesses: &[OneOf]) -> String {
    let (first, others) = witnesses.split_first().unwrap_or((&(&[] as OneOf), &[]));
    let is_for_all = |one: &Witness| {
        one.counts_alone() && !others.is_empty() && others.iter().all(|other| other.contains(one))
    };
    let words = |mut ones: Vec<&Witness>| {
        let names: Vec<String> = ones.drain(..).map(ToString::to_string).collect();
        names.join(" or ")
    };
    let alone = words(first.iter().filter(|one| is_for_all(one)).collect());
    let each = |one_of: &OneOf| words(one_of.iter().filter(|one| !is_for_all(one)).collect());
    let together: Vec<String> = witnesses.iter().map(each).collect();
    let together = together.join("; and ");
    if alone.is_empty() {
        return together;
    }
    format!("{alone}; else {together}")
}

#[cfg(test)]
mod tests {
    use super::{Witness as W, *};

    #[test]
    fn two_that_differ_or_one_that_counts_alone() {
        for (witnesses, enough) in [
            (&[][..], false),
            (&[&[W::Probes][..]], false),
            (&[&[W::Probes], &[W::Probes]], false),
            (&[&[W::Probes], &[]], false),
            (&[&[W::ProcessEnd, W::Probes]], false),
            (&[&[W::ProcessEnd, W::SystemdResult]], true),
            (&[&[W::Probes], &[W::ProcessState, W::Lease]], true),
            (&[&[W::Probes], &[W::ProcessState, W::Probes]], false),
            (
                &[&[W::ProcessEnd, W::Probes], &[W::ProcessEnd, W::Lease]],
                true,
            ),
            (
                &[&[W::ProcessEnd, W::Probes], &[W::ProcessEnd, W::Probes]],
                false,
            ),
        ] {
            assert_eq!(are_enough(witnesses), enough, "{witnesses:?}");
        }
        let words = in_words(&[&[W::Probes], &[W::ProcessState, W::Lease]]);
        assert_eq!(words, "probes; and process state or Lease");
        let words = in_words(&[
            &[W::SystemdResult, W::Probes],
            &[W::SystemdResult, W::Lease],
        ]);
        assert_eq!(words, "systemd's Result; else probes; and Lease");
    }
}
