//! The names of records: given at the transition to a problem, and part of the condition's message from then on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use heck::ToKebabCase as _;
use jiff::Timestamp;
use jiff::civil::DateTime;

use crate::condition::{Condition, ConditionType, Uptime};
use crate::host::clock::Now;

/// The conditions whose problems are recorded.
const RECORDED: [ConditionType; 5] = [
    ConditionType::KubeletHealthy,
    ConditionType::ContainerRuntimeHealthy,
    ConditionType::NodeStorageHealthy,
    ConditionType::NodeKernelHealthy,
    ConditionType::NodeMemoryHealthy,
];
/// If the same problem returns within this time, it belongs to the previous record.
const SAME_WITHIN: Duration = Duration::from_mins(5);
const MAX_PER_HOUR: usize = 20;
const HOUR: Duration = Duration::from_hours(1);
/// The time in a name, in UTC.
const TIME: &str = "%Y%m%dt%H%M%Sz";
/// What comes before the name in a message.
const BEFORE_NAME: &str = "; record ";
/// The API's limit on the note of an Event, which has the condition's type and status before the message.
const MAX_MESSAGE_BYTES: usize = 960;

#[derive(Debug)]
pub struct RecordNames {
    is_enabled: bool,
    /// The last record of each condition and reason, and when it was begun.
    known: BTreeMap<(ConditionType, String), (String, Uptime)>,
    /// When the records of the last hour were begun.
    begun: VecDeque<Uptime>,
    /// Records that were named and not begun yet.
    pub new: Vec<(String, ConditionType)>,
}

impl RecordNames {
    pub fn new(is_enabled: bool) -> Self {
        Self { is_enabled, known: BTreeMap::new(), begun: VecDeque::new(), new: Vec::new() }
    }

    /// Takes over the name in a message of an earlier run of the agent.
    pub fn adopt(&mut self, condition: &Condition, now: Uptime) {
        if let (_, Some(name)) = split(&condition.message) {
            let name = name.to_owned();
            self.known.entry((condition.kind, condition.reason.clone())).or_insert((name, now));
        }
    }

    /// Adds the name of its record to the message of each problem. A problem that is new, by what was shown `before`, gets a new record.
    pub fn add(&mut self, before: &[Condition], conditions: &mut [Condition], now: Now) {
        for condition in conditions.iter_mut().filter(|one| one.is_problem() && RECORDED.contains(&one.kind)) {
            self.adopt(condition, now.uptime);
            let is_shown = before.iter().any(|before| {
                (before.kind, before.status, &before.reason) == (condition.kind, condition.status, &condition.reason)
            });
            let message = split(&condition.message).0.to_owned();
            condition.message = match self.name(condition, is_shown, now) {
                Some(name) => {
                    format!("{}{BEFORE_NAME}{name}", redact::bounded(&message, MAX_MESSAGE_BYTES - name.len()))
                }
                None => message,
            };
        }
    }

    /// The name of the problem's record, if it has one.
    fn name(&mut self, condition: &Condition, is_shown: bool, now: Now) -> Option<String> {
        let key = (condition.kind, condition.reason.clone());
        if let Some((name, at)) = self.known.get(&key)
            && (is_shown || now.uptime < *at + SAME_WITHIN)
        {
            return Some(name.clone());
        }
        if is_shown {
            return None;
        }
        // The record of an earlier problem, which this one is not to be shown with.
        self.known.remove(&key);
        self.begun.retain(|at| now.uptime < *at + HOUR);
        if !self.is_enabled || self.begun.len() >= MAX_PER_HOUR {
            return None;
        }
        let name = name(now.wall, &condition.reason);
        self.begun.push_back(now.uptime);
        self.known.insert(key, (name.clone(), now.uptime));
        self.new.push((name.clone(), condition.kind));
        Some(name)
    }
}

/// A message without the name of a record, and that name. The publisher may have added after it since when there is the problem.
fn split(message: &str) -> (&str, Option<&str>) {
    let parts = message.rsplit_once(BEFORE_NAME);
    let named = parts.map(|(message, name)| (message, name.split_once(" (since ").map_or(name, |(name, _)| name)));
    named.filter(|(_, name)| is_name(name)).map_or((message, None), |(message, name)| (message, Some(name)))
}

/// Whether it can be the name of a record, and so of a file.
pub fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_of_time = |(time, reason): (&str, &str)| DateTime::strptime(TIME, time).is_ok() && !reason.is_empty();
    name.len() < 100 && name.chars().all(is_part) && name.split_once('-').is_some_and(is_of_time)
}

/// Such as `20261128t184502z-kubelet-oom-killed`: in the order of time, and a DNS label.
fn name(at: Timestamp, reason: &str) -> String {
    format!("{}-{}", start(at), reason.to_kebab_case())
}

