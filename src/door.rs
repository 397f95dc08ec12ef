//! The one door to unsafe code: what neither std nor nix nor rustix has a safe way for. One function a thing, each with its
//! proof beside it; the program's heap is [`heap`].

pub mod heap;

use std::{
    io, mem,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use nix::libc;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

/// The first descriptor that systemd hands over.
const FIRST_FD: RawFd = 3;

/// Owns descriptor 3, once; `None` after that. Only [`crate::helper::activation::Activation::take`] may call this: it has checked what
/// the SAFETY comment claims.
#[expect(
    unsafe_code,
    reason = "std has no safe way to own a descriptor that the parent process passed by number"
)]
pub(crate) fn take_first_fd() -> Option<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return None;
    }
    // SAFETY: $LISTEN_PID names this very process and $LISTEN_FDS is 1, so descriptor 3 was open when the program
    // began. Hence no descriptor opened since has that number, and nobody owns it: the standard library owns 0 to 2
    // alone, and the flag lets us come here once.
    Some(unsafe { OwnedFd::from_raw_fd(FIRST_FD) })
}

/// `adjtimex(2)` that changes nothing: what the kernel says of its clock.
#[expect(unsafe_code, reason = "nobody has this system call")]
pub(crate) fn adjtimex() -> io::Result<libc::timex> {
    // SAFETY: timex is numbers only, for each of which zero is a value; with modes = 0 the kernel only writes to it, and
    // the reference lives as long as the call.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = mem::zeroed();
        (libc::adjtimex(&raw mut timex), timex)
    };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(timex)
}

/// Gives back the pages of the program's own code that are mapped into this process: what it runs next is mapped again from
/// the page cache, and what it does not run is no longer counted as its own.
///
/// # Errors
/// Of reading `/proc/self/maps`, and of `madvise(2)`: EINVAL where the pages are locked.
pub(crate) fn give_back_code() -> io::Result<()> {
    // Whichever host is looked at: what is forgotten must be this very process's.
    let own = Process::myself().map_err(io::Error::other)?;
    let program = own.exe().map_err(io::Error::other)?;
    let maps = own.maps().map_err(io::Error::other)?;
    let is_code = |map: &&MemoryMap| {
        matches!(&map.pathname, MMapPath::Path(path) if *path == program)
            && map.perms == MMPermissions::READ | MMPermissions::EXECUTE | MMPermissions::PRIVATE
    };
    (maps.iter().filter(is_code)).try_for_each(|map| forget(map.address))
}

/// Only for [`give_back_code`], which has checked what the SAFETY comment claims.
#[expect(
    unsafe_code,
    reason = "madvise can take away what somebody has written"
)]
fn forget((start, end): (u64, u64)) -> io::Result<()> {
    let [start, end] = [start, end].map(usize::try_from);
    let (start, end) = start
        .and_then(|start| Ok((start, end?)))
        .map_err(io::Error::other)?;
    let bytes = end.saturating_sub(start);
    let start = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the pages are a private mapping of the program's file that may be read and run. Nothing has ever written to
    // them, for the linker makes no relocations in code, so each comes back from the file as it was; and the code of a
    // program stays where it is as long as the process lives.
    match unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_file_kib() -> u64 {
        let status = Process::myself().and_then(|own| own.status());
        status.unwrap().rssfile.unwrap()
    }

    #[test]
    fn code_is_given_back_and_runs_on() {
        let before = resident_file_kib();
        give_back_code().unwrap();
        let after = resident_file_kib();
        assert!(after < before, "{before} KiB, then {after}");
    }
}
