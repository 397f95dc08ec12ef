//! Our own memory, kept from being paged out: a sick host must not stop us for want of our own code.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use procfs::process::Process;
use rustix::{
    io::Errno,
    mm::{MlockAllFlags, mlockall},
};

/// Address space beyond the present one that must fit in the limit: with `MCL_FUTURE` an allocation that does not fit
/// fails, and a failed allocation ends the process.
const HEADROOM_BYTES: u64 = 32 * 1024 * 1024;

/// Locks what is mapped and what will be, each page when it is first touched. Returns the bytes that were mapped.
///
/// # Errors
/// In a sentence, why nothing was locked.
pub fn lock() -> Result<u64, String> {
    let me = Process::myself().map_err(|e| format!("read /proc/self: {e}"))?;
    let mapped = me
        .stat()
        .map_err(|e| format!("read /proc/self/stat: {e}"))?
        .vsize;
    let status = me
        .status()
        .map_err(|e| format!("read /proc/self/status: {e}"))?;
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).map_err(|e| format!("getrlimit: {e}"))?;
    // CAP_IPC_LOCK is bit 14: with it no limit counts.
    let unlimited = limit == RLIM_INFINITY || status.capeff & (1 << 14) != 0;
    if !unlimited && limit < mapped + HEADROOM_BYTES {
        return Err(format!(
            "LimitMEMLOCK is {limit} bytes, {} are wanted ({mapped} are mapped)",
            mapped + HEADROOM_BYTES
        ));
    }
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE;
    match mlockall(all | MlockAllFlags::ONFAULT) {
        // A kernel before 4.4 does not know of it: then every page at once.
        Err(Errno::INVAL) => mlockall(all),
        result => result,
    }
    .map_err(|e| format!("mlockall: {e}"))?;
    Ok(mapped)
}
