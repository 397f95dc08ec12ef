use procfs::{Current, Meminfo, MemoryPressure};

use super::*;
use crate::host::kept::put;

const MIB: u64 = 1 << 20;

fn host() -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    put(
        &root,
        "/proc/meminfo",
        "MemTotal:  1024 kB\nMemAvailable: 512 kB\n",
    );
    (folder, root)
}

fn psi(some: u64, full: u64) -> String {
    let line = |which, total| format!("{which} avg10=1.50 avg60=0.00 avg300=0.00 total={total}\n");
    line("some", some) + &line("full", full)
}

fn whole(tables: &mut MemoryTables, secs: u64) -> Sample {
    tables
        .look(Depth::Whole, Duration::from_secs(secs))
        .unwrap()
}

#[test]
fn each_table_is_read() {
    let (_folder, root) = host();
    put(
        &root,
        "/proc/meminfo",
        "MemTotal:       1000 kB\nMemFree:          20 kB\nMemAvailable:    100 kB\nBuffers:           1 kB\n\
         Active(anon):      7 kB\nActive(file):     30 kB\nInactive(file):   40 kB\nSwapTotal:       500 kB\n\
         SwapFree:        400 kB\nAnonPages:       300 kB\nShmem:            11 kB\nSUnreclaim:        2 kB\n\
         KernelStack:       3 kB\nPageTables:        4 kB\nHugePages_Total:       1\nHugetlb:         200 kB\n",
    );
    put(&root, "/proc/pressure/memory", &psi(77, 7));
    put(
        &root,
        "/proc/vmstat",
        "nr_free_pages 1\nworkingset_refault_anon 1\nworkingset_refault_file 5\nallocstall_dma32 1\nallocstall_normal 2\n\
         allocstall_movable 3\npgsteal_kswapd 8\npgsteal_direct 100\npgscan_kswapd 9\npgscan_direct 100\noom_kill 4\nballoon_inflate 0\n",
    );
    let zone = |high| {
        format!(
            "Node 0, zone   X\n  pages free     3840\n        low      1\n        high     {high}\n        managed  9\n  \
             pagesets\n    cpu: 0\n              count: 1\n              high:  5\n"
        )
    };
    put(&root, "/proc/zoneinfo", &(zone(3) + &zone(2)));
    let mut tables = MemoryTables::new(&root);
    let at = Duration::from_secs(9);
    let kib = |n: u64| Some(n * 1024);
    let little = tables.look(Depth::Level, at).unwrap();
    let wanted = Sample {
        at,
        level: Level {
            total: 800 * 1024,
            available: 100 * 1024,
            free: kib(20),
            anon: kib(300),
            file: kib(70),
            shmem: kib(11),
            kernel: kib(9),
            reserve: Some(5 * procfs::page_size()),
            swap_total: kib(500),
            swap_free: kib(400),
        },
        stall: Some(Stall {
            some_us: 77,
            full_us: 7,
        }),
        ..Sample::default()
    };
    assert_eq!(little, wanted);
    let reclaim = Reclaim {
        scanned: 9,
        stolen: Some(8),
        stalls: Some(6),
        refaulted: 5,
        page: procfs::page_size(),
        oom_kills: 4,
    };
    let mut wanted = wanted;
    wanted.reclaim = Some(reclaim);
    assert_eq!(tables.look(Depth::Whole, at).unwrap(), wanted);
    let wanted = Sample {
        at,
        level: Level {
            anon: None,
            shmem: None,
            kernel: None,
            ..wanted.level
        },
        ..Sample::default()
    };
    assert_eq!(tables.look(Depth::Head, at).unwrap(), wanted);
}

#[test]
fn kernels_before_5_9_call_a_refault_otherwise() {
    let (_folder, root) = host();
    put(
        &root,
        "/proc/vmstat",
        "workingset_refault 5\npgscan_kswapd 9\noom_kill 0\n",
    );
    let reclaim = whole(&mut MemoryTables::new(&root), 1).reclaim.unwrap();
    assert_eq!(
        (reclaim.refaulted, reclaim.stolen, reclaim.stalls),
        (5, None, None)
    );
}

