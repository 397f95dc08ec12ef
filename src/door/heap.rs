//! The program's heap. A daemon's is dlmalloc, which keeps what was freed: musl's gives each page back at once and asks for it
//! anew, and a page that is asked for while the host has run out of memory is waited for (docs/decisions.md, "A heap that keeps
//! its pages"). Every other command has musl's: it ends a moment later.

mod slots;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use dlmalloc::Dlmalloc;
use rustix::fs::{Mode, OFlags};

static DLMALLOC: Mutex<Dlmalloc> = Mutex::new(Dlmalloc::new());

/// The largest piece that dlmalloc gives out: most of what an apply takes is smaller.
const MOST_BYTES: usize = 12 * 1024;

const UNDECIDED: u8 = 0;
/// Small pieces are dlmalloc's.
const KEEPS: u8 = 1;
/// Large ones are in slots besides, as long as one is free.
const KEEPS_LARGE: u8 = 2;
const GIVES_BACK: u8 = 3;
static CHOICE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// The allocator that `main.rs` names as the program's own.
#[derive(Debug)]
pub struct Heap;

fn dlmalloc() -> MutexGuard<'static, Dlmalloc> {
    DLMALLOC.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what large pieces are made of, too, from now on; nothing, if this is no daemon. Called when all has been allocated that
/// stays: a slot is for a moment.
pub fn keep_large_pieces() {
    let (from, to) = (KEEPS, KEEPS_LARGE);
    // Where it is another choice, that stays.
    let _ = CHOICE.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
}

/// Decided by the first allocation, which comes before there is a second thread, for as long as the process lives.
fn choice() -> u8 {
    match CHOICE.load(Ordering::Relaxed) {
        UNDECIDED => {
            let choice = if is_daemon() { KEEPS } else { GIVES_BACK };
            CHOICE.store(choice, Ordering::Relaxed);
            choice
        }
        choice => choice,
    }
}

/// Whether this process is `nodevigil run …` or `nodevigil helper …`. Nobody has parsed the command line yet, and nothing here may
/// allocate.
fn is_daemon() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(c"/proc/self/cmdline", flags, Mode::empty()) else {
        return false;
    };
    let mut line = [0; 4096];
    let length = rustix::io::read(&file, &mut line).unwrap_or(0);
    is_of_daemon(&line[..length])
}

fn is_of_daemon(command_line: &[u8]) -> bool {
    let subcommand = command_line.split(|byte| *byte == 0).nth(1);
    subcommand.is_some_and(|word| [&b"run"[..], b"helper"].contains(&word))
}

/// Who has a piece. What is larger than a slot is musl's everywhere: a body of some megabytes would leave a hole in dlmalloc's that
/// nobody fills again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Dlmalloc,
    Slots,
    Musl,
}

/// Who gives out what is so large, if it has a place for it.
fn giver(layout: Layout) -> Owner {
    let fits_slot = layout.size() <= slots::SLOT_BYTES && layout.align() <= slots::ALIGN;
    match choice() {
        KEEPS | KEEPS_LARGE if layout.size() <= MOST_BYTES => Owner::Dlmalloc,
        KEEPS_LARGE if fits_slot => Owner::Slots,
        _ => Owner::Musl,
    }
}

/// Who gave this out.
fn owner(pointer: *mut u8, layout: Layout) -> Owner {
    match giver(layout) {
        Owner::Slots if !slots::has(pointer) => Owner::Musl,
        owner => owner,
    }
}

