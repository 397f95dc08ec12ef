//! What reaches the loop and what it sets going.

use std::{sync::Arc, time::Duration};

use crate::{
    checks::{
        Question, Reading,
        kubelet::{Carrier, Found, Probe, Process, Run, Sample, Strain},
    },
    cluster::{
        api::{ApiError, EventTask, NodeView, TaintTry},
        identity::{Identity, IdentityError, Terms},
        publisher::Apply,
        taints::Tainted,
        watch::{End, NodeEvent},
    },
    helper::{
        journal::LastWords,
        protocol::{ConfigAnswer, ConfigRequest},
    },
    host::{
        helper::{HelperError, KubeletFacts},
        scrapes::Scrape,
        systemd::BusEvent,
    },
    ledger,
    pause::Pause,
    status::StatusFile,
};

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// Time passed: a deadline has come.
    Tick,
    /// systemd said something, or the bus came or went.
    Bus(BusEvent),
    /// The kubelet's process was looked for.
    Looked(Found),
    /// The pidfd of this process is readable, or its row in `/proc` is gone.
    Gone(i32),
    /// A probe that started at that uptime ended.
    Probed {
        /// Whose healthz was asked.
        pid: i32,
        /// When the probe started.
        started: Duration,
        /// How it ended.
        probe: Probe,
    },
    /// The state of this process.
    ProcessState(i32, char),
    /// Whether this process is being ended.
    Dying(i32, bool),
    /// A closer look at the kubelet, or at one that has ended.
    Closer(Closer),
    /// How hard it is for this process to run.
    Strain(i32, Strain),
    /// What the helper says of this process.
    Facts(i32, Result<KubeletFacts, HelperError>),
    /// What the helper says of the kubelet's configuration, to the question of that number.
    Config(u64, Result<ConfigAnswer, HelperError>),
    /// The pause file is another one than before, is there for the first time, or is gone.
    Pause(Result<Option<Pause>, String>),
    /// Which package manager is at work.
    Packages(Option<&'static str>),
    /// An identity was looked for, and is new or not to be had. The loop's other half keeps the connection.
    Identity(Result<Identity, IdentityError>),
    /// A credential was looked at, new or not: how long it is good.
    Terms(Terms),
    /// What the watch saw of our Node.
    Node(NodeEvent),
    /// The Node was read beside the watch.
    Read(Result<NodeEvent, ApiError>),
    /// The API server answers the watch of that number.
    WatchOpened(u64),
    /// The watch of that number has ended.
    WatchEnded(u64, End),
    /// The apply of that number ended.
    Applied(u64, Result<NodeView, ApiError>),
    /// A request for something besides the conditions ended.
    Besides(Besides),
    /// What the check with that id asked for was read.
    Answered(&'static str, Reading),
    /// Something was read that nobody had asked for.
    Observed(Reading),
    /// Somebody wants the metrics.
    Scrape(Scrape),
    /// We are asked to stop.
    Stop,
}

impl Event {
    /// Whether it is a look at something that goes on: no process has begun or ended by it.
    pub(super) fn is_reading(&self) -> bool {
        match self {
            Self::ProcessState(..)
            | Self::Strain(..)
            | Self::Answered(..)
            | Self::Pause(_)
            | Self::Packages(_) => true,
            Self::Observed(reading) => matches!(reading, Reading::RuntimeState(..)),
            _ => false,
        }
    }
}

/// What a closer look shows.
#[derive(Debug)]
pub enum Closer {
    /// How this process is run.
    Carried(i32, Carrier),
    /// This process, which does not answer.
    Sampled(i32, Sample),
    /// What the kubelet said last in that run.
    Words(Run, Result<LastWords, HelperError>),
}

/// What is told besides the conditions, and how it ended.
#[derive(Debug)]
pub enum Besides {
    /// The try at the taints of that number.
    Tainted(u64, Result<Tainted, ApiError>),
    /// The request for an Event.
    Told(Box<EventTask>, Result<(), ApiError>),
}

/// Something to set going; its result comes back as an [`Event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Look for the kubelet's process in this cgroup, or in the pid file.
    Look(String),
    /// Hold this process's pidfd.
    Watch(Process),
    /// Ask the healthz of this process.
    Probe(i32, Arc<str>),
    /// Read this process's state.
    ReadState(Process),
    /// Look whether this process is being ended.
    LookWhetherItDies(Process),
    /// Look closer at this process, and at the port of its healthz.
    Sample(i32, Option<Arc<str>>),
    /// Ask the helper what the kubelet said last in that run.
    AskWords(Run),
    /// Read how hard it is for this process to run, which is in that control group.
    ReadStrain(Process, String),
    /// Read the container runtime's state.
    ReadRuntimeState,
    /// Hold the container runtime's pidfd.
    WatchRuntime(Process),
    /// Ask systemd for the units' states: an end is to be told among forged signals.
    AskUnits,
    /// Have systemd tell of this unit too.
    FollowUnit(String),
    /// Ask the helper about this process.
    AskFacts(i32),
    /// Have the question of the check with that id answered.
    Ask(&'static str, Question),
    /// Ask the helper about the kubelet's configuration, and be told of changes; replaces the question before.
    FollowConfig(u64, Box<ConfigRequest>),
    /// Look whether the pause file changed.
    LookForPause,
    /// Look whether a package manager is at work.
    LookForPackages,
    /// Look for an identity; the kubelet's pid helps the helper.
    FindIdentity,
    /// Abort the connection, whatever is under way on it. The next request opens another.
    Disconnect,
    /// Speak of the Node of this name from now on, with the identity found last.
    Connect(String),
    /// Watch the Node, from that version on or from a new list; the watch has that number.
    WatchNode(u64, Option<String>),
    /// Read the Node, though a watch is open.
    ReadNode,
    /// Send an apply.
    Apply(Apply),
    /// Send this apply, an Event and what else an emergency needs, for show.
    Rehearse(Box<Apply>),
    /// Put the Node's taints right.
    Taint(Box<TaintTry>),
    /// Tell an Event.
    TellEvent(Box<EventTask>),
    /// Keep what a restart of ours needs.
    SaveLedger(ledger::Kept),
    /// Replace the status file.
    WriteStatus(Box<StatusFile>),
    /// Replace the metrics' text file.
    WriteMetrics,
    /// Tell systemd one line about us.
    NotifyStatus(String),
    /// Tell systemd that the loop turns.
    NotifyWatchdog,
    /// End the loop.
    Exit,
}
