//! The rules, over recordings of real hosts (tests/memory-traces). Those in `held-out` were not used when the rules were made.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::findings;
use super::replay::{Replay, State};

/// When the memory's state became another one, in seconds, and which.
type Transition = (f64, State);

/// How many seconds before the OOM kill it is known that the memory runs out, at the worst of the times at which it may be read.
const LETHAL: [(&str, f64); 17] = [
    ("skill", 2.2),
    ("kvictim", 2.5),
    ("mglru", 4.5),
    ("sslow", 19.5),
    ("recorded/lethal-1", 18.7),
    ("recorded/lethal-2", 15.5),
    ("recorded/lethal-4", 4.7),
    ("recorded/lethal-8", 3.4),
    ("recorded/lethal-20", 3.4),
    ("recorded/lethal-kubelet", 4.1),
    ("recorded/swap-lethal", 4.8),
    ("recorded/zram-lethal", 3.2),
    ("held-out/lethal-2", 11.4),
    ("held-out/lethal-8", 4.3),
    ("held-out/lethal-20", 5.1),
    ("held-out/swap-lethal", 5.6),
    ("held-out/zram-lethal", 4.2),
];
/// Hosts with 2 % of their memory left, where nothing is killed and nothing goes on.
const LIVELOCK: [&str; 5] =
    ["i100none", "snone", "recorded/livelock-100", "recorded/livelock-300", "held-out/livelock-300"];
/// A host that did something else: reads and writes of files, limits of cgroups, bursts, swap that suffices.
const WITHOUT_PROBLEM: [&str; 18] = [
    "fpseq",
    "fpmemcg2",
    "kmemcg",
    "znone",
    "recorded/burst",
    "recorded/kubelet-limit",
    "recorded/kubelet-limit-slow-disk",
    "recorded/pod-limit",
    "recorded/read-disk",
    "recorded/steady",
    "recorded/swap-absorbs",
    "recorded/swap-idle",
    "recorded/write-files",
    "recorded/zram-absorbs",
    "held-out/pod-limit",
    "held-out/read-disk",
    "held-out/swap-absorbs",
    "held-out/zram-absorbs",
];

fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/memory-traces"))
}

/// A recording: its header and its samples.
struct Trace {
    header: Value,
    samples: Vec<Value>,
}

impl Trace {
    fn read(name: &str) -> Self {
        let text = fs::read_to_string(directory().join(format!("{name}.jsonl"))).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut header = lines.next().unwrap();
        let mut samples: Vec<_> = lines.collect();
        // Before the recording began, the monitor has run for a while.
        let (first, calm) = (samples[0].clone(), 0..150);
        let lead = f64::from(calm.end) / 10.0;
        header["oom_kill_at_s"] = header["oom_kill_at_s"].as_f64().map(|at| at + lead).into();
        for sample in &mut samples {
            sample["t_s"] = (time(sample) + lead).into();
        }
        let before = calm.map(|tenths| {
            let mut sample = first.clone();
            sample["t_s"] = (time(&first) + f64::from(tenths) / 10.0).into();
            sample
        });
        samples.splice(0..0, before);
        Self { header, samples }
    }

    /// Without its first samples, so that the monitor's readings fall on other ones.
    fn from(mut self, sample: usize) -> Self {
        self.samples.drain(..sample);
        self
    }

    /// On a host `times` as large.
    fn scaled(mut self, times: f64) -> Self {
        for line in self.samples.iter_mut().chain([&mut self.header]).filter_map(Value::as_object_mut) {
            for (name, value) in line {
                if name.ends_with("_mib") || name.ends_with("scan_per_s") || name == "refault_per_s" {
                    *value = (value.as_f64().unwrap_or_default() * times).into();
                }
            }
        }
        self
    }

    /// With the samples for which `is_wanted` holds once more after their end, again and again.
    fn repeated(mut self, is_wanted: impl Fn(&Value) -> bool) -> Self {
        let wanted: Vec<_> = self.samples.iter().filter(|sample| is_wanted(sample)).cloned().collect();
        let end = self.samples.iter().rposition(&is_wanted).unwrap();
        self.samples.truncate(end + 1);
        let lasts = time(&wanted[wanted.len() - 1]) - time(&wanted[0]) + 0.1;
        for again in 1..=5 {
            for mut sample in wanted.clone() {
                sample["t_s"] = (time(&sample) + lasts * f64::from(again)).into();
                self.samples.push(sample);
            }
        }
        self
    }

