//! Taking away from the Node all that is ours: for `nodevigil cleanup`. Nothing else is touched.

use std::time::Duration;

use http::{Request, header::CONTENT_TYPE, request::Builder};
use serde_json::{Value, json};

use super::{Api, ApiError, FIELD_MANAGER, REQUEST_TIMEOUT, nonsense};
use crate::desired::taints::Rules;

/// The annotation that is in our apply while we stand down.
pub const STANDING_DOWN: &str = "nodevigil.io/standing-down";
/// How often the taints are read anew because somebody else changed them meanwhile.
const TRIES: u32 = 5;
/// Before that: to let the other one finish.
const PAUSE: Duration = Duration::from_millis(50);

/// What was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// Condition types.
    pub conditions: Vec<String>,
    /// Whether the annotation was there.
    pub annotation: bool,
    /// Keys of taints.
    pub taints: Vec<String>,
}

/// How far it got before it could not go on.
#[derive(Debug)]
pub struct Stuck {
    /// What was done.
    pub done: Cleaned,
    /// The taints that are still there, if it got so far as to know; as `KEY:EFFECT`.
    pub taints_left: Vec<String>,
    /// Whether conditions and annotation may still be there.
    pub conditions_left: bool,
    /// Why.
    pub error: ApiError,
}

impl Api {
    /// Takes our conditions, our annotation and the taints that are ours by `rules` off the Node; `None` if there is no
    /// Node.
    ///
    /// # Errors
    /// The first failure, and what is left.
    pub async fn clean(&self, rules: &Rules) -> Result<Option<Cleaned>, Stuck> {
        let mut done = Cleaned::default();
        let node = match self.read().await {
            Ok(node) => node,
            Err(ApiError::NotFound) => return Ok(None),
            Err(error) => return Err(stuck(done, Vec::new(), true, error)),
        };
        if is_ours_in_part(&node) {
            match self.apply_nothing(&node).await {
                Ok(after) => {
                    let left = types(&after);
                    done.conditions = types(&node);
                    done.conditions.retain(|kind| !left.contains(kind));
                    let annotated = |node: &Value| !annotation(node).is_null();
                    done.annotation = annotated(&node) && !annotated(&after);
                }
                Err(error) => return Err(stuck(done, left(&node, rules), true, error)),
            }
        }
        self.clean_taints(node, rules, done).await.map(Some)
    }

    async fn clean_taints(
        &self,
        mut node: Value,
        rules: &Rules,
        mut done: Cleaned,
    ) -> Result<Cleaned, Stuck> {
        for attempt in 1.. {
            let ours = our_taints(&node, rules);
            if ours.is_empty() {
                break;
            }
            match self.remove_taints(&node, rules).await {
                Ok(_) => {
                    done.taints = ours.iter().filter_map(|taint| text(taint, "key")).collect();
                    break;
                }
                // Somebody else changed the list between reading and writing. (A policy's refusal looks the same.)
                Err(ApiError::Refused { code: 422, .. } | ApiError::Conflict(_))
                    if attempt < TRIES =>
                {
                    tokio::time::sleep(PAUSE * attempt).await;
                    node = match self.read().await {
                        Ok(node) => node,
                        Err(error) => return Err(stuck(done, left(&node, rules), false, error)),
                    };
                }
                Err(error) => return Err(stuck(done, left(&node, rules), false, error)),
            }
        }
        Ok(done)
    }

    async fn read(&self) -> Result<Value, ApiError> {
        self.answer(Request::get(self.path("")), Value::Null).await
    }

