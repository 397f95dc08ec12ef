//! The messages, with the present numbers.

use crate::host::memory::Reading;
use crate::host::oom::OomKill;
use crate::host::top::Consumer;

const MIB: u64 = 1 << 20;
/// So many processes are named.
const NAMED: usize = 3;
/// The longest cgroup that is shown, in bytes. Those of pods have about 180.
const MAX_CGROUP_BYTES: usize = 200;
/// The same of a process name, of which the kernel keeps 15.
const MAX_NAME_BYTES: usize = 32;

pub fn available(reading: &Reading) -> String {
    let percent = (reading.available_bytes * 100).checked_div(reading.total_bytes).unwrap_or_default();
    let swap = match reading.swap_free_bytes / MIB {
        0 => String::new(),
        free => format!(", and {free} MiB of swap"),
    };
    format!("{} MiB ({percent} %) of the host's memory is available{swap}", reading.available_bytes / MIB)
}

pub fn runs_out(reading: &Reading, lost_bytes_per_sec: u64) -> String {
    let left = reading.available_bytes + reading.swap_free_bytes;
    let lasts = left.checked_div(lost_bytes_per_sec).unwrap_or_default();
    format!("{}, falling by {} MiB/s: it is used up in about {lasts} s", available(reading), lost_bytes_per_sec / MIB)
}

/// With the bytes of files that are read again each second.
pub fn thrashes(reading: &Reading, reread_bytes_per_sec: u64) -> String {
    format!(
        "{}: each second the kernel reads back {} MiB of file pages that it has just dropped, as only {} MiB fit into memory",
        available(reading),
        reread_bytes_per_sec / MIB,
        reading.file_bytes / MIB
    )
}

/// With the share of the time in which all programs wait.
pub fn loses_time(reading: &Reading, percent: u128) -> String {
    format!("{}: all tasks stall on memory for {percent} % of the time", available(reading))
}

pub fn oom_killed(kill: &OomKill) -> String {
    let name = redact::sanitize_line(&kill.name, MAX_NAME_BYTES);
    format!("The kernel OOM-killed {name} (pid {}) because the host had no memory left", kill.pid)
}

/// The processes that hold most or grow fastest, as the end of a sentence.
pub fn largest(consumers: &[Consumer]) -> String {
    let of = |consumer: &Consumer| {
        let cgroup = consumer
            .cgroup
            .as_ref()
            .map_or_else(String::new, |path| format!(" of {}", redact::sanitize_line(path, MAX_CGROUP_BYTES)));
        let grows = match consumer.growth_bytes_per_sec / MIB {
            0 => String::new(),
            grows => format!(", growing by {grows} MiB/s"),
        };
        let name = redact::sanitize_line(&consumer.name, MAX_NAME_BYTES);
        format!("{name} (pid {}{cgroup}) has {} MiB{grows}", consumer.pid, consumer.memory_bytes / MIB)
    };
    let all: Vec<_> = consumers.iter().take(NAMED).map(of).collect();
    if all.is_empty() { String::new() } else { format!("; {}", all.join("; ")) }
}
