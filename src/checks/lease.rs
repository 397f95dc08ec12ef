//! The kubelet's connection to the API server: its Lease is not renewed although it answers here and the API server
//! answers us. Told beside what the kubelet's own check says.
//!
//! The Lease is read on suspicion alone, and suspicion costs nothing over the network: the kernel's list of sockets shows
//! that what root sends to the API server is not acknowledged or that root has no connection there any more, or the watch
//! of our own Node shows no sign of the kubelet. Sockets are by user, not by process, so they prove nothing; the Lease
//! does. Its time is the kubelet's word by this machine's clock, which may have been set: so an old time counts only if we
//! have seen it stay. Pure.

mod connections;

use std::time::Duration;

use jiff::Timestamp;

use super::{Check, Question, Reading, Spec};
use crate::{
    clock::Now,
    config::Settings,
    health::{ConditionType, Finding, LEASE_LOOKS, Reason, timing::Window},
};

pub use connections::{Server, Sockets, TcpSocket};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "lease",
    condition: ConditionType::KubeletHealthy,
    doc: "The kubelet's connection to the API server: its sockets' state, and on suspicion its Lease.",
};

/// How often the sockets are looked at while all is well.
const SOCKETS_EVERY: Duration = Duration::from_secs(10);
/// The same when something is sent again: that may be a lost packet, or the beginning of a stall.
const SOCKETS_SOON: Duration = Duration::from_secs(3);
/// Time between two looks at the Lease while it is not known what is wrong.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The same once it is told: it may last for hours.
const LOOK_TOLD: Duration = Duration::from_secs(15);
/// After looks that showed all well, or failed: doubled from the first to the last while the suspicion stays as it is.
const QUIET: (Duration, Duration) = (Duration::from_secs(20), Duration::from_mins(2));
/// After a refusal: rights seldom change.
const REFUSED: Duration = Duration::from_hours(1);
/// The API server answers us again: the kubelet finds back by itself, at the latest when HTTP/2 has given its old connection
/// up (45 s) and it has renewed its Lease.
const RETURNED: Duration = Duration::from_mins(1);
/// The kubelet writes its Node's status every five minutes if nothing changes, give or take half of it.
const SILENT: Duration = Duration::from_mins(8);
/// A kubelet that has just started opens its connections, and takes its Lease over.
const SETTLE: Duration = Duration::from_secs(30);
/// So many looks at the Lease of a kubelet that does not answer are made in quick succession: it is old by then, or it is not.
const SILENT_LOOKS: u32 = 12;
/// A turn may come so much early.
const EARLY: Duration = Duration::from_millis(100);
/// The kubelet renews its Lease four times within its duration (`nodeLeaseDurationSeconds`, 40 s).
const RENEWALS: u32 = 4;

/// What the kubelet's healthz does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Healthz {
    /// It has not answered yet, or there is no kubelet.
    #[default]
    Unknown,
    /// It answers.
    Answers,
    /// It has answered and does not any more.
    Silent,
}

/// What the loop knows of both ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sight {
    /// What the kubelet's healthz does.
    pub healthz: Healthz,
    /// Whether the API server answers us.
    pub api_answers: bool,
    /// Whether the Node's `Ready` is `Unknown`: somebody has waited for the kubelet in vain.
    pub is_given_up: bool,
    /// When the kubelet wrote the Node's status last, by the Node.
    pub heartbeat: Option<Timestamp>,
    /// Whether the kubelet says on the Node that it is not ready because of its runtime.
    pub blames_runtime: bool,
}

/// A Lease, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// `spec.renewTime`.
    pub renewed: Timestamp,
    /// `spec.leaseDurationSeconds`.
    pub duration: Duration,
}

/// Why it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// We may not.
    Refused,
    /// It may work the next time: there is none yet, when a Node has just been made.
    Failed,
}

/// What is known of the kubelet's connection.
#[derive(Debug)]
pub struct Lease {
    stale_after: Duration,
    pid: Option<i32>,
    sight: Sight,
    /// Whether the API server has ever answered us.
    api_was_seen: bool,
    /// When the heartbeat changed last, or the kubelet was started (uptime).
    heartbeat_seen_at: Duration,
    sockets: Sockets,
    /// Whether root has had a connection open since this kubelet runs: not so behind a proxy.
    was_open: bool,
    suspects: bool,
    sockets_at: Duration,
    look_at: Duration,
    /// Until when no look at a connection that may have stalled is made, because one could not be (uptime).
    unread_until: Duration,
    /// When to look at the Lease of a kubelet that does not answer (uptime), and how often that was done.
    silent_at: Duration,
    silent_looks: u32,
    /// Until then there is no looking (uptime): it was refused, or both have just come back.
    not_before: Duration,
    quiet: Duration,
    /// The renewal that was seen last, and when it was seen first (uptime).
    seen: Option<(Renewal, Duration)>,
    /// The looks after that: bad ones show the same renewal.
    looks: Window,
    findings: Vec<Finding>,
}

