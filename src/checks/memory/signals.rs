//! Rates and a forecast: what a look says in the light of those before it. What is not known is `None`.

use std::time::Duration;

use super::{
    history::{History, Point},
    limits::MAX_GAP,
    sample::Sample,
};

/// A line is laid through the looks of both these times, and the slower fall counts: a burst must last in both. (The
/// shorter has room for four looks of a calm.)
const TREND: [Duration; 2] = [Duration::from_millis(3500), Duration::from_secs(10)];
/// With less of a past than this, a fall is one from so much of the memory on, in percent.
const SURE: (Duration, f64) = (Duration::from_millis(4500), 2.0);
/// Rates are taken over a second, or a little less; never over more than this.
const RATE: (Duration, Duration) = (Duration::from_millis(950), Duration::from_secs(3));
/// Where a second's past is not known yet.
const YOUNG: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));
/// Whether it still falls is seen over this time.
const LATELY: (Duration, Duration) = (Duration::from_millis(280), MAX_GAP);
/// How long the kubelet or the runtime must suffer …
const PLATFORM: (Duration, Duration) = (Duration::from_millis(4800), Duration::from_secs(7));
/// … while swap has room: a host that fills it waits for the disk, and gets on.
const PLATFORM_SWAPS: (Duration, Duration) = (Duration::from_millis(9800), Duration::from_secs(12));
/// Swap with less room than this, in percent of the memory, is full.
const SWAP_FULL_PERCENT: f64 = 2.0;
/// This much of the memory is never given out, whatever the watermarks say, in percent.
const RESERVE_PERCENT: f64 = 1.5;
/// A fall that would take longer than this is none.
const FOREVER_SECS: f64 = 600.0;
/// What zram takes of what is put in, as long as nothing is in it.
const ZRAM_RATIO: f64 = 0.5;
/// File pages count as so much of the memory at least, in percent: of next to nothing any share is large.
const LEAST_FILE_PERCENT: f64 = 0.5;

/// What one look says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Signals {
    /// When (uptime).
    pub at: Duration,
    /// All memory, in bytes.
    pub total: f64,
    /// What is available, in bytes.
    pub available: f64,
    /// What swap can still take off the memory, in bytes.
    pub swap: Option<f64>,
    /// How fast what is available, swap included, falls: bytes a second; only if it does.
    pub falls: Option<f64>,
    /// Whether it still fell in the last moment, by half of that at least.
    pub still_falls: bool,
    /// Until nothing is left, in seconds.
    pub left: Option<f64>,
    /// Whether the kernel reclaims for the whole host.
    pub reclaims: Option<bool>,
    /// For how much of the time some task waited for memory, in percent.
    pub waits: Option<f64>,
    /// The same of all tasks.
    pub all_wait: Option<f64>,
    /// For how much of the last seconds all of the kubelet, or of the container runtime, waited for memory, in percent.
    pub platform_waits: Option<f64>,
    /// How much of the file pages was read anew, in percent a second.
    pub refaults: Option<f64>,
    /// How much of what kswapd looked at it got, in percent, if it looked.
    pub efficiency: Option<f64>,
    /// Whether tasks had to reclaim by themselves.
    pub stalls: Option<bool>,
    /// What all pods together may still take, in percent of their limit.
    pub pods_percent: Option<f64>,
    /// Until they may take nothing, in seconds.
    pub pods_left: Option<f64>,
}

impl Signals {
    /// What is available, in percent.
    pub fn percent(&self) -> f64 {
        100.0 * self.available / self.total.max(1.0)
    }

    /// Whether there is swap that is not full.
    pub(super) fn swap_has_room(&self) -> bool {
        self.swap.unwrap_or(0.0) > self.total * SWAP_FULL_PERCENT / 100.0
    }
}

/// Bytes as a number to reckon with.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact to 8 PiB, and a forecast needs no more than three digits"
)]
pub(super) fn real(number: u64) -> f64 {
    number as f64
}

/// What swap can still take off the memory. Swap that lies in memory itself gives less than it holds.
pub(super) fn swap(sample: &Sample, zram: Option<f64>) -> Option<f64> {
    let (total, free) = (sample.level.swap_total?, sample.level.swap_free);
    if total == 0 {
        return Some(0.0);
    }
    Some(real(free?) * (1.0 - zram.unwrap_or(0.0)))
}

/// What zram takes of what is put in, if there is any.
pub(super) fn zram_ratio(sample: &Sample) -> Option<f64> {
    let zram = sample.zram?;
    if zram.stored < 1 << 20 {
        return Some(ZRAM_RATIO);
    }
    Some((real(zram.used) / real(zram.stored)).clamp(0.0, 1.0))
}

