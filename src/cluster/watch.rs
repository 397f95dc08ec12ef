//! The one watch of our own Node: whether it is there, whether it was made anew, what stands on it.

use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::{
    api::{Api, ApiError, Node, NodeView, innermost, nonsense},
    backoff::Backoff,
};

/// A line of the watch is one Node.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// Wait between two watches that both ended well, so that a server that ends them at once is not hammered.
const BETWEEN: Duration = Duration::from_secs(1);

/// What the watch saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent {
    /// Our Node, as it is now.
    Seen(NodeView),
    /// There is no Node of our name.
    Missing,
    /// The watch failed; it is tried again by itself.
    Failed(ApiError),
}

/// Watches until nobody listens any more.
pub async fn watch(api: Api, mut backoff: Backoff, events: mpsc::Sender<NodeEvent>) {
    loop {
        let error = match session(&api, &mut backoff, &events).await {
            Ok(()) => return,
            Err(e) => e,
        };
        let wait = backoff.after(&error);
        if events.send(NodeEvent::Failed(error)).await.is_err() {
            return;
        }
        tokio::time::sleep(wait).await;
    }
}

/// Lists once, then watches on and on from there; `Ok` when nobody listens any more.
async fn session(
    api: &Api,
    backoff: &mut Backoff,
    events: &mpsc::Sender<NodeEvent>,
) -> Result<(), ApiError> {
    let (node, mut version) = api.list().await?;
    backoff.reset();
    if events
        .send(node.map_or(NodeEvent::Missing, NodeEvent::Seen))
        .await
        .is_err()
    {
        return Ok(());
    }
    loop {
        let mut body = api.watch(&version).await?.into_body();
        let mut lines = Lines::default();
        while let Some(line) = lines.next(&mut body).await? {
            let event: WatchLine<'_> = serde_json::from_slice(&line).map_err(nonsense)?;
            if let Some(event) = event.read(&mut version)?
                && events.send(event).await.is_err()
            {
                return Ok(());
            }
        }
        tokio::time::sleep(BETWEEN).await;
    }
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
            return Err(match status.code {
                410 => ApiError::Expired(status.message),
                code => ApiError::Server {
                    code,
                    message: status.message,
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

/// Cuts a body into lines.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    async fn next(&mut self, body: &mut Body) -> Result<Option<Vec<u8>>, ApiError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                return Ok(Some(line));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(nonsense("a line of the watch is longer than 4 MiB"));
            }
            match body.frame().await {
                None => return Ok(None),
                Some(Err(e)) => return Err(ApiError::Network(innermost(&e))),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
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
}
