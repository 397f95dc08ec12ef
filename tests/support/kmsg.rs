//! The kernel's log, which all nodes of a machine share: writes into it as any root process may, and keeps apart the tests
//! that fill it and those that look for a line in it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

const PATH: &str = "/dev/kmsg";
/// The kernel takes ten lines of one who has it open, and then, for five seconds, none (`printk_devkmsg=ratelimit`).
const LINES_PER_OPEN: usize = 10;

static LOG: RwLock<()> = RwLock::new(());

/// For a test that fills the log: nobody looks for a line meanwhile.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    LOG.write().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that has the kernel say something: nobody fills the log meanwhile.
pub(crate) fn beside() -> RwLockReadGuard<'static, ()> {
    LOG.read().unwrap_or_else(PoisonError::into_inner)
}

/// Writes lines, so many a second; returns how long it took.
pub(crate) fn flood(lines: &[String], per_second: u32) -> Result<Duration> {
    let began = Instant::now();
    let pause = Duration::from_secs(1) / per_second;
    for (some, number) in lines.chunks(LINES_PER_OPEN).zip(0_u32..) {
        let due = began + pause * number * u32::try_from(LINES_PER_OPEN)?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut log = OpenOptions::new()
            .write(true)
            .open(PATH)
            .context("opening /dev/kmsg")?;
        for line in some {
            log.write_all(line.as_bytes())
                .context("writing to /dev/kmsg")?; // one write, one record
        }
    }
    Ok(began.elapsed())
}
