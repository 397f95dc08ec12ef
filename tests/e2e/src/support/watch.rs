//! Follows a Node through the API server's watch: every state of it, with the moment at which it arrived.

use std::io::BufReader;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::control_plane::ControlPlane;
use super::{WAIT, kinds};

/// How long to wait before kubectl is started again.
const PAUSE: Duration = Duration::from_millis(300);

/// A running `kubectl get node --watch`. It is started again when the API server goes away; the Node's state then
/// arrives again.
#[derive(Debug)]
pub struct NodeWatch {
    record: Arc<Record>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Record {
    states: Mutex<Vec<(Instant, Value)>>,
    arrived: Condvar,
    kubectl: Mutex<Option<Child>>,
    has_ended: AtomicBool,
}

impl NodeWatch {
    /// Starts to watch the Node of that name, which need not exist.
    pub fn start(plane: Arc<ControlPlane>, node: &str) -> Result<Self> {
        let record = Arc::new(Record::default());
        let (into, selector) = (Arc::clone(&record), format!("--field-selector=metadata.name={node}"));
        let follow = move || {
            loop {
                let _ = into.follow(&plane, &selector); // an error is as good as an end: it is started again
                into.kill();
                if into.has_ended.load(Ordering::Relaxed) {
                    return;
                }
                sleep(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name(format!("watch-{node}")).spawn(follow)?;
        Ok(Self { record, thread: Some(thread) })
    }

    /// The first state that arrived after `from`, or is yet to arrive, from which `read` makes something.
    /// On a guest it waits longer than `timeout`.
    pub fn wait_since<T>(
        &self,
        from: Instant,
        timeout: Duration,
        read: impl Fn(Instant, &Value) -> Option<T>,
    ) -> Result<T> {
        let timeout = timeout * kinds::current().patience();
        let end = Instant::now() + timeout;
        let mut states = self.record.states();
        let mut looked_at = 0;
        loop {
            let mut fresh = states[looked_at..].iter().filter(|(at, _)| *at > from);
            if let Some(found) = fresh.find_map(|(at, node)| read(*at, node)) {
                return Ok(found);
            }
            looked_at = states.len();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("no such state of the Node within {} s", timeout.as_secs());
            }
            let waited = self.record.arrived.wait_timeout(states, left);
            states = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The state that arrived last.
    pub fn last(&self) -> Option<Value> {
        self.record.states().last().map(|(_, node)| node.clone())
    }

    /// Waits for a state after `from` in which the Node is Ready.
    pub fn wait_ready(&self, from: Instant) -> Result<()> {
        let is_ready = |node: &Value| {
            let conditions = node.pointer("/status/conditions")?.as_array()?;
            conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True").then_some(())
        };
        self.wait_since(from, WAIT, |_, node| is_ready(node)).context("waiting for the Node to be Ready")
    }

    /// The states that arrived after `from`; all, if there is none.
    pub fn since(&self, from: Option<Instant>) -> Vec<(Instant, Value)> {
        let states = self.record.states();
        states.iter().filter(|(at, _)| from.is_none_or(|from| *at > from)).cloned().collect()
    }
}

impl Record {
    fn states(&self) -> MutexGuard<'_, Vec<(Instant, Value)>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs kubectl until it ends.
    fn follow(&self, plane: &ControlPlane, selector: &str) -> Result<()> {
        let mut kubectl = plane.kubectl_command()?;
        kubectl.args(["get", "nodes", selector, "--watch", "-o", "json"]);
        let mut child = kubectl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = child.stdout.take().context("its output")?;
        *self.kubectl.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        if self.has_ended.load(Ordering::Relaxed) {
            self.kill();
        }
        for node in serde_json::Deserializer::from_reader(BufReader::new(output)).into_iter::<Value>() {
            let node = node?;
            self.states().push((Instant::now(), node));
            self.arrived.notify_all();
        }
        Ok(())
    }

    fn kill(&self) {
        if let Some(child) = &mut *self.kubectl.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        self.record.has_ended.store(true, Ordering::Relaxed);
        self.record.kill();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
