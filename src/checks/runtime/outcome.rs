//! How a question to the runtime ended.

use std::path::PathBuf;

use crate::{
    checks::Unasked,
    helper::protocol::{Heard, RuntimeAnswer, RuntimeStatus},
};

/// gRPC's word, as tonic spells it, for a service that is not there: a containerd without its CRI plugin.
const UNIMPLEMENTED: &str = "Unimplemented";

/// How a question to the runtime ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Where it was asked; empty if there is none at any of the well-known places.
    pub(super) socket: PathBuf,
    pub(super) kind: Kind,
}

/// The kinds that are judged each in its own way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is ready.
    Ready(RuntimeStatus),
    /// It says itself that it is not, and why; `settled`: time will not change that.
    NotReady {
        /// The end of a sentence.
        why: String,
        settled: bool,
    },
    /// What listens does not speak CRI, and nobody said that it should.
    NotOurs(String),
    /// No answer in time; how much of the time the host waited for its disks.
    Silent { io_full_percent: Option<u32> },
    /// There is no socket.
    NoSocket,
    /// Nobody listens.
    Refused,
    /// Nobody takes a connection, which the kernel's list of sockets does not confirm: of a process that lives that says nothing.
    Doubted(String),
    /// It could not be asked: that says nothing of it.
    Unasked(String),
}

impl Kind {
    /// Whether nobody takes a connection.
    pub(super) fn is_nobody(&self) -> bool {
        matches!(self, Self::NoSocket | Self::Refused | Self::Doubted(_))
    }
}

impl Outcome {
    /// `is_guess`: nobody has said that this is the kubelet's runtime.
    pub(super) fn of(answer: &RuntimeAnswer, is_guess: bool) -> Self {
        let not_ready = |why| Kind::NotReady {
            why,
            settled: false,
        };
        let kind = match &answer.heard {
            Heard::Status(status) => match &status.not_ready {
                None => Kind::Ready(status.clone()),
                Some(why) if why.is_empty() => not_ready("says RuntimeReady=false".to_owned()),
                Some(why) => not_ready(format!("says RuntimeReady=false: {why}")),
            },
            Heard::Error { code, message } if is_guess => {
                Kind::NotOurs(format!("{code}: {message}"))
            }
            Heard::Error { code, message } => Kind::NotReady {
                why: format!("answers CRI with {code}: {message}"),
                settled: code == UNIMPLEMENTED,
            },
            Heard::NoSocket => Kind::NoSocket,
            Heard::Refused => Kind::Refused,
            Heard::Doubted(why) => Kind::Doubted(why.clone()),
            Heard::Denied(why) => Kind::Unasked(why.clone()),
            Heard::TimedOut { .. } => Kind::Silent {
                io_full_percent: answer.io_full_percent,
            },
            Heard::Broken(why) => not_ready(format!("breaks the connection: {why}")),
        };
        Self {
            socket: answer.socket.clone(),
            kind,
        }
    }

    pub(super) fn unasked(socket: PathBuf, unasked: &Unasked) -> Self {
        Self {
            socket,
            kind: Kind::Unasked(unasked.why.clone()),
        }
    }

    pub(super) fn is_good(&self) -> bool {
        matches!(self.kind, Kind::Ready(_))
    }

    /// Whether there is no runtime to be seen.
    pub(super) fn is_none(&self) -> bool {
        self.kind == Kind::NoSocket
    }

    /// Whether a runtime that has just started may say or not say so.
    pub(super) fn passes(&self) -> bool {
        !matches!(
            self.kind,
            Kind::Unasked(_) | Kind::NotReady { settled: true, .. }
        )
    }

    /// Whether both are failures of one kind.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(&self.kind) == std::mem::discriminant(&other.kind)
    }
}
