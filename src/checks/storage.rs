//! The file systems that the kubelet and the container runtime write to: read-only, failing, full, or hanging.
//!
//! The helper looks, because a look may hang; this says when, and what it means. Pure.

use std::{path::PathBuf, time::Duration};

use super::{Check, Question, Reading, Spec, kernel::event::KernelEvent};
use crate::{
    clock::Now,
    config::Settings,
    health::{AWAY_GRACE, ConditionType, Finding, LOOKS, Reason, Severity, timing::Window},
    helper::storage::{Canary, FileSystem, StorageAnswer},
};

mod fault;
mod logged;

use fault::Fault;
use logged::Logged;

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "storage",
    condition: ConditionType::NodeStorageHealthy,
    doc: "The file systems of the kubelet and the container runtime: read-only, I/O errors, room, inodes, and whether a page that is written comes back.",
};

/// How often it is looked on suspicion: after a bad look, and after a word of the kernel's.
const SUSPECT_EVERY: Duration = Duration::from_secs(2);

/// How often it is looked while there is a problem.
const SICK_EVERY: Duration = Duration::from_secs(10);

/// By so many percent more there must be room again before a hint is over.
const BACK_BY_PERCENT: u64 = 2;

/// What the operator asked for.
#[derive(Debug, Clone, Copy)]
struct Limits {
    interval: Duration,
    deadline: Duration,
    free_percent: u64,
    free_inodes_percent: u64,
}

/// What is known of the file systems.
#[derive(Debug)]
pub struct Storage {
    limits: Limits,
    kubelet_runs: bool,
    /// The kubelet's `--root-dir`.
    root_dir: Option<PathBuf>,
    places: Vec<Place>,
    /// Looks that did not come back in time.
    hung: Window,
    logged: Logged,
    due_at: Duration,
    last_asked: Duration,
    /// Since when the helper has not answered (uptime).
    away_since: Option<Duration>,
    findings: Vec<Finding>,
    nothing_there: bool,
}

/// The memory of one file system, by the folder that it was found by.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    devices: Vec<String>,
    /// Whether it was seen writable: what is read-only by design never was.
    was_writable: bool,
    full: Window,
    no_inodes: Window,
    low: bool,
    low_inodes: bool,
}

impl Storage {
    /// Nothing is known; it wants to look at once.
    pub fn new(settings: &Settings) -> Self {
        let number = |name| u64::from(settings.number(SPEC.id, name));
        Self {
            limits: Limits {
                interval: settings.seconds(SPEC.id, "interval_secs"),
                deadline: settings.seconds(SPEC.id, "write_deadline_secs"),
                free_percent: number("free_percent"),
                free_inodes_percent: number("free_inodes_percent"),
            },
            kubelet_runs: false,
            root_dir: None,
            places: Vec::new(),
            hung: Window::default(),
            logged: Logged::default(),
            due_at: Duration::ZERO,
            last_asked: Duration::ZERO,
            away_since: None,
            findings: Vec::new(),
            nothing_there: false,
        }
    }

    /// Looks soon; a flood of words asks no more often than a suspicion does.
    fn hurry(&mut self, now: Now) {
        let soon = now.uptime.max(self.last_asked + SUSPECT_EVERY);
        self.due_at = self.due_at.min(soon);
    }

    fn hear(&mut self, event: &KernelEvent, now: Now) {
        if let KernelEvent::Line(line) = event
            && Logged::concerns(line, now)
        {
            self.logged.hear(line, now);
            self.hurry(now);
        }
    }

    fn unanswered(&mut self, why: &str, now: Now) {
        let since = *self.away_since.get_or_insert(now.uptime);
        if self.findings.is_empty() || now.uptime.saturating_sub(since) >= AWAY_GRACE {
            self.findings = vec![finding(Reason::StorageProbeFailed, why)];
        }
        self.due_at = now.uptime + SICK_EVERY;
    }

