//! What a line of the kernel's must say to matter, as data; [`PATTERNS`](super::patterns::PATTERNS) holds every one.
//!
//! No regular expressions: each of the kernel's lines begins with fixed words, and so a line that matters to nobody costs a
//! look at its first byte and a few comparisons.

use std::fmt;

/// Who judges a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// The check of the kernel itself.
    Kernel,
    /// The check of the disks and file systems.
    Storage,
}

/// What a line means, whichever words say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A task has waited for the disk or a lock for minutes and cannot be killed.
    TaskHung,
    /// A CPU has not scheduled for many seconds.
    SoftLockup,
    /// A CPU does not even take interrupts.
    HardLockup,
    /// A CPU or a task holds up the kernel's own clean-up (RCU).
    RcuStall,
    /// The kernel broke off what it did: a bug; locks may be held for ever.
    Oops,
    /// The kernel gave up.
    Panic,
    /// A network device of a pod cannot be taken away.
    NetdeviceStuck,
    /// The hardware corrected an error.
    HardwareCorrected,
    /// The hardware lost data, and the kernel could go on.
    HardwareLost,
    /// The hardware lost data that nothing can go on without.
    HardwareFatal,
    /// An error that the firmware recorded for the boot before this one.
    HardwareBefore,
    /// A cgroup may not have another process.
    ForkRefused,
    /// The table of connections is full: packets are dropped.
    ConntrackFull,
    /// A file system found its own data wrong.
    Corruption,
    /// A file system warns about itself.
    FilesystemWarning,
    /// A file system went read-only by itself, or ended its journal.
    ReadOnly,
    /// A file system shut itself down.
    Shutdown,
    /// A device could not read or write.
    IoError,
    /// A device does not answer in time, or was reset.
    DeviceSlow,
    /// A device is gone.
    DeviceLost,
}

/// Where the line names whom it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Nowhere.
    None,
    /// Between the first of the first and the next of the second.
    Between(&'static str, &'static str),
    /// The word after the first of these that is there: up to a space, `,`, `:`, `)`, `]` or the end.
    After(&'static [&'static str]),
    /// Everything after the first of this, but for a `]` at the end.
    Rest(&'static str),
    /// The device whose journal is named after the first of this: `dm-4` of `dm-4-8`, where 8 is the journal's inode.
    Journal(&'static str),
}

/// One pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Its name.
    pub id: &'static str,
    /// Who judges it.
    pub concern: Concern,
    /// What it means.
    pub meaning: Meaning,
    /// The line begins with one of these.
    pub starts: &'static [&'static str],
    /// Then it says these, in this order.
    pub says: &'static [&'static str],
    /// Where it names whom it is about.
    pub subject: Subject,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({})", self.id)
    }
}

impl Pattern {
    /// The same, with where the line names whom it is about.
    pub(super) const fn about(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }

    /// Whether it knows the line.
    pub fn knows(&self, text: &str) -> bool {
        self.starts.iter().any(|start| {
            text.strip_prefix(start).is_some_and(|rest| {
                let mut says = self.says.iter();
                says.try_fold(rest, |rest, part| Some(rest.split_once(part)?.1))
                    .is_some()
            })
        })
    }

    /// Whom the line is about.
    pub fn subject<'a>(&self, text: &'a str) -> Option<&'a str> {
        let found = match self.subject {
            Subject::None => None,
            Subject::Between(before, after) => {
                let (_, rest) = text.split_once(before)?;
                Some(rest.split_once(after)?.0)
            }
            Subject::After(any) => {
                let rest = any
                    .iter()
                    .find_map(|before| Some(text.split_once(before)?.1))?;
                rest.split([' ', ',', ':', ')', ']']).next()
            }
            Subject::Rest(before) => {
                let (_, rest) = text.split_once(before)?;
                Some(rest.strip_suffix(']').unwrap_or(rest))
            }
            Subject::Journal(before) => {
                let (_, journal) = text.split_once(before)?;
                let journal = journal.trim_end_matches('.');
                // A journal on a device of its own has no inode, and that device may be `dm-8`.
                let device = journal.strip_suffix("-8").filter(|device| *device != "dm");
                Some(device.unwrap_or(journal))
            }
        };
        found.map(str::trim).filter(|subject| !subject.is_empty())
    }
}