// SAFETY: both allocators uphold what `GlobalAlloc` asks for (std itself allocates with dlmalloc on WebAssembly), and a slot is
// one caller's until it is given back. Which of them gives something out hangs on its size, on a choice that is made before
// anything is given out (that slots are used comes later, and whoever has a slot knows it), and on whether one is free; with the size
// that a caller must tell again, and its address, what is freed or grown goes to the one that gave it. The lock lets one thread in
// at a time. Nothing unwinds: a panic aborts.
#[expect(unsafe_code, reason = "there is no safe way to be an allocator")]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, here and below.
        unsafe {
            match giver(layout) {
                Owner::Dlmalloc => dlmalloc().malloc(layout.size(), layout.align()),
                Owner::Slots => match slots::take() {
                    Some(slot) => slot.as_ptr(),
                    None => System.alloc(layout),
                },
                Owner::Musl => System.alloc(layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above; a slot is as large as was asked for.
        unsafe {
            match giver(layout) {
                Owner::Dlmalloc => dlmalloc().calloc(layout.size(), layout.align()),
                Owner::Slots => match slots::take() {
                    Some(slot) => {
                        slot.write_bytes(0, layout.size());
                        slot.as_ptr()
                    }
                    None => System.alloc_zeroed(layout),
                },
                Owner::Musl => System.alloc_zeroed(layout),
            }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe {
            match owner(pointer, layout) {
                Owner::Dlmalloc => dlmalloc().free(pointer, layout.size(), layout.align()),
                Owner::Slots => slots::give_back(pointer),
                Owner::Musl => System.dealloc(pointer, layout),
            }
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: as above; where it goes from one to another, both places are that large, and none is the other.
        unsafe {
            let new = Layout::from_size_align_unchecked(new_bytes, layout.align());
            match (owner(pointer, layout), giver(new)) {
                (Owner::Dlmalloc, Owner::Dlmalloc) => {
                    dlmalloc().realloc(pointer, layout.size(), layout.align(), new_bytes)
                }
                // There is room in it already.
                (Owner::Slots, Owner::Slots) => pointer,
                // What musl gave because no slot was free stays there until it is small.
                (Owner::Musl, Owner::Musl | Owner::Slots) => {
                    System.realloc(pointer, layout, new_bytes)
                }
                _ => {
                    let to = self.alloc(new);
                    if !to.is_null() {
                        ptr::copy_nonoverlapping(pointer, to, layout.size().min(new_bytes));
                        self.dealloc(pointer, layout);
                    }
                    to
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_and_shrinks_over_every_bound_stays_what_it_is() {
        let _alone = slots::alone();
        let mut early = None;
        let sizes = [
            100,
            MOST_BYTES,
            MOST_BYTES + 1,
            slots::SLOT_BYTES,
            slots::SLOT_BYTES + 1,
            1 << 20,
            20_000,
            200,
            20_000,
            5_000,
        ];
        for choice in [GIVES_BACK, KEEPS, KEEPS_LARGE] {
            if choice == KEEPS_LARGE {
                keep_large_pieces();
            } else {
                CHOICE.store(choice, Ordering::Relaxed);
            }
            walk(&sizes);
            // So many that some find no slot, and one from before there were any.
            let others = (0..20).map(|_| filled(MOST_BYTES + 1));
            let all: Vec<_> = early.take().into_iter().chain(others).collect();
            if choice == KEEPS {
                early = Some(filled(20_000));
            }
            for (place, layout) in all {
                let (place, layout) = regrown(place, layout, 25_000);
                let (place, layout) = regrown(place, layout, 40_000);
                freed(place, layout);
            }
        }
        assert_eq!(CHOICE.swap(UNDECIDED, Ordering::Relaxed), KEEPS_LARGE);
    }

    fn walk(sizes: &[usize]) {
        let (mut place, mut layout) = filled(sizes[0]);
        for bytes in &sizes[1..] {
            (place, layout) = regrown(place, layout, *bytes);
        }
        freed(place, layout);
    }

    #[expect(unsafe_code, reason = "an allocator is asked as std asks it")]
    fn filled(bytes: usize) -> (*mut u8, Layout) {
        let layout = Layout::from_size_align(bytes, 16).unwrap();
        // SAFETY: what was asked for is read and written, no more.
        unsafe {
            let dirty = Heap.alloc(layout);
            dirty.write_bytes(9, bytes);
            Heap.dealloc(dirty, layout);
            let place = Heap.alloc_zeroed(layout);
            assert!(is_all(place, bytes, 0));
            place.write_bytes(7, bytes);
            (place, layout)
        }
    }

    #[expect(unsafe_code, reason = "an allocator is asked as std asks it")]
    fn regrown(place: *mut u8, layout: Layout, bytes: usize) -> (*mut u8, Layout) {
        // SAFETY: the size is told again as it was asked for, and nothing is read or written beyond it.
        unsafe {
            let new = Heap.realloc(place, layout, bytes);
            assert!(
                is_all(new, bytes.min(layout.size()), 7),
                "{layout:?} {bytes}"
            );
            new.write_bytes(7, bytes);
            (new, Layout::from_size_align(bytes, 16).unwrap())
        }
    }

    #[expect(unsafe_code, reason = "an allocator is asked as std asks it")]
    fn freed(place: *mut u8, layout: Layout) {
        assert!(is_all(place, layout.size(), 7), "{layout:?}");
        // SAFETY: the size is told again as it was asked for.
        unsafe { Heap.dealloc(place, layout) };
    }

    #[expect(unsafe_code, reason = "what was given is read")]
    fn is_all(place: *mut u8, bytes: usize, value: u8) -> bool {
        // SAFETY: so much was asked for at this place.
        unsafe { std::slice::from_raw_parts(place, bytes) }
            .iter()
            .all(|byte| *byte == value)
    }

    #[test]
    fn a_daemon_is_known_by_its_first_word() {
        for (line, is) in [
            (&b"/usr/bin/nodevigil\0run\0"[..], true),
            (b"nodevigil\0run\0--config\0x\0", true),
            (b"nodevigil\0helper\0--socket\0x\0", true),
            (b"nodevigil\0runs\0", false),
            (b"nodevigil\0check\0run\0", false),
            (b"nodevigil\0", false),
            (b"", false),
        ] {
            assert_eq!(is_of_daemon(line), is, "{}", String::from_utf8_lossy(line));
        }
        assert!(!is_daemon(), "this is a test");
    }
}
