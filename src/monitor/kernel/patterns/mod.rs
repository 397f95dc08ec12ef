//! Lines of the kernel's log that report a problem. To add one is to add a row.

#[cfg(test)]
mod tests;

/// A line counts at this level or a more severe one, unless it has a row in [`LESS_SEVERE`].
const LEAST_SEVERE_LEVEL: u8 = 4;
/// Lines of level 4 that begin with a program's name (`dump_header` of `mm/oom_kill.c`, `warn_alloc` of `mm/page_alloc.c`).
const OF_A_PROGRAM: [&str; 2] = [" invoked oom-killer: ", ": page allocation failure: "];

/// Lines that count at the levels notice and info too. At level info some lines begin with the name of a program that crashed, of at most
/// 15 bytes, which a user could choose so that it resembles a line of the kernel's (`show_signal_msg` of `arch/x86/mm/fault.c`).
/// So the text before the first `*` is longer here. Lines of level notice begin with no such name.
#[rustfmt::skip]
const LESS_SEVERE: [(u8, &str); 7] = [
    (5, "nfs: server * not responding, "), (6, "device-mapper: thin: *: switching pool to "),
    (6, "neighbour: arp_cache: neighbor table overflow"), (6, "neighbour: ndisc_cache: neighbor table overflow"),
    (6, "traps: systemd[1] trap "), (6, "traps: systemd[1] general protection"), (6, "traps: systemd[1] trapped "),
];

/// Lines that resemble a problem, on hosts that have none: of empty drives, loop devices and hidden partitions of flash memory; of requests
/// that are no more than hints to the disk; of a lost interrupt that was made up for; of errors from which a `PCIe` device recovers.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "*error, dev fd", "*error, dev sr", "*error, dev loop", "*error, dev mtdblock", "*error, dev mmcblk*rpmb", "*error, dev mmcblk*boot",
    "Buffer I/O error on dev fd", "Buffer I/O error on dev sr", "Buffer I/O error on dev loop", "Buffer I/O error on dev mtdblock",
    "Buffer I/O error on device fd", "Buffer I/O error on device sr", "Buffer I/O error on device loop",
    "*error, dev * op 0x3:(DISCARD)", "*error, dev * op 0x9:(WRITE_ZEROES)", "nvme nvme* timeout, completion polled",
    "{*}[Hardware Error]: event severity: *, section_type: PCIe error",
];
/// The kernel may be told to report a stall of an expedited grace period after milliseconds (`rcupdate.rcu_exp_cpu_stall_timeout`). Even
/// with 100 jiffies a second one that took fewer than these was short; the stall that counts is logged after 21 s.
const SHORT_STALL_JIFFIES: u64 = 1000;

/// What a line is evidence of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Of itself.
    Trouble,
    /// A processor did nothing else for many seconds.
    Stall,
    /// A processor did not even take interrupts.
    HardLockup,
    /// Work of the kernel's own that waits for a processor.
    Workqueue,
    /// An error of the hardware that the hardware could not correct.
    Uncorrected,
}

