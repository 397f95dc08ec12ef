//! The configuration with which the kubelet runs: `/configz` of its own API, for which the agent's identity needs `nodes/configz`.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use hyper::Request;
use kubelet_config::kubelet::effective::Settings;
use serde_json::Value;
use tokio::time::timeout;

use crate::host::kubelet::Port;
use crate::publish::identity::{self, OWN_KUBECONFIG};
use crate::publish::kubelet_port;

const DEADLINE: Duration = Duration::from_secs(5);

/// The configuration of the running kubelet; none without an identity of nodevigil's own that may read it. `settings`: the kubelet's.
pub async fn read(kubeconfig: Option<&Path>, settings: &Settings) -> anyhow::Result<Option<Value>> {
    let Some(source) = identity::choose(kubeconfig, Path::new(OWN_KUBECONFIG), None) else { return Ok(None) };
    let Some(port) = Port::of(settings) else { return Ok(None) };
    let client = kubelet_port::client(identity::read(source)?.config, &port)?;
    let answer = client.request::<Value>(Request::get("/configz").body(Vec::new())?);
    match timeout(DEADLINE, answer).await {
        Ok(Ok(mut answer)) => Ok(Some(answer["kubeletconfig"].take())),
        Ok(Err(kube::Error::Api(status))) if [401, 403].contains(&status.code) => Ok(None),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => bail!("no answer within {} s", DEADLINE.as_secs()),
    }
}
