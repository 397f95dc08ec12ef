//! Boots real Kubernetes nodes and control planes on this machine for the programs in `tests/node`: the tests, the
//! demonstration and the bench.
//!
//! A program calls [`enter::enter`] before anything else. From there on it is PID 1 of namespaces of its own, so that
//! etcd, API servers, nodes, mounts and files end with it, however it ends. [`control_plane::ControlPlane`] is the
//! cluster, [`node_builder::NodeBuilder`] boots a node under systemd, [`kubeadm`] has one born by cloud-init and
//! `kubeadm join`, [`watch::NodeWatch`] and [`audit`] witness what reached the API server. [`proxy::Proxy`]
//! stands in front of the API server and fails as it is told; [`lone_agent::LoneAgent`] is an agent without a node around it.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::exit,
    dead_code,
    reason = "the harness stands outside the agent, whose doors these are; and each program uses a part of it"
)]

pub(crate) mod api;
pub(crate) mod audit;
pub(crate) mod boot;
pub(crate) mod bus_flood;
pub(crate) mod cgroups;
pub(crate) mod control_plane;
pub(crate) mod enter;
pub(crate) mod kmsg;
pub(crate) mod kubeadm;
pub(crate) mod leftovers;
pub(crate) mod lone_agent;
pub(crate) mod machine;
pub(crate) mod manifests;
pub(crate) mod node;
pub(crate) mod node_builder;
pub(crate) mod node_files;
pub(crate) mod pki;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod rows;
pub(crate) mod stats;
pub(crate) mod syscalls;
pub(crate) mod tokens;
pub(crate) mod tools;
pub(crate) mod trust;
pub(crate) mod watch;
pub(crate) mod wire;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Writes a line to standard error. A closed standard error is nobody's failure.
pub(crate) fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// The checkout these tests were built from.
pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Asks every 20 ms until there is an answer; an error ends the wait at once.
pub(crate) fn wait_until<T>(
    what: &str,
    timeout: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + timeout;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > end {
            bail!("waited {timeout:?} for {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
