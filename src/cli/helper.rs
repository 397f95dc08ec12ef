//! `nodevigil helper`: the privileged helper, started by its socket unit or, with `--socket`, by hand.
#![expect(
    clippy::disallowed_methods,
    reason = "cli/ is where the environment is read: systemd hands the socket over in $LISTEN_PID and $LISTEN_FDS"
)]

use std::{env, path::PathBuf};

use anyhow::Context;
use nix::unistd::User;
use tracing::{info, warn};

use crate::{
    helper::{
        activation::Activation,
        protocol::VERBS,
        server::{Peers, Server},
        socket,
    },
    host::{
        files::Root,
        journal::{self, Sink},
    },
};

/// Reads what only root may read, for the agent (started by nodevigil-helper.socket)
#[derive(Debug, clap::Args)]
#[command(after_help = verbs())]
pub struct Helper {
    /// Listen here instead of on the socket that systemd hands over
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// The user that may ask, beside root
    #[arg(long, value_name = "NAME", default_value = "nodevigil")]
    pub allow_user: String,

    /// Read the configuration from these files and folders instead of the default ones, as `nodevigil run` does
    #[arg(long, value_name = "PATH")]
    pub config: Vec<PathBuf>,

    /// What to log: a level, or TARGET=LEVEL,…
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log_level: String,
}

impl Helper {
    /// Answers the agent until the process is ended.
    pub fn run(self) -> anyhow::Result<()> {
        let activation = Activation {
            listen_pid: env::var("LISTEN_PID").ok(),
            listen_fds: env::var("LISTEN_FDS").ok(),
        };
        let user = User::from_name(&self.allow_user)
            .with_context(|| format!("look up user {}", self.allow_user))?;
        let listener = match &self.socket {
            Some(path) => socket::bind_at(path, user.as_ref().map(|user| user.gid))?,
            None => activation.take(
                "start nodevigil-helper.socket, or give --socket PATH to run without systemd",
            )?,
        };
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let _log = journal::init(Sink::detect(no_color), &self.log_level)?;
        if user.is_none() {
            // Not an error: a container without that user still has root.
            warn!(
                user = self.allow_user,
                "no such user: only root may ask the helper"
            );
        }
        let mut uids = vec![0];
        uids.extend(user.map(|user| user.uid.as_raw()));
        info!(user = self.allow_user, "the helper answers");
        Err(Server::new(Root::default(), self.config, Peers::only(uids)).serve(&listener))
            .context("accept a connection")
    }
}

/// The verbs, for the end of `--help`.
fn verbs() -> String {
    let width = VERBS.iter().map(|verb| verb.name.len()).max().unwrap_or(0);
    let lines = VERBS
        .iter()
        .map(|verb| format!("\n  {:width$}  {}", verb.name, verb.sentence));
    format!("Verbs:{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    #[test]
    fn the_help_lists_every_verb() {
        let help = Helper::augment_args(Command::new("helper"))
            .render_help()
            .to_string();
        // A sentence may go on in a second line.
        let words: Vec<&str> = help.split_whitespace().collect();
        let flowing = words.join(" ");
        for verb in VERBS {
            let line = format!("{} {}", verb.name, verb.sentence);
            assert!(flowing.contains(&line), "{help}");
        }
    }

    #[test]
    fn without_a_socket_it_says_what_to_do() {
        let command = Helper::augment_args(Command::new("helper"));
        let matches = command.try_get_matches_from(["helper"]).unwrap();
        let helper = Helper::from_arg_matches(&matches).unwrap();
        assert_eq!(helper.allow_user, "nodevigil");
        let error = helper.run().unwrap_err().to_string();
        assert!(
            error.contains("nodevigil-helper.socket") && error.contains("--socket"),
            "{error}"
        );
    }
}
