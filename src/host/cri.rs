//! The container runtime at its socket: CRI `Version` (once a connection) and `Status`, over gRPC, within a deadline.
//!
//! Whoever asks again asks on the connection that there is, as the kubelet does; from time to time on a new one, for a runtime
//! may have come to take none. The messages are written by hand, with the fields that are read; whatever else a runtime says is
//! passed over.

mod line;

use std::{
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use http::{Uri, uri::PathAndQuery};
use http_body_util::{BodyExt, Full};
use hyper::{body::Bytes, client::conn::http2};
use prost::Message;
use rustix::fs::Access;
use tonic::{
    Request, Status,
    client::{Grpc, GrpcService},
};
use tonic_prost::ProstCodec;

use self::line::{End, Line, Tasks};
use crate::{
    clock::Clock, helper::protocol::Heard, helper::protocol::RuntimeStatus, kubelet::shown::told,
};

/// The longest answer; containerd's has some hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// So much of an answer may be on its way before we have read it: HTTP/2's own default, which need not be negotiated.
const WINDOW_BYTES: u32 = 65_535;
/// On one connection so many questions are asked: at one each 15 s, every other minute shows that the runtime still takes new ones.
const RENEWED_AFTER: u32 = 8;
/// What is kept of each text in it.
const MAX_TEXT_BYTES: usize = 400;

const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const STATUS: &str = "/runtime.v1.RuntimeService/Status";

/// What a question came to.
#[derive(Debug)]
pub struct Asked {
    /// The process that listens there, if somebody does.
    pub pid: Option<i32>,
    /// What was heard.
    pub heard: Heard,
    /// Whether that was on the connection of the question before: then it is the same process.
    pub is_kept: bool,
}

#[derive(Clone, PartialEq, Message)]
struct VersionRequest {
    #[prost(string, tag = "1")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct VersionResponse {
    #[prost(string, tag = "2")]
    runtime_name: String,
    #[prost(string, tag = "3")]
    runtime_version: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {
    #[prost(bool, tag = "1")]
    verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<RuntimeConditions>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeConditions {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeCondition {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(bool, tag = "2")]
    status: bool,
    #[prost(string, tag = "3")]
    reason: String,
    #[prost(string, tag = "4")]
    message: String,
}

/// Asks runtimes, and keeps the connection to the one that answered last.
#[derive(Default)]
pub struct Asker {
    kept: Option<Kept>,
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker")
            .field("kept", &self.kept.as_ref().map(|kept| &kept.socket))
            .finish()
    }
}

/// A connection that has answered.
struct Kept {
    socket: PathBuf,
    /// The socket's file, as it was there.
    place: Place,
    pid: Option<i32>,
    line: Rc<Line>,
    /// The connection's own work, which holds the line.
    tasks: Tasks,
    sender: Sender,
    /// How often it was asked on, or spoke by itself.
    questions: u32,
    /// What it said that it is: that stays as long as the connection.
    version: Option<VersionResponse>,
}

/// Device and inode.
type Place = (u64, u64);

/// `None` if nobody could connect there any more: the kubelet, which has a connection of its own, is not well for long then.
fn place(socket: &Path) -> Option<Place> {
    let stat = rustix::fs::stat(socket).ok()?;
    rustix::fs::access(socket, Access::WRITE_OK).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

type Sender = http2::SendRequest<Full<Bytes>>;

impl Drop for Kept {
    fn drop(&mut self) {
        self.tasks.end();
    }
}

impl Asker {
    /// Asks the runtime behind `socket`. Blocks for `deadline` at most.
    ///
    /// # Errors
    /// When it could not be asked for want of something of our own: that says nothing of the runtime.
    pub fn ask(&mut self, socket: &Path, deadline: Duration) -> io::Result<Asked> {
        let until = Clock.now().uptime.saturating_add(deadline);
        let last = self.kept.take_if(|kept| kept.socket == socket);
        let is_good =
            |kept: &Kept| kept.questions < RENEWED_AFTER && place(socket) == Some(kept.place);
        if let Some(kept) = last.filter(is_good) {
            let (asked, kept) = kept.ask(until)?;
            // A connection that has ended since says nothing of the runtime.
            if matches!(asked.heard, Heard::Status(_) | Heard::TimedOut { .. }) {
                self.kept = kept;
                return Ok(asked);
            }
        }
        let line = match Line::connect(socket) {
            Ok(line) => Rc::new(line),
            Err(error) => {
                let heard = not_connected(error)?;
                return Ok(asked(None, heard));
            }
        };
        let (pid, tasks) = (line.peer(), Tasks::default());
        let shaking = shake(End(Rc::clone(&line)), tasks.clone());
        let shaken = line::drive(&line, &tasks, until, shaking);
        let heard = match shaken {
            Ok(Some(Ok(sender))) => {
                let kept = Kept {
                    socket: socket.to_owned(),
                    place: place(socket).unwrap_or_default(),
                    pid,
                    line,
                    tasks,
                    sender,
                    questions: 0,
                    version: None,
                };
                let (asked, kept) = kept.ask(until)?;
                self.kept = kept;
                return Ok(asked);
            }
            Ok(Some(Err(broken))) => broken,
            Ok(None) => Heard::TimedOut { connected: true },
            Err(error) => {
                tasks.end();
                return Err(error);
            }
        };
        tasks.end();
        Ok(asked(pid, heard))
    }
}

impl Asker {
    /// On which the runtime says by itself that it is about to end, if there is a connection: whoever waits waits for this, too,
    /// and calls [`Asker::attend`].
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.kept.as_ref().map(|kept| kept.line.descriptor())
    }

    /// Takes in what the runtime says by itself. One that ends politely (CRI-O) waits for its peers to have heard it.
    pub fn attend(&mut self) {
        let Some(mut kept) = self.kept.take() else {
            return;
        };
        let nothing = std::future::pending::<()>();
        let driven = line::drive(&kept.line, &kept.tasks, Duration::ZERO, nothing);
        kept.questions += 1; // one that says something again and again is asked on another
        let lives = driven.is_ok() && !kept.tasks.is_empty() && kept.questions < RENEWED_AFTER;
        self.kept = lives.then_some(kept);
    }
}

fn asked(pid: Option<i32>, heard: Heard) -> Asked {
    let is_kept = false;
    Asked {
        pid,
        heard,
        is_kept,
    }
}

impl Kept {
    /// Asks on this connection; it is handed back if it may be asked on again.
    fn ask(mut self, until: Duration) -> io::Result<(Asked, Option<Self>)> {
        self.questions += 1;
        let talk = exchange(self.sender.clone(), self.version.take());
        let heard = line::drive(&self.line, &self.tasks, until, talk)?;
        let heard = heard.unwrap_or(Heard::TimedOut { connected: true });
        if let Heard::Status(status) = &heard {
            self.version = Some(VersionResponse {
                runtime_name: status.name.clone(),
                runtime_version: status.version.clone(),
            });
        }
        let asked = Asked {
            pid: self.pid,
            is_kept: self.questions > 1,
            heard,
        };
        let answers = matches!(asked.heard, Heard::Status(_));
        Ok((asked, answers.then_some(self)))
    }
}

/// What HTTP/2 begins with. The connection goes on among the tasks.
async fn shake(end: End, tasks: Tasks) -> Result<Sender, Heard> {
    let (sender, connection) = http2::Builder::new(tasks.clone())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake::<_, Full<Bytes>>(end)
        .await
        .map_err(|error| Heard::Broken(text(&error.to_string())))?;
    hyper::rt::Executor::execute(&tasks, async {
        connection.await.ok();
    });
    Ok(sender)
}

async fn exchange(sender: Sender, version: Option<VersionResponse>) -> Heard {
    // Two short messages: to have them whole before they are sent lets hyper's code for the API server serve here too.
    let service = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        let mut sender = sender.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let request = http::Request::from_parts(parts, Full::new(body));
            sender.send_request(request).await.map_err(BoxError::from)
        }
    });
    let client = Grpc::with_origin(service, Uri::from_static("http://localhost"))
        .max_decoding_message_size(MAX_ANSWER_BYTES);
    questions(client, version)
        .await
        .unwrap_or_else(|status| refused(&status))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What it is, unless that is known, and how it is. `Err` is what was refused, or how the connection broke.