/// What `sample` says, whose point is the newest of `history`.
pub(super) fn signals(sample: &Sample, swap: Option<f64>, history: &History) -> Signals {
    let level = sample.level;
    let (total, available) = (real(level.total), real(level.available));
    let reserve = (total * RESERVE_PERCENT / 100.0).max(real(level.reserve.unwrap_or(0)));
    let falls = trend(history, total, |point| point.headroom);
    let left = |falls: Option<f64>, free: f64| {
        let left = free.max(0.0) / falls?;
        (left <= FOREVER_SECS).then_some(left)
    };
    let lately = history.back(LATELY, |point| point.headroom);
    let lately = lately.map(|(age, before)| (before - available - swap.unwrap_or(0.0)) / age);
    let pods_free = history.newest().and_then(|point| point.pods_free);
    let mut signals = Signals {
        at: sample.at,
        total,
        available,
        swap,
        falls,
        still_falls: falls
            .zip(lately)
            .is_some_and(|(falls, lately)| lately >= falls / 2.0),
        left: left(falls, available + swap.unwrap_or(0.0) - reserve),
        pods_percent: pods_free
            .zip(sample.pods)
            .map(|(free, pods)| 100.0 * free / real(pods.limit).max(1.0)),
        pods_left: pods_free.zip(sample.pods).and_then(|(free, pods)| {
            left(
                trend(history, real(pods.limit), |point| point.pods_free),
                free,
            )
        }),
        ..Signals::default()
    };
    signals.platform_waits = platform(sample, history, signals.swap_has_room());
    waits(sample, history, &mut signals);
    reclaim(sample, history, &mut signals);
    signals
}

/// `all`: of what a fall is a share.
fn trend(history: &History, all: f64, value: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
    let [short, long] = TREND.map(|window| history.falls(window, &value));
    let ((short, _), (long, span)) = (short?, long?);
    let slower = short.min(long);
    // After a start or a hole: only what is more than a wave.
    let least = if span < SURE.0.as_secs_f64() {
        all * SURE.1 / 100.0
    } else {
        0.0
    };
    (slower > 0.0 && slower * span >= least).then_some(slower)
}

/// The newest value that is a second old, with its age.
fn before<T>(history: &History, value: impl Fn(&Point) -> Option<T>) -> Option<(f64, T)> {
    let old = history.back(RATE, &value);
    old.or_else(|| {
        // The oldest of the young ones would be better still; the next look has an older one.
        history.back(YOUNG, &value)
    })
}

/// How much of `age` seconds a counter of microseconds has grown by, in percent. One that went back counts anew.
fn share(now: u64, before: u64, age: f64) -> Option<f64> {
    let grown = now.checked_sub(before)?;
    Some((real(grown) / (age * 10_000.0)).min(100.0))
}

fn waits(sample: &Sample, history: &History, signals: &mut Signals) {
    let Some((now, (age, then))) = sample.stall.zip(before(history, |point| point.stall)) else {
        return;
    };
    signals.waits = share(now.some_us, then.some_us, age);
    signals.all_wait = share(now.full_us, then.full_us, age);
}

fn platform(sample: &Sample, history: &History, swaps: bool) -> Option<f64> {
    let window = if swaps { PLATFORM_SWAPS } else { PLATFORM };
    let of = |now: Option<u64>, value: fn(&Point) -> Option<u64>| {
        let (now, (age, then)) = now.zip(history.back(window, value))?;
        share(now, then, age)
    };
    let kubelet = of(sample.kubelet_full_us, |point| point.kubelet_full_us);
    let runtime = of(sample.runtime_full_us, |point| point.runtime_full_us);
    match (kubelet, runtime) {
        (Some(kubelet), Some(runtime)) => Some(kubelet.max(runtime)),
        (one, other) => one.or(other),
    }
}

fn reclaim(sample: &Sample, history: &History, signals: &mut Signals) {
    let Some((now, (age, then))) = sample.reclaim.zip(before(history, |point| point.reclaim))
    else {
        return;
    };
    let grown = |now: Option<u64>, then: Option<u64>| Some(real(now?.checked_sub(then?)?) / age);
    let scanned = grown(Some(now.scanned), Some(then.scanned));
    let stalls = grown(now.stalls, then.stalls);
    signals.stalls = stalls.map(|stalls| stalls > 0.0);
    signals.reclaims = scanned.map(|scanned| scanned > SCANNED || signals.stalls == Some(true));
    let stolen = grown(now.stolen, then.stolen);
    signals.efficiency = scanned
        .zip(stolen)
        .filter(|(scanned, _)| *scanned > SCANNED)
        .map(|(scanned, stolen)| 100.0 * stolen / scanned);
    // Without a number of file pages: what is available holds all of them that count.
    let file = sample.level.file.unwrap_or(sample.level.available);
    let file = real(file).max(signals.total * LEAST_FILE_PERCENT / 100.0);
    let pages = (file / real(if now.page == 0 { PAGE } else { now.page })).max(1.0);
    signals.refaults = grown(Some(now.refaulted), Some(then.refaulted))
        .map(|pages_read| 100.0 * pages_read / pages);
}

/// A page, in bytes, if nobody says otherwise.
const PAGE: u64 = 4096;
/// kswapd works if it looks at more pages a second than this.
const SCANNED: f64 = 100.0;
