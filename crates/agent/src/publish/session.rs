//! A client for the API server, from the first identity that exists, and when another one has to be built.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::{
    sync::{Mutex, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{
    clock::{self, Now},
    connection::{self, ApiConnection},
    exec,
    identity::{self, FileState, OWN_KUBECONFIG, Source},
    node::changed,
    observed::ObservedNode,
};
use crate::{
    condition::Uptime,
    host::{
        api::{ApiFacts, NodeAnswer, Reach, RequestCounts},
        clock::uptime,
        kubelet::KubeletFacts,
        trouble::{Trouble, Troubles},
    },
    settings::KubernetesSettings,
};

/// How often the credential's files are looked at, and a broken identity is tried again.
pub const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The time for reading the credential's files: a disk may hang.
const READ_DEADLINE: Duration = Duration::from_secs(10);
const RENEW_BEFORE: Duration = Duration::from_mins(1);

/// A client, and what it was built with.
pub struct Session {
    pub client: Client,
    pub node_name: String,
    pub source: Source,
    files: Vec<FileState>,
    built_at: Uptime,
    /// When an exec plugin is asked for the next credential.
    pub renew_at: Option<Uptime>,
}

/// Builds a client; none if there is no identity, or the Node's name is not known yet.
pub async fn connect(
    settings: &KubernetesSettings,
    kubelet: Option<KubeletFacts>,
    api: &ApiConnection,
) -> Result<Option<Session>> {
    let node_name = settings.node_name.clone().or(kubelet.as_ref().map(|kubelet| kubelet.node_name.clone()));
    let Some(node_name) = node_name else {
        let why = "the Node's name is not known: the kubelet's configuration has not been read".into();
        api.set_reach(Reach::Off { why });
        return Ok(None);
    };
    let kubeconfig = kubelet.and_then(|kubelet| kubelet.kubeconfig);
    let settings = settings.kubeconfig.clone();
    let paths = kubeconfig_paths(settings.as_deref(), kubeconfig.as_deref());
    let identity = blocking(&paths, move || {
        let own = Path::new(OWN_KUBECONFIG);
        identity::choose(settings.as_deref(), own, kubeconfig.as_deref()).map(identity::read).transpose()
    });
    let Some(mut identity) = identity.await?? else {
        api.troubles.clear(Trouble::IdentityUnusable);
        let why = format!("no identity: there is no {paths}");
        api.set_reach(Reach::Off { why });
        return Ok(None);
    };
    let source = identity.source;
    let expires = exec::ask(&mut identity.config.auth_info).await.with_context(|| source.to_string())?;
    let (config, building) = (identity.config, api.clone());
    let server = config.cluster_url.to_string();
    let client = blocking(&source.to_string(), move || building.connect(config)).await?;
    let client = client.map_err(|error| anyhow!("{source}: {}", connection::describe(&error)))?;
    api.facts.send_modify(|facts| facts.server = Some(server));
    let (files, now) = (identity.files, api.now());
    let renew_at = expires.map(|expires| renewal(expires, now));
    Ok(Some(Session { client, node_name, source, files, built_at: now.uptime, renew_at }))
}

/// Waits until the client would be built with another identity, from changed files, or for another Node.
pub async fn outdated(
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
pub async fn refused(session: &Session, api: &ApiConnection) {
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

/// A client for a command, with the identity that the agent would use.
pub async fn connect_once(settings: &KubernetesSettings, kubelet: KubeletFacts) -> Result<Session> {
    let facts = watch::Sender::new(ApiFacts::default());
    let api = ApiConnection::new(facts, RequestCounts::default(), Troubles::default());
    if let Some(session) = connect(settings, Some(kubelet), &api).await? {
        return Ok(session);
    }
    let Reach::Off { why } = api.facts.borrow().reach.clone() else { return Err(anyhow!("no identity")) };
    Err(anyhow!(why))
}

/// Asks the API server once for the Node of that name, with the credential in `kubeconfig`.
pub async fn read_node(kubeconfig: PathBuf, name: &str) -> NodeAnswer {
    let path = kubeconfig.display().to_string();
    let api = ApiConnection::new(watch::channel(ApiFacts::default()).0, RequestCounts::default(), Troubles::default());
    let connect = async {
        let mut identity = blocking(&path, move || identity::read(Source::Kubeconfig(kubeconfig))).await??;
        exec::ask(&mut identity.config.auth_info).await?;
        anyhow::Ok(blocking(&path, move || api.connect(identity.config)).await??)
    };
    let client = match connect.await {
        Ok(client) => client,
        Err(error) => return NodeAnswer::NotAsked(redact::sanitize_line(&format!("{error:#}"), 500)),
    };
    match Api::<Node>::all(client).get_opt(name).await {
        Ok(node) => match node.and_then(ObservedNode::read) {
            Some(node) => NodeAnswer::Node(Box::new(node.facts)),
            None => NodeAnswer::NoNode(name.to_owned()),
        },
        Err(kube::Error::Api(status)) => {
            NodeAnswer::Refused { http_status: status.code, message: redact::sanitize_line(&status.message, 300) }
        }
        Err(error) => NodeAnswer::Unreached(connection::describe(&error)),
    }
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
