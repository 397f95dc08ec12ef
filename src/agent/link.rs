//! The way to the API: an identity and its connection, the gate, the watch that is open or wanted.

mod identity;

use std::time::Duration;

use tracing::{info, warn};

use super::{event::Effect, state::State};
use crate::{
    clock::Now,
    cluster::{
        api::ApiError,
        episode::Line,
        gate::{Gate, Remedy, RequestKind},
        identity::Identity,
        time::ClusterTime,
        watch::{End, NodeEvent},
    },
    host::journal::Kind,
};

/// Wait between two looks for an identity: doubled from the first to the last.
const SEEK: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));

/// Where we stand.
#[derive(Debug)]
pub(super) struct Link {
    seek: Seek,
    /// Whether there is a connection to be used, open or not.
    connected: bool,
    /// What was said last, so that it is said once.
    said: Option<Identity>,
    /// Why the credential could not be looked at again, if that was said; and the end of one that was said to be near.
    unread: Option<String>,
    said_until: Option<i64>,
    wait: Duration,
    /// Whether anything that `status` shows has changed.
    changed: bool,
    pub(super) gate: Gate,
    watch: Watch,
    reading: Reading,
    /// The watch's number: what an earlier one still has to say counts for nothing.
    watch_number: u64,
    /// Our Node's version as it was seen last: from there the next watch goes on.
    version: Option<String>,
    /// The cluster's time, for all that is published.
    pub(super) time: ClusterTime,
}

/// An identity is looked for.
#[derive(Debug, PartialEq, Eq)]
enum Seek {
    /// There is one.
    Idle,
    /// At that uptime.
    At(Duration),
    /// It is under way.
    Looking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    Wanted,
    Asked,
    /// Since that uptime.
    Open(Duration),
}

/// Whether the Node must be read though a watch is open: something was written to another one than is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Idle,
    Wanted,
    Asked,
}

