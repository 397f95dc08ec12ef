//! The API server: compares the Node's conditions with the desired ones and applies what differs.
//!
//! The client is built with the first identity that exists. While it can be used, four loops run concurrently: conditions and taints,
//! Events, the Lease, the kubelet's sync loop. A new client is built when a file of the credential changes or the API server refuses the credential.
//!
//! Uses `facts`, `host`, `settings` and `condition`, and no monitor.

mod clock;
mod conditions;
mod connection;
mod events;
mod exec;
pub mod identity;
pub mod kubelet_port;
mod lease;
mod node;
mod observed;
mod pacing;
mod session;
mod step;
mod sync_loop;
mod taints;

use std::convert::Infallible;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use self::clock::sleep_until;
use self::conditions::Reconciler;
use self::connection::ApiConnection;
pub use self::connection::describe;
use self::events::EventQueue;
use self::node::changed;
pub use self::observed::{FIELD_MANAGER, ObservedNode, is_ours as is_our_taint};
use self::session::{CHECK_EVERY, Connect, Session, connect, outdated, refused};
pub use self::session::{connect_once, connect_with};
pub use self::taints::patch as taints_patch;
use crate::condition::{Desired, Occurrence, Uptime};
use crate::facts::{ApiFacts, Reach, RequestCounts};
use crate::host::clock::uptime;
use crate::host::kubelet::{KubeletFacts, Watched};
use crate::settings::{KubernetesSettings, Publish, TaintSettings};
use crate::trouble::{Trouble, Troubles};

/// How many transitions wait while there is no identity. The latest ones are kept.
const MAX_WAITING: usize = 32;

/// Publishes conditions and Events, and reads the Node and the Lease. `run.rs` builds it.
#[derive(Debug)]
pub struct Publisher {
    pub settings: KubernetesSettings,
    pub taints: TaintSettings,
    /// The Node's name and the kubelet's kubeconfig; none until they are known.
    pub kubelet: watch::Receiver<Option<KubeletFacts>>,
    pub desired: watch::Receiver<Desired>,
    pub facts: watch::Sender<ApiFacts>,
    /// While `true` the kubelet's Lease is read every two seconds, and after a minute every ten.
    pub lease_wanted: watch::Receiver<bool>,
    pub watched: watch::Receiver<Watched>,
    pub transitions: mpsc::Receiver<Occurrence>,
    pub requests: RequestCounts,
    pub troubles: Troubles,
}

impl Publisher {
    /// Publishes until it is dropped. A failure is recorded as a trouble, and tried again.
    pub async fn run(mut self) -> Infallible {
        let api = ApiConnection::new(self.facts.clone(), self.requests.clone(), self.troubles.clone());
        let mut reconciler = Reconciler::new(&self.taints, self.settings.names());
        let (mut events, mut announced) = (EventQueue::new(uptime()), String::new());
        api.spread_over(self.settings.spread_secs.duration());
        if self.settings.publish == Publish::None {
            // Everything is read, and nothing is to be written.
            self.desired = watch::channel(Desired::default()).1;
            events.is_dry_run = true;
            self.facts.send_modify(|facts| facts.is_dry_run = true);
        } else {
            // From zero on, so that an alert also sees an agent that has never written.
            drop(self.requests.get_or_create(&[("verb", "patch"), ("outcome", "success")]));
        }
        loop {
            let kubelet = self.kubelet.borrow().clone();
            let (why, trouble) = match connect(&self.settings, kubelet, &api).await {
                Ok(Connect::Ready(session)) => {
                    // Not for each client that is built while the credential is refused.
                    let line = format!("publishing to Node {} with {}", session.node_name, session.source);
                    if announced != line {
                        tracing::info!("{line}");
                        announced = line;
                    }
                    self.publish(&session, &api, &mut reconciler, &mut events).await;
                    continue;
                }
                Ok(Connect::Off(why)) => (why, None),
                Err(error) => {
                    let error = redact::sanitize_line(&format!("{error:#}"), 500);
                    (error.clone(), Some(format!("{error}; nothing is published")))
                }
            };
            self.troubles.replace(Trouble::IdentityUnusable, trouble);
            api.set_reach(Reach::Off { why });
            while self.transitions.len() > MAX_WAITING {
                drop(self.transitions.try_recv());
            }
            tokio::select! {
                () = sleep(CHECK_EVERY) => {}
                () = changed(&mut self.kubelet) => {}
            }
        }
    }

    /// Publishes until a new client has to be built.
    async fn publish(
        &mut self,
        session: &Session,
        api: &ApiConnection,
        reconciler: &mut Reconciler,
        events: &mut EventQueue,
    ) {
        if matches!(api.facts.borrow().reach, Reach::Off { .. }) {
            self.troubles.clear(Trouble::IdentityUnusable);
            api.set_reach(Reach::Untried);
        }
        if reconciler.node().is_some() {
            reconciler.read_first();
        }
        let (client, name) = (|| session.client.clone(), session.node_name.as_str());
        tokio::select! {
            _ = node::publish_conditions(client(), name, api, reconciler, &mut self.desired) => {}
            _ = events.publish(client(), api, &mut self.transitions) => {}
            _ = lease::read_lease(client(), name, api, &mut self.lease_wanted) => {}
            _ = sync_loop::ask(&session.config, &mut self.watched, api) => {}
            () = outdated(session, &self.settings, api, self.kubelet.clone()) => api.credential_changed(),
            () = refused(session, api) => {}
            () = sleep_until(session.renew_at.unwrap_or(Uptime::MAX)) => api.credential_changed(),
        }
    }
}

/// For docs/reference.
#[cfg(test)]
pub use self::{
    events::{DEGRADED, REPORTING_CONTROLLER},
    observed::TAINT_PREFIX,
    taints::key as taint_key,
};