async fn questions<T>(client: Grpc<T>, known: Option<VersionResponse>) -> Result<Heard, Status>
where
    T: Clone + GrpcService<tonic::body::Body>,
    T::ResponseBody: hyper::body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as hyper::body::Body>::Error: Into<BoxError>,
{
    let asked = client.clone();
    let version = async {
        match known {
            Some(version) => Ok(version),
            None => call(asked, VERSION, VersionRequest::default()).await,
        }
    };
    let status = call::<_, _, StatusResponse>(client, STATUS, StatusRequest::default());
    let (version, status) = tokio::try_join!(version, status)?;
    Ok(Heard::Status(read(&version, status)))
}

fn read(version: &VersionResponse, status: StatusResponse) -> RuntimeStatus {
    let conditions = status.status.unwrap_or_default().conditions;
    let find = |wanted: &str| conditions.iter().find(|one| one.r#type == wanted);
    let why = |one: &RuntimeCondition| {
        let both = [one.reason.as_str(), one.message.as_str()];
        let said: Vec<_> = both.into_iter().filter(|word| !word.is_empty()).collect();
        text(&said.join(": "))
    };
    // One that does not speak of it is ready: it answers.
    let not_ready = |wanted| find(wanted).filter(|one| !one.status).map(why);
    RuntimeStatus {
        name: text(&version.runtime_name),
        version: text(&version.runtime_version),
        not_ready: not_ready("RuntimeReady"),
        network_not_ready: not_ready("NetworkReady"),
    }
}

/// What a runtime says in these two messages.
#[doc(hidden)] // public for the fuzz target
pub fn status_in(version: &[u8], status: &[u8]) -> Option<RuntimeStatus> {
    let version = VersionResponse::decode(version).ok()?;
    Some(read(&version, StatusResponse::decode(status).ok()?))
}

async fn call<T, Q, A>(mut client: Grpc<T>, path: &'static str, question: Q) -> Result<A, Status>
where
    T: GrpcService<tonic::body::Body>,
    T::ResponseBody: hyper::body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as hyper::body::Body>::Error: Into<BoxError>,
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(error.into().to_string()))?;
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<Q, A>::default();
    let answer = client.unary(Request::new(question), path, codec).await?;
    Ok(answer.into_inner())
}

fn not_connected(error: io::Error) -> io::Result<Heard> {
    use io::ErrorKind as Kind;
    Ok(match error.kind() {
        Kind::NotFound => Heard::NoSocket,
        Kind::ConnectionRefused => Heard::Refused,
        Kind::PermissionDenied => Heard::Denied(error.to_string()),
        // A full queue: nobody has taken a connection from it for long.
        Kind::WouldBlock => Heard::TimedOut { connected: false },
        _ => return Err(error),
    })
}

/// An answer that says no, or a connection that ended before the answer: tonic makes a [`Status`] of both.
fn refused(status: &Status) -> Heard {
    if std::error::Error::source(status).is_some() {
        return Heard::Broken(text(status.message()));
    }
    Heard::Error {
        code: format!("{:?}", status.code()),
        message: text(status.message()),
    }
}

/// In one line, without secrets (a runtime quotes the URL that it pulls from), and not too long.
fn text(said: &str) -> String {
    let line: String = said
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    told(&line, MAX_TEXT_BYTES)
}

#[cfg(test)]
mod tests;
