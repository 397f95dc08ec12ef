//! Every pattern: which lines of the kernel's log matter, and to whom. The tests hold recorded lines of several kernels
//! against each.

use super::pattern::{Concern, Meaning, Pattern, Subject};

/// What an I/O error of a block device begins with: before 4.14, until 5.1, until 5.15, and since.
const BLOCK_ERRORS: &[&str] = &[
    "end_request: I/O error, dev ",
    "print_req_error: I/O error, dev ",
    "blk_update_request: I/O error, dev ",
    "I/O error, dev ",
];
/// The same, where the device itself says that the sector is bad or the command cannot be done.
const BLOCK_FAILURES: &[&str] = &[
    "end_request: critical ",
    "print_req_error: critical ",
    "blk_update_request: critical ",
    "critical ",
];
/// What the kernel begins with when it breaks off: x86 and arm64.
const OOPSES: &[&str] = &[
    "BUG: unable to handle ",
    "BUG: kernel NULL pointer dereference",
    "Unable to handle kernel ",
    "kernel BUG at ",
    "Oops: ",
    "Oops - ",
    "Internal error: ",
    "general protection fault",
    "divide error: ",
    "invalid opcode: ",
    "stack segment: ",
    "double fault: ",
    "PANIC: double fault",
];

/// What an error of XFS while writing back begins with: once, and (5.10 and later) with no more than the device's name.
const WRITEBACK_ERRORS: &[&str] = &[
    "XFS (", "dm-", "sd", "nvme", "vd", "xvd", "md", "mmcblk", "loop", "nbd", "rbd", "drbd",
];

