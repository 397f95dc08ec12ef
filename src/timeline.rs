//! What the tasks have seen in the last ten minutes, for the records of problems: changes of conditions and units, jobs, ends, probes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::condition::{ConditionType, Uptime};
use crate::host::clock::Now;
use crate::host::systemd::BusEvent;

const KEPT_FOR: Duration = Duration::from_mins(10);
const MAX_ENTRIES: usize = 200;
const MAX_TEXT_BYTES: usize = 300;
/// For so long after a restart a record is about the run before it.
const END_IS_NEAR: Duration = Duration::from_secs(30);

/// The conditions about a service of which a record shows the unit. Those of custom checks are not among them.
const OF_SERVICES: [ConditionType; 2] = [ConditionType::KubeletHealthy, ConditionType::ContainerRuntimeHealthy];

/// Shared by all tasks.
#[derive(Debug, Clone, Default)]
pub struct Timeline(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    entries: VecDeque<Noted>,
    units: BTreeMap<ConditionType, Runs>,
    findings: Option<Vec<String>>,
}

#[derive(Debug)]
struct Noted {
    source: &'static str,
    text: String,
    first: Uptime,
    last: Uptime,
    times: u32,
}

/// The runs of a unit that are known: IDs as systemd gives them (`InvocationID`).
#[derive(Debug, Default)]
struct Runs {
    unit: String,
    present: String,
    /// Whether the present run has a main process.
    is_running: bool,
    ended: Option<(String, Uptime)>,
}

/// What was seen, how often in succession, and when for the first and the last time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineEntry {
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    pub times: u32,
    pub source: String,
    pub text: String,
}

/// A unit, and the run of it that a record is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRun {
    pub unit: String,
    pub invocation: String,
}

impl Timeline {
    /// Adds what a source has seen now. The same again as its last one is counted.
    pub fn note(&self, source: &'static str, text: &str, now: Uptime) {
        let text = redact::bounded(text, MAX_TEXT_BYTES);
        let entries = &mut self.lock().entries;
        entries.retain(|entry| now < entry.last + KEPT_FOR);
        match entries.iter_mut().rev().find(|entry| entry.source == source).filter(|entry| entry.text == text) {
            Some(entry) => (entry.times, entry.last) = (entry.times + 1, now),
            None => entries.push_back(Noted { source, text, first: now, last: now, times: 1 }),
        }
        if entries.len() > MAX_ENTRIES {
            entries.pop_front();
        }
    }

    /// Takes in of which run of its unit a service is, from what systemd reports of it.
    pub fn unit_seen(&self, kind: ConditionType, event: &BusEvent, now: Uptime) {
        if !OF_SERVICES.contains(&kind) {
            return;
        }
        let mut seen = self.lock();
        let runs = seen.units.entry(kind).or_default();
        if let BusEvent::Read { unit, .. } = event {
            runs.unit.clone_from(unit);
        }
        if let BusEvent::Read { state, .. } | BusEvent::Changed(state) = event {
            runs.is_running = state.main_pid != 0;
            if state.invocation != runs.present {
                let ended = std::mem::replace(&mut runs.present, state.invocation.clone());
                runs.ended = Some((ended, now)).filter(|(ended, _)| !ended.is_empty());
            }
        }
    }

    /// Keeps what the last check of the kubelet's configuration has found.
    pub fn checked(&self, findings: Vec<String>) {
        self.lock().findings = Some(findings);
    }

    /// What it has found; none before the first check.
    pub fn findings(&self) -> Option<Vec<String>> {
        self.lock().findings.clone()
    }

    /// All that is known.
    pub fn entries(&self, now: Now) -> Vec<TimelineEntry> {
        let time = |at| now.wall_at(at);
        let entry = |noted: &Noted| TimelineEntry {
            at: time(noted.first),
            until: (noted.times > 1).then(|| time(noted.last)),
            times: noted.times,
            source: noted.source.to_owned(),
            text: noted.text.clone(),
        };
        self.lock().entries.iter().map(entry).collect()
    }

