//! One watch of our own Node: whether it is there, whether it was made anew, what stands on it.
//!
//! It tells what it sees and how it ended. Whether and when there is a next one, the agent decides.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::timeout};

use super::api::{
    Api, ApiError, MAX_ANSWER_BYTES, Node, NodeView, REQUEST_TIMEOUT, WATCH_SECS, append, bounded,
    innermost, nonsense,
};

/// A watch that its server does not end is ended by us.
const LONGEST: Duration = Duration::from_secs(WATCH_SECS as u64 + 30);

/// What the watch saw.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, and nearly all are the large one"
)]
pub enum NodeEvent {
    /// Our Node, as it is now.
    Seen(NodeView),
    /// There is no Node of our name.
    Missing,
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, and nearly all are the large one"
)]
pub enum WatchEvent {
    /// The API server answers it.
    Opened,
    /// What it saw.
    Node(NodeEvent),
    /// It has ended; nothing comes after this.
    Ended(End),
}

/// How a watch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// In time, as the server does with each. The next goes on from that version.
    Well(String),
    /// It was open and broke off. The next goes on from that version, if that is still known.
    Broke(ApiError, Option<String>),
    /// It was refused, or nobody answered.
    Failed(ApiError),
}

/// Watches from `version` on, or lists first without one; tells until it ends or nobody listens any more.
pub async fn watch(api: Api, version: Option<String>, events: mpsc::Sender<WatchEvent>) {
    if let Some(end) = session(&api, version, &events).await {
        events.send(WatchEvent::Ended(end)).await.ok();
    }
}

/// `None` when nobody listens any more.
async fn session(
    api: &Api,
    version: Option<String>,
    events: &mpsc::Sender<WatchEvent>,
) -> Option<End> {
    let mut version = match version {
        Some(version) => version,
        None => match api.list().await {
            Ok((node, version)) => {
                let node = node.map_or(NodeEvent::Missing, NodeEvent::Seen);
                events.send(WatchEvent::Opened).await.ok()?;
                events.send(WatchEvent::Node(node)).await.ok()?;
                version
            }
            Err(e) => return Some(End::Failed(e)),
        },
    };
    let mut body = match api.watch(&version).await {
        Ok(answer) => answer.into_body(),
        Err(e) => return Some(End::Failed(e)),
    };
    events.send(WatchEvent::Opened).await.ok()?;
    let reading = read(&mut body, &mut version, events);
    Some(match timeout(LONGEST, reading).await {
        Ok(Ok(true)) => return None,
        Ok(Ok(false)) | Err(_) => End::Well(version),
        // A connection that broke leaves history as it is; after anything else it is read anew.
        Ok(Err(e @ ApiError::Network(_))) => End::Broke(e, Some(version)),
        Ok(Err(e)) => End::Broke(e, None),
    })
}

/// Until it ends; `true` when nobody listens any more.
async fn read(
    body: &mut Incoming,
    version: &mut String,
    events: &mpsc::Sender<WatchEvent>,
) -> Result<bool, ApiError> {
    let mut lines = Lines::default();
    while let Some(line) = lines.next(body).await? {
        if let Some(event) = read_line(line, version)?
            && events.send(WatchEvent::Node(event)).await.is_err()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a line of a watch says; `version` becomes the one that it names.
#[doc(hidden)] // public for the fuzz target
pub fn read_line(line: &[u8], version: &mut String) -> Result<Option<NodeEvent>, ApiError> {
    let line: WatchLine<'_> = serde_json::from_slice(line).map_err(nonsense)?;
    line.read(version)
}

#[derive(Deserialize)]
struct WatchLine<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct WatchStatus {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

impl WatchLine<'_> {
    fn read(&self, version: &mut String) -> Result<Option<NodeEvent>, ApiError> {
        if self.r#type == "ERROR" {
            let status: WatchStatus = serde_json::from_str(self.object.get()).map_err(nonsense)?;
            // A line of the watch may be as long as a Node; this goes into the journal and the status file.
            let message = bounded(&status.message);
            return Err(match status.code {
                410 => ApiError::Expired(message),
                code => ApiError::Server {
                    code,
                    message,
                    retry_after: None,
                },
            });
        }
        let node: Node = serde_json::from_str(self.object.get()).map_err(nonsense)?;
        let node = NodeView::from(node);
        version.clone_from(&node.version);
        Ok(match self.r#type {
            "ADDED" | "MODIFIED" => Some(NodeEvent::Seen(node)),
            "DELETED" => Some(NodeEvent::Missing),
            _ => None, // BOOKMARK: its version is all there is to it
        })
    }
}

