//! The kernel: its log, its counters and limits, processes that wait in it for too long, and the host's clock.
//!
//! This file waits and reads. What is seen goes into [`Kernel`], which says what to report.

mod clock;
mod deadlock;
mod limits;
mod logged;
mod patterns;
mod state;

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::broadcast::error::RecvError,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::{
    deadlock::{INIT_PID, of_init, of_service},
    logged::wall_at,
    state::{Kernel, Readings},
};
use super::{HungProcess, Inputs, Reporter};
use crate::{
    condition::{ConditionType, Uptime},
    host::{
        clock::{Now, uptime},
        kernel,
        kmsg::Line,
        process::{ProcessId, sample},
    },
};

const READ_EVERY: Duration = Duration::from_secs(30);
/// Between two reports or readings: in a storm each line would cause one.
const PAUSE: Duration = Duration::from_secs(2);

struct Loop {
    inputs: Inputs,
    kernel: Kernel,
    reporter: Reporter,
    /// The reading that is under way. One that hangs in the kernel is not waited for.
    reading: JoinSet<Readings>,
    next_reading: Uptime,
    /// Whether something was seen since the last report.
    is_changed: bool,
    next_report: Uptime,
}

/// Watches until nobody takes reports.
pub async fn run(inputs: Inputs) {
    let (mut lines, mut log) = (inputs.kernel_log.lines(), inputs.kernel_log.state());
    let mut this = Loop {
        kernel: Kernel::new(wall_at(uptime(), Now::read(None))),
        reporter: Reporter::new(ConditionType::NodeKernelHealthy, inputs.reports.clone()),
        inputs,
        reading: JoinSet::new(),
        next_reading: Uptime::ZERO,
        is_changed: false,
        next_report: Uptime::ZERO,
    };
    while this.report(uptime()).await {
        this.start_reading(uptime());
        let wake = Instant::now() + this.wake_at(uptime()).saturating_sub(uptime());
        // Lines first, so that all from before the start are known when the log is said to be readable.
        tokio::select! {
            biased;
            line = lines.recv() => match line {
                Ok(line) => this.take_line(&line),
                // In a storm some lines are lost, and nothing else.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            Ok(()) = log.changed() => {
                this.kernel.log_is(log.borrow_and_update().clone(), uptime());
                this.is_changed = true;
            }
            Some(Ok(readings)) = this.reading.join_next() => {
                let server = this.inputs.api.borrow().server_time;
                this.kernel.read(&readings, server, Now::read(server));
                this.is_changed = true;
            }
            () = sleep_until(wake) => {}
        }
    }
}

impl Loop {
    fn take_line(&mut self, line: &Line) {
        let Some(class) = self.kernel.logged.take(line, Now::read(None)) else { return };
        self.is_changed = true;
        if class.needs_confirmation() {
            self.next_reading = self.next_reading.min(uptime() + PAUSE);
        }
    }

    fn wake_at(&self, now: Uptime) -> Uptime {
        let reading = self.reading.is_empty().then_some(self.next_reading);
        let report = self.is_changed.then_some(self.next_report);
        [reading, report].into_iter().flatten().fold(self.reporter.due_at(now).max(self.next_report), Ord::min)
    }

    fn start_reading(&mut self, now: Uptime) {
        if now >= self.next_reading && self.reading.is_empty() {
            self.next_reading = now + READ_EVERY;
            let hung = self.inputs.hung.borrow().clone();
            self.reading.spawn_blocking(move || read(&hung));
        }
    }

    /// Reports the present view, unless it was reported a moment ago; `false` when nobody takes reports.
    async fn report(&mut self, now: Uptime) -> bool {
        if now < self.next_report {
            return true;
        }
        self.is_changed = false;
        let Some(view) = self.kernel.view(now) else { return true };
        self.next_report = now + PAUSE;
        self.reporter.report(view, now).await
    }
}

/// Reads counters and limits, and looks at PID 1 and the services that hang.
fn read(hung: &BTreeMap<&'static str, HungProcess>) -> Readings {
    let init = ProcessId::of(INIT_PID).and_then(|init| Some(of_init(init, sample(init, None)?)));
    let services = hung.iter().filter_map(|(name, hung)| Some(of_service(name, *hung, sample(hung.process, None)?)));
    let waits = init.into_iter().chain(services).flatten().collect();
    Readings { counters: kernel::counters(), usages: kernel::usages(), waits }
}
