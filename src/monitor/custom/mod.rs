//! Custom checks: services, commands and lines of logs, as the settings define them.
//!
//! This file waits and reads. The files next to it judge, and [`judged`] makes one view of what the checks of a condition have found.

mod command;
mod found;
mod journal;
mod judged;
mod log;
mod unit;

use std::collections::BTreeSet;
use std::time::Duration;
use std::{future, io};

use futures::future::select_all;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;

use self::command::CommandState;
use self::journal::Wanted;
use self::judged::{Check, Watch, view};
use self::log::{LogState, Source};
use self::unit::Unit;
use super::{Inputs, Reporter};
use crate::condition::{ConditionType, Reason, Uptime};
use crate::host::clock::{Now, Timer, uptime};
use crate::host::journal::Entry;
use crate::host::kmsg::{self, Line};
use crate::host::systemd::transient::{self, Outcome};
use crate::monitor::service::follow::ServiceEvent;
use crate::settings::CustomSettings;
use crate::settings::custom::Source as Watched;

/// The first runs of commands are so far apart: `nodevigil diagnose` has time for all.
const APART: Duration = Duration::from_millis(150);
/// Lines of the journal that wait.
const WAITING_LINES: usize = 64;
/// Between two reports: in a storm each line of a log would cause one.
const PAUSE: Duration = Duration::from_secs(2);

/// Monitors until the channel of reports is closed; for ever if there are no checks.
pub async fn run(inputs: Inputs) {
    let mut checks = checks(&inputs);
    if checks.is_empty() {
        return future::pending().await;
    }
    let mut sources = Sources::new(&inputs, &checks);
    let kinds: BTreeSet<_> = checks.iter().map(|check| check.kind).collect();
    let mut reporters: Vec<_> =
        kinds.into_iter().map(|kind| (kind, Reporter::new(kind, inputs.reports.clone()))).collect();
    // Whether something was seen since the last report.
    let (mut is_changed, mut next_report, timer) = (false, Uptime::ZERO, Timer::new());
    loop {
        let now = uptime();
        if now >= next_report {
            (is_changed, next_report) = (false, now + PAUSE);
            for (kind, reporter) in &mut reporters {
                if !reporter.report(view(*kind, &mut checks, now), now).await {
                    return;
                }
            }
        }
        sources.start_commands(&mut checks, now);
        let due = reporters.iter().map(|(_, reporter)| reporter.due_at(now));
        let due = due.chain(checks.iter().filter_map(|check| check.due_at(now))).fold(Uptime::MAX, Ord::min);
        let due = if is_changed { next_report } else { due.max(next_report) };
        let due = checks.iter().filter_map(Check::next_run).fold(due, Ord::min);
        tokio::select! {
            seen = sources.next(&mut checks) => is_changed |= take_in(&mut checks, seen),
            () = timer.at(due) => {}
        }
        units(&mut checks).for_each(|unit| unit.settle(uptime()));
    }
}

/// What the sources of checks report; of units and commands with the index of their check.
enum Seen {
    Unit(usize, ServiceEvent),
    Ended(usize, Outcome),
    KernelLine(Line),
    KernelLog(kmsg::LogState),
    Journal(io::Result<Option<Entry>>),
    /// In a storm some lines are lost, and nothing else.
    Lost,
}

/// Passes on what was seen; whether it may change what is found.
fn take_in(checks: &mut [Check], seen: Seen) -> bool {
    let now = Now::read(None);
    match seen {
        Seen::Unit(index, event) => {
            if let Watch::Unit(unit) = &mut checks[index].watch {
                unit.state.observe(event, now.uptime);
            }
        }
        Seen::Ended(index, outcome) => {
            if let Watch::Command(state) = &mut checks[index].watch {
                state.ended(&outcome, now.uptime);
            }
        }
        Seen::KernelLine(line) => {
            let at = if line.is_old { line.at } else { now.uptime };
            return logged(checks, |source| *source == Source::Kernel, &line.text, at, now);
        }
        Seen::KernelLog(state) => {
            logs(checks).filter(|log| log.source == Source::Kernel).for_each(|log| log.kernel_log_is(&state));
        }
        Seen::Journal(Ok(Some(entry))) => {
            let at = log::uptime_of(entry.at_micros, now);
            return logged(checks, |source| source.is_of(&entry), &entry.message, at, now);
        }
        Seen::Journal(state) => {
            let unreadable = state.err().map(|error| format!("the journal cannot be read: {error}"));
            for log in logs(checks).filter(|log| log.source != Source::Kernel) {
                log.is_read |= unreadable.is_none();
                log.unreadable.clone_from(&unreadable);
            }
        }
        Seen::Lost => return false,
    }
    true
}

