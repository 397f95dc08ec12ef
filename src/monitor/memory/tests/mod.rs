//! The rules, over readings that are made up. Those over recordings are in `recordings`.

mod recordings;
mod replay;

use std::time::Duration;

use super::message;
use super::state::Memory;
use crate::condition::{Finding, Reason, Uptime, View};
use crate::host::memory::{Reading, Reclaim};
use crate::host::oom::{OomKill, OomScope};
use crate::host::top::Consumer;

const MIB: u64 = 1 << 20;
const TOTAL_MIB: u64 = 16 * 1024;

fn at(secs: u64) -> Uptime {
    Uptime::from_secs(secs)
}

/// kswapd reclaims all the time, as on any host that has filled its memory with files.
fn reading(secs: u64, available_mib: u64) -> Reading {
    let reclaim = Some(Reclaim { scanned_pages: secs * 10_000, ..Reclaim::default() });
    let (total_bytes, available_bytes) = (TOTAL_MIB * MIB, available_mib * MIB);
    Reading { at: at(secs), total_bytes, available_bytes, swap_free_bytes: 0, file_bytes: available_bytes / 2, reclaim }
}

/// A reading each second of a host that thrashes: 100 MiB of files fit into memory, and as much is read back each second.
fn thrashing(secs: u64) -> Reading {
    let reclaim =
        Some(Reclaim { scanned_pages: secs * 10_000, refaulted_bytes: secs * 100 * MIB, ..Reclaim::default() });
    Reading { file_bytes: 100 * MIB, reclaim, ..reading(secs, 200) }
}

fn observed(readings: impl IntoIterator<Item = Reading>) -> Memory {
    let mut memory = Memory::default();
    readings.into_iter().for_each(|reading| memory.observe(reading));
    memory
}

/// The finding of `NodeMemoryHealthy`, and that of `MemoryExhaustionImminent`.
fn findings(memory: &Memory) -> [Option<Finding>; 2] {
    memory.views("").map(|view| match view {
        View::Seen { mut findings, .. } => findings.pop(),
        _ => None,
    })
}

/// Whether the memory ran out after any of these readings, one a second.
fn ever_runs_out(available_mib: impl IntoIterator<Item = u64>) -> bool {
    let mut memory = Memory::default();
    (0..).zip(available_mib).any(|(secs, mib)| {
        memory.observe(reading(secs, mib));
        findings(&memory)[1].is_some()
    })
}

/// From 46 % at 0 s to 20 % at 12 s.
fn running_out() -> Memory {
    observed((0..13).map(|secs| reading(secs, 7500 - 350 * secs)))
}

fn oom_kill(memory: OomScope) -> OomKill {
    OomKill { pid: 812, name: "java".into(), cgroup: None, memory }
}

#[test]
fn a_steady_fall_of_little_memory_is_reported_with_its_numbers() {
    let [health, outlook] = findings(&running_out());
    assert_eq!(health, None);
    let outlook = outlook.unwrap();
    assert_eq!(outlook.reason, Reason::MemoryRunsOut);
    let message =
        "4000 MiB (24 %) of the host's memory is available, falling by 350 MiB/s: it is used up in about 11 s";
    assert_eq!(outlook.message, message);
}

#[test]
fn what_comes_and_goes_is_not_reported() {
    // A linker of a build takes 1 GiB in four seconds and gives it back.
    assert!(!ever_runs_out((0..120).map(|secs| 3000 - 250 * [0, 1, 2, 3, 4, 3, 2, 1][secs % 8])));
    // A burst that has ended.
    assert!(!ever_runs_out([9000; 11].into_iter().chain([8000, 7000, 6000, 5000]).chain([4200; 60])));
    // A tmpfs is filled at 50 MiB/s until 2 GiB are left.
    assert!(!ever_runs_out((0..200).map(|secs| 8000_u64.saturating_sub(50 * secs).max(2048))));
    // Steady, with next to nothing available.
    assert!(!ever_runs_out([300; 120]));
}

#[test]
fn without_reclaim_or_with_free_swap_the_memory_is_enough() {
    let falls = |change: fn(Reading) -> Reading| observed((0..13).map(|secs| change(reading(secs, 7500 - 350 * secs))));
    let unread = falls(|reading| Reading { reclaim: None, ..reading });
    let idle = falls(|reading| Reading { reclaim: Some(Reclaim::default()), ..reading });
    let swap = falls(|reading| Reading { swap_free_bytes: 4000 * MIB, ..reading });
    for memory in [unread, idle, swap] {
        assert_eq!(findings(&memory), [None, None], "{memory:?}");
    }
}

#[test]
fn it_is_over_when_enough_is_available_or_it_has_not_fallen_for_a_minute() {
    let mut freed = running_out();
    freed.observe(reading(13, 9000));
    assert!(findings(&freed)[1].is_some(), "it may have been an OOM kill");
    freed.observe(reading(15, 9000));
    assert_eq!(findings(&freed)[1], None);
    let mut lasting = running_out();
    (13..71).for_each(|secs| lasting.observe(reading(secs, 1000)));
    assert!(findings(&lasting)[1].is_some());
    (71..80).for_each(|secs| lasting.observe(reading(secs, 1000)));
    assert_eq!(findings(&lasting)[1], None);
}

