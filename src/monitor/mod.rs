//! What is watched, one file or directory each: a task that waits and reads, and pure functions that judge.
//!
//! Uses `facts`, `host`, `settings` and `condition`. A monitor does not know who reads its reports, and uses no other monitor; `service` is shared.

pub mod bootstrap;
pub mod config;
pub mod custom;
pub mod kernel;
pub mod kubelet;
pub mod memory;
pub mod runtime;
mod service;
pub mod storage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::condition::{ConditionType, Reason, Uptime, View};
use crate::facts::ApiFacts;
use crate::host::clock::{Now, next_multiple};
use crate::host::kmsg::KernelLog;
use crate::host::kubelet::{KubeletFacts, Watched};
use crate::host::process::ProcessId;
use crate::settings::Settings;
use crate::timeline::Timeline;
use crate::trouble::Troubles;

/// Where a monitor sends its present view of a condition: when it changes, and at least every 30 seconds.
pub type Reports = mpsc::Sender<(ConditionType, View)>;

/// A view is reported again after this time even if it is the same.
pub const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Reports the views of one condition.
#[derive(Debug)]
pub struct Reporter {
    kind: ConditionType,
    reports: Reports,
    /// The view that was reported last, and when.
    last: Option<(View, Uptime)>,
}

impl Reporter {
    pub fn new(kind: ConditionType, reports: Reports) -> Self {
        Self { kind, reports, last: None }
    }

    /// Whether the view that was reported last has one of these reasons.
    pub fn has_reported(&self, reasons: &[Reason]) -> bool {
        self.last.as_ref().is_some_and(|(view, _)| view.has(reasons))
    }

    /// When the next report is due, if the view does not change before.
    pub fn due_at(&self, now: Uptime) -> Uptime {
        next_multiple(self.last.as_ref().map_or(now, |(_, at)| *at), REPORT_EVERY)
    }

    /// Reports the view if it is new or due. Without a new view the last one still holds. `false` when the channel of reports is closed.
    pub async fn report(&mut self, view: impl Into<Option<View>>, now: Uptime) -> bool {
        let last = || self.last.as_ref().map(|(view, _)| view.clone());
        let Some(view) = view.into().or_else(last) else { return true };
        if self.last.as_ref().is_some_and(|(last, _)| *last == view) && now < self.due_at(now) {
            return true;
        }
        self.last = Some((view.clone(), now));
        self.reports.send((self.kind, view)).await.is_ok()
    }
}

/// What follows in `text` if it begins with `line`, in which `*` is for any text.
fn rest_after<'a>(text: &'a str, line: &str) -> Option<&'a str> {
    let mut parts = line.split('*');
    let rest = text.strip_prefix(parts.next()?)?;
    parts.try_fold(rest, |rest, part| Some(rest.split_once(part)?.1))
}

/// The time of day at an earlier time since boot, in whole seconds. What is shown has the time of day; what is compared, that since boot.
fn wall_at(at: Uptime, now: Now) -> Timestamp {
    let then = now.wall_at(at);
    Timestamp::from_second(then.as_second()).unwrap_or(then)
}

/// The services that hang now, by what they are (`kubelet`, `container runtime`): the main process, and since when its monitor has
/// reported so without a break. The kernel's monitor searches the kernel for the reason.
pub type HungServices = watch::Sender<BTreeMap<&'static str, (ProcessId, Uptime)>>;

/// Sets the process of a service that hangs; none if the service does not hang.
pub fn set_hung(services: &HungServices, service: &'static str, process: Option<ProcessId>, now: Uptime) {
    services.send_modify(|hung| {
        let known = hung.remove(service).filter(|(known, _)| Some(*known) == process);
        hung.extend(process.map(|process| (service, known.unwrap_or((process, now)))));
    });
}

/// What a monitor is given.
#[derive(Debug, Clone)]
pub struct Inputs {
    pub settings: Settings,
    pub reports: Reports,
    pub api: watch::Receiver<ApiFacts>,
    /// The kubelet's configuration; none until it is known.
    pub kubelet: watch::Receiver<Option<KubeletFacts>>,
    /// The kubelet that is watched.
    pub watched: watch::Receiver<Watched>,
    /// Where the container runtime keeps its files; empty until it is known which runtime is the kubelet's.
    pub runtime_directories: watch::Receiver<Vec<PathBuf>>,
    pub kernel_log: KernelLog,
    pub hung: HungServices,
    /// What is seen, for records of problems.
    pub timeline: Timeline,
    pub troubles: Troubles,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_hang_starts_again_with_another_process_and_after_an_answer() {
        let (hung, at) = (HungServices::default(), Uptime::from_secs);
        let process = |pid| Some(ProcessId { pid, start_ticks: 0 });
        for (process, now, since) in [
            (process(1), 10, Some(at(10))),
            (process(1), 20, Some(at(10))),
            (process(2), 30, Some(at(30))),
            (None, 40, None),
            (process(2), 50, Some(at(50))),
        ] {
            set_hung(&hung, "kubelet", process, at(now));
            assert_eq!(hung.borrow().get("kubelet").map(|(_, since)| *since), since, "{now}");
        }
    }
}
