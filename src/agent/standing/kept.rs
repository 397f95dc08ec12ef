//! Which pauses were warned of, over restarts of the agent; and what is ignored, for `status`.

use super::{
    Standing,
    asked::{Asked, Which},
};

/// How many pauses are kept of whose end was warned: there are a file and an annotation at a time.
const MAX_WARNED: usize = 16;

impl Standing {
    /// The pauses whose end was warned of, for the ledger.
    pub(in crate::agent) fn warned(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.warned.iter().copied().map(Which::key).collect();
        keys.extend(self.warned_before.iter().cloned());
        keys.truncate(MAX_WARNED);
        keys
    }

    /// What an earlier life kept of that.
    pub(in crate::agent) fn have_warned(&mut self, keys: Vec<String>) {
        self.warned_before = keys;
        self.warned_before.truncate(MAX_WARNED);
    }

    /// What is asked for too long, and ignored.
    pub(in crate::agent) fn ignored(&self) -> Vec<String> {
        self.over.iter().map(Asked::ignored).collect()
    }

    /// Those of an earlier life that are asked for still have been warned of.
    pub(super) fn meet_those_warned_before(&mut self, asked: &[Asked]) {
        for asked in asked {
            let key = asked.which.key();
            if self.warned_before.contains(&key) {
                self.warned_before.retain(|before| *before != key);
                self.warned.push(asked.which);
            }
        }
    }
}
