//! The kernel's log, /dev/kmsg: lines of the kernel itself, as they come (Documentation/ABI/testing/dev-kmsg).

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::{
    fs::{Mode, OFlags, SeekFrom, open, seek},
    io::Errno,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
    time::sleep,
};

use super::{
    oom::{OomKill, OomLines},
    trouble::{Trouble, Troubles},
    watched,
};

const PATH: &str = "/dev/kmsg";
/// The kernel hands out whole records only, of at most 8 KiB.
const MAX_RECORD_BYTES: usize = 8 * 1024;
/// Records that are read before other tasks have their turn.
const BATCH: usize = 64;
/// In a storm the log is looked at this often, with at most `BATCH` records a time; what the kernel overwrites meanwhile is lost.
const PAUSE: Duration = Duration::from_millis(2);
const RETRY_AFTER: Duration = Duration::from_mins(1);

/// Sends what the kernel says of OOM kills from now on, until nobody listens.
pub async fn follow(kills: mpsc::Sender<OomKill>, troubles: Troubles) {
    while !kills.is_closed() {
        let log = match open_at_end() {
            Ok(log) => log,
            Err(error) => {
                troubles.set(Trouble::KernelLogUnreadable, format!("{PATH}: {error}; OOM kills are not recognised"));
                sleep(RETRY_AFTER).await;
                continue;
            }
        };
        troubles.clear(Trouble::KernelLogUnreadable);
        let Err(error) = read(&log, &kills).await else { return };
        troubles.set(Trouble::KernelLogUnreadable, format!("{PATH}: {error}; OOM kills are not recognised"));
        sleep(RETRY_AFTER).await;
    }
}

fn open_at_end() -> io::Result<AsyncFd<OwnedFd>> {
    let log = open(PATH, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    seek(&log, SeekFrom::End(0))?;
    watched(log)
}

async fn read(log: &AsyncFd<OwnedFd>, kills: &mpsc::Sender<OomKill>) -> io::Result<()> {
    let mut lines = OomLines::default();
    let mut buffer = vec![0; MAX_RECORD_BYTES];
    loop {
        log.readable().await?.retain_ready();
        for _ in 0..BATCH {
            match log.try_io(Interest::READABLE, |log| Ok(rustix::io::read(log, &mut buffer)?)) {
                Ok(length) => {
                    let kill = kernel_line(&buffer[..length]).and_then(|line| lines.take(line));
                    if let Some(kill) = kill
                        && kills.send(kill).await.is_err()
                    {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // EPIPE: records were overwritten before they were read; the next read goes on with the oldest one.
                Err(error)
                    if matches!(Errno::from_io_error(&error), Some(Errno::PIPE | Errno::INTR | Errno::INVAL)) => {}
                Err(error) => return Err(error),
            }
        }
        sleep(PAUSE).await;
    }
}

/// The text of a record, if the kernel itself wrote it: what user space writes to /dev/kmsg has another facility than 0.
fn kernel_line(record: &[u8]) -> Option<&str> {
    let record = std::str::from_utf8(record).ok()?;
    let (prefix, text) = record.split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    (priority >> 3 == 0).then(|| text.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_lines_count() {
        let kernel = b"6,339,5140900,-;Out of memory: Killed process 7 (x)\n SUBSYSTEM=acpi\n";
        assert_eq!(kernel_line(kernel), Some("Out of memory: Killed process 7 (x)"));
        assert_eq!(kernel_line(b"14,340,5140901,-;Out of memory: Killed process 7 (x)\n"), None, "facility user");
        assert_eq!(kernel_line(b"x,340;y\n"), None);
        assert_eq!(kernel_line(b""), None);
    }
}