#[test]
fn what_is_not_there_is_not_known_and_without_a_level_nothing_is() {
    let (_folder, root) = host();
    let mut tables = MemoryTables::new(&root);
    let sample = whole(&mut tables, 1);
    let wanted = Sample {
        at: Duration::from_secs(1),
        level: Level {
            total: MIB,
            available: MIB / 2,
            ..Level::default()
        },
        ..Sample::default()
    };
    assert_eq!(sample, wanted);
    put(&root, "/proc/meminfo", "MemTotal:  1024 kB\n");
    let why = tables.look(Depth::Level, Duration::ZERO).unwrap_err();
    assert!(why.contains("MemAvailable"), "{why}");
}

#[test]
fn pressure_that_may_not_be_read_is_none() {
    let (_folder, root) = host();
    // As a table is that opens and refuses to be read.
    root.create_dir_all("/proc/pressure/memory").unwrap();
    let mut tables = MemoryTables::new(&root);
    for second in 0..70 {
        assert_eq!(whole(&mut tables, second).stall, None);
    }
}

/// Where a process's group has its pressure, on each of the three kinds of hosts.
#[test]
fn the_pressure_of_a_processs_own_group_is_found_on_v2_and_hybrid() {
    let process = |pid| Process {
        pid,
        started: Duration::ZERO,
    };
    let v2 = ("0::/system.slice/kubelet.service\n", "/sys/fs/cgroup");
    let hybrid = (
        "9:memory:/elsewhere\n1:name=systemd:/system.slice/kubelet.service\n0::/system.slice/kubelet.service\n",
        "/sys/fs/cgroup/unified",
    );
    for (own, mount) in [v2, hybrid] {
        let (_folder, root) = host();
        put(&root, "/proc/7/cgroup", own);
        put(&root, "/proc/8/cgroup", "0::/a.slice\n");
        let pressure = format!("{mount}/system.slice/kubelet.service/memory.pressure");
        put(&root, &pressure, &psi(9, 5));
        put(
            &root,
            &format!("{mount}/a.slice/memory.pressure"),
            &psi(4, 3),
        );
        // The host's own is nobody's.
        put(&root, &format!("{mount}/memory.pressure"), &psi(99, 99));
        let mut tables = MemoryTables::new(&root);
        assert_eq!(whole(&mut tables, 0).kubelet_full_us, None);
        tables.follow(Some(&process(7)), Some(&process(8)));
        let sample = whole(&mut tables, 1);
        assert_eq!(
            (sample.kubelet_full_us, sample.runtime_full_us),
            (Some(5), Some(3))
        );
        put(&root, "/proc/9/cgroup", "0::/\n");
        put(&root, "/proc/10/cgroup", "0::/../other\n");
        for pid in [9, 10] {
            tables.follow(Some(&process(pid)), None);
            let sample = whole(&mut tables, 2);
            assert_eq!(
                (sample.kubelet_full_us, sample.runtime_full_us),
                (None, None)
            );
        }
    }
    let (_folder, root) = host();
    put(
        &root,
        "/proc/7/cgroup",
        "9:memory:/system.slice/kubelet.service\n",
    );
    let mut v1 = MemoryTables::new(&root);
    v1.follow(Some(&process(7)), None);
    assert_eq!(whole(&mut v1, 1).kubelet_full_us, None);
}

#[test]
fn the_group_of_all_pods_counts_where_it_has_a_limit() {
    for (folder, used, max, stat) in [
        (
            "kubepods.slice",
            "memory.current",
            "memory.max",
            "inactive_file",
        ),
        ("kubepods", "memory.current", "memory.max", "inactive_file"),
        (
            "memory/kubepods",
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
            "inactive_file 1\ntotal_inactive_file",
        ),
        (
            "memory/kubepods.slice",
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
            "inactive_file 1\ntotal_inactive_file",
        ),
    ] {
        let (_folder, root) = host();
        let file = |name: &str| format!("/sys/fs/cgroup/{folder}/{name}");
        put(&root, &file(used), "1000\n");
        put(&root, &file(max), "max\n");
        put(
            &root,
            &file("memory.stat"),
            &format!("anon 5\n{stat} 300\n"),
        );
        let mut tables = MemoryTables::new(&root);
        assert_eq!(whole(&mut tables, 0).pods, None, "{folder}");
        put(&root, &file(max), "9223372036854771712\n");
        assert_eq!(whole(&mut tables, 0).pods, None, "{folder}");
        put(&root, &file(max), "4000\n");
        let group = |used| Some(Group { used, limit: 4000 });
        assert_eq!(whole(&mut tables, 1).pods, group(700), "{folder}");
        // What the kernel has to sum up is not read at each look.
        put(
            &root,
            &file("memory.stat"),
            &format!("anon 5\n{stat} 100\n"),
        );
        assert_eq!(whole(&mut tables, 2).pods, group(700), "{folder}");
        assert_eq!(whole(&mut tables, 3).pods, group(900), "{folder}");
    }
}

