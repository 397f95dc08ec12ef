//! Asks the kubelet at its authenticated port whether its sync loop runs. On its other port, /healthz says only that HTTP is served.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::{Request, StatusCode};
use kube::client::Body;
use kube::{Client, Config};
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection::{ApiConnection, describe};
use super::kubelet_port;
use super::node::changed;
use super::session::read_files;
use crate::condition::Uptime;
use crate::facts::SyncLoop;
use crate::host::clock::{Timer, next_multiple, uptime};
use crate::host::kubelet::{Port, Watched};
use crate::host::process::ProcessId;

const PATH: &str = "/healthz/syncloop";
const EVERY: Duration = Duration::from_mins(1);
/// The interval while the loop does not run, or the kubelet does not answer.
const EVERY_UNSURE: Duration = Duration::from_secs(30);
/// The interval while the kubelet does not tell us: its log may have a line for each refusal.
const EVERY_REFUSED: Duration = Duration::from_mins(10);
const DEADLINE: Duration = Duration::from_secs(10);
/// What the kubelet answers with HTTP 500 once the loop has begun no round for five minutes (`SyncLoopHealthCheck` of
/// pkg/kubelet/kubelet.go). The same status has another text if the kubelet cannot ask the API server for our rights.
const STALLED: &str = "sync Loop";
const MAX_ANSWER_BYTES: usize = 4096;
/// After this many unanswered questions the loop counts as not watched.
const MAX_SILENT: u32 = 3;

/// How the kubelet has answered.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Said(SyncLoop),
    /// It does not tell us, and will not soon.
    Refused(String),
    /// It has said nothing about the loop.
    Silent(String),
}

/// Asks the kubelet that is watched with the credential of `config`, until it is dropped.
pub async fn ask(config: &Config, watched: &mut watch::Receiver<Watched>, api: &ApiConnection) -> Infallible {
    let (mut connected, mut silent, timer) = (None::<((ProcessId, Port), Client)>, 0, Timer::new());
    loop {
        let Some(asked) = watched.borrow_and_update().port.clone() else {
            connected = None;
            set(api, None);
            changed(watched).await;
            continue;
        };
        let (id, port) = &asked;
        let before = api.facts.borrow().sync_loop.clone().filter(|(of, _)| of == id).map(|(_, before)| before);
        let client = match &connected {
            Some((of, client)) if *of == asked => Ok(client.clone()),
            _ => connect(config.clone(), port.clone()).await,
        };
        let answer = match &client {
            Ok(client) => answer(client, port.address).await,
            Err(why) => Answer::Silent(why.clone()),
        };
        let pause = match &answer {
            Answer::Said(SyncLoop::Runs) => EVERY,
            Answer::Said(_) | Answer::Silent(_) => EVERY_UNSURE,
            Answer::Refused(_) => EVERY_REFUSED,
        };
        let next = next_multiple(uptime(), pause);
        silent = if let Answer::Silent(_) = &answer { silent + 1 } else { 0 };
        connected = client.ok().filter(|_| silent == 0).map(|client| (asked.clone(), client));
        let seen = match answer {
            // The kubelet itself reports on the Node why the loop does not run, such as that its runtime is down.
            Answer::Said(SyncLoop::Stalled { .. }) if !is_ready(api) => Some(SyncLoop::Runs),
            Answer::Said(said) => Some(said.after(before.as_ref())),
            Answer::Refused(why) => Some(SyncLoop::Unwatched(why)),
            Answer::Silent(why) if silent >= MAX_SILENT => Some(SyncLoop::Unwatched(why)),
            Answer::Silent(_) => before,
        };
        set(api, seen.map(|seen| (*id, seen)));
        tokio::select! {
            () = timer.at(next) => {}
            _ = watched.wait_for(|watched| watched.port.as_ref() != Some(&asked)) => {}
        }
    }
}

fn is_ready(api: &ApiConnection) -> bool {
    let facts = api.facts.borrow();
    facts.node.as_ref().and_then(|node| node.condition("Ready")).is_some_and(|ready| ready.status == "True")
}

fn set(api: &ApiConnection, seen: Option<(ProcessId, SyncLoop)>) {
    api.facts.send_if_modified(|facts| {
        let differs = facts.sync_loop != seen;
        facts.sync_loop = seen;
        differs
    });
}

async fn connect(config: Config, port: Port) -> Result<Client, String> {
    let connected = read_files(move || kubelet_port::client(config, &port)).await.and_then(|client| client);
    connected.map_err(|error| redact::sanitize_line(&format!("{error:#}"), 200))
}

async fn answer(client: &Client, address: SocketAddr) -> Answer {
    let read = async {
        let request = Request::get(PATH).body(Body::empty()).map_err(|error| error.to_string())?;
        let response = client.send(request).await.map_err(|error| describe(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let text = body.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    };
    let read =
        timeout(DEADLINE, read).await.unwrap_or_else(|_| Err(format!("no answer within {} s", DEADLINE.as_secs())));
    match read {
        Ok((status, text)) => judge(status, &text, address, uptime()),
        Err(why) => Answer::Silent(format!("{PATH} of the kubelet at {address}: {}", redact::sanitize_line(&why, 200))),
    }
}

fn judge(status: StatusCode, text: &str, address: SocketAddr, now: Uptime) -> Answer {
    let refused =
        |advice: &str| Answer::Refused(format!("the kubelet at {address} answers HTTP {}: {advice}", status.as_u16()));
    match status {
        StatusCode::OK => Answer::Said(SyncLoop::Runs),
        StatusCode::INTERNAL_SERVER_ERROR if text.contains(STALLED) => Answer::Said(SyncLoop::stalled(now)),
        StatusCode::UNAUTHORIZED => {
            refused("it does not take nodevigil's credential (authentication.webhook, authentication.x509)")
        }
        StatusCode::FORBIDDEN => refused(
            "grant nodevigil's own identity `get` of nodes/healthz, as rbac.yaml does; kubelets before 1.33 would need nodes/proxy",
        ),
        _ => Answer::Silent(format!("{PATH} of the kubelet at {address} answers HTTP {}", status.as_u16())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kubelets_own_words_say_that_its_sync_loop_stalls() {
        let address = "127.0.0.1:10250".parse().unwrap();
        let judge = |status, text| judge(StatusCode::from_u16(status).unwrap(), text, address, Uptime::ZERO);
        assert_eq!(judge(200, "ok"), Answer::Said(SyncLoop::Runs));
        let stalled = judge(500, "internal server error: sync Loop took longer than expected\n");
        assert_eq!(stalled, Answer::Said(SyncLoop::stalled(Uptime::ZERO)));
        let silent = [(500, "Authorization error (user=nodevigil:n1, verb=get, resource=nodes)"), (404, "")];
        for (status, text) in silent {
            assert!(matches!(judge(status, text), Answer::Silent(_)), "{status}");
        }
        for (status, advice) in [(401, "does not take nodevigil's credential"), (403, "`get` of nodes/healthz")] {
            let Answer::Refused(why) = judge(status, "Forbidden") else { panic!("{status}") };
            assert!(why.contains(&format!("127.0.0.1:10250 answers HTTP {status}")) && why.contains(advice), "{why}");
        }
    }
}