    /// The units of kubelet and container runtime, first the one that the condition is about. The run is the one that has just ended, if one
    /// has.
    pub fn units(&self, about: ConditionType, now: Uptime) -> Vec<UnitRun> {
        let seen = self.lock();
        let mut units: Vec<_> = seen.units.iter().filter(|(_, runs)| !runs.unit.is_empty()).collect();
        units.sort_by_key(|(kind, _)| **kind != about);
        let run = |(_, runs): (&ConditionType, &Runs)| {
            let ended = runs.ended.as_ref().filter(|(_, at)| runs.is_running && now < *at + END_IS_NEAR);
            let invocation = ended.map_or(&runs.present, |(ended, _)| ended).clone();
            UnitRun { unit: runs.unit.clone(), invocation }
        };
        units.into_iter().map(run).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::systemd::UnitState;

    fn at(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    #[test]
    fn the_same_again_is_counted_and_what_is_old_is_dropped() {
        let timeline = Timeline::default();
        for (source, text, secs) in [
            ("probe", "ok", 0),
            ("unit", "active", 1),
            ("probe", "ok", 2),
            ("probe", "refused", 599),
            ("probe", "ok", 601),
        ] {
            timeline.note(source, text, at(secs));
        }
        let wall = "2026-11-28T12:00:00Z".parse().unwrap();
        let entries = timeline.entries(Now::of(at(601), wall));
        let shown: Vec<_> = entries.iter().map(|entry| (&*entry.text, entry.times, entry.until.is_some())).collect();
        assert_eq!(shown, [("ok", 2, true), ("refused", 1, false), ("ok", 1, false)], "{entries:?}");
        assert_eq!(entries[1].at, "2026-11-28T11:59:58Z".parse().unwrap());
        (0..300).for_each(|count| timeline.note("unit", &count.to_string(), at(602)));
        assert_eq!(timeline.0.lock().unwrap().entries.len(), MAX_ENTRIES);
    }

    fn state(run: &str) -> UnitState {
        UnitState { invocation: run.into(), main_pid: 7, ..UnitState::default() }
    }

    fn read(unit: &str, run: &str) -> BusEvent {
        BusEvent::Read { unit: unit.into(), state: state(run), job: None, dependencies: vec![] }
    }

    #[test]
    fn the_service_of_a_custom_check_is_in_no_record() {
        let (timeline, kubelet) = (Timeline::default(), ConditionType::KubeletHealthy);
        let [custom, ..] = crate::condition::custom::tests::registered();
        timeline.unit_seen(custom, &read("chrony.service", "a"), at(1));
        timeline.unit_seen(kubelet, &read("kubelet.service", "b"), at(1));
        let wanted = UnitRun { unit: "kubelet.service".into(), invocation: "b".into() };
        assert_eq!(timeline.units(kubelet, at(2)), [wanted]);
    }

    #[test]
    fn a_record_is_about_the_run_that_has_just_ended() {
        let (timeline, kubelet) = (Timeline::default(), ConditionType::KubeletHealthy);
        timeline.unit_seen(ConditionType::ContainerRuntimeHealthy, &read("containerd.service", "c"), at(1));
        timeline.unit_seen(kubelet, &read("kubelet.service", "first"), at(1));
        timeline.unit_seen(kubelet, &BusEvent::Changed(state("second")), at(10));
        let runs = |secs| timeline.units(kubelet, at(secs)).into_iter().map(|run| run.invocation).collect::<Vec<_>>();
        assert_eq!((runs(11), runs(40)), (vec!["first".to_owned(), "c".into()], vec!["second".to_owned(), "c".into()]));
        timeline.unit_seen(kubelet, &BusEvent::Changed(UnitState { main_pid: 0, ..state("second") }), at(12));
        assert_eq!(timeline.units(kubelet, at(12))[0].invocation, "second", "it has ended too");
        assert_eq!(timeline.units(ConditionType::ContainerRuntimeHealthy, at(11))[0].unit, "containerd.service");
    }
}
