//! A kubelet whose healthz does not answer: what else says that it does not work. The probes alone do not, for a firewall on
//! its port, or another program there, makes them fail while the kubelet works.

use std::time::Duration;

use jiff::Timestamp;

use super::{Alive, Assessment, Kubelet, Life, Probe, assess::found, signs::Listening};
use crate::{
    clock::Now,
    health::{PROBES, Reason},
};

/// A kubelet that works renews its Lease each ten seconds; one that has not done so for that long does not.
const LEASE_OLD: Duration = Duration::from_secs(40);
/// It renews it four times within its duration (`nodeLeaseDurationSeconds`).
const RENEWALS: u32 = 4;
/// So long a look at the Lease counts.
const LOOK_COUNTS: Duration = Duration::from_secs(30);

/// The looks at the Lease of a kubelet that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseLooks {
    renewed: Timestamp,
    duration: Duration,
    /// When this renewal was seen first and last (uptime), and its age by the wall clock at the last look.
    first: Duration,
    last: Duration,
    age: Option<Duration>,
    /// Whether it was renewed under our eyes.
    is_renewed: bool,
}

/// What they show.
#[derive(Debug, PartialEq, Eq)]
enum LeaseIs {
    Fresh,
    Old,
    /// It was not read, or its time may be wrong.
    Unknown,
}

impl LeaseLooks {
    fn state(&self, now: Now) -> LeaseIs {
        let limit = LEASE_OLD.max(self.duration);
        let stayed = self.last.saturating_sub(self.first);
        if now.uptime > self.last + LOOK_COUNTS {
            return LeaseIs::Unknown;
        }
        // Its time is by this machine's clock, which may have been set: so an old one counts only if it was seen to stay, and not
        // once a renewal was seen.
        let has_stayed = stayed >= self.duration / RENEWALS * 2 && !self.is_renewed;
        let is_old = self.age.is_some_and(|age| age >= limit);
        if stayed >= limit || (is_old && has_stayed) {
            LeaseIs::Old
        } else if self.is_renewed || self.age.is_some_and(|age| age < limit) {
            LeaseIs::Fresh
        } else {
            LeaseIs::Unknown
        }
    }
}

impl Alive {
    pub(super) fn lease_read(&mut self, renewed: Timestamp, duration: Duration, now: Now) {
        let before = self.lease.take();
        let same = before.as_ref().filter(|looks| looks.renewed == renewed);
        self.lease = Some(LeaseLooks {
            renewed,
            duration,
            first: same.map_or(now.uptime, |looks| looks.first),
            last: now.uptime,
            age: Duration::try_from(now.wall.duration_since(renewed)).ok(),
            is_renewed: same.map_or(before.is_some(), |looks| looks.is_renewed),
        });
    }

    /// What says, besides the probes, that it does not work: the end of a sentence.
    fn witness(&self, probe: &Probe, now: Now) -> Option<String> {
        // The sentence has the state already.
        if matches!(self.state, Some('T' | 't' | 'D' | 'Z' | 'X')) {
            return Some(String::new());
        }
        if self.suspicion.queue_fills() {
            let text = "; connections wait at its port, and it takes none (sock_diag)";
            return Some(text.to_owned());
        }
        if *probe == Probe::Refused && self.suspicion.listening == Listening::Nobody {
            let text = "; the kernel has no listener at its port (sock_diag)";
            return Some(text.to_owned());
        }
        let looks = self.lease.as_ref()?;
        let renewed = Timestamp::from_second(looks.renewed.as_second()).unwrap_or(looks.renewed);
        (looks.state(now) == LeaseIs::Old)
            .then(|| format!("; it has not renewed its Lease since {renewed}"))
    }

    /// Its probes fail, as `what` says; not because the host is short of something, nor while it starts. `reason` is what that is
    /// with a second witness.
    pub(super) fn assess_silence(
        &self,
        reason: Reason,
        probe: &Probe,
        what: &str,
        now: Now,
    ) -> Assessment {
        if let Some(witness) = self.witness(probe, now) {
            return found(reason, format!("{what}{witness}"));
        }
        let lease = self.lease.as_ref().map(|looks| looks.state(now));
        if lease == Some(LeaseIs::Fresh) {
            let text = format!(
                "{what}; but it renews its Lease, so it works: something else keeps the probes from its healthz, such as a firewall"
            );
            return found(Reason::KubeletHealthzUnreachable, text);
        }
        let text = format!(
            "{what}; nothing else says that it does not work: its process is neither stopped (state T) nor stuck (state D), no connections pile up at its port, and its Lease could not be read or was not seen to grow old"
        );
        found(Reason::KubeletHealthzSilent, text)
    }
}

impl Kubelet {
    /// Whether it does not answer though it has before or its start is over, so that its Lease is worth a look.
    pub fn is_silent(&self, now: Now) -> bool {
        let Life::Alive(alive) = &self.life else {
            return false;
        };
        let may_start_until = alive.process.started + self.terms.start_grace;
        alive.misses() > 0 && (alive.answered || now.uptime >= may_start_until)
    }
}

/// What a probe that failed says, as a sentence.
pub(super) fn said(who: &str, probe: &Probe, url: &str) -> String {
    match probe {
        Probe::Timeout => format!("{who}: {} probes of {url} in a row timed out", PROBES.bad),
        Probe::Refused => format!("{who}: a connection to {url} is refused"),
        Probe::Unreachable => format!(
            "{who}: a connection to {url} is neither taken nor refused, as when a firewall drops it"
        ),
        Probe::Status(code) => format!("{who}: {url} answers HTTP {code}"),
        Probe::Impossible(why) => format!("{who} lives, but {url} could not be asked: {why}"),
        Probe::Ok => format!("{who} answers at {url}"),
    }
}
