//! One try at our Node's taints: read the list, plan, and write it only if it is still the same.

use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, ApiError, FIELD_MANAGER, REQUEST_TIMEOUT, nonsense};
use crate::{
    cluster::taints::Tainted,
    desired::taints::{Rules, Wished, plan},
};

/// One try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaintTry {
    /// Its number: the answer to one that was given up counts for nothing.
    pub attempt: u64,
    /// The Node that it is meant for.
    pub uid: String,
    /// What is ours.
    pub rules: Rules,
    /// What is to be.
    pub wished: Vec<Wished>,
}

#[derive(Deserialize)]
struct NodeTaints {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Meta {
    uid: String,
}

#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default)]
    taints: Value,
}

impl Api {
    /// Reads the list as it is now, not as some cache has it, and puts our own taints right in it.
    ///
    /// # Errors
    /// As [`ApiError`] says; [`ApiError::Conflict`] when the Node under our name has another uid.
    pub async fn taint(&self, task: &TaintTry, now: Timestamp) -> Result<Tainted, ApiError> {
        let path = format!("/api/v1/nodes/{}", self.node);
        let request = Request::get(&path).body(Vec::new());
        let bytes = self
            .within(REQUEST_TIMEOUT, request.map_err(nonsense)?)
            .await?;
        let node: NodeTaints = serde_json::from_slice(&bytes).map_err(nonsense)?;
        if node.metadata.uid != task.uid {
            return Err(ApiError::Conflict("another Node has our name".to_owned()));
        }
        let Some(new) = plan(&task.rules, &task.wished, &node.spec.taints, now) else {
            return Ok(Tainted::Done(node.spec.taints));
        };
        let patch = patch(&task.uid, &node.spec.taints, &new);
        match self.json_patch(&path, &patch).await {
            Ok(()) => Ok(Tainted::Done(new)),
            // A failed `test` is 422; so may be the refusal of an admission policy (ours answers 403). Both end with the tries.
            Err(ApiError::Refused { code: 422, .. } | ApiError::Conflict(_)) => Ok(Tainted::Raced),
            Err(e) => Err(e),
        }
    }

    /// Sends a JSON Patch (RFC 6902); what the answer holds is of no interest.
    pub(super) async fn json_patch(&self, path: &str, patch: &Value) -> Result<(), ApiError> {
        let request = Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}"))
            .header(CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(nonsense)?;
        self.within(REQUEST_TIMEOUT, request).await.map(drop)
    }
}

/// `add` replaces a member that is there, and `test` with null holds where there is none.
fn patch(uid: &str, old: &Value, new: &Value) -> Value {
    json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/taints", "value": old},
        {"op": "add", "path": "/spec/taints", "value": new},
    ])
}
