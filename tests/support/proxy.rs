//! A TLS proxy in front of the real API server that fails as it is told, and counts what it is asked.
//!
//! It ends the client's TLS with a certificate of the cluster's authority and asks for the client's own. A client
//! certificate does not pass through a proxy that ends TLS: the proxy hands requests on with the certificate of the
//! one client that it stands for, so that to the API server they are that client's. Bodies are streamed.

mod answer;
pub(crate) mod fault;
mod front;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use kube::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

pub(crate) use fault::Fault;
use front::Faces;

use super::control_plane::ControlPlane;
use super::{api, enter};

/// More than any run asks for; what comes beyond is served and not recorded.
const MAX_RECORDED: usize = 100_000;

/// A request that reached the proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// When.
    pub(crate) at: Instant,
    /// On which connection.
    pub(crate) connection: usize,
    /// `list`, `watch`, `patch status`, `patch`, `event`, `get`, `other`.
    pub(crate) kind: &'static str,
}

/// What came so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    /// When each connection was accepted.
    pub(crate) connections: Vec<Instant>,
    /// Every request.
    pub(crate) requests: Vec<Asked>,
}

/// A running proxy. Its connections end when it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What its connections share.
struct Shared {
    fault: watch::Sender<Option<Fault>>,
    traffic: Mutex<Traffic>,
    /// Words of the requests and what stands for them at the API server.
    words: OnceLock<&'static [(&'static str, &'static str)]>,
    faces: Faces,
    upstream: Client,
}

impl Shared {
    /// A new connection: its number.
    fn connection(&self) -> usize {
        let mut traffic = self.lock();
        if traffic.connections.len() < MAX_RECORDED {
            traffic.connections.push(Instant::now());
        }
        traffic.connections.len() - 1
    }

    fn request(&self, connection: usize, kind: &'static str) {
        let mut traffic = self.lock();
        if traffic.requests.len() < MAX_RECORDED {
            let at = Instant::now();
            traffic.requests.push(Asked {
                at,
                connection,
                kind,
            });
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// A proxy at `host`, an IP address of this run, for the client that has `kubeconfig`.
    pub(crate) fn start(plane: &ControlPlane, kubeconfig: &Value, host: &str) -> Result<Self> {
        let faces = Faces::new(plane.authority(), host)?;
        let address = SocketAddr::new(host.parse()?, enter::port());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (listener, upstream) = runtime.block_on(async {
            let listener = TcpListener::bind(address).await.context("listening")?;
            anyhow::Ok((listener, api::client(kubeconfig).await?))
        })?;
        let shared = Arc::new(Shared {
            fault: watch::Sender::new(None),
            traffic: Mutex::default(),
            words: OnceLock::new(),
            faces,
            upstream,
        });
        let (stop, stopped) = oneshot::channel();
        let listening = front::listen(Arc::clone(&shared), address, listener);
        let run = move |runtime: Runtime| {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = listening => {}
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name(format!("proxy-{host}"))
            .spawn(move || run(runtime))?;
        Ok(Self {
            address,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The client's kubeconfig, with the proxy in the API server's place.
    pub(crate) fn kubeconfig(&self, of_client: &Value) -> Result<Value> {
        let mut changed = of_client.clone();
        let server = changed
            .pointer_mut("/clusters/0/cluster/server")
            .ok_or_else(|| anyhow!("a kubeconfig names a server"))?;
        *server = Value::String(self.url());
        Ok(changed)
    }

    /// Fails from now on, or no longer; returns when that began.
    pub(crate) fn set(&self, fault: Option<Fault>) -> Instant {
        self.shared.fault.send_replace(fault);
        Instant::now()
    }

    /// From now on replaces words in the paths and bodies of requests, so that the client writes under other names.
    pub(crate) fn rename(&self, words: &'static [(&'static str, &'static str)]) {
        let _ = self.shared.words.set(words); // the first call counts
    }

    /// What came so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.shared.lock().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
