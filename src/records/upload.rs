//! Sends records to a server: one at a time, each until the server has taken it or the record is no longer kept.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Proxy};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::record::Record;
use super::store::{self, Kept};
use crate::files;
use crate::host::child;
use crate::settings::RecordSettings;
use crate::trouble::{Trouble, Troubles};

/// The hidden subcommand that uploads, and the environment variable with its settings: a command line can be read by every user.
pub const SUBCOMMAND: &str = "upload-records";
const SETTINGS: &str = "NODEVIGIL_RECORDS";
/// One record's request, and all that wait.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_mins(15);
/// After a failure: doubled from the first to the last.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_hours(1));
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The uploads of the agent. A child makes them, because a client for HTTPS takes memory that the agent keeps in RAM.
#[derive(Debug)]
pub struct Uploads {
    settings: RecordSettings,
    troubles: Troubles,
    new: Notify,
}

impl Uploads {
    pub fn new(settings: RecordSettings, troubles: Troubles) -> Self {
        Self { settings, troubles, new: Notify::new() }
    }

    /// There is a new record.
    pub fn wake(&self) {
        self.new.notify_one();
    }

    /// Uploads what an earlier run of the agent has left, and then each new record.
    pub async fn run(&self) -> Infallible {
        if self.settings.upload_url.is_none() {
            return std::future::pending().await;
        }
        let mut wait = RETRY.0;
        loop {
            let uploaded = self.upload().await;
            self.troubles.replace(Trouble::RecordsNotUploaded, uploaded.as_ref().err().cloned());
            if uploaded.is_ok() {
                wait = RETRY.0;
                self.new.notified().await;
            } else {
                timeout(wait, self.new.notified()).await.ok();
                // A new record does not shorten the wait of a server in trouble below this.
                sleep(RETRY.0).await;
                wait = (wait * 2).min(RETRY.1);
            }
        }
    }

    async fn upload(&self) -> Result<(), String> {
        let mut command = child::own_command();
        let settings = serde_json::to_string(&self.settings).map_err(|error| error.to_string())?;
        command.arg(SUBCOMMAND).env(SETTINGS, settings);
        let (status, output) = child::run(command, TIMEOUT).await.map_err(|error| error.to_string())?;
        let result: Result<(), String> =
            serde_json::from_slice(&output).map_err(|_| format!("nodevigil {SUBCOMMAND}: {status}"))?;
        result
    }
}

/// What the child does: uploads every record that has no mark yet, the oldest first.
///
/// # Errors
/// At the first that fails, without what is secret in the URL.
pub async fn upload_all() -> Result<(), String> {
    let uploaded = async {
        let settings: RecordSettings = serde_json::from_str(&std::env::var(SETTINGS).unwrap_or_default())?;
        let template = settings.upload_url.as_deref().context("there is no [records] upload_url")?;
        let waiting: Vec<Kept> = store::list().into_iter().rev().filter(|kept| !kept.mark().exists()).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let client = client(&settings)?;
        for kept in waiting {
            // One that cannot be read keeps no other from being uploaded.
            let Ok(Record { node, .. }) = kept.read() else { continue };
            let url = template.replace("{node}", &node).replace("{record}", &kept.name);
            upload(&client, &url, &kept).await.with_context(|| kept.name.clone())?;
            files::replace(&kept.mark(), 0o600, "")?;
        }
        Ok(())
    };
    uploaded.await.map_err(|error: anyhow::Error| redact::sanitize_line(&format!("{error:#}"), 500))
}

async fn upload(client: &Client, url: &str, kept: &Kept) -> anyhow::Result<()> {
    let request = client.put(url).header(CONTENT_TYPE, "application/json").body(kept.text()?);
    let answer = request.send().await.map_err(reqwest::Error::without_url)?;
    let status = answer.status();
    ensure!(status.is_success(), "the server answers {status}");
    Ok(())
}

fn client(settings: &RecordSettings) -> anyhow::Result<Client> {
    // The one that kube uses. It fails if there is one already, which is the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut client = Client::builder().timeout(REQUEST_TIMEOUT).https_only(true).default_headers(headers(settings)?);
    if let Some(path) = &settings.upload_ca_file {
        let certificates =
            Certificate::from_pem_bundle(read(path)?.as_bytes()).with_context(|| path.display().to_string())?;
        client = client.tls_certs_only(certificates);
    }
    client = match &settings.upload_proxy {
        Some(proxy) => client.proxy(Proxy::all(proxy).map_err(reqwest::Error::without_url)?),
        None => client.no_proxy(),
    };
    Ok(client.build()?)
}

/// Those of the file, one a line as `Name: value`, and the bearer token. The files are read for each attempt, as both may be renewed.
fn headers(settings: &RecordSettings) -> anyhow::Result<HeaderMap> {
    let mut lines = settings.upload_headers_file.as_deref().map(read).transpose()?.unwrap_or_default();
    if let Some(path) = &settings.upload_token_file {
        lines.extend(["\nAuthorization: Bearer ", read(path)?.trim()]);
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
