//! The program's heap: dlmalloc, which keeps what was freed. musl's gives each page back at once and asks for it anew, and a page
//! that is asked for while the host has run out of memory is waited for (docs/decisions.md, "A heap that keeps its pages").

use std::{
    alloc::{GlobalAlloc, Layout},
    sync::{Mutex, MutexGuard, PoisonError},
};

use dlmalloc::Dlmalloc;

static DLMALLOC: Mutex<Dlmalloc> = Mutex::new(Dlmalloc::new());

/// The allocator that `main.rs` names as the program's own; all of them are one.
#[derive(Debug)]
pub struct Heap;

fn dlmalloc() -> MutexGuard<'static, Dlmalloc> {
    DLMALLOC.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives back to the kernel what is free at the heap's end, but for so many bytes: after work that needed much more than
/// what comes after it.
#[expect(unsafe_code, reason = "dlmalloc's own")]
pub fn trim(keep_bytes: usize) {
    // SAFETY: only memory that is free is given back, and the lock keeps everybody else out meanwhile.
    unsafe { dlmalloc().trim(keep_bytes) };
}

// SAFETY: dlmalloc upholds what `GlobalAlloc` asks for (it is what std allocates with on WebAssembly), each call is passed on
// with the layout that it came with, and the lock lets one in at a time. It unwinds nowhere: a panic aborts.
#[expect(unsafe_code, reason = "there is no safe way to be an allocator")]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, here and below.
        unsafe { dlmalloc().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { dlmalloc().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; what is freed was given out by `DLMALLOC`, which is the only one.
        unsafe { dlmalloc().free(pointer, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { dlmalloc().realloc(pointer, layout.size(), layout.align(), new_bytes) }
    }
}
