//! Lines of the kernel's log that report a problem. To add one is to add a row.

#[cfg(test)]
mod tests;

/// A line counts at this level or a more severe one. Among less severe lines are those about a crashed program, which begin with its
/// name: a user could choose a name that resembles a line of the kernel's (`show_signal_msg` of `arch/x86/mm/fault.c`).
const LEAST_SEVERE_LEVEL: u8 = 4;
/// The line of level 4 that begins with a program's name (`dump_header` of `mm/oom_kill.c`).
const OF_A_PROGRAM: &str = " invoked oom-killer: ";

/// What a line is evidence of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Of itself.
    Trouble,
    /// A processor did nothing else for many seconds.
    Stall,
    /// A processor did not even take interrupts.
    HardLockup,
    /// An error of the hardware that the hardware could not correct.
    Uncorrected,
}

use Class::{HardLockup, Stall, Trouble, Uncorrected};

/// A row of [`PATTERNS`].
#[derive(Debug)]
pub(super) struct Pattern {
    /// The problem, in messages.
    pub(super) name: &'static str,
    pub(super) class: Class,
    /// What a line begins with; `*` is for any text, also in front. One of these must match.
    lines: &'static [&'static str],
}

const fn row(name: &'static str, class: Class, lines: &'static [&'static str]) -> Pattern {
    Pattern { name, class, lines }
}

/// All patterns. The first that matches a line counts.
#[rustfmt::skip]
pub(super) const PATTERNS: &[Pattern] = &[
    // The page is no longer used. An administrator can have that done too (/sys/devices/system/memory/hard_offline_page).
    row("recovered memory failure", Trouble, &[
        "Memory failure: 0x*: recovery action for *: Recovered", "MCE 0x*: recovery action for *: Recovered",
    ]),
    row("uncorrected hardware error", Uncorrected, &[
        // With a number. Without one it is an error of the boot before (BERT).
        "{*}[Hardware Error]: event severity: fatal", "{*}[Hardware Error]: event severity: recoverable",
        "EDAC MC*: * UE ", "mce: Uncorrected hardware memory error",
        "Memory failure: 0x* due to hardware memory corruption", "MCE 0x* due to hardware memory corruption",
        "Memory failure: 0x*: recovery action for ", "MCE 0x*: recovery action for ",
    ]),
    row("hard lockup", HardLockup, &["watchdog: *hard LOCKUP on cpu ", "NMI watchdog: *hard LOCKUP on cpu ", "Watchdog detected hard LOCKUP on cpu "]),
    row("soft lockup", Stall, &["watchdog: BUG: soft lockup - CPU#", "NMI watchdog: BUG: soft lockup - CPU#", "BUG: soft lockup - CPU#"]),
    row("RCU stall", Stall, &["rcu: INFO: rcu_* stall", "INFO: rcu_* stall"]),
    row("hung task", Trouble, &["INFO: task * blocked* for more than "]),
    row("kernel oops", Trouble, &[
        "BUG: unable to handle ", "BUG: kernel NULL pointer dereference", "Unable to handle kernel ", "kernel BUG at ",
        "Oops: *[#", "Oops - *[#", "Internal error: *[#", "general protection fault*[#", "divide error: *[#", "invalid opcode: *[#",
        "stack segment: *[#", "double fault: ", "PANIC: double fault",
    ]),
    row("XFS shutdown", Trouble, &[
        "XFS (*hutting down filesystem", "XFS (*has been shut down due to log error", "XFS (*xfs_do_force_shutdown(",
    ]),
    row("XFS error", Trouble, &[
        "XFS (*orruption detected", "XFS (*CRC error detected", "XFS (*Internal error ", "XFS (*metadata I/O error", "XFS (*log I/O error",
    ]),
    row("ext4 error", Trouble, &[
        "EXT4-fs error (device ", "EXT4-fs (*): Remounting filesystem read-only", "EXT4-fs (*I/O error while writing superblock",
        "EXT4-fs (*potential data loss", "EXT4-fs (*Data will be lost", "Aborting journal on device ",
        "JBD2: Detected IO errors *while flushing file data on ",
    ]),
    row("ext4 warning", Trouble, &["EXT4-fs warning (device "]),
    row("Btrfs error", Trouble, &[
        "BTRFS critical (device ", "BTRFS error (device ", "BTRFS: error (device ", "BTRFS warning (device *csum failed",
    ]),
    row("NVMe failure", Trouble, &[
        "nvme nvme* timeout, ", "nvme nvme*controller is down; will reset", "nvme nvme*Device not ready; aborting ",
        "nvme nvme*Removing after probe failure", "nvme nvme*Disabling device after reset failure",
    ]),
    row("offline disk", Trouble, &["sd *rejecting I/O to offline device"]),
    // They begin with the device, or with a function that has changed its name.
    row("I/O error", Trouble, &[
        "*I/O error, dev ", "*critical * error, dev ", "Buffer I/O error on dev", "*: writeback error on ",
    ]),
    row("network device in use", Trouble, &["unregister_netdevice: waiting for * to become free"]),
    row("network transmit timeout", Trouble, &["*NETDEV WATCHDOG: * timed out"]),
    row("full connection table", Trouble, &["nf_conntrack: *table full, dropping packet"]),
    row("corrected hardware error", Trouble, &["{*}[Hardware Error]: event severity: corrected", "EDAC MC*: * CE "]),
];

/// The index in [`PATTERNS`] of the pattern that matches a line of this level.
pub(super) fn find(text: &str, level: u8) -> Option<usize> {
    if level > LEAST_SEVERE_LEVEL || text.contains(OF_A_PROGRAM) {
        return None;
    }
    PATTERNS.iter().position(|pattern| pattern.lines.iter().any(|line| begins_like(text, line)))
}

/// Whether `text` begins with `line`, in which `*` is for any text.
fn begins_like(text: &str, line: &str) -> bool {
    let mut parts = line.split('*');
    let Some(rest) = parts.next().and_then(|start| text.strip_prefix(start)) else { return false };
    parts.try_fold(rest, |rest, part| Some(rest.split_once(part)?.1)).is_some()
}
