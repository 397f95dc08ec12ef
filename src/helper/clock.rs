//! The verb `clock`: whether the kernel takes its clock for synchronised. The agent cannot ask by itself: its sandbox has
//! `ProtectClock=`, which forbids the one system call that also sets the clock.

use std::time::Duration;

use nix::libc;

use super::protocol::{ClockState, Code, Refusal, Verb};
use crate::door;

/// The verb.
pub const VERB: Verb = Verb {
    name: "clock",
    sentence: "Tells whether the kernel's clock is synchronised.",
    deadline: Duration::from_secs(1),
};

/// What the kernel says.
pub fn answer() -> Result<ClockState, Refusal> {
    let timex = door::adjtimex()
        .map_err(|error| Refusal::new(Code::Unreadable, format!("the kernel's clock: {error}")))?;
    Ok(ClockState {
        synchronised: timex.status & libc::STA_UNSYNC == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says() {
        let timex = door::adjtimex().unwrap();
        // A tick is ten milliseconds, give or take a tenth: the kernel has really written.
        assert!((9000..=11_000).contains(&timex.tick), "{}", timex.tick);
        assert_eq!(
            answer().unwrap().synchronised,
            timex.status & libc::STA_UNSYNC == 0
        );
    }
}
