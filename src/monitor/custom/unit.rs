//! A service of a check: whether it has failed, is inactive although it should run, or is restarted too often.

use std::collections::VecDeque;
use std::time::Duration;

use super::Told;
use super::judged::Found;
use crate::condition::{ConditionType, Uptime};
use crate::host::clock::{Timer, uptime};
use crate::host::systemd::BusEvent;
use crate::monitor::Inputs;
use crate::monitor::service::follow::{Follower, ServiceEvent};
use crate::monitor::service::judgement::Judgement;
use crate::monitor::service::{Bus, Service};
use crate::settings::custom::UnitCheck;

/// How long a start may take until a unit that restarts or starts counts as one that does not run.
const START_GRACE: Duration = Duration::from_mins(2);

/// What is known of the service. Does no I/O and reads no clock.
#[derive(Debug)]
struct State {
    settings: UnitCheck,
    service: Service,
    /// Since when it has not been active.
    inactive_since: Option<Uptime>,
    /// systemd's count of restarts at the last event, and when it has risen.
    counted: Option<u32>,
    restarts: VecDeque<Uptime>,
}

/// Watches the service of a check for ever.
pub(super) async fn watch(kind: ConditionType, settings: &UnitCheck, inputs: &Inputs, told: Told) {
    let mut follower = Follower::new(kind, vec![settings.name.to_string()], inputs);
    let (mut state, timer) = (State::new(settings.clone()), Timer::new());
    loop {
        let now = uptime();
        state.service.settle(now);
        if let Some(event) = follower.open(state.service.process_to_open(), now) {
            state.observe(event, now);
        }
        follower.read_upgrade(&state.service, now);
        told.tell(state.found(now));
        let due = [follower.open_again_at(state.service.process_to_open()), state.due_at(now)];
        let due = due.into_iter().flatten().min();
        tokio::select! {
            biased;
            event = follower.next() => state.observe(event, uptime()),
            () = timer.at(due.unwrap_or_default()), if due.is_some() => {}
        }
    }
}

impl State {
    fn new(settings: UnitCheck) -> Self {
        let service = Service::new(&settings.name, START_GRACE);
        Self { settings, service, inactive_since: None, counted: None, restarts: VecDeque::new() }
    }

    fn observe(&mut self, event: ServiceEvent, now: Uptime) {
        let is_state = matches!(event, ServiceEvent::Bus(BusEvent::Read { .. } | BusEvent::Changed(_)));
        self.service.observe(event, now);
        if self.is_stopped(now) {
            // What came before a stop that somebody asked for is dealt with.
            self.restarts.clear();
        }
        if !is_state {
            return;
        }
        let unit = &self.service.unit;
        let is_active = ["active", "reloading"].contains(&unit.active_state.as_str());
        self.inactive_since = if is_active { None } else { self.inactive_since.or(Some(now)) };
        // A start by a job sets the count back.
        let risen = unit.restarts.saturating_sub(self.counted.unwrap_or(unit.restarts));
        self.counted = Some(unit.restarts);
        self.restarts.extend((0..risen.min(u32::from(self.settings.restarts))).map(|_| now));
        while self.restarts.len() > usize::from(self.settings.restarts) {
            self.restarts.pop_front();
        }
    }

    fn is_stopped(&self, now: Uptime) -> bool {
        matches!(self.service.judge(true, now), Judgement::Stopped(_))
    }

    /// When the first of the restarts no longer counts.
    fn restarts_end_at(&self) -> Option<Uptime> {
        let is_full = self.settings.restarts > 0 && self.restarts.len() >= usize::from(self.settings.restarts);
        let first = self.restarts.front().filter(|_| is_full)?;
        Some(*first + self.settings.restarts_within_secs.duration())
    }

    /// When it has been inactive for too long, if that is a problem.
    fn inactive_at(&self) -> Option<Uptime> {
        let allowed = self.settings.inactive_secs.duration();
        let is_checked = !allowed.is_zero() && self.service.unit.is_enabled();
        Some(self.inactive_since.filter(|_| is_checked)? + allowed)
    }

    fn due_at(&self, now: Uptime) -> Option<Uptime> {
        let due = [self.service.deadline(now), self.restarts_end_at(), self.inactive_at()];
        due.into_iter().flatten().filter(|at| *at > now).min()
    }

    fn found(&self, now: Uptime) -> Found {
        let (service, unit, name) = (&self.service, &self.service.unit, &*self.settings.name);
        if service.bus == Bus::Connecting || unit.active_state.is_empty() {
            return Found::Pending(format!("systemd has not reported yet whether {name} runs"));
        }
        let is_stopping = service.is_being_stopped() || self.is_stopped(now);
        if self.restarts_end_at().is_some_and(|end| now < end) && !is_stopping {
            let (count, secs) = (self.restarts.len(), self.settings.restarts_within_secs.duration().as_secs());
            return Found::Problem(format!("systemd has restarted {name} {count} times within {secs} s"));
        }
        if service.bus == Bus::Connected && self.inactive_since.is_none() {
            return Found::Nothing(format!("{name} is active"));
        }
        let is_inactive_for_long = self.inactive_at().is_some_and(|at| now >= at);
        let inactive = || {
            format!(
                "{name} is enabled and has been {} for {} s",
                unit.active_state,
                self.settings.inactive_secs.duration().as_secs()
            )
        };
        match service.judge(true, now) {
            Judgement::Stopped(message) => Found::Intended(message),
            Judgement::NotFound(message) if unit.load_state == "masked" => Found::Intended(message),
            Judgement::UnitFailed(message)
            | Judgement::LeftStopped(message)
            | Judgement::StoppedWithDependency(message) => Found::Problem(message),
            Judgement::Ended(ended) if service.is_left_failed(now) => {
                Found::Problem(format!("{name} {}", ended.oom_killed(name).unwrap_or_else(|| ended.how())))
            }
            // Its end was seen, and nobody has asked for it.
            Judgement::Ended(_) | Judgement::Starting(_) if is_inactive_for_long => Found::Problem(inactive()),
            Judgement::NotFound(_) if !unit.was_started && is_inactive_for_long => Found::Problem(inactive()),
            Judgement::Ended(ended) if unit.active_state == "inactive" => {
                Found::Unknown(format!("{name} {}", ended.how()))
            }
            Judgement::NotFound(message) | Judgement::Unexplained(message) => Found::Unknown(message),
            Judgement::Ended(_) | Judgement::Runs | Judgement::Undecided => {
                Found::Pending(format!("{name} is {}", unit.active_state))
            }
            Judgement::Starting(message) | Judgement::Restarting(message) => Found::Pending(message),
        }
    }
}

#[cfg(test)]
mod tests;
