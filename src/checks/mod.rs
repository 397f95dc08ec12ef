//! Health checks: one file a check; this one holds the registry, and what a check is.
//!
//! A check is told what was read, says what it wants read next, and judges by itself; it knows no clock and no file. The
//! loop asks [`Check::turn`] when [`Check::due_at`] has come, has the question answered through `host` and hands the answer
//! to every check. (The kubelet's own check is older than this trait and has its place in the loop.)

pub mod boot;
pub mod bootstrap;
pub mod certificate;
pub mod clock;
pub mod config;
pub mod kernel;
pub mod kubelet;
pub mod lease;
pub mod limits;
pub mod memory;
pub mod nodevigil;
pub mod runtime;
pub mod storage;

use std::{fmt::Debug, time::Duration};

use crate::{
    bootstrap::HostSeen,
    checks::{
        kernel::{
            event::KernelEvent,
            state::{KernelAsk, KernelState},
        },
        kubelet::{Process, Sign},
    },
    clock::Now,
    config::Settings,
    health::{ConditionType, Finding, news::Told},
    helper::{
        boot::{BootRequest, LastBoot},
        bootstrap::BootstrapRequest,
        fork::Forked,
        protocol::{ClientCertificate, ClockState, KubeletFacts, RuntimeAnswer, RuntimeRequest},
        storage::StorageAnswer,
    },
};

/// What the registry knows of a check.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Its name: the configuration's section, the documentation's anchor.
    pub id: &'static str,
    /// The condition that it feeds.
    pub condition: ConditionType,
    /// What it watches, in one sentence.
    pub doc: &'static str,
}

/// Every check.
pub const ALL: &[Spec] = &[
    boot::SPEC,
    bootstrap::SPEC,
    certificate::SPEC,
    clock::SPEC,
    config::SPEC,
    kernel::check::SPEC,
    kubelet::SPEC,
    lease::SPEC,
    limits::SPEC,
    memory::SPEC,
    memory::HINT,
    nodevigil::SPEC,
    runtime::SPEC,
    storage::SPEC,
];

/// The checks that the loop drives by the trait, with what the operator asked for.
pub fn driven(settings: &Settings) -> Vec<Box<dyn Check>> {
    vec![
        Box::new(boot::Boot::default()),
        Box::new(bootstrap::Bootstrap::new(settings)),
        Box::new(clock::Clock::new(settings)),
        Box::new(kernel::check::Kernel::new(settings)),
        Box::new(limits::Limits::new(settings)),
        Box::new(memory::Memory::new(settings)),
        Box::new(runtime::Runtime::new(settings)),
        Box::new(storage::Storage::new(settings)),
        Box::new(certificate::Certificate::new(settings)),
        Box::new(lease::Lease::new(settings)),
        // The last: it speaks once another one has.
        Box::new(nodevigil::Nodevigil::new(settings)),
    ]
}

/// A check that the loop drives.
pub trait Check: Debug + Send {
    /// Its row in [`ALL`].
    fn spec(&self) -> Spec;

    /// Takes in what was read. Every check is offered every reading and picks its own.
    fn take(&mut self, reading: &Reading, now: Now);

    /// When it wants its turn (uptime); `None`: when something is read, not before. Not looked at while its question is
    /// open.
    fn due_at(&self) -> Option<Duration>;

    /// Its turn: what is to be read. What it finds may change too.
    fn turn(&mut self, now: Now) -> Option<Question>;

    /// Everything that it finds, as it stands; empty: it has nothing to say yet, or what it said before stands. Asked for
    /// at each turn of the loop, so it is kept and not made.
    fn findings(&self) -> &[Finding];

    /// What it finds for another condition, which it feeds alone: that one's row in [`ALL`], and as [`Check::findings`].
    fn hint(&self) -> Option<(Spec, &[Finding])> {
        None
    }

    /// What has happened and is no state, each handed out once.
    fn told(&mut self) -> Option<Told> {
        None
    }

    /// Whether it only adds to what the condition's own check says: then it can say by itself that something is wrong, but
    /// not that all is well.
    fn is_beside(&self) -> bool {
        false
    }

    /// Whether there is anything on this host that it could watch; `true` until that is known. If not, its condition is not
    /// told.
    fn applies(&self) -> bool {
        true
    }
}

