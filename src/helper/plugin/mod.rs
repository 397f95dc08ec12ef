//! Exec plugins: a program that a kubeconfig names prints the credential.
//!
//! The helper starts nothing and has no network. It connects to the socket of `nodevigil-plugin.service` and says nothing: the
//! [`service`] finds out by itself whose plugin is to be run, runs it, and answers with what it printed. Only a program
//! that nobody but root can have put there is run.

use std::{
    io::{self, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use super::PLUGIN_SOCKET_PATH;
use crate::{
    clock::Clock,
    host::{files::Root, socket, trusted},
    kubeconfig::{Access, Exec},
};

pub mod service;

/// From the question to the whole answer: what the program may take, and a moment for the service to start and to find it.
const DEADLINE: Duration = Duration::from_secs(11);
/// A token has 2 KiB, a certificate with its key 4.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// In JSON a byte takes six at most.
const MAX_ANSWER_BYTES: usize = 6 * MAX_OUTPUT_BYTES + 8 * 1024;
/// Where a command without a slash is looked for.
const SEARCH: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
/// The versions of the protocol that are spoken.
const VERSIONS: &[&str] = &[
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];
/// Where more is said.
const SEE: &str = "see journalctl -u nodevigil-plugin.service";

/// What the service says: one line of JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    /// Whose plugin it is: the kubeconfig that the service found.
    source: Option<PathBuf>,
    #[serde(flatten)]
    word: Word,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    /// What the program printed. A secret.
    Printed(String),
    /// Why there is nothing.
    Error(String),
}

#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Has the plugin of `access` run, and puts in what it printed; the time until when that is good, if it said one.
///
/// # Errors
/// A sentence that quotes nothing of what it printed.
pub(super) fn fill(
    root: &Root,
    kubeconfig: &Path,
    access: &mut Access,
    exec: &Exec,
) -> Result<Option<Timestamp>, String> {
    // The service looks at it, too. What it would refuse is refused without starting it.
    let program = find(root, kubeconfig, exec)?;
    let printed = ask(Path::new(PLUGIN_SOCKET_PATH), kubeconfig, DEADLINE)?;
    read(printed.as_bytes(), access).map_err(|e| format!("{}: {e}", program.display()))
}

/// The program that `exec` names, with links resolved, if only root can have put it and each link to it there.
fn find(root: &Root, kubeconfig: &Path, exec: &Exec) -> Result<PathBuf, String> {
    if !VERSIONS.contains(&exec.api_version.as_str()) {
        return Err(format!(
            "its exec plugin speaks `{}`; wanted one of {}",
            exec.api_version,
            VERSIONS.join(", ")
        ));
    }
    let command = exec.command.as_str();
    let folder = kubeconfig.parent().unwrap_or(Path::new("/"));
    let candidates: Vec<PathBuf> = if command.contains('/') {
        vec![folder.join(command)] // an absolute one stays as it is
    } else {
        SEARCH
            .iter()
            .map(|dir| Path::new(dir).join(command))
            .collect()
    };
    for path in &candidates {
        match trusted::find(root, path) {
            Ok(found) => return Ok(found.real),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(format!("its exec plugin is not run: {error}")),
        }
    }
    Err(format!(
        "its exec plugin `{command}` is not there; a command without a slash is looked for in {}",
        SEARCH.join(":")
    ))
}

/// What the program of this kubeconfig printed, by the service that listens at `socket`.
fn ask(socket: &Path, kubeconfig: &Path, deadline: Duration) -> Result<String, String> {
    let end = Clock.now().uptime + deadline;
    let stream = socket::connect(socket).map_err(|error| {
        format!(
            "its exec plugin is run by nodevigil-plugin.service: connect to {}: {error}; start nodevigil-plugin.socket",
            socket.display()
        )
    })?;
    let wanted = Wanted {
        max_bytes: MAX_ANSWER_BYTES,
        is_whole: |bytes| bytes.ends_with(b"\n"),
    };
    let line = wanted
        .read(stream, end)
        .map_err(|error| format!("its exec plugin, by nodevigil-plugin.service: {error}; {SEE}"))?;
    let answer: Answer = serde_json::from_slice(&line).map_err(|_| {
        format!("its exec plugin: nodevigil-plugin.service gave no whole answer; {SEE}")
    })?;
    match answer.source {
        Some(source) if source != kubeconfig => Err(format!(
            "nodevigil-plugin.service runs the exec plugin of {} and not this one's: the agent's own kubeconfig goes before the \
             kubelet's",
            source.display()
        )),
        _ => match answer.word {
            Word::Printed(text) if answer.source.is_some() => Ok(text),
            Word::Printed(_) => Err(format!(
                "nodevigil-plugin.service named no kubeconfig; {SEE}"
            )),
            Word::Error(why) => Err(why),
        },
    }
}

/// What is read of somebody: until the end is reached, or enough is there.
struct Wanted {
    max_bytes: usize,
    is_whole: fn(&[u8]) -> bool,
}

impl Wanted {
    fn read(&self, mut from: impl Read + AsFd, end: Duration) -> Result<Vec<u8>, String> {
        let began = Clock.now().uptime;
        let mut said = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let left = end.saturating_sub(Clock.now().uptime);
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let ready = poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], timeout);
            match ready {
                Ok(0) => {
                    let secs = end.saturating_sub(began).as_secs_f64().ceil();
                    return Err(format!("no answer within {secs} s"));
                }
                Err(nix::errno::Errno::EINTR) => continue,
                Err(e) => return Err(e.to_string()),
                Ok(_) => {}
            }
            match from.read(&mut chunk) {
                Ok(0) => return Ok(said),
                Ok(count) => said.extend_from_slice(&chunk[..count]),
                Err(e) if passes(&e) => {}
                Err(e) => return Err(e.to_string()),
            }
            if said.len() > self.max_bytes {
                return Err(format!("it printed over {} bytes", self.max_bytes));
            }
            if (self.is_whole)(&said) {
                return Ok(said);
            }
        }
    }
}

fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

/// Puts what was printed into `access`.
fn read(printed: &[u8], access: &mut Access) -> Result<Option<Timestamp>, String> {
    let no = || "what it printed is no ExecCredential with a status".to_owned();
    let credential: ExecCredential = serde_json::from_slice(printed).map_err(|_| no())?;
    let status = credential.status.ok_or_else(no)?;
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let pem = |text: Option<String>| said(text).map(|pem| BASE64_STANDARD.encode(pem));
    access.token = said(status.token);
    access.certificate = pem(status.client_certificate_data);
    access.key = pem(status.client_key_data);
    if access.certificate.is_some() != access.key.is_some() {
        return Err(
            "it printed a certificate without key, or a key without certificate".to_owned(),
        );
    }
    if !access.has_credential() {
        return Err("it printed neither token nor certificate".to_owned());
    }
    Ok(status.expiration_timestamp)
}

#[cfg(test)]
mod tests;
