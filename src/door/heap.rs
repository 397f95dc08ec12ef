//! The program's heap. A daemon's is dlmalloc, which keeps what was freed: musl's gives each page back at once and asks for it
//! anew, and a page that is asked for while the host has run out of memory is waited for (docs/decisions.md, "A heap that keeps
//! its pages"). Every other command has musl's: it ends a moment later.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use dlmalloc::Dlmalloc;
use rustix::fs::{Mode, OFlags};

static DLMALLOC: Mutex<Dlmalloc> = Mutex::new(Dlmalloc::new());

/// The largest piece that dlmalloc gives out: a frame of HTTP/2 and a record of TLS are larger when they are full, and what an
/// apply takes is smaller.
const MOST_BYTES: usize = 12 * 1024;

const UNDECIDED: u8 = 0;
const KEEPS: u8 = 1;
const GIVES_BACK: u8 = 2;
static CHOICE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// The allocator that `main.rs` names as the program's own.
#[derive(Debug)]
pub struct Heap;

fn dlmalloc() -> MutexGuard<'static, Dlmalloc> {
    DLMALLOC.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decided by the first allocation, which comes before there is a second thread, for as long as the process lives.
fn keeps_pages() -> bool {
    match CHOICE.load(Ordering::Relaxed) {
        UNDECIDED => {
            let keeps = is_daemon();
            let choice = if keeps { KEEPS } else { GIVES_BACK };
            CHOICE.store(choice, Ordering::Relaxed);
            keeps
        }
        choice => choice == KEEPS,
    }
}

/// Whether this process is `nodevigil run …` or `nodevigil helper …`. Nobody has parsed the command line yet, and nothing here may allocate.
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

/// Whether dlmalloc gives out what is so large. What is larger is musl's everywhere: a body of some megabytes comes in pieces of
/// this size and more, and would leave a hole that nobody fills again.
fn is_kept(bytes: usize) -> bool {
    bytes <= MOST_BYTES && keeps_pages()
}

// SAFETY: both allocators uphold what `GlobalAlloc` asks for (std itself allocates with dlmalloc on WebAssembly). Which of them
// gives something out hangs on its size and on a choice that is made before anything is given out; with the size that a caller
// must tell again what is freed or grown goes to the one that gave it. The lock lets one thread in at a time. Nothing unwinds: a
// panic aborts.
#[expect(unsafe_code, reason = "there is no safe way to be an allocator")]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, here and below.
        unsafe {
            if is_kept(layout.size()) {
                dlmalloc().malloc(layout.size(), layout.align())
            } else {
                System.alloc(layout)
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_kept(layout.size()) {
                dlmalloc().calloc(layout.size(), layout.align())
            } else {
                System.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe {
            if is_kept(layout.size()) {
                dlmalloc().free(pointer, layout.size(), layout.align());
            } else {
                System.dealloc(pointer, layout);
            }
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: as above; where it goes from one to the other, both places are that large, and none is the other.
        unsafe {
            match (is_kept(layout.size()), is_kept(new_bytes)) {
                (true, true) => {
                    dlmalloc().realloc(pointer, layout.size(), layout.align(), new_bytes)
                }
                (false, false) => System.realloc(pointer, layout, new_bytes),
                _ => {
                    let new = Layout::from_size_align_unchecked(new_bytes, layout.align());
                    let to = self.alloc(new);
                    if !to.is_null() {
                        let bytes = layout.size().min(new_bytes);
                        std::ptr::copy_nonoverlapping(pointer, to, bytes);
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
    #[expect(unsafe_code, reason = "an allocator is asked as std asks it")]
    fn what_grows_over_the_bound_and_shrinks_below_it_stays_what_it_is() {
        CHOICE.store(KEEPS, Ordering::Relaxed);
        let layout = |bytes: usize| Layout::from_size_align(bytes, 16).unwrap();
        let sizes = [100, MOST_BYTES, MOST_BYTES + 1, 1 << 20, 20_000, 200, 5_000];
        // SAFETY: each size is told again as it was asked for, and nothing is read beyond it.
        unsafe {
            let mut place = Heap.alloc_zeroed(layout(sizes[0]));
            assert_eq!(*place.add(99), 0);
            place.write_bytes(7, 100);
            for pair in sizes.windows(2) {
                place = Heap.realloc(place, layout(pair[0]), pair[1]);
                let kept = std::slice::from_raw_parts(place, 100);
                assert!(kept.iter().all(|byte| *byte == 7), "{pair:?}");
            }
            Heap.dealloc(place, layout(5_000));
        }
        CHOICE.store(UNDECIDED, Ordering::Relaxed);
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
