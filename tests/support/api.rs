//! Asks the API server, synchronously, as some user.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// Long enough for a machine under load, short enough that a stopped API server does not hang a test.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client of the API server that blocks.
pub(crate) struct Api {
    runtime: Runtime,
    client: Client,
}

impl Api {
    /// A client with the identity in `kubeconfig`.
    pub(crate) fn new(kubeconfig: &Value) -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting a runtime")?;
        let client = runtime.block_on(client(kubeconfig))?;
        Ok(Self { runtime, client })
    }

    /// One request: the status code and the answer (a string, if it is not JSON).
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        self.request_as(None, method, path, content_type, body)
    }

    /// The same, and the API server is asked to take us for another user.
    pub(crate) fn request_as(
        &self,
        user: Option<&str>,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        let bytes = body
            .map(serde_json::to_vec)
            .transpose()?
            .unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header("content-type", content_type);
        }
        if let Some(user) = user {
            request = request.header("impersonate-user", user);
        }
        let request = request
            .body(Body::from(bytes))
            .context("building a request")?;
        let answer = async {
            let response = self.client.send(request).await?;
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await?.to_bytes();
            anyhow::Ok((code, bytes))
        };
        let (code, bytes) = self
            .runtime
            .block_on(async { tokio::time::timeout(TIMEOUT, answer).await })
            .map_err(anyhow::Error::from)
            .flatten()
            .with_context(|| format!("{method} {path}"))?;
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Ok((
            code,
            serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        ))
    }

    /// A GET.
    pub(crate) fn get(&self, path: &str) -> Result<(u16, Value)> {
        self.request("GET", path, "", None)
    }
}

/// An asynchronous client with the identity in `kubeconfig`; call it in a runtime.
pub(crate) async fn client(kubeconfig: &Value) -> Result<Client> {
    let kubeconfig: Kubeconfig =
        serde_json::from_value(kubeconfig.clone()).context("reading a kubeconfig")?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None; // the run has no way out, whatever the environment says
    Client::try_from(config).context("building a client")
}

/// The condition `kind` of a Node object, or of a watch event that carries one.
pub(crate) fn condition<'a>(value: &'a Value, kind: &str) -> Option<&'a Value> {
    let node = value.get("object").unwrap_or(value);
    let conditions = node.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// The status (`True`, `False`, `Unknown`) of a condition of a Node object or a watch event.
pub(crate) fn condition_status<'a>(value: &'a Value, kind: &str) -> Option<&'a str> {
    condition(value, kind)?["status"].as_str()
}
