//! Answers the agent: takes connections, lets root and the agent's user ask, and gives each a thread of its own.

use std::{
    io::{self, Write as _},
    os::{
        fd::AsFd as _,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{getsockopt, sockopt::PeerCredentials},
};
use serde::Serialize;
use tracing::{debug, info, warn};

use super::{
    boot, bootstrap, certificate, clock, config,
    configured::Configured,
    credential, fork, journal, kubelet, line, pods,
    protocol::{self, Code, ConfigRequest, Refusal, Request},
    runtime,
    storage::{self, Disk},
};
use crate::host::{cri, files::Root};

/// How many connections are answered at a time. One that is stuck in the kernel keeps its place until it is free.
pub const MAX_CONNECTIONS: usize = 4;

/// How many peers may follow the configuration at a time: the agent, and one that takes its place.
pub const MAX_FOLLOWED: usize = 2;

/// How many peers may ask for the container runtime again on the connection that they have: the agent, and one that takes its
/// place.
pub const MAX_KEPT: usize = 2;

/// The stack of a connection's thread, of which only what is touched takes memory. The deepest use is the YAML parser:
/// at the nesting that we allow it was measured to need up to 512 KiB in a debug build.
pub const STACK_BYTES: usize = 1024 * 1024;

/// Refused users that are remembered, so that each is logged once.
const MAX_REFUSED_UIDS: usize = 16;

/// The users that may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers(Vec<u32>);

impl Peers {
    /// Only these user ids.
    pub fn only(uids: impl Into<Vec<u32>>) -> Self {
        Self(uids.into())
    }

    fn allow(&self, uid: u32) -> bool {
        self.0.contains(&uid)
    }
}

/// The helper at work.
#[derive(Debug)]
pub struct Server {
    root: Root,
    configured: Arc<Configured>,
    peers: Peers,
    busy: Arc<AtomicUsize>,
    lasting: Lasting,
    disk: Arc<Disk>,
    refused_uids: Vec<u32>,
}

/// What a verb is answered from.
struct Host {
    root: Root,
    configured: Arc<Configured>,
    disk: Arc<Disk>,
}

/// Connections that last beyond their first answer, counted.
#[derive(Debug, Clone, Default)]
struct Lasting {
    followed: Arc<AtomicUsize>,
    kept: Arc<AtomicUsize>,
}

/// What goes on after the first answer.
enum Then {
    /// The configuration is followed; it has its first answer yet to come.
    Follow(Box<ConfigRequest>),
    /// The runtime is asked for again each quarter of a minute: a connection and a thread for each question cost more than
    /// the question.
    Ask,
}

/// A place among a bounded number, free again when it is dropped.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// A free place, if there is one.
    fn take(taken: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
                (count < max).then_some(count + 1)
            })
            .is_ok()
            .then(|| Self(Arc::clone(taken)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    /// A helper for the host below `root`, whose operator has written the configuration files `given`, or those in the default
    /// folders.
    pub fn new(root: Root, given: Vec<PathBuf>, peers: Peers) -> Self {
        Self {
            configured: Arc::new(Configured::new(root.clone(), given)),
            root,
            peers,
            busy: Arc::default(),
            lasting: Lasting::default(),
            disk: Arc::default(),
            refused_uids: Vec::new(),
        }
    }

    /// Answers until the socket fails for good; SIGTERM ends the process in its default way.
    ///
    /// # Errors
    /// The socket's error; it never ends without one.
    pub fn serve(mut self, listener: &UnixListener) -> io::Error {
        let mut short_of_resources = false;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    short_of_resources = false;
                    self.take(stream);
                }
                Err(error) => match passing(&error) {
                    None => return error,
                    Some(pause) => {
                        if !pause.is_zero() && !short_of_resources {
                            short_of_resources = true;
                            warn!(%error, "connections cannot be accepted for now");
                        }
                        thread::sleep(pause);
                    }
                },
            }
        }
    }

    /// Refuses a connection at once, or hands it to a thread. Never blocks.
    fn take(&mut self, stream: UnixStream) {
        let Ok(peer) = getsockopt(&stream, PeerCredentials) else {
            return;
        };
        let uid = peer.uid();
        if !self.peers.allow(uid) {
            self.log_refused(uid);
            let message =
                format!("user {uid} may not ask the helper; only root and the agent's user may");
            return refuse(&stream, Refusal::new(Code::Forbidden, message));
        }
        let Some(slot) = Slot::take(&self.busy, MAX_CONNECTIONS) else {
            let message =
                format!("the helper is busy with {MAX_CONNECTIONS} requests; ask again later");
            return refuse(&stream, Refusal::new(Code::Busy, message));
        };
        let host = Host {
            root: self.root.clone(),
            configured: Arc::clone(&self.configured),
            disk: Arc::clone(&self.disk),
        };
        let (stream, lasting) = (Arc::new(stream), self.lasting.clone());
        let theirs = Arc::clone(&stream);
        let worker = thread::Builder::new()
            .name("verb".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let then = answer(&host, &theirs, uid);
                // If it lasts, the place for questions that are answered and gone is free again.
                drop(slot);
                match then {
                    Some(Then::Follow(request)) => {
                        follow(&host, &theirs, &request, &lasting.followed);
                    }
                    Some(Then::Ask) => ask_again(&host, &theirs, &lasting.kept),
                    None => {}
                }
            });
        if let Err(error) = worker {
            debug!(%error, "no thread for a request");
            refuse(&stream, fork::no_thread(&self.root, &error));
        }
    }

    fn log_refused(&mut self, uid: u32) {
        if self.refused_uids.len() < MAX_REFUSED_UIDS && !self.refused_uids.contains(&uid) {
            self.refused_uids.push(uid);
            warn!(
                uid,
                "a user that may not ask the helper was refused (said once)"
            );
        }
    }
}

