//! The loop's end. What is done then hangs on why it ends: systemd is asked, for its signal is the same for a stop that lasts,
//! a restart and the host's end.
//!
//! - A stop job: nobody looks any more whether what stands for bad lasts, and consumers act on what lasts. So it becomes
//!   `Unknown` on the Node, and our taints go, by the loop's ordinary turns, within [`LEAVE_WITHIN`].
//! - A restart, or a signal without a job, which systemd answers with a restart: the next life takes over what is there.
//! - The host goes down: that is kept for the next boot to know; what becomes bad meanwhile was suppressed all along.

use std::time::Duration;

use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::{
    Agent,
    event::{Effect, Event},
    state::State,
};
use crate::{
    clock::Now,
    cluster::{gate::RequestKind, publisher::Publisher},
    desired::{Condition, PublishedType, stopped},
    helper::boot::{BootNote, BootRequest},
    host::{
        journal::Kind,
        systemd::{self, Ending},
    },
    ledger::Kept,
};

/// How long the loop goes on after a stop job, so that the Node says so. (systemd waits five seconds for us.)
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long systemd may take to say why we are to end.
const ASKED_WITHIN: Duration = Duration::from_millis(300);
/// Without an answer: how long its word that the host is going down may come after its signal to end.
const WORD_WITHIN: Duration = Duration::from_millis(100);
/// How long the helper may take to keep that the host is going down.
const KEPT_WITHIN: Duration = Duration::from_secs(1);
/// How long the ledger, which lies in memory, may take.
const WRITTEN_WITHIN: Duration = Duration::from_millis(500);

/// The agent is being stopped for good. What it finds from then on is no verdict any more.
#[derive(Debug)]
pub(super) struct Leaving {
    /// What stood for bad on the Node.
    bad: Vec<PublishedType>,
    /// What the Node is to have in the end; `None`: nothing is to be written.
    pub(super) published: Option<Vec<Condition>>,
    /// What the next life is to take back once the Node has that.
    kept: Vec<Condition>,
}

impl Agent {
    pub(super) async fn end(&mut self) {
        let since = self.outside.clock.now();
        self.outside.notifier.stopping();
        match self.why().await {
            Ending::HostGoesDown => self.keep_that_the_host_goes_down().await,
            Ending::Stop => self.leave(since).await,
            Ending::Other => debug!("no stop job of systemd: the conditions stay on the Node"),
        }
    }

    async fn why(&mut self) -> Ending {
        if self.state.standing.is_going_down() {
            return Ending::HostGoesDown;
        }
        match timeout(ASKED_WITHIN, systemd::ending()).await {
            Ok(Ok(ending)) => return ending,
            Ok(Err(error)) => debug!(%error, "systemd does not say why we are to end"),
            Err(_) => debug!("systemd does not say in time why we are to end"),
        }
        let word = async {
            while let Some(event) = self.events.recv().await {
                if matches!(event, Event::Bus(systemd::BusEvent::ShuttingDown(true))) {
                    return Ending::HostGoesDown;
                }
            }
            Ending::Other
        };
        timeout(WORD_WITHIN, word).await.unwrap_or(Ending::Other)
    }

    /// systemd waits for the helper until we are gone.
    async fn keep_that_the_host_goes_down(&self) {
        let note = Some(BootNote::GoingDown);
        let kept = self.outside.helper.boot(BootRequest { note });
        if let Err(error) = timeout(KEPT_WITHIN, kept).await {
            debug!(%error, "that the host is going down could not be kept");
        }
    }

    async fn leave(&mut self, since: Now) {
        let until = since.uptime + LEAVE_WITHIN;
        self.state.leave(since);
        let mut event = Event::Tick;
        loop {
            let asked_again = self.turn(event).await;
            let now = self.outside.clock.now();
            let left = until.saturating_sub(now.uptime);
            if asked_again || left.is_zero() || self.state.has_left(until, now) {
                break;
            }
            event = match timeout(left, self.next()).await {
                Ok(event) => event,
                Err(_) => break,
            };
        }
        if let Some(kept) = self.state.left() {
            self.disk.ledger = Some(kept);
            timeout(WRITTEN_WITHIN, self.finish_writing()).await.ok();
        }
    }

