//! Sends records to a server: one at a time, each until the server has taken it or the record is no longer kept.

use std::convert::Infallible;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Proxy, StatusCode};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::TIMEOUT as COMPLETION_TIMEOUT;
use super::record::Record;
use super::store::{self, Kept};
use crate::files;
use crate::host::child;
use crate::settings::RecordSettings;
use crate::trouble::{Trouble, Troubles};

/// The hidden subcommand that uploads, and the environment variable with its settings: a command line can be read by every user.
pub const SUBCOMMAND: &str = "upload-records";
const SETTINGS: &str = "NODEVIGIL_RECORDS";
/// One record's connection and request, and all that wait.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_mins(15);
/// After a failure: doubled from the first to the last.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_hours(1));
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Uploads what an earlier run of the agent has left, and then each `new` record. A child does it, because a client for HTTPS takes memory
/// that the agent keeps in RAM.
pub async fn run(settings: &RecordSettings, troubles: &Troubles, new: &Notify) -> Infallible {
    if settings.upload_url.is_none() {
        return std::future::pending().await;
    }
    let mut wait = RETRY.0;
    loop {
        let uploaded = run_child(settings).await;
        troubles.replace(Trouble::RecordsNotUploaded, uploaded.as_ref().err().cloned());
        if uploaded.is_ok() {
            wait = RETRY.0;
            new.notified().await;
        } else {
            timeout(wait, new.notified()).await.ok();
            // A new record does not shorten the wait of a server in trouble below this.
            sleep(RETRY.0).await;
            wait = (wait * 2).min(RETRY.1);
        }
    }
}

async fn run_child(settings: &RecordSettings) -> Result<(), String> {
    let mut command = child::own_command();
    let settings = serde_json::to_string(settings).map_err(|error| error.to_string())?;
    command.arg(SUBCOMMAND).env(SETTINGS, settings);
    let (status, output) = child::run(command, TIMEOUT).await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&output).unwrap_or_else(|_| Err(format!("nodevigil {SUBCOMMAND}: {status}")))
}

/// What the child does: uploads every record that has no mark yet.
///
/// # Errors
/// The last one, after all were tried, without what is secret in the URL.
pub async fn upload_all() -> Result<(), String> {
    let uploaded = async {
        let settings: RecordSettings = serde_json::from_str(&std::env::var(SETTINGS).unwrap_or_default())?;
        let template = settings.upload_url.as_deref().context("there is no [records] upload_url")?;
        if waiting(store::list()).is_empty() {
            return Ok(());
        }
        let client = client(&settings)?;
        each(store::list, async |kept, record| {
            let url = template.replace("{node}", &record.node).replace("{record}", &kept.name);
            upload(&client, &url, kept).await.with_context(|| kept.name.clone())
        })
        .await
    };
    uploaded.await.map_err(|error: anyhow::Error| redact::sanitize_line(&format!("{error:#}"), 500))
}

async fn upload(client: &Client, url: &str, kept: &Kept) -> anyhow::Result<()> {
    // Opened first, so that what replaces the record meanwhile is not marked.
    let file = File::open(&kept.path)?;
    let request = client.put(url).header(CONTENT_TYPE, "application/json").body(kept.text()?);
    let answer = request.send().await.map_err(reqwest::Error::without_url)?;
    let status = answer.status();
    ensure!(is_taken(status), "the server answered {status}");
    Ok(store::mark_uploaded(&file)?)
}

/// A server that lets a node replace nothing answers 409 or 412 if it has the record.
fn is_taken(status: StatusCode) -> bool {
    status.is_success() || [StatusCode::CONFLICT, StatusCode::PRECONDITION_FAILED].contains(&status)
}

/// Those that have no mark yet, the oldest first.
fn waiting(records: Vec<Kept>) -> Vec<Kept> {
    records.into_iter().rev().filter(|kept| !kept.is_uploaded).collect()
}

/// Sends the records that are complete, and then the others, once the time in which something may come to them is over. One that is gone
/// has been moved meanwhile, after which the agent uploads again. The error is the last one: one that fails keeps no other from being sent.
async fn each(
    list: impl Fn() -> Vec<Kept>,
    mut send: impl AsyncFnMut(&Kept, &Record) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut result, mut incomplete) = (Ok(()), Vec::new());
    for kept in waiting(list()) {
        match kept.read() {
            Ok(record) if record.took_millis.is_some() => result = send(&kept, &record).await.and(result),
            Ok(_) => incomplete.push(kept.name),
            Err(error) if kept.path.exists() => result = Err(error).with_context(|| kept.name.clone()),
            Err(_) => {}
        }
    }
    if incomplete.is_empty() {
        return result;
    }
    sleep(COMPLETION_TIMEOUT).await;
    for kept in waiting(list()).iter().filter(|kept| incomplete.contains(&kept.name)) {
        if let Ok(record) = kept.read() {
            result = send(kept, &record).await.and(result);
        }
    }
    result
}

