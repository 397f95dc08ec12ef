//! What is true of any history of a host's memory.

use proptest::prelude::*;

use super::*;
use crate::checks::memory::sample::{Group, Level, Reclaim, Stall, Zram};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const START: Duration = Duration::from_secs(1000);

fn limits() -> Limits {
    Limits::new(&crate::config::Settings::default())
}

/// A host, by what is available (a share of all) at a time in seconds; the kernel reclaims when little is free.
struct Host<'a> {
    total: f64,
    available: &'a dyn Fn(f64) -> f64,
    /// The share that the page cache holds of what is available, as long as there is so much.
    cache: f64,
    has_psi: bool,
    has_vmstat: bool,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test's own numbers"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

impl Host<'_> {
    /// The counters, integrated in steps of 10 ms from the start on.
    fn sample(&self, at: f64, counters: &mut (f64, f64, f64)) -> Sample {
        let (mut time, mut scanned, mut waited) = *counters;
        while time < at {
            let available = (self.available)(time).clamp(0.002, 1.0);
            let free = available - self.cache;
            if free < 0.02 {
                // Growth that must be made room for; the less is left, the longer somebody waits.
                scanned += 20.0;
                waited += 10_000.0 * (0.15 + 0.5 * (0.1 - available).max(0.0));
            }
            time += 0.01;
        }
        *counters = (time, scanned, waited);
        let available = (self.available)(at).clamp(0.002, 1.0);
        Sample {
            at: START + Duration::from_secs_f64(at),
            level: Level {
                total: whole(self.total),
                available: whole(available * self.total),
                file: Some(whole(self.cache.min(available) * self.total)),
                swap_total: Some(0),
                swap_free: Some(0),
                ..Level::default()
            },
            stall: self.has_psi.then(|| Stall {
                some_us: whole(waited),
                full_us: whole(waited / 2.0),
            }),
            reclaim: self.has_vmstat.then(|| Reclaim {
                scanned: whole(scanned),
                ..Reclaim::default()
            }),
            ..Sample::default()
        }
    }

    /// Looks as often as the machine wants, each look as late as `late` says (seconds); what it came to.
    fn run(&self, secs: f64, late: impl FnMut() -> f64) -> Vec<Transition> {
        self.run_at(Machine::depth, secs, late)
    }

    /// The same, and at each look so much is read.
    fn run_at(
        &self,
        depth: impl Fn(&Machine) -> Depth,
        secs: f64,
        mut late: impl FnMut() -> f64,
    ) -> Vec<Transition> {
        let mut machine = Machine::new(limits());
        let (mut all, mut at, mut counters) = (Vec::new(), 0.0, (0.0, 0.0, 0.0));
        while at < secs {
            let mut sample = self.sample(at, &mut counters);
            match depth(&machine) {
                Depth::Whole => {}
                Depth::Level => sample.reclaim = None,
                Depth::Head => (sample.reclaim, sample.stall) = (None, None),
            }
            all.extend(machine.look(&sample));
            let due = machine.due_at().saturating_sub(START).as_secs_f64();
            at = due.max(at + 0.01) + late();
        }
        all
    }
}

