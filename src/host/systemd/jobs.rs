//! The open jobs of the units that are followed, and which of them were asked for more than once. Pure.
//!
//! systemd says a job's state once when it begins to run. Who asks for what is being done already gets that same job: no other is
//! announced, but the state is said again.

use std::collections::BTreeMap;

/// Open jobs that are known at a time: systemd has one of a unit at a time.
const MAX_JOBS: usize = 2 * super::MAX_UNITS;

/// Whose a job is, and whether its state was said.
#[derive(Debug)]
struct Job {
    unit: String,
    is_said: bool,
}

/// The jobs by their numbers.
#[derive(Debug, Default)]
pub(super) struct Jobs(BTreeMap<u32, Job>);

impl Jobs {
    /// It was announced.
    pub(super) fn began(&mut self, id: u32, unit: String) {
        let is_said = false;
        self.0.insert(id, Job { unit, is_said });
        while self.0.len() > MAX_JOBS {
            self.0.pop_first(); // the oldest
        }
    }

    /// Its state was said: whose it is, if that is not the first time.
    pub(super) fn changed(&mut self, id: u32) -> Option<String> {
        let job = self.0.get_mut(&id)?;
        let was_said = std::mem::replace(&mut job.is_said, true);
        was_said.then(|| job.unit.clone())
    }

    pub(super) fn ended(&mut self, id: u32) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_is_said_again_is_a_job_that_is_asked_for_again() {
        let mut jobs = Jobs::default();
        jobs.began(7, "kubelet.service".to_owned());
        assert_eq!(jobs.changed(7), None);
        assert_eq!(jobs.changed(8), None);
        assert_eq!(jobs.changed(7).as_deref(), Some("kubelet.service"));
        jobs.ended(7);
        assert_eq!(jobs.changed(7), None);
        for id in 0..1000 {
            jobs.began(id, "kubelet.service".to_owned());
        }
        assert_eq!(jobs.0.len(), MAX_JOBS);
    }
}
