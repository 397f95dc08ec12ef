//! The container runtime at its socket: CRI `Version` and `Status`, over gRPC, within a deadline.
//!
//! A connection for each question: one that is kept would keep a thread of the helper and its memory from one question to
//! the next, a quarter of a minute later. The messages are written by hand, with the fields that are read; whatever else
//! a runtime says is passed over.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door to the runtime that the ban on connecting points to"
)]

use std::{cell::Cell, io, path::Path, time::Duration};

use http::{Uri, uri::PathAndQuery};
use http_body_util::{BodyExt, Full};
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::UnixStream, time::timeout};
use tonic::{
    Request, Status,
    client::{Grpc, GrpcService},
};
use tonic_prost::ProstCodec;

use crate::helper::protocol::{Heard, RuntimeStatus};

/// The longest answer; containerd's has some hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// What is kept of each text in it.
const MAX_TEXT_BYTES: usize = 400;

/// What a question came to.
#[derive(Debug)]
pub struct Asked {
    /// The process that listens there, if somebody does.
    pub pid: Option<i32>,
    /// What was heard.
    pub heard: Heard,
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

/// Asks the runtime behind `socket`. Blocks for `deadline` at most, and must not be called on a runtime of tokio's.
///
/// # Errors
/// When it could not be asked for want of something of our own: that says nothing of the runtime.
pub fn ask(socket: &Path, deadline: Duration) -> io::Result<Asked> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let pid = Cell::new(None);
    let connected = Cell::new(false);
    let heard = runtime.block_on(async {
        let asking = exchange(socket, &pid, &connected);
        let late = || {
            Ok(Heard::TimedOut {
                connected: connected.get(),
            })
        };
        timeout(deadline, asking).await.unwrap_or_else(|_| late())
    })?;
    Ok(Asked {
        pid: pid.get(),
        heard,
    })
}

async fn exchange(
    socket: &Path,
    pid: &Cell<Option<i32>>,
    connected: &Cell<bool>,
) -> io::Result<Heard> {
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(error) => return not_connected(error),
    };
    connected.set(true);
    pid.set(stream.peer_cred().ok().and_then(|peer| peer.pid()));
    let shaken = http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = match shaken.await {
        Ok(both) => both,
        Err(error) => return Ok(Heard::Broken(text(&error.to_string()))),
    };
    // It ends with the runtime.
    tokio::spawn(connection);
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
    let mut client = Grpc::with_origin(service, Uri::from_static("http://localhost"))
        .max_decoding_message_size(MAX_ANSWER_BYTES);
    Ok(questions(&mut client)
        .await
        .unwrap_or_else(|status| refused(&status)))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// `Err` is what was refused, or how the connection broke.
async fn questions<T>(client: &mut Grpc<T>) -> Result<Heard, Status>
where
    T: GrpcService<tonic::body::Body>,
    T::ResponseBody: hyper::body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as hyper::body::Body>::Error: Into<BoxError>,
{
    let version: VersionResponse = call(
        client,
        "/runtime.v1.RuntimeService/Version",
        VersionRequest::default(),
    )
    .await?;
    let status: StatusResponse = call(
        client,
        "/runtime.v1.RuntimeService/Status",
        StatusRequest::default(),
    )
    .await?;
    let conditions = status.status.unwrap_or_default().conditions;
    let find = |wanted: &str| conditions.iter().find(|one| one.r#type == wanted);
    let why = |one: &RuntimeCondition| {
        let both = [one.reason.as_str(), one.message.as_str()];
        let said: Vec<_> = both.into_iter().filter(|word| !word.is_empty()).collect();
        text(&said.join(": "))
    };
    // One that does not speak of it is ready: it answers.
    let not_ready = |wanted| find(wanted).filter(|one| !one.status).map(why);
    Ok(Heard::Status(RuntimeStatus {
        name: text(&version.runtime_name),
        version: text(&version.runtime_version),
        not_ready: not_ready("RuntimeReady"),
        network_not_ready: not_ready("NetworkReady"),
    }))
}

async fn call<T, Q, A>(client: &mut Grpc<T>, path: &'static str, question: Q) -> Result<A, Status>
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

/// In one line, and not too long.
fn text(said: &str) -> String {
    let mut line: String = said
        .chars()
        .take(MAX_TEXT_BYTES)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    line.truncate(line.floor_char_boundary(MAX_TEXT_BYTES));
    line
}

#[cfg(test)]
mod tests;