#[test]
fn an_oom_kill_is_reported_if_it_was_for_the_hosts_memory_and_little_was_available() {
    let killed = |mut memory: Memory, whose| {
        memory.oom_killed(&oom_kill(whose), at(13));
        findings(&memory)[1].clone()
    };
    let plenty = || observed((0..13).map(|secs| reading(secs, 9000)));
    let little = || observed((0..13).map(|secs| reading(secs, 1000)));
    assert_eq!(killed(plenty(), OomScope::Host), None, "of a NUMA node, or of a cpuset");
    assert_eq!(killed(little(), OomScope::Limit(Some("/kubepods".into()))), None);
    let message = "The kernel OOM-killed java (pid 812) because the host had no memory left";
    assert_eq!(killed(little(), OomScope::Host), Some(Finding::new(Reason::MemoryRunsOut, message)));
}

#[test]
fn thrashing_is_reported_after_a_minute_and_until_then_nothing_changes() {
    let mut memory = Memory::default();
    for secs in 0..60 {
        memory.observe(thrashing(secs));
        assert!(matches!(memory.views("")[0], View::Unchanged(_)), "{secs}");
    }
    memory.observe(thrashing(60));
    let [health, outlook] = findings(&memory).map(Option::unwrap);
    assert_eq!((health.reason, outlook.reason), (Reason::MemoryThrashing, Reason::MemoryRunsOut));
    let message = "200 MiB (1 %) of the host's memory is available: each second the kernel reads back 100 MiB of file pages that it has \
                   just dropped, as only 100 MiB fit into memory";
    assert_eq!((health.message.as_str(), outlook.message.as_str()), (message, message));
    memory.observe(Reading { available_bytes: 900 * MIB, ..thrashing(61) });
    assert_eq!(findings(&memory)[0], None);
}

/// A volume of 125 MB/s cannot read back half of 300 MiB each second, and swap is not read back at all.
#[test]
fn a_host_that_loses_its_time_thrashes_on_a_slow_disk_too_and_a_limited_cgroup_does_not() {
    let loses = |percent: u64, available_mib, stalls_a_second| {
        move |secs| {
            let (lost, stalls) = (Some(Duration::from_millis(secs * percent * 10)), secs * stalls_a_second);
            let reclaim = Some(Reclaim { lost, stalls, ..reading(secs, 0).reclaim.unwrap() });
            Reading { file_bytes: 300 * MIB, reclaim, ..reading(secs, available_mib) }
        }
    };
    let memory = observed((0..61).map(loses(45, 700, 3)));
    let finding = findings(&memory)[0].clone().unwrap();
    let message = "700 MiB (4 %) of the host's memory is available: all tasks stall on memory for 45 % of the time";
    assert_eq!((finding.reason, finding.message.as_str()), (Reason::MemoryThrashing, message));
    assert_eq!(findings(&observed((0..61).map(loses(35, 700, 3))))[0], None);
    for available_mib in [9000, 700] {
        let limited = loses(95, available_mib, 0);
        assert_eq!(findings(&observed((0..61).map(limited)))[0], None, "a Pod at its own limit");
    }
}

#[test]
fn little_memory_alone_and_reading_back_alone_are_no_thrashing() {
    let reads_back_in_a_pod = |secs| Reading { available_bytes: 9000 * MIB, ..thrashing(secs) };
    let kswapd_idles = |secs| Reading {
        reclaim: Some(Reclaim { scanned_pages: 0, ..thrashing(secs).reclaim.unwrap() }),
        ..thrashing(secs)
    };
    let file_cache_suffices = |secs| Reading { file_bytes: 400 * MIB, ..thrashing(secs) };
    let readings: [&dyn Fn(u64) -> Reading; 3] = [&reads_back_in_a_pod, &kswapd_idles, &file_cache_suffices];
    for of in readings {
        assert_eq!(findings(&observed((0..120).map(of)))[0], None, "{:?}", of(0));
    }
}

#[test]
fn the_largest_processes_are_named() {
    let cgroup = Some("/kubepods.slice/pod1".to_owned());
    let consumer = |pid, name: &str, cgroup, memory_mib, growth_mib| {
        let (name, memory_bytes, growth_bytes_per_sec) = (name.to_owned(), memory_mib * MIB, growth_mib * MIB);
        Consumer { pid, name, cgroup, memory_bytes, growth_bytes_per_sec }
    };
    let (grows, large) = (consumer(7, "java", cgroup, 900, 300), consumer(8, "etcd", None, 2000, 0));
    let [_, outlook] = running_out().views(&message::largest(&[grows, large]));
    let View::Seen { findings, .. } = outlook else { panic!("{outlook:?}") };
    let named = "; java (pid 7 of /kubepods.slice/pod1) has 900 MiB, growing by 300 MiB/s; etcd (pid 8) has 2000 MiB";
    assert!(findings[0].message.ends_with(named), "{findings:?}");
}

#[test]
fn readings_are_taken_more_often_while_memory_is_tight_and_only_a_minute_is_kept() {
    let intervals = [13_000, 9000, 7000].map(|mib| observed([reading(0, mib)]).interval());
    assert_eq!(intervals, [5, 2, 1].map(Duration::from_secs));
    let size = format!("{:?}", observed((0..1000).map(|secs| reading(secs, 300)))).matches("Reading {").count();
    assert_eq!(size, 61);
}
