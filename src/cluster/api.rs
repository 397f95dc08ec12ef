//! The requests that we send: list our Node, watch it, apply our conditions, and what comes beside them.
//!
//! Every failure is told apart by what it asks of us ([`ApiError`]); every answer is bounded in bytes and in time.

mod apply;
mod cleaning;
mod events;
mod lease;
mod maintenance;
mod node;
mod owners;
pub mod review;
mod taints;
mod will;

use std::time::Duration;

use http::{
    Request, Response, StatusCode,
    header::{DATE, HeaderName, RETRY_AFTER},
};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Bytes, Incoming};
use jiff::fmt::rfc2822;
use kube::{
    api::{ListParams, WatchParams},
    core::Request as KubeRequest,
};
use serde::Deserialize;
use serde_json::Value;

pub use cleaning::{Cleaned, STANDING_DOWN, Stuck};
#[doc(hidden)] // public for the fuzz target
pub use lease::parse as read_lease;
pub use maintenance::{
    Age, Effect, MAINTENANCE_SIGNS, MaintenanceSign, Mark, StandingSign, maintenance_table,
};
pub(super) use node::Node;
pub use node::{NodeFacts, NodeView, Readiness, Ready};
pub use owners::Ownership;
pub use taints::TaintTry;
pub use will::{AskedPause, NodeWill, PAUSE_ANNOTATION, PauseAnnotation};

use super::{
    connection::Connection,
    time::{DatedAnswer, DatedAnswers},
};
use crate::{clock::Clock, kubelet::shown::harmless};

pub use super::events::EventTask;

/// The field manager under which our conditions are ours.
pub const FIELD_MANAGER: &str = "nodevigil";
/// A request's deadline: a healthy server answers in milliseconds, and a late answer must not hold up the next fact.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A Node with fifty images and many labels is some 20 KiB, one with a thousand images and all the annotations that are
/// allowed 600.
pub(super) const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// By so much the memory for an answer grows, at least: a Node without images is as long, and the heap keeps such pieces, so that
/// none is asked for while the host has no memory.
const STEP_BYTES: usize = 8 * 1024;
/// So much of a refusal is read: its message is bounded, its list of causes is not.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
/// So much of its message is kept.
const MAX_MESSAGE_BYTES: usize = 512;
/// How long one watch is asked to last, in seconds; the server ends it, and the next one goes on where it stopped.
pub(super) const WATCH_SECS: u32 = 290;

/// A request that failed, told apart by what it asks of us.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// Nobody there, or the connection broke.
    #[error("the API server cannot be reached: {0}")]
    Network(String),
    /// No answer in time; the request may still be carried out.
    #[error("the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout,
    /// 401.
    #[error("401 Unauthorized: the API server does not accept our credential")]
    Unauthorized,
    /// 403.
    #[error("403 Forbidden: {0}")]
    Forbidden(String),
    /// 404: our Node is not there.
    #[error("404: the Node does not exist")]
    NotFound,
    /// 409, or 422 for its uid: the Node is another one than we thought.
    #[error("409 Conflict: {0}")]
    Conflict(String),
    /// 410: the watch's place in history is gone.
    #[error("410 Gone: {0}")]
    Expired(String),
    /// 429, and how long it asked us to wait.
    #[error("429 Too Many Requests")]
    TooMany(Option<Duration>),
    /// 5xx, and how long it asked us to wait.
    #[error("the API server is in trouble: {code} {message}")]
    Server {
        /// The HTTP status.
        code: u16,
        /// Its message.
        message: String,
        /// Its `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// Any other refusal: what we send is wrong for this server.
    #[error("the API server refused the request: {code} {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// Its message.
        message: String,
    },
    /// An answer that is not what the API promises.
    #[error("the API server's answer makes no sense: {0}")]
    Nonsense(String),
}

