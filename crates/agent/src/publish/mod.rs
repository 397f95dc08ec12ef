//! The API server: compares the Node's conditions with the desired ones and applies what differs.
//!
//! The client is built with the first identity that exists. While it can be used, three loops run concurrently: conditions, Events, the
//! Lease. A new client is built when a file of the credential changes or the API server refuses the credential.

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

use std::{convert::Infallible, path::Path, time::Duration};

use anyhow::{Context, Result, anyhow};
use futures::FutureExt;
use jiff::Timestamp;
use kube::Client;
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use self::{
    clock::Now,
    conditions::Reconciler,
    connection::ApiConnection,
    events::EventQueue,
    identity::{FileState, OWN_KUBECONFIG, Source},
    node::changed,
};
use crate::{
    condition::{Desired, Transition, Uptime},
    host::{
        api::{ApiFacts, Reach, RequestCounts},
        clock::uptime,
        kubelet::KubeletFacts,
        trouble::{Trouble, Troubles},
    },
    settings::{KubernetesSettings, Publish},
};

/// How often the credential's files are looked at, and a broken identity is tried again.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often a missing identity is looked for: a node that joins gets one at any moment.
const LOOK_IF_NONE_EVERY: Duration = Duration::from_secs(5);
/// The time for reading the credential's files: a disk may hang.
const READ_DEADLINE: Duration = Duration::from_secs(10);
const RENEW_BEFORE: Duration = Duration::from_mins(1);

/// Publishes conditions and Events, and reads the Node and the Lease. `run.rs` builds it.
#[derive(Debug)]
pub struct Publisher {
    pub settings: KubernetesSettings,
    /// The Node's name and the kubelet's kubeconfig; none until they are known.
    pub kubelet: watch::Receiver<Option<KubeletFacts>>,
    pub desired: watch::Receiver<Desired>,
    pub facts: watch::Sender<ApiFacts>,
    /// While `true` the kubelet's Lease is read every two seconds.
    pub lease_wanted: watch::Receiver<bool>,
    pub transitions: mpsc::Receiver<Transition>,
    pub requests: RequestCounts,
    pub troubles: Troubles,
}

/// A client, and what it was built with.
struct Session {
    client: Client,
    node_name: String,
    source: Source,
    files: Vec<FileState>,
    built_at: Uptime,
    /// When an exec plugin is asked for the next credential.
    renew_at: Option<Uptime>,
}

impl Publisher {
    /// Publishes until it is dropped. A failure is recorded as a trouble, and tried again.
    pub async fn run(mut self) -> Infallible {
        let api = ApiConnection::new(self.facts.clone(), self.requests.clone(), self.troubles.clone());
        let (mut reconciler, mut events) = (Reconciler::default(), EventQueue::default());
        if self.settings.publish == Publish::None {
            api.set_reach(Reach::Off { why: "[kubernetes] publish = \"none\"".into() });
            // Nobody publishes them, and the agent goes on sending them.
            while self.transitions.recv().await.is_some() {}
            return std::future::pending().await;
        }
        loop {
            match self.connect(&api).await {
                Ok(Some(session)) => self.publish(&session, &api, &mut reconciler, &mut events).await,
                Ok(None) => self.idle(LOOK_IF_NONE_EVERY, &mut events).await,
                Err(error) => {
                    let error = redact::told(&format!("{error:#}"), 500);
                    self.troubles.set(Trouble::IdentityUnusable, format!("{error}; nothing is published"));
                    api.set_reach(Reach::Off { why: error });
                    self.idle(LOOK_EVERY, &mut events).await;
                }
            }
        }
    }

