//! Passes the monitors' reports to the engine, and the engine's decisions to the publisher, status.json, the log and the metrics.

mod suppression;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use log::Level;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;

use crate::condition::engine::Engine;
use crate::condition::profile::ConditionNames;
use crate::condition::{
    Condition, ConditionType, Desired, Occurrence, Published, Reason, Status, Suppression, Transition, Uptime, View,
};
use crate::facts::{ApiFacts, ObservedCondition, SyncLoop};
use crate::host::clock::{self, Now, ServerTime};
use crate::host::kubelet::{KubeletFacts, Watched};
use crate::records::Recorder;
use crate::records::last_boot::{self, LastBoot};
use crate::report::metrics::Metrics;
use crate::report::status::{self, KubeletReport, Present, StatusReport};
use crate::settings::Settings;
use crate::trouble::Troubles;
use suppression::Suppressions;

/// status.json is written again after this time, even if it is the same.
const STATUS_EVERY: Duration = Duration::from_secs(30);
/// The records that an earlier run of the agent has named are known to one that starts within this time.
const LEFT_COUNTS_FOR: SignedDuration = SignedDuration::from_mins(5);
/// A monitor that has not reported for this long hangs.
const HUNG_AFTER: Duration = Duration::from_mins(2);
/// Ticks are five seconds apart. If one lasts this long, the host was suspended.
const SUSPENDED_FROM: Duration = Duration::from_secs(10);

/// The `MESSAGE_ID` of each transition in the journal (`systemd.journal-fields(7)`).
const TRANSITION_ID: &str = "4f712d08936543adb149111fa83f87de";

/// Whether the monitors work.
struct Monitors {
    /// When each reported last.
    reported: BTreeMap<ConditionType, Uptime>,
    checked_at: Uptime,
}

impl Monitors {
    fn new(now: Uptime) -> Self {
        let expected = ConditionType::all().filter(|kind| !kind.is_optional());
        Self { reported: expected.map(|kind| (kind, now)).collect(), checked_at: now }
    }

    /// Fails if a monitor hangs. Returns whether the host was suspended since the last call, which was at most five seconds ago: then none
    /// had the time to report.
    fn check(&mut self, now: Uptime) -> anyhow::Result<bool> {
        let was_suspended = now - self.checked_at > SUSPENDED_FROM;
        self.checked_at = now;
        if was_suspended {
            self.reported.values_mut().for_each(|at| *at = now);
        }
        for (kind, at) in &self.reported {
            let (kind, silent) = (kind.name(), now - *at);
            anyhow::ensure!(silent < HUNG_AFTER, "the monitor of {kind} has not reported for {} s", silent.as_secs());
        }
        Ok(was_suspended)
    }
}

/// What its monitor knows of the kubelet.
pub struct KubeletSeen {
    pub facts: watch::Receiver<Option<KubeletFacts>>,
    pub watched: watch::Receiver<Watched>,
}

/// The state of the agent's loop.
pub struct Agent {
    engine: Engine,
    desired: watch::Sender<Desired>,
    transitions: mpsc::Sender<Occurrence>,
    metrics: Metrics,
    troubles: Troubles,
    kubelet: KubeletSeen,
    suppressions: Suppressions,
    names: ConditionNames,
    api: ApiFacts,
    monitors: Monitors,
    /// The last status.json, and when it was written.
    status: Option<(StatusReport, Uptime)>,
    recorder: Recorder,
}

impl Agent {
    pub fn new(
        settings: &Settings,
        metrics: Metrics,
        troubles: Troubles,
        desired: watch::Sender<Desired>,
        transitions: mpsc::Sender<Occurrence>,
        kubelet: KubeletSeen,
        mut recorder: Recorder,
    ) -> Self {
        // What an earlier run of the agent has left in memory, which a boot clears: a problem that lasts keeps its record.
        let (now, left) = (clock::uptime(), StatusReport::read(Path::new(status::PATH)).ok());
        recorder.last_boot = left.as_ref().and_then(|report| report.last_boot.clone());
        let left = left.filter(|report| clock::wall().duration_since(report.written_at) < LEFT_COUNTS_FOR);
        let left = left.map(|report| report.conditions(now)).unwrap_or_default();
        for condition in &left {
            recorder.names.adopt(condition, now);
        }
        let mut engine = Engine::new(settings.conditions.healthy_for_secs.duration(), settings.downgraded());
        // The others are adopted from the Node.
        let unpublished: Vec<_> = left.into_iter().filter(|condition| !condition.kind.is_published()).collect();
        for condition in unpublished.iter().cloned() {
            engine.adopt(condition, false, now);
        }
        desired.send_modify(|desired| desired.conditions = unpublished);
        Self {
            engine,
            desired,
            transitions,
            metrics,
            troubles,
            kubelet,
            suppressions: Suppressions::new(settings.maintenance.max_pause_secs.duration()),
            names: settings.kubernetes.names(),
            api: ApiFacts::default(),
            monitors: Monitors::new(clock::uptime()),
            status: None,
            recorder,
        }
    }