impl ApiError {
    /// Whether the request was certainly not carried out: it was answered, and refused.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Network(_) | Self::Timeout | Self::Server { .. } | Self::Nonsense(_) => false,
            Self::Unauthorized
            | Self::Forbidden(_)
            | Self::NotFound
            | Self::Conflict(_)
            | Self::Expired(_)
            | Self::TooMany(_)
            | Self::Refused { .. } => true,
        }
    }

    /// The HTTP status; a small number where there is none.
    pub fn code(&self) -> u16 {
        match self {
            Self::Network(_) => 0,
            Self::Timeout => 1,
            Self::Nonsense(_) => 2,
            Self::Unauthorized => 401,
            Self::Forbidden(_) => 403,
            Self::NotFound => 404,
            Self::Conflict(_) => 409,
            Self::Expired(_) => 410,
            Self::TooMany(_) => 429,
            Self::Server { code, .. } | Self::Refused { code, .. } => *code,
        }
    }
}

/// A connection and the Node that it is about.
#[derive(Clone)]
pub struct Api {
    connection: Connection,
    requests: KubeRequest,
    node: String,
    buffer: apply::Buffer,
    dated: DatedAnswers,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Api {
    /// The API as seen from `node`.
    pub fn new(connection: Connection, node: impl Into<String>) -> Self {
        Self {
            connection,
            requests: KubeRequest::new("/api/v1/nodes"),
            node: node.into(),
            buffer: apply::Buffer::new(),
            dated: DatedAnswers::default(),
        }
    }

    /// The times of the answers to all requests, for whoever learns the cluster's time from them.
    pub fn dated_answers(&self) -> &DatedAnswers {
        &self.dated
    }

    /// Reads our Node, and the version at which to start a watch.
    ///
    /// # Errors
    /// As [`ApiError`] says; a Node that is not there is `Ok` without one.
    pub async fn list(&self) -> Result<(Option<NodeView>, String), ApiError> {
        let request = self
            .requests
            .list(&ListParams::default().fields(&self.field_selector()));
        let bytes = self
            .within(REQUEST_TIMEOUT, request.map_err(nonsense)?)
            .await?;
        read_list(&bytes)
    }

    /// Starts a watch of our Node from `version`: the answer's body is a line of JSON for each change.
    ///
    /// # Errors
    /// As [`ApiError`] says.
    pub async fn watch(&self, version: &str) -> Result<Response<Incoming>, ApiError> {
        let params = WatchParams::default()
            .fields(&self.field_selector())
            .timeout(WATCH_SECS);
        let request = self.requests.watch(&params, version).map_err(nonsense)?;
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.send(request.map(Bytes::from)))
            .await
            .map_err(|_| ApiError::Timeout)??;
        Ok(answer)
    }

    fn field_selector(&self) -> String {
        format!("metadata.name={}", self.node)
    }

    async fn within(
        &self,
        limit: Duration,
        request: Request<impl Into<Bytes>>,
    ) -> Result<Vec<u8>, ApiError> {
        let request = request.map(Into::into);
        tokio::time::timeout(limit, async {
            let answer = self.send(request).await?;
            read(answer, MAX_ANSWER_BYTES).await
        })
        .await
        .map_err(|_| ApiError::Timeout)?
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Incoming>, ApiError> {
        let sent = Clock.now().uptime;
        let answer = self
            .connection
            .send(request)
            .await
            .map_err(|e| ApiError::Network(innermost(&e)))?;
        let received = Clock.now().uptime;
        if let Some(dated) = DatedAnswer::new(sent, received, answer.headers()) {
            self.dated.push(dated);
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (code, retry_after) = (answer.status(), retry_after(&answer));
        let text = read(answer, MAX_REFUSAL_BYTES).await.unwrap_or_default();
        Err(classify(code, retry_after, &text))
    }
}

/// Our Node in a list that holds no other, and the list's version.
#[doc(hidden)] // public for the fuzz target
pub fn read_list(bytes: &[u8]) -> Result<(Option<NodeView>, String), ApiError> {
    let list: NodeList = serde_json::from_slice(bytes).map_err(nonsense)?;
    let node = list.items.into_iter().next().map(NodeView::from);
    Ok((node, list.metadata.resource_version))
}

/// A whole body, if it has no more bytes than that; the rest of a longer one is not waited for.
async fn read(answer: Response<Incoming>, max_bytes: usize) -> Result<Vec<u8>, ApiError> {
    let mut body = answer.into_body();
    let mut bytes = Vec::new();
    let announced = body.size_hint().lower();
    let too_long = || nonsense(format!("longer than {max_bytes} bytes"));
    if usize::try_from(announced).map_or(true, |announced| announced > max_bytes) {
        return Err(too_long());
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::Network(innermost(&e)))?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > max_bytes {
                return Err(too_long());
            }
            append(&mut bytes, data);
        }
    }
    Ok(bytes)
}

