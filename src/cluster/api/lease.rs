//! The kubelet's Lease, read on suspicion: when the kubelet last told the API server that it lives.

use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use serde::Deserialize;

use super::{Api, ApiError, REQUEST_TIMEOUT, nonsense};
use crate::checks::lease::Renewal;

/// The kubelet's own default, for a Lease that does not say.
const DURATION_SECS: u64 = 40;

#[derive(Deserialize)]
struct Lease {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    renew_time: Timestamp,
    lease_duration_seconds: Option<u64>,
}

impl Api {
    /// Reads the Lease of our Node.
    ///
    /// # Errors
    /// As [`ApiError`] says.
    pub async fn lease(&self) -> Result<Renewal, ApiError> {
        let node = &self.node;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
        let request = Request::get(path).body(Vec::new()).map_err(nonsense)?;
        parse(&self.within(REQUEST_TIMEOUT, request).await?)
    }
}

#[doc(hidden)] // public for the fuzz target
pub fn parse(bytes: &[u8]) -> Result<Renewal, ApiError> {
    let Lease { spec } = serde_json::from_slice(bytes).map_err(nonsense)?;
    let secs = spec.lease_duration_seconds.unwrap_or(DURATION_SECS);
    Ok(Renewal {
        renewed: spec.renew_time,
        duration: Duration::from_secs(secs.clamp(1, 3600)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_server_says_is_read() {
        let text = br#"{"kind":"Lease","metadata":{"name":"n1"},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,"renewTime":"2026-11-21T18:57:20.123456Z"}}"#;
        let read = parse(text).unwrap();
        assert_eq!(read.renewed.to_string(), "2026-11-21T18:57:20.123456Z");
        assert_eq!(read.duration, Duration::from_secs(40));
        assert!(matches!(parse(b"{}"), Err(ApiError::Nonsense(_))));
    }
}
