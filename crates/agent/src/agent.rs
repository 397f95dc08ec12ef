//! Passes reports to the engine, and what it decides to the publisher, to status.json, to the log and to the metrics.

use std::{collections::BTreeMap, path::Path, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};

use crate::{
    condition::{
        Condition, ConditionType, Desired, Reason, Status, Suppression, Transition, Uptime, View, engine::Engine,
    },
    host::{
        api::{ApiFacts, ObservedCondition},
        clock,
        kubelet::KubeletFacts,
        pause::{self, Pause},
        trouble::Troubles,
    },
    monitor::kubelet::Watched,
    report::{
        metrics::Metrics,
        status::{self, KubeletReport, Present, StatusReport},
    },
    settings::Settings,
};

/// status.json is written again after this time, even if it is the same.
const STATUS_EVERY: Duration = Duration::from_secs(15);
/// A monitor that has not reported for this long has hung.
const HUNG_AFTER: Duration = Duration::from_mins(2);
/// Ticks are two seconds apart. If one lasts this long, the host was suspended.
const SUSPENDED_FROM: Duration = Duration::from_secs(10);
/// A host or Node that is younger than this is still starting.
const JUST_STARTED: Duration = Duration::from_mins(2);

/// Whether the monitors work.
struct Monitors {
    /// When each reported last.
    reported: BTreeMap<ConditionType, Uptime>,
    checked_at: Uptime,
}

impl Monitors {
    fn new(now: Uptime) -> Self {
        Self { reported: ConditionType::ALL.iter().map(|kind| (*kind, now)).collect(), checked_at: now }
    }

    /// Whether the host was suspended since this was asked last, two seconds ago at most. Then the time since the last reports says
    /// nothing.
    fn was_suspended(&mut self, now: Uptime) -> bool {
        let was_suspended = now.saturating_sub(self.checked_at) > SUSPENDED_FROM;
        self.checked_at = now;
        if was_suspended {
            self.reported.values_mut().for_each(|at| *at = now);
        }
        was_suspended
    }

    fn check(&self, now: Uptime) -> anyhow::Result<()> {
        for (kind, at) in &self.reported {
            let (kind, silent) = (kind.name(), now.saturating_sub(*at));
            anyhow::ensure!(silent < HUNG_AFTER, "the monitor of {kind} has not reported for {} s", silent.as_secs());
        }
        Ok(())
    }
}

/// What the loop of the agent holds.
pub struct Agent {
    engine: Engine,
    desired: watch::Sender<Desired>,
    transitions: mpsc::Sender<Transition>,
    metrics: Metrics,
    troubles: Troubles,
    kubelet: watch::Receiver<Option<KubeletFacts>>,
    watched: watch::Receiver<Watched>,
    max_pause: Duration,
    api: ApiFacts,
    pause: Option<Pause>,
    monitors: Monitors,
    /// The last status.json, and when it was written.
    status: Option<(StatusReport, Uptime)>,
}

impl Agent {
    pub fn new(
        settings: &Settings,
        metrics: Metrics,
        troubles: Troubles,
        desired: watch::Sender<Desired>,
        transitions: mpsc::Sender<Transition>,
        kubelet: watch::Receiver<Option<KubeletFacts>>,
        watched: watch::Receiver<Watched>,
    ) -> Self {
        let turned_down = settings.reasons.iter().map(|(reason, settings)| (*reason, settings.shown_as));
        Self {
            engine: Engine::new(settings.kubelet.healthy_for_secs.duration(), turned_down.collect()),
            desired,
            transitions,
            metrics,
            troubles,
            kubelet,
            watched,
            max_pause: settings.maintenance.max_pause_secs.duration(),
            api: ApiFacts::default(),
            pause: None,
            monitors: Monitors::new(clock::uptime()),
            status: None,
        }
    }

    /// Takes in a monitor's report.
    pub fn report(&mut self, kind: ConditionType, view: View) {
        let now = clock::uptime();
        self.engine.report(kind, view, now);
        self.monitors.reported.insert(kind, now);
    }

    /// Takes in what is known of the API server, and adopts a Node that is seen for the first time.
    pub fn api_changed(&mut self, api: &ApiFacts) {
        self.api = api.clone();
        let Some(node) = &self.api.node else { return };
        let adopted = self.desired.borrow().node_uid.clone();
        if adopted.as_ref() == Some(&node.uid) {
            return;
        }
        if adopted.is_some() {
            self.engine.node_replaced();
        } else {
            let (now, booted) = (clock::uptime(), self.now().checked_sub(clock::uptime()).unwrap_or_default());
            for (condition, written) in node.conditions.iter().filter_map(observed) {
                self.engine.adopt(condition, written.is_some_and(|written| written < booted), now);
            }
        }
        let shown: Vec<_> = node.conditions.iter().filter_map(observed).map(|(condition, _)| condition).collect();
        let uid = node.uid.clone();
        self.desired.send_modify(|desired| {
            desired.node_uid = Some(uid);
            if adopted.is_none() && !shown.is_empty() {
                // What changes from here on is a transition of what the Node shows.
                desired.conditions = shown;
            }
        });
    }

