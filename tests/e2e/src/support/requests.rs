//! Requests to the API server with the credential of a kubeconfig, by curl(1) through `kubectl proxy`: kubectl itself would read an object
//! before it patches it, and be refused by that.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::daemon::Daemon;
use super::{namespaces, programs, wait_until};

/// Somebody whom the API server knows by a kubeconfig.
#[derive(Debug)]
pub struct Requester {
    port: u16,
    _proxy: Daemon,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Such as GET.
    pub method: &'static str,
    /// With the query.
    pub path: String,
    /// Of the body.
    pub content_type: &'static str,
    /// `Value::Null` is no body.
    pub body: Value,
    /// As which user the API server is asked to treat the requester; empty for the requester itself.
    pub as_user: &'static str,
}

impl Requester {
    /// Starts the proxy; returns when it answers. `name` is unique in the run.
    pub fn start(name: &str, kubeconfig: &str) -> Result<Self> {
        let directory = namespaces::work().join(format!("requests-{name}"));
        fs::create_dir_all(&directory)?;
        let (file, port) = (directory.join("kubeconfig"), namespaces::port());
        fs::write(&file, kubeconfig)?;
        let arguments = [
            format!("--kubeconfig={}", file.display()),
            "proxy".to_owned(),
            "--disable-filter".to_owned(),
            format!("--port={port}"),
        ];
        let proxy = Daemon::start(&directory, &programs::kubernetes("kubectl")?, &arguments)?;
        let requester = Self { port, _proxy: proxy };
        let version = Request::get("/version");
        wait_until("kubectl proxy", Duration::from_secs(20), || Ok(requester.send(&version).ok()))?;
        Ok(requester)
    }

    /// Sends a request; returns the status code and the answer.
    pub fn send(&self, request: &Request) -> Result<(u16, Value)> {
        let Request { method, path, content_type, body, as_user } = request;
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--globoff", "--max-time", "20", "--write-out", "\n%{http_code}"])
            .args(["--request", method, "--header", &format!("Content-Type: {content_type}"), "--data-binary", "@-"])
            .arg(format!("http://127.0.0.1:{}{path}", self.port));
        if !as_user.is_empty() {
            curl.args(["--header", &format!("Impersonate-User: {as_user}")]);
        }
        let mut curl = curl
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting curl")?;
        let text = if body.is_null() { String::new() } else { body.to_string() };
        curl.stdin.take().context("curl's input")?.write_all(text.as_bytes())?;
        let done = curl.wait_with_output()?;
        ensure!(done.status.success(), "{method} {path}: {}", String::from_utf8_lossy(&done.stderr).trim());
        let output = String::from_utf8(done.stdout)?;
        let (answer, code) = output.rsplit_once('\n').context("curl prints the status code in a line of its own")?;
        let answer = serde_json::from_str(answer).unwrap_or_else(|_| Value::String(answer.to_owned()));
        Ok((code.parse()?, answer))
    }
}

impl Request {
    /// A request that reads.
    pub fn get(path: &str) -> Self {
        Self { method: "GET", path: path.to_owned(), content_type: "application/json", body: Value::Null, as_user: "" }
    }

    /// The same request as a dry run.
    pub fn dry_run(&self) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let dry_run = if self.method == "GET" { String::new() } else { format!("{separator}dryRun=All") };
        Self { path: format!("{}{dry_run}", self.path), ..self.clone() }
    }
}
