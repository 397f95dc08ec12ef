//! Witnesses a Node through the API server's watch: every event with the moment it arrived.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::oneshot;

use super::api;

/// An event (`{"type": …, "object": …}`) and when it arrived.
pub(crate) type Arrival = (Instant, Value);

/// A running watch of one Node. It reconnects when the API server goes away; the Node's state then arrives anew, as
/// an event `ADDED`.
pub(crate) struct NodeWatch {
    record: Arc<Record>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Record {
    events: Mutex<Vec<Arrival>>,
    arrived: Condvar,
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeWatch {
    /// Starts to watch; returns when the API server has accepted the watch.
    pub(crate) fn start(kubeconfig: Value, node: &str) -> Result<Self> {
        Self::start_keeping(kubeconfig, node, |event| event)
    }

    /// The same, and of each event only what `keep` makes of it is kept: for thousands of them.
    pub(crate) fn start_keeping(
        kubeconfig: Value,
        node: &str,
        keep: fn(Value) -> Value,
    ) -> Result<Self> {
        let path = format!("/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D{node}");
        Self::start_at(kubeconfig, node, path, keep)
    }

    /// The same for what belongs to a Node and stands at that path, which asks for a watch.
    pub(crate) fn start_at(
        kubeconfig: Value,
        node: &str,
        path: String,
        keep: fn(Value) -> Value,
    ) -> Result<Self> {
        let record = Arc::new(Record::default());
        let (stop, stopped) = oneshot::channel();
        let (connected, ready) = channel();
        let into = Arc::clone(&record);
        let thread = std::thread::Builder::new()
            .name(format!("watch-{node}"))
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let Ok(runtime) = runtime else { return };
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = follow(&kubeconfig, &path, &into, keep, &connected) => {}
                    }
                });
            })?;
        let watch = Self {
            record,
            stop: Some(stop),
            thread: Some(thread),
        };
        ready
            .recv_timeout(Duration::from_secs(20))
            .context("the API server did not accept a watch")?;
        Ok(watch)
    }

    /// The first event, of all so far and those to come, for which `wanted` holds.
    pub(crate) fn wait_for(
        &self,
        timeout: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Arrival> {
        self.search(None, timeout, wanted)
    }

    /// The same, among the events that arrived after `from`.
    pub(crate) fn wait_since(
        &self,
        from: Instant,
        timeout: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Arrival> {
        self.search(Some(from), timeout, wanted)
    }

    /// The events that arrived after `from`.
    pub(crate) fn since(&self, from: Instant) -> Vec<Arrival> {
        self.record
            .lock()
            .iter()
            .filter(|(at, _)| *at > from)
            .cloned()
            .collect()
    }

    /// All events so far.
    pub(crate) fn all(&self) -> Vec<Arrival> {
        self.record.lock().clone()
    }

    fn search(
        &self,
        from: Option<Instant>,
        timeout: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Arrival> {
        let end = Instant::now() + timeout;
        let mut events = self.record.lock();
        let mut looked_at = 0;
        loop {
            let fresh = events[looked_at..]
                .iter()
                .filter(|(at, _)| from.is_none_or(|from| *at > from));
            if let Some(found) = fresh.clone().find(|(_, event)| wanted(event)) {
                return Ok(found.clone());
            }
            looked_at = events.len();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let last = events
                    .last()
                    .map_or(Value::Null, |(_, event)| conditions(event));
                bail!(
                    "no such event in {timeout:?}, of {looked_at} in all; the last conditions: {last}"
                );
            }
            events = self
                .record
                .arrived
                .wait_timeout(events, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn conditions(event: &Value) -> Value {
    event
        .pointer("/object/status/conditions")
        .cloned()
        .unwrap_or_default()
}

async fn follow(
    kubeconfig: &Value,
    path: &str,
    record: &Record,
    keep: fn(Value) -> Value,
    connected: &Sender<()>,
) {
    let Ok(client) = api::client(kubeconfig).await else {
        return;
    };
    loop {
        let _ = stream(&client, path, record, keep, connected).await; // an end is as good as an error: connect anew
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn stream(
    client: &Client,
    path: &str,
    record: &Record,
    keep: fn(Value) -> Value,
    connected: &Sender<()>,
) -> Result<()> {
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    if !response.status().is_success() {
        bail!("watch refused: {}", response.status());
    }
    let _ = connected.send(());
    let mut body = response.into_body();
    let mut pending: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let arrived = Instant::now();
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let event = keep(serde_json::from_slice(&line)?);
            record.lock().push((arrived, event));
            record.arrived.notify_all();
        }
    }
    Ok(())
}