    fn answered(&mut self, answer: &StorageAnswer, now: Now) {
        self.nothing_there = answer.file_systems.is_empty() && answer.stuck.is_none();
        let is_unknown = |fs: &FileSystem| matches!(fault::of(fs), Some(Fault::NotKnown(_)));
        let since = self.away_since.unwrap_or(now.uptime);
        self.away_since = answer.file_systems.iter().any(is_unknown).then_some(since);
        let mut found: Vec<Finding> = Vec::new();
        let mut suspicious = self.judge_stuck(answer, &mut found);
        if answer.stuck.is_none() {
            let paths: Vec<_> = answer.file_systems.iter().map(|fs| &fs.path).collect();
            self.places.retain(|place| paths.contains(&&place.path));
        }
        for file_system in &answer.file_systems {
            suspicious |= self.judge(file_system, &mut found, now);
        }
        self.logged.forget(now);
        let known = self.places.iter().map(|p| (&p.path, &p.devices));
        found.extend(self.logged.findings(&known));
        let sick = found
            .iter()
            .any(|finding| finding.reason.severity() > Severity::Warning);
        if found.is_empty() {
            found.push(finding(Reason::StorageIsHealthy, &healthy(answer)));
        }
        // While something hangs, or may be wrong, nobody knows that all is well: what was said stands.
        if sick || (!suspicious && answer.stuck.is_none()) {
            self.findings = found;
        }
        let wait = match (suspicious, sick) {
            (true, _) => SUSPECT_EVERY,
            (false, true) => SICK_EVERY,
            (false, false) => self.limits.interval,
        };
        self.due_at = now.uptime + wait.min(self.limits.interval);
    }

    /// What does not come back; `true` while that is a suspicion.
    fn judge_stuck(&mut self, answer: &StorageAnswer, found: &mut Vec<Finding>) -> bool {
        let Some(stuck) = &answer.stuck else {
            self.hung.push(false);
            return false;
        };
        if Duration::from_millis(stuck.for_ms) >= self.limits.deadline {
            self.hung.push(true);
        }
        if !self.hung.is_full(LOOKS) {
            return true;
        }
        let deadline = self.limits.deadline.as_secs();
        let message = format!(
            "{}: the kernel has not come back from it within {deadline} s; what else writes there hangs too, and cannot be killed",
            stuck.what
        );
        found.push(finding(Reason::StorageHung, &message));
        false
    }

    /// One file system; `true` if it is suspect.
    fn judge(&mut self, file_system: &FileSystem, found: &mut Vec<Finding>, now: Now) -> bool {
        let (limits, kubelet_runs) = (self.limits, self.kubelet_runs);
        let unknown_for = now
            .uptime
            .saturating_sub(self.away_since.unwrap_or(now.uptime));
        let is_told = self.findings.is_empty() || unknown_for >= AWAY_GRACE;
        let place = place(&mut self.places, file_system);
        let name = name(file_system);
        let fault = fault::of(file_system);
        place.was_writable |= fault.is_none() && file_system.read_only.is_none();
        place.full.push(fault == Some(Fault::Full));
        place.no_inodes.push(fault == Some(Fault::NoInodes));
        let mut suspicious = false;
        match fault {
            // But not what nobody has seen writable while no kubelet runs that must write there: it is so by design, as an
            // image's folder that a disk is yet to be mounted on.
            Some(Fault::ReadOnly(why)) if place.was_writable || kubelet_runs => {
                let message = format!("{name} is read-only: {why}");
                found.push(finding(Reason::FilesystemReadOnly, &message));
            }
            Some(Fault::Io(what)) => {
                found.push(finding(Reason::StorageIOError, &format!("{name}: {what}")));
            }
            Some(Fault::NotKnown(_)) if !is_told => suspicious = true,
            Some(Fault::NotKnown(why)) => {
                let message = format!("{name} could not be looked at: {why}");
                found.push(finding(Reason::StorageProbeFailed, &message));
            }
            Some(Fault::Full) if place.full.is_full(LOOKS) => {
                let message = format!("{name}: a write fails, because there is no room left");
                found.push(finding(Reason::StorageFull, &message));
            }
            Some(Fault::NoInodes) if place.no_inodes.is_full(LOOKS) => {
                let message = format!("{name}: no file can be made, because no inode is left");
                found.push(finding(Reason::StorageInodesExhausted, &message));
            }
            Some(Fault::Full | Fault::NoInodes) => suspicious = true,
            Some(Fault::ReadOnly(_)) | None => {}
        }
        place.judge_room(file_system, limits, &name, found);
        suspicious
    }
}