/// Appends to an answer. Its memory is not doubled: what is asked for is locked.
pub(super) fn append(bytes: &mut Vec<u8>, data: &[u8]) {
    if bytes.capacity() - bytes.len() < data.len() {
        let step = STEP_BYTES.max(bytes.len() / 4);
        bytes.reserve_exact(data.len().max(step));
    }
    bytes.extend_from_slice(data);
}

/// In seconds, or as a date; which is read against the server's own clock, in the same answer.
fn retry_after(answer: &Response<Incoming>) -> Option<Duration> {
    let text = |name: HeaderName| answer.headers().get(name)?.to_str().ok();
    let when = text(RETRY_AFTER)?;
    if let Ok(secs) = when.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = |text: &str| rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let wait = date(when)?.duration_since(date(text(DATE)?)?);
    Some(Duration::try_from(wait).unwrap_or_default())
}

#[doc(hidden)] // public for the fuzz target
pub fn classify(code: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> ApiError {
    let message = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|status| Some(status.get("message")?.as_str()?.to_owned()))
        .unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let message = bounded(&message);
    match code.as_u16() {
        401 => ApiError::Unauthorized,
        403 => ApiError::Forbidden(message),
        404 => ApiError::NotFound,
        409 => ApiError::Conflict(message),
        410 => ApiError::Expired(message),
        // So Kubernetes puts it when the Node under our name is another one than we wrote for.
        422 if message.contains("metadata.uid: ") => ApiError::Conflict(message),
        429 => ApiError::TooMany(retry_after),
        code @ 500.. => ApiError::Server {
            code,
            message,
            retry_after,
        },
        code => ApiError::Refused { code, message },
    }
}

/// The beginning of a text that we did not write, on one line; it steers no terminal.
pub(super) fn bounded(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_MESSAGE_BYTES);
    let words: Vec<&str> = text[..end].split_whitespace().collect();
    harmless(&words.join(" "))
}

pub(super) fn nonsense(error: impl std::fmt::Display) -> ApiError {
    ApiError::Nonsense(bounded(&error.to_string()))
}

/// The last cause of a chain: "connection refused" rather than "client error (Connect)".
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    bounded(&last.to_string())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeList {
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Node>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let status = br#"{"kind":"Status","message":"no"}"#;
        let of = |code: u16| classify(StatusCode::from_u16(code).unwrap(), None, status);
        assert_eq!(of(401), ApiError::Unauthorized);
        assert_eq!(of(403), ApiError::Forbidden("no".to_owned()));
        assert_eq!(of(404), ApiError::NotFound);
        assert_eq!(of(429), ApiError::TooMany(None));
        assert!(matches!(of(503), ApiError::Server { code: 503, .. }));
        assert!(matches!(of(422), ApiError::Refused { code: 422, .. }));
        let anew = br#"{"message":"Node \"n1\" is invalid: metadata.uid: Invalid value: \"u1\": field is immutable"}"#;
        let other = classify(StatusCode::UNPROCESSABLE_ENTITY, None, anew);
        assert!(matches!(other, ApiError::Conflict(_)), "{other:?}");
    }
}
