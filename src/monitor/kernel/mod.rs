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

use tokio::{task::JoinSet, time::sleep};

use self::{
    deadlock::{INIT_PID, Suspect},
    logged::wall_at,
    patterns::Class,
    state::{Kernel, Readings},
};
use super::{Inputs, Reporter};
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
        let wake = this.wake_at(uptime()).saturating_sub(uptime());
        // Lines first, so that all from before the start are known when the log is said to be readable.
        tokio::select! {
            biased;
            // In a storm some lines are lost, and nothing else.
            line = lines.recv() => if let Ok(line) = line { this.take_line(&line) },
            Ok(()) = log.changed() => {
                this.kernel.log_is(log.borrow_and_update().clone(), uptime());
                this.is_changed = true;
            }
            Some(Ok(readings)) = this.reading.join_next() => {
                let server = this.inputs.api.borrow().server_time;
                this.kernel.read(readings, server, Now::read(server));
                this.is_changed = true;
            }
            () = sleep(wake) => {}
        }
    }
}

impl Loop {
    fn take_line(&mut self, line: &Line) {
        let Some(class) = self.kernel.logged.take(line, Now::read(None)) else { return };
        self.is_changed = true;
        // It is a problem, and no mere warning, once a counter or flag of the kernel confirms it.
        if class != Class::Trouble {
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
            self.reading.spawn_blocking(move || read(hung));
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
fn read(hung: BTreeMap<&'static str, (ProcessId, Uptime)>) -> Readings {
    let init = ProcessId::of(INIT_PID).map(|init| ("PID 1", (init, Uptime::ZERO)));
    let suspect =
        |(name, (process, hung_since))| Some(Suspect { name, process, hung_since, sample: sample(process, None)? });
    let suspects = hung.into_iter().chain(init).filter_map(suspect).collect();
    Readings { counters: kernel::counters(), usages: kernel::usages(), suspects }
}