/// What a check wants read. What may block is the helper's, or goes to the blocking worker: see `agent::reading`.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// What the kernel has a limit on.
    Limits,
    /// Whether a process can be started: the helper tries.
    Fork,
    /// How the host's memory stands.
    Memory(memory::Depth),
    /// Whether the kernel's clock is synchronised.
    Clock,
    /// The helper looks at the file systems.
    Storage,
    /// The helper says how the last boot ended, or keeps something of this one.
    Boot(BootRequest),
    /// What the kernel's tables say of its health, and which of these tasks wait and cannot be killed.
    KernelState(KernelAsk),
    /// The name of the pod with this uid.
    Pod(String),
    /// The client certificate of the kubelet with that pid, if it runs.
    Certificate,
    /// Root's connections to the API server.
    Sockets,
    /// The kubelet's Lease.
    Lease,
    /// The container runtime's answer over CRI.
    Runtime(RuntimeRequest),
    /// The helper looks how far the host is from boot to being of use, or keeps the record of that.
    Bootstrap(Box<BootstrapRequest>),
}

/// Why the helper could not be asked, or did not do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unasked {
    /// Whether it does not answer at all.
    pub is_away: bool,
    /// A sentence.
    pub why: String,
}

/// What was read, asked for or not.
#[derive(Debug)]
pub enum Reading {
    /// Another kubelet process is watched, or none.
    Kubelet(Option<Process>),
    /// What the helper says of the kubelet that is watched.
    Facts(Box<KubeletFacts>),
    /// The kernel's log said something that matters.
    Kernel(KernelEvent),
    /// What the kernel has a limit on.
    Limits(limits::Sample),
    /// Whether the helper could start a process, or why it does not say.
    Fork(Result<Forked, String>),
    /// How the host's memory stands; or why that cannot be read.
    Memory(Result<memory::Sample, String>),
    /// Who takes the memory, if anybody grows: told every two seconds while the check looks at all of it.
    Grower(Option<memory::Grower>),
    /// Tasks begin to wait for memory: a call to look at once, and no more than that.
    MemoryStalls,
    /// What the helper says of the kernel's clock, if it says anything.
    Clock(Option<ClockState>),
    /// The wall clock was set.
    ClockStep(clock::Step),
    /// systemd is taking the host down, or no longer.
    GoingDown(bool),
    /// What the helper sees of the file systems, or why it does not say.
    Storage(Result<StorageAnswer, String>),
    /// What is known of the last boot's end, or why that is not to be had.
    Boot(Result<LastBoot, String>),
    /// What the kernel's tables say of its health.
    KernelState(KernelState),
    /// The pod that was asked for, as `namespace/name`, if that is known.
    Pod(Option<String>),
    /// The API server's time, if it is known: told before each [`Reading::Certificate`].
    ClusterTime(Option<jiff::Timestamp>),
    /// The kubelet's client certificate, `None` if it has none; or why it could not be read.
    Certificate(Result<Option<ClientCertificate>, String>),
    /// What the loop knows of both ends of the kubelet's connection to the API server has changed.
    Sight(lease::Sight),
    /// The helper or the system bus came or went.
    Surroundings(nodevigil::Surroundings),
    /// Root's connections to the API server, if the kernel lists them.
    Sockets(Option<lease::Sockets>),
    /// The kubelet's Lease.
    Lease(Result<lease::Renewal, lease::Unread>),
    /// systemd said something of the unit with that name.
    Unit(String, Sign),
    /// The bus went away, and what systemd told us with it.
    BusLost,
    /// What the container runtime answered, if it could be asked.
    Runtime(Result<RuntimeAnswer, Unasked>),
    /// What our Node says of the way from boot to being of use; `None` if there is no Node.
    Node(Option<Box<bootstrap::NodeReading>>),
    /// How far the host is on that way, or why the helper does not say.
    Bootstrap(Result<Box<HostSeen>, String>),
    /// The container runtime's process has ended.
    RuntimeGone(i32),
    /// The container runtime's process has another state in `/proc/PID/stat` than before.
    RuntimeState(i32, char),
}

impl Reading {
    /// Whether it means something to the check alone that asked for it.
    pub fn is_the_askers(&self) -> bool {
        matches!(
            self,
            Self::Limits(_)
                | Self::Fork(_)
                | Self::Memory(_)
                | Self::Sockets(_)
                | Self::KernelState(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_is_whole() {
        assert!(ALL.is_sorted_by(|a, b| a.id < b.id), "sorted, each once");
        for condition in ConditionType::ALL {
            assert!(
                ALL.iter().any(|spec| spec.condition == *condition),
                "{condition:?} is fed by a check"
            );
        }
        assert!(ALL.iter().all(|spec| spec.doc.ends_with('.')));
        for check in driven(&Settings::default()) {
            let spec = check.spec();
            assert!(ALL.iter().any(|row| row.id == spec.id), "{}", spec.id);
            assert_eq!(check.findings(), [], "{}: nothing was read yet", spec.id);
        }
    }
}
