//! What can be seen of a kubelet: the input of [`super::state::Kubelet`].

use crate::{
    condition::Uptime,
    host::{
        api::LeaseFacts,
        healthz::Probe,
        oom::OomKill,
        pressure::Pressure,
        process::{Cgroup, ProcessId, Sample},
        sockets::Connection,
        systemd::BusEvent,
    },
};

/// Something that was seen.
#[derive(Debug)]
pub enum Observation {
    Bus(BusEvent),
    /// The unit's main process was opened.
    Opened {
        id: ProcessId,
        name: String,
        cgroup: Option<Cgroup>,
        started: Uptime,
    },
    /// The unit's main process cannot be watched, and why.
    Unwatchable(String),
    /// The process of this pid has ended.
    Exited(i32),
    Probed(i32, Probe),
    /// The process of this pid serves no /healthz.
    NotProbed(i32),
    /// A look at the process of this pid while it does not answer.
    Sampled(i32, Sample, Pressure),
    OomKill(OomKill),
    /// The last error that this run of the unit logged.
    LastError {
        invocation: String,
        line: Option<String>,
    },
    Lease(LeaseFacts),
    /// The connections to the API server of the process of this pid; none if they are not known, or if our API server is another one.
    Connections(i32, Option<Vec<Connection>>),
    /// Since when the API server has answered; none while it does not.
    ApiReached(Option<Uptime>),
}
