//! What happened and is no state: an Event tells it, no condition does.

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "NEWS documents each, and a test walks it")]
pub enum News {
    ProcessOOMKilled,
    ForkRefused,
    ConntrackTableFull,
    HardwareErrorCorrected,
    KernelLogOverrun,
    ClockStepped,
    LastBootEnded,
    BootstrapStageLate,
}

/// Which share of the Events' budget a kind may use, and how its Events are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Sent first, and from a share of the budget that nothing else can use.
    Urgent,
    /// As [`Pace::Urgent`], and once for each Node and whom it is about, whatever restarts of the agent there are: the Event's
    /// name is made of them, and the API server takes no second one of a name.
    Once,
    /// Sent as the common share allows.
    Ordinary,
    /// It repeats: what happens within an hour is one Event, whose count is updated less and less often.
    Merged,
}

/// What the registry knows of one kind of news.
#[derive(Debug, Clone, Copy)]
pub struct NewsSpec {
    /// The kind.
    pub news: News,
    /// The Event's reason; a part of the interface, never changed.
    pub name: &'static str,
    /// Whether the Event's type is `Warning`.
    pub warning: bool,
    /// How its Events are paced.
    pub pace: Pace,
    /// What it means, in a sentence or two.
    pub doc: &'static str,
}

/// Every kind of news, in the order of [`News`].
pub const NEWS: &[NewsSpec] = &[
    NewsSpec {
        news: News::ProcessOOMKilled,
        name: "ProcessOOMKilled",
        warning: true,
        pace: Pace::Merged,
        doc: "The kernel killed a process for memory; the note names it, its pod and whether the host or a limit ran out.",
    },
    NewsSpec {
        news: News::ForkRefused,
        name: "ForkRefused",
        warning: true,
        pace: Pace::Merged,
        doc: "A cgroup may not have another process: its limit of processes is reached, and a fork in it failed.",
    },
    NewsSpec {
        news: News::ConntrackTableFull,
        name: "ConntrackTableFull",
        warning: true,
        pace: Pace::Merged,
        doc: "The kernel's table of connections is full, and it dropped packets of new ones.",
    },
    NewsSpec {
        news: News::HardwareErrorCorrected,
        name: "HardwareErrorCorrected",
        warning: false,
        pace: Pace::Merged,
        doc: "The hardware met an error and corrected it: nothing was lost, and many of them foretell one that cannot be corrected.",
    },
    NewsSpec {
        news: News::KernelLogOverrun,
        name: "KernelLogOverrun",
        warning: true,
        pace: Pace::Merged,
        doc: "The kernel's log ran over before it was read: so many of its records are not known.",
    },
    NewsSpec {
        news: News::ClockStepped,
        name: "ClockStepped",
        warning: true,
        pace: Pace::Ordinary,
        doc: "The wall clock was set by more than a few seconds; leases and certificates are judged by it.",
    },
    NewsSpec {
        news: News::LastBootEnded,
        name: "LastBootEnded",
        warning: false,
        pace: Pace::Ordinary,
        doc: "How the boot before this one ended, as far as the machine kept a trace of it.",
    },
    NewsSpec {
        news: News::BootstrapStageLate,
        name: "BootstrapStageLate",
        warning: true,
        pace: Pace::Once,
        doc: "A young Node waits for a stage of its bootstrap longer than that may take; the note names the stage, what is seen and the probable cause. The Event remains when the Node is deleted.",
    },
];

impl News {
    /// Its row.
    pub fn spec(self) -> &'static NewsSpec {
        // The table has the enum's order, which a test keeps.
        &NEWS[self as usize]
    }
}

/// News, with what there is to say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What kind.
    pub news: News,
    /// For people, at most 1 KiB.
    pub note: String,
    /// Whether it is worse than its kind usually is: the Event's type is `Warning` then.
    pub warning: bool,
    /// Whom it is about: the same news of the same is one more of a series, of another it is an Event of its own.
    pub about: String,
}

impl Told {
    /// News of this kind.
    pub fn new(news: News, note: impl Into<String>) -> Self {
        Self {
            news,
            note: note.into(),
            warning: news.spec().warning,
            about: String::new(),
        }
    }

    /// The same, about somebody.
    #[must_use]
    pub fn about(self, about: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_is_whole() {
        for (i, spec) in NEWS.iter().enumerate() {
            assert_eq!(spec.news as usize, i);
            assert_eq!(format!("{:?}", spec.news), spec.name);
            assert!(spec.doc.ends_with('.'), "{}", spec.name);
            assert!(
                crate::health::reasons().all(|reason| reason.name != spec.name),
                "{}: a reason has that name",
                spec.name
            );
        }
    }
}
