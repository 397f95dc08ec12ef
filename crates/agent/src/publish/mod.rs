//! The API server: compares the Node's conditions with the desired ones and applies what differs.
//!
//! The client is built with the first identity that exists. While it can be used, three loops run concurrently: conditions and taints,
//! Events, the Lease. A new client is built when a file of the credential changes or the API server refuses the credential.

mod access;
mod cleanup;
mod clock;
mod conditions;
mod connection;
mod events;
mod exec;
mod identity;
mod lease;
mod node;
mod observed;
mod pacing;
mod session;
mod taints;

use std::{convert::Infallible, time::Duration};

use futures::FutureExt;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

pub use self::{
    access::{Identity, identity},
    cleanup::{Removed, cleanup},
    session::read_node,
};
use self::{
    conditions::Reconciler,
    connection::ApiConnection,
    events::EventQueue,
    node::changed,
    session::{LOOK_EVERY, Session, connect, outdated, refused},
};
use crate::{
    condition::{Desired, Transition, Uptime},
    host::{
        api::{ApiFacts, Reach, RequestCounts},
        clock::uptime,
        kubelet::KubeletFacts,
        trouble::{Trouble, Troubles},
    },
    settings::{KubernetesSettings, Publish, TaintSettings},
};

/// How often a missing identity is looked for: a node that joins gets one at any moment.
const LOOK_IF_NONE_EVERY: Duration = Duration::from_secs(5);

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
    pub transitions: mpsc::Receiver<Transition>,
    pub requests: RequestCounts,
    pub troubles: Troubles,
}

impl Publisher {
    /// Publishes until it is dropped. A failure is recorded as a trouble, and tried again.
    pub async fn run(mut self) -> Infallible {
        let api = ApiConnection::new(self.facts.clone(), self.requests.clone(), self.troubles.clone());
        let (mut reconciler, mut events) = (Reconciler::new(self.taints.clone()), EventQueue::default());
        if self.settings.publish == Publish::None {
            api.set_reach(Reach::Off { why: "[kubernetes] publish = \"none\"".into() });
            // Nobody publishes them, and the agent goes on sending them.
            while self.transitions.recv().await.is_some() {}
            return std::future::pending().await;
        }
        loop {
            let kubelet = self.kubelet.borrow().clone();
            match connect(&self.settings, kubelet, &api).await {
                Ok(Some(session)) => self.publish(&session, &api, &mut reconciler, &mut events).await,
                Ok(None) => self.idle(LOOK_IF_NONE_EVERY, &mut events).await,
                Err(error) => {
                    let error = redact::sanitize_line(&format!("{error:#}"), 500);
                    self.troubles.set(Trouble::IdentityUnusable, format!("{error}; nothing is published"));
                    api.set_reach(Reach::Off { why: error });
                    self.idle(LOOK_EVERY, &mut events).await;
                }
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
        let was_off = matches!(self.facts.borrow().reach, Reach::Off { .. });
        if was_off {
            self.troubles.clear(Trouble::IdentityUnusable);
            api.set_reach(Reach::Untried);
        }
        // Forgets the 401 that an earlier client got.
        let _ = api.unauthorized.notified().now_or_never();
        reconciler.read_first();
        tracing::info!("publishing to Node {} by {}", session.node_name, session.source);
        let (client, name) = (|| session.client.clone(), session.node_name.as_str());
        let kubelet = self.kubelet.clone();
        tokio::select! {
            _ = node::publish_conditions(client(), name, api, reconciler, &mut self.desired) => {}
            _ = events.publish(client(), api, &mut self.transitions) => {}
            _ = lease::read_lease(client(), name, api, &mut self.lease_wanted) => {}
            () = outdated(session, &self.settings, kubelet) => {}
            () = refused(session, api) => {}
            () = sleep(clock::left(session.renew_at.unwrap_or(Uptime::MAX), uptime())) => {}
        }
    }

    /// Keeps transitions for later, until it is time to try again or the kubelet's configuration changes.
    async fn idle(&mut self, time: Duration, events: &mut EventQueue) {
        let collect = async {
            loop {
                events.collect(&self.troubles, &mut self.transitions).await;
            }
        };
        tokio::select! {
            () = sleep(time) => {}
            () = changed(&mut self.kubelet) => {}
            () = collect => {}
        }
    }
}
