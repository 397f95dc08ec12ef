//! The one write that matters: our conditions, applied to our Node.
//!
//! It is sent when the host may have no memory left. So its path and its headers are made once, its text is written into a
//! buffer that is kept (and, with the agent's pages locked, stays in memory), and nothing is gathered on the way there.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderValue, Request, header::CONTENT_TYPE};
use hyper::body::Bytes;
use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    Api, ApiError, FIELD_MANAGER, Node, NodeView, REQUEST_TIMEOUT, cleaning::STANDING_DOWN,
    nonsense,
};
use crate::{cluster::publisher::Apply, desired::Condition};

/// The conditions of every dialect, their messages as long as they may be: no apply is longer.
const BODY_BYTES: usize = 32 * 1024;

/// Where each apply's text is written: the same memory as long as the one before has been sent.
#[derive(Clone)]
pub(super) struct Buffer(Arc<Mutex<Bytes>>);

impl Buffer {
    pub(super) fn new() -> Self {
        // Written to once, so that there are pages behind it.
        Self(Arc::new(Mutex::new(Bytes::from(vec![b' '; BODY_BYTES]))))
    }

    /// The text of `body`.
    fn write(&self, body: &impl Serialize) -> Result<Bytes, ApiError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else's any more, it is taken as it is; else this is another one, and the kept one from then on.
        let mut text = Vec::from(std::mem::take(&mut *kept));
        text.clear();
        text.reserve(BODY_BYTES);
        serde_json::to_writer(&mut text, body).map_err(nonsense)?;
        let text = Bytes::from(text);
        kept.clone_from(&text);
        Ok(text)
    }
}

impl Api {
    /// Applies the complete set of our conditions to the Node of that uid.
    ///
    /// # Errors
    /// As [`ApiError`] says; [`ApiError::Conflict`] when the Node under our name has another uid.
    pub async fn apply(&self, apply: &Apply) -> Result<NodeView, ApiError> {
        self.patch(apply, "").await
    }

    /// Has the API server go through the same, admission policies included, and throw the result away.
    ///
    /// # Errors
    /// As [`Api::apply`].
    pub async fn rehearse(&self, apply: &Apply) -> Result<NodeView, ApiError> {
        self.patch(apply, "&dryRun=All").await
    }

    async fn patch(&self, apply: &Apply, how: &str) -> Result<NodeView, ApiError> {
        let text = self.buffer.write(&Body::new(&self.node, apply))?;
        let request = Request::patch(format!(
            "/api/v1/nodes/{}/status?fieldManager={FIELD_MANAGER}&force=true{how}",
            self.node
        ))
        .header(CONTENT_TYPE, APPLY)
        .body(text)
        .map_err(nonsense)?;
        let bytes = self.within(REQUEST_TIMEOUT, request).await?;
        let node: Node = serde_json::from_slice(&bytes).map_err(nonsense)?;
        Ok(node.into())
    }
}

/// JSON is YAML.
const APPLY: HeaderValue = HeaderValue::from_static("application/apply-patch+yaml");

/// What is sent, borrowed from where it is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Meta<'a>,
    status: Status<'a>,
}

/// The uid makes it a precondition: a Node that was made anew is never written with the old one's state. So does the version.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations<'a>>,
}

struct Annotations<'a>(&'a str);

impl Serialize for Annotations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(STANDING_DOWN, self.0)?;
        map.end()
    }
}

#[derive(Serialize)]
struct Status<'a> {
    conditions: Conditions<'a>,
}

struct Conditions<'a>(&'a [Condition], Timestamp);

impl Serialize for Conditions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|condition| One {
            r#type: condition.r#type.as_str(),
            status: condition.status.as_str(),
            reason: &condition.reason,
            message: &condition.message,
            last_heartbeat_time: self.1,
            last_transition_time: seconds(condition.last_transition_time),
        }))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct One<'a> {
    r#type: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
    last_heartbeat_time: Timestamp,
    last_transition_time: Timestamp,
}