    async fn finish_writing(&mut self) {
        for _ in 0..2 {
            if let Some(busy) = self.disk.busy.take() {
                busy.await.ok();
            }
            self.write();
        }
        if let Some(busy) = self.disk.busy.take() {
            busy.await.ok();
        }
    }
}

impl State {
    /// The agent is stopped for good: from now on the Node is to have nothing bad of ours.
    pub(super) fn leave(&mut self, now: Now) {
        let now = self.link.time.of(now);
        let published = self.desired.conditions();
        self.leaving = Some(Leaving {
            bad: stopped::bad(published.as_deref().unwrap_or_default()),
            published: published.map(|published| stopped::withdrawn(&published, now.wall)),
            kept: stopped::withdrawn(self.desired.told(), now.wall),
        });
        self.wish(now);
        self.tainter.want(Vec::new(), now);
        self.rests_until = Duration::ZERO; // the next turn is a whole one
    }

    /// Whether nothing is under way or due before `until` (uptime) that the Node waits for.
    pub(super) fn has_left(&self, until: Duration, now: Now) -> bool {
        let gate = &self.link.gate;
        let is_soon = |at: Option<Duration>, kind| {
            let can_go = self.link.is_connected() && !self.desired.choice().shadow;
            can_go && at.is_some_and(|at| at.max(gate.opens_at(kind)) <= until)
        };
        let applies = self.publisher.as_ref().is_some_and(|publisher| {
            let is_due = is_soon(publisher.next_deadline(), RequestKind::Apply);
            publisher.is_busy() || (is_due && !publisher.is_current())
        });
        let taint_at = self.tainter.next_deadline(now);
        !applies && !self.tainter.is_busy() && !is_soon(taint_at, RequestKind::Taints)
    }

    /// What became of it, said; and what the next life is to take back, if that is another than was kept. A write without an
    /// answer may have been carried out, or may yet be: then the Node alone knows, and the next life has it from there.
    pub(super) fn left(&self) -> Option<Kept> {
        let taints: Vec<String> = self.tainter.shown().collect();
        if !taints.is_empty() {
            let taints = taints.join(", ");
            warn!(
                message_id = Kind::Stopped.id(),
                "stopped, and these taints could not be taken off the Node: {taints}"
            );
        }
        let leaving = self
            .leaving
            .as_ref()
            .filter(|leaving| !leaving.bad.is_empty())?;
        let bad: Vec<&str> = leaving
            .bad
            .iter()
            .map(|published| published.as_str())
            .collect();
        let bad = bad.join(", ");
        if !self.publisher.as_ref().is_some_and(Publisher::is_current) {
            warn!(
                message_id = Kind::Stopped.id(),
                "stopped, and the Node could not be told: it may still show a problem as {bad}"
            );
            return Some(Kept {
                conditions: Vec::new(),
                ..self.to_keep()
            });
        }
        info!(
            message_id = Kind::Stopped.id(),
            "stopped: now Unknown on the Node, for nobody looks any more: {bad}"
        );
        Some(self.to_keep())
    }

    /// What a restart of ours needs.
    pub(super) fn to_keep(&self) -> Kept {
        let uid = self.publisher.as_ref().and_then(Publisher::uid);
        let leaving = self.leaving.as_ref();
        let conditions =
            leaving.map_or_else(|| self.desired.told(), |leaving| leaving.kept.as_slice());
        Kept {
            node: self.node_name(),
            // Until the Node is seen, what was taken back is that of the Node before.
            uid: uid.map(str::to_owned).or_else(|| self.past_of.clone()),
            conditions: conditions.to_vec(),
            remembered: self.health.remembered(),
            warned: self.standing.warned(),
        }
    }

    /// What is kept while the agent leaves is kept at the end, once the Node has it.
    pub(super) fn keep(&self, effects: &mut Vec<Effect>) {
        if self.leaving.is_none() {
            effects.push(Effect::SaveLedger(self.to_keep()));
        }
    }
}
