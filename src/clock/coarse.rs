//! A timer for what may come up to a second late, which wakes nobody by itself: what waits is looked at when the loop's own
//! alarm rings, and on a node with or without a kubelet that is each second.
//!
//! tokio's wheel would wake an idle process five times and more for each ping of an idle connection.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use hyper::rt::{Sleep, Timer};

use super::Clock;

/// Clones share what waits.
#[derive(Debug, Clone, Default)]
pub struct CoarseTimer(Arc<Mutex<Waits>>);

#[derive(Debug, Default)]
struct Waits {
    last_id: u64,
    open: Vec<Open>,
}

/// Somebody waits.
#[derive(Debug)]
struct Open {
    id: u64,
    /// Until then (uptime).
    until: Duration,
    waker: Option<Waker>,
}

impl CoarseTimer {
    /// Ends every wait for a time that has come.
    pub(super) fn ring(&self, uptime: Duration) {
        let mut waits = self.lock();
        for open in waits.open.extract_if(.., |open| open.until <= uptime) {
            if let Some(waker) = open.waker {
                waker.wake();
            }
        }
    }

    fn wait(&self, until: Duration) -> Wait {
        let mut waits = self.lock();
        waits.last_id += 1;
        let id = waits.last_id;
        waits.open.push(Open {
            id,
            until,
            waker: None,
        });
        Wait {
            timer: self.clone(),
            id,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Timer for CoarseTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(self.wait(Clock.now().uptime + duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }
}

/// Over when its timer no longer knows it.
struct Wait {
    timer: CoarseTimer,
    id: u64,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waits = self.timer.lock();
        match waits.open.iter_mut().find(|open| open.id == self.id) {
            Some(open) => {
                open.waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Sleep for Wait {}

impl Drop for Wait {
    fn drop(&mut self) {
        self.timer.lock().open.retain(|open| open.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_by_the_first_ring_after_its_time() {
        let timer = CoarseTimer::default();
        let ms = Duration::from_millis;
        let [early, late] = [ms(500), ms(900)].map(|until| tokio::spawn(timer.wait(until)));
        yield_now().await;
        for (uptime, are_over) in [
            (499, [false, false]),
            (500, [true, false]),
            (1900, [true; 2]),
        ] {
            timer.ring(ms(uptime));
            yield_now().await;
            assert_eq!([early.is_finished(), late.is_finished()], are_over);
        }
    }

    #[tokio::test]
    async fn it_counts_from_now_and_who_waits_no_longer_is_forgotten() {
        let timer = CoarseTimer::default();
        let start = Clock.now().uptime;
        let hour = Duration::from_hours(1);
        let waits = [timer.sleep(hour), timer.sleep_until(timer.now() + hour)];
        for open in &timer.lock().open {
            let off = open.until.abs_diff(start + hour);
            assert!(off < Duration::from_secs(10), "{off:?}");
        }
        assert_eq!(timer.lock().open.len(), 2);
        drop(waits);
        assert_eq!(timer.lock().open.len(), 0);
    }
}
