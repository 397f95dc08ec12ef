//! A directory of the kubelet or the container runtime, and what is known of its file system. Does no I/O and reads no clock: the caller passes the time.

use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

use crate::condition::{Finding, Reason, Uptime, View};
use crate::host::disk::{Outcome, Probe, Requests, Step};
use crate::host::mounts::{Mount, Writable};

/// A probe that has not ended after this time has failed, and once more each time that the same has passed again.
pub(super) const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// While the first probe is not older than this, nothing is reported.
const FIRST_PROBE: Duration = Duration::from_secs(3);
/// After so many failed probes in a row there is a problem.
const FAILED_PROBES: u32 = 3;
/// For this long what was known before holds while the file system cannot be probed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Whose files are in a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Owner {
    #[default]
    Kubelet,
    ContainerRuntime,
    Both,
}

/// A directory whose file system is probed.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub path: PathBuf,
    pub owner: Owner,
    /// The path without symbolic links, once it is known.
    pub real_path: PathBuf,
    pub mount: Option<Mount>,
    /// Whether the directory is known to exist.
    exists: bool,
    /// Whether this mount was seen writable.
    was_writable: bool,
    /// Whether a probe is to be started.
    pub is_wanted: bool,
    pub running: Option<Running>,
    /// When the last probe started.
    pub probed_at: Uptime,
    pub last: LastProbe,
    /// Probes in a row that failed for want of space or did not end.
    failed_probes: u32,
}

/// A probe that has not ended.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// When it started, or last failed.
    failed_at: Uptime,
    /// How often it has failed.
    failures: u32,
    /// What it waited for when it last failed.
    wait: Option<Wait>,
    /// How often in a row it has failed in the same wait.
    same_wait: u32,
    /// Whether something else was mounted there when it started.
    is_of_other_mount: bool,
}

/// What a probe waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub step: Step,
    /// The context switches of its process: another number is another wait, as on a host that reads its programs back from the disk.
    pub switches: u64,
    /// Those of its device; none if the file system has no block device.
    pub requests: Option<Requests>,
}

