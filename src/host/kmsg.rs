//! The kernel's log, /dev/kmsg: lines of the kernel itself (Documentation/ABI/testing/dev-kmsg).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::Errno;
use tokio::sync::{broadcast, watch};
use tokio::time::sleep;

use super::clock::Monotonic;
use super::oom::{OomKill, OomLines};
use super::watched;
use crate::condition::Uptime;
use crate::trouble::{Trouble, Troubles};

const PATH: &str = "/dev/kmsg";
/// The kernel hands out whole records only, of at most 8 KiB.
const MAX_RECORD_BYTES: usize = 8 * 1024;
/// As many as a log of 16 MiB may have, so that a storm does not keep the reading of a whole log from ending.
const MAX_RECORDS: usize = 100_000;
/// Records that are read before other tasks run.
const BATCH: usize = 64;
/// In a storm the log is read this often, with at most `BATCH` records a time; what the kernel overwrites meanwhile is lost.
const PAUSE: Duration = Duration::from_millis(2);
const RETRY_AFTER: Duration = Duration::from_mins(1);
/// Lines that wait for a monitor: some batches, which it works through before the next one is read.
const WAITING_LINES: usize = 4 * BATCH;
const WAITING_KILLS: usize = 16;

/// A line of the kernel's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The level, 0 (emergency) to 7 (debug).
    pub level: u8,
    pub text: String,
    /// When the kernel logged it.
    pub at: Uptime,
    /// Whether it was logged before the agent started.
    pub is_old: bool,
}

/// Whether the log can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogState {
    #[default]
    Opening,
    Readable,
    Unreadable(String),
}

/// The kernel's log, for every monitor that follows it.
#[derive(Debug, Clone)]
pub struct KernelLog {
    lines: broadcast::Sender<Line>,
    kills: broadcast::Sender<OomKill>,
    state: watch::Sender<LogState>,
}

impl Default for KernelLog {
    fn default() -> Self {
        let (lines, kills) = (broadcast::Sender::new(WAITING_LINES), broadcast::Sender::new(WAITING_KILLS));
        Self { lines, kills, state: watch::Sender::default() }
    }
}

impl KernelLog {
    /// All lines. A receiver that subscribes before [`Self::follow`] runs also gets the lines from before the agent's start.
    pub fn lines(&self) -> broadcast::Receiver<Line> {
        self.lines.subscribe()
    }

    /// The OOM kills from now on.
    pub fn kills(&self) -> broadcast::Receiver<OomKill> {
        self.kills.subscribe()
    }

    /// Whether the log can be read. The present state counts as a change.
    pub fn state(&self) -> watch::Receiver<LogState> {
        let mut state = self.state.subscribe();
        state.mark_changed();
        state
    }

    /// Reads the log for ever.
    pub async fn follow(self, troubles: Troubles) {
        let mut is_first = true;
        loop {
            let Err(error) = self.read_from_end(is_first, &troubles).await;
            is_first = false;
            let error = format!("{PATH}: {error}");
            self.state.send_replace(LogState::Unreadable(error.clone()));
            troubles.set(Trouble::KernelLogUnreadable, format!("{error}; OOM kills are not detected"));
            sleep(RETRY_AFTER).await;
        }
    }

    async fn read_from_end(&self, is_first: bool, troubles: &Troubles) -> io::Result<std::convert::Infallible> {
        // Opened first, so that nothing is lost in between. A line that comes meanwhile counts as old and as new.
        let log = watched(open_at(SeekFrom::End(0))?)?;
        if is_first {
            self.read_old(&open_at(SeekFrom::Start(0))?).await?;
        }
        troubles.clear(Trouble::KernelLogUnreadable);
        self.state.send_replace(LogState::Readable);
        let mut oom = OomLines::default();
        loop {
            let mut readable = log.readable().await?;
            if self.read_batch(log.get_ref(), &mut oom, false)? < BATCH {
                readable.clear_ready();
            }
            sleep(PAUSE).await;
        }
    }

