//! The last seconds, in a ring of fixed size: nothing is allocated at a look.

use std::time::Duration;

use super::sample::{Reclaim, Stall};

/// So many looks are remembered: more than ten seconds of ten a second.
const POINTS: usize = 128;

/// What is kept of one look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Point {
    /// When (uptime).
    pub(super) at: Duration,
    /// What is available, in bytes.
    pub(super) available: f64,
    /// What is available, in swap too, as far as it is known.
    pub(super) headroom: Option<f64>,
    /// What all pods together may still take.
    pub(super) pods_free: Option<f64>,
    pub(super) stall: Option<Stall>,
    pub(super) kubelet_full_us: Option<u64>,
    pub(super) runtime_full_us: Option<u64>,
    pub(super) reclaim: Option<Reclaim>,
    /// For how long it speaks: since the look before, but no longer than a second.
    pub(super) speaks_for: Duration,
    /// Whether it looked like thrashing.
    pub(super) thrashes: bool,
    /// Whether the kernel looked for memory in vain.
    pub(super) in_vain: bool,
}

/// The ring.
#[derive(Debug)]
pub(super) struct History {
    points: Box<[Point]>,
    /// Where the next one goes.
    next: usize,
    len: usize,
    /// Before this nothing tells where memory goes (uptime).
    trend_from: Duration,
}

impl Default for History {
    fn default() -> Self {
        Self {
            points: vec![Point::default(); POINTS].into_boxed_slice(),
            next: 0,
            len: 0,
            trend_from: Duration::ZERO,
        }
    }
}

impl History {
    pub(super) fn push(&mut self, point: Point) {
        self.points[self.next] = point;
        self.next = (self.next + 1) % POINTS;
        self.len = (self.len + 1).min(POINTS);
    }

    /// The newest first.
    pub(super) fn points(&self) -> impl Iterator<Item = &Point> {
        (1..=self.len).map(|back| &self.points[(self.next + POINTS - back) % POINTS])
    }

    pub(super) fn newest(&self) -> Option<&Point> {
        self.points().next()
    }

    pub(super) fn newest_mut(&mut self) -> Option<&mut Point> {
        let newest = (self.next + POINTS - 1) % POINTS;
        (self.len > 0).then(|| &mut self.points[newest])
    }

    /// What was before `at` says nothing of where memory goes.
    pub(super) fn forget_trend(&mut self, at: Duration) {
        self.trend_from = at;
    }

    /// The newest look that has `value` and is at least `least` old and at most `most`, with its age in seconds.
    pub(super) fn back<T>(
        &self,
        (least, most): (Duration, Duration),
        value: impl Fn(&Point) -> Option<T>,
    ) -> Option<(f64, T)> {
        let now = self.newest()?.at;
        let aged = self.points().map(|p| (now.saturating_sub(p.at), p));
        aged.skip_while(|(age, _)| *age < least)
            .take_while(|(age, _)| *age <= most)
            .find_map(|(age, point)| Some((age.as_secs_f64(), value(point)?)))
    }

    /// How fast `value` falls, a second, and over how many seconds that was seen: the line through all looks of that window
    /// with the least squares.
    pub(super) fn falls(
        &self,
        window: Duration,
        value: impl Fn(&Point) -> Option<f64>,
    ) -> Option<(f64, f64)> {
        let now = self.newest()?.at;
        let (mut n, mut sum_t, mut sum_v, mut sum_tt, mut sum_tv) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut span, mut first) = (0.0, None);
        for point in self.points() {
            let age = now.saturating_sub(point.at);
            if age > window || point.at < self.trend_from {
                break;
            }
            let Some(value) = value(point) else { continue };
            // From the newest value on, so that small numbers are squared.
            let (t, v) = (-age.as_secs_f64(), value - *first.get_or_insert(value));
            n += 1.0;
            sum_t += t;
            sum_v += v;
            sum_tt += t * t;
            sum_tv += t * v;
            span = age.as_secs_f64();
        }
        let spread = n * sum_tt - sum_t * sum_t;
        (n >= 3.0 && span >= LEAST_SPAN.as_secs_f64() && spread > 0.0)
            .then(|| (-(n * sum_tv - sum_t * sum_v) / spread, span))
    }

    /// The share of the last `window` for which `is_so`, among the looks that speak of it; `None` if too few do.
    pub(super) fn share(&self, window: Duration, is_so: impl Fn(&Point) -> bool) -> Option<f64> {
        let now = self.newest()?.at;
        let (mut all, mut so) = (Duration::ZERO, Duration::ZERO);
        for point in self.points() {
            if now.saturating_sub(point.at) >= window {
                break;
            }
            all += point.speaks_for;
            if is_so(point) {
                so += point.speaks_for;
            }
        }
        (all * 2 >= window).then(|| so.as_secs_f64() / all.as_secs_f64())
    }
}

/// A trend is seen over this time at least.
const LEAST_SPAN: Duration = Duration::from_secs(2);
