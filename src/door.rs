//! The one door to unsafe code: what neither std nor nix nor rustix has a safe way for. One function a thing, each with its
//! proof beside it; the program's heap is [`heap`].

pub mod heap;

use std::{
    io, mem,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicBool, Ordering},
};

use nix::libc;

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
