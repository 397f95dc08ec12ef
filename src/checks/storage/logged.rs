//! What the kernel's log says of disks: a hint for a while, and a reason to look at once. It is no state: only a look says
//! whether a disk fails.

use std::{path::PathBuf, time::Duration};

use super::finding;
use crate::{
    checks::kernel::event::{Concern, KernelLine, Meaning},
    clock::Now,
    health::{Finding, Reason, bounded},
};

/// How long a line counts.
const COUNTS_FOR: Duration = Duration::from_mins(10);

/// Disks that are remembered; more than these fail for one cause.
const MAX_DISKS: usize = 4;

/// What is quoted of a line.
const MAX_TEXT_BYTES: usize = 200;

/// The last words on each disk.
#[derive(Debug, Default)]
pub(super) struct Logged(Vec<Word>);

#[derive(Debug)]
struct Word {
    subject: String,
    /// The first line of this spell: a later one would make another sentence of the same state.
    text: String,
    last: Duration,
}

impl Logged {
    /// Whether a line is a reason to look: it is about a disk or a file system, and no old one that is read at our start.
    pub(super) fn concerns(line: &KernelLine, now: Now) -> bool {
        line.pattern.concern == Concern::Storage && counts(line.at, now)
    }

    /// Remembers a line; one that names no device is only a reason to look.
    pub(super) fn hear(&mut self, line: &KernelLine, now: Now) {
        self.forget(now);
        let is_error = line.pattern.meaning != Meaning::FilesystemWarning;
        let Some(subject) = line.subject.as_ref().filter(|_| is_error) else {
            return;
        };
        let has_room = self.0.len() < MAX_DISKS;
        match self.0.iter_mut().find(|word| word.subject == *subject) {
            Some(word) => word.last = word.last.max(line.at),
            None if has_room => self.0.push(Word {
                subject: subject.clone(),
                text: bounded(&line.text, MAX_TEXT_BYTES),
                last: line.at,
            }),
            None => {}
        }
    }

    /// Forgets what is over.
    pub(super) fn forget(&mut self, now: Now) {
        self.0.retain(|word| counts(word.last, now));
    }

    /// The hints: the lines about devices below the file systems, of which path and devices are known.
    pub(super) fn findings<'a>(
        &self,
        known: &(impl Iterator<Item = (&'a PathBuf, &'a Vec<String>)> + Clone),
    ) -> Vec<Finding> {
        let words = self.0.iter().filter_map(|word| {
            let mut known = known.clone();
            let (path, _) = known.find(|(_, devices)| {
                devices.iter().any(|device| is_about(&word.subject, device))
            })?;
            let message = format!(
                "the kernel names errors of {}, which {} lies on: {}",
                word.subject,
                path.display(),
                word.text
            );
            Some(finding(Reason::StorageErrorsLogged, &message))
        });
        words.collect()
    }
}

/// Whether a line of that time (uptime) still counts.
fn counts(at: Duration, now: Now) -> bool {
    now.uptime.saturating_sub(at) < COUNTS_FOR
}

/// Whether the kernel means this device: `sda1`, its journal `sda1-8`, or the controller `nvme0` of `nvme0n1`.
fn is_about(subject: &str, device: &str) -> bool {
    let journal = subject.strip_prefix(device);
    let of_controller = device
        .strip_prefix(subject)
        .filter(|_| subject.starts_with("nvme"));
    subject == device
        || journal.is_some_and(|rest| rest.starts_with('-'))
        || of_controller.is_some_and(|rest| rest.starts_with('n'))
}