    /// Takes in how the last boot ended, and creates an Event, unless an earlier agent of this boot has: one that could not write to the disk.
    pub fn last_boot_found(&mut self, found: LastBoot) {
        if self.recorder.last_boot.is_some() {
            return;
        }
        tracing::info!("{}", found.message);
        let (reason, text, is_warning) = (last_boot::EVENT_REASON, found.message.clone(), !found.is_clean);
        self.transitions.try_send(Occurrence::Note { reason, text, is_warning, at: clock::uptime() }).ok();
        self.recorder.last_boot = Some(found.message);
    }

    /// Records a monitor's report.
    pub fn report(&mut self, kind: ConditionType, view: View) {
        let now = clock::uptime();
        self.engine.report(kind, view, now);
        self.monitors.reported.insert(kind, now);
    }

    /// Records the state of the API server, and adopts the conditions of a Node that is observed for the first time.
    pub fn api_changed(&mut self, api: &ApiFacts) {
        self.api = api.clone();
        // Not only at the next tick: a restarted agent would show a problem until then.
        self.suppressions.read_pause(&self.api, self.now(), &self.troubles);
        let Some(node) = &self.api.node else { return };
        let adopted = self.desired.borrow().node_uid.clone();
        if adopted.as_ref() == Some(&node.uid) {
            return;
        }
        let (uid, now) = (node.uid.clone(), clock::uptime());
        if adopted.is_some() {
            self.engine.node_replaced();
            return self.desired.send_modify(|desired| desired.node_uid = Some(uid));
        }
        let booted = self.now().server_at(Uptime::ZERO);
        let mut shown = Vec::new();
        for (condition, written) in node.conditions.iter().filter_map(|shown| observed(shown, now)) {
            self.engine.adopt(condition.clone(), written.is_some_and(|written| written < booted), now);
            shown.push(condition);
        }
        let kinds: Vec<_> = shown.iter().map(|condition| condition.kind).collect();
        self.engine.node_seen(&kinds);
        let written: Vec<_> = node.conditions.iter().filter_map(|shown| written(self.names, shown, now)).collect();
        self.desired.send_modify(|desired| {
            desired.node_uid = Some(uid);
            // What the Node does not show is published by the next evaluation, which knows what suppresses problems.
            desired.published = self.names.translate(&shown, &written, now);
            // From here on, a change is a transition from what the Node shows. A problem that it does not show is still to come.
            let is_to_come = |known: &Condition| known.kind.is_published() && known.is_problem();
            desired.conditions.retain(|known| !kinds.contains(&known.kind) && !is_to_come(known));
            desired.conditions.extend(shown);
        });
    }

    /// Does what is due every five seconds.
    pub fn tick(&mut self) {
        self.suppressions.read_pause(&self.api, self.now(), &self.troubles);
    }

    /// Evaluates the conditions, and publishes and logs what has changed.
    ///
    /// # Errors
    /// When a monitor hangs, which only a restart of the agent ends.
    pub async fn show(&mut self) -> anyhow::Result<()> {
        let now = clock::uptime();
        if self.monitors.check(now)? {
            self.engine.resumed(now);
        }
        let suppression = self.suppressions.decide(&self.api, self.engine.is_well(), self.now()).await;
        let without_taints = matches!(suppression, Some(Suppression::Paused { .. }));
        self.engine.suppress(suppression);
        let (mut conditions, ending) = (self.engine.evaluate(now), self.engine.ending());
        self.desired.send_if_modified(|desired| {
            let differs = (desired.without_taints, &desired.ending) != (without_taints, &ending);
            (desired.without_taints, desired.ending) = (without_taints, ending);
            differs
        });
        let before = self.desired.borrow().conditions.clone();
        let time = self.now();
        self.recorder.names.add(&before, &mut conditions, time);
        let published = self.names.translate(&conditions, &self.desired.borrow().published, now);
        if before != conditions || published != self.desired.borrow().published {
            self.publish(&before, conditions, published);
            // The publisher sends first: a record and status.json take milliseconds.
            yield_now().await;
        }
        let node = self.node_name();
        self.recorder.begin(&self.desired.borrow().conditions, &node, time);
        self.write_status(now);
        Ok(())
    }