use Class::{HardLockup, Stall, Trouble, Uncorrected, Workqueue};

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
    row("hard lockup", HardLockup, &["watchdog: *hard LOCKUP on cpu ", "NMI watchdog: *hard LOCKUP on cpu ", "Watchdog detected hard LOCKUP on cpu ", "watchdog: CPU *detected hard LOCKUP "]),
    row("workqueue lockup", Workqueue, &["BUG: workqueue lockup - pool "]),
    row("soft lockup", Stall, &["watchdog: BUG: soft lockup - CPU#", "NMI watchdog: BUG: soft lockup - CPU#", "BUG: soft lockup - CPU#"]),
    row("RCU stall", Stall, &["rcu: INFO: rcu_* stall", "INFO: rcu_* stall"]),
    row("hung task", Trouble, &["INFO: task * blocked* for more than "]),
    row("kernel oops", Trouble, &[
        "BUG: unable to handle ", "BUG: kernel NULL pointer dereference", "Unable to handle kernel ", "kernel BUG at ",
        "Oops: *[#", "Oops - *[#", "Internal error: *[#", "general protection fault*[#", "divide error: *[#", "invalid opcode: *[#",
        "stack segment: *[#", "double fault: ", "PANIC: double fault",
    ]),
    row("damaged memory management", Trouble, &[
        "BUG: Bad page state in process ", "BUG: Bad page map in process ", "BUG: Bad page cache in process ", "BUG: Bad rss-counter state ",
    ]),
    // At level 0, for PID 1 alone (`show_signal_msg`).
    row("crash of PID 1", Trouble, &["systemd[1]: segfault at ", "init[1]: segfault at ", "traps: systemd[1] "]),
    row("XFS shutdown", Trouble, &[
        "XFS (*hutting down filesystem", "XFS (*has been shut down due to log error", "XFS (*xfs_do_force_shutdown(",
        "XFS (*User initiated shutdown received",
    ]),
    row("XFS error", Trouble, &[
        "XFS (*orruption detected", "XFS (*CRC error detected", "XFS (*Internal error ", "XFS (*etadata I/O error", "XFS (*log I/O error",
        "XFS (*Corruption warning: ", "XFS (*log mount/recovery failed", "XFS (*log mount failed", "XFS (*failed to locate log tail",
        "XFS (*log recovery * I/O error", "XFS (*xfs_log_force: error -", "XFS (*Failing async write ", "XFS (*page discard on ",
    ]),
    row("XFS without memory", Trouble, &["XFS*possible memory allocation deadlock"]),
    row("ext4 error", Trouble, &[
        "EXT4-fs error (device ", "EXT4-fs (*): Remounting filesystem read-only", "EXT4-fs (*I/O error while writing superblock",
        "EXT4-fs (*potential data loss", "EXT4-fs (*Data will be lost", "Aborting journal on device ",
        "JBD2: Detected IO errors *while flushing file data on ", "JBD2: I/O error *when updating journal superblock",
        "JBD2: Error -* when updating journal superblock", "JBD2: recovery failed", "EXT4-fs (*previous I/O error to superblock detected",
        "EXT4-fs (*error loading journal", "EXT4-fs (*Delayed block allocation failed", "EXT4-fs (*shut down requested",
    ]),
    row("ext4 warning", Trouble, &["EXT4-fs warning (device "]),
    row("Btrfs error", Trouble, &[
        "BTRFS critical (device ", "BTRFS error (device ", "BTRFS: error (device ", "BTRFS warning (device *csum failed",
        "BTRFS warning (device *checksum verify failed", "BTRFS warning (device *write due to IO error", "BTRFS warning (device * is missing",
    ]),
    row("NFS server that does not answer", Trouble, &[
        "nfs: server * not responding, ", "NFS: state manager* failed on NFSv4 server ", "CIFS:* has not responded in ",
    ]),
    row("full thin pool", Trouble, &["device-mapper: thin: *: switching pool to out-of-data-space"]),
    row("device mapper failure", Trouble, &[
        "device-mapper: thin: *: switching pool to read-only", "device-mapper: thin: *: switching pool to fail",
        "device-mapper: thin: *metadata operation * failed", "device-mapper: multipath: *ailing path ",
        "device-mapper: verity: * is corrupted", "device-mapper: *INTEGRITY AEAD ERROR", "device-mapper: snapshots: Invalidating snapshot",
    ]),
    row("RAID failure", Trouble, &[
        "md/raid*Disk failure on ", "md/raid*unrecoverable I/O read error ", "md/raid*Cannot continue operation",
        "md/raid*not enough operational ", "md/raid*too many read errors", "md: super_written gets error",
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
    row("network device failure", Trouble, &[
        "ena *Keep alive watchdog timeout", "ena *Reset attempt failed", "mlx5_core *device's health compromised",
        "*: Detected Tx Unit Hang", "*: Detected Hardware Unit Hang",
    ]),
    row("full connection table", Trouble, &["nf_conntrack: *table full, dropping packet"]),
    row("full neighbour table", Trouble, &["neighbour: *_cache: neighbor table overflow"]),
    row("corrected hardware error", Trouble, &["{*}[Hardware Error]: event severity: corrected", "EDAC MC*: * CE "]),
];

/// The index in [`PATTERNS`] of the pattern that matches a line of this level.
pub(super) fn find(text: &str, level: u8) -> Option<usize> {
    let is_like = |line: &str| begins_like(text, line);
    let counts = level <= LEAST_SEVERE_LEVEL
        || LESS_SEVERE.iter().any(|(least_severe, line)| level <= *least_severe && is_like(line));
    let is_none = OF_A_PROGRAM.iter().any(|words| text.contains(words)) || HARMLESS.iter().any(|line| is_like(line));
    if !counts || is_none || is_short_stall(text) {
        return None;
    }
    PATTERNS.iter().position(|pattern| pattern.lines.iter().any(|line| is_like(line)))
}

/// Whether it is a line such as `rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 6 jiffies s: 85 root: 0x2/.`.
fn is_short_stall(text: &str) -> bool {
    let stall = text
        .split_once(" detected expedited stalls on CPUs/tasks: ")
        .and_then(|(_, stall)| stall.split_once(" jiffies"));
    let jiffies = stall.and_then(|(before, _)| before.rsplit(' ').next()?.parse::<u64>().ok());
    jiffies.is_some_and(|jiffies| jiffies < SHORT_STALL_JIFFIES)
}

/// For how long the work of a line such as `BUG: workqueue lockup - pool cpus=2 node=0 flags=0x0 nice=0 stuck for 338s!` has waited.
pub(super) fn stuck_secs(text: &str) -> Option<u64> {
    text.rsplit_once(" stuck for ")?.1.split_once('s')?.0.parse().ok()
}

/// Whether `text` begins with `line`, in which `*` is for any text.
fn begins_like(text: &str, line: &str) -> bool {
    let mut parts = line.split('*');
    let Some(rest) = parts.next().and_then(|start| text.strip_prefix(start)) else { return false };
    parts.try_fold(rest, |rest, part| Some(rest.split_once(part)?.1)).is_some()
}
