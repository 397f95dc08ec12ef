//! A client for the API server, from the first identity that exists, and when another one has to be built.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, Config};
use tokio::sync::watch;

use super::clock::sleep_until;
use super::connection::{self, ApiConnection};
use super::exec;
use super::identity::{self, CredentialSource, OWN_KUBECONFIG};
use super::node::changed;
use crate::condition::Uptime;
use crate::facts::{ApiFacts, RequestCounts};
use crate::files::FileVersion;
use crate::host::blocking;
use crate::host::clock::{Now, ServerTime, Timer, next_multiple, uptime};
use crate::host::kubelet::KubeletFacts;
use crate::host::pod;
use crate::host::subject::Subject;
use crate::settings::KubernetesSettings;
use crate::trouble::{Trouble, Troubles};

/// How often the credential's files are checked: a node that joins gets them at any moment.
pub const CHECK_EVERY: Duration = Duration::from_secs(10);
/// The same while they are usable.
const CHECK_USED_EVERY: Duration = Duration::from_mins(1);
/// A request that the API server refuses is sent again sooner than this if it is still needed.
const REFUSAL_COUNTS_FOR: Duration = Duration::from_mins(15);
/// The time for reading the credential's files: a disk may hang.
const READ_DEADLINE: Duration = Duration::from_secs(10);
const RENEW_BEFORE: Duration = Duration::from_mins(1);
/// A credential that nothing renews is a trouble this long before it expires.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A client, and what it was built with.
pub struct Session {
    pub client: Client,
    /// The credential.
    pub config: Config,
    pub node_name: String,
    /// Whether the name is the kubelet's, because neither the settings nor the credential say it.
    is_kubelets_name: bool,
    pub source: CredentialSource,
    files: Vec<FileVersion>,
    subject: Subject,
    built_at: Uptime,
    /// When an exec plugin is asked for the next credential.
    pub renew_at: Option<Uptime>,
}

/// The answer to [`connect`].
pub enum Connect {
    Ready(Box<Session>),
    /// There is no client to build, and why.
    Off(String),
}

/// Builds a client.
///
/// # Errors
/// If there is an identity and it cannot be used.
pub async fn connect(
    settings: &KubernetesSettings,
    kubelet: Option<KubeletFacts>,
    api: &ApiConnection,
) -> Result<Connect> {
    let (node_name, kubeconfig) = kubelet.map(|kubelet| (kubelet.node_name, kubelet.kubeconfig)).unzip();
    let choose = choice(settings, kubeconfig.flatten());
    let Some(identity) = read_files(move || choose().map(identity::read).transpose()).await?? else {
        let why = format!("no identity: neither {OWN_KUBECONFIG} nor a kubeconfig of the kubelet exists");
        return Ok(Connect::Off(why));
    };
    let (source, files, mut config) = (identity.source, identity.files, identity.config);
    let expires = exec::ask(&mut config.auth_info).await.with_context(|| source.to_string())?;
    let user = config.auth_info.clone();
    let subject = read_files(move || identity::subject(&user)).await?;
    let given = settings.node_name.clone().or_else(|| subject.node.clone()).or_else(pod::node_name);
    let is_kubelets_name = given.is_none();
    let Some(node_name) = given.or(node_name) else {
        return Ok(Connect::Off("the Node's name is not known: the kubelet's configuration has not been read".into()));
    };
    let (building, node, given) = (api.clone(), node_name.clone(), config.clone());
    let client = read_files(move || building.connect(given, &node)).await?;
    let client = client.map_err(|error| anyhow!("{source}: {}", connection::describe(&error)))?;
    let until = expires.or(subject.until);
    api.facts.send_modify(|facts| facts.credential_until = until);
    let (built_at, renew_at) = (uptime(), expires.map(|expires| renewal(expires, api.now())));
    let session = Session { client, config, node_name, is_kubelets_name, source, files, subject, built_at, renew_at };
    Ok(Connect::Ready(session.into()))
}

/// A client for a command, with the identity that the agent would use.
///
/// # Errors
/// When there is none that can be used.
pub async fn connect_once(settings: &KubernetesSettings, kubelet: KubeletFacts) -> Result<Session> {
    match connect(settings, Some(kubelet), &unobserved()).await? {
        Connect::Ready(session) => Ok(*session),
        Connect::Off(why) => bail!(why),
    }
}