impl<'a> Body<'a> {
    fn new(node: &'a str, apply: &'a Apply) -> Self {
        Self {
            api_version: "v1",
            kind: "Node",
            metadata: Meta {
                name: node,
                uid: &apply.uid,
                resource_version: apply.only_version.as_deref(),
                annotations: apply.standing_down.as_deref().map(Annotations),
            },
            status: Status {
                conditions: Conditions(&apply.conditions, seconds(apply.heartbeat)),
            },
        }
    }
}

/// Kubernetes' times have whole seconds; cut, so that none lies in the future.
pub(super) fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        desired::{PublishedType, TYPES},
        health,
    };

    fn apply() -> Apply {
        let condition = Condition {
            r#type: PublishedType::KubeletHealthy,
            status: health::Status::False,
            reason: "KubeletCrashed".to_owned(),
            message: "m".to_owned(),
            last_transition_time: "2026-11-21T09:00:00.9Z".parse().unwrap(),
        };
        Apply {
            attempt: 1,
            uid: "u-1".to_owned(),
            conditions: vec![condition],
            heartbeat: "2026-11-21T09:05:00.25Z".parse().unwrap(),
            ..Apply::default()
        }
    }

    #[test]
    fn the_apply_body_is_the_whole_set_with_the_uid() {
        let mut apply = apply();
        let text = |apply: &Apply| serde_json::to_string(&Body::new("n1", apply)).unwrap();
        insta::assert_snapshot!(text(&apply), @r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","uid":"u-1"},"status":{"conditions":[{"type":"KubeletHealthy","status":"False","reason":"KubeletCrashed","message":"m","lastHeartbeatTime":"2026-11-21T09:05:00Z","lastTransitionTime":"2026-11-21T09:00:00Z"}]}}"#);
        apply.standing_down = Some("paused".to_owned());
        let text = text(&apply);
        assert!(
            text.contains(r#""annotations":{"nodevigil.io/standing-down":"paused"}"#),
            "{text}"
        );
    }

    #[test]
    fn each_body_is_written_where_the_last_one_was() {
        let (buffer, apply) = (Buffer::new(), apply());
        let body = Body::new("n1", &apply);
        let first = buffer.write(&body).unwrap();
        let place = first.as_ptr();
        // Its request is still under way: what it holds is left alone.
        let beside = buffer.write(&body).unwrap();
        assert!(beside.as_ptr() != place && beside == first);
        drop(first);
        let place = beside.as_ptr();
        drop(beside);
        for _ in 0..3 {
            assert_eq!(buffer.write(&body).unwrap().as_ptr(), place);
        }
    }

    /// What it would save to have the text ready before it is wanted (docs/decisions.md): unoptimised, so that the product's
    /// is less; the least of many, for the machine does other things.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "what is measured is the time itself"
    )]
    fn to_write_the_text_takes_no_time_worth_saving() {
        let condition = |published| Condition {
            r#type: published,
            message: "x".repeat(150),
            ..apply().conditions.remove(0)
        };
        let apply = Apply {
            conditions: TYPES.iter().map(|t| condition(t.published)).collect(),
            ..apply()
        };
        let (buffer, body) = (Buffer::new(), Body::new("n1", &apply));
        let took = (0..500).map(|_| {
            let began = std::time::Instant::now();
            let text = buffer.write(&body).unwrap();
            let took = began.elapsed();
            assert!(text.len() > 3000);
            took
        });
        let least = took.min().unwrap();
        println!("{} conditions in {least:?}", apply.conditions.len());
        assert!(least < std::time::Duration::from_micros(500), "{least:?}");
    }

    #[test]
    fn the_longest_apply_fits() {
        let long = |kind: PublishedType| Condition {
            r#type: kind,
            message: "\"".repeat(512) + &"x".repeat(512),
            ..apply().conditions.remove(0)
        };
        let apply = Apply {
            conditions: TYPES.iter().map(|spec| long(spec.published)).collect(),
            standing_down: Some("x".repeat(1024)),
            ..apply()
        };
        let node = "n".repeat(253);
        let text = serde_json::to_vec(&Body::new(&node, &apply)).unwrap();
        assert!(text.len() <= BODY_BYTES, "{} bytes", text.len());
    }
}
