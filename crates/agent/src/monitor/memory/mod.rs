//! The host's memory: whether it is about to be used up, and whether the host thrashes.
//!
//! This file waits and reads. What is seen goes into [`Memory`], which says what to report.

mod message;
pub mod recording;
mod state;
#[cfg(test)]
mod tests;

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::state::Memory;
use super::{Inputs, REPORT_EVERY};
use crate::{
    condition::{ConditionType, Finding, Reason, View},
    host::{clock::uptime, memory, top},
};

/// Watches until nobody takes reports.
pub async fn run(inputs: Inputs) {
    let mut kills = inputs.kernel_log.kills();
    let mut memory = Memory::default();
    let mut error = Some("it has not been read yet".to_owned());
    let mut views = None;
    let mut asked = JoinSet::<top::Output>::new();
    let (mut next_reading, mut next_report) = (Instant::now(), Instant::now() + REPORT_EVERY);
    loop {
        tokio::select! {
            () = sleep_until(next_reading) => {
                let read = memory::read(uptime(), memory.is_tight());
                error = read.map(|reading| memory.observe(reading)).err();
                next_reading = Instant::now() + memory.interval();
            }
            Ok(kill) = kills.recv() => memory.oom_killed(&kill, uptime()),
            Some(Ok(consumers)) = asked.join_next() => match consumers {
                Ok(consumers) => memory.set_largest(&consumers),
                Err(error) => tracing::warn!("{error}"),
            },
        }
        if memory.wants_largest() {
            asked.spawn(top::consumers());
        }
        let present = error.as_deref().map_or_else(|| memory.views(), cannot_tell);
        if views.as_ref() != Some(&present) || Instant::now() >= next_report {
            views = Some(present.clone());
            next_report = Instant::now() + REPORT_EVERY;
            for report in present {
                if inputs.reports.send(report).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn cannot_tell(error: &str) -> [(ConditionType, View); 2] {
    let view = View::CannotTell(Finding::new(Reason::MonitorSilent, format!("the memory cannot be read: {error}")));
    [ConditionType::NodeMemoryHealthy, ConditionType::MemoryExhaustionImminent].map(|kind| (kind, view.clone()))
}
