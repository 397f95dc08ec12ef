//! `nodevigil doctor`: what works from here, one line a capability. The first thing to run when nothing appears.
//!
//! The checks run on a thread of their own and put their lines into a channel, so that a disk or a bus that hangs ends in a
//! line that says so, and doctor in [`DEADLINE`].
#![expect(
    clippy::disallowed_methods,
    reason = "a subcommand reads the environment for itself"
)]

mod cluster;
mod evidence;
mod host;
mod line;
mod memory;
mod sight;
mod writes;

use std::{
    env,
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::Context;
use nix::unistd::{Uid, User};
use serde_json::json;

use self::line::{Line, Lines, State};
use super::status::print;
use crate::{
    clock::Clock,
    config::{self, Settings},
    host::{files::Root, helper::HelperClient},
    status::{self, StatusFile},
};

/// All checks together. Each has a deadline of its own besides; their sum is below this one.
const DEADLINE: Duration = Duration::from_secs(15);
/// The version of what `--json` prints.
const JSON_VERSION: u32 = 1;

/// As whom the agent runs (`nodevigil.service`).
const AGENT_USER: &str = "nodevigil";

const EXIT_GOOD: u8 = 0;
const EXIT_MISSING: u8 = 1;
const EXIT_CANNOT_RUN: u8 = 2;

/// Show what works from here: identity, permissions, helper, bus, kernel interfaces; one line each.
///
/// Run it as root on the node: another user cannot read the agent's credential. Nothing is changed, on the host or in the
/// cluster. Exit code: 0 all well, 1 something essential is missing, 2 it could not run.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// As for `run`: read this file, or the *.toml of this folder, instead of the default places
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Vec<PathBuf>,
    /// As for `run`: the agent's own kubeconfig
    #[arg(long, value_name = "FILE", value_parser = config::absolute_path)]
    kubeconfig: Option<PathBuf>,
    /// As for `run`: the Node's name
    #[arg(long, value_name = "NAME", value_parser = config::node_name)]
    node_name: Option<String>,
}

/// What the checks know of the place they run in.
struct Ground {
    root: Root,
    settings: Settings,
    helper: HelperClient,
    /// The daemon's own word, if it runs.
    daemon: Option<StatusFile>,
    user: Whom,
}

/// As whom doctor runs.
#[derive(Debug, Clone)]
struct Whom {
    uid: u32,
    name: String,
}

impl Whom {
    fn ask() -> Self {
        let uid = Uid::effective();
        let user = User::from_uid(uid).ok().flatten();
        Self {
            uid: uid.as_raw(),
            name: user.map_or_else(|| format!("uid {uid}"), |user| user.name),
        }
    }

    fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether what is closed to it is so by the way of things: root and the agent's own user must be let in.
    fn is_stranger(&self) -> bool {
        !self.is_root() && self.name != AGENT_USER
    }
}

impl Doctor {
    /// Prints the lines as they come, and says by the exit code how things are.
    ///
    /// # Errors
    /// When standard output cannot be written to.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (user, json) = (Whom::ask(), self.json);
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = !no_color && io::stdout().is_terminal();
        let (sender, lines) = mpsc::channel();
        let whom = user.clone();
        let checks = thread::Builder::new()
            .name("checks".to_owned())
            .spawn(move || self.check(&Lines(sender), whom));
        if let Err(error) = checks {
            print(
                &mut io::stderr().lock(),
                &format!("nodevigil: start the checks: {error}\n"),
            )?;
            return Ok(ExitCode::from(EXIT_CANNOT_RUN));
        }
        let mut seen = Vec::new();
        let end = Clock.now().uptime + DEADLINE;
        loop {
            let left = end.saturating_sub(Clock.now().uptime);
            let line = match lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => late(&seen),
            };
            if !json {
                print(&mut io::stdout().lock(), &line.show(colour))?;
            }
            let is_last = line.check == "doctor";
            seen.push(line);
            if is_last {
                break;
            }
        }
        let bad = seen.iter().any(|line| line.state == State::Fail);
        let text = if json {
            as_json(&seen, &user, !bad)?
        } else {
            summary(&seen, &user)
        };
        print(&mut io::stdout().lock(), &text)?;
        Ok(ExitCode::from(if bad { EXIT_MISSING } else { EXIT_GOOD }))
    }

    fn check(self, lines: &Lines, user: Whom) {
        let root = Root::default();
        let mut settings = match config::load(&root, &self.config) {
            Ok((settings, files)) => {
                let text = match files.len() {
                    0 => "no file has anything to say: defaults".to_owned(),
                    _ => files_read(&files),
                };
                lines.ok("config", text);
                settings
            }
            Err(error) => {
                lines.fail(
                    "config",
                    error.to_string(),
                    "the daemon does not start with it",
                );
                Settings::default()
            }
        };
        settings.node.name = self.node_name.or(settings.node.name);
        settings.kubernetes.kubeconfig = self.kubeconfig.or(settings.kubernetes.kubeconfig);
        let runtime_dir = status::runtime_dir(env::var_os("RUNTIME_DIRECTORY").as_deref());
        let daemon = host::daemon(lines, &root, &runtime_dir);
        let ground = Ground {
            root,
            settings,
            helper: HelperClient::default(),
            daemon,
            user,
        };
        let kubelet = host::look(lines, &ground);
        match tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => {
                runtime.block_on(async {
                    let facts = host::helper(lines, &ground, kubelet.pid).await;
                    sight::look(lines, &ground, kubelet.pid, facts.as_ref()).await;
                    if facts.is_some() {
                        evidence::look(lines, &ground, kubelet.invocation).await;
                    }
                    cluster::look(lines, &ground, facts).await;
                });
                runtime.shutdown_background();
            }
            Err(error) => lines.fail("api", format!("not asked: {error}"), ""),
        }
    }
}

fn files_read(files: &[PathBuf]) -> String {
    let names: Vec<_> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    names.join(", ")
}

/// The line that ends it all.
fn late(seen: &[Line]) -> Line {
    let after = seen.last().map_or("the start", |line| line.check);
    Line {
        check: "doctor",
        state: State::Fail,
        text: format!(
            "what follows `{after}` has not ended within {} s",
            DEADLINE.as_secs()
        ),
        advice: Some("the host may hang there, and the agent with it".to_owned()),
    }
}

fn summary(seen: &[Line], user: &Whom) -> String {
    let count = |state| seen.iter().filter(|line| line.state == state).count();
    let (bad, lame) = (count(State::Fail), count(State::Warn));
    let mut text = match (bad, lame) {
        (0, 0) => "all well".to_owned(),
        (0, lame) => format!("nothing essential is missing; {lame} could be better"),
        (bad, _) => format!("{bad} of {} are missing", seen.len()),
    };
    if !user.is_root() {
        text += "; root sees more, such as the agent's credential: you are ";
        text += &user.name;
    }
    text + "\n"
}

fn as_json(seen: &[Line], user: &Whom, ok: bool) -> anyhow::Result<String> {
    let value = json!({
        "version": JSON_VERSION,
        "nodevigil": env!("CARGO_PKG_VERSION"),
        "ok": ok,
        "user": {"uid": user.uid, "name": user.name},
        "checks": seen,
    });
    let text = serde_json::to_string_pretty(&value).context("write JSON")?;
    Ok(text + "\n")
}