    /// Reads the records from before the start. Their descriptor is not waited for: an empty log never becomes readable.
    async fn read_old(&self, log: &OwnedFd) -> io::Result<()> {
        for _ in 0..MAX_RECORDS / BATCH {
            if self.read_batch(log, &mut OomLines::default(), true)? < BATCH {
                break;
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Reads the records that are there, at most `BATCH`; returns how many.
    fn read_batch(&self, log: &OwnedFd, oom: &mut OomLines, is_old: bool) -> io::Result<usize> {
        let mut buffer = vec![0; MAX_RECORD_BYTES];
        for count in 0..BATCH {
            match read(log, &mut buffer) {
                Ok(record) => self.pass_on(record, oom, is_old),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(error),
            }
        }
        Ok(BATCH)
    }

    fn pass_on(&self, record: &[u8], oom: &mut OomLines, is_old: bool) {
        let Some((level, at, text)) = kernel_line(record) else { return };
        let line = Line { level, text: text.to_owned(), at: at.uptime(), is_old };
        // It fails if there is no receiver.
        if let Some(kill) = oom.take(&line.text).filter(|_| !is_old) {
            self.kills.send(kill).ok();
        }
        self.lines.send(line).ok();
    }
}

/// The kernel's last lines, each with its time since boot in seconds.
///
/// # Errors
/// When the log cannot be opened.
pub fn last(count: usize) -> io::Result<Vec<String>> {
    let log = open(PATH, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let (mut lines, mut buffer) = (VecDeque::new(), vec![0; MAX_RECORD_BYTES]);
    for _ in 0..MAX_RECORDS {
        let Ok(record) = read(&log, &mut buffer) else { break };
        let line = kernel_line(record);
        lines.extend(line.map(|(_, at, text)| format!("[{:.6}] {text}", at.as_secs())));
        if lines.len() > count {
            lines.pop_front();
        }
    }
    Ok(lines.into())
}

/// The next record. It is empty if the kernel has overwritten records before they were read (EPIPE): the next read goes on with the oldest.
fn read<'b>(log: &OwnedFd, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    match rustix::io::read(log, &mut *buffer) {
        Ok(length) => Ok(&buffer[..length]),
        Err(Errno::PIPE | Errno::INTR | Errno::INVAL) => Ok(&[]),
        Err(error) => Err(error.into()),
    }
}

fn open_at(position: SeekFrom) -> io::Result<OwnedFd> {
    let log = open(PATH, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    seek(&log, position)?;
    Ok(log)
}

/// The level, the time and the text of a record `level,sequence,microseconds,…;text`, if the kernel itself wrote it: what user space writes
/// to /dev/kmsg has another facility than 0.
fn kernel_line(record: &[u8]) -> Option<(u8, Monotonic, &str)> {
    let record = std::str::from_utf8(record).ok()?;
    let (prefix, text) = record.split_once(';')?;
    let mut fields = prefix.split(',');
    let level = fields.next()?.parse().ok().filter(|priority| *priority < 8)?;
    let at = Monotonic::from_micros(fields.nth(1)?.parse().ok()?);
    Some((level, at, text.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[tokio::test]
    async fn what_was_logged_before_the_start_is_read_although_nobody_has_waited_for_it() {
        let (kernel, ours) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        for record in [&b"6,1,1,-;first\n"[..], b"12,2,2,-;of a program\n", b"6,3,3,-;second\n"] {
            kernel.send(record).unwrap();
        }
        let log = KernelLog::default();
        let mut lines = log.lines();
        log.read_old(&OwnedFd::from(ours)).await.unwrap();
        let read: Vec<_> = std::iter::from_fn(|| lines.try_recv().ok()).map(|line| (line.text, line.is_old)).collect();
        assert_eq!(read, [("first".to_owned(), true), ("second".to_owned(), true)]);
    }

    #[test]
    fn only_the_kernels_own_lines_count() {
        let kernel = b"6,339,5140900,-;Out of memory: Killed process 7 (x)\n SUBSYSTEM=acpi\n";
        let wanted = (6, Monotonic::from_micros(5_140_900), "Out of memory: Killed process 7 (x)");
        assert_eq!(kernel_line(kernel), Some(wanted));
        let of_a_user = b"14,340,5140901,-;Out of memory: Killed process 7 (x)\n";
        // kubernetes/node-problem-detector#1071: `echo … >/dev/kmsg`, to test an alert.
        let of_a_test = b"12,5003,1000003600,-;INFO: task kubelet:7 blocked for more than 300 seconds.\n";
        for none in [&of_a_user[..], of_a_test, b"x,340,1;y\n", b"6,340;y\n", b""] {
            assert_eq!(kernel_line(none), None, "{}", none.escape_ascii());
        }
    }
}
