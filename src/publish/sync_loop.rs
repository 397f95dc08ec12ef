//! Asks the kubelet at its authenticated port whether its sync loop runs. On its other port, /healthz says only that HTTP is served.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::{Request, StatusCode};
use kube::client::Body;
use kube::{Client, Config};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connection::{ApiConnection, describe};
use super::node::changed;
use super::session::read_files;
use crate::condition::Uptime;
use crate::host::api::SyncLoop;
use crate::host::clock::uptime;
use crate::host::kubelet::Watched;
use crate::host::process::{self, ProcessId};

const PATH: &str = "/healthz/syncloop";
const EVERY: Duration = Duration::from_secs(20);
/// The interval while the kubelet does not tell us: its log may have a line for each refusal.
const EVERY_REFUSED: Duration = Duration::from_mins(10);
const DEADLINE: Duration = Duration::from_secs(10);
/// What the kubelet answers with HTTP 500 once the loop has begun no round for five minutes (`SyncLoopHealthCheck` of
/// pkg/kubelet/kubelet.go). The same status has another text if the kubelet cannot ask the API server for our rights.
const STALLED: &str = "sync Loop";
const MAX_ANSWER_BYTES: usize = 4096;

/// Asks the kubelet that is watched with the credential of `config`, until it is dropped.
pub async fn ask(config: &Config, watched: &mut watch::Receiver<Watched>, api: &ApiConnection) -> Infallible {
    let mut connected: Option<((ProcessId, SocketAddr), Client)> = None;
    loop {
        let asked = watched.borrow_and_update().authenticated;
        let known = api.facts.borrow().sync_loop.clone().filter(|(id, _)| Some(*id) == asked.map(|(id, _)| id));
        let Some((id, address)) = asked else {
            connected = None;
            set(api, None);
            changed(watched).await;
            continue;
        };
        connected = connected.filter(|(of, _)| *of == (id, address));
        let answer = match &connected {
            Some((_, client)) => answer(client, address).await,
            None => match connect(config, id, address).await {
                Ok(Some(client)) => answer(&connected.insert(((id, address), client)).1, address).await,
                Ok(None) => None,
                Err(why) => Some(SyncLoop::Unwatched(why)),
            },
        };
        let before = known.map(|(_, before)| before);
        let seen = answer.map(|answer| answer.after(before.as_ref())).or(before);
        let pause = if matches!(seen, Some(SyncLoop::Unwatched(_))) { EVERY_REFUSED } else { EVERY };
        set(api, seen.map(|seen| (id, seen)));
        tokio::select! {
            () = sleep(pause) => {}
            _ = watched.wait_for(|watched| watched.authenticated != asked) => {}
        }
    }
}

fn set(api: &ApiConnection, seen: Option<(ProcessId, SyncLoop)>) {
    api.facts.send_if_modified(|facts| {
        let differs = facts.sync_loop != seen;
        facts.sync_loop = seen;
        differs
    });
}

/// A client for the kubelet. Its certificate is as a rule signed by itself, so that another proof is needed, before it is shown the
/// credential, that it is the kubelet: that its own process listens. None while nothing does.
async fn connect(config: &Config, id: ProcessId, address: SocketAddr) -> Result<Option<Client>, String> {
    let mut config = config.clone();
    config.cluster_url = format!("https://{address}").parse().map_err(|error| format!("{address}: {error}"))?;
    (config.accept_invalid_certs, config.root_cert, config.tls_server_name) = (true, None, None);
    (config.default_retry, config.connect_timeout) = (false, Some(DEADLINE));
    let connected = read_files(move || match process::listens(id, address) {
        None => Ok(None),
        Some(false) => Err(format!("at {address} listens another process than the kubelet (pid {})", id.pid)),
        Some(true) => Client::try_from(config).map(Some).map_err(|error| describe(&error)),
    });
    connected.await.map_err(|error| error.to_string())?
}

/// What the kubelet answers; none if it does not say.
async fn answer(client: &Client, address: SocketAddr) -> Option<SyncLoop> {
    let request = Request::get(PATH).body(Body::empty()).ok()?;
    let read = async {
        let response = client.send(request).await.ok()?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await.ok()?.to_bytes();
        Some((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let (status, text) = timeout(DEADLINE, read).await.ok().flatten()?;
    judge(status, &text, address, uptime())
}

fn judge(status: StatusCode, text: &str, address: SocketAddr, now: Uptime) -> Option<SyncLoop> {
    match status {
        StatusCode::OK => Some(SyncLoop::Runs),
        StatusCode::INTERNAL_SERVER_ERROR if text.contains(STALLED) => Some(SyncLoop::stalled(now)),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(SyncLoop::Unwatched(format!(
            "the kubelet at {address} answers HTTP {}: grant nodevigil's own identity `get` of nodes/healthz, as rbac.yaml does",
            status.as_u16()
        ))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kubelets_own_words_say_that_its_sync_loop_stalls() {
        let address = "127.0.0.1:10250".parse().unwrap();
        let judge = |status, text| judge(StatusCode::from_u16(status).unwrap(), text, address, Uptime::ZERO);
        assert_eq!(judge(200, "ok"), Some(SyncLoop::Runs));
        let stalled = judge(500, "internal server error: sync Loop took longer than expected\n");
        assert_eq!(stalled, Some(SyncLoop::stalled(Uptime::ZERO)));
        assert_eq!(judge(500, "Authorization error (user=nodevigil:n1, verb=get, resource=nodes)"), None);
        assert_eq!(judge(404, ""), None);
        for status in [401, 403] {
            let Some(SyncLoop::Unwatched(why)) = judge(status, "Forbidden") else { panic!("{status}") };
            assert!(why.contains(&format!("127.0.0.1:10250 answers HTTP {status}: grant")), "{why}");
        }
    }
}
