//! `nodevigil-plugin.service`: runs the exec plugin of this node's kubeconfig and says what it printed.
//!
//! Whoever connects says nothing, and nothing is read: which kubeconfig, which program and which arguments is found out here, by
//! the rules of the verb `credential`. One connection for each start of the service. What the program leaves running
//! ends with the service, by the unit's `KillMode=`: so it is never waited for, nor killed by us.

use std::{
    io,
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    thread,
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{getsockopt, sockopt::PeerCredentials},
};
use serde_json::json;
use tracing::{debug, warn};

use super::{Answer, MAX_OUTPUT_BYTES, SEARCH, SEE, Wanted, Word, find};
use crate::{
    clock::Clock,
    helper::{configured::Configured, credential, line},
    host::{files::Root, program},
    kubeconfig::{Access, Exec},
};

/// From its start to the end of what the program prints.
const DEADLINE: Duration = Duration::from_secs(10);
/// The socket starts the service because there is a connection. If that one is gone, nobody may come.
const IDLE: Duration = Duration::from_secs(2);
/// systemd gives a socket up that starts its service 20 times in 2 s. So nobody who asks in a hurry can have that.
const AT_LEAST: Duration = Duration::from_millis(200);

/// What a test has otherwise than the service.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// The user that may ask.
    asker: u32,
    deadline: Duration,
    idle: Duration,
    at_least: Duration,
}

/// Takes one connection of root's, answers it and returns; the process has to end then.
///
/// # Errors
/// The listener's.
pub fn serve(root: &Root, listener: &UnixListener) -> io::Result<()> {
    let limits = Limits {
        asker: 0,
        deadline: DEADLINE,
        idle: IDLE,
        at_least: AT_LEAST,
    };
    serve_one(root, listener, limits)
}

fn serve_one(root: &Root, listener: &UnixListener, limits: Limits) -> io::Result<()> {
    let began = Clock.now().uptime;
    if let Some(stream) = accept(listener, limits.idle)? {
        answer(root, &stream, limits);
    }
    let lived = Clock.now().uptime.saturating_sub(began);
    thread::sleep(limits.at_least.saturating_sub(lived));
    Ok(())
}

/// The next connection, if there is one within `patience`.
fn accept(listener: &UnixListener, patience: Duration) -> io::Result<Option<UnixStream>> {
    listener.set_nonblocking(true)?;
    if events(listener, PollFlags::POLLIN, patience)?.is_empty() {
        return Ok(None);
    }
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// What has happened there, within `patience`.
fn events(of: &impl AsFd, wanted: PollFlags, patience: Duration) -> io::Result<PollFlags> {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
    let mut looked_at = [PollFd::new(of.as_fd(), wanted)];
    match poll(&mut looked_at, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {
            Ok(looked_at[0].revents().unwrap_or(PollFlags::empty()))
        }
        Err(error) => Err(error.into()),
    }
}

fn answer(root: &Root, stream: &UnixStream, limits: Limits) {
    let Ok(peer) = getsockopt(stream, PeerCredentials) else {
        return;
    };
    if peer.uid() != limits.asker {
        warn!(uid = peer.uid(), "a user that may not ask was refused");
        return;
    }
    // Whoever asked may have given up while another was answered.
    let gone = |flags: PollFlags| flags.contains(PollFlags::POLLHUP);
    if events(stream, PollFlags::empty(), Duration::ZERO).is_ok_and(gone) {
        return;
    }
    let answer = derive(root, limits.deadline);
    if let Word::Error(why) = &answer.word {
        let kubeconfig = answer.source.as_deref().unwrap_or(Path::new("-"));
        warn!(kubeconfig = %kubeconfig.display(), "no credential by the exec plugin: {why}");
    }
    let mut text = match serde_json::to_vec(&answer) {
        Ok(text) => text,
        Err(error) => return warn!(%error, "no answer could be written"),
    };
    text.push(b'\n');
    if let Err(error) = line::write(stream, &text) {
        debug!(%error, "an answer was not taken");
    }
}

/// Finds out what is to be run, and runs it.
fn derive(root: &Root, deadline: Duration) -> Answer {
    let wanted = Configured::new(root.clone(), Vec::new()).wanted();
    let (source, access, exec) = match credential::exec_source(root, &wanted) {
        Ok(found) => found,
        Err(refusal) => {
            return Answer {
                source: None,
                word: Word::Error(refusal.message),
            };
        }
    };
    let word = printed(root, &source, &access, &exec, deadline);
    Answer {
        source: Some(source),
        word: word.map_or_else(Word::Error, Word::Printed),
    }
}

fn printed(
    root: &Root,
    kubeconfig: &Path,
    access: &Access,
    exec: &Exec,
    deadline: Duration,
) -> Result<String, String> {
    let path = find(root, kubeconfig, exec)?;
    run(&root.join(&path), access, exec, deadline)
        .map_err(|why| format!("{}: {why}", path.display()))
}

fn run(path: &Path, access: &Access, exec: &Exec, deadline: Duration) -> Result<String, String> {
    let end = Clock.now().uptime + deadline;
    let words = exec.args.as_deref().unwrap_or_default();
    let mut child = program::start(path, words, &environment(access, exec))
        .map_err(|error| format!("it could not be started: {error}"))?;
    let output = child.stdout.take().ok_or("it has no output")?;
    // Not all close it: what they leave running has it too.
    let wanted = Wanted {
        max_bytes: MAX_OUTPUT_BYTES,
        is_whole: |bytes| serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok(),
    };
    let printed = wanted
        .read(output, end)
        .map_err(|why| format!("{why}; {SEE}"))?;
    if printed.is_empty() {
        return Err(format!("it printed nothing; {SEE}"));
    }
    String::from_utf8(printed).map_err(|_| "what it printed is no text".to_owned())
}

/// All of the program's environment.
fn environment(access: &Access, exec: &Exec) -> Vec<(String, String)> {
    let mut environment = vec![
        ("PATH".to_owned(), SEARCH.join(":")),
        ("HOME".to_owned(), "/root".to_owned()),
    ];
    let said = exec.env.iter().flatten();
    environment.extend(said.map(|variable| (variable.name.clone(), variable.value.clone())));
    let info = info(access, exec).to_string();
    environment.push(("KUBERNETES_EXEC_INFO".to_owned(), info));
    environment
}

/// What the plugin is told, as client-go tells it.
fn info(access: &Access, exec: &Exec) -> serde_json::Value {
    let mut spec = json!({"interactive": false});
    if exec.provide_cluster_info {
        let mut cluster = json!({"server": access.server});
        if let Some(name) = &access.tls_server_name {
            cluster["tls-server-name"] = json!(name);
        }
        if let Some(authority) = &access.authority {
            cluster["certificate-authority-data"] = json!(authority);
        }
        spec["cluster"] = cluster;
    }
    json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec})
}

#[cfg(test)]
mod tests;
