//! The job of a unit: why its process is to end.

use std::time::Duration;

use super::ended::EndingJob;
use crate::condition::Uptime;
use crate::host::systemd::JobKind;

/// A job that is over before its kind could be read may have caused an end that is no farther away than this.
const UNREAD_NEAR: Duration = Duration::from_secs(1);

/// The open job, as far as it is known. A unit has one at a time (`job_install` of systemd's `src/core/job.c`).
#[derive(Debug, Default)]
pub struct Jobs {
    open: Option<Job>,
    /// The failed service that the unit depends on, at the time of the last stop job.
    pub stopped_with: Option<String>,
    /// When a job ended whose kind had not been read.
    unread_ended_at: Option<Uptime>,
    /// The unit is being read, and signals are not handled meanwhile.
    is_reading: bool,
}

#[derive(Debug)]
struct Job {
    id: u32,
    kind: JobKind,
    /// Whether it has started the process that runs, so that it does not explain that process's end. A unit with Type=notify has its
    /// start job until the process is ready.
    has_started_process: bool,
}

impl Jobs {
    pub fn reading(&mut self) {
        self.is_reading = true;
    }

    /// The unit was read, and has this job.
    pub fn read(&mut self, job: Option<u32>, now: Uptime) {
        self.is_reading = false;
        if let Some(over) = self.open.as_ref().map(|open| open.id).filter(|open| Some(*open) != job) {
            self.removed(over, now);
        }
        if let Some(id) = job {
            self.queued(id);
        }
    }

    fn queued(&mut self, id: u32) {
        if !self.is_open(id) {
            self.open = Some(Job { id, kind: JobKind::Unread, has_started_process: false });
        }
    }

    fn is_open(&self, id: u32) -> bool {
        self.open.as_ref().is_some_and(|job| job.id == id)
    }

    /// A job was queued, or its kind was read; `false` if it is over already.
    pub fn set(&mut self, id: u32, kind: JobKind) -> bool {
        if kind == JobKind::Unread {
            self.queued(id);
            return true;
        }
        let job = self.open.as_mut().filter(|job| job.id == id);
        job.map(|job| job.kind = kind).is_some()
    }

    pub fn removed(&mut self, id: u32, now: Uptime) {
        if self.is_open(id) && self.open.take().is_some_and(|job| job.kind == JobKind::Unread) {
            self.unread_ended_at = Some(now);
        }
    }

    /// A process was started, by the open job if there is one.
    pub fn process_started(&mut self) {
        if let Some(job) = &mut self.open {
            job.has_started_process = true;
        }
    }

    pub const fn is_reading(&self) -> bool {
        self.is_reading
    }

    pub const fn is_any_open(&self) -> bool {
        self.is_reading || self.open.is_some()
    }

    pub fn has(&self, kinds: &[JobKind]) -> bool {
        self.open.as_ref().is_some_and(|job| kinds.contains(&job.kind))
    }

    /// The job that explains the end of a process that ends now.
    pub fn ending(&self) -> Option<EndingJob> {
        match self.open.as_ref()? {
            Job { kind: JobKind::Stop, .. } => Some(EndingJob::Stop),
            // Of a restart job a start job is left once the process has been stopped.
            Job { kind: JobKind::Restart | JobKind::Start, has_started_process: false, .. } => Some(EndingJob::Restart),
            _ => None,
        }
    }

    /// Whether a job may explain an end, and its kind is still to be read.
    pub fn is_unread(&self) -> bool {
        let is_unread = |job: &Job| job.kind == JobKind::Unread && !job.has_started_process;
        self.is_reading || self.open.as_ref().is_some_and(is_unread)
    }

    /// Whether a job of unknown kind has ended close to `at`.
    pub fn ended_unread(&self, at: Uptime) -> bool {
        self.unread_ended_at.is_some_and(|ended| ended - at < UNREAD_NEAR && at - ended < UNREAD_NEAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Uptime = Uptime::from_secs(100);

    #[test]
    fn a_job_whose_kind_is_known_stays_so_until_it_is_over_or_another_is_queued() {
        let mut jobs = Jobs::default();
        assert!(jobs.set(7, JobKind::Unread) && jobs.set(7, JobKind::Stop));
        assert!(jobs.set(7, JobKind::Unread), "the unit was read before the signal of its job came");
        jobs.read(Some(7), NOW);
        assert!(jobs.has(&[JobKind::Stop]));
        // A removal can be missed: the unit was read just before it, and the answer came after it.
        assert!(jobs.set(8, JobKind::Unread) && jobs.is_unread());
        jobs.read(None, NOW);
        assert!(!jobs.is_any_open());
    }
}
