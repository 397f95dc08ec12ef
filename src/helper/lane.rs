//! One thread that may hang on a disk: jobs go one after the other, and whoever asks while one hangs is told so at once.
//!
//! A read or write that the kernel does not finish cannot be cancelled, not even by SIGKILL. So there is one such thread at
//! most: questions neither pile up behind it nor take each a connection of the helper's with them.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use crate::clock::Clock;

/// Its stack, of which only what is touched takes memory.
const STACK_BYTES: usize = 256 * 1024;

/// The lane that everything takes which may hang on a disk.
#[derive(Debug, Default)]
pub(super) struct Lane {
    busy: Mutex<Option<Busy>>,
    free: Condvar,
}

/// What is on the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Busy {
    what: &'static str,
    since: Duration,
}

/// Nobody could be served: something hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} has been at it for {} s and does not end; the disk hangs, or the host starves", for_so_long.as_secs())]
pub(super) struct Stuck {
    /// What hangs.
    pub what: &'static str,
    /// For how long.
    pub for_so_long: Duration,
}

/// Sets the lane free, however the job ends.
struct Release(Arc<Lane>);

impl Drop for Release {
    fn drop(&mut self) {
        *self.0.lock() = None;
        self.0.free.notify_all();
    }
}

impl Lane {
    /// Does `job` and waits for it, its turn included, no longer than `wait`. If something hangs for longer already, the
    /// answer comes at once. A job that was not finished in time goes on, and its result is lost.
    pub(super) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        wait: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stuck> {
        let end = Clock.now().uptime + wait;
        self.take(what, wait, end)?;
        let release = Release(Arc::clone(self));
        let (result, results) = mpsc::sync_channel(1);
        let worker = thread::Builder::new()
            .name("disk".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let outcome = job();
                // Free before the answer is read: who asks next must not find it taken.
                drop(release);
                let _ = result.send(outcome);
            });
        // Without a thread (its closure is dropped, the lane free again) the channel is closed.
        drop(worker);
        let left = end.saturating_sub(Clock.now().uptime);
        results.recv_timeout(left).map_err(|_| {
            let busy = *self.lock();
            stuck(busy.unwrap_or(Busy {
                what,
                since: end.saturating_sub(wait),
            }))
        })
    }

    /// Waits for the turn and takes it.
    fn take(&self, what: &'static str, wait: Duration, end: Duration) -> Result<(), Stuck> {
        let mut busy = self.lock();
        loop {
            let now = Clock.now().uptime;
            match *busy {
                None => {
                    *busy = Some(Busy { what, since: now });
                    return Ok(());
                }
                Some(other) if now >= end || now.saturating_sub(other.since) >= wait => {
                    return Err(stuck(other));
                }
                Some(_) => {
                    let left = end.saturating_sub(now);
                    let waited = self.free.wait_timeout(busy, left);
                    busy = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Busy>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stuck(busy: Busy) -> Stuck {
    Stuck {
        what: busy.what,
        for_so_long: Clock.now().uptime.saturating_sub(busy.since),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn jobs_are_done_one_after_the_other() {
        let lane = Arc::new(Lane::default());
        assert_eq!(lane.run("one", LONG, || 1), Ok(1));
        let askers: Vec<_> = (0..8)
            .map(|n| {
                let lane = Arc::clone(&lane);
                thread::spawn(move || lane.run("many", LONG, move || n))
            })
            .collect();
        let mut answers: Vec<_> = askers
            .into_iter()
            .map(|asker| asker.join().unwrap().unwrap())
            .collect();
        answers.sort_unstable();
        assert_eq!(answers, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn who_asks_while_one_hangs_is_told_so_at_once_and_starts_no_thread() {
        let lane = Arc::new(Lane::default());
        let (let_go, held) = mpsc::channel::<()>();
        let hanging = lane.run("the canary", SHORT, move || held.recv().is_ok());
        assert_eq!(hanging.unwrap_err().what, "the canary");
        let start = Clock.now().uptime;
        for _ in 0..100 {
            let stuck = lane.run("another", SHORT, || ()).unwrap_err();
            assert!(stuck.what == "the canary" && stuck.for_so_long >= SHORT);
        }
        let took = Clock.now().uptime.saturating_sub(start);
        assert!(took < Duration::from_secs(1), "{took:?}");
        // It ends after all: whoever waits gets its turn.
        let asker = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || lane.run("another", LONG, || 7))
        };
        let_go.send(()).unwrap();
        assert_eq!(asker.join().unwrap(), Ok(7));
    }

    #[test]
    fn a_job_that_panics_sets_the_lane_free() {
        let lane = Arc::new(Lane::default());
        let failed = lane.run("fails", LONG, || panic!("on purpose"));
        assert!(failed.is_err());
        assert_eq!(lane.run("next", LONG, || 1), Ok(1));
    }
}
