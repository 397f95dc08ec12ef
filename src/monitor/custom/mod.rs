//! Custom checks: services, commands and lines of logs, as the settings define them.
//!
//! The watches wait, read, and tell what they have found. [`judged`] makes one view of what the checks of a condition have found, which this
//! file reports.

mod command;
mod journal;
mod judged;
mod log;
mod unit;

use std::collections::BTreeSet;
use std::future;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use tokio::sync::watch;

use self::judged::{Check, Found, view};
use super::{Inputs, Reporter, Reports};
use crate::condition::Uptime;
use crate::host::clock::{Timer, uptime};

/// The first runs of commands are so far apart: `nodevigil diagnose` has time for all.
const APART: Duration = Duration::from_millis(150);
/// Between two reports: in a storm each line would cause one.
const PAUSE: Duration = Duration::from_secs(2);

/// Where a watch tells what its check has found.
#[derive(Debug)]
struct Told {
    all: watch::Sender<Vec<Found>>,
    index: usize,
}

impl Told {
    fn tell(&self, found: Found) {
        self.all.send_if_modified(|all| {
            let is_new = all[self.index] != found;
            all[self.index] = found;
            is_new
        });
    }
}

/// Monitors until the channel of reports is closed; for ever if there are no checks.
pub async fn run(inputs: Inputs) {
    let checks = inputs.settings.custom.iter();
    let checks: Vec<_> =
        checks.filter_map(|(name, settings)| Some((Check::of(name, settings)?, name, settings))).collect();
    if checks.is_empty() {
        return future::pending().await;
    }
    let (all, found) = watch::channel(vec![Found::Pending(String::new()); checks.len()]);
    let (mut watches, mut logs, mut first_run) = (Vec::new(), Vec::new(), uptime());
    for (index, (check, name, settings)) in checks.iter().enumerate() {
        let told = Told { all: all.clone(), index };
        if let Some(unit) = &settings.unit {
            watches.push(unit::watch(check.kind, unit, &inputs, told).boxed());
        } else if let Some(command) = &settings.command {
            first_run += APART;
            watches.push(command::watch(name, command, first_run, told).boxed());
        } else if let Some(log) = &settings.log {
            logs.push((log, told));
        }
    }
    if !logs.is_empty() {
        watches.push(log::watch(&inputs, logs).boxed());
    }
    tokio::select! {
        // The watches first: each tells at once what it waits for.
        biased;
        _ = join_all(watches) => {}
        () = report(checks.into_iter().map(|(check, ..)| check).collect(), found, &inputs.reports) => {}
    }
}

/// Reports the view of each condition when it changes and when it is due, until the channel of reports is closed.
async fn report(mut checks: Vec<Check>, mut found: watch::Receiver<Vec<Found>>, reports: &Reports) {
    let kinds: BTreeSet<_> = checks.iter().map(|check| check.kind).collect();
    let mut reporters: Vec<_> = kinds.into_iter().map(|kind| (kind, Reporter::new(kind, reports.clone()))).collect();
    let timer = Timer::new();
    loop {
        let (now, present) = (uptime(), found.borrow_and_update().clone());
        for (kind, reporter) in &mut reporters {
            if !reporter.report(view(*kind, &mut checks, &present, now), now).await {
                return;
            }
        }
        let due = reporters.iter().map(|(_, reporter)| reporter.due_at(now));
        let due = due.chain(checks.iter().filter_map(|check| check.shown_at(now))).fold(Uptime::MAX, Ord::min);
        timer.at(now + PAUSE).await;
        tokio::select! {
            Ok(()) = found.changed() => {}
            () = timer.at(due) => {}
        }
    }
}
