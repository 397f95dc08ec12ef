//! Questions about ourselves: who the API server takes us for, what we may, and whether it would take our apply. Nothing is
//! changed by any of them.

use http::{Request, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, ApiError, FIELD_MANAGER, REQUEST_TIMEOUT, nonsense};

/// Who the API server takes us for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Myself {
    /// The user.
    pub username: String,
    /// Its groups.
    pub groups: Vec<String>,
    extra: Extra,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct Extra {
    #[serde(rename = "authentication.kubernetes.io/node-name")]
    node_name: Vec<String>,
}

impl Myself {
    /// The node that this identity is for, if it says so.
    pub fn node(&self) -> Option<&str> {
        let by_name = ["nodevigil:", "system:node:"]
            .iter()
            .find_map(|prefix| self.username.strip_prefix(prefix));
        by_name.or(self.extra.node_name.first().map(String::as_str))
    }
}

/// A right to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Right {
    /// `get`, `patch`, …
    pub verb: &'static str,
    /// The API group; empty: the core's.
    pub group: &'static str,
    /// In the plural.
    pub resource: &'static str,
    /// Or empty.
    pub subresource: &'static str,
    /// Empty: of the whole cluster.
    pub namespace: &'static str,
    /// Whether it is asked for the object that bears our Node's name.
    pub own: bool,
}

impl Api {
    /// Who we are.
    ///
    /// # Errors
    /// As [`ApiError`] says.
    pub async fn myself(&self) -> Result<Myself, ApiError> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let mut answer = self.change("POST", path, "application/json", &body).await?;
        let user = answer["status"]["userInfo"].take();
        serde_json::from_value(user).map_err(nonsense)
    }

    /// Whether we may; else why not, if the API server says why.
    ///
    /// # Errors
    /// As [`ApiError`] says.
    pub async fn may(&self, right: Right) -> Result<Result<(), String>, ApiError> {
        let name = if right.own { self.node.as_str() } else { "" };
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": right.verb, "group": right.group, "resource": right.resource,
                "subresource": right.subresource, "namespace": right.namespace, "name": name,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = self.change("POST", path, "application/json", &body).await?;
        let status = &answer["status"];
        if status["allowed"] == true {
            return Ok(Ok(()));
        }
        Ok(Err(status["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()))
    }

    /// Has the API server go through an apply of ours to the Node of that uid, and throw the result away.
    ///
    /// # Errors
    /// As [`ApiError`] says.
    pub async fn rehearse_apply(&self, uid: &str, now: jiff::Timestamp) -> Result<(), ApiError> {
        let now = super::apply::seconds(now).to_string();
        let body = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": self.node, "uid": uid,
                "annotations": {"nodevigil.io/standing-down": "a rehearsal by nodevigil doctor"},
            },
            "status": {"conditions": [{
                "type": "KubeletHealthy", "status": "Unknown", "reason": "Rehearsal",
                "message": "a rehearsal by nodevigil doctor",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }]},
        });
        let path = format!(
            "/api/v1/nodes/{}/status?fieldManager={FIELD_MANAGER}&force=true&dryRun=All",
            self.node
        );
        let kind = "application/apply-patch+yaml";
        self.change("PATCH", &path, kind, &body).await.map(drop)
    }

    /// The same with a taint of ours, added to the list that was read just before.
    ///
    /// # Errors
    /// As [`ApiError`] says; [`ApiError::Refused`] with 422 if somebody has changed the list since.
    pub async fn rehearse_taint(&self, before: &Value, taint: Value) -> Result<(), ApiError> {
        let mut after = before.as_array().cloned().unwrap_or_default();
        after.retain(|there| there["key"] != taint["key"]);
        after.push(taint);
        let steps = json!([
            {"op": "test", "path": "/spec/taints", "value": before},
            {"op": "add", "path": "/spec/taints", "value": after},
        ]);
        let path = format!(
            "/api/v1/nodes/{}?fieldManager={FIELD_MANAGER}&dryRun=All",
            self.node
        );
        let kind = "application/json-patch+json";
        self.change("PATCH", &path, kind, &steps).await.map(drop)
    }

    async fn change(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, kind)
            .body(body.to_string().into_bytes());
        let bytes = self
            .within(REQUEST_TIMEOUT, request.map_err(nonsense)?)
            .await?;
        serde_json::from_slice(&bytes).map_err(nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_says_whose_it_is() {
        let of = |json: Value| {
            let myself: Myself = serde_json::from_value(json).unwrap();
            myself.node().map(str::to_owned)
        };
        assert_eq!(
            of(json!({"username": "nodevigil:n1"})).as_deref(),
            Some("n1")
        );
        assert_eq!(
            of(json!({"username": "system:node:n2", "groups": ["system:nodes"]})).as_deref(),
            Some("n2")
        );
        let token = json!({
            "username": "system:serviceaccount:kube-system:nodevigil",
            "extra": {"authentication.kubernetes.io/node-name": ["n3"], "more": ["x"]},
        });
        assert_eq!(of(token).as_deref(), Some("n3"));
        assert_eq!(of(json!({"username": "admin"})), None);
    }
}
