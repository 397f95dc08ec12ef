//! Writes Events about our Node (`events.k8s.io/v1`).

use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Api, ApiError, FIELD_MANAGER, REQUEST_TIMEOUT, nonsense};
use crate::cluster::events::EventTask;

/// Events about what has no namespace live here.
const PATH: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// Who says it.
const CONTROLLER: &str = "nodevigil.io/agent";
/// The API's bound of `reportingInstance`.
const MAX_INSTANCE_BYTES: usize = 128;

impl Api {
    /// Makes the Event, or counts its series on.
    ///
    /// # Errors
    /// As [`ApiError`] says; [`ApiError::Conflict`] when an Event of that name is there already.
    pub async fn tell(&self, task: &EventTask) -> Result<(), ApiError> {
        if task.exists {
            let patch = json!([{"op": "add", "path": "/series", "value": series(task)}]);
            return self
                .json_patch(&format!("{PATH}/{}", task.name), &patch)
                .await;
        }
        self.make(task, "").await
    }

    /// Has the API server go through the making of an Event, and throw it away.
    ///
    /// # Errors
    /// As [`ApiError`] says.
    pub async fn rehearse_event(&self, task: &EventTask) -> Result<(), ApiError> {
        self.make(task, "&dryRun=All").await
    }

    async fn make(&self, task: &EventTask, how: &str) -> Result<(), ApiError> {
        let request = Request::post(format!("{PATH}?fieldManager={FIELD_MANAGER}{how}"))
            .header(CONTENT_TYPE, "application/json")
            .body(body(&self.node, task).to_string().into_bytes())
            .map_err(nonsense)?;
        self.within(REQUEST_TIMEOUT, request).await.map(drop)
    }
}

fn body(node: &str, task: &EventTask) -> Value {
    let notice = &task.notice;
    let instance = node.floor_char_boundary(MAX_INSTANCE_BYTES);
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": task.name, "namespace": "default"},
        "eventTime": micros(task.first),
        "type": if notice.warning { "Warning" } else { "Normal" },
        "reason": notice.reason,
        "action": notice.action,
        "note": notice.note,
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": task.uid},
        "reportingController": CONTROLLER,
        "reportingInstance": &node[..instance],
    });
    // Several that waited together are a series from birth.
    if task.count > 1 {
        event["series"] = series(task);
    }
    event
}

fn series(task: &EventTask) -> Value {
    json!({"count": task.count, "lastObservedTime": micros(task.last)})
}

/// A `MicroTime`: six digits behind the point, always.
fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::events::Notice;

    #[test]
    fn the_event_is_about_the_node_and_within_the_apis_bounds() {
        let task = EventTask {
            attempt: 1,
            name: "n1.5.1".to_owned(),
            uid: "u-1".to_owned(),
            notice: Notice {
                warning: true,
                reason: "KubeletCrashed".to_owned(),
                action: "SetCondition",
                note: "killed".to_owned(),
                about: String::new(),
                pace: crate::health::news::Pace::Urgent,
            },
            first: "2026-11-21T09:00:00.5Z".parse().unwrap(),
            count: 2,
            last: "2026-11-21T09:05:00Z".parse().unwrap(),
            exists: false,
        };
        insta::assert_snapshot!(body("n1", &task), @r#"{"action":"SetCondition","apiVersion":"events.k8s.io/v1","eventTime":"2026-11-21T09:00:00.500000Z","kind":"Event","metadata":{"name":"n1.5.1","namespace":"default"},"note":"killed","reason":"KubeletCrashed","regarding":{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u-1"},"reportingController":"nodevigil.io/agent","reportingInstance":"n1","series":{"count":2,"lastObservedTime":"2026-11-21T09:05:00.000000Z"},"type":"Warning"}"#);
        let long = "n".repeat(253);
        let instance = body(&long, &task)["reportingInstance"]
            .as_str()
            .unwrap()
            .len();
        assert_eq!(instance, MAX_INSTANCE_BYTES);
    }
}
