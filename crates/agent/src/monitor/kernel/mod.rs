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
    deadlock::{INIT_PID, Seen},
    logged::Now,
    state::{Kernel, Look},
};
use super::{Inputs, REPORT_EVERY, hung::HungProcess};
use crate::{
    condition::{ConditionType, Uptime},
    host::{
        clock::{uptime, wall},
        kernel,
        kmsg::Line,
        process::{ProcessId, sample},
    },
};

const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Between two reports or looks: in a storm each line would cause one.
const PAUSE: Duration = Duration::from_secs(2);

/// What the loop holds.
struct Loop {
    inputs: Inputs,
    kernel: Kernel,
    /// The look that is under way.
    look: JoinSet<Look>,
    next_look: Uptime,
    /// Whether something was seen since the last report.
    is_changed: bool,
    reported_at: Option<Uptime>,
}

/// Watches until nobody takes reports.
pub async fn run(inputs: Inputs) {
    let (mut lines, mut log) = (inputs.kernel_log.lines(), inputs.kernel_log.state());
    let mut this = Loop {
        inputs,
        kernel: Kernel::new(now().seconds()),
        look: JoinSet::new(),
        next_look: Uptime::ZERO,
        is_changed: false,
        reported_at: None,
    };
    loop {
        this.start_look();
        if !this.report().await {
            return;
        }
        let wake = Instant::now() + this.wake_at().saturating_sub(uptime());
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
            Some(Ok(look)) = this.look.join_next() => {
                let server = this.inputs.api.borrow().server_time;
                this.kernel.looked(&look, server, now());
                this.is_changed = true;
            }
            () = sleep_until(wake) => {}
        }
    }
}

impl Loop {
    fn take_line(&mut self, line: &Line) {
        let Some(class) = self.kernel.line(line, now()) else { return };
        self.is_changed = true;
        if class.needs_confirmation() {
            self.next_look = self.next_look.min(uptime() + PAUSE);
        }
    }

    /// When there is something to do, if nothing happens before.
    fn wake_at(&self) -> Uptime {
        let look = self.look.is_empty().then_some(self.next_look);
        let pause = if self.is_changed { PAUSE } else { REPORT_EVERY };
        let report = self.reported_at.map(|at| at + pause);
        [look, report].into_iter().flatten().min().unwrap_or(uptime() + REPORT_EVERY)
    }

    /// Looks at what is not logged, when that is due. A look that hangs in the kernel is not waited for.
    fn start_look(&mut self) {
        if uptime() >= self.next_look && self.look.is_empty() {
            self.next_look = uptime() + LOOK_EVERY;
            let hung = self.inputs.hung.all();
            self.look.spawn_blocking(move || look(&hung));
        }
    }

    /// Reports the present view if it is new or due; `false` when nobody takes reports.
    async fn report(&mut self) -> bool {
        let now = uptime();
        let pause = if self.is_changed { PAUSE } else { REPORT_EVERY };
        if self.reported_at.is_some_and(|at| now < at + pause) {
            return true;
        }
        let Some(view) = self.kernel.view(now) else { return true };
        self.is_changed = false;
        self.reported_at = Some(now);
        self.inputs.reports.send((ConditionType::NodeKernelHealthy, view)).await.is_ok()
    }
}

fn now() -> Now {
    Now { uptime: uptime(), wall: wall() }
}

/// Reads counters and limits, and looks at PID 1 and the services that hang.
fn look(hung: &BTreeMap<&'static str, HungProcess>) -> Look {
    let init = ProcessId::of(INIT_PID).and_then(|init| Some(Seen::init(init, sample(init, None)?)));
    let services = hung.iter().filter_map(|(name, hung)| Some(Seen::service(name, *hung, sample(hung.process, None)?)));
    let processes = init.into_iter().chain(services).collect();
    Look { counters: kernel::counters(), usages: kernel::usages(), processes }
}