    /// The complete set, which is empty: the server takes away what this field manager owned before and owns no more.
    async fn apply_nothing(&self, node: &Value) -> Result<Value, ApiError> {
        let body = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.node, "uid": node["metadata"]["uid"] },
        });
        let path = self.path(&format!("/status?fieldManager={FIELD_MANAGER}&force=true"));
        let request = Request::patch(path).header(CONTENT_TYPE, "application/apply-patch+yaml");
        self.answer(request, body).await
    }

    async fn remove_taints(&self, node: &Value, rules: &Rules) -> Result<Value, ApiError> {
        let all = &node["spec"]["taints"];
        let foreign: Vec<&Value> = array(all).filter(|taint| !is_ours(taint, rules)).collect();
        // Who writes the list last has it in the Node's book-keeping; nobody has one that is not there.
        let change = if foreign.is_empty() {
            json!({ "op": "remove", "path": "/spec/taints" })
        } else {
            json!({ "op": "replace", "path": "/spec/taints", "value": foreign })
        };
        let patch = json!([
            { "op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"] },
            { "op": "test", "path": "/spec/taints", "value": all },
            change,
        ]);
        let path = self.path(&format!("?fieldManager={FIELD_MANAGER}"));
        let request = Request::patch(path).header(CONTENT_TYPE, "application/json-patch+json");
        self.answer(request, patch).await
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/nodes/{}{rest}", self.node)
    }

    async fn answer(&self, request: Builder, body: Value) -> Result<Value, ApiError> {
        let body = match body {
            Value::Null => Vec::new(),
            body => serde_json::to_vec(&body).map_err(nonsense)?,
        };
        let request = request.body(body).map_err(nonsense)?;
        let bytes = self.within(REQUEST_TIMEOUT, request).await?;
        serde_json::from_slice(&bytes).map_err(nonsense)
    }
}

fn stuck(done: Cleaned, taints_left: Vec<String>, conditions_left: bool, error: ApiError) -> Stuck {
    Stuck {
        done,
        taints_left,
        conditions_left,
        error,
    }
}

/// Our taints as `kubectl taint` names them.
fn left(node: &Value, rules: &Rules) -> Vec<String> {
    let name = |taint: &&Value| {
        Some(format!(
            "{}:{}",
            text(taint, "key")?,
            text(taint, "effect")?
        ))
    };
    our_taints(node, rules).iter().filter_map(name).collect()
}

/// Whether an apply of ours has left anything: without one, an empty apply would do nothing but cost a write.
fn is_ours_in_part(node: &Value) -> bool {
    array(&node["metadata"]["managedFields"]).any(|entry| entry["manager"] == FIELD_MANAGER)
}

fn annotation(node: &Value) -> &Value {
    &node["metadata"]["annotations"][STANDING_DOWN]
}

fn types(node: &Value) -> Vec<String> {
    let conditions = array(&node["status"]["conditions"]);
    conditions.filter_map(|c| text(c, "type")).collect()
}

fn our_taints<'a>(node: &'a Value, rules: &Rules) -> Vec<&'a Value> {
    let taints = array(&node["spec"]["taints"]);
    taints.filter(|taint| is_ours(taint, rules)).collect()
}

fn is_ours(taint: &Value, rules: &Rules) -> bool {
    taint["key"].as_str().is_some_and(|key| rules.owns(key))
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_ours_are_taints_of_ours() {
        let rules = Rules::default();
        let key = format!("{}kubelet-unhealthy", rules.prefix);
        let node = json!({"spec": {"taints": [
            {"key": key, "value": "KubeletCrashed", "effect": "NoSchedule"},
            {"key": "status-taint.cluster-autoscaler.kubernetes.io/other", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
            {},
        ]}});
        assert_eq!(left(&node, &rules), [format!("{key}:NoSchedule")]);
        // By whatever prefix it was configured, and by the default one, which an earlier configuration may have used.
        let other = Rules {
            prefix: "status-taint.cluster-autoscaler.kubernetes.io/oth".to_owned(),
            ..Rules::default()
        };
        assert_eq!(our_taints(&node, &other).len(), 2);
        assert!(our_taints(&json!({}), &rules).is_empty() && !is_ours_in_part(&json!({})));
    }
}
