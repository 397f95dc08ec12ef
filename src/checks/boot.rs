//! How the boot before this one ended: asked once, told once, and what of this boot is to be kept for the next.
//!
//! It is no state: an Event tells it. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Check, Question, Reading, Spec,
    kernel::event::{KernelEvent, Scope},
};
use crate::{
    clock::Now,
    health::{
        ConditionType, Finding, bounded,
        news::{News, Told},
    },
    helper::boot::{Boot as LastBootRecord, BootNote, BootRequest, Kept, LastBoot},
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "boot",
    condition: ConditionType::NodeKernelHealthy,
    doc: "How the last boot ended: a kernel panic, a hardware watchdog, out of memory, a shutdown, or none of these. It is told as an Event and makes no status.",
};

/// When a helper that does not answer is asked again, and how often in all.
const RETRY: Duration = Duration::from_secs(30);
const MAX_TRIES: u32 = 20;

/// So often at most it is kept that the host ran out of memory.
const OOM_EVERY: Duration = Duration::from_mins(1);

/// How shortly before its last sign of life a boot must have run out of memory for that to be named.
const OOM_COUNTS_SECS: i64 = 15 * 60;

/// A note's bound; what is in it is bounded already.
const MAX_NOTE_BYTES: usize = 1024;

/// What is to be asked and kept.
#[derive(Debug, Default)]
pub struct Boot {
    asked: Asked,
    told: Option<Told>,
    /// What is to be kept, the newest of each kind.
    going_down: Option<bool>,
    victim: Option<String>,
    /// Before which no further victim is kept (uptime).
    oom_not_before: Duration,
    was_going_down: bool,
}

/// How far the question has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It is to be asked at that uptime, for the n-th time.
    No(Duration, u32),
    Done,
}

impl Default for Asked {
    fn default() -> Self {
        Self::No(Duration::ZERO, 1)
    }
}

impl Boot {
    fn hear(&mut self, event: &KernelEvent, now: Now) {
        if let KernelEvent::OomKill(kill) = event
            && kill.scope == Scope::Host
            && now.uptime >= self.oom_not_before
        {
            self.oom_not_before = now.uptime + OOM_EVERY;
            self.victim = Some(kill.comm.clone());
        }
    }

    fn answered(&mut self, answer: &Result<LastBoot, String>, now: Now) {
        let Asked::No(_, tries) = self.asked else {
            return;
        };
        match answer {
            Ok(last) => {
                self.asked = Asked::Done;
                self.told = judge(last);
            }
            Err(_) if tries >= MAX_TRIES => self.asked = Asked::Done,
            Err(_) => self.asked = Asked::No(now.uptime + RETRY, tries + 1),
        }
    }

    /// What is to be kept first: the way down leaves little time.
    fn next_note(&mut self) -> Option<BootNote> {
        let going_down = self.going_down.take().map(|so| {
            if so {
                BootNote::GoingDown
            } else {
                BootNote::StaysUp
            }
        });
        going_down.or_else(|| {
            let victim = self.victim.take()?;
            Some(BootNote::OutOfMemory { victim })
        })
    }
}

/// What is told of it; nothing if it was told before, or if there was no boot before this one that we know of.
pub fn judge(last: &LastBoot) -> Option<Told> {
    if last.asked_before {
        return None;
    }
    let (warning, note) = match (&last.panic, &last.watchdog, &last.record) {
        (Some(line), _, record) => (true, panicked(line, record)),
        (None, Some(name), record) => (true, reset_by_watchdog(name, record)),
        (None, None, Kept::Known(boot)) => ended(boot),
        (None, None, Kept::Unreadable { why }) => (
            false,
            format!("How the boot before this one ended is not known: {why}."),
        ),
        (None, None, Kept::Absent | Kept::Foreign) => return None,
    };
    Some(Told {
        warning,
        ..Told::new(News::LastBootEnded, bounded(&note, MAX_NOTE_BYTES))
    })
}

fn panicked(line: &str, record: &Kept) -> String {
    match record {
        Kept::Known(boot) => format!(
            "The boot before this one ended in a kernel panic (pstore): {line}. It was last known alive at {}.",
            boot.seen
        ),
        // Without a record nobody knows whose panic it is.
        _ => format!(
            "pstore keeps a kernel panic of an earlier boot: {line}. Whether the last boot ended in it is not known."
        ),
    }
}

fn reset_by_watchdog(name: &str, record: &Kept) -> String {
    let when = match record {
        Kept::Known(LastBootRecord {
            going_down: Some(at),
            ..
        }) => format!(", while the host was going down (since {at})"),
        Kept::Known(boot) => format!("; it was last known alive at {}", boot.seen),
        _ => String::new(),
    };
    format!(
        "The boot before this one ended by the hardware watchdog ({name}), which reset the machine{when}."
    )
}

fn ended(boot: &LastBootRecord) -> (bool, String) {
    if let Some(at) = boot.going_down {
        let note = format!(
            "The boot before this one was shut down: systemd began to take it down at {at}."
        );
        return (false, note);
    }
    let seen = boot.seen;
    let shortly_before = |at: &Timestamp| seen.as_second() - at.as_second() < OOM_COUNTS_SECS;
    let note = match boot
        .out_of_memory
        .as_ref()
        .filter(|(at, _)| shortly_before(at))
    {
        Some((at, victim)) => format!(
            "The boot before this one ended without a shutdown. The host had run out of memory at {at} (the kernel killed {victim}), and was last known alive at {seen}; whether it ended by that is not known."
        ),
        None => format!(
            "The boot before this one ended without a shutdown and left no trace of why: a power loss, a reset from outside, or a hang. It was last known alive at {seen}."
        ),
    };
    (true, note)
}

impl Check for Boot {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        match reading {
            Reading::Boot(answer) => self.answered(answer, now),
            Reading::Kernel(event) => self.hear(event, now),
            Reading::GoingDown(so) if *so != self.was_going_down => {
                (self.was_going_down, self.going_down) = (*so, Some(*so));
            }
            _ => {}
        }
    }

    fn due_at(&self) -> Option<Duration> {
        let to_keep = self.going_down.is_some() || self.victim.is_some();
        match self.asked {
            // What is kept before is of the boot before.
            Asked::No(at, _) => Some(at),
            Asked::Done => to_keep.then_some(Duration::ZERO),
        }
    }

    fn turn(&mut self, _now: Now) -> Option<Question> {
        let note = match self.asked {
            Asked::No(..) => None,
            Asked::Done => Some(self.next_note()?),
        };
        Some(Question::Boot(BootRequest { note }))
    }

    fn findings(&self) -> &[Finding] {
        &[]
    }

    fn told(&mut self) -> Option<Told> {
        self.told.take()
    }
}

#[cfg(test)]
mod tests;