    fn publish(&mut self, before: &[Condition], conditions: Vec<Condition>, published: Vec<Published>) {
        for to in &conditions {
            let from = before.iter().find(|from| from.kind == to.kind);
            if from.is_none_or(|from| (from.status, &from.reason) != (to.status, &to.reason)) {
                self.transition(from.cloned(), to.clone());
            }
        }
        self.desired.send_modify(|desired| {
            (desired.conditions, desired.published) = (conditions, published);
        });
    }

    fn transition(&self, from: Option<Condition>, to: Condition) {
        self.log_transition(&to);
        self.recorder.transition(&to);
        if from.as_ref().is_none_or(|from| from.status != to.status) {
            self.metrics.transition(to.kind, to.status);
        }
        // Before the Node is seen nothing has been on it, and what is on it may hold a problem back.
        let is_on_node = !to.kind.is_published() || self.desired.borrow().node_uid.is_some();
        if to.is_problem() && !is_on_node {
            return;
        }
        let from = from.filter(|_| is_on_node);
        let is_sent =
            self.transitions.try_send(Occurrence::Transition(Transition { from, to, at: clock::uptime() })).is_ok();
        if is_sent && self.transitions.capacity() == 0 {
            let waiting = self.transitions.max_capacity();
            tracing::warn!("{waiting} Events wait for the API server; later Events are dropped until it accepts one");
        }
    }

    /// Logs a transition with its fields of the journal, which docs/operate.md names.
    fn log_transition(&self, to: &Condition) {
        let (kind, status, reason, message) = (to.kind.name(), to.status.name(), &*to.reason, &to.message);
        let is_about_kubelet = matches!(to.kind, ConditionType::KubeletHealthy | ConditionType::KubeletConfigValid);
        let unit = self.kubelet.watched.borrow().unit.clone().filter(|_| is_about_kubelet).unwrap_or_default();
        log::log!(
            if to.is_problem() { Level::Warn } else { Level::Info },
            MESSAGE_ID = TRANSITION_ID, NODEVIGIL_CONDITION = kind, NODEVIGIL_STATUS = status, NODEVIGIL_REASON = reason,
            NODEVIGIL_UNIT = unit.as_str();
            "{kind} is {status} ({reason}): {message}"
        );
    }

    fn now(&self) -> Now {
        Now::read(self.api.server_clock)
    }

    /// Turns the problems that are shown into `Unknown` and removes all taints, because nothing monitors the node any more. Returns what is
    /// then written on the Node, if it has changed.
    pub fn withdraw_problems(&mut self) -> Vec<Published> {
        let (spec, now) = (Reason::NodevigilStopped.spec(), clock::uptime());
        let mut changed = Vec::new();
        self.desired.send_modify(|desired| {
            for condition in desired.conditions.iter_mut().filter(|condition| condition.is_problem()) {
                condition.message = format!("{}: {}", condition.reason, condition.message);
                (condition.status, condition.reason) = (spec.status, spec.name.to_owned());
                condition.since = now;
            }
            let published = self.names.translate(&desired.conditions, &desired.published, now);
            let before = std::mem::replace(&mut desired.published, published);
            changed.extend(desired.published.iter().filter(|published| !before.contains(published)).cloned());
            desired.without_taints = true;
        });
        changed
    }

    /// The Node's name; empty while it is not known.
    fn node_name(&self) -> String {
        let name = self.api.node.as_ref().map(|node| node.name.clone());
        name.or_else(|| self.kubelet.facts.borrow().as_ref().map(|facts| facts.node_name.clone())).unwrap_or_default()
    }