impl Lease {
    /// Nothing is known yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            stale_after: settings.seconds("kubelet", "lease_stale_secs"),
            pid: None,
            sight: Sight::default(),
            api_was_seen: false,
            heartbeat_seen_at: Duration::ZERO,
            sockets: Sockets::default(),
            was_open: false,
            suspects: false,
            sockets_at: Duration::ZERO,
            look_at: Duration::ZERO,
            unread_until: Duration::ZERO,
            silent_at: Duration::ZERO,
            silent_looks: 0,
            not_before: Duration::ZERO,
            quiet: QUIET.0,
            seen: None,
            looks: Window::default(),
            findings: Vec::new(),
        }
    }

    /// Whether both ends are well, so that only what is between them can be at fault.
    fn is_watching(&self) -> bool {
        self.pid.is_some() && self.sight.healthz == Healthz::Answers && self.sight.api_answers
    }

    /// Whether the kubelet does not answer, and the Lease may say whether it works all the same. That is for the kubelet's own
    /// check, which is told each reading.
    fn is_for_silence(&self) -> bool {
        self.pid.is_some() && self.sight.healthz == Healthz::Silent && self.sight.api_answers
    }

    fn is_told(&self) -> bool {
        let told = |finding: &Finding| finding.reason == Reason::KubeletAPIConnectionStalled;
        self.findings.iter().any(told)
    }

    /// When the Lease is to be looked at.
    fn looks_at(&self) -> Option<Duration> {
        let looks = self.suspects || self.is_told();
        looks.then(|| self.look_at.max(self.not_before).max(self.unread_until))
    }

    /// What says, besides the Lease, that the kubelet does not get through.
    fn witness(&self, now: Now) -> Option<&'static str> {
        let silent_for = now.uptime.saturating_sub(self.heartbeat_seen_at);
        if self.sockets.stalled > 0 {
            Some("what root sends to the API server is not acknowledged (sock_diag)")
        } else if self.was_open && self.sockets.open == 0 {
            Some("root has no connection to the API server any more (sock_diag)")
        } else if self.sight.is_given_up {
            Some("the control plane has given it up (Ready=Unknown)")
        } else if self.sight.heartbeat.is_some() && silent_for >= SILENT {
            Some("it has not written the Node's status for over eight minutes")
        } else {
            None
        }
    }

    fn suspect(&mut self, now: Now) {
        self.suspects = self.witness(now).is_some();
        if !self.suspects && !self.is_told() {
            self.calm_down();
        }
    }

    fn calm_down(&mut self) {
        self.quiet = QUIET.0;
        self.look_at = self.look_at.min(self.sockets_at);
        self.forget_looks();
    }

    fn forget_looks(&mut self) {
        (self.seen, self.looks) = (None, Window::default());
    }

    fn well(&mut self, message: &str) {
        self.findings = vec![Finding {
            reason: Reason::KubeletNothingBeside,
            message: message.to_owned(),
        }];
    }

    fn process(&mut self, pid: Option<i32>, now: Now) {
        self.pid = pid;
        (self.was_open, self.sockets) = (false, Sockets::default());
        self.heartbeat_seen_at = now.uptime;
        self.sockets_at = now.uptime + SETTLE;
        self.look_at = now.uptime + SETTLE;
        self.quiet = QUIET.0;
        self.forget_looks();
        if pid.is_none() && self.is_told() {
            self.well("there is no kubelet whose connection could stall");
        }
    }

    fn sight(&mut self, sight: Sight, now: Now) {
        if sight.heartbeat != self.sight.heartbeat {
            self.heartbeat_seen_at = now.uptime;
        }
        let (was_watching, had_api) = (self.is_watching(), self.sight.api_answers);
        if sight.healthz != Healthz::Silent {
            (self.silent_at, self.silent_looks) = (now.uptime, 0);
        }
        self.sight = sight;
        if self.is_watching() != was_watching {
            // What was seen before the pause does not count: one end was away.
            self.forget_looks();
            self.sockets_at = self.sockets_at.max(now.uptime + SOCKETS_SOON);
        }
        if !had_api && sight.api_answers && std::mem::replace(&mut self.api_was_seen, true) {
            self.not_before = self.not_before.max(now.uptime + RETURNED);
        }
        self.suspect(now);
    }

    fn sockets(&mut self, sockets: Sockets, now: Now) {
        self.was_open |= sockets.open > sockets.stalled;
        if sockets.stalled != self.sockets.stalled && !self.is_told() {
            // Another connection than the one that was found to mean nothing.
            self.quiet = QUIET.0;
            self.look_at = self.look_at.min(now.uptime);
        }
        self.sockets = sockets;
        if sockets.sending_again > 0 {
            self.sockets_at = now.uptime + SOCKETS_SOON;
        }
        self.suspect(now);
    }

    fn renewal(&mut self, renewal: Renewal, now: Now) {
        let first_seen = match self.seen {
            Some((last, at)) if last.renewed == renewal.renewed => at,
            Some(_) => return self.alive(now),
            None => {
                self.seen = Some((renewal, now.uptime));
                self.look_at = now.uptime + LOOK_EVERY;
                return;
            }
        };
        self.looks.push(true);
        let every = renewal.duration / RENEWALS;
        let limit = self.stale_after.max(every * 5 / 2);
        let stayed = now.uptime.saturating_sub(first_seen);
        let age = Duration::try_from(now.wall.duration_since(renewal.renewed));
        // By its own time, or, where the clock was set back, by ours.
        let is_old = age.is_ok_and(|age| age >= limit) || stayed >= limit;
        // The Lease alone may be another's, or a controller of it the one that is wrong.
        if is_old
            && stayed >= every * 5 / 4
            && self.looks.is_full(LEASE_LOOKS)
            && let Some(witness) = self.witness(now)
        {
            self.tell(renewal, witness);
        }
        self.look_at = now.uptime
            + if self.is_told() {
                LOOK_TOLD
            } else {
                LOOK_EVERY
            };
    }

    /// It was renewed under our eyes.
    fn alive(&mut self, now: Now) {
        self.forget_looks();
        self.well("the kubelet renews its Lease");
        self.wait_quietly(now);
    }

    fn unread(&mut self, why: Unread, now: Now) {
        match why {
            Unread::Refused => self.not_before = now.uptime + REFUSED,
            Unread::Failed => {
                // Of a kubelet that does not answer it decides between a warning and `Unknown`; a Node that has just joined has
                // none for some seconds.
                self.silent_at = self.silent_at.max(now.uptime + LOOK_EVERY);
                // Nobody answered us either: from the return on the kubelet has its time to find back.
                self.unread_until = now.uptime + RETURNED;
                self.wait_quietly(now);
            }
        }
    }

    fn wait_quietly(&mut self, now: Now) {
        self.look_at = now.uptime + self.quiet;
        self.quiet = (self.quiet * 2).min(QUIET.1);
    }

    fn tell(&mut self, renewal: Renewal, witness: &str) {
        let renewed = Timestamp::from_second(renewal.renewed.as_second());
        let renewed = renewed.unwrap_or(renewal.renewed);
        let pid = self.pid.unwrap_or_default();
        self.findings = vec![Finding {
            reason: Reason::KubeletAPIConnectionStalled,
            message: format!(
                "kubelet pid {pid} answers here and the API server answers nodevigil, but the kubelet has not renewed its \
                 Lease since {renewed}, and {witness}: its connection to the API server is stalled"
            ),
        }];
    }
}

