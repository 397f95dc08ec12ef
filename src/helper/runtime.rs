//! The verb `runtime`: whether the container runtime answers at its socket, which is root's alone, and what it says of
//! itself.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::protocol::{Code, Heard, Refusal, RuntimeAnswer, RuntimeRequest, Verb};
use crate::{
    clock::Clock,
    host::{
        cri::{self, Asked},
        files::Root,
    },
};

/// The verb. The agent waits [`PATIENCE`] longer than it lets the runtime take.
pub const VERB: Verb = Verb {
    name: "runtime",
    sentence: "Asks the container runtime at its socket whether it is ready (CRI Version and Status).",
    deadline: Duration::from_secs(12),
};

/// The longest that a runtime may take; the agent asks for less.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// How much longer than the runtime's deadline the agent waits for the helper.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Where the sockets of the runtimes that nodes have lie, if nobody says it: k3s' and RKE2's own first, because a node
/// that has it uses it, whatever else is installed.
const SOCKETS: &[&str] = &[
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/crio/crio.sock",
    "/run/containerd/containerd.sock",
];

/// Asks the runtime at the socket that was named; with none, the first of the well-known ones that answers.
pub fn answer(root: &Root, request: &RuntimeRequest) -> Result<RuntimeAnswer, Refusal> {
    let timeout = request.timeout().min(MAX_TIMEOUT);
    if let Some(socket) = &request.socket {
        if !socket.is_absolute() {
            let message = format!("socket {}: wanted an absolute path", socket.display());
            return Err(Refusal::new(Code::BadRequest, message));
        }
        return ask(root, socket, timeout);
    }
    let begin = Clock.now().uptime;
    let mut first = None;
    for socket in SOCKETS {
        let left = timeout.saturating_sub(Clock.now().uptime.saturating_sub(begin));
        let answer = ask(root, Path::new(socket), left)?;
        match answer.heard {
            Heard::NoSocket => {}
            Heard::Status(_) => return Ok(answer),
            _ => first = first.or(Some(answer)),
        }
    }
    Ok(first.unwrap_or_else(|| RuntimeAnswer {
        socket: PathBuf::new(),
        pid: None,
        took_micros: 0,
        heard: Heard::NoSocket,
    }))
}

fn ask(root: &Root, socket: &Path, timeout: Duration) -> Result<RuntimeAnswer, Refusal> {
    let begin = Clock.now().uptime;
    let Asked { pid, heard } = cri::ask(&root.join(socket), timeout).map_err(|error| {
        let message = format!("ask the runtime at {}: {error}", socket.display());
        Refusal::new(Code::Unreadable, message)
    })?;
    let took = Clock.now().uptime.saturating_sub(begin);
    Ok(RuntimeAnswer {
        socket: socket.to_owned(),
        pid,
        took_micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        heard,
    })
}