    /// What is due every two seconds.
    ///
    /// # Errors
    /// When a monitor hangs, which only a restart of the agent ends.
    pub fn tick(&mut self) -> anyhow::Result<()> {
        self.monitors.check(clock::uptime())?;
        let pause = pause::read(Path::new(pause::PATH), clock::wall(), self.max_pause);
        if pause != self.pause {
            let state = pause.as_ref().map(|pause| format!("paused by {} until {}", pause.by, pause.until));
            tracing::info!("{}", state.unwrap_or_else(|| "no longer paused".into()));
            self.pause = pause;
        }
        Ok(())
    }

    /// Shows what is to be shown now.
    pub fn show(&mut self) {
        let now = clock::uptime();
        if self.monitors.was_suspended(now) {
            self.engine.resumed(now);
        }
        self.engine.suppress(self.suppression(now));
        let conditions = self.engine.evaluate(now);
        let before = self.desired.borrow().conditions.clone();
        if before != conditions {
            self.publish(&before, conditions);
        }
        self.write_status(now);
    }

    fn publish(&mut self, before: &[Condition], conditions: Vec<Condition>) {
        for to in &conditions {
            let from = before.iter().find(|from| from.kind == to.kind);
            if from.is_none_or(|from| (from.status, &from.reason) != (to.status, &to.reason)) {
                self.transition(from.cloned(), to.clone());
            }
        }
        self.desired.send_modify(|desired| desired.conditions = conditions);
    }

    fn transition(&self, from: Option<Condition>, to: Condition) {
        let (kind, status, reason, message) = (to.kind.name(), to.status.name(), &to.reason, &to.message);
        if to.status == Status::False {
            tracing::warn!("{kind} is {status} ({reason}): {message}");
        } else {
            tracing::info!("{kind} is {status} ({reason}): {message}");
        }
        if from.as_ref().is_none_or(|from| from.status != to.status) {
            self.metrics.transition(to.kind, to.status);
        }
        if self.transitions.try_send(Transition { from, to }).is_err() {
            tracing::warn!("an Event is dropped, because the API server does not take those before it");
        }
    }

    fn suppression(&self, now: Uptime) -> Option<Suppression> {
        if let Some(Pause { until, by, reason }) = &self.pause {
            let reason = reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            return Some(Suppression::Paused { why: format!("paused by {by} until {until:.0}{reason}") });
        }
        let created = self.api.node.as_ref().map(|node| self.now().duration_since(node.created));
        let is_new = created.is_some_and(|age| age < SignedDuration::try_from(JUST_STARTED).unwrap_or_default());
        (now < JUST_STARTED || is_new).then_some(Suppression::JustStarted)
    }

    /// The time by the API server's clock, as far as it is known.
    fn now(&self) -> Timestamp {
        self.api.server_time.map_or_else(clock::wall, |time| time.at(clock::uptime()))
    }

    /// Withdraws what is `False`, because nobody watches any more; returns the conditions that have changed.
    pub fn withdraw_false(&mut self) -> Vec<Condition> {
        let spec = Reason::NodevigilStopped.spec();
        let mut changed = Vec::new();
        self.desired.send_modify(|desired| {
            for condition in desired.conditions.iter_mut().filter(|condition| condition.status == Status::False) {
                condition.message = format!("{}: {}", condition.reason, condition.message);
                (condition.status, condition.reason) = (spec.status, spec.name.to_owned());
                condition.flips += 1;
                changed.push(condition.clone());
            }
        });
        changed
    }

    fn write_status(&mut self, now: Uptime) {
        let report = {
            let (facts, watched) = (self.kubelet.borrow(), self.watched.borrow());
            let node = self.api.node.as_ref().map(|node| node.name.clone());
            let node = node.or_else(|| facts.as_ref().map(|facts| facts.node_name.clone())).unwrap_or_default();
            let kubelet = KubeletReport {
                unit: watched.unit.clone(),
                pid: watched.pid.and_then(|pid| u32::try_from(pid).ok()),
                healthz: watched.healthz_url.clone(),
            };
            let present = Present {
                node: &node,
                desired: &self.desired.borrow(),
                api: &self.api,
                kubelet,
                pause: self.pause.as_ref(),
                troubles: self.troubles.standing(),
                now: clock::wall(),
                uptime: now,
            };
            StatusReport::new(present, self.status.as_ref().map(|(report, _)| report))
        };
        let is_due = self.status.as_ref().is_none_or(|(last, at)| now >= *at + STATUS_EVERY || !is_same(last, &report));
        if is_due {
            if let Err(error) = report.write(Path::new(status::PATH)) {
                tracing::warn!("{}: {error}", status::PATH);
            }
            self.status = Some((report, now));
        }
    }
}

/// Whether two reports say the same, whenever they were written.
fn is_same(last: &StatusReport, report: &StatusReport) -> bool {
    StatusReport { written_at: last.written_at, ..report.clone() } == *last
}

/// A condition of ours as the Node shows it, and when it was written last.
fn observed(shown: &ObservedCondition) -> Option<(Condition, Option<Timestamp>)> {
    let kind = ConditionType::by_name(&shown.kind)?;
    let status = Status::by_name(&shown.status)?;
    let (reason, message) = (shown.reason.clone(), shown.message.clone());
    Some((Condition { kind, status, reason, message, flips: 0 }, shown.last_heartbeat))
}
