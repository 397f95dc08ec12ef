//! Our own process, as the kernel has it. `/proc/self` does not block; read when somebody asks for metrics, not before.

use std::time::Duration;

use procfs::{WithCurrentSystemInfo, process};

use crate::metrics::Process;

/// Reads it; `None` if there is no `/proc`.
pub fn read() -> Option<Process> {
    let me = process::Process::myself().ok()?;
    let stat = me.stat().ok()?;
    let ticks = (stat.utime + stat.stime).saturating_mul(1_000_000);
    Some(Process {
        resident_bytes: stat.rss_bytes().get(),
        locked_bytes: me.status().ok()?.vmlck.unwrap_or_default() * 1024,
        major_faults: stat.majflt,
        cpu: Duration::from_micros(ticks / procfs::ticks_per_second().max(1)),
        open_fds: u64::try_from(me.fd_count().ok()?).ok()?,
        threads: u64::try_from(stat.num_threads).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_there() {
        let me = read().unwrap();
        assert!(
            me.resident_bytes > 100_000 && me.open_fds >= 3 && me.threads >= 1,
            "{me:?}"
        );
    }
}