fn client(settings: &RecordSettings) -> anyhow::Result<Client> {
    // The one that kube uses. It fails if there is one already, which is the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    // A redirect would send the record and the headers to another server, or count as an upload.
    let mut client = Client::builder().redirect(Policy::none()).https_only(true).default_headers(headers(settings)?);
    client = client.connect_timeout(CONNECT_TIMEOUT).timeout(REQUEST_TIMEOUT);
    if let Some(path) = &settings.upload_ca_file {
        let certificates =
            Certificate::from_pem_bundle(read(path)?.as_bytes()).with_context(|| path.display().to_string())?;
        client = client.tls_certs_only(certificates);
    }
    client = match &settings.upload_proxy {
        Some(proxy) => client.proxy(Proxy::all(&**proxy).map_err(reqwest::Error::without_url)?),
        None => client.no_proxy(),
    };
    Ok(client.build()?)
}

/// Those of the file, one a line as `Name: value`, and the bearer token. The files are read for each attempt, as both may be renewed.
fn headers(settings: &RecordSettings) -> anyhow::Result<HeaderMap> {
    let secret = |path: &Path| files::check_secret(path).and_then(|()| read(path));
    let mut lines = settings.upload_headers_file.as_deref().map(secret).transpose()?.unwrap_or_default();
    if let Some(path) = &settings.upload_token_file {
        lines.extend(["\nAuthorization: Bearer ", secret(path)?.trim()]);
    }
    let header = |line: &str| {
        let (name, value) =
            line.split_once(':').context("[records] upload_headers_file: expected `Name: value` in each line")?;
        let mut value =
            HeaderValue::from_str(value.trim()).with_context(|| format!("the value of the header {name}"))?;
        value.set_sensitive(true);
        Ok((HeaderName::from_bytes(name.trim().as_bytes()).with_context(|| format!("the header {name:?}"))?, value))
    };
    lines.lines().filter(|line| !line.trim().is_empty()).map(header).collect()
}

fn read(path: &Path) -> anyhow::Result<String> {
    files::read(path, MAX_FILE_BYTES).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::records::record::tests::record;

    #[tokio::test(start_paused = true)]
    async fn incomplete_records_are_waited_for_once_and_keep_no_complete_one_back() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["02", "03", "04"].map(|second| format!("20261128t1845{second}z-kubelet-crashed"));
        let write = |name: &str, took_millis| {
            store::write(directory.path(), &Record { took_millis, ..record(name) }).unwrap();
        };
        write(&names[0], None);
        write(&names[1], None);
        write(&names[2], Some(1));
        let (mut sent, began) = (Vec::new(), Instant::now());
        let result = each(
            || store::list_in(directory.path()),
            async |kept, record| {
                sent.push((kept.name.clone(), began.elapsed().as_secs(), record.took_millis));
                // One is completed meanwhile, the completion of the other one failed.
                if kept.name == names[2] {
                    write(&names[1], Some(2));
                }
                anyhow::bail!("{}", kept.name)
            },
        )
        .await;
        let [first, second, third] = names;
        assert_eq!(result.unwrap_err().to_string(), second);
        assert_eq!(sent, [(third, 0, Some(1)), (first, 10, None), (second, 10, Some(2))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_cannot_be_read_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("20261128t184502z-kubelet-crashed.json"), "{").unwrap();
        let result = each(|| store::list_in(directory.path()), async |_, _| Ok(())).await;
        assert!(result.unwrap_err().to_string().contains("kubelet-crashed"));
    }

    #[test]
    fn a_token_that_every_user_can_read_is_not_sent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "abc\n").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let settings = RecordSettings { upload_token_file: Some(path.clone()), ..RecordSettings::default() };
        set(directory.path(), 0o755);
        set(&path, 0o644);
        assert!(headers(&settings).unwrap_err().to_string().contains("every user can read it: chmod o-r it"));
        set(&path, 0o600);
        assert_eq!(headers(&settings).unwrap()["authorization"], "Bearer abc");
    }

    #[tokio::test]
    async fn a_proxy_is_asked_for_the_server() {
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upload_proxy = Some(format!("http://{}", proxy.local_addr().unwrap()).try_into().unwrap());
        let client = client(&RecordSettings { upload_proxy, ..RecordSettings::default() }).unwrap();
        let request = tokio::spawn(client.put("https://records.example.com/a.json").send());
        let (connection, _) = proxy.accept().await.unwrap();
        let line = BufReader::new(connection).lines().next_line().await.unwrap();
        assert_eq!(line.as_deref(), Some("CONNECT records.example.com:443 HTTP/1.1"));
        assert!(request.await.unwrap().is_err());
    }

    #[test]
    fn a_server_that_has_the_record_has_taken_it() {
        let taken = [200, 201, 204, 409, 412].map(|code| is_taken(StatusCode::from_u16(code).unwrap()));
        let refused = [303, 307, 400, 403, 404, 500].map(|code| is_taken(StatusCode::from_u16(code).unwrap()));
        assert_eq!((taken, refused), ([true; 5], [false; 6]));
    }
}
