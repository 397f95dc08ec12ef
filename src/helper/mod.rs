//! The privileged side: reads what only root may read, for the agent, through a few fixed verbs.
//!
//! It starts nothing itself (an exec plugin is run by a service of its own: [`plugin`]), writes in a folder of its own alone,
//! knows nothing of the cluster nor of systemd, and runs without tokio: a thread for each of at
//! most four connections, of two more that follow the configuration and two that ask for the runtime again, and one for the
//! disk (`lane`), so that a verb that blocks in the kernel blocks nobody else. One file a verb: [`kubelet`], [`credential`],
//! [`certificate`], [`clock`], [`fork`], [`journal`], [`config`] (which follows the files with [`watch`]), [`runtime`], [`storage`]
//! (with `canary`), [`boot`], [`bootstrap`] and [`pods`]; [`protocol`] is what both sides speak (a `line` at a time, without secrets: `mask`), [`server`]
//! answers, [`activation`] and [`socket`] get the listening socket.

pub mod activation;
pub mod boot;
pub mod bootstrap;
mod canary;
pub mod certificate;
pub mod clock;
pub mod config;
pub mod configured;
pub mod credential;
pub mod fork;
pub mod journal;
pub mod kubelet;
mod lane;
mod line;
mod mask;
pub mod plugin;
pub mod pods;
pub mod process;
pub mod protocol;
pub mod runtime;
pub mod server;
pub mod socket;
pub mod storage;
#[cfg(test)]
pub(crate) mod testing;
pub mod watch;

/// The one kubeconfig of the agent's own for which the helper has an exec plugin run: root's, like the program. Any file
/// that the agent may name would be too much: an administrator's kubeconfig is a file, too.
pub const OWN_KUBECONFIG: &str = "/etc/nodevigil/kubeconfig";

/// Where the helper listens: `ListenStream=` of `nodevigil-helper.socket`.
pub const SOCKET_PATH: &str = "/run/nodevigil-helper.sock";

/// Where exec plugins are had run: `ListenStream=` of `nodevigil-plugin.socket`.
pub const PLUGIN_SOCKET_PATH: &str = "/run/nodevigil-plugin.sock";
