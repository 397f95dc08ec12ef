//! What the state makes of the kubelet's process: found, gone, and what the helper says of it.

use std::{sync::Arc, time::Duration};

use tracing::{info, warn};

use super::{
    event::Effect,
    state::{LOOK_EVERY, STATE_EVERY, State},
};
use crate::{
    checks::{
        Reading,
        kubelet::{Endpoint, Found, Probe, Sign},
    },
    clock::Now,
    host::{
        helper::{Code, HelperError, KubeletFacts},
        journal::Kind,
        systemd::BusEvent,
    },
    kubelet::healthz::{DEFAULT_PORT, Healthz},
};

/// How often the helper is asked again for facts that it could not give.
const FACTS_EVERY: Duration = Duration::from_secs(10);

impl State {
    pub(super) fn apply_looked(&mut self, found: Found, now: Now, effects: &mut Vec<Effect>) {
        let before = self.kubelet.process().cloned();
        self.kubelet.apply(Sign::Found(found), now);
        let Some(process) = self.kubelet.process().cloned() else {
            return;
        };
        if before.as_ref() == Some(&process) {
            return;
        }
        // Of one that ends again and again the condition tells.
        if !self.kubelet.is_looping(now) {
            info!(message_id = Kind::KubeletFound.id(), pid = process.pid, unit = %self.settings.kubelet.unit, "watching the kubelet");
        }
        (self.kubelet_since, self.process_state_at) = (now, now.uptime + STATE_EVERY);
        self.offer(&Reading::Kubelet(Some(process.clone())), now);
        if let Some(url) = self.settings.kubelet.healthz_url.clone() {
            self.set_endpoint(process.pid, Endpoint::Known(url.into()), now);
        }
        self.facts_at = Some(now.uptime);
        self.link.hasten(now);
        self.check_anew(now);
        effects.push(Effect::Watch(process));
    }

    /// Where the kubelet's healthz is asked, if it is.
    pub(super) fn url(&self) -> Option<&Arc<str>> {
        match self.kubelet.endpoint()? {
            Endpoint::Known(url) | Endpoint::Assumed(url) => Some(url),
            Endpoint::Disabled => None,
        }
    }

    pub(super) fn apply_bus(&mut self, event: BusEvent, now: Now) {
        match event {
            BusEvent::Watching(unit) => self.watch_unit(unit, now),
            BusEvent::Connected => self.bus.answers(),
            BusEvent::Lost(why) => {
                self.bus.is_away(&why);
                self.kubelet.apply(Sign::BusLost, now);
                self.offer(&Reading::BusLost, now);
            }
            BusEvent::Beside(unit, sign) => {
                let other = Sign::Other(unit.clone(), Box::new(sign.clone()));
                self.kubelet.apply(other, now);
                self.offer(&Reading::Unit(unit, sign), now);
            }
            BusEvent::ShuttingDown(so) => {
                self.standing.learn_shutdown(so);
                self.offer(&Reading::GoingDown(so), now);
            }
            BusEvent::Loaded(loaded) => self.apply_loaded(*loaded, now),
            BusEvent::Sign(sign) => {
                let unit_changed = matches!(sign, Sign::Unit(_));
                self.offer_kubelets_unit(&sign, now);
                self.kubelet.apply(sign, now);
                if unit_changed {
                    self.look_at = now.uptime;
                }
            }
        }
    }

    /// The unit of this name runs the kubelet here.
    fn watch_unit(&mut self, unit: String, now: Now) {
        if unit == self.settings.kubelet.unit {
            return;
        }
        info!(message_id = Kind::Started.id(), %unit, "nodevigil observes {unit}: the first of the units that could run a kubelet");
        self.settings.kubelet.unit.clone_from(&unit);
        self.kubelet.apply(Sign::Watching(unit), now);
        self.check_anew(now);
    }

