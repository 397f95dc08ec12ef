//! Reads the kubelet's Lease while a monitor wants it. The kubelet renews it as long as it reaches the API server.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::sleep;

use super::connection::{ApiConnection, Failure};
use super::node::changed;
use crate::facts::{LeaseFacts, Renewal};
use crate::host::clock::uptime;

const NAMESPACE: &str = "kube-node-lease";
const EVERY: Duration = Duration::from_secs(2);
/// The interval after the first minute, when it is known whether the kubelet renews the Lease.
const EVERY_LATER: Duration = Duration::from_secs(10);
/// The interval while the API server refuses it.
const EVERY_DENIED: Duration = Duration::from_mins(1);
const FAST_FOR: Duration = Duration::from_mins(1);

/// Reads the Lease of the Node of that name until it is dropped.
pub async fn read_lease(
    client: Client,
    name: &str,
    api: &ApiConnection,
    wanted: &mut watch::Receiver<bool>,
) -> Infallible {
    let leases = Api::<Lease>::namespaced(client, NAMESPACE);
    let mut wanted_since = None;
    loop {
        if !*wanted.borrow_and_update() {
            wanted_since = None;
            changed(wanted).await;
            continue;
        }
        let since = *wanted_since.get_or_insert_with(uptime);
        let answer = leases.get_opt(name).await;
        let is_allowed = !matches!(&answer, Err(error) if Failure::of(error) == Failure::Refused);
        api.record_answer("read the Lease in kube-node-lease", name, answer.as_ref().err());
        if let Ok(lease) = answer {
            api.facts.send_modify(|facts| facts.lease = lease.and_then(read));
        }
        let pause = match uptime() < since + FAST_FOR {
            _ if !is_allowed => EVERY_DENIED,
            true => EVERY,
            false => EVERY_LATER,
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = changed(wanted) => {}
        }
    }
}

/// None if it was never renewed.
fn read(lease: Lease) -> Option<LeaseFacts> {
    let spec = lease.spec?;
    let duration = Duration::from_secs(spec.lease_duration_seconds?.try_into().unwrap_or_default());
    Some(LeaseFacts { renewed: Renewal(spec.renew_time?.0), duration, read_at: uptime() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_the_time_of_its_renewal_and_its_duration() {
        let lease = serde_json::json!({"metadata": {}, "spec": {
            "leaseDurationSeconds": 40, "renewTime": "2026-11-26T06:17:00.123456Z"}});
        let facts = read(serde_json::from_value(lease).unwrap()).unwrap();
        assert_eq!(facts.duration, Duration::from_secs(40));
        assert_eq!(facts.renewed, Renewal("2026-11-26T06:17:00.123456Z".parse().unwrap()));
        assert_eq!(read(Lease::default()), None);
    }
}
