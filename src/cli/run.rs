//! `nodevigil run`: the daemon. Reads the environment and the configuration, then hands everything to the loop.
#![expect(
    clippy::disallowed_methods,
    reason = "the environment is read here once and handed on"
)]

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use tracing::{debug, info, warn};

use crate::{
    agent::{Agent, Outside, State},
    clock::Clock,
    config::{self, Keeper, Settings, Written},
    door::heap,
    host::{
        files::Root,
        helper::HelperClient,
        journal::{self, Kind, Sink},
        memory,
        notify::{Notifier, watchdog_interval},
    },
    ledger, status,
};

/// Watch this node's kubelet and publish what is found (the daemon).
#[derive(Debug, Args)]
pub struct Run {
    /// Read this file, or the *.toml of this folder, instead of the default places; may be given again
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Vec<PathBuf>,
    /// The agent's own kubeconfig [default: /etc/nodevigil/kubeconfig if it exists, else the kubelet's credential]
    #[arg(long, value_name = "FILE", value_parser = config::absolute_path)]
    kubeconfig: Option<PathBuf>,
    /// The Node's name [default: what the kubelet registers as]
    #[arg(long, value_name = "NAME", value_parser = config::node_name)]
    node_name: Option<String>,
    /// What to log: a level, or TARGET=LEVEL,…
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_level: String,
}

impl Run {
    /// Runs until it is asked to stop.
    ///
    /// # Errors
    /// When the daemon cannot start; a bad configuration is reported here and is exit code 78.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let root = Root::default();
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let _log = journal::init(Sink::detect(no_color), &self.log_level)?;
        let keeper = state_dir().map(|dir| Keeper::new(root.clone(), &dir, &self.config));
        let loaded = config::load_or_last_good(&root, &self.config, keeper.as_ref())?;
        let mut settings = loaded.settings;
        match &settings.stand_in {
            None => {
                let sources: Vec<&Path> = loaded.files.iter().map(|file| &*file.path).collect();
                info!(message_id = Kind::Config.id(), files = ?sources, "configuration read");
            }
            Some(stand_in) => {
                warn!(
                    message_id = Kind::ConfigRefused.id(),
                    why = stand_in.why,
                    "{stand_in}"
                );
            }
        }
        let to_keep = keeper.filter(|_| settings.stand_in.is_none());
        settings.node.name = self.node_name.or(settings.node.name);
        settings.kubernetes.kubeconfig = self.kubeconfig.or(settings.kubernetes.kubeconfig);

        // One thread, and at most one more for what may block: each has a stack that is locked in memory.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            // Kept for good: to make a thread takes memory, which may be short when it is wanted.
            .thread_keep_alive(Duration::from_hours(24 * 365))
            .thread_stack_size(256 * 1024)
            .build()
            .context("start the event loop")?;
        let locked = lock_memory();
        runtime.block_on(async {
            let agent = prepare(root, settings, locked)?;
            if let Some(keeper) = to_keep {
                keep(keeper, loaded.files);
            }
            // What the loop holds lies on the heap: some 16 KiB, which the stack would carry through every call.
            let run = Box::pin(agent.run());
            heap::keep_large_pieces();
            run.await;
            anyhow::Ok(())
        })?;
        // A blocking call that hangs must not keep us from ending.
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }
}

/// The folder for what outlives a boot; `None` if systemd has made none.
fn state_dir() -> Option<PathBuf> {
    let dirs = env::var_os("STATE_DIRECTORY")?;
    let dir = env::split_paths(&dirs).next()?;
    dir.is_absolute().then_some(dir)
}

/// On a thread of its own, which ends: the disk may hang, and then neither the start waits for it nor any write to the runtime
/// folder, which is the blocking worker's.
fn keep(keeper: Keeper, files: Vec<Written>) {
    let now = Clock.now().wall;
    let write = move || {
        if let Err(error) = keeper.keep(&files, now) {
            debug!(%error, "the configuration could not be kept for a start with one that cannot be used");
        }
    };
    let thread = thread::Builder::new()
        .name("keep-config".to_owned())
        .stack_size(256 * 1024);
    if let Err(error) = thread.spawn(write) {
        debug!(%error, "the configuration could not be kept");
    }
}

fn lock_memory() -> Option<u64> {
    match memory::lock() {
        Ok(bytes) => {
            info!(
                message_id = Kind::LockedPages.id(),
                bytes, "memory is locked"
            );
            Some(bytes)
        }
        Err(why) => {
            warn!(message_id = Kind::LockedPages.id(), error = %why, "memory is not locked: under memory pressure the agent may be slow");
            None
        }
    }
}

fn prepare(root: Root, settings: Settings, locked: Option<u64>) -> anyhow::Result<Agent> {
    let runtime_dir = status::runtime_dir(env::var_os("RUNTIME_DIRECTORY").as_deref());
    root.create_dir_all(&runtime_dir)?;
    let hostname = nix::unistd::gethostname().context("read the host's name")?;
    let hostname = hostname.to_string_lossy();
    let var = |name| env::var(name).ok();
    let watchdog = watchdog_interval(
        var("WATCHDOG_USEC").as_deref(),
        var("WATCHDOG_PID").as_deref(),
        std::process::id(),
    );
    let ledger = ledger::Place::new(root.clone(), &runtime_dir);
    let clock = Clock;
    let mut state = State::new(
        settings.clone(),
        &hostname,
        ledger.load(),
        watchdog,
        clock.now(),
    );
    state.set_locked_bytes(locked);
    info!(
        message_id = Kind::Started.id(),
        version = env!("CARGO_PKG_VERSION"),
        node = state.node_name(),
        "nodevigil observes {}",
        settings.kubelet.unit
    );
    let outside = Outside {
        root,
        clock,
        helper: HelperClient::default(),
        notifier: Notifier::new(env::var_os("NOTIFY_SOCKET").as_deref())?,
        ledger,
        runtime_dir,
    };
    Agent::new(state, settings, outside)
}
