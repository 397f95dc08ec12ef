//! `nodevigil plugin`: runs this node's exec plugin once, started by its socket unit.
#![expect(
    clippy::disallowed_methods,
    reason = "cli/ is where the environment is read: systemd hands the socket over in $LISTEN_PID and $LISTEN_FDS"
)]

use std::env;

use anyhow::Context;

use crate::{
    helper::{activation::Activation, plugin::service},
    host::{
        files::Root,
        journal::{self, Sink},
    },
};

/// Runs the exec plugin of this node's kubeconfig for the helper (started by nodevigil-plugin.socket)
///
/// There is nothing to be said to it: what is run is found out by the rules that the helper has.
#[derive(Debug, clap::Args)]
pub struct Plugin {}

impl Plugin {
    /// Answers one connection.
    pub fn run(self) -> anyhow::Result<()> {
        let Self {} = self;
        let activation = Activation {
            listen_pid: env::var("LISTEN_PID").ok(),
            listen_fds: env::var("LISTEN_FDS").ok(),
        };
        let listener = activation.take("start nodevigil-plugin.socket, which starts this")?;
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let _log = journal::init(Sink::detect(no_color), "info")?;
        service::serve(&Root::default(), &listener).context("accept a connection")
    }
}
