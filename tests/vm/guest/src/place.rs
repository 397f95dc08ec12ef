//! What the loads and the recorder have in common: locked pages, and dice.

use rustix::mm::MlockAllFlags;

use crate::Outcome;

/// Keeps every page of this process in memory: who measures must not be measured.
pub(crate) fn lock_pages() -> Outcome {
    rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|why| format!("locking pages: {why}"))?;
    Ok(())
}

/// Random enough for choosing pages and for bytes that do not compress.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The same in every run.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next 64 bits.
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One of `many`.
    pub(crate) fn below(&mut self, many: usize) -> usize {
        usize::try_from(self.roll() >> 16).map_or(0, |value| value % many.max(1))
    }
}
