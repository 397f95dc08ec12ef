//! What is watched, one file or directory each: a task that waits and reads, and pure functions that judge.

pub mod bootstrap;
pub mod config;
pub mod hung;
pub mod kernel;
pub mod kubelet;
pub mod memory;
pub mod runtime;
mod service;
pub mod storage;

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use self::hung::HungServices;
use crate::{
    condition::{ConditionType, Uptime, View},
    host::{api::ApiFacts, kmsg::KernelLog, kubelet::KubeletFacts, trouble::Troubles},
    settings::Settings,
};

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

    /// The view that was reported last.
    pub fn last(&self) -> Option<&View> {
        self.last.as_ref().map(|(view, _)| view)
    }

    /// When the next report is due, if the view does not change before.
    pub fn due_at(&self, now: Uptime) -> Uptime {
        self.last.as_ref().map_or(now, |(_, at)| *at) + REPORT_EVERY
    }

    /// Reports the view if it is new or due; `false` when nobody takes reports.
    pub async fn report(&mut self, view: View, now: Uptime) -> bool {
        if self.last.as_ref().is_some_and(|(last, at)| *last == view && now < *at + REPORT_EVERY) {
            return true;
        }
        self.last = Some((view.clone(), now));
        self.reports.send((self.kind, view)).await.is_ok()
    }
}

/// What a monitor is given.
#[derive(Debug, Clone)]
pub struct Inputs {
    pub settings: Settings,
    pub reports: Reports,
    pub api: watch::Receiver<ApiFacts>,
    /// What the kubelet's configuration says; none until it is known.
    pub kubelet: watch::Receiver<Option<KubeletFacts>>,
    /// The kubelet that is watched.
    pub watched: watch::Receiver<kubelet::Watched>,
    pub kernel_log: KernelLog,
    /// The services that hang, as their monitors report.
    pub hung: HungServices,
    pub troubles: Troubles,
}