struct Sources {
    lines: broadcast::Receiver<Line>,
    kernel_log: watch::Receiver<kmsg::LogState>,
    commands: JoinSet<(usize, Outcome)>,
    journal: mpsc::Receiver<io::Result<Option<Entry>>>,
    /// The reader of the journal, aborted when this is dropped.
    _reader: JoinSet<()>,
}

impl Sources {
    fn new(inputs: &Inputs, checks: &[Check]) -> Self {
        let (lines, kernel_log) = (inputs.kernel_log.lines(), inputs.kernel_log.state());
        let ((lines_of_journal, journal), mut reader) = (mpsc::channel(WAITING_LINES), JoinSet::new());
        if let Some(wanted) = Wanted::of(checks) {
            reader.spawn(journal::follow(wanted, lines_of_journal));
        }
        Self { lines, kernel_log, commands: JoinSet::new(), journal, _reader: reader }
    }

    fn start_commands(&mut self, checks: &mut [Check], now: Uptime) {
        for (index, check) in checks.iter_mut().enumerate() {
            if let Watch::Command(state) = &mut check.watch
                && let Some(command) = state.start(&check.name, now)
            {
                self.commands.spawn(async move { (index, transient::run(&command).await) });
            }
        }
    }

    /// The next event. Lines of the kernel come before the news that all old ones have been read.
    async fn next(&mut self, checks: &mut [Check]) -> Seen {
        tokio::select! {
            biased;
            (index, event) = unit_event(checks) => Seen::Unit(index, event),
            Some(Ok((index, outcome))) = self.commands.join_next() => Seen::Ended(index, outcome),
            line = self.lines.recv() => line.map_or(Seen::Lost, Seen::KernelLine),
            Ok(()) = self.kernel_log.changed() => Seen::KernelLog(self.kernel_log.borrow_and_update().clone()),
            Some(entry) = self.journal.recv() => Seen::Journal(entry),
        }
    }
}

/// The checks of the settings, each with its type and reason, which are registered.
fn checks(inputs: &Inputs) -> Vec<Check> {
    let mut first_run = uptime();
    let check = |(name, settings): (&String, &CustomSettings)| {
        let kind = ConditionType::by_name(settings.kind(name))?;
        let reason = Reason::of(kind, &settings.reason)?;
        let watch = match settings.source()? {
            Watched::Unit(unit) => Watch::Unit(Box::new(Unit::new(kind, unit.clone(), inputs))),
            Watched::Command(command) => {
                first_run += APART;
                Watch::Command(CommandState::new(command.clone(), first_run))
            }
            Watched::Log(log) => Watch::Log(LogState::new(log.clone())),
        };
        Some(Check::new(name.clone(), kind, reason, settings.after_secs.duration(), watch))
    };
    inputs.settings.custom.iter().filter_map(check).collect()
}

fn units(checks: &mut [Check]) -> impl Iterator<Item = &mut Unit> {
    checks
        .iter_mut()
        .filter_map(|check| if let Watch::Unit(unit) = &mut check.watch { Some(&mut **unit) } else { None })
}

fn logs(checks: &mut [Check]) -> impl Iterator<Item = &mut LogState> {
    checks.iter_mut().filter_map(|check| if let Watch::Log(log) = &mut check.watch { Some(log) } else { None })
}

/// Passes a line to the checks of its log; whether one of them takes it for a problem.
fn logged(checks: &mut [Check], is_source: impl Fn(&Source) -> bool, text: &str, at: Uptime, now: Now) -> bool {
    logs(checks)
        .filter(|log| is_source(&log.source))
        .fold(false, |is_changed, log| log.take_in(text, at, now) | is_changed)
}

/// The next event of a unit, with the index of its check.
async fn unit_event(checks: &mut [Check]) -> (usize, ServiceEvent) {
    let units = checks.iter_mut().enumerate().filter_map(|(index, check)| match &mut check.watch {
        Watch::Unit(unit) => Some((index, unit)),
        _ => None,
    });
    let events: Vec<_> =
        units.map(|(index, unit)| Box::pin(async move { (index, unit.follower.next().await) })).collect();
    if events.is_empty() { future::pending().await } else { select_all(events).await.0 }
}