/// How the names of records from that second begin.
pub fn start(at: Timestamp) -> String {
    at.strftime(TIME).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Reason;

    fn now(secs: u64) -> Now {
        let wall = Timestamp::from_second(1_795_891_502 + i64::try_from(secs).unwrap()).unwrap();
        Now::of(Uptime::from_secs(secs), wall)
    }

    fn condition(reason: Reason, message: &str) -> Condition {
        let (spec, kind) = (reason.spec(), ConditionType::KubeletHealthy);
        Condition { kind, status: spec.status, reason: spec.name.into(), message: message.into(), since: Uptime::ZERO }
    }

    /// What is shown after `before`, and the records that are begun.
    fn shown(names: &mut RecordNames, before: &[Condition], reason: Reason, secs: u64) -> (Vec<Condition>, usize) {
        let mut conditions = vec![condition(reason, "m")];
        names.add(before, &mut conditions, now(secs));
        (conditions, std::mem::take(&mut names.new).len())
    }

    #[test]
    fn a_name_is_made_of_time_and_reason() {
        let at = "2026-11-28T18:45:02.9Z".parse().unwrap();
        assert_eq!(name(at, "KubeletOOMKilled"), "20261128t184502z-kubelet-oom-killed");
        assert_eq!(name(at, "StorageIOError"), "20261128t184502z-storage-io-error");
        assert!(is_name(&name(at, "KubeletCrashed")) && !is_name("../20261128") && !is_name("2026/x"));
        assert!(
            ["7", "20261128t184502z", "20261128t184502z-", "20261128t18450xz-a", "2026é128t184502z-a"]
                .iter()
                .all(|no| !is_name(no))
        );
    }

    #[test]
    fn a_problem_keeps_its_record_while_it_is_shown_and_gets_none_of_its_own_within_five_minutes() {
        let mut names = RecordNames::new(true);
        let (healthy, _) = shown(&mut names, &[], Reason::KubeletIsHealthy, 0);
        assert_eq!(healthy[0].message, "m");
        let (crashed, begun) = shown(&mut names, &healthy, Reason::KubeletCrashed, 1);
        assert!(crashed[0].message.starts_with("m; record 2026") && begun == 1, "{crashed:?}");
        assert_eq!(shown(&mut names, &crashed, Reason::KubeletCrashed, 4000), (crashed.clone(), 0), "it lasts");
        assert_eq!(shown(&mut names, &healthy, Reason::KubeletCrashed, 300), (crashed.clone(), 0), "again");
        let (looping, begun) = shown(&mut names, &crashed, Reason::KubeletCrashLooping, 5);
        assert!(looping[0].message.ends_with("-kubelet-crash-looping") && begun == 1, "{looping:?}");
        let (again, begun) = shown(&mut names, &healthy, Reason::KubeletCrashed, 302);
        assert!(again != crashed && begun == 1, "{again:?}");
    }

    #[test]
    fn a_restarted_agent_keeps_the_name() {
        let mut names = RecordNames::new(true);
        let before = condition(Reason::KubeletCrashed, "m; record 20261128t184502z-kubelet-crashed");
        names.adopt(&before, Uptime::from_secs(1));
        let (crashed, begun) = shown(&mut names, &[], Reason::KubeletCrashed, 2);
        assert_eq!((crashed[0].message.as_str(), begun), (before.message.as_str(), 0));
        // What the Node shows is adopted as it is.
        let mut adopted = vec![before.clone()];
        RecordNames::new(true).add(std::slice::from_ref(&before), &mut adopted, now(1));
        assert_eq!(adopted, [before]);
    }

    #[test]
    fn a_name_is_found_before_the_time_that_the_publisher_adds() {
        let name = "20261128t184502z-kubelet-crashed";
        let late = format!("m; record {name} (since 18:45:02Z)");
        assert_eq!(split(&late), ("m", Some(name)));
        let other = format!("m; record {name} and more");
        assert_eq!(split(&other), (other.as_str(), None));
    }

    #[test]
    fn an_hour_has_twenty_records_and_none_if_they_are_disabled() {
        let mut names = RecordNames::new(true);
        let begun = |names: &mut RecordNames, secs| shown(names, &[], Reason::KubeletCrashed, secs).1;
        let count: usize = (0..25)
            .map(|_| {
                names.known.clear();
                begun(&mut names, 1)
            })
            .sum();
        let earlier = condition(Reason::KubeletCrashed, "m; record 20261128t184502z-kubelet-crashed");
        names.adopt(&earlier, Uptime::from_secs(1));
        let (after, _) = shown(&mut names, &[], Reason::KubeletCrashed, 400);
        assert_eq!(after[0].message, "m", "the hour has no more");
        let (lasts, _) = shown(&mut names, &after, Reason::KubeletCrashed, 401);
        assert_eq!(lasts[0].message, "m", "not the record of an earlier problem");
        names.known.clear();
        assert_eq!((count, begun(&mut names, 3601)), (20, 1));
        assert_eq!(shown(&mut RecordNames::new(false), &[], Reason::KubeletCrashed, 1).1, 0);
    }
}