fn alarm(told: &[Transition]) -> Option<&Transition> {
    told.iter().find(|told| told.to >= Stage::Imminent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However fast (to 8 % a second), however large, with whatever the kernel tells: it is said before the end, and two
    /// seconds before if it lasts for ten.
    #[test]
    fn growth_that_does_not_end_is_always_announced(
        gib in prop::sample::select(vec![1.0, 4.0, 16.0, 64.0]),
        from in 0.4..0.9_f64,
        percent_a_sec in 0.2..8.0_f64,
        cache in 0.0..0.3_f64,
        (has_psi, has_vmstat) in any::<(bool, bool)>(),
    ) {
        let speed = percent_a_sec / 100.0;
        let begins = 12.0;
        let available = |at: f64| from - speed * (at - begins).max(0.0);
        let host = Host { total: gib * GIB, available: &available, cache, has_psi, has_vmstat };
        let ends = begins + from / speed;
        let told = host.run(ends, || 0.0);
        let imminent = alarm(&told);
        prop_assert!(imminent.is_some(), "{told:?}");
        // 8 GiB of 64 are an eighth: there a speed of 8 % leaves a second and a half.
        let least = if gib > 32.0 { (0.125 / speed - 0.6).min(2.0) } else { 2.0 };
        // Half of ten seconds must have shown it, where the kernel says nothing else: of less only the end is left.
        let least = if from / speed < 10.0 { 0.5 } else { least };
        let ahead = ends - imminent.unwrap().at.saturating_sub(START).as_secs_f64();
        prop_assert!(ahead >= least, "{ahead} s ahead: {told:?}");
    }

    /// A look at plenty of memory is not judged where nothing moves: what is raised comes no later for it than by the time between
    /// two looks.
    #[test]
    fn what_is_not_judged_delays_no_alarm(
        gib in prop::sample::select(vec![1.0, 4.0, 16.0, 64.0]),
        from in 0.2..0.95_f64,
        begins in 12.0..32.0_f64,
        percent_a_sec in 1.0..8.0_f64,
        noise in 0.0..0.004_f64,
        cache in 0.0..0.3_f64,
        has_psi in any::<bool>(),
    ) {
        let speed = percent_a_sec / 100.0;
        let available = |at: f64| {
            let wave = noise * ((at * 6.0).sin() + (at * 0.9).cos()) / 2.0;
            from + wave - speed * (at - begins).max(0.0)
        };
        let host = Host { total: gib * GIB, available: &available, cache, has_psi, has_vmstat: true };
        let end = begins + from / speed;
        let raised = |depth: fn(&Machine) -> Depth| {
            alarm(&host.run_at(depth, end, || 0.0)).map(|told| told.at)
        };
        // Where all is read at each look, each is judged.
        let (some, each) = (raised(Machine::depth), raised(|_| Depth::Whole));
        prop_assert!(some.is_some() && each.is_some());
        prop_assert!(some <= each.map(|at| at + CALM_EVERY), "{some:?} {each:?}");
    }

    /// A host that is full and stays so, with or without reclaim: whoever looks however late.
    #[test]
    fn a_plateau_is_no_alarm_however_late_the_looks(
        gib in prop::sample::select(vec![1.0, 4.0, 16.0, 64.0]),
        level in 0.08..0.9_f64,
        noise in 0.0..0.004_f64,
        cache in 0.0..0.3_f64,
        seed in any::<u64>(),
        lateness in prop::sample::select(vec![0.0, 0.05, 0.5, 2.0, 10.0]),
        (has_psi, has_vmstat) in any::<(bool, bool)>(),
    ) {
        // Waves of a second and of seven.
        let available = |at: f64| level + noise * ((at * 6.0).sin() + (at * 0.9).cos()) / 2.0;
        let host = Host { total: gib * GIB, available: &available, cache, has_psi, has_vmstat };
        let mut dice = fastrand::Rng::with_seed(seed);
        let told = host.run(120.0, || if dice.bool() { dice.f64() * lateness } else { 0.0 });
        prop_assert_eq!(alarm(&told), None);
    }

    /// A burst that stops while more than a quarter is available, seen by looks that come as they may.
    #[test]
    fn a_burst_that_stops_in_time_is_no_alarm_however_late_the_looks(
        from in 0.7..0.95_f64,
        to in 0.26..0.5_f64,
        secs in 0.2..8.0_f64,
        cache in 0.0..0.25_f64,
        seed in any::<u64>(),
        lateness in prop::sample::select(vec![0.0, 0.05, 0.5, 2.0, 10.0]),
        (has_psi, has_vmstat) in any::<(bool, bool)>(),
    ) {
        let available = |at: f64| from - (from - to) * ((at - 20.0) / secs).clamp(0.0, 1.0);
        let host = Host { total: 8.0 * GIB, available: &available, cache, has_psi, has_vmstat };
        let mut dice = fastrand::Rng::with_seed(seed);
        let told = host.run(90.0, || if dice.bool() { dice.f64() * lateness } else { 0.0 });
        prop_assert_eq!(alarm(&told), None);
    }

    /// One that stops lower is an alarm or none, but never one that late looks alone have made: a hole in which memory fell
    /// to where it then stays is no fall.
    #[test]
    fn a_fall_within_a_hole_is_no_alarm(
        from in 0.6..0.95_f64,
        to in 0.08..0.24_f64,
        hole in 1.6..10.0_f64,
        (has_psi, has_vmstat) in any::<(bool, bool)>(),
    ) {
        let available = |at: f64| if at < 20.2 { from } else { to };
        let host = Host { total: 8.0 * GIB, available: &available, cache: 0.0, has_psi, has_vmstat };
        let (mut looks, mut holes) = (0, 0);
        let told = host.run(60.0, || {
            looks += 1;
            // The look of 20 s, and then none for so long.
            let is_hole = looks == 21;
            holes += u32::from(is_hole);
            if is_hole { hole } else { 0.0 }
        });
        prop_assert_eq!(holes, 1);
        prop_assert_eq!(alarm(&told), None);
    }

    /// Once raised, an alarm stands until memory has been plenty for a minute, or still for five.
    #[test]
    fn clearing_needs_its_hysteresis(
        pauses in prop::collection::vec((1.0..90.0_f64, 0.05..0.9_f64), 1..6),
    ) {
        let mut levels = vec![(0.0, 0.8)];
        let mut at = 40.0;
        for (secs, level) in &pauses {
            levels.push((at, *level));
            at += secs;
        }
        levels.push((at, 0.8));
        let available = |now: f64| {
            if now < 40.0 {
                return 0.8 - 0.03 * (now - 15.0).max(0.0);
            }
            levels.iter().rev().find(|(from, _)| *from <= now).unwrap().1
        };
        let host = Host { total: 4.0 * GIB, available: &available, cache: 0.2, has_psi: true, has_vmstat: true };
        let told = host.run(at + 700.0, || 0.0);
        let raised = told.iter().find(|told| told.to == Stage::Imminent);
        prop_assert!(raised.is_some());
        let low_until = |end: f64, secs: f64| {
            (0..whole(secs * 10.0)).any(|step| {
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let back = step as f64 / 10.0;
                available(end - back) < 0.3
            })
        };
        for told in told.iter().filter(|told| told.from >= Stage::Imminent && told.to < Stage::Imminent) {
            let end = told.at.saturating_sub(START).as_secs_f64();
            match told.why.cause {
                Cause::Recovered => prop_assert!(!low_until(end, 59.0), "{told:?}"),
                Cause::Still => prop_assert!((0..290).all(|back| {
                    let level = available(end - f64::from(back));
                    (level - available(end)).abs() < 0.001
                }), "{told:?}"),
                _ => prop_assert!(false, "{told:?}"),
            }
        }
        prop_assert_eq!(told.last().unwrap().to, Stage::Calm, "it ends at last");
    }

    /// Once it is said that a host thrashes, that stands until it has not for half a minute, and no longer than it must.
    #[test]
    fn thrashing_ends_after_half_a_minute_without(
        spells in prop::collection::vec((1.0..60.0_f64, any::<bool>(), any::<bool>()), 1..8),
    ) {
        // (until when, whether it thrashes, what is available)
        let mut plan = vec![(20.0, false, 0.8), (45.0, true, 0.03)];
        for (secs, thrashes, is_plenty) in &spells {
            let level = if *is_plenty && !thrashes { 0.6 } else { 0.03 };
            plan.push((plan.last().unwrap().0 + secs, *thrashes, level));
        }
        let last = plan.iter().rev().find(|spell| spell.1).unwrap().0;
        let end = plan.last().unwrap().0.max(last) + 60.0;
        let now = |at: f64| *plan.iter().find(|spell| at < spell.0).unwrap_or(&(end, false, 0.6));
        let mut counted = 0.0;
        let mut machine = Machine::new(limits());
        let mut told = Vec::new();
        for tenth in 0..whole(end * 10.0) {
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let at = tenth as f64 / 10.0;
            let (_, thrashes, level) = now(at);
            counted += if thrashes { 0.1 } else { 0.0 };
            let stall = Stall { some_us: whole(counted * 900_000.0), full_us: whole(counted * 600_000.0) };
            let reclaim = Reclaim {
                page: 4096,
                scanned: whole(counted * 500_000.0),
                stolen: Some(whole(counted * 400_000.0)),
                refaulted: whole(counted * 300_000.0),
                ..Reclaim::default()
            };
            let sample = Sample { stall: Some(stall), reclaim: Some(reclaim), ..look(at, level) };
            told.extend(machine.look(&sample));
        }
        let secs = |at: Duration| at.saturating_sub(START).as_secs_f64();
        let raised = told.iter().find(|told| told.to == Stage::Thrashing);
        prop_assert!(raised.is_some_and(|told| secs(told.at) < 30.0), "{told:?}");
        let ends: Vec<_> = told.iter().filter(|told| told.from == Stage::Thrashing).collect();
        for end in &ends {
            let at = secs(end.at);
            let quiet = (0..295).all(|tenths| !now(at - f64::from(tenths) / 10.0).1);
            prop_assert!(quiet, "{end:?}");
            let cause = if now(at).2 > 0.3 { Cause::Recovered } else { Cause::StillLow };
            prop_assert_eq!(end.why.cause, cause);
        }
        let after = secs(ends.last().unwrap().at) - last;
        prop_assert!(after < 40.0, "{after} s after the last: {told:?}");
    }
}

/// A look at a host of 4 GiB without swap.
fn look(at: f64, available: f64) -> Sample {
    Sample {
        at: START + Duration::from_secs_f64(at),
        level: Level {
            total: whole(4.0 * GIB),
            available: whole(available * 4.0 * GIB),
            swap_total: Some(0),
            swap_free: Some(0),
            ..Level::default()
        },
        ..Sample::default()
    }
}

/// Ten looks a second of whatever `of` makes; what it came to.
fn told(secs: u32, of: impl Fn(f64) -> Sample) -> (Machine, Vec<Transition>) {
    let mut machine = Machine::new(limits());
    let looks = (0..secs * 10).map(|tenth| of(f64::from(tenth) / 10.0));
    let told = looks.filter_map(|sample| machine.look(&sample)).collect();
    (machine, told)
}

#[test]
fn the_cadence_is_that_of_the_state() {
    let mut machine = Machine::new(limits());
    assert_eq!(
        machine.depth(),
        Depth::Whole,
        "the first look sees what swap there is"
    );
    machine.look(&look(1.0, 0.8));
    assert_eq!(
        (machine.interval(), machine.depth()),
        (CALM_EVERY, Depth::Head)
    );
    let whole = (2..22).filter(|second| {
        machine.look(&look(f64::from(*second), 0.8));
        machine.depth() == Depth::Whole
    });
    assert_eq!(whole.count(), 2, "one in ten");
    let mut fuller = Machine::new(limits());
    fuller.look(&look(1.0, 0.45));
    assert_eq!(
        (fuller.interval(), fuller.depth()),
        (CALM_EVERY, Depth::Level)
    );
    let woken = machine.wake(START + Duration::from_secs(22)).unwrap();
    assert_eq!((woken.to, woken.why.cause), (Stage::Rising, Cause::Woken));
    machine.look(&look(22.0, 0.8));
    assert_eq!(
        (machine.interval(), machine.depth()),
        (RISING_EVERY, Depth::Whole)
    );
    assert_eq!(machine.due_at(), START + Duration::from_millis(22_100));
}

#[test]
fn a_full_host_that_stays_so_is_left_alone_and_its_next_step_is_not() {
    let steady = |at: f64| look(at, if at < 40.0 { 0.15 } else { 0.12 });
    let (machine, told) = told(60, steady);
    let stages: Vec<_> = told.iter().map(|told| told.to).collect();
    assert_eq!(
        stages,
        [Stage::Rising, Stage::Calm, Stage::Rising, Stage::Calm]
    );
    assert!(told[2].at.saturating_sub(START).as_secs_f64() < 40.3);
    assert_eq!(machine.state().stage(), Stage::Calm);
}

#[test]
fn a_group_that_waits_at_its_own_limit_is_looked_at_less_and_less() {
    let waits = |at: f64| Sample {
        stall: Some(Stall {
            some_us: whole(at * 300_000.0),
            full_us: 0,
        }),
        reclaim: Some(Reclaim::default()),
        ..look(at, 0.8)
    };
    let (_, told) = told(1800, waits);
    let rises = told.iter().filter(|told| told.to == Stage::Rising).count();
    assert!(
        told.iter().all(|told| told.to < Stage::Imminent) && (2..12).contains(&rises),
        "{rises}"
    );
}

#[test]
fn swap_takes_growth_and_zram_takes_less_than_it_promises() {
    let falls = |at: f64| (0.6 - 0.02 * at).max(0.15);
    let with_swap = |swap: f64, zram: Option<f64>| {
        move |at: f64| {
            // What no longer fits goes to swap.
            let out = (0.02 * at - 0.45).max(0.0);
            let mut sample = look(at, falls(at));
            sample.level.swap_total = Some(whole(swap * 4.0 * GIB));
            sample.level.swap_free = Some(whole((swap - out).max(0.0) * 4.0 * GIB));
            sample.stall = Some(Stall {
                some_us: whole(at * 300_000.0),
                full_us: 0,
            });
            sample.reclaim = Some(Reclaim {
                scanned: whole(at * 9000.0),
                ..Reclaim::default()
            });
            sample.zram = zram.map(|ratio| Zram {
                stored: whole((out + 0.01) * 4.0 * GIB),
                used: whole((out + 0.01) * ratio * 4.0 * GIB),
            });
            sample
        }
    };
    let imminent =
        |secs, swap, zram| alarm(&told(secs, with_swap(swap, zram)).1).map(|told| told.at);
    // Three quarters of an hour's growth fits into it.
    assert_eq!(imminent(30, 4.0, None), None);
    assert_eq!(imminent(60, 4.0, None), None);
    // Until it is full.
    assert!(imminent(60, 0.4, None).is_some());
    // In memory the same room is worth less, the worse it packs.
    let (well, badly) = (imminent(60, 0.4, Some(0.3)), imminent(60, 0.4, Some(0.95)));
    assert!(
        badly.is_some() && (well.is_none() || badly < well),
        "{badly:?} {well:?}"
    );
    // Swap whose room is not known makes no forecast.
    let unknown = |at: f64| {
        let mut sample = with_swap(0.4, None)(at);
        sample.level.swap_free = None;
        sample
    };
    assert_eq!(alarm(&told(60, unknown).1), None);
}

#[test]
fn all_pods_limit_is_seen_before_the_hosts_memory_is_short() {
    let pods = |at: f64| Sample {
        pods: Some(Group {
            used: whole((1.5 + 0.02 * at).min(2.0) * GIB),
            limit: whole(2.0 * GIB),
        }),
        ..look(at, 0.45)
    };
    let (_, told) = told(30, pods);
    let alarm = alarm(&told).unwrap();
    assert_eq!(
        (alarm.to, alarm.why.cause),
        (Stage::Imminent, Cause::PodsAtLimit)
    );
    assert!(
        alarm.why.to_string().contains("of the pods' limit left"),
        "{}",
        alarm.why
    );
}

#[test]
fn memory_that_only_seems_available_is_found_out() {
    let lies = |at: f64| Sample {
        reclaim: Some(Reclaim {
            scanned: whole(at * 50_000.0),
            stolen: Some(whole(at * 1000.0)),
            stalls: Some(whole(at * 20.0)),
            ..Reclaim::default()
        }),
        stall: Some(Stall {
            some_us: whole(at * 400_000.0),
            full_us: 0,
        }),
        ..look(at, 0.4)
    };
    let (_, told) = told(20, lies);
    assert_eq!(
        alarm(&told).map(|told| (told.to, told.why.cause)),
        Some((Stage::Thrashing, Cause::InVain))
    );
}

#[test]
fn a_kubelet_that_waits_counts_only_where_the_host_is_short() {
    let waits = |level: f64| {
        move |at: f64| Sample {
            kubelet_full_us: Some(whole(at * 700_000.0)),
            stall: Some(Stall {
                some_us: whole(at * 700_000.0),
                full_us: 0,
            }),
            reclaim: Some(Reclaim::default()),
            ..look(at, level)
        }
    };
    let (_, told_short) = told(20, waits(0.2));
    let alarm_short = alarm(&told_short).map(|told| (told.to, told.why.cause));
    assert_eq!(alarm_short, Some((Stage::Thrashing, Cause::PlatformWaits)));
    assert_eq!(alarm(&told(20, waits(0.8)).1), None);
}

#[test]
fn a_kill_at_a_limit_leaves_the_state_and_the_hosts_does_not() {
    let at = START + Duration::from_secs(20);
    let (mut machine, _) = told(20, |at| look(at, 0.8));
    assert_eq!(machine.killed(at, Scope::Cgroup), None);
    assert_eq!(machine.counted_kill(at), None, "memory is not short");
    assert_eq!(
        machine.killed(at, Scope::Host).map(|told| told.to),
        Some(Stage::Oom)
    );
    let (mut machine, _) = told(20, |at| look(at, 0.04));
    assert_eq!(
        machine.counted_kill(at).map(|told| told.to),
        Some(Stage::Oom)
    );
}

#[test]
fn an_alarm_that_comes_again_and_again_is_held() {
    // Each minute and a half: a fall to 10 %, then plenty.
    let wave = |at: f64| {
        let phase = at % 90.0;
        let level = if phase < 16.0 {
            0.8 - 0.045 * phase
        } else {
            0.8
        };
        Sample {
            reclaim: Some(Reclaim {
                scanned: whole(at * 9000.0),
                ..Reclaim::default()
            }),
            ..look(at, level)
        }
    };
    let (_, told) = told(1200, wave);
    let raised: Vec<_> = told
        .iter()
        .filter(|told| told.to == Stage::Imminent)
        .map(|told| told.at)
        .collect();
    let cleared: Vec<_> = told
        .iter()
        .filter(|told| told.from == Stage::Imminent)
        .map(|told| told.at)
        .collect();
    assert!(raised.len() >= 3 && cleared.len() >= 2, "{told:?}");
    assert!(
        cleared
            .get(2)
            .is_none_or(|third| third.saturating_sub(raised[2]) >= Duration::from_mins(10))
    );
}

#[test]
fn counters_that_go_back_and_looks_out_of_order_are_no_alarm() {
    let odd = |at: f64| {
        let back = (at * 10.0) % 3.0 < 1.0;
        Sample {
            at: START + Duration::from_secs_f64(if back { at / 2.0 } else { at }),
            reclaim: Some(Reclaim {
                scanned: if back { 0 } else { u64::MAX },
                ..Reclaim::default()
            }),
            stall: Some(Stall {
                some_us: if back { u64::MAX } else { 0 },
                full_us: 0,
            }),
            ..look(at, 0.2)
        }
    };
    assert_eq!(alarm(&told(30, odd).1), None);
}