/// Results of the requests are not published to the rest of the agent.
fn unobserved() -> ApiConnection {
    ApiConnection::new(watch::Sender::new(ApiFacts::default()), RequestCounts::default(), Troubles::default())
}

/// The same with the credential in `kubeconfig`, for requests about the Node of that name.
///
/// # Errors
/// When it cannot be used.
pub async fn connect_with(kubeconfig: PathBuf, node: &str) -> Result<Client> {
    let (node, read) = (node.to_owned(), read_files(|| identity::read(CredentialSource::Kubeconfig(kubeconfig))));
    let mut config = read.await??.config;
    exec::ask(&mut config.auth_info).await?;
    Ok(read_files(move || unobserved().connect(config, &node)).await??)
}

/// Everything that determines the identity. It belongs in [`read_files`].
fn choice(
    settings: &KubernetesSettings,
    kubelet: Option<PathBuf>,
) -> impl FnOnce() -> Option<CredentialSource> + Send + 'static {
    let settings = settings.kubeconfig.clone();
    move || identity::choose(settings.as_deref(), Path::new(OWN_KUBECONFIG), kubelet.as_deref())
}

/// Sets or ends the trouble that the credential ends soon. That of a kubelet, a pod and an exec plugin is renewed by itself.
fn check_end(session: &Session, kubelet: Option<&Path>, api: &ApiConnection) {
    let is_renewed = match &session.source {
        CredentialSource::Kubeconfig(path) => session.renew_at.is_some() || kubelet == Some(path),
        CredentialSource::InCluster => true,
    };
    let now = api.facts.borrow().server_clock.map(|clock| clock.at(uptime()));
    let until = session.subject.until.filter(|_| !is_renewed).zip(now);
    let (soon, source) =
        (until.filter(|(until, now)| ServerTime::of(*until).duration_since(*now) < RENEWED_BEFORE), &session.source);
    let message =
        |(until, _)| format!("the credential of {source} ends at {until}, and then nothing is published: renew it");
    api.troubles.replace(Trouble::CredentialExpiring, soon.map(message));
}

/// Waits until the client would be built with another identity, from changed files, or for another Node.
pub async fn outdated(
    session: &Session,
    settings: &KubernetesSettings,
    api: &ApiConnection,
    mut kubelet: watch::Receiver<Option<KubeletFacts>>,
) {
    let timer = Timer::new();
    loop {
        tokio::select! {
            () = timer.at(next_multiple(uptime(), if api.refuses() { CHECK_EVERY } else { CHECK_USED_EVERY })) => {}
            () = changed(&mut kubelet) => {}
        }
        api.forget_refusals(uptime() - REFUSAL_COUNTS_FOR);
        let known = kubelet.borrow_and_update().clone();
        let (node_name, kubeconfig) = known.map(|known| (known.node_name, known.kubeconfig)).unzip();
        if let Some(kubeconfig) = &kubeconfig {
            check_end(session, kubeconfig.as_deref(), api);
        }
        if session.is_kubelets_name && node_name.is_some_and(|name| name != session.node_name) {
            return;
        }
        let choose = choice(settings, kubeconfig.flatten());
        let (source, files) = (session.source.clone(), session.files.clone());
        let is_outdated = read_files(move || choose() != Some(source) || files.iter().any(FileVersion::has_changed));
        // If the files cannot be read in time, the client that works stays.
        if matches!(is_outdated.await, Ok(true)) {
            return;
        }
    }
}

/// Waits until the API server refuses the credential, and it is time to build a client again.
pub async fn refused(session: &Session, api: &ApiConnection) {
    api.unauthorized.notified().await;
    let (source, node) = (&session.source, &session.node_name);
    let message = format!(
        "the API server answers 401 Unauthorized to {source}; nothing is published on Node {node}: renew the credential"
    );
    api.troubles.set(Trouble::IdentityUnusable, message);
    sleep_until(session.built_at + 3 * CHECK_EVERY).await;
}

