//! Whether a kubelet whose healthz does not answer gets what it needs to run. If not, that is no fault of its own, and
//! nothing that restarts it would help.

use crate::{clock::Now, config::Settings};

/// How hard it is for a process to run, in percent of the time; `None` where the kernel does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strain {
    /// Somebody waits for a processor, on the host or in the kubelet's control group.
    pub cpu_percent: Option<u16>,
    /// Everybody waits for memory.
    pub memory_percent: Option<u16>,
    /// The process's own threads wait for a processor, summed up.
    pub waited_percent: Option<u16>,
}

/// From when on it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrainLimits {
    /// In percent, as in [`Strain`].
    cpu: u16,
    memory: u16,
    waited: u16,
}

/// So much of the time its own threads must wait for the host's pressure to count: one that is stuck waits for no processor,
/// however busy the host is.
const OWN_SHARE_PERCENT: u16 = 10;

/// So long a look that showed starvation counts, whether it answers meanwhile or not. A look can miss it: two reads that come at once,
/// as with an agent that is starved too, make no rate, and one that starves answers now and then. Connections pile up at its port
/// all the while, as they do at one that hangs.
const REMEMBERED_SECS: u32 = 30;

/// What it lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    Processor,
    OwnShare,
    Memory,
}

/// The looks at one kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Starved {
    /// Of the first look that showed it, so that the sentence stays, and when one showed it last (seconds of uptime).
    seen: Option<(Lack, u16, u32)>,
}

impl StrainLimits {
    /// As configured.
    pub fn new(settings: &Settings) -> Self {
        let percent = |name| u16::try_from(settings.number("kubelet", name)).unwrap_or(u16::MAX);
        Self {
            cpu: percent("starved_cpu_percent"),
            memory: percent("starved_memory_percent"),
            waited: percent("starved_wait_percent"),
        }
    }

    fn lack(self, strain: Strain) -> Option<(Lack, u16)> {
        let over = |value: Option<u16>, limit| value.is_some_and(|value| value > limit);
        if over(strain.waited_percent, self.waited) {
            return Some((Lack::OwnShare, self.waited));
        }
        let has_part = strain
            .waited_percent
            .is_none_or(|share| share >= OWN_SHARE_PERCENT);
        if over(strain.cpu_percent, self.cpu) && has_part {
            return Some((Lack::Processor, self.cpu));
        }
        over(strain.memory_percent, self.memory).then_some((Lack::Memory, self.memory))
    }
}

impl Starved {
    pub(super) fn look(&mut self, strain: Strain, limits: StrainLimits, now: Now) {
        if let Some((lack, limit)) = limits.lack(strain) {
            let (lack, limit) = self.lately(now).unwrap_or((lack, limit));
            self.seen = Some((lack, limit, secs(now)));
        }
    }

    fn lately(&self, now: Now) -> Option<(Lack, u16)> {
        let (lack, limit, last) = self.seen?;
        (secs(now) < last.saturating_add(REMEMBERED_SECS)).then_some((lack, limit))
    }

    /// What it lacks, as a half sentence; `None`: nothing, as far as is known.
    pub(super) fn why(&self, now: Now) -> Option<String> {
        let (lack, limit) = self.lately(now)?;
        Some(match lack {
            Lack::OwnShare => format!(
                "its threads wait for a processor more than {limit} % of the time (schedstat)"
            ),
            Lack::Processor => format!(
                "tasks of this host wait for a processor more than {limit} % of the time (/proc/pressure/cpu), its own among them"
            ),
            Lack::Memory => format!(
                "all tasks of this host wait for memory more than {limit} % of the time (/proc/pressure/memory)"
            ),
        })
    }
}

fn secs(now: Now) -> u32 {
    u32::try_from(now.uptime.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_secs(secs),
            wall: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn why(strain: Strain) -> Option<String> {
        let mut starved = Starved::default();
        starved.look(strain, StrainLimits::new(&Settings::default()), at(0));
        starved.why(at(0))
    }

    fn strain(cpu: Option<u16>, memory: Option<u16>, waited: Option<u16>) -> Strain {
        Strain {
            cpu_percent: cpu,
            memory_percent: memory,
            waited_percent: waited,
        }
    }

    #[test]
    fn each_lack_is_named_by_its_limit() {
        for (seen, word) in [
            (strain(Some(0), Some(0), Some(51)), Some("more than 50 %")),
            (strain(Some(61), None, Some(10)), Some("more than 60 %")),
            (strain(Some(61), None, None), Some("pressure/cpu")),
            (strain(None, Some(21), Some(0)), Some("more than 20 %")),
            (strain(Some(60), Some(20), Some(50)), None),
            // A busy host, and a kubelet that does not want to run: it is stuck.
            (strain(Some(99), None, Some(9)), None),
            (Strain::default(), None),
        ] {
            let said = why(seen);
            assert_eq!(said.is_some(), word.is_some(), "{seen:?}");
            assert!(
                said.unwrap_or_default().contains(word.unwrap_or_default()),
                "{seen:?}"
            );
        }
    }

    #[test]
    fn it_is_remembered_for_half_a_minute_in_the_same_words() {
        let limits = StrainLimits::new(&Settings::default());
        let mut starved = Starved::default();
        starved.look(strain(None, None, Some(90)), limits, at(0));
        let said = starved.why(at(0));
        starved.look(strain(Some(90), None, Some(20)), limits, at(20));
        for secs in 21..50 {
            starved.look(Strain::default(), limits, at(secs));
            assert_eq!(starved.why(at(secs)), said, "{secs}");
        }
        assert_eq!(starved.why(at(50)), None);
        starved.look(strain(Some(90), None, Some(20)), limits, at(51));
        assert_ne!(starved.why(at(51)), said, "another time");
    }
}