/// How long to wait after an error of `accept` that passes; `None` for one that stays.
fn passing(error: &io::Error) -> Option<Duration> {
    match Errno::from_raw(error.raw_os_error()?) {
        Errno::EINTR | Errno::ECONNABORTED => Some(Duration::ZERO),
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS => {
            Some(Duration::from_millis(100))
        }
        _ => None,
    }
}

/// Says no without waiting: a fresh socket has room for a line.
fn refuse(mut stream: &UnixStream, refusal: Refusal) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream.write_all(&protocol::encode_answer::<()>(Err(refusal)));
    }
}

/// One connection: reads the request, does it, writes the answer. A peer that has gone away is no matter. What goes on after
/// it is handed back.
fn answer(host: &Host, stream: &UnixStream, uid: u32) -> Option<Then> {
    let request = line::read(stream).and_then(|line| protocol::decode_request(&line));
    let (line, then) = match request {
        Ok(Request::Config(request)) => return Some(Then::Follow(request)),
        Ok(request) => {
            let then = matches!(request, Request::Runtime(_)).then_some(Then::Ask);
            (perform(host, &request, uid), then)
        }
        Err(refusal) => (protocol::encode_answer::<()>(Err(refusal)), None),
    };
    if let Err(error) = line::write(stream, &line) {
        debug!(%error, "an answer was not taken");
        return None;
    }
    then
}

/// Answers questions about the container runtime, and no others, until the peer closes. A peer that finds no place is not
/// told: its connection is closed after its answer, as every other is.
fn ask_again(host: &Host, stream: &UnixStream, kept: &Arc<AtomicUsize>) {
    let Some(_slot) = Slot::take(kept, MAX_KEPT) else {
        return;
    };
    let mut asker = runtime::Asker::default();
    while wait(stream, asker.connection()) {
        let request = line::read(stream).and_then(|line| protocol::decode_request(&line));
        let Ok(Request::Runtime(request)) = request else {
            return;
        };
        let answer = asker.answer(&host.root, &host.configured, &request);
        let line = encode(runtime::VERB.name, answer);
        if line::write(stream, &line).is_err() {
            return;
        }
    }
}

/// Until the peer says something, or closes.
fn wait(stream: &UnixStream, runtime: &mut cri::Asker) -> bool {
    loop {
        let both = [Some(stream.as_fd()), runtime.descriptor()];
        let mut ready: Vec<_> = (both.into_iter().flatten())
            .map(|one| PollFd::new(one, PollFlags::POLLIN))
            .collect();
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) if ready[0].any() == Some(true) => return true,
            Ok(_) => runtime.attend(),
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Answers each time that something changes, until the peer closes.
fn follow(host: &Host, stream: &UnixStream, request: &ConfigRequest, followed: &Arc<AtomicUsize>) {
    match Slot::take(followed, MAX_FOLLOWED) {
        Some(_slot) => config::follow(&host.root, &host.configured, stream, request),
        None => refuse(
            stream,
            Refusal::new(
                Code::Busy,
                format!(
                    "the helper follows {MAX_FOLLOWED} configurations already; ask again later"
                ),
            ),
        ),
    }
}

/// Does what is asked; the answer as a line.
fn perform(host: &Host, request: &Request, uid: u32) -> Vec<u8> {
    let verb = request.verb().name;
    let Host {
        root,
        configured,
        disk,
    } = host;
    let wanted = || configured.wanted();
    match request {
        // It is answered more than once, by `follow`.
        Request::Config(_) => Vec::new(),
        Request::Clock => encode(verb, clock::answer()),
        Request::Fork => encode(verb, fork::answer(root)),
        Request::Kubelet => encode(verb, kubelet::answer(root, &wanted().kubelet)),
        Request::Journal { invocation, rke2 } => {
            encode(verb, journal::answer(root, invocation.as_deref(), *rke2))
        }
        Request::Runtime(request) => encode(verb, runtime::answer(root, configured, request)),
        Request::Storage => encode(verb, storage::answer(disk, root, &wanted().kubelet)),
        Request::Boot(request) => encode(verb, boot::answer(disk, root, request)),
        Request::Bootstrap(request) => {
            encode(verb, bootstrap::answer(disk, root, &wanted(), request))
        }
        Request::Pods => encode(verb, pods::answer(root)),
        Request::Certificate => encode(verb, certificate::answer(root, &wanted().kubelet)),
        Request::Credential { own, known } => {
            let answer = credential::answer(root, &wanted(), *own, known.as_deref());
            // A plugin's lives for minutes: it is said once.
            if let Ok(credential) = &answer
                && credential.access.is_some()
                && (known.is_none() || credential.plugin.is_none())
            {
                info!(uid, source = %credential.source.display(), "credential handed out");
            }
            encode(verb, answer)
        }
    }
}

fn encode<T: Serialize>(verb: &str, answer: Result<T, Refusal>) -> Vec<u8> {
    if let Err(refusal) = &answer {
        // The agent says it, once; here it is for whoever looks closely.
        debug!(verb, code = ?refusal.code, "{refusal}");
    }
    protocol::encode_answer(answer)
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
