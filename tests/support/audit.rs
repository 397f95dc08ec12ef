//! Reads the API server's audit log: the witness of what the agent really sent.

use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A request that the API server answered.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The API's verb: `get`, `list`, `watch`, `patch`, …
    pub(crate) verb: String,
    /// The path and query.
    pub(crate) uri: String,
    /// Who asked.
    pub(crate) user: String,
    /// With what program.
    pub(crate) user_agent: String,
    /// The answer's status code.
    pub(crate) code: u16,
    /// The object that was sent; null where the policy does not record it.
    pub(crate) body: Value,
    /// The resource version of the object in the answer; empty where the policy does not record it.
    pub(crate) version: String,
    /// When it arrived, by the API server's clock.
    pub(crate) at: Timestamp,
}

/// The group of those who write so much that nobody wants to read it.
pub(crate) const CROWD: &str = "crowd";

/// Records bodies where the agent writes, and who asked for everything else; nothing of the [`CROWD`]. A watch has two
/// lines: one at its start, one at its end.
pub(crate) fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "userGroups": [CROWD]},
            {"level": "RequestResponse", "resources": [
                {"group": "", "resources": ["nodes", "nodes/status", "events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
            ]},
            {"level": "Metadata"},
        ],
    })
}

/// The requests in the log so far. A watch counts once: its end is left out.
pub(crate) fn read(log: &Path) -> Result<Vec<Request>> {
    let text =
        std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    let mut requests = Vec::new();
    for line in text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        let event: Value = serde_json::from_str(line).context("reading a line of the audit log")?;
        let request = request(&event)?;
        let watch_ended =
            request.verb == "watch" && request.code == 200 && event["stage"] == "ResponseComplete";
        if !watch_ended {
            requests.push(request);
        }
    }
    Ok(requests)
}

fn request(event: &Value) -> Result<Request> {
    let text = |pointer: &str| {
        event
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let code = event
        .pointer("/responseStatus/code")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    Ok(Request {
        verb: text("/verb"),
        uri: text("/requestURI"),
        user: text("/user/username"),
        user_agent: text("/userAgent"),
        code: u16::try_from(code)?,
        body: event["requestObject"].clone(),
        version: text("/responseObject/metadata/resourceVersion"),
        at: text("/requestReceivedTimestamp")
            .parse()
            .context("an audit event has a time")?,
    })
}