/// What the last probe has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum LastProbe {
    #[default]
    NotProbed,
    Absent,
    Succeeded(&'static str),
    /// There is none of this left.
    Full(&'static str),
    IoError(String),
    /// It has not ended, and waits in the kernel.
    Waiting,
    /// It could not be done, why, and since when.
    Impossible(String, Uptime),
}

impl Directory {
    pub fn new(path: PathBuf, owner: Owner) -> Self {
        Self { real_path: path.clone(), path, owner, ..Self::default() }
    }

    /// Records the mount that it is on now. If that is another file system, nothing is known of it, and a probe that still runs does not apply.
    pub fn mounted(&mut self, mount: Option<Mount>) {
        let device = |mount: &Option<Mount>| mount.as_ref().map(|mount| mount.device.clone());
        if device(&mount) != device(&self.mount) {
            let real_path = std::mem::take(&mut self.real_path);
            let running = self.running.take().map(|running| Running { is_of_other_mount: true, ..running });
            *self = Self { real_path, running, ..Self::new(std::mem::take(&mut self.path), self.owner) };
        }
        self.was_writable |= mount.as_ref().is_some_and(|mount| mount.writable == Writable::Yes);
        self.mount = mount;
    }

    pub fn started(&mut self, now: Uptime) {
        (self.is_wanted, self.probed_at) = (false, now);
        self.running = Some(Running { failed_at: now, ..Running::default() });
    }

    /// Whether the probe has run for too long.
    pub fn is_overdue(&self, now: Uptime) -> bool {
        self.running.as_ref().is_some_and(|running| now >= running.failed_at + PROBE_LIMIT)
    }

    /// The probe is overdue; `wait` is none unless it waits in the kernel (state D).
    pub fn overdue(&mut self, wait: Option<Wait>, now: Uptime) {
        let Some(running) = &mut self.running else { return };
        if running.is_of_other_mount {
            return self
                .impossible("the probe of the file system that was mounted there before has not ended".into(), now);
        }
        let Some(wait) = wait else {
            return self.impossible("the process of the probe was started but does not run".into(), now);
        };
        running.same_wait = if running.wait == Some(wait) { running.same_wait + 1 } else { 1 };
        (running.failed_at, running.wait) = (now, Some(wait));
        running.failures += 1;
        self.failed_probes += 1;
        self.last = LastProbe::Waiting;
    }

    pub fn ended(&mut self, probe: Result<Probe, String>, now: Uptime) {
        if self.running.take().is_none_or(|running| running.is_of_other_mount) {
            return;
        }
        let probe = match probe {
            Ok(probe) => probe,
            Err(why) => return self.impossible(why, now),
        };
        if let Some(real_path) = probe.real_path {
            self.real_path = real_path;
        }
        self.exists = probe.outcome != Outcome::Absent;
        let full = if probe.is_without_inodes { "inodes" } else { "space" };
        self.last = match probe.outcome {
            Outcome::Written => LastProbe::Succeeded("a test write to"),
            Outcome::Absent => LastProbe::Absent,
            Outcome::Synced if probe.is_full || probe.is_without_inodes => LastProbe::Full(full),
            Outcome::Synced => LastProbe::Succeeded("fsync of"),
            Outcome::Failed(step, number) => {
                let number = Errno::from_raw_os_error(number);
                let error = format!("{}: {}", step.name(), std::io::Error::from(number));
                match number {
                    Errno::NOSPC | Errno::DQUOT => LastProbe::Full(full),
                    // Of a device or of what is stored on it (`errno(3)`).
                    Errno::IO | Errno::NXIO | Errno::NODEV | Errno::REMOTEIO | Errno::UCLEAN | Errno::BADMSG => {
                        LastProbe::IoError(error)
                    }
                    // Such as EACCES, which does not depend on the disk.
                    _ => return self.impossible(error, now),
                }
            }
        };
        self.failed_probes = if matches!(self.last, LastProbe::Full(_)) { self.failed_probes + 1 } else { 0 };
    }

    pub fn impossible(&mut self, why: String, now: Uptime) {
        let since = if let LastProbe::Impossible(_, since) = self.last { since } else { now };
        self.last = LastProbe::Impossible(why, since);
    }

    /// What to report of it; none while it was not probed. `kubelet_runs`: whether a kubelet runs, which cannot work on a read-only
    /// file system.
    pub fn view(&self, kubelet_runs: bool, now: Uptime) -> Option<View> {
        let name = self.name();
        let found = |reason, text: &str| View::found(reason, format!("{name} {text}"));
        match self.mount.as_ref().filter(|_| self.exists).map(|mount| mount.writable) {
            Some(Writable::ReadOnlyByKernel) => {
                let text = "is read-only: the kernel makes a file system read-only after an error, see dmesg";
                return Some(found(Reason::FilesystemReadOnly, text));
            }
            Some(Writable::ReadOnlyMount) if self.was_writable || (self.owner == Owner::Kubelet && kubelet_runs) => {
                return Some(found(Reason::FilesystemReadOnly, "is mounted read-only"));
            }
            Some(Writable::ReadOnlyMount) => {
                return Some(View::healthy(format!(
                    "{name} was already read-only when nodevigil first read its mount"
                )));
            }
            Some(Writable::Yes) | None => {}
        }
        Some(match &self.last {
            LastProbe::NotProbed => {
                self.running.as_ref().filter(|running| now >= running.failed_at + FIRST_PROBE)?;
                unclear(format!("the first test write to {name} has not finished yet"))
            }
            LastProbe::Absent => return None,
            LastProbe::Succeeded(what) => View::healthy(format!("{what} {name} succeeds")),
            LastProbe::IoError(error) => found(Reason::StorageIOError, &format!("fails: {error}")),
            LastProbe::Full(what) if self.failed_probes >= FAILED_PROBES => {
                found(Reason::StorageFull, &format!("has no {what} left: delete files or enlarge it"))
            }
            LastProbe::Full(what) => unclear(format!("{name} has no {what} left")),
            LastProbe::Waiting => self.waiting(self.running.as_ref()?)?,
            LastProbe::Impossible(why, since) if now >= *since + PATIENCE => {
                probe_failed(format!("{name} cannot be probed: {why}"))
            }
            LastProbe::Impossible(why, _) => unclear(format!("{name} cannot be probed: {why}")),
        })
    }

    fn waiting(&self, running: &Running) -> Option<View> {
        let wait = running.wait?;
        let text = format!("{} does not finish a test write (it waits in {})", self.name(), wait.step.name());
        if running.failures < FAILED_PROBES {
            return Some(unclear(text));
        }
        let Some(requests) = wait.requests else {
            return Some(probe_failed(format!("{text}; it has no disk whose requests could be counted")));
        };
        Some(if running.same_wait < FAILED_PROBES {
            let message = format!("{text}, but the write or other requests make progress");
            View::found(Reason::StorageSlow, message)
        } else if requests.is_any_in_progress {
            View::found(Reason::StorageHung, format!("{text}, and its disk completes no request"))
        } else {
            probe_failed(format!(
                "{text}, but its disk has no request in progress, as while a file system is frozen (fsfreeze) or a device holds requests back (multipath without a path)"
            ))
        })
    }

    /// `/var/lib/kubelet (ext4, /dev/sda1)`.
    fn name(&self) -> String {
        let path = self.path.display();
        match &self.mount {
            Some(mount) if mount.source.starts_with('/') => format!("{path} ({}, {})", mount.kind, mount.source),
            Some(mount) => format!("{path} ({})", mount.kind),
            None => path.to_string(),
        }
    }
}

/// Something may be wrong; until that is clear, what was reported before holds.
fn unclear(message: String) -> View {
    View::Unchanged(Finding::new(Reason::StorageProbeFailed, message))
}

pub(super) fn probe_failed(message: String) -> View {
    View::Unknown(Finding::new(Reason::StorageProbeFailed, message))
}
