//! The kernel's log, which all nodes of a machine share: writes into it as any root process may, and keeps apart the tests
//! that fill it and those that look for a line in it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
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

/// Listens to the log: each record with the moment when it was there.
pub(crate) struct Listener {
    records: Arc<Mutex<Vec<(Instant, String)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How often the log is asked. Asked, and not waited for: how long the kernel takes to wake its readers is part of what is
/// measured.
const LISTEN_EVERY: Duration = Duration::from_millis(1);

impl Listener {
    /// From now on.
    pub(crate) fn start() -> Result<Self> {
        let mut log = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(PATH)
            .context("opening /dev/kmsg")?;
        log.seek(SeekFrom::End(0)).context("its end")?;
        let (records, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (into, until) = (Arc::clone(&records), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("kmsg".to_owned())
            .spawn(move || listen(&mut log, &into, &until))?;
        Ok(Self {
            records,
            stop,
            thread: Some(thread),
        })
    }

    /// The records after `from` so far.
    pub(crate) fn since(&self, from: Instant) -> Vec<(Instant, String)> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let since = records.iter().filter(|(at, _)| *at > from);
        since.cloned().collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(log: &mut File, into: &Mutex<Vec<(Instant, String)>>, until: &AtomicBool) {
    let mut record = [0; 8192];
    while !until.load(Ordering::Relaxed) {
        // One read is one record; an error is that there is none, or that one was overwritten.
        if let Ok(length) = log.read(&mut record) {
            let text = String::from_utf8_lossy(&record[..length]).into_owned();
            let mut records = into.lock().unwrap_or_else(PoisonError::into_inner);
            records.push((Instant::now(), text));
        } else {
            std::thread::sleep(LISTEN_EVERY);
        }
    }
}