    fn write_status(&mut self, now: Uptime) {
        let mut report = {
            let (node, watched) = (self.node_name(), self.kubelet.watched.borrow());
            let kubelet = KubeletReport {
                unit: watched.unit.clone(),
                pid: watched.pid.and_then(|pid| u32::try_from(pid).ok()),
                healthz: watched.healthz_url.clone(),
                sync_loop_unwatched: self.api.sync_loop.as_ref().and_then(|(_, sync_loop)| match sync_loop {
                    SyncLoop::Unwatched(why) => Some(why.clone()),
                    SyncLoop::Runs | SyncLoop::Stalled { .. } => None,
                }),
            };
            let present = Present {
                node: &node,
                desired: &self.desired.borrow(),
                api: &self.api,
                kubelet,
                pause: self.suppressions.pause.as_ref(),
                troubles: self.troubles.present(),
                last_boot: self.recorder.last_boot.clone(),
                now: clock::wall(),
                uptime: now,
            };
            StatusReport::new(present, self.status.as_ref().map(|(report, _)| report))
        };
        if let Some((last, _)) = self.status.as_ref().filter(|(_, at)| now < *at + STATUS_EVERY) {
            let written_at = std::mem::replace(&mut report.written_at, last.written_at);
            if report == *last {
                return;
            }
            report.written_at = written_at;
        }
        if let Err(error) = report.write(Path::new(status::PATH)) {
            tracing::warn!("cannot write {}: {error}", status::PATH);
        }
        self.status = Some((report, now));
    }
}

/// A condition of nodevigil's as the Node shows it, and when it was last written. Optional conditions are not adopted: a host that has
/// lost the hardware would show them for ever.
fn observed(shown: &ObservedCondition, now: Uptime) -> Option<(Condition, Option<ServerTime>)> {
    let kind = ConditionType::by_name(&shown.kind).filter(|kind| !kind.is_optional())?;
    let status = Status::by_name(&shown.status)?;
    let (reason, message) = (shown.reason.clone(), shown.message.clone());
    Some((Condition { kind, status, reason, message, since: now }, shown.last_heartbeat))
}

