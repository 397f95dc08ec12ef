//! Tokens of the agents' `ServiceAccount`.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::control_plane::ControlPlane;

impl ControlPlane {
    /// A token of the agents' `ServiceAccount` that is bound to a Node which is there.
    pub(crate) fn node_bound_token(&self, node: &str) -> Result<String> {
        let uid = self.node(node)?.context("no such Node")?["metadata"]["uid"].take();
        let path = "/api/v1/namespaces/kube-system/serviceaccounts/nodevigil/token";
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": 3600,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
            },
        });
        let (code, answer) = self.request("POST", path, "application/json", &request)?;
        let token = answer["status"]["token"].as_str();
        ensure!(code == 201, "TokenRequest answered {code}: {answer}");
        Ok(token.context("an answer without a token")?.to_owned())
    }

    /// A kubeconfig for whoever has that token.
    pub(crate) fn token_kubeconfig(&self, token: &str, address: &str) -> Result<Value> {
        let mut kubeconfig = self.kubeconfig("token", &[], address)?;
        kubeconfig["users"][0]["user"] = json!({"token": token});
        Ok(kubeconfig)
    }
}
