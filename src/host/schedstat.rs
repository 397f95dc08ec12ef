//! How long a process's threads ran, and how long they waited for a processor though they could have run.
//!
//! The row of a process speaks of its first thread alone, which in a Go program mostly sleeps: so the rows of its threads
//! are kept open, as many as there are when it is opened, up to a bound. A read allocates nothing.

use std::{fmt, io, os::fd::OwnedFd};

use super::files::Root;

/// Threads that are looked at; a kubelet has 15 to 60.
const MAX_THREADS: usize = 64;

/// Three numbers.
const MAX_BYTES: usize = 80;

/// Time since each thread began, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// On a processor, in nanoseconds.
    pub run_ns: u64,
    /// Runnable and waiting for one, in nanoseconds.
    pub delay_ns: u64,
}

/// The rows of a process, kept open.
pub struct Schedstat {
    threads: Vec<Thread>,
}

struct Thread {
    row: OwnedFd,
    /// What it said last: that stays when the thread ends.
    last: Times,
}

impl fmt::Debug for Schedstat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedstat")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl Schedstat {
    /// Opens the rows of the threads that the process has now.
    ///
    /// # Errors
    /// When it has ended, or the kernel keeps no such account.
    pub fn open(root: &Root, pid: i32) -> io::Result<Self> {
        let folder = format!("/proc/{pid}/task");
        let ids = root.list(&folder).map_err(|error| error.source)?;
        let rows = ids.iter().take(MAX_THREADS).filter_map(|id| {
            let row = root.open(format!("{folder}/{id}/schedstat")).ok()?.into();
            Some(Thread {
                row,
                last: Times::default(),
            })
        });
        let mut opened = Self {
            threads: rows.collect(),
        };
        let times = opened.read()?;
        if times == Times::default() {
            // Booted with schedstats off, and so no witness.
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(opened)
    }

    /// Reads all rows.
    ///
    /// # Errors
    /// When none can be read: the process has ended.
    pub fn read(&mut self) -> io::Result<Times> {
        let mut alive = false;
        let mut sum = Times::default();
        for thread in &mut self.threads {
            let mut text = [0; MAX_BYTES];
            let read = rustix::io::pread(&thread.row, &mut text, 0).ok();
            if let Some(times) = read.and_then(|length| parse(&text[..length])) {
                thread.last = times;
                alive = true;
            }
            sum.run_ns = sum.run_ns.saturating_add(thread.last.run_ns);
            sum.delay_ns = sum.delay_ns.saturating_add(thread.last.delay_ns);
        }
        alive
            .then_some(sum)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn parse(row: &[u8]) -> Option<Times> {
    let mut numbers = str::from_utf8(row).ok()?.split_ascii_whitespace();
    Some(Times {
        run_ns: numbers.next()?.parse().ok()?,
        delay_ns: numbers.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(rows: &[&str]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (id, row) in rows.iter().enumerate() {
            let folder = format!("/proc/7/task/{}", 7 + id);
            root.create_dir_all(&folder).unwrap();
            let path = format!("{folder}/schedstat");
            root.write_atomically(path, row.as_bytes()).unwrap();
        }
        (folder, root)
    }

    #[test]
    fn all_threads_count() {
        let (_folder, root) = host(&["1500 20 3\n", "500 3000 9\n"]);
        let mut stat = Schedstat::open(&root, 7).unwrap();
        let sum = Times {
            run_ns: 2000,
            delay_ns: 3020,
        };
        assert_eq!(stat.read().unwrap(), sum);
    }

    #[test]
    fn without_an_account_there_is_no_witness() {
        let (_folder, root) = host(&["0 0 0\n"]);
        assert!(Schedstat::open(&root, 7).is_err());
        assert!(Schedstat::open(&root, 8).is_err());
        let (_folder, root) = host(&["nonsense"]);
        assert!(Schedstat::open(&root, 7).is_err());
    }

    #[test]
    fn our_own_threads_are_read_from_the_real_table() {
        let me = i32::try_from(std::process::id()).unwrap();
        let mut stat = Schedstat::open(&Root::default(), me).unwrap();
        let first = stat.read().unwrap();
        let second = stat.read().unwrap();
        assert!(first.run_ns > 0 && second.run_ns >= first.run_ns);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,100}") {
            parse(text.as_bytes());
        }
    }
}
