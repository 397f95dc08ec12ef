//! The verb `clock`: whether the kernel takes its clock for synchronised. The agent cannot ask by itself: its sandbox has
//! `ProtectClock=`, which forbids the one system call that also sets the clock.

use std::{io, mem, time::Duration};

use nix::libc;

use super::protocol::{ClockState, Code, Refusal, Verb};

/// The verb.
pub const VERB: Verb = Verb {
    name: "clock",
    sentence: "Tells whether the kernel's clock is synchronised.",
    deadline: Duration::from_secs(1),
};

/// What the kernel says.
pub fn answer() -> Result<ClockState, Refusal> {
    let timex = read()
        .map_err(|error| Refusal::new(Code::Unreadable, format!("the kernel's clock: {error}")))?;
    Ok(ClockState {
        synchronised: timex.status & libc::STA_UNSYNC == 0,
    })
}

/// `adjtimex(2)` that changes nothing.
#[expect(
    unsafe_code,
    reason = "neither std nor nix nor rustix has this system call"
)]
fn read() -> io::Result<libc::timex> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says() {
        let timex = read().unwrap();
        // A tick is ten milliseconds, give or take a tenth: the kernel has really written.
        assert!((9000..=11_000).contains(&timex.tick), "{}", timex.tick);
        assert_eq!(
            answer().unwrap().synchronised,
            timex.status & libc::STA_UNSYNC == 0
        );
    }
}
