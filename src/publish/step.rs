//! What the decisions about conditions and taints ask of the task that talks to the API server.

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use crate::condition::Uptime;

/// A request to the API server.
#[derive(Debug)]
pub enum Request {
    /// Read the Node: what is known of it may be out of date.
    Read,
    /// Apply this to the Node's status, as our field manager and with force.
    Apply(Box<Node>),
    /// Change the Node's taints by this merge patch.
    Taint(Value),
}

/// What to do next.
#[derive(Debug)]
pub enum Step {
    Send(Request),
    /// Nothing until then, unless the Node or the desired conditions change.
    WaitUntil(Uptime),
}