/// A minute before the credential expires, but not before a minute has passed.
fn renewal(expires: Timestamp, now: Now) -> Uptime {
    let lifetime = Duration::try_from(ServerTime::of(expires).duration_since(now.server)).unwrap_or_default();
    now.uptime + lifetime.saturating_sub(RENEW_BEFORE).max(RENEW_BEFORE)
}

/// Runs `work`, which reads the credential's files, on another thread, because their disk may hang.
pub async fn read_files<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = blocking::run("the credential", READ_DEADLINE, work).await;
    done.with_context(|| {
        format!("the credential was not read within {} s; check the disk that it is on", READ_DEADLINE.as_secs())
    })
}

#[cfg(test)]
mod tests {
    use hyper::{Request, Response};
    use kube::client::Body;
    use tokio::sync::watch;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::host::clock::ServerClock;

    #[tokio::test(start_paused = true)]
    async fn a_client_whose_credential_is_refused_is_built_again_when_it_is_half_a_minute_old() {
        let api =
            ApiConnection::new(watch::channel(ApiFacts::default()).0, RequestCounts::default(), Troubles::default());
        let service = service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(Body::empty())) });
        let mut session = Session {
            client: Client::new(service, "default"),
            config: Config::new("http://127.0.0.1".parse().unwrap()),
            node_name: "n1".into(),
            is_kubelets_name: false,
            source: CredentialSource::InCluster,
            files: vec![],
            subject: Subject::default(),
            built_at: uptime(),
            renew_at: None,
        };
        let mut waited = async |built_at| {
            session.built_at = built_at;
            let from = tokio::time::Instant::now();
            tokio::join!(refused(&session, &api), async { api.unauthorized.notify_waiters() });
            from.elapsed().as_secs()
        };
        assert!((25..=30).contains(&waited(uptime()).await));
        assert_eq!(waited(Uptime::ZERO).await, 0);
    }

    #[tokio::test]
    async fn the_end_of_a_credential_that_nothing_renews_is_a_trouble_a_week_before() {
        let (troubles, server) = (Troubles::default(), "2027-01-23T00:00:00Z".parse().unwrap());
        let clock = ServerClock { time: ServerTime::of(server), uptime: uptime() };
        let facts = ApiFacts { server_clock: Some(clock), ..ApiFacts::default() };
        let api = ApiConnection::new(watch::Sender::new(facts), RequestCounts::default(), troubles.clone());
        let service = service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(Body::empty())) });
        let mut session = Session {
            client: Client::new(service, "default"),
            config: Config::new("http://127.0.0.1".parse().unwrap()),
            node_name: "n1".into(),
            is_kubelets_name: false,
            source: CredentialSource::Kubeconfig("/etc/nodevigil/kubeconfig".into()),
            files: vec![],
            subject: Subject { node: None, until: Some("2027-01-29T00:00:00Z".parse().unwrap()) },
            built_at: uptime(),
            renew_at: None,
        };
        let kubelets = Path::new("/etc/kubernetes/kubelet.conf");
        check_end(&session, Some(kubelets), &api);
        let message = troubles.present()[&Trouble::CredentialExpiring].clone();
        assert!(message.contains("/etc/nodevigil/kubeconfig ends at 2027-01-29T00:00:00Z"), "{message}");
        check_end(&session, Some(Path::new("/etc/nodevigil/kubeconfig")), &api);
        assert!(troubles.present().is_empty(), "the kubelet renews its own");
        session.subject.until = Some("2027-01-30T00:00:01Z".parse().unwrap());
        check_end(&session, Some(kubelets), &api);
        assert!(troubles.present().is_empty());
        session.subject.until = Some(server);
        session.renew_at = Some(uptime());
        check_end(&session, Some(kubelets), &api);
        assert!(troubles.present().is_empty(), "a plugin renews it");
    }

    #[test]
    fn a_credential_is_renewed_a_minute_before_it_expires_but_not_more_often_than_once_a_minute() {
        let server = "2026-11-26T06:17:00Z".parse().unwrap();
        let now = Now::of(Uptime::from_secs(100), server);
        let renewed = |secs| renewal(server + SignedDuration::from_secs(secs), now);
        assert_eq!([renewed(900), renewed(61), renewed(-5)], [940, 160, 160].map(Uptime::from_secs));
    }
}
