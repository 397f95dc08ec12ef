//! What happened and is no state: an Event tells it, no condition does.

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "NEWS documents each, and a test walks it")]
pub enum News {
    ProcessOOMKilled,
    ClockStepped,
    LastBootEnded,
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
    /// What it means, in a sentence or two.
    pub doc: &'static str,
}

/// Every kind of news, in the order of [`News`].
pub const NEWS: &[NewsSpec] = &[
    NewsSpec {
        news: News::ProcessOOMKilled,
        name: "ProcessOOMKilled",
        warning: true,
        doc: "The kernel killed a process for memory; the note names it, its pod and whether the host or a limit ran out.",
    },
    NewsSpec {
        news: News::ClockStepped,
        name: "ClockStepped",
        warning: true,
        doc: "The wall clock was set by more than a few seconds; leases and certificates are judged by it.",
    },
    NewsSpec {
        news: News::LastBootEnded,
        name: "LastBootEnded",
        warning: false,
        doc: "How the boot before this one ended, as far as the machine kept a trace of it.",
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
}

impl Told {
    /// News of this kind.
    pub fn new(news: News, note: impl Into<String>) -> Self {
        Self {
            news,
            note: note.into(),
            warning: news.spec().warning,
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