    pub(super) fn apply_gone(&mut self, pid: i32, now: Now, effects: &mut Vec<Effect>) {
        self.ask_units(now, effects);
        if self
            .kubelet
            .process()
            .is_some_and(|process| process.pid == pid)
        {
            if !self.kubelet.is_looping(now) {
                info!(message_id = Kind::KubeletEnded.id(), pid, unit = %self.settings.kubelet.unit, "the kubelet has ended");
            }
            self.kubelet.apply(Sign::Gone(pid), now);
            self.offer(&Reading::Kubelet(None), now);
            (self.kubelet_since, self.probing) = (now, false);
            self.look_at = now.uptime + LOOK_EVERY;
            self.facts_at = None;
        }
    }

    pub(super) fn observe(&mut self, reading: &Reading, now: Now, effects: &mut Vec<Effect>) {
        if matches!(reading, Reading::RuntimeGone(_)) {
            self.ask_units(now, effects);
        }
        self.offer(reading, now);
    }

    /// A process has ended. Where others than systemd speak to us, what it says of that may be late or lost: it is asked.
    fn ask_units(&self, now: Now, effects: &mut Vec<Effect>) {
        if self.kubelet.is_among_foreign_signals(now) {
            effects.push(Effect::AskUnits);
        }
    }

    /// A probe that began at `started` (uptime) has ended.
    pub(super) fn apply_probed(&mut self, pid: i32, started: Duration, probe: Probe, now: Now) {
        self.probing = false;
        let took = now.uptime.saturating_sub(started);
        self.counted.probed(&probe, took);
        self.kubelet.apply(Sign::Probed(pid, probe), now);
        self.probe_at = started + self.kubelet.probe_interval();
    }

    pub(super) fn apply_facts(
        &mut self,
        pid: i32,
        facts: Result<KubeletFacts, HelperError>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let configured = self.settings.kubelet.healthz_url.is_some();
        let endpoint = match facts {
            Ok(facts) => {
                self.helper.answers();
                (self.facts_at, self.facts_refusal) = (None, None);
                self.offer(&Reading::Facts(Box::new(facts.clone())), now);
                self.hostname_override = facts
                    .hostname_override
                    .map(|name| name.to_ascii_lowercase());
                self.follow_node_name(now, effects);
                match facts.healthz {
                    Healthz::Url(url) => Endpoint::Known(url.into()),
                    Healthz::Disabled => Endpoint::Disabled,
                }
            }
            Err(e) => {
                self.facts_at = Some(now.uptime + FACTS_EVERY);
                match e {
                    // It is on its way in or out: there is nothing to know of it now.
                    HelperError::Refused {
                        code: Code::NoSuchProcess | Code::NotAKubelet,
                        ..
                    } => {
                        self.helper.answers();
                        self.facts_at = Some(now.uptime + LOOK_EVERY);
                        return;
                    }
                    HelperError::Refused { message, .. } => {
                        self.helper.answers();
                        self.facts_refused(pid, message);
                    }
                    away => self.helper.is_away(&away.to_string()),
                }
                Endpoint::Assumed(format!("http://127.0.0.1:{DEFAULT_PORT}/healthz").into())
            }
        };
        let known = matches!(
            self.kubelet.endpoint(),
            Some(Endpoint::Known(_) | Endpoint::Disabled)
        );
        // A guess replaces nothing, and what the operator configured stands.
        let guess = matches!(endpoint, Endpoint::Assumed(_));
        if configured || (known && guess) {
            return;
        }
        self.set_endpoint(pid, endpoint, now);
    }

    /// Said once, though asked again and again.
    fn facts_refused(&mut self, pid: i32, message: String) {
        if self.facts_refusal.as_ref() != Some(&message) {
            warn!(pid, error = %message, "the kubelet's configuration could not be read");
            self.facts_refusal = Some(message);
        }
    }

    fn set_endpoint(&mut self, pid: i32, endpoint: Endpoint, now: Now) {
        self.kubelet.apply(Sign::Endpoint(pid, endpoint), now);
        self.probe_at = self.probe_at.min(now.uptime);
    }

    pub(super) fn control_group(&self) -> String {
        self.kubelet.control_group().map_or_else(
            || format!("/system.slice/{}", self.settings.kubelet.unit),
            str::to_owned,
        )
    }
}
