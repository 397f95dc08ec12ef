//! A few places for pieces that are too large for the heap that keeps its pages and are needed for a moment again and again: a
//! record of TLS that is taken apart, a frame of HTTP/2, a Node with its images. Their pages stay once they were touched, so that
//! no answer of the API server waits for one while the host has none; there are so few that this costs 256 KiB at most.

use std::{
    cell::UnsafeCell,
    ptr::NonNull,
    sync::atomic::{AtomicU8, Ordering},
};

/// The size of one: rustls reads a record into up to 20 KiB, and a Node with fifty images has as much.
pub(super) const SLOT_BYTES: usize = 32 * 1024;
/// At most so strictly may a piece be aligned.
pub(super) const ALIGN: usize = 4096;
/// The way of an answer (record, plain text, frame, what is put together of it), and as many for a second one.
const SLOTS: usize = 8;

/// Aligned as pages are ([`ALIGN`]), so that none belongs to two of them.
#[repr(align(4096))]
struct Memory(UnsafeCell<[[u8; SLOT_BYTES]; SLOTS]>);

// SAFETY: nothing reads or writes it but who was given one of its slots, and `TAKEN` gives each to one at a time.
#[expect(unsafe_code, reason = "the memory is shared out by an allocator")]
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([[0; SLOT_BYTES]; SLOTS]));
/// A bit for each slot that somebody has.
static TAKEN: AtomicU8 = AtomicU8::new(0);

/// The first that is free; `None` if all are taken.
pub(super) fn take() -> Option<NonNull<u8>> {
    let free = |taken: u8| taken.trailing_ones();
    let taken = TAKEN
        .fetch_update(Ordering::Acquire, Ordering::Relaxed, |taken| {
            let slot = free(taken);
            ((slot as usize) < SLOTS).then(|| taken | 1 << slot)
        })
        .ok()?;
    NonNull::new(begin().wrapping_add(free(taken) as usize * SLOT_BYTES))
}

/// Whether this is a piece that [`take`] gave.
pub(super) fn has(pointer: *mut u8) -> bool {
    slot_of(pointer) < SLOTS
}

/// The slot of this piece is free again. What is none of ours is left alone.
pub(super) fn give_back(pointer: *mut u8) {
    let slot = slot_of(pointer);
    if slot < SLOTS {
        TAKEN.fetch_and(!(1 << slot), Ordering::Release);
    }
}

fn begin() -> *mut u8 {
    MEMORY.0.get().cast()
}

fn slot_of(pointer: *mut u8) -> usize {
    pointer.addr().wrapping_sub(begin().addr()) / SLOT_BYTES
}

/// There is one memory, and more than one test of it.
#[cfg(test)]
pub(super) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap()
}

#[cfg(test)]
mod tests {
    use std::{ptr, thread};

    use super::*;

    #[test]
    fn each_slot_is_given_to_one_at_a_time_and_the_first_that_is_free_is_next() {
        let _alone = alone();
        assert_eq!(begin().addr() % ALIGN, 0);
        assert_eq!(size_of::<Memory>(), 256 * 1024);
        let all: Vec<_> = std::iter::from_fn(take).collect();
        assert_eq!(all.len(), SLOTS);
        for pair in all.windows(2) {
            assert_eq!(pair[0].addr().get() + SLOT_BYTES, pair[1].addr().get());
        }
        assert!(all.iter().all(|slot| has(slot.as_ptr())));
        let foreign: [*mut u8; 3] = [
            ptr::null_mut(),
            begin().wrapping_sub(1),
            begin().wrapping_add(size_of::<Memory>()),
        ];
        for pointer in foreign {
            assert!(!has(pointer));
            give_back(pointer);
            assert_eq!(take(), None);
        }
        give_back(all[4].as_ptr());
        give_back(all[1].as_ptr());
        assert_eq!((take(), take(), take()), (Some(all[1]), Some(all[4]), None));
        for slot in &all {
            give_back(slot.as_ptr());
        }
        thread::scope(|scope| {
            for id in 0..8 {
                scope.spawn(move || (0..2000).for_each(|_| fill(id)));
            }
        });
        assert_eq!(std::iter::from_fn(take).count(), SLOTS);
        TAKEN.store(0, Ordering::Relaxed);
    }

    #[expect(unsafe_code, reason = "what was given is written to")]
    fn fill(id: u8) {
        let Some(slot) = take() else {
            return thread::yield_now();
        };
        // SAFETY: the slot is ours until it is given back, and as large.
        unsafe {
            slot.write_bytes(id, SLOT_BYTES);
            thread::yield_now();
            let bytes = std::slice::from_raw_parts(slot.as_ptr(), SLOT_BYTES);
            assert!(bytes.iter().all(|byte| *byte == id));
        }
        give_back(slot.as_ptr());
    }
}
