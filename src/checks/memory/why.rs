//! Why memory has another state than before, in a sentence with the numbers of that moment.

use std::fmt;

use super::signals::Signals;

/// What led to another state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Little is available, and less than before.
    Low,
    /// It falls.
    Falls,
    /// Tasks wait for memory, or the kernel reclaims it.
    Waits,
    /// The kernel's own trigger said that tasks wait for memory.
    Woken,
    /// All pods together are near their limit.
    PodsNearLimit,
    /// It will be exhausted.
    Imminent,
    /// It will be exhausted before anything else can be seen.
    Plunges,
    /// All pods together will reach their limit.
    PodsAtLimit,
    /// It is exhausted.
    Exhausted,
    /// What was dropped is read anew at once.
    Thrashes,
    /// The kernel looks for memory in vain.
    InVain,
    /// The kubelet or the container runtime waits for memory.
    PlatformWaits,
    /// The kernel killed a process, and says that the host had no memory.
    Killed,
    /// The kernel counts another kill, and memory was short.
    CountedKill,
    /// Much is available again.
    Recovered,
    /// It moves no longer.
    Still,
    /// It thrashes no longer, but little is available.
    StillLow,
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Why {
    /// What led to it.
    pub cause: Cause,
    /// The numbers of that moment.
    pub signals: Signals,
}

const MIB: f64 = 1024.0 * 1024.0;

impl Cause {
    fn sentence(self) -> &'static str {
        match self {
            Cause::Low => "little memory is available",
            Cause::Falls => "available memory falls",
            Cause::Waits => "tasks wait for memory",
            Cause::Woken => "the kernel says that tasks wait for memory",
            Cause::PodsNearLimit => "all pods together come near their memory limit",
            Cause::Imminent => "the host's memory is about to be exhausted",
            Cause::Plunges => "the host's memory falls too fast to wait for any other sign",
            Cause::PodsAtLimit => "all pods together are about to reach their memory limit",
            Cause::Exhausted => "the host's memory is exhausted",
            Cause::Thrashes => "the host thrashes: what it drops from memory it reads anew at once",
            Cause::InVain => "the kernel looks for memory in vain",
            Cause::PlatformWaits => "the kubelet or the container runtime waits for memory",
            Cause::Killed => "the kernel killed a process because the host had no memory left",
            Cause::CountedKill => {
                "the kernel counts a process killed for memory, and the host had none left"
            }
            Cause::Recovered => "enough memory is available again",
            Cause::Still => "memory moves no longer",
            Cause::StillLow => "the host thrashes no longer, but little memory is available",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.signals;
        f.write_str(self.cause.sentence())?;
        write!(
            f,
            ": {:.1} % ({:.0} MiB) available",
            s.percent(),
            s.available / MIB
        )?;
        if let Some(swap) = s.swap.filter(|swap| *swap >= MIB) {
            write!(f, ", room for {:.0} MiB in swap", swap / MIB)?;
        }
        if let Some((falls, left)) = s.falls.zip(s.left) {
            write!(f, ", falling by {:.1} MiB/s, {left:.1} s left", falls / MIB)?;
        }
        if let Some(free) = s.pods_percent.filter(|_| self.is_of_pods()) {
            write!(f, ", {free:.1} % of the pods' limit left")?;
            if let Some(left) = s.pods_left {
                write!(f, " for {left:.1} s")?;
            }
        }
        match s.reclaims {
            Some(true) => f.write_str(", the kernel reclaims")?,
            Some(false) => f.write_str(", the kernel does not reclaim")?,
            None => {}
        }
        if let Some(waits) = s.waits {
            write!(f, ", tasks wait {waits:.0} % of the time")?;
        }
        if let Some(waits) = s.platform_waits.filter(|waits| *waits >= 1.0) {
            write!(f, ", the kubelet or the runtime {waits:.0} %")?;
        }
        if let Some(refaults) = s.refaults.filter(|refaults| *refaults >= 1.0) {
            write!(
                f,
                ", {refaults:.0} % of the file pages are read anew each second"
            )?;
        }
        if let Some(efficiency) = s.efficiency.filter(|_| self.cause == Cause::InVain) {
            write!(f, ", it gets {efficiency:.0} % of what it looks at")?;
        }
        Ok(())
    }
}

impl Why {
    fn is_of_pods(&self) -> bool {
        matches!(self.cause, Cause::PodsNearLimit | Cause::PodsAtLimit)
    }
}
