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
    storage(
        "ext4-readonly",
        Meaning::ReadOnly,
        &["EXT4-fs ("],
        &["): Remounting filesystem read-only"],
    )
    .about(Subject::After(&["EXT4-fs ("])),
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
    storage(
        "ext4-io-error",
        Meaning::IoError,
        &["EXT4-fs ("],
        &["I/O error while writing superblock"],
    )
    .about(Subject::After(&["EXT4-fs ("])),
    storage(
        "ext4-data-loss",
        Meaning::IoError,
        &["EXT4-fs ("],
        &["potential data loss"],
    )
    .about(Subject::After(&["EXT4-fs ("])),
    storage(
        "journal-aborted",
        Meaning::ReadOnly,
        &["Aborting journal on device "],
        &[],
    )
    .about(Subject::Between("on device ", "-8.")),
    storage(
        "journal-io-error",
        Meaning::IoError,
        &["JBD2: Detected IO errors while flushing file data on "],
        &[],
    )
    .about(Subject::After(&["data on "])),
    storage(
        "xfs-shutdown",
        Meaning::Shutdown,
        &["XFS ("],
        &["hutting down filesystem"],
    )
    .about(Subject::After(&["XFS ("])),
    storage(
        "xfs-forced-shutdown",
        Meaning::Shutdown,
        &["XFS ("],
        &["xfs_do_force_shutdown("],
    )
    .about(Subject::After(&["XFS ("])),
    storage(
        "xfs-corruption",
        Meaning::Corruption,
        &["XFS ("],
        &["orruption detected"],
    )
    .about(Subject::After(&["XFS ("])),
    storage(
        "xfs-checksum",
        Meaning::Corruption,
        &["XFS ("],
        &["CRC error detected"],
    )
    .about(Subject::After(&["XFS ("])),
    storage(
        "xfs-internal",
        Meaning::Corruption,
        &["XFS ("],
        &["Internal error "],
    )
    .about(Subject::After(&["XFS ("])),
    storage(
        "xfs-metadata-io-error",
        Meaning::IoError,
        &["XFS ("],
        &["metadata I/O error"],
    )
    .about(Subject::After(&["XFS ("])),
    storage(
        "xfs-log-io-error",
        Meaning::IoError,
        &["XFS ("],
        &["log I/O error"],
    )
    .about(Subject::After(&["XFS ("])),
    storage(
        "xfs-writeback-error",
        Meaning::IoError,
        &["XFS ("],
        &["writeback error on"],
    )
    .about(Subject::After(&["XFS ("])),
    storage(
        "btrfs-readonly",
        Meaning::ReadOnly,
        &["BTRFS info (device "],
        &["forced readonly"],
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
    storage(
        "nvme-timeout",
        Meaning::DeviceSlow,
        &["nvme nvme"],
        &[" timeout, "],
    )
    .about(Subject::Between("nvme ", ":")),
    storage(
        "nvme-down",
        Meaning::DeviceSlow,
        &["nvme nvme"],
        &["controller is down; will reset"],
    )
    .about(Subject::Between("nvme ", ":")),
    storage(
        "nvme-not-ready",
        Meaning::DeviceLost,
        &["nvme nvme"],
        &["Device not ready; aborting "],
    )
    .about(Subject::Between("nvme ", ":")),
    storage(
        "nvme-removed",
        Meaning::DeviceLost,
        &["nvme nvme"],
        &["Removing after probe failure"],
    )
    .about(Subject::Between("nvme ", ":")),
    storage(
        "nvme-disabled",
        Meaning::DeviceLost,
        &["nvme nvme"],
        &["Disabling device after reset failure"],
    )
    .about(Subject::Between("nvme ", ":")),
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

#[cfg(test)]
mod tests;
