//! The only reader of any clock: everything else takes a [`Now`].
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door that the ban on reading clocks points to"
)]

mod coarse;

use std::{io, os::fd::OwnedFd, time::Duration};

use jiff::{SignedDuration, Timestamp};
use nix::time::{ClockId, clock_gettime};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::{Interest, unix::AsyncFd};

pub use self::coarse::CoarseTimer;

/// 2200-01-01.
const NEVER_SECS: i64 = 7_258_118_400;

/// One moment, read once an event, handed to every pure function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Time since boot, suspended time included (`CLOCK_BOOTTIME`): what every duration is measured with, because
    /// it survives a restart of the agent and does not jump when the wall clock is set.
    pub uptime: Duration,
    /// Wall clock: for what people on this machine read. What is published has the cluster's time
    /// ([`crate::cluster::time::ClusterTime::of`]).
    pub wall: Timestamp,
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock;

impl Clock {
    /// Reads both clocks.
    pub fn now(self) -> Now {
        let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME)
            .map(Duration::from)
            .expect("CLOCK_BOOTTIME is there since Linux 2.6.39");
        Now {
            uptime,
            wall: Timestamp::now(),
        }
    }
}

/// The one timer of a loop, on the same clock as [`Now::uptime`].
///
/// A timerfd and not tokio's wheel: that wakes the process twice for every wait beyond 64 ms and once more when the wait
/// is set, and each wake-up of an idle process costs some 90 µs of CPU.
#[derive(Debug)]
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
    set_to: Option<Duration>,
    coarse: CoarseTimer,
}

impl Alarm {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe and asks for what an OwnedFd promises by its type: one file, open while it lives"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self {
            timer,
            set_to: None,
            coarse: CoarseTimer::default(),
        })
    }

    /// A timer for others that goes by when this one rings.
    pub fn coarse(&self) -> CoarseTimer {
        self.coarse.clone()
    }

    /// Has it ring at that uptime, or at once if that has passed.
    ///
    /// # Errors
    /// When the kernel refuses the time.
    pub fn set(&mut self, at: Duration) -> io::Result<()> {
        if self.set_to == Some(at) {
            return Ok(());
        }
        // Zero would switch it off.
        let at_least = at.max(Duration::from_nanos(1));
        let value = Timespec::try_from(at_least).map_err(io::Error::other)?;
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        self.set_to = Some(at);
        Ok(())
    }

    /// Waits until it rings. That it rang is not read off the timer: to set it anew takes that back, too.
    pub async fn rings(&mut self) {
        loop {
            let Ok(mut ready) = self.timer.readable().await else {
                // The runtime is going down: nobody waits any more.
                return std::future::pending().await;
            };
            ready.clear_ready();
            // Else it rang for the time that it was set to before. (Two ways to read one clock may differ by their last digit.)
            let soon = Clock.now().uptime + Duration::from_millis(1);
            if self.set_to.is_none_or(|at| soon >= at) {
                self.set_to = None;
                self.coarse.ring(soon);
                return;
            }
        }
    }
}

/// Says when the wall clock is set, in the moment when it is: the kernel cancels a timer on it then.
#[derive(Debug)]
pub struct Steps {
    timer: AsyncFd<OwnedFd>,
    /// How far the wall clock was ahead of [`Now::uptime`] when it was set last; to slew it changes both alike.
    ahead: SignedDuration,
}

impl Steps {
    /// From now on.
    ///
    /// # Errors
    /// When the kernel gives no such timer.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe and asks for what an OwnedFd promises by its type: one file, open while it lives"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        let steps = Self {
            timer,
            ahead: ahead(),
        };
        steps.arm()?;
        Ok(steps)
    }

    /// For a time that never comes.
    fn arm(&self) -> io::Result<()> {
        let never = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: NEVER_SECS,
                tv_nsec: 0,
            },
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(self.timer.get_ref(), flags, &never)?;
        Ok(())
    }

    /// Waits until it is set; by how much. (Nothing, after a suspend.)
    pub async fn next(&mut self) -> SignedDuration {
        loop {
            let Ok(mut ready) = self.timer.readable().await else {
                return std::future::pending().await;
            };
            let read = ready.try_io(|timer| {
                rustix::io::read(timer.get_ref(), &mut [0_u8; 8]).map_err(io::Error::from)
            });
            if read.is_err() {
                continue;
            }
            ready.clear_ready();
            let before = std::mem::replace(&mut self.ahead, ahead());
            // A timer that was cancelled stays so until it is set anew; without one nothing more is heard.
            if self.arm().is_err() {
                return std::future::pending().await;
            }
            return self.ahead.saturating_sub(before);
        }
    }
}

fn ahead() -> SignedDuration {
    let now = Clock.now();
    let uptime = SignedDuration::try_from(now.uptime).unwrap_or(SignedDuration::MAX);
    now.wall
        .duration_since(Timestamp::UNIX_EPOCH)
        .saturating_sub(uptime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_at_its_time_and_can_be_set_anew() {
        let mut alarm = Alarm::new().unwrap();
        let start = Clock.now().uptime;
        alarm.set(start + Duration::from_hours(1)).unwrap();
        alarm.set(start + Duration::from_millis(20)).unwrap();
        alarm.rings().await;
        assert!(Clock.now().uptime >= start + Duration::from_millis(20));
        alarm.set(Duration::ZERO).unwrap();
        alarm.rings().await;
    }

    /// It rings while nobody waits for it, and is set to another time before anybody does.
    #[tokio::test]
    async fn an_alarm_that_rang_for_a_time_that_is_no_more_is_not_heard() {
        let mut alarm = Alarm::new().unwrap();
        for _ in 0..10 {
            let start = Clock.now().uptime;
            alarm.set(start + Duration::from_millis(5)).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            let later = start + Duration::from_millis(60);
            alarm.set(later).unwrap();
            alarm.rings().await;
            assert!(Clock.now().uptime + Duration::from_millis(1) >= later);
        }
    }
}