#[test]
fn only_zram_that_is_swap_counts_and_it_is_found_when_it_comes() {
    let (_folder, root) = host();
    let meminfo = |swap: u64| {
        let text = format!("MemTotal: 9 kB\nMemAvailable: 8 kB\nSwapTotal: {swap} kB\n");
        put(&root, "/proc/meminfo", &text);
    };
    for (device, stat) in [("zram0", "10 7 8 0 9 0 0 0"), ("zram1", "1 2 3 0\n")] {
        put(&root, &format!("/sys/block/{device}/mm_stat"), stat);
    }
    put(&root, "/sys/block/zram2/mm_stat", "100 100 100 0\n"); // somebody's /tmp
    let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
    put(&root, "/proc/swaps", head);
    meminfo(0);
    let mut tables = MemoryTables::new(&root);
    assert_eq!(whole(&mut tables, 0).zram, None);
    let swaps =
        "/dev/zram0 partition 4 0 100\n/dev/sda2 partition 4 0 -2\n/dev/zram1 partition 4 0 100\n";
    put(&root, "/proc/swaps", &(head.to_owned() + swaps));
    meminfo(12);
    let sum = Zram {
        stored: 11,
        used: 11,
    };
    assert_eq!(whole(&mut tables, 1).zram, Some(sum));
    put(&root, "/proc/swaps", head);
    meminfo(0);
    assert_eq!(whole(&mut tables, 2).zram, None);
}

/// Ours and the procfs crate's, on this machine. What moves between two reads is read again.
#[test]
fn our_reading_is_that_of_the_procfs_crate() {
    let mut tables = MemoryTables::new(&Root::default());
    let sum = |all: [Option<u64>; 2]| all[0].zip(all[1]).map(|(a, b)| a + b);
    let mut same = [false; 3];
    for _ in 0..10_000 {
        let ours = tables.look(Depth::Whole, Duration::ZERO).unwrap();
        let theirs = Meminfo::current().unwrap();
        let level = Level {
            total: theirs.mem_total - theirs.hugetlb.unwrap_or(0),
            available: theirs.mem_available.unwrap(),
            free: Some(theirs.mem_free),
            anon: theirs.anon_pages,
            file: sum([theirs.active_file, theirs.inactive_file]),
            shmem: theirs.shmem,
            kernel: sum([
                sum([theirs.s_unreclaim, theirs.kernel_stack]),
                theirs.page_tables,
            ]),
            reserve: ours.level.reserve,
            swap_total: Some(theirs.swap_total),
            swap_free: Some(theirs.swap_free),
        };
        let stall = MemoryPressure::current().ok().map(|stall| Stall {
            some_us: stall.some.total,
            full_us: stall.full.total,
        });
        let vmstat = procfs::vmstat().unwrap();
        let begins = |with: &str| {
            let those = vmstat.iter().filter(|(name, _)| name.starts_with(with));
            those.map(|(_, count)| u64::try_from(*count).unwrap()).sum()
        };
        let reclaim = Reclaim {
            scanned: begins("pgscan_kswapd"),
            stolen: Some(begins("pgsteal_kswapd")),
            stalls: Some(begins("allocstall")),
            refaulted: begins("workingset_refault_file"),
            page: procfs::page_size(),
            oom_kills: begins("oom_kill"),
        };
        same[0] |= ours.level == level;
        same[1] |= ours.stall == stall;
        same[2] |= ours.reclaim == Some(reclaim);
        if same == [true; 3] {
            assert!(ours.level.reserve.is_some_and(|bytes| bytes > 0));
            return;
        }
    }
    panic!("never the same: level, stall, reclaim {same:?}");
}
