//! A systemd that has crashed or hangs. After SIGSEGV or a failed assertion PID 1 closes all files and waits for good (`freeze()` of
//! src/basic/process-util.c), since version 245 as a reaper of zombies: it starts no unit, and nothing ends it.

use std::time::Duration;

use crate::condition::{Finding, Reason, Uptime};
use crate::host::process::ProcessId;

/// How long systemd has to be silent.
const SILENT_FOR: Duration = Duration::from_mins(2);
/// A systemd that works reaps a child at once.
const REAPS_WITHIN: Duration = Duration::from_mins(1);

/// What was seen while systemd did not answer, although the bus did.
#[derive(Debug, Clone, Default)]
pub(super) struct Silence {
    /// Whether PID 1 has closed the socket that `systemctl` uses without the bus.
    pub(super) has_closed_socket: bool,
    /// The children of PID 1 that have ended and that it has not reaped.
    pub(super) zombies: Vec<ProcessId>,
    /// How often PID 1 has waited or was taken off its processor: one that hangs does neither.
    pub(super) switches: u64,
    /// Whether the host's load explains it, or a signal or a freezer that has stopped PID 1.
    pub(super) is_excused: bool,
}

#[derive(Debug, Default)]
pub(super) struct Init {
    silent_since: Option<Uptime>,
    /// The present zombies, and since when they have been seen.
    zombies: Vec<(ProcessId, Uptime)>,
    switches: u64,
}

impl Init {
    /// Takes in a reading; none if systemd answers, or the bus does not.
    pub(super) fn observe(&mut self, silence: Option<Silence>, now: Uptime) -> Option<Finding> {
        let Some(silence) = silence.filter(|silence| !silence.is_excused) else {
            *self = Self::default();
            return None;
        };
        let before = std::mem::take(&mut self.zombies);
        // While it works through something, it may reap later.
        let is_idle = std::mem::replace(&mut self.switches, silence.switches) == silence.switches;
        let before: Vec<_> = before.into_iter().filter(|_| is_idle).collect();
        let since = |id: &ProcessId| before.iter().find(|(known, _)| known == id).map_or(now, |(_, since)| *since);
        self.zombies = silence.zombies.iter().map(|id| (*id, since(id))).collect();
        if now < *self.silent_since.get_or_insert(now) + SILENT_FOR {
            return None;
        }
        let what = "systemd (PID 1) has not answered on D-Bus for over 2 minutes";
        let crashed = |how: String| {
            let until = "it starts and stops no unit until the host is rebooted";
            Finding::new(Reason::SystemdCrashed, format!("{what} and {how}: {until}"))
        };
        let unreaped = self.zombies.iter().find(|(_, since)| now >= *since + REAPS_WITHIN);
        Some(match unreaped {
            _ if silence.has_closed_socket => crashed("has closed /run/systemd/private".into()),
            Some((ProcessId { pid, .. }, _)) => crashed(format!("does not reap its children, such as pid {pid}")),
            None => {
                Finding::new(Reason::SystemdSilent, format!("{what}, and the bus answers: see journalctl -b _PID=1"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_systemd_is_a_warning_and_has_crashed_if_it_has_closed_its_socket_or_reaps_no_children() {
        let zombie = |pid| ProcessId { pid, start_ticks: 7 };
        let silence = |zombies: &[i32]| {
            Some(Silence { zombies: zombies.iter().map(|pid| zombie(*pid)).collect(), ..Silence::default() })
        };
        let seen = |readings: &[(u64, Option<Silence>)]| {
            let mut init = Init::default();
            let observed = readings.iter().map(|(at, silence)| init.observe(silence.clone(), Uptime::from_secs(*at)));
            observed.last().flatten().map(|finding| finding.reason)
        };
        assert_eq!(seen(&[(0, silence(&[])), (119, silence(&[]))]), None);
        assert_eq!(seen(&[(0, silence(&[])), (120, silence(&[]))]), Some(Reason::SystemdSilent));
        assert_eq!(seen(&[(0, silence(&[])), (60, None), (120, silence(&[]))]), None, "it has answered");
        let starved = Some(Silence { is_excused: true, ..Silence::default() });
        assert_eq!(seen(&[(0, silence(&[])), (60, starved), (120, silence(&[]))]), None);
        let closed = || Some(Silence { has_closed_socket: true, ..Silence::default() });
        assert_eq!(seen(&[(0, closed()), (119, closed())]), None);
        assert_eq!(seen(&[(0, closed()), (120, closed())]), Some(Reason::SystemdCrashed));
        let reaps = [(0, silence(&[5])), (60, silence(&[])), (90, silence(&[6])), (120, silence(&[6]))];
        assert_eq!(seen(&reaps), Some(Reason::SystemdSilent));
        let crashed = [(0, silence(&[])), (60, silence(&[5])), (90, silence(&[5, 6])), (120, silence(&[5, 6]))];
        assert_eq!(seen(&crashed), Some(Reason::SystemdCrashed));
        let busy = |switches| silence(&[5]).map(|silence| Silence { switches, ..silence });
        let works = [(0, busy(1)), (60, busy(1)), (90, busy(2)), (120, busy(2)), (140, busy(2))];
        assert_eq!(seen(&works), Some(Reason::SystemdSilent));
    }
}
