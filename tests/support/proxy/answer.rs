//! One request at the proxy: handed on to the API server, or answered as the fault wants.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow};
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, DATE, TRANSFER_ENCODING, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use kube::client::Body as KubeBody;
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use super::Shared;
use super::fault::{Fault, HUGE_BYTES, RETRY_AFTER, SLOW};

/// What the agent sends is some kilobytes.
const MAX_REQUEST_BYTES: usize = 1024 * 1024;
/// Chunks of an answer that wait for a client that does not read.
const QUEUE: usize = 4;
/// A piece of a huge answer: nothing but white space.
static PIECE: [u8; 64 * 1024] = [b' '; 64 * 1024];

/// An answer's body: what comes through the queue.
pub(super) struct Outgoing(Receiver<io::Result<Bytes>>);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = self.0.poll_recv(context);
        polled.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

/// What a request is for, in a word of the API's.
fn kind(method: &Method, path_and_query: &str) -> &'static str {
    let (path, query) = path_and_query
        .split_once('?')
        .unwrap_or((path_and_query, ""));
    match (method, path) {
        (&Method::GET, _) if query.contains("watch=") => "watch",
        (&Method::GET, path) if path.ends_with("/nodes") => "list",
        (&Method::GET, _) => "get",
        (_, path) if path.contains("/events") => "event",
        (&Method::PATCH, path) if path.ends_with("/status") => "patch status",
        (&Method::PATCH, _) => "patch",
        _ => "other",
    }
}

/// Answers one request.
pub(super) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>> {
    let fault = *shared.fault.borrow();
    match fault {
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Status(code)) => Ok(status(code, false)),
        Some(Fault::TooMany) => Ok(status(429, true)),
        Some(Fault::Huge) => Ok(huge()),
        Some(Fault::BrokenJson) => Ok(whole(
            StatusCode::OK,
            r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"#.to_owned(),
        )),
        Some(Fault::Slow) => {
            let request = read(&shared, request).await?;
            let late = tokio::spawn(async move {
                tokio::time::sleep(SLOW).await;
                forward(&shared, request).await
            });
            late.await?
        }
        Some(Fault::Hold(held)) if held == kind_of(&request) => {
            let request = read(&shared, request).await?;
            let mut fault = shared.fault.subscribe();
            fault
                .wait_for(|now| *now != Some(Fault::Hold(held)))
                .await?;
            forward(&shared, request).await
        }
        Some(Fault::DateAhead(secs)) => {
            let request = read(&shared, request).await?;
            let mut answer = forward(&shared, request).await?;
            let date = SystemTime::now() + Duration::from_secs(secs.into());
            let date = Timestamp::try_from(date)?;
            let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date)?;
            answer.headers_mut().insert(DATE, date.parse()?);
            Ok(answer)
        }
        // What has arrived is carried out, as by the API server itself, whether or not the client still waits.
        _ => {
            let carried_out = tokio::spawn(async move {
                let request = read(&shared, request).await?;
                forward(&shared, request).await
            });
            carried_out.await?
        }
    }
}

/// What a request is for.
pub(super) fn kind_of<B>(request: &Request<B>) -> &'static str {
    let path = request.uri().path_and_query();
    kind(request.method(), path.map_or("", |path| path.as_str()))
}

/// The request as it goes to the API server: path, body and the headers that matter there.
async fn read(shared: &Shared, request: Request<Incoming>) -> Result<Request<KubeBody>> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_REQUEST_BYTES)
        .collect()
        .await
        .map_err(|error| anyhow!("reading a request: {error}"))?;
    let path = parts.uri.path_and_query().context("a request has a path")?;
    let mut onward = Request::builder()
        .method(parts.method)
        .uri(shared.renamed(path.as_str().to_owned()))
        .body(KubeBody::from(shared.renamed_bytes(&body.to_bytes())))?;
    for name in [ACCEPT, CONTENT_TYPE, USER_AGENT] {
        if let Some(value) = parts.headers.get(&name) {
            onward.headers_mut().insert(name, value.clone());
        }
    }
    Ok(onward)
}

impl Shared {
    fn renamed(&self, text: String) -> String {
        let words = self.words.get().copied().unwrap_or_default();
        words
            .iter()
            .fold(text, |text, (from, to)| text.replace(from, to))
    }

    fn renamed_bytes(&self, bytes: &Bytes) -> Vec<u8> {
        match String::from_utf8(bytes.to_vec()) {
            Ok(text) => self.renamed(text).into_bytes(),
            Err(other) => other.into_bytes(),
        }
    }
}

async fn forward(shared: &Shared, request: Request<KubeBody>) -> Result<Response<Outgoing>> {
    let is_watch = kind_of(&request) == "watch";
    let answer = shared.upstream.send(request).await?;
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(CONNECTION);
    parts.headers.remove(TRANSFER_ENCODING);
    parts.version = http::Version::default();
    let (sender, receiver) = channel(QUEUE);
    tokio::spawn(pump(body, is_watch, sender, shared.fault.subscribe()));
    Ok(Response::from_parts(parts, Outgoing(receiver)))
}

/// Hands a body on until either side ends; in a [`Fault::Hang`] it waits, and a watch in a [`Fault::Hold`] of those.
async fn pump(
    mut body: KubeBody,
    is_watch: bool,
    to: Sender<io::Result<Bytes>>,
    mut fault: watch::Receiver<Option<Fault>>,
) {
    loop {
        let silent = match *fault.borrow_and_update() {
            Some(Fault::Hang) => true,
            Some(Fault::Hold(kind)) => is_watch && kind == "watch",
            _ => false,
        };
        tokio::select! {
            () = to.closed() => return,
            changed = fault.changed() => if changed.is_err() { return },
            frame = body.frame(), if !silent => {
                let chunk = match frame {
                    None => return,
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => Ok(data),
                        Err(_trailers) => continue,
                    },
                    Some(Err(error)) => Err(io::Error::other(error)),
                };
                if to.send(chunk).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn whole(code: StatusCode, text: String) -> Response<Outgoing> {
    let (sender, receiver) = channel(QUEUE);
    // The queue is empty and its other end is here: it takes one.
    let _ = sender.try_send(Ok(text.into()));
    let mut answer = Response::new(Outgoing(receiver));
    *answer.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

fn status(code: u16, retry_after: bool) -> Response<Outgoing> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the proxy answers {code}"), "code": code,
    });
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::IM_A_TEAPOT);
    let mut answer = whole(code, body.to_string());
    if retry_after {
        let secs = RETRY_AFTER.as_secs().into();
        answer.headers_mut().insert(http::header::RETRY_AFTER, secs);
    }
    answer
}

fn huge() -> Response<Outgoing> {
    let (sender, receiver) = channel(QUEUE);
    tokio::spawn(async move {
        let head =
            r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
        let head = std::iter::once(Bytes::from_static(head.as_bytes()));
        let pieces = (0..HUGE_BYTES / PIECE.len()).map(|_| Bytes::from_static(&PIECE));
        for piece in head.chain(pieces) {
            if sender.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    });
    Response::new(Outgoing(receiver))
}