    /// Builds a client; none if there is no identity, or the Node's name is not known yet.
    async fn connect(&self, api: &ApiConnection) -> Result<Option<Session>> {
        let kubelet = self.kubelet.borrow().clone();
        let node_name = self.settings.node_name.clone().or(kubelet.as_ref().map(|kubelet| kubelet.node_name.clone()));
        let Some(node_name) = node_name else {
            let why = "the Node's name is not known: the kubelet's configuration has not been read".into();
            api.set_reach(Reach::Off { why });
            return Ok(None);
        };
        let kubeconfig = kubelet.and_then(|kubelet| kubelet.kubeconfig);
        let settings = self.settings.kubeconfig.clone();
        let paths = kubeconfig_paths(settings.as_deref(), kubeconfig.as_deref());
        let identity = blocking(&paths, move || {
            let own = Path::new(OWN_KUBECONFIG);
            identity::choose(settings.as_deref(), own, kubeconfig.as_deref()).map(identity::read).transpose()
        });
        let Some(mut identity) = identity.await?? else {
            self.troubles.clear(Trouble::IdentityUnusable);
            let why = format!("no identity: there is no {paths}");
            api.set_reach(Reach::Off { why });
            return Ok(None);
        };
        let source = identity.source;
        let expires = exec::ask(&mut identity.config.auth_info).await.with_context(|| source.to_string())?;
        let (config, building) = (identity.config, api.clone());
        let client = blocking(&source.to_string(), move || building.connect(config)).await?;
        let client = client.map_err(|error| anyhow!("{source}: {}", connection::describe(&error)))?;
        let (files, now) = (identity.files, api.now());
        let renew_at = expires.map(|expires| renewal(expires, now));
        Ok(Some(Session { client, node_name, source, files, built_at: now.uptime, renew_at }))
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

/// Waits until the client would be built with another identity, from changed files, or for another Node.
async fn outdated(
    session: &Session,
    settings: &KubernetesSettings,
    mut kubelet: watch::Receiver<Option<KubeletFacts>>,
) {
    loop {
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = changed(&mut kubelet) => {}
        }
        let known = kubelet.borrow_and_update().clone();
        let (node_name, kubeconfig) = known.map(|known| (known.node_name, known.kubeconfig)).unzip();
        if settings.node_name.is_none() && node_name.is_some_and(|name| name != session.node_name) {
            return;
        }
        let kubeconfig = kubeconfig.flatten();
        let (wanted, source, files) = (settings.kubeconfig.clone(), session.source.clone(), session.files.clone());
        let credential = source.to_string();
        let look = blocking(&credential, move || {
            let chosen = identity::choose(wanted.as_deref(), Path::new(OWN_KUBECONFIG), kubeconfig.as_deref());
            chosen.as_ref() != Some(&source) || files.iter().any(FileState::has_changed)
        });
        // If the files cannot be read in time, the client that works stays.
        if matches!(look.await, Ok(true)) {
            return;
        }
    }
}

/// Waits until the API server refuses the credential, and the client is old enough to be replaced.
async fn refused(session: &Session, api: &ApiConnection) {
    api.unauthorized.notified().await;
    let (source, node) = (&session.source, &session.node_name);
    let message = format!(
        "the API server answers 401 Unauthorized to {source}; nothing is published on Node {node}: renew the credential"
    );
    api.troubles.set(Trouble::IdentityUnusable, message);
    sleep(clock::left(session.built_at + LOOK_EVERY, uptime())).await;
}

/// A minute before the credential expires, but not before a minute has passed.
fn renewal(expires: Timestamp, now: Now) -> Uptime {
    let lifetime = Duration::try_from(expires.duration_since(now.server)).unwrap_or_default();
    now.uptime + lifetime.saturating_sub(RENEW_BEFORE).max(RENEW_BEFORE)
}

/// The kubeconfigs that are tried, for messages.
fn kubeconfig_paths(settings: Option<&Path>, kubelet: Option<&Path>) -> String {
    match (settings, kubelet) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(path)) => format!("{OWN_KUBECONFIG} or {}", path.display()),
        (None, None) => OWN_KUBECONFIG.to_owned(),
    }
}

/// Runs what reads `files` on a thread of its own. While a disk hangs, one such thread hangs and no more are started.
async fn blocking<T: Send + 'static>(files: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    let work = spawn_blocking(|| ONE_AT_A_TIME.try_lock().map(|_guard| work()));
    let done = timeout(READ_DEADLINE, work).await;
    let done = done.with_context(|| {
        let secs = READ_DEADLINE.as_secs();
        format!("reading {files} has taken more than {secs} s; see whether its disk answers")
    });
    done??.with_context(|| format!("an earlier attempt to read {files} has not ended; see whether its disk answers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_renewed_a_minute_before_it_expires_but_not_more_often_than_once_a_minute() {
        let server = "2026-11-26T06:17:00Z".parse().unwrap();
        let now = Now { uptime: Duration::from_secs(100), server };
        let renewed = |secs| renewal(server + jiff::SignedDuration::from_secs(secs), now).as_secs();
        assert_eq!([renewed(900), renewed(61), renewed(-5)], [940, 160, 160]);
    }
}
