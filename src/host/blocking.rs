//! Runs work that may block in the kernel on other threads, one of each kind at a time, so that work on a dead disk, which never ends, does
//! not take all threads.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

/// Waits until nothing else of this kind is under way. Nothing else of it begins until the result is dropped.
///
/// # Errors
/// `TimedOut` at the deadline.
pub async fn one_at_a_time(kind: &str, deadline: Instant) -> io::Result<OwnedMutexGuard<()>> {
    static KINDS: Mutex<BTreeMap<String, Arc<AsyncMutex<()>>>> = Mutex::new(BTreeMap::new());
    let lock = {
        let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.entry(kind.to_owned()).or_default().clone()
    };
    let hangs = || io::Error::new(io::ErrorKind::TimedOut, "an earlier attempt has not finished; check the disk");
    timeout_at(deadline, lock.lock_owned()).await.map_err(|_| hangs())
}

/// Runs what blocks on a thread. When the time is up, it is not waited for any more.
///
/// # Errors
/// When the time is up, or `work` panics.
pub async fn run<T: Send + 'static>(
    kind: &str,
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let deadline = Instant::now() + time;
    let guard = one_at_a_time(kind, deadline).await?;
    let work = spawn_blocking(move || {
        let _guard = guard;
        work()
    });
    timeout_at(deadline, work).await.map_err(|_| late(time))?.map_err(io::Error::other)
}

/// The error of what has no result in this time.
pub fn late(time: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no result within {} s", time.as_secs_f32()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn while_one_hangs_no_other_of_its_kind_begins() {
        let (end, hangs) = mpsc::channel::<()>();
        let hung = run("reading", Duration::ZERO, move || hangs.recv()).await;
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let next = run("reading", Duration::ZERO, || ()).await;
        assert!(next.unwrap_err().to_string().starts_with("an earlier attempt has not finished"));
        run("writing", Duration::from_hours(1), || ()).await.unwrap();
        drop(end);
        run("reading", Duration::from_hours(1), || ()).await.unwrap();
    }
}