/// Every pattern. The first that knows a line has it.
pub const PATTERNS: &[Pattern] = &[
    // What hangs.
    kernel(
        "hung-task",
        Meaning::TaskHung,
        &["INFO: task "],
        &[" blocked", " for more than "],
    )
    .about(Subject::Between("INFO: task ", " blocked")),
    kernel(
        "soft-lockup",
        Meaning::SoftLockup,
        &[
            "watchdog: BUG: soft lockup - CPU#",
            "NMI watchdog: BUG: soft lockup - CPU#",
            "BUG: soft lockup - CPU#",
        ],
        &[" stuck for "],
    )
    .about(Subject::Rest("! [")),
    kernel(
        "hard-lockup",
        Meaning::HardLockup,
        &[
            "watchdog: ",
            "NMI watchdog: ",
            "Watchdog detected hard LOCKUP",
        ],
        &["hard LOCKUP on cpu "],
    ),
    kernel(
        "rcu-stall",
        Meaning::RcuStall,
        &["rcu: INFO: rcu", "INFO: rcu"],
        &[" stall"],
    ),
    kernel(
        "netdevice-stuck",
        Meaning::NetdeviceStuck,
        &["unregister_netdevice: waiting for "],
        &[" to become free"],
    )
    .about(Subject::Between("waiting for ", " to become free")),
    // What broke off.
    kernel(
        "panic",
        Meaning::Panic,
        &["Kernel panic - not syncing"],
        &[],
    ),
    kernel("oops", Meaning::Oops, OOPSES, &[]),
    // What the hardware did.
    kernel(
        "cper-fatal",
        Meaning::HardwareFatal,
        &["{"],
        &["}[Hardware Error]: event severity: fatal"],
    ),
    kernel(
        "cper-recoverable",
        Meaning::HardwareLost,
        &["{"],
        &["}[Hardware Error]: event severity: recoverable"],
    ),
    kernel(
        "cper-corrected",
        Meaning::HardwareCorrected,
        &["{"],
        &["}[Hardware Error]: event severity: corrected"],
    ),
    // Without a number: the firmware's record of the boot before (BERT).
    kernel(
        "cper-before",
        Meaning::HardwareBefore,
        &["[Hardware Error]: event severity: "],
        &[],
    ),
    kernel(
        "edac-uncorrected",
        Meaning::HardwareLost,
        &["EDAC MC"],
        &[": ", " UE "],
    )
    .about(Subject::Between(" on ", " (")),
    kernel(
        "edac-corrected",
        Meaning::HardwareCorrected,
        &["EDAC MC"],
        &[": ", " CE "],
    )
    .about(Subject::Between(" on ", " (")),
    kernel(
        "memory-uncorrected",
        Meaning::HardwareLost,
        &["mce: Uncorrected hardware memory error"],
        &[],
    ),
    kernel(
        "memory-failure",
        Meaning::HardwareLost,
        &["Memory failure: 0x", "MCE 0x"],
        &[" due to hardware memory corruption"],
    ),
    // All that is said where no process was told at once: a scrubber found the error, or the page was nobody's.
    kernel(
        "memory-recovery",
        Meaning::HardwareLost,
        &["Memory failure: 0x", "MCE 0x"],
        &[": recovery action for "],
    ),
    // What ran out.
    kernel(
        "fork-refused",
        Meaning::ForkRefused,
        &["cgroup: fork rejected by pids controller in "],
        &[],
    )
    .about(Subject::Rest("controller in ")),
    kernel(
        "conntrack-full",
        Meaning::ConntrackFull,
        &["nf_conntrack: "],
        &["table full, dropping packet"],
    ),
    // File systems.
    ext4(
        "ext4-readonly",
        Meaning::ReadOnly,
        &["): Remounting filesystem read-only"],
    ),
    storage(
        "ext4-error",
        Meaning::Corruption,
        &["EXT4-fs error (device "],
        &[],
    )
    .about(Subject::After(&["(device "])),
    storage(
        "ext4-warning",
        Meaning::FilesystemWarning,
        &["EXT4-fs warning (device "],
        &[],
    )
    .about(Subject::After(&["(device "])),
    ext4(
        "ext4-io-error",
        Meaning::IoError,
        &["I/O error while writing superblock"],
    ),
    ext4("ext4-data-loss", Meaning::IoError, &["potential data loss"]),
    ext4("ext4-data-lost", Meaning::IoError, &["Data will be lost"]),
    storage(
        "journal-aborted",
        Meaning::ReadOnly,
        &["Aborting journal on device "],
        &[],
    )
    .about(Subject::Journal("on device ")),
    storage(
        "journal-io-error",
        Meaning::IoError,
        &["JBD2: Detected IO errors "],
        &["while flushing file data on "],
    )
    .about(Subject::Journal("data on ")),
    xfs(
        "xfs-shutdown",
        Meaning::Shutdown,
        &["hutting down filesystem"],
    ),
    xfs(
        "xfs-log-shutdown",
        Meaning::Shutdown,
        &["has been shut down due to log error"],
    ),
    xfs(
        "xfs-forced-shutdown",
        Meaning::Shutdown,
        &["xfs_do_force_shutdown("],
    ),
    xfs(
        "xfs-corruption",
        Meaning::Corruption,
        &["orruption detected"],
    ),
    xfs("xfs-checksum", Meaning::Corruption, &["CRC error detected"]),
    xfs("xfs-internal", Meaning::Corruption, &["Internal error "]),
    xfs(
        "xfs-metadata-io-error",
        Meaning::IoError,
        &["metadata I/O error"],
    ),
    xfs("xfs-log-io-error", Meaning::IoError, &["log I/O error"]),
    storage(
        "xfs-writeback-error",
        Meaning::IoError,
        WRITEBACK_ERRORS,
        &[": writeback error on "],
    )
    .about(Subject::After(&["XFS (", ""])),
    storage(
        "btrfs-readonly",
        Meaning::ReadOnly,
        &["BTRFS info (device "],
        &["forced readonly"],
    )
    .about(Subject::After(&["(device "])),
    storage(
        "btrfs-aborted",
        Meaning::ReadOnly,
        &["BTRFS error (device "],
        &[": Transaction ", "aborted ("],
    )
    .about(Subject::After(&["(device "])),
    storage(
        "btrfs-io-error",
        Meaning::IoError,
        &["BTRFS error (device ", "BTRFS: error (device "],
        &["errno=-5 "],
    )
    .about(Subject::After(&["(device "])),
    storage(
        "btrfs-device-errors",
        Meaning::IoError,
        &["BTRFS error (device "],
        &[": bdev ", " errs: "],
    )
    .about(Subject::After(&["(device "])),
    storage(
        "btrfs-checksum",
        Meaning::Corruption,
        &["BTRFS warning (device "],
        &["csum failed"],
    )
    .about(Subject::After(&["(device "])),
    storage(
        "btrfs-error",
        Meaning::Corruption,
        &[
            "BTRFS critical (device ",
            "BTRFS error (device ",
            "BTRFS: error (device ",
        ],
        &[],
    )
    .about(Subject::After(&["(device "])),
    // Devices.
    storage("block-io-error", Meaning::IoError, BLOCK_ERRORS, &[])
        .about(Subject::After(&["error, dev "])),
    storage(
        "block-failure",
        Meaning::IoError,
        BLOCK_FAILURES,
        &[" error, dev "],
    )
    .about(Subject::After(&["error, dev "])),
    storage(
        "buffer-io-error",
        Meaning::IoError,
        &["Buffer I/O error on dev"],
        &[],
    )
    .about(Subject::After(&["on device ", "on dev "])),
    nvme("nvme-timeout", Meaning::DeviceSlow, &[" timeout, "]),
    nvme(
        "nvme-down",
        Meaning::DeviceSlow,
        &["controller is down; will reset"],
    ),
    nvme(
        "nvme-not-ready",
        Meaning::DeviceLost,
        &["Device not ready; aborting "],
    ),
    nvme(
        "nvme-removed",
        Meaning::DeviceLost,
        &["Removing after probe failure"],
    ),
    nvme(
        "nvme-disabled",
        Meaning::DeviceLost,
        &["Disabling device after reset failure"],
    ),
    storage(
        "scsi-offline",
        Meaning::DeviceLost,
        &["sd "],
        &["rejecting I/O to offline device"],
    )
    .about(Subject::Between("sd ", ": ")),
];

const fn kernel(
    id: &'static str,
    meaning: Meaning,
    starts: &'static [&'static str],
    says: &'static [&'static str],
) -> Pattern {
    Pattern {
        id,
        concern: Concern::Kernel,
        meaning,
        starts,
        says,
        subject: Subject::None,
    }
}

const fn storage(
    id: &'static str,
    meaning: Meaning,
    starts: &'static [&'static str],
    says: &'static [&'static str],
) -> Pattern {
    Pattern {
        concern: Concern::Storage,
        ..kernel(id, meaning, starts, says)
    }
}

const fn ext4(id: &'static str, meaning: Meaning, says: &'static [&'static str]) -> Pattern {
    storage(id, meaning, &["EXT4-fs ("], says).about(Subject::After(&["EXT4-fs ("]))
}

const fn xfs(id: &'static str, meaning: Meaning, says: &'static [&'static str]) -> Pattern {
    storage(id, meaning, &["XFS ("], says).about(Subject::After(&["XFS ("]))
}

const fn nvme(id: &'static str, meaning: Meaning, says: &'static [&'static str]) -> Pattern {
    storage(id, meaning, &["nvme nvme"], says).about(Subject::Between("nvme ", ":"))
}

#[cfg(test)]
mod tests;
