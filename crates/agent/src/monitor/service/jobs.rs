//! The jobs of a unit: who wants its process to end.

use std::{collections::BTreeMap, time::Duration};

use super::ended::Cause;
use crate::{condition::Uptime, host::systemd::JobKind};

/// Jobs that are remembered; systemd has one of a unit at a time.
const MAX_JOBS: usize = 4;
/// A job that is over before its kind could be read may have caused an end that is no farther away than this.
const UNREAD_NEAR: Duration = Duration::from_secs(1);

/// The open jobs, as far as they are known.
#[derive(Debug, Default)]
pub struct Jobs {
    open: BTreeMap<u32, Job>,
    /// When a job ended whose kind had not been read.
    unread_ended_at: Option<Uptime>,
    /// The unit is being read, and signals are not handled meanwhile.
    is_reading: bool,
}

#[derive(Debug)]
struct Job {
    kind: JobKind,
    /// Whether it has started the process that runs, so that it does not explain that process's end. A unit with Type=notify has its
    /// start job until the process is ready.
    has_started_process: bool,
}

impl Jobs {
    /// The unit is about to be read.
    pub fn reading(&mut self) {
        self.is_reading = true;
    }

    /// The unit was read: this job alone is open.
    pub fn read(&mut self, job: Option<u32>) {
        self.is_reading = false;
        self.open.retain(|id, _| Some(*id) == job);
        if let Some(id) = job {
            self.queued(id);
        }
    }

    fn queued(&mut self, id: u32) {
        self.open.entry(id).or_insert(Job { kind: JobKind::Unread, has_started_process: false });
        while self.open.len() > MAX_JOBS {
            self.open.pop_first();
        }
    }

    /// A job was queued, or its kind was read; `false` if it is over already.
    pub fn set(&mut self, id: u32, kind: JobKind) -> bool {
        if kind == JobKind::Unread {
            self.queued(id);
            return true;
        }
        let job = self.open.get_mut(&id);
        job.map(|job| job.kind = kind).is_some()
    }

    /// A job is over.
    pub fn removed(&mut self, id: u32, now: Uptime) {
        if self.open.remove(&id).is_some_and(|job| job.kind == JobKind::Unread) {
            self.unread_ended_at = Some(now);
        }
    }

    /// Nothing is known of jobs any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// A process was started: the jobs so far are behind it.
    pub fn process_started(&mut self) {
        self.open.values_mut().for_each(|job| job.has_started_process = true);
    }

    pub fn is_any_open(&self) -> bool {
        self.is_reading || !self.open.is_empty()
    }

    pub fn has(&self, kinds: &[JobKind]) -> bool {
        self.open.values().any(|job| kinds.contains(&job.kind))
    }

    /// Why a process ends that ends now, if a job says so.
    pub fn cause(&self) -> Option<Cause> {
        let ends_by =
            |kinds: &[JobKind]| self.open.values().any(|job| kinds.contains(&job.kind) && !job.has_started_process);
        if self.has(&[JobKind::Stop]) {
            Some(Cause::Stopped)
        } else if ends_by(&[JobKind::Restart, JobKind::Start]) {
            // Of a restart job a start job is left once the process has been stopped.
            Some(Cause::Restarted)
        } else {
            None
        }
    }

    /// Whether a job may explain an end, and its kind is still to be read.
    pub fn is_unread(&self) -> bool {
        self.is_reading || self.open.values().any(|job| job.kind == JobKind::Unread && !job.has_started_process)
    }

    /// Whether a job of unknown kind has ended close to `at`.
    pub fn ended_unread(&self, at: Uptime) -> bool {
        self.unread_ended_at.is_some_and(|ended| ended.abs_diff(at) < UNREAD_NEAR)
    }
}