impl Link {
    pub(super) fn new(node: &str) -> Self {
        Self {
            seek: Seek::At(Duration::ZERO),
            connected: false,
            said: None,
            unread: None,
            said_until: None,
            wait: SEEK.0,
            changed: false,
            gate: Gate::new(node),
            watch: Watch::Wanted,
            reading: Reading::Idle,
            watch_number: 0,
            version: None,
            time: ClusterTime::default(),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether the API server does what it is asked, as far as is known. A watch that has ended in time is no failure.
    pub(super) fn is_well(&self) -> bool {
        self.connected && self.gate.failure().is_none()
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.said.as_ref()
    }

    /// When something of ours is due; `write_at` is when there is something to be written.
    pub(super) fn next_deadline(&self, write_at: Option<Duration>) -> Option<Duration> {
        let seek = match self.seek {
            Seek::At(at) => Some(at),
            Seek::Idle | Seek::Looking => None,
        };
        let opens_at = |kind| self.gate.opens_at(kind);
        let write = write_at.map(|at| at.max(opens_at(RequestKind::Apply)));
        let watch = (self.watch == Watch::Wanted).then(|| opens_at(RequestKind::Watch));
        let requests = [write, watch, self.read_at()].into_iter().flatten().min();
        [
            seek,
            requests.filter(|_| self.connected),
            self.gate.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The watch that is to be opened now, if any.
    pub(super) fn next_watch(&mut self, now: Now) -> Option<Effect> {
        let due = self.connected
            && self.watch == Watch::Wanted
            && self.gate.is_open(RequestKind::Watch, now);
        due.then(|| {
            self.gate.sent(RequestKind::Watch, now);
            self.watch = Watch::Asked;
            self.watch_number += 1;
            Effect::WatchNode(self.watch_number, self.version.clone())
        })
    }

    /// Just before what waits for it is tried again.
    fn read_at(&self) -> Option<Duration> {
        let wanted = self.reading == Reading::Wanted && matches!(self.watch, Watch::Open(_));
        let opens_at = |kind| self.gate.opens_at(kind);
        wanted.then(|| opens_at(RequestKind::Apply).max(opens_at(RequestKind::Watch)))
    }

    /// The reading that is to be done now, if any.
    pub(super) fn next_reading(&mut self, now: Now) -> Option<Effect> {
        self.read_at()
            .filter(|at| self.connected && *at <= now.uptime)?;
        self.gate.sent(RequestKind::Watch, now);
        self.reading = Reading::Asked;
        Some(Effect::ReadNode)
    }

    /// The Node was seen with this version, or is not there.
    pub(super) fn saw(&mut self, version: Option<&str>) {
        self.version = version.map(str::to_owned);
        self.reading = Reading::Idle;
    }

    /// There is no Node of our name: what was refused for that is explained.
    pub(super) fn node_is_missing(&mut self, now: Now) {
        self.saw(None);
        self.tell_gate(|link| link.gate.node_is_missing(now));
    }

    /// Whether the API server is in trouble is shown, so that a change of it is noted.
    fn tell_gate<T>(&mut self, tell: impl FnOnce(&mut Self) -> T) -> T {
        let failed_before = self.gate.failure().is_some();
        let told = tell(self);
        self.changed |= failed_before != self.gate.failure().is_some();
        told
    }

    pub(super) fn read_anew(&mut self) {
        self.reading = Reading::Wanted;
        // A watch that is opened meanwhile reads first.
        self.version = None;
    }

    /// Another Node is ours.
    fn forget_node(&mut self) {
        (self.watch, self.reading, self.version) = (Watch::Wanted, Reading::Idle, None);
        self.watch_number += 1; // whatever the one that is open still says
    }

    fn watch_ended(&mut self, end: End, now: Now) -> Remedy {
        let opened_at = match std::mem::replace(&mut self.watch, Watch::Wanted) {
            Watch::Open(at) => at,
            Watch::Wanted | Watch::Asked => now.uptime,
        };
        match end {
            End::Well(version) => {
                self.version = Some(version);
                self.gate.watch_ended(opened_at, false, now);
                Remedy::Wait
            }
            End::Broke(_, version) => {
                self.version = version;
                self.gate.watch_ended(opened_at, true, now);
                Remedy::Wait
            }
            End::Failed(error) => {
                // Whoever does not let us in says nothing about history; 504 is the answer to a version of its future.
                let kept = match &error {
                    ApiError::Network(_)
                    | ApiError::Timeout
                    | ApiError::Unauthorized
                    | ApiError::TooMany(_) => true,
                    ApiError::Server { code, .. } => *code != 504,
                    _ => false,
                };
                self.version.take_if(|_| !kept);
                self.gate.answered(RequestKind::Watch, Err(&error), now)
            }
        }
    }

    /// Says what the gate has to say.
    pub(super) fn speak(&mut self, now: Now) {
        match self.gate.line(now) {
            Some(Line::Wrong(error)) => {
                warn!(message_id = Kind::PublishFailed.id(), %error, "the API server does not do what it is asked; trying again until it does");
            }
            Some(Line::Well) => info!(
                message_id = Kind::PublishRecovered.id(),
                "the API server does what it is asked again"
            ),
            None => {}
        }
    }

    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

impl State {
    pub(super) fn apply_watch_opened(&mut self, number: u64, now: Now) {
        if number == self.link.watch_number {
            self.link.watch = Watch::Open(now.uptime);
            self.answered(RequestKind::Watch, Ok(()), now, &mut Vec::new());
        }
    }

    pub(super) fn apply_watch_ended(
        &mut self,
        number: u64,
        end: End,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if number == self.link.watch_number {
            let remedy = self.link.tell_gate(|link| link.watch_ended(end, now));
            self.remedy(remedy, effects);
        }
    }

    pub(super) fn apply_read(
        &mut self,
        result: Result<NodeEvent, ApiError>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        self.answered(
            RequestKind::Watch,
            result.as_ref().map(|_| ()),
            now,
            effects,
        );
        match result {
            Ok(event) => self.apply_node(event, now, effects),
            Err(_) if self.link.reading == Reading::Asked => self.link.reading = Reading::Wanted,
            Err(_) => {}
        }
    }

    /// A request was answered: the gate learns of it, and what is to be done about a failure is done.
    pub(super) fn answered(
        &mut self,
        kind: RequestKind,
        result: Result<(), &ApiError>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let answered = |link: &mut Link| link.gate.answered(kind, result, now);
        let remedy = self.link.tell_gate(answered);
        self.remedy(remedy, effects);
    }

    fn remedy(&mut self, remedy: Remedy, effects: &mut Vec<Effect>) {
        match remedy {
            Remedy::Wait => {}
            Remedy::Reconnect => {
                self.link.gate.forget_in_flight();
                self.link.watch = Watch::Wanted;
                self.link.watch_number += 1;
                if self.link.reading == Reading::Asked {
                    self.link.reading = Reading::Wanted;
                }
                if let Some(publisher) = &mut self.publisher {
                    publisher.forget_in_flight();
                }
                self.tainter.forget_in_flight();
                self.events.forget_in_flight();
                effects.push(Effect::Disconnect);
            }
            Remedy::ReadCredential => self.link.seek = Seek::At(Duration::ZERO),
            Remedy::ReadAnew => self.link.read_anew(),
        }
    }
}

#[cfg(test)]
mod tests;
