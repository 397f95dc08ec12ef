//! What the kernel's troubles come to. A `False` has two witnesses: what the log says, and what the kernel's own tables say.

use std::time::Duration;

use super::{
    event::Meaning,
    hung::{HungTask, HungTasks},
    state::KernelState,
    troubles::{Lasts, Troubles},
};
use crate::{
    config::Settings,
    health::{Finding, Reason},
};

/// Hung tasks that a message names.
const NAMED_TASKS: usize = 4;

/// The thresholds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    stalls: usize,
    stall_window: Duration,
    oopses: usize,
    oops_window: Duration,
    uncorrected: usize,
    uncorrected_window: Duration,
    hung_for: Duration,
    quiet: Duration,
}

impl Limits {
    pub(super) fn new(settings: &Settings) -> Self {
        let number = |name| settings.number("kernel", name) as usize;
        let seconds = |name| settings.seconds("kernel", name);
        Self {
            stalls: number("stalls"),
            stall_window: seconds("stall_window_secs"),
            oopses: number("oopses"),
            oops_window: seconds("oops_window_secs"),
            uncorrected: number("uncorrected_errors"),
            uncorrected_window: seconds("uncorrected_window_secs"),
            hung_for: seconds("hung_for_secs"),
            quiet: seconds("quiet_secs"),
        }
    }

    pub(super) fn lasts(&self) -> Lasts {
        Lasts {
            stalls: self.stall_window,
            oopses: self.oops_window,
            hardware: self.uncorrected_window,
            quiet: self.quiet,
        }
    }
}

/// What it all means; empty: nothing is wrong.
pub(super) fn assess(
    troubles: &Troubles,
    state: &KernelState,
    limits: Limits,
    now: Duration,
) -> Vec<Finding> {
    let all = [
        hung(&troubles.tasks, limits),
        stalled(troubles, state, limits, now),
        oopsed(troubles, state, limits, now),
        hardware(troubles, state, limits, now),
        netdevice(troubles),
        state.detection_off().map(|off| {
            let also = "the threads of kubelet and runtime are looked at instead";
            let message = format!("{}; {also}", off.sentence());
            (Reason::KernelHungTaskDetectionOff, message)
        }),
    ];
    let found = all.into_iter().flatten();
    found
        .map(|(reason, message)| Finding { reason, message })
        .collect()
}

type Found = Option<(Reason, String)>;

fn hung(tasks: &HungTasks, limits: Limits) -> Found {
    if let Some(task) = tasks.deadlocked(limits.hung_for) {
        let message = format!(
            "{} (pid {}) has waited in the kernel for minutes without once being on a CPU, cannot be killed, and no pod is started or stopped without it",
            task.comm, task.tid
        );
        return Some((Reason::KernelDeadlocked, message));
    }
    let logged = &tasks.logged;
    (!logged.is_empty()).then(|| {
        let named = named(logged);
        let more = if logged.len() > NAMED_TASKS {
            ", …"
        } else {
            ""
        };
        let message = format!("waiting in the kernel for minutes, cannot be killed: {named}{more}");
        (Reason::KernelTaskHung, message)
    })
}

fn named(tasks: &[HungTask]) -> String {
    let named = tasks
        .iter()
        .take(NAMED_TASKS)
        .map(|task| format!("{} (pid {})", task.comm, task.tid));
    named.collect::<Vec<_>>().join(", ")
}

fn stalled(troubles: &Troubles, state: &KernelState, limits: Limits, now: Duration) -> Found {
    let again = troubles.witnessed_stalls(state, limits.stall_window, now) >= limits.stalls;
    let hard = troubles.hard_lockups.within(limits.quiet, now) > 0;
    if again || hard && state.witnesses(Meaning::HardLockup) {
        let message = "the kernel's watchdogs report again and again that a CPU stands still";
        return Some((Reason::KernelLockedUp, message.to_owned()));
    }
    (hard || troubles.stalls.within(limits.quiet, now) > 0).then(|| {
        let message = "the kernel's watchdogs report that a CPU stood still for many seconds";
        (Reason::KernelStalled, message.to_owned())
    })
}

fn oopsed(troubles: &Troubles, state: &KernelState, limits: Limits, now: Duration) -> Found {
    let logged = troubles.oopses.within(limits.oops_window, now);
    // Where the kernel counts them, the log may not say more of them than it.
    let counted = state.oopses.map_or(usize::MAX, |count| {
        usize::try_from(count).unwrap_or(usize::MAX)
    });
    if logged.min(counted) >= limits.oopses && state.has_oopsed() {
        let message = "the kernel meets faults of its own again and again; see `journalctl -k`";
        return Some((Reason::KernelOopsRepeated, message.to_owned()));
    }
    (state.has_oopsed() || troubles.oopses.within(limits.quiet, now) > 0).then(|| {
        let message = "the kernel has met a fault of its own since it was booted (`journalctl -k`); locks may be held for ever, and a reboot alone ends that";
        (Reason::KernelOops, message.to_owned())
    })
}

fn hardware(troubles: &Troubles, state: &KernelState, limits: Limits, now: Duration) -> Found {
    let lost = troubles.uncorrected.within(limits.uncorrected_window, now);
    let fatal = troubles.fatal.within(limits.uncorrected_window, now);
    let is_confirmed = state.has_lost_memory();
    if is_confirmed && (lost >= limits.uncorrected || fatal > 0) {
        let message =
            "the hardware reports errors that it could not correct, again and again or fatal ones";
        return Some((Reason::KernelHardwareFailing, message.to_owned()));
    }
    let message = if is_confirmed {
        "memory has failed since the host was booted, and the kernel has given up what was in it"
    } else if lost > 0 || fatal > 0 {
        "the kernel's log reports hardware errors that could not be corrected; no counter of the kernel's confirms that memory was lost"
    } else {
        return None;
    };
    Some((Reason::KernelMemoryLost, message.to_owned()))
}

fn netdevice(troubles: &Troubles) -> Found {
    troubles.netdevice.as_ref().map(|(device, _)| {
        let message = format!(
            "the network device {device} of a container that is gone cannot be taken away; what makes or ends network namespaces may wait for it"
        );
        (Reason::KernelNetdeviceStuck, message)
    })
}
