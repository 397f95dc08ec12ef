//! What the agent knows, exposed as metrics: on its socket when somebody asks, as a text file when it is due.

use std::{path::PathBuf, sync::atomic::Ordering, time::Duration};

use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{Agent, event::Effect, state::State};
use crate::{
    clock::Now,
    cluster::publisher::Publisher,
    config::SocketPlace,
    health::{ConditionType, suppress::Suppressor},
    host::{
        journal::{self, Kind},
        own, scrapes, systemd, textfile,
    },
    metrics::{self, Format, HelperTally, Peer, Process, Snapshot},
};

/// The socket's name in the runtime folder.
pub const SOCKET_NAME: &str = "metrics.sock";

/// What the state does not know.
struct Around {
    helper: HelperTally,
    notifications_dropped: u64,
    process: Option<Process>,
}

impl Agent {
    /// Opens the socket; nobody misses it if it cannot be had.
    pub(super) fn expose_on_socket(&mut self) {
        let place = match &self.settings.metrics.socket {
            SocketPlace::Off => return,
            SocketPlace::Default => self.outside.runtime_dir.join(SOCKET_NAME),
            SocketPlace::At(path) => path.clone(),
        };
        let mode = self.settings.metrics.socket_mode;
        match scrapes::listen(&self.outside.root, &place, mode) {
            Ok(listener) => {
                let (sender, scrapes) = mpsc::channel(1);
                self.scrapes = scrapes;
                self.tasks.spawn(scrapes::serve(listener, sender));
                info!(message_id = Kind::Metrics.id(), socket = %place.display(), "metrics are at {}", place.display());
                self.state.metrics_socket = Some(place);
            }
            Err(why) => {
                warn!(message_id = Kind::Metrics.id(), error = %why, "no metrics on a socket: {why}");
            }
        }
    }

    pub(super) fn expose(&self, format: Format, now: Now) -> String {
        let around = Around {
            helper: self.outside.helper.tally(),
            notifications_dropped: self.outside.notifier.failures(),
            process: own::read(),
        };
        metrics::render(&self.state.snapshot(&around, now), format)
    }

    /// The file's next text; written with whatever else waits for the disk's worker.
    pub(super) fn expose_as_file(&mut self) {
        let now = self.outside.clock.now();
        self.disk.textfile = Some(self.expose(Format::Text, now));
    }

    /// What writes it, on the blocking worker; says once that it does not go.
    pub(super) fn textfile_writer(&mut self) -> impl FnOnce() + Send + 'static {
        let text = self.disk.textfile.take();
        let dir: Option<PathBuf> = self.settings.metrics.textfile_dir.clone();
        let (outside, fails) = (self.outside.clone(), self.textfile_fails.clone());
        move || {
            let (Some(text), Some(dir)) = (text, dir) else {
                return;
            };
            let written = textfile::write(&outside.root, &dir, &text);
            let failed_before = fails.swap(written.is_err(), Ordering::Relaxed);
            if let Err(why) = written
                && !failed_before
            {
                warn!(message_id = Kind::Metrics.id(), error = %why, "no metrics in a file: {why}");
            }
        }
    }
}

impl State {
    /// The file's turn. It joins whatever wakes the loop: a second late is no harm to it.
    pub(super) fn write_metrics(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.settings.metrics.textfile_dir.is_some() && now.uptime >= self.textfile_at {
            let every = self.settings.seconds("metrics", "textfile_interval_secs");
            self.textfile_at = now.uptime + every.max(Duration::from_secs(1));
            effects.push(Effect::WriteMetrics);
        }
    }

    fn snapshot(&self, around: &Around, now: Now) -> Snapshot<'_> {
        let suppressors = self.standing.suppressors().iter();
        let heartbeat = self.publisher.as_ref().and_then(Publisher::last_success);
        let published = |kind: &ConditionType| self.is_published(*kind);
        Snapshot {
            wall: now.wall,
            version: env!("CARGO_PKG_VERSION"),
            node: self.node_name(),
            started: self.started.wall,
            shadow: self.desired.choice().shadow,
            quiet: suppressors.map(Suppressor::quiet).collect(),
            conditions: self.health.verdicts().collect(),
            transitions: self.transition_times(),
            published: ConditionType::ALL
                .iter()
                .copied()
                .filter(published)
                .collect(),
            counted: &self.counted,
            requests: self.link.gate.tally(),
            helper: around.helper,
            peers: Peer::ALL.map(|peer| (peer, self.is_up(peer))),
            heartbeat: heartbeat.map(|now| now.wall),
            clock_ahead: self.link.time.wall_is_ahead_by(now),
            events_sent: self.events.sent(),
            events_dropped: self.events.dropped(),
            log_lines_dropped: journal::dropped(),
            notifications_dropped: around.notifications_dropped,
            bus_dropped: systemd::dropped(),
            process: around.process,
        }
    }

    fn is_up(&self, peer: Peer) -> Option<bool> {
        let answers = |peer: &super::peer::Peer| peer.known().map(|known| known.is_ok());
        match peer {
            Peer::Bus if self.settings.kubelet.pid_file.is_some() => None,
            Peer::Bus => answers(&self.bus),
            Peer::Helper => answers(&self.helper),
            Peer::Kmsg => self.counted.kmsg(),
            Peer::Api => self.api_is_up(),
        }
    }
}
