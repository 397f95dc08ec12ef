//! The only module that reads clocks.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use super::watched;
use crate::condition::Uptime;

/// Time since boot, suspended time included. No clock step changes it.
pub fn uptime() -> Uptime {
    Uptime::ZERO + Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// A time of `CLOCK_MONOTONIC`, as systemd has it, which stands still while the host is suspended. The clock of the kernel's log is about
/// the same, but drifts from it by seconds in months.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Monotonic(Duration);

impl Monotonic {
    pub const fn from_micros(micros: u64) -> Self {
        Self(Duration::from_micros(micros))
    }

    /// As dmesg shows it.
    pub const fn as_secs(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// By the clock that goes on: exact if the host was not suspended since, and otherwise later by the time of the suspend.
    pub fn uptime(self) -> Uptime {
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        uptime() - now.saturating_sub(self.0)
    }
}

/// The next multiple of `every`, in whole seconds. What is periodic is due together then, because to wake up costs more than most of
/// what is done.
pub fn next_multiple(now: Uptime, every: Duration) -> Uptime {
    let secs = every.as_secs().max(1);
    Uptime::from_secs(((now - Uptime::ZERO).as_secs() / secs + 1) * secs)
}

/// A timer of the kernel's. Those of tokio wake the agent up to three times for one moment, and stand still while the host is suspended.
#[derive(Debug)]
pub struct Timer(io::Result<AsyncFd<OwnedFd>>);

impl Timer {
    /// A timer for a loop that waits again and again.
    pub fn new() -> Self {
        let created = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        Self(created.map_err(io::Error::from).and_then(watched))
    }

    /// Returns then, or as soon as possible if that is over.
    pub async fn at(&self, at: Uptime) {
        // Such as when the agent may open no more files.
        if self.expires(at).await.is_err() {
            sleep(at - uptime()).await;
        }
    }

    async fn expires(&self, at: Uptime) -> io::Result<()> {
        let timer = self.0.as_ref().map_err(io::Error::kind)?;
        // Zero would stop it.
        let since_boot = (at - Uptime::ZERO).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(since_boot).map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once)?;
        loop {
            timer.readable().await?.clear_ready();
            match rustix::io::read(timer, &mut [0_u8; 8]) {
                // It had expired for an earlier time that nobody waited for any more.
                Err(Errno::AGAIN) => {}
                read => return Ok(read.map(drop)?),
            }
        }
    }
}

/// The time of day by this host's clock, which may be wrong.
pub fn wall() -> Timestamp {
    Timestamp::now()
}

/// A time of day by the API server's clock, as in the metadata of objects. It is a type of its own because the host's clock may be wrong:
/// without [`ServerTime::timestamp`], no time is compared with one by the other clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerTime(Timestamp);

impl ServerTime {
    /// A time that an object contains, or that the API server judges by its own clock.
    pub const fn of(time: Timestamp) -> Self {
        Self(time)
    }

    /// The same for an object, for a text, or for a comparison with the host's clock.
    pub const fn timestamp(self) -> Timestamp {
        self.0
    }

    pub fn duration_since(self, earlier: Self) -> SignedDuration {
        self.0.duration_since(earlier.0)
    }
}

/// The API server's clock: its time at a time since boot, which no clock step changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerClock {
    pub time: ServerTime,
    pub uptime: Uptime,
}

impl ServerClock {
    pub fn at(self, uptime: Uptime) -> ServerTime {
        self.time.0.checked_add(uptime - self.uptime).map_or(self.time, ServerTime)
    }
}

/// The present moment by all clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub uptime: Uptime,
    /// By the host's clock.
    pub wall: Timestamp,
    /// By the API server's clock; by the host's while the other is not known.
    pub server: ServerTime,
}

impl Now {
    /// Reads the clocks; `server` is the API server's.
    pub fn read(server: Option<ServerClock>) -> Self {
        let (uptime, wall) = (uptime(), wall());
        Self { uptime, wall, server: server.map_or(ServerTime(wall), |clock| clock.at(uptime)) }
    }

    /// When the host's clock showed this. A time before the boot, also one from before the clock was set forward, is that of the boot; one
    /// in the future is now.
    pub fn since_boot(self, wall: Timestamp) -> Uptime {
        self.uptime - Duration::try_from(self.wall.duration_since(wall)).unwrap_or_default()
    }

    /// The same for the API server's clock.
    pub fn since_boot_by_server(self, time: ServerTime) -> Uptime {
        Self { wall: self.server.0, ..self }.since_boot(time.0)
    }

    /// What the host's clock would have shown then.
    pub fn wall_at(self, at: Uptime) -> Timestamp {
        self.wall.checked_sub(self.uptime - at).unwrap_or(self.wall)
    }

    /// What the API server's clock would have shown then.
    pub fn server_at(self, at: Uptime) -> ServerTime {
        self.server.0.checked_sub(self.uptime - at).map_or(self.server, ServerTime)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    impl Now {
        /// A moment at which both clocks show the same.
        pub const fn of(uptime: Uptime, wall: Timestamp) -> Self {
            Self { uptime, wall, server: ServerTime(wall) }
        }
    }

    #[test]
    fn the_next_multiple_is_never_now() {
        let at = |millis| Uptime::ZERO + Duration::from_millis(millis);
        let next = |millis| next_multiple(at(millis), Duration::from_secs(2));
        assert_eq!([0, 1999, 2000, 2001].map(next), [2, 2, 4, 4].map(Uptime::from_secs));
    }

    #[tokio::test]
    async fn a_timer_waits_for_the_last_time_that_it_was_given() {
        let (timer, began) = (Timer::new(), uptime());
        let after = |millis| began + Duration::from_millis(millis);
        timer.at(Uptime::ZERO).await;
        timeout(Duration::ZERO, timer.at(uptime() + Duration::from_millis(1))).await.ok();
        // It expires while nobody waits.
        sleep(Duration::from_millis(5)).await;
        timer.at(after(30)).await;
        assert!(uptime() >= after(30));
    }

    #[test]
    fn a_time_by_one_clock_is_one_by_another() {
        let time = |secs| Timestamp::from_second(secs).unwrap();
        let now = Now { uptime: Uptime::from_secs(10), wall: time(110), server: ServerTime(time(210)) };
        assert_eq!([104, 99, 199].map(|secs| now.since_boot(time(secs))), [4, 0, 10].map(Uptime::from_secs));
        assert_eq!(now.since_boot_by_server(ServerTime(time(204))), Uptime::from_secs(4));
        assert_eq!(now.wall_at(Uptime::from_secs(4)), time(104));
        assert_eq!(now.server_at(Uptime::from_secs(4)), ServerTime(time(204)));
    }

    #[test]
    fn a_time_of_the_clock_that_stands_still_during_a_suspend_is_so_long_ago() {
        let monotonic = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
        let (at, now) = (Monotonic(monotonic).uptime(), uptime());
        assert!(at <= now && now < at + Duration::from_secs(9), "{at:?} {now:?}");
    }
}
