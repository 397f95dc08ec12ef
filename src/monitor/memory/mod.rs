//! The host's memory: whether it is about to be used up, and whether the host thrashes.
//!
//! This file waits and reads. [`Memory`] records the readings and decides what to report.

mod message;
mod state;
#[cfg(test)]
mod tests;

use tokio::task::JoinSet;

use self::state::Memory;
use super::{Inputs, Reporter};
use crate::condition::{ConditionType, Finding, Reason, Uptime, View};
use crate::host::clock::{Timer, next_multiple, uptime};
use crate::host::{memory, top};

/// Monitors until the channel of reports is closed.
pub async fn run(inputs: Inputs) {
    let kinds = [ConditionType::NodeMemoryHealthy, ConditionType::MemoryExhaustionImminent];
    let mut reporters = kinds.map(|kind| Reporter::new(kind, inputs.reports.clone()));
    let mut kills = inputs.kernel_log.kills();
    let mut memory = Memory::default();
    let mut error = Some("it has not been read yet".to_owned());
    let (mut asked, mut largest) = (JoinSet::<top::Output>::new(), String::new());
    let (mut next_reading, timer) = (Uptime::ZERO, Timer::new());
    loop {
        let had_problem = memory.has_problem();
        tokio::select! {
            () = timer.at(next_reading) => {
                let read = memory::read(uptime(), memory.is_tight());
                error = read.map(|reading| memory.observe(reading)).err();
                let (now, interval) = (uptime(), memory.interval());
                next_reading = if memory.is_tight() { now + interval } else { next_multiple(now, interval) };
            }
            Ok(kill) = kills.recv() => memory.oom_killed(&kill, uptime()),
            Some(Ok(consumers)) = asked.join_next() => match consumers {
                Ok(consumers) => largest = message::largest(&consumers),
                Err(error) => tracing::warn!("{error}"),
            },
        }
        // Once a problem: each answer would be another message.
        match (had_problem, memory.has_problem()) {
            (_, false) => largest.clear(),
            (false, true) => drop(asked.spawn(top::consumers())),
            (true, true) => {}
        }
        let views = match &error {
            None => memory.views(&largest),
            Some(error) => {
                let why = format!("the memory cannot be read: {error}");
                [(); 2].map(|()| View::Unknown(Finding::new(Reason::MonitorSilent, why.clone())))
            }
        };
        for (reporter, view) in reporters.iter_mut().zip(views) {
            if !reporter.report(view, uptime()).await {
                return;
            }
        }
    }
}
