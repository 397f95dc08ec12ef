//! Has the kernel say when tasks begin to wait for memory: a call to look, never an alarm.
//!
//! Only the host's table is armed; the control groups' are root's. A window of two seconds needs no capability, but
//! kernels before 6.5 arm nobody's but root's.

use std::{io, os::fd::OwnedFd};

use rustix::fs::{Mode, OFlags};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
};
use tracing::debug;

use super::{files::Root, memory_tables::totals};

/// The table.
const PATH: &str = "/proc/pressure/memory";
/// Two lines of at most some 75 bytes.
const MAX_BYTES: usize = 256;

/// What a trigger waits for: so many microseconds of stall within two seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// At least one task waited.
    Some,
    /// All that were not idle waited.
    Full,
}

impl Kind {
    /// What the kernel is told. It overwrites the last byte with a NUL: without one of ours that would be a digit.
    fn line(self) -> &'static [u8] {
        match self {
            Self::Some => b"some 150000 2000000\0",
            Self::Full => b"full 100000 2000000\0",
        }
    }
}

/// The triggers of the host's table.
#[derive(Debug)]
pub struct StallTriggers([Trigger; 2]);

/// One of them: a file can hold no more.
#[derive(Debug)]
struct Trigger {
    kind: Kind,
    table: AsyncFd<OwnedFd>,
    /// The stalls in all when it was armed, or spoke last.
    total_us: u64,
}

impl StallTriggers {
    /// Arms them.
    ///
    /// # Errors
    /// When the kernel has no such table, does not let us, or is too old.
    pub fn arm(root: &Root) -> io::Result<Self> {
        Ok(Self([
            Trigger::arm(root, Kind::Some)?,
            Trigger::arm(root, Kind::Full)?,
        ]))
    }

    /// Calls each time that tasks have waited, until nobody listens or the kernel has taken the table away.
    pub async fn follow(self, calls: mpsc::Sender<()>) {
        let Self([mut some, mut full]) = self;
        loop {
            let fired = tokio::select! {
                fired = some.fires() => fired,
                fired = full.fires() => fired,
            };
            if let Err(error) = fired {
                // Polled on, it would be ready for ever.
                debug!(%error, "{PATH} calls no more");
                return;
            }
            if calls.send(()).await.is_err() {
                return;
            }
        }
    }
}

impl Trigger {
    fn arm(root: &Root, kind: Kind) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let table = rustix::fs::open(root.join(PATH), flags, Mode::empty())?;
        let total_us = total_us(&table, kind)?;
        rustix::io::write(&table, kind.line())?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe and asks for what an OwnedFd promises by its type: one file, open while it lives"
        )]
        let table = AsyncFd::with_interest(table, Interest::PRIORITY)?;
        Ok(Self {
            kind,
            table,
            total_us,
        })
    }

    /// Waits until it says that tasks have waited. Where it was armed without a right its first word may be false: then
    /// nothing has come to the total.
    async fn fires(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self
                .table
                .ready(Interest::PRIORITY | Interest::ERROR)
                .await?;
            if ready.ready().is_error() {
                return Err(io::ErrorKind::NotConnected.into());
            }
            ready.clear_ready();
            let total_us = total_us(self.table.get_ref(), self.kind)?;
            if std::mem::replace(&mut self.total_us, total_us) < total_us {
                return Ok(());
            }
        }
    }
}

fn total_us(table: &OwnedFd, kind: Kind) -> io::Result<u64> {
    let mut buffer = [0; MAX_BYTES];
    let length = rustix::io::pread(table, &mut buffer, 0)?;
    let total = totals(&buffer[..length]).and_then(|(some, full)| match kind {
        Kind::Some => Some(some),
        Kind::Full => full,
    });
    total.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn the_kernel_is_told_a_text_with_its_end() {
        for kind in [Kind::Some, Kind::Full] {
            let line = kind.line();
            assert_eq!(
                line.iter().position(|byte| *byte == 0),
                Some(line.len() - 1)
            );
            let text = str::from_utf8(&line[..line.len() - 1]).unwrap();
            let words: Vec<&str> = text.split(' ').collect();
            let stall: u64 = words[1].parse().unwrap();
            // Two seconds and multiples of it are what the kernel allows to everybody.
            assert_eq!(words[2], "2000000");
            assert!(stall < 2_000_000, "{text}");
        }
    }

    /// This kernel's own, if it lets us.
    #[tokio::test]
    async fn the_kernel_arms_them_and_a_calm_host_calls_nobody_falsely() {
        let root = Root::default();
        let Ok(triggers) = StallTriggers::arm(&root) else {
            return;
        };
        let before = triggers.0.each_ref().map(|t| t.total_us);
        let (calls, mut called) = mpsc::channel(1);
        let follow = tokio::spawn(triggers.follow(calls));
        if let Ok(call) = timeout(Duration::from_millis(300), called.recv()).await {
            assert_eq!(call, Some(()));
            let after = StallTriggers::arm(&root).unwrap();
            let after = after.0.each_ref().map(|t| t.total_us);
            assert_ne!(after, before, "something has waited");
        }
        drop(called);
        follow.abort();
    }

    #[tokio::test]
    async fn without_a_table_there_is_nothing_to_arm() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        StallTriggers::arm(&root).unwrap_err();
        root.create_dir_all("/proc/pressure").unwrap();
        // As with psi=0: there, and nothing in it.
        root.write_atomically(PATH, b"").unwrap();
        StallTriggers::arm(&root).unwrap_err();
    }
}