/// A condition as an earlier run of the agent has written it, under whatever name.
fn written(names: ConditionNames, shown: &ObservedCondition, now: Uptime) -> Option<Published> {
    let (name, status) = (names.find(&shown.kind)?, Status::by_name(&shown.status)?);
    Some(Published { name, status, reason: shown.reason.clone(), message: shown.message.clone(), since: now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Finding;
    use crate::condition::suppression::MAINTENANCE_SIGNALS;
    use crate::facts::{NodeFacts, RequestCounts};
    use crate::timeline::Timeline;

    /// An agent that keeps no records, and the transitions that it passes on.
    fn agent() -> (Agent, mpsc::Receiver<Occurrence>) {
        let (mut settings, troubles, desired) =
            (Settings::default(), Troubles::default(), watch::Sender::<Desired>::default());
        settings.records.enabled = false;
        let api = watch::Sender::<ApiFacts>::default().subscribe();
        let metrics = Metrics::new(desired.subscribe(), api, RequestCounts::default(), troubles.clone());
        let (transitions, received) = mpsc::channel(64);
        let kubelet =
            KubeletSeen { facts: watch::Sender::default().subscribe(), watched: watch::Sender::default().subscribe() };
        let (recorder, _) = Recorder::new(settings.records.clone(), Timeline::default(), troubles.clone());
        (Agent::new(&settings, metrics, troubles, desired, transitions, kubelet, recorder), received)
    }

    /// The reasons of the transitions that were passed on: before, empty if there was none, and after.
    fn changes(transitions: &mut mpsc::Receiver<Occurrence>) -> Vec<(String, String)> {
        let all = std::iter::from_fn(|| transitions.try_recv().ok()).map(|occurrence| match occurrence {
            Occurrence::Transition(Transition { from, to, .. }) => {
                (from.map(|from| from.reason).unwrap_or_default(), to.reason)
            }
            Occurrence::Note { reason, .. } => (String::new(), reason.to_owned()),
        });
        all.collect()
    }

    /// A Node that shows these conditions, healthy.
    fn node(shown: &[ConditionType]) -> ApiFacts {
        let condition = |kind: &ConditionType| ObservedCondition {
            kind: kind.name().into(),
            status: kind.healthy_status().name().into(),
            reason: Reason::healthy(*kind).spec().name.into(),
            message: "m".into(),
            last_heartbeat: None,
            last_transition: None,
        };
        let conditions = shown.iter().map(condition).collect();
        let node = NodeFacts { name: "n1".into(), uid: "u1".into(), conditions, ..NodeFacts::default() };
        ApiFacts { node: Some(node), ..ApiFacts::default() }
    }

    #[test]
    fn a_monitor_that_has_not_reported_hangs_unless_the_host_was_suspended() {
        let at = Uptime::from_secs;
        let mut monitors = Monitors::new(at(100));
        assert!(!monitors.check(at(104)).unwrap());
        assert!(monitors.check(at(404)).unwrap(), "a suspend of five minutes ends no agent");
        for now in (408..524).step_by(4) {
            assert!(!monitors.check(at(now)).unwrap());
        }
        assert!(monitors.check(at(524)).is_err());
    }

    #[tokio::test]
    async fn a_problem_from_before_the_node_was_seen_is_a_new_one_to_a_node_in_maintenance() {
        let (mut agent, mut transitions) = agent();
        let kind = ConditionType::NodeStorageHealthy;
        agent.report(kind, View::found(Reason::StorageFull, "m"));
        agent.show().await.unwrap();
        let mut api = node(&[]);
        api.node.as_mut().unwrap().signals = vec![(MAINTENANCE_SIGNALS[0].0, None)];
        agent.api_changed(&api);
        assert!(agent.desired.borrow().published.is_empty(), "the publisher may run before the next evaluation");
        agent.show().await.unwrap();
        let shown = agent.desired.borrow().published.clone();
        let shown: Vec<_> = shown.iter().map(|one| (one.name, one.status, one.reason.as_str())).collect();
        assert_eq!(shown, [(kind.name(), Status::Unknown, "NodeInMaintenance")]);
        api.node.as_mut().unwrap().signals.clear();
        agent.api_changed(&api);
        agent.show().await.unwrap();
        let wanted = [("", "NodeInMaintenance"), ("NodeInMaintenance", "StorageFull")];
        assert_eq!(changes(&mut transitions), wanted.map(|(from, to)| (from.to_owned(), to.to_owned())));
    }

    #[tokio::test]
    async fn a_problem_from_before_the_node_was_seen_is_one_transition() {
        for shown in [&[][..], &[ConditionType::NodeStorageHealthy]] {
            let (mut agent, mut transitions) = agent();
            agent.report(ConditionType::NodeStorageHealthy, View::found(Reason::StorageFull, "m"));
            agent.show().await.unwrap();
            agent.api_changed(&node(shown));
            agent.show().await.unwrap();
            agent.show().await.unwrap();
            let from = if shown.is_empty() { "" } else { "StorageIsHealthy" };
            assert_eq!(changes(&mut transitions), [(from.to_owned(), "StorageFull".to_owned())]);
        }
    }

    #[tokio::test]
    async fn before_the_node_is_seen_a_transition_is_from_nothing() {
        let (mut agent, mut transitions) = agent();
        for reason in [Reason::NodeBootstrapping, Reason::BootstrapStageLate] {
            agent.report(ConditionType::NodeBootstrapped, View::Unknown(Finding::new(reason, "m")));
            agent.show().await.unwrap();
        }
        let wanted = ["NodeBootstrapping", "BootstrapStageLate"];
        assert_eq!(changes(&mut transitions), wanted.map(|to| (String::new(), to.to_owned())));
    }

    #[tokio::test]
    async fn what_the_node_does_not_show_when_it_is_first_seen_is_no_second_transition() {
        let [_, chrony, oom] = crate::condition::custom::tests::registered();
        let (mut agent, mut transitions) = agent();
        agent.report(oom, View::found(Reason::of(oom, "OOMKilling").unwrap(), "m"));
        agent.report(chrony, View::healthy("m"));
        agent.report(ConditionType::KubeletHealthy, View::healthy("m"));
        agent.show().await.unwrap();
        agent.api_changed(&node(&[ConditionType::KubeletHealthy]));
        agent.show().await.unwrap();
        let wanted = ["KubeletIsHealthy", Reason::healthy(chrony).spec().name, "OOMKilling"];
        assert_eq!(changes(&mut transitions), wanted.map(|to| (String::new(), to.to_owned())));
        let mut published: Vec<_> = agent.desired.borrow().published.iter().map(|one| one.name).collect();
        published.sort_unstable();
        assert_eq!(published, ["KubeletHealthy", chrony.name()]);
    }
}
