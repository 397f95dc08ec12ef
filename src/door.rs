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

use crate::host::files::Root;

/// What is read of `/proc/self/maps`: a line for each mapping, of which a static program has some dozens.
const MAX_MAPS_BYTES: usize = 1024 * 1024;

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
    let own = Root::default();
    let program = own.read_link("/proc/self/exe").map_err(io::Error::other)?;
    let maps = (own.read_text("/proc/self/maps", MAX_MAPS_BYTES)).map_err(io::Error::other)?;
    (maps.lines())
        .filter(|line| program.to_str().is_some_and(|path| line.ends_with(path)))
        .filter_map(code)
        .try_for_each(|(start, bytes)| forget(start, bytes))
}

/// Where a line of `/proc/self/maps` has code that nobody may write to, and how much: `55d0-55e0 r-xp …`.
fn code(line: &str) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16));
    let (start, end) = (start.ok()?, end.ok()?);
    rest.starts_with("r-xp ")
        .then(|| Some((start, end.checked_sub(start)?)))?
}

/// Only for [`give_back_code`], which has checked what the SAFETY comment claims.
#[expect(
    unsafe_code,
    reason = "madvise can take away what somebody has written"
)]
fn forget(start: usize, bytes: usize) -> io::Result<()> {
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

    /// `RssFile` of this process.
    fn resident_file_kib() -> u64 {
        let status = Root::default().read_text("/proc/self/status", 1 << 16);
        let status = status.unwrap();
        let words = status.split_once("RssFile:").unwrap().1;
        words.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn code_is_given_back_and_runs_on() {
        let before = resident_file_kib();
        give_back_code().unwrap();
        let after = resident_file_kib();
        assert!(after < before, "{before} KiB, then {after}");
    }

    #[test]
    fn only_code_is_taken_for_code() {
        let tail = "00001000 fe:00 42 /usr/bin/nodevigil";
        assert_eq!(
            code(&format!("1000-3000 r-xp {tail}")),
            Some((0x1000, 0x2000))
        );
        for other in ["r--p", "rw-p", "rwxp", "r-xs"] {
            assert_eq!(code(&format!("1000-3000 {other} {tail}")), None, "{other}");
        }
        assert_eq!(code("3000-1000 r-xp 0"), None);
        assert_eq!(code("no map"), None);
    }
}
