//! Which services hang, as their own monitors report: for the kernel's monitor, which looks for the reason in the kernel.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{condition::Uptime, host::process::ProcessId};

/// The main process of a service that hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HungProcess {
    pub process: ProcessId,
    /// Since when its monitor has reported so, without a break.
    pub since: Uptime,
}

/// The services that hang now, by what they are: `kubelet`, `container runtime`.
#[derive(Debug, Clone, Default)]
pub struct HungServices(Arc<Mutex<BTreeMap<&'static str, HungProcess>>>);

impl HungServices {
    /// Sets the process of a service that hangs; none if the service does not hang.
    pub fn set(&self, service: &'static str, process: Option<ProcessId>, now: Uptime) {
        let mut hung = self.lock();
        match process {
            None => drop(hung.remove(service)),
            Some(process) if hung.get(service).is_some_and(|known| known.process == process) => {}
            Some(process) => drop(hung.insert(service, HungProcess { process, since: now })),
        }
    }

    /// All services that hang.
    pub fn all(&self) -> BTreeMap<&'static str, HungProcess> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, HungProcess>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_a_hang_starts_again_with_another_process_and_after_an_answer() {
        let (hung, at) = (HungServices::default(), Duration::from_secs);
        let process = |pid| Some(ProcessId { pid, start_ticks: 0 });
        let since = || hung.all().get("kubelet").map(|hung| hung.since);
        for (process, now, wanted) in [
            (process(1), 10, Some(at(10))),
            (process(1), 20, Some(at(10))),
            (process(2), 30, Some(at(30))),
            (None, 40, None),
            (process(2), 50, Some(at(50))),
        ] {
            hung.set("kubelet", process, at(now));
            assert_eq!(since(), wanted, "{now}");
        }
    }
}