    /// The changes of state, and when the Node shows a finding of `NodeMemoryHealthy` first.
    fn replay(&self) -> (Vec<Transition>, Option<f64>) {
        let mut replay = Replay::new(&self.header);
        let (mut transitions, mut thrashing_at, mut last) = (Vec::new(), None, State::Calm);
        for sample in &self.samples {
            let state = replay.take(sample);
            if state != last {
                transitions.push((time(sample), state));
                last = state;
            }
            if findings(&replay.memory)[0].is_some() {
                thrashing_at.get_or_insert(time(sample));
            }
        }
        (transitions, thrashing_at)
    }
}

fn time(sample: &Value) -> f64 {
    sample["t_s"].as_f64().unwrap()
}

fn entered(transitions: &[Transition], state: State) -> Option<f64> {
    transitions.iter().find(|(_, entered)| *entered == state).map(|(at, _)| *at)
}

#[test]
fn every_recording_is_part_of_these_tests() {
    let mut found = BTreeSet::new();
    for below in ["", "recorded", "held-out"] {
        for entry in fs::read_dir(directory().join(below)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                let path = path.strip_prefix(directory()).unwrap().with_extension("");
                found.insert(path.to_str().unwrap().to_owned());
            }
        }
    }
    let listed = LETHAL.map(|(name, _)| name).into_iter().chain(LIVELOCK).chain(WITHOUT_PROBLEM);
    assert_eq!(found, listed.map(str::to_owned).collect());
}

#[test]
fn exhaustion_is_known_before_the_oom_kill_on_a_host_of_any_size_whenever_it_is_read() {
    let mut known = LETHAL.map(|(name, _)| (name, f64::INFINITY));
    for (name, ahead) in &mut known {
        // Ten samples a second, and a reading each five seconds at most.
        for (times, first) in [(1.0, 0), (64.0, 0)].into_iter().chain((3..50).step_by(4).map(|first| (1.0, first))) {
            let trace = Trace::read(name).scaled(times).from(first);
            let killed_at = trace.header["oom_kill_at_s"].as_f64().unwrap();
            let (transitions, thrashing_at) = trace.replay();
            let imminent = entered(&transitions, State::Imminent).expect(name);
            *ahead = ahead.min(((killed_at - imminent) * 10.0).floor() / 10.0);
            let late = entered(&transitions, State::Oom).expect(name) - killed_at;
            assert!((-0.1..1.0).contains(&late), "{name}: {late} s late: {transitions:?}");
            assert_eq!(thrashing_at, None, "{name}");
        }
    }
    assert_eq!(known, LETHAL);
}

#[test]
fn a_livelock_is_known_within_seconds_and_reported_after_a_minute() {
    for name in LIVELOCK {
        let trace = Trace::read(name);
        let total = trace.header["total_mib"].as_f64().unwrap();
        let is_short = |sample: &Value| sample["available_mib"].as_f64().unwrap() <= 0.05 * total;
        let short_from = trace.samples.iter().find(|sample| is_short(sample)).map(time).unwrap();
        let (transitions, thrashing_at) = trace.repeated(is_short).replay();
        assert!(entered(&transitions, State::Imminent).is_some_and(|at| at < short_from), "{name}: {transitions:?}");
        let known = entered(&transitions, State::Thrashing).map(|at| at - short_from);
        assert!(known.is_some_and(|known| known <= 10.0), "{name}: {known:?}");
        let reported = thrashing_at.map(|at| at - short_from);
        assert!(reported.is_some_and(|reported| (59.0..65.0).contains(&reported)), "{name}: {reported:?}");
        assert_eq!(entered(&transitions, State::Oom), None, "{name}");
    }
}

#[test]
fn what_does_not_exhaust_the_hosts_memory_is_not_reported_however_often_it_happens() {
    for name in WITHOUT_PROBLEM {
        let (transitions, thrashing_at) = Trace::read(name).repeated(|_| true).replay();
        assert_eq!((transitions, thrashing_at), (vec![], None), "{name}");
    }
}