/// A longer line's memory is given back.
const KEPT_BYTES: usize = 64 * 1024;

/// Cuts a body into lines. Its memory is kept from one to the next: a Node that is seen while the host has none left must not
/// have to wait for some.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    /// How long the line is that was handed out last.
    handed_out: usize,
}

impl Lines {
    /// A line may come when it likes; once it has begun it must end in time.
    async fn next(&mut self, body: &mut Incoming) -> Result<Option<&[u8]>, ApiError> {
        self.buffer.drain(..self.handed_out);
        self.handed_out = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(KEPT_BYTES);
            if !self.more(body).await? {
                return Ok(None);
            }
        }
        let rest = async {
            loop {
                if let Some(end) = self.cut()? {
                    return Ok(Some(end));
                }
                if !self.more(body).await? {
                    return Ok(None);
                }
            }
        };
        let end = timeout(REQUEST_TIMEOUT, rest)
            .await
            .unwrap_or(Err(ApiError::Timeout))?;
        self.handed_out = end.unwrap_or(0);
        Ok(end.map(|end| &self.buffer[..end]))
    }

    /// How long the first line is, if it is there whole.
    fn cut(&self) -> Result<Option<usize>, ApiError> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n');
        // A line is one Node.
        if end.is_none() && self.buffer.len() > MAX_ANSWER_BYTES {
            let what = format!("a line of the watch is longer than {MAX_ANSWER_BYTES} bytes");
            return Err(nonsense(what));
        }
        Ok(end.map(|end| end + 1))
    }

    async fn more(&mut self, body: &mut Incoming) -> Result<bool, ApiError> {
        match body.frame().await {
            None => Ok(false),
            Some(Err(e)) => Err(ApiError::Network(innermost(&e))),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    append(&mut self.buffer, data);
                }
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Result<Option<NodeEvent>, ApiError>, String) {
        let mut version = "1".to_owned();
        let line: WatchLine<'_> = serde_json::from_str(line).unwrap();
        (line.read(&mut version), version)
    }

    #[test]
    fn each_kind_of_line_is_understood() {
        let object = r#"{"metadata":{"uid":"u","resourceVersion":"9"}}"#;
        let (event, version) = read(&format!(r#"{{"type":"MODIFIED","object":{object}}}"#));
        assert!(matches!(event, Ok(Some(NodeEvent::Seen(node))) if node.uid == "u"));
        assert_eq!(version, "9");
        let (event, version) = read(&format!(r#"{{"type":"BOOKMARK","object":{object}}}"#));
        assert_eq!((event, version.as_str()), (Ok(None), "9"));
        let (event, _) = read(&format!(r#"{{"type":"DELETED","object":{object}}}"#));
        assert_eq!(event, Ok(Some(NodeEvent::Missing)));
        let (event, _) = read(r#"{"type":"ERROR","object":{"code":410,"message":"too old"}}"#);
        assert_eq!(event, Err(ApiError::Expired("too old".to_owned())));
    }

    #[test]
    fn an_errors_message_is_one_bounded_line() {
        let message = format!("a\\u001b[2J\\n{}", "x".repeat(100_000));
        for code in [410, 500, 0] {
            let line =
                format!(r#"{{"type":"ERROR","object":{{"code":{code},"message":"{message}"}}}}"#);
            let said = read(&line).0.unwrap_err().to_string();
            assert!(
                said.contains("a\u{241b}[2J x") && said.len() < 1000,
                "{code}: {} bytes",
                said.len()
            );
        }
    }
}
