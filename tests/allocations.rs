//! What is sampled while nothing happens allocates nothing: an idle agent does it each second, and on a host that is out of
//! memory an allocation is where it would stand still.
//!
//! A program of its own, because it counts with an allocator of its own.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and finds the machine's own files"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    io::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use nodevigil::{
    checks::memory::{Depth, Limits as Thresholds, Machine},
    clock::Clock,
    config::Settings,
    host::{
        files::{Folder, Root},
        memory_groups::MemoryGroups,
        memory_tables::MemoryTables,
        pressure::{Pressure, Resource},
        process::{self, Watched, Where},
        sample::Limits,
        schedstat::Schedstat,
    },
};

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

#[expect(
    unsafe_code,
    reason = "the trait is unsafe; everything is handed on as it came"
)]
// SAFETY: every call goes to the system's allocator with the very arguments that came, whose contract is the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

const TIMES: u64 = 5_000;

/// How many allocations `sampler` makes in [`TIMES`] calls, once it has opened what it keeps open.
fn count(mut sampler: impl FnMut()) -> u64 {
    sampler();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..TIMES {
        sampler();
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Ourselves, watched as the kubelet is: by a pid file, and a name that begins like one of its own.
fn watch_ourselves(root: &Root) -> Watched {
    nix::sys::prctl::set_name(c"kubelet").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), std::process::id().to_string()).unwrap();
    let place = Where::PidFile(file.path().to_owned());
    let nodevigil::checks::kubelet::Found::One(process) = process::find_kubelet(root, &place)
    else {
        panic!("we are not found");
    };
    Watched::open(root, process).unwrap().unwrap()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let root = Root::default();
    let watched = watch_ourselves(&root);
    let (mut limits, mut folder) = (Limits::new(&root), Folder::new("/run"));
    folder.may_have_changed(&root);
    let mut pressure = Pressure::open(&root, Resource::Cpu).unwrap();
    let own_pid = i32::try_from(std::process::id()).unwrap();
    let mut schedstat = Schedstat::open(&root, own_pid).unwrap();
    let mut memory = MemoryTables::new(&root);
    memory.follow(Some(&watched.process), Some(&watched.process));
    let mut groups = MemoryGroups::new(&root);
    let mut sample = memory.look(Depth::Whole, Clock.now().uptime).unwrap();
    let mut machine = Machine::new(Thresholds::new(&Settings::default()));
    let mut seen = sample;
    let control = count(|| drop(black_box(Box::new(1_u64))));
    assert_eq!(control, TIMES, "the counter counts");
    let samplers: [(&str, &mut dyn FnMut()); 9] = [
        ("the clocks", &mut || {
            black_box(Clock.now());
        }),
        ("limits", &mut || {
            assert!(black_box(limits.look()).threads.is_some());
        }),
        ("state of a process", &mut || {
            assert!(black_box(watched.seen()).is_some());
        }),
        ("memory, all of it", &mut || {
            let look = memory.look(Depth::Whole, Clock.now().uptime);
            assert!(black_box(look).unwrap().reclaim.is_some());
        }),
        ("memory of the control groups", &mut || {
            sample.at += Duration::from_secs(2);
            assert!(black_box(groups.look(&sample)));
        }),
        ("the states of memory", &mut || {
            // Down within a minute, and up again.
            seen.at += Duration::from_millis(100);
            seen.level.available = seen.level.total / 60 * (60 - seen.at.as_secs() % 60);
            black_box(machine.look(&seen));
            black_box((machine.due_at(), machine.depth()));
        }),
        ("stalls of the host", &mut || {
            black_box(pressure.read()).unwrap();
        }),
        ("the scheduler's count", &mut || {
            black_box(schedstat.read()).unwrap();
        }),
        ("the pause file's folder", &mut || {
            black_box(folder.may_have_changed(&root));
        }),
    ];
    let mut out = std::io::stdout();
    for (name, sampler) in samplers {
        let allocations = count(sampler);
        writeln!(out, "{name}: {allocations} allocations in {TIMES} looks").unwrap();
        assert_eq!(allocations, 0, "{name}");
    }
}
