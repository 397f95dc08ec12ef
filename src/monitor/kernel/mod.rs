//! The kernel: its log, also of NVIDIA's GPUs, its counters and limits, processes that wait in it for too long, and the host's clock.
//!
//! This file waits and reads. [`Kernel`] records what was read and decides what to report.

mod clock;
mod deadlock;
mod gpu;
mod init;
mod limits;
mod logged;
mod patterns;
mod state;
mod witness;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};

use self::deadlock::{INIT_PID, Suspect};
use self::init::Silence;
use self::patterns::Class;
use self::state::{Kernel, Readings};
use super::{Inputs, Reporter};
use crate::condition::{ConditionType, Uptime};
use crate::host::clock::{Now, Timer, next_multiple, uptime};
use crate::host::process::{self, ProcessId, sample};
use crate::host::{disk, kernel, systemd};
use crate::monitor::service::samples;
use crate::trouble::Trouble;

const READ_EVERY: Duration = Duration::from_secs(30);
/// Between two reports or readings: in a storm each line would cause one.
const PAUSE: Duration = Duration::from_secs(2);
/// The directory of NVIDIA's driver, which exists while it is loaded.
const GPU_DRIVER: &str = "/proc/driver/nvidia";

/// Monitors until the channel of reports is closed.
pub async fn run(inputs: Inputs) {
    let (mut lines, mut log) = (inputs.kernel_log.lines(), inputs.kernel_log.state());
    let mut kernel = Kernel::default();
    let mut reporter = Reporter::new(ConditionType::NodeKernelHealthy, inputs.reports.clone());
    let mut gpu_reporter = Reporter::new(ConditionType::NodeGPUHealthy, inputs.reports);
    // The reading that is under way. One that hangs in the kernel is not waited for.
    let (mut reading, mut next_reading, timer) = (JoinSet::new(), Uptime::ZERO, Timer::new());
    // Whether something was seen since the last report.
    let (mut is_changed, mut next_report) = (false, Uptime::ZERO);
    loop {
        let now = uptime();
        if now >= next_report {
            is_changed = false;
            let (view, gpu_view) = (kernel.view(now), kernel.gpu_view(now));
            if view.is_some() {
                next_report = now + PAUSE;
            }
            if !reporter.report(view, now).await || !gpu_reporter.report(gpu_view, now).await {
                return;
            }
        }
        if now >= next_reading && reading.is_empty() {
            next_reading = next_multiple(now, READ_EVERY);
            let hung = inputs.hung.borrow().clone();
            let is_bus_lost = inputs.troubles.present().contains_key(&Trouble::BusLost);
            reading.spawn(async move {
                let is_silent = is_bus_lost && systemd::is_silent().await;
                spawn_blocking(move || read(hung, is_silent)).await
            });
        }
        let due = [reading.is_empty().then_some(next_reading), is_changed.then_some(next_report)];
        let due = due.into_iter().flatten().fold(reporter.due_at(now).max(next_report), Ord::min);
        // Lines first, so that all lines from before the start are known when the log becomes readable.
        tokio::select! {
            biased;
            // In a storm some lines are lost, and nothing else.
            line = lines.recv() => {
                let class = line.ok().and_then(|line| kernel.logged.take(&line, Now::read(None)));
                is_changed |= class.is_some();
                // It is a problem, and no mere warning, once a counter or flag of the kernel confirms it.
                if class.is_some_and(Class::has_witnesses) {
                    next_reading = next_reading.min(uptime() + PAUSE);
                }
            }
            Ok(()) = log.changed() => {
                kernel.log_is(log.borrow_and_update().clone(), uptime());
                is_changed = true;
            }
            Some(Ok(Ok(readings))) = reading.join_next() => {
                let server = inputs.api.borrow().server_clock;
                kernel.read(readings, server, Now::read(server));
                is_changed = true;
            }
            () = timer.at(due) => {}
        }
    }
}

/// Reads counters and limits, and samples PID 1 and the services that hang.
fn read(hung: BTreeMap<&'static str, (ProcessId, Uptime)>, is_silent: bool) -> Readings {
    // Each time all of its files would cost more than all else that is read here.
    let is_sampled = is_silent || disk::uninterruptible_wait(INIT_PID).is_some();
    let init = ProcessId::of(INIT_PID).filter(|_| is_sampled).map(|init| ("PID 1", (init, Uptime::ZERO)));
    let suspect =
        |(name, (process, hung_since))| Some(Suspect { name, process, hung_since, sample: sample(process, None)? });
    let suspects: Vec<_> = hung.into_iter().chain(init).filter_map(suspect).collect();
    let init = suspects.iter().find(|one| is_silent && one.process.pid == INIT_PID);
    let silence = init.map(|Suspect { sample, .. }| Silence {
        has_closed_socket: systemd::has_closed_socket(),
        zombies: process::zombies_of(INIT_PID),
        switches: sample.switches,
        is_excused: sample.suspended_by().is_some() || samples::is_busy(sample.pressure),
    });
    Readings {
        counters: kernel::counters(),
        released: kernel::released(),
        usages: kernel::usages(),
        suspects,
        silence,
        has_gpu_driver: Path::new(GPU_DRIVER).exists(),
    }
}