impl Place {
    /// Hints ahead of the wall.
    fn judge_room(
        &mut self,
        file_system: &FileSystem,
        limits: Limits,
        name: &str,
        found: &mut Vec<Finding>,
    ) {
        let Some(room) = file_system.room else {
            return;
        };
        let is_low = |was: bool, free: u64, all: u64, limit: u64| {
            let limit = limit + if was { BACK_BY_PERCENT } else { 0 };
            let percent = u128::from(free) * 100 / u128::from(all.max(1));
            limit > 0 && all > 0 && percent < u128::from(limit)
        };
        let (bytes, inodes) = (limits.free_percent, limits.free_inodes_percent);
        self.low = bytes > 0 && is_low(self.low, room.available_bytes, room.total_bytes, bytes);
        self.low_inodes =
            inodes > 0 && is_low(self.low_inodes, room.inodes_free, room.inodes, inodes);
        if self.low {
            let message = format!("less than {bytes} % of {name} is free");
            found.push(finding(Reason::StorageNearlyFull, &message));
        }
        if self.low_inodes {
            let message = format!("less than {inodes} % of the inodes of {name} are free");
            found.push(finding(Reason::StorageInodesNearlyExhausted, &message));
        }
    }
}

fn place<'a>(places: &'a mut Vec<Place>, file_system: &FileSystem) -> &'a mut Place {
    let known = places
        .iter()
        .position(|place| place.path == file_system.path);
    let index = known.unwrap_or_else(|| {
        places.push(Place {
            path: file_system.path.clone(),
            devices: Vec::new(),
            was_writable: false,
            full: Window::default(),
            no_inodes: Window::default(),
            low: false,
            low_inodes: false,
        });
        places.len() - 1
    });
    let place = &mut places[index];
    place.devices.clone_from(&file_system.devices);
    place
}

fn finding(reason: Reason, message: &str) -> Finding {
    let message = message.to_owned();
    Finding { reason, message }
}

/// `/var/lib/kubelet (ext4)`.
fn name(file_system: &FileSystem) -> String {
    let path = file_system.path.display();
    match file_system.kind.as_str() {
        "" => path.to_string(),
        kind => format!("{path} ({kind})"),
    }
}

fn healthy(answer: &StorageAnswer) -> String {
    let named = |wanted: &Canary| {
        let those = answer.file_systems.iter();
        let those = those.filter(|fs| fs.canary == *wanted && fs.read_only.is_none());
        let names: Vec<String> = those.map(name).collect();
        names.join(" and ")
    };
    match (named(&Canary::Written), named(&Canary::Flushed)) {
        (written, flushed) if flushed.is_empty() => {
            format!("a page that is written to {written} comes back")
        }
        (written, flushed) if written.is_empty() => {
            format!("writable: {flushed} (no page is written there without a folder .nodevigil)")
        }
        (written, flushed) => format!(
            "a page that is written to {written} comes back; writable: {flushed} (no page is written there without a folder .nodevigil)"
        ),
    }
}

impl Check for Storage {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        match reading {
            Reading::Kubelet(process) => {
                self.kubelet_runs = process.is_some();
            }
            Reading::Facts(facts) if self.root_dir != facts.root_dir => {
                self.root_dir.clone_from(&facts.root_dir);
                self.hurry(now);
            }
            Reading::Kernel(event) => self.hear(event, now),
            Reading::Storage(Ok(answer)) => self.answered(answer, now),
            Reading::Storage(Err(why)) => self.unanswered(why, now),
            _ => {}
        }
    }

    fn due_at(&self) -> Option<Duration> {
        Some(self.due_at)
    }

    fn turn(&mut self, now: Now) -> Option<Question> {
        (self.last_asked, self.due_at) = (now.uptime, now.uptime + self.limits.interval);
        Some(Question::Storage)
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn applies(&self) -> bool {
        !self.nothing_there
    }
}

#[cfg(test)]
mod tests;