impl Check for Lease {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn is_beside(&self) -> bool {
        true
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        match reading {
            Reading::Kubelet(process) => self.process(process.as_ref().map(|p| p.pid), now),
            Reading::Sight(sight) => self.sight(*sight, now),
            Reading::Sockets(Some(sockets)) => self.sockets(*sockets, now),
            Reading::Lease(Ok(renewal)) if self.is_watching() => self.renewal(*renewal, now),
            Reading::Lease(Err(why)) => self.unread(*why, now),
            _ => {}
        }
    }

    fn due_at(&self) -> Option<Duration> {
        if self.is_for_silence() {
            return Some(self.silent_at.max(self.not_before));
        }
        let looks_at = self.looks_at().unwrap_or(Duration::MAX);
        self.is_watching().then_some(looks_at.min(self.sockets_at))
    }

    fn turn(&mut self, now: Now) -> Option<Question> {
        if self.is_for_silence() {
            let every = if self.silent_looks < SILENT_LOOKS {
                LOOK_EVERY
            } else {
                LOOK_TOLD
            };
            self.silent_looks = self.silent_looks.saturating_add(1);
            self.silent_at = now.uptime + every;
            return Some(Question::Lease);
        }
        self.suspect(now);
        if self.looks_at().is_some_and(|at| now.uptime + EARLY >= at) {
            self.look_at = now.uptime + LOOK_EVERY;
            return Some(Question::Lease);
        }
        self.sockets_at = now.uptime + SOCKETS_EVERY;
        Some(Question::Sockets)
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

#[cfg(test)]
mod tests;
