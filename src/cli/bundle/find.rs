//! Finds many texts in one, all at once: the automaton of Aho and Corasick. Its time is that of reading the text once, however
//! many are looked for and however they overlap, and its memory 15 bytes for each byte of what is looked for.

use std::{collections::VecDeque, ops::Range};

/// The state in which nothing has been found, and the end of a list of states.
const START: u32 = 0;
/// Every byte has a place of its own in the first state, which nearly all of a text is read in.
const BYTES: usize = 256;

/// What is looked for. A state is the beginning of one or more texts; it has a number, by which these lists are read.
#[derive(Debug)]
pub(super) struct Finder {
    first: [u32; BYTES],
    /// The byte that leads there.
    byte: Vec<u8>,
    /// One of the states that follow it, and the next that follows the same one.
    child: Vec<u32>,
    sibling: Vec<u32>,
    /// The longest other beginning that the text read so far ends with.
    fallback: Vec<u32>,
    /// How long the longest text is that ends here; 0 for none.
    found: Vec<u16>,
}

impl Finder {
    /// Looks for these; one that is longer than 65535 bytes is not found.
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Self {
        let states = 1 + texts.clone().map(str::len).sum::<usize>();
        let mut finder = Self {
            first: [START; BYTES],
            byte: Vec::with_capacity(states),
            child: Vec::with_capacity(states),
            sibling: Vec::with_capacity(states),
            fallback: Vec::with_capacity(states),
            found: Vec::with_capacity(states),
        };
        finder.add_state(0, START);
        for text in texts {
            finder.add(text.as_bytes());
        }
        finder.link();
        finder
    }

    /// The parts of `text` that hold what is looked for, in their order. Those that touch or overlap are one.
    pub(super) fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut state = START;
        for (at, byte) in text.bytes().enumerate() {
            state = self.next(state, byte);
            let length = usize::from(self.found[state as usize]);
            if length == 0 {
                continue;
            }
            let (mut start, end) = (at + 1 - length, at + 1);
            while let Some(last) = found.pop_if(|last| last.end >= start) {
                start = start.min(last.start);
            }
            found.push(start..end);
        }
        found
    }

    fn add_state(&mut self, byte: u8, sibling: u32) -> u32 {
        let state = u32::try_from(self.byte.len()).unwrap_or(u32::MAX);
        self.byte.push(byte);
        self.child.push(START);
        self.sibling.push(sibling);
        self.fallback.push(START);
        self.found.push(0);
        state
    }

    fn add(&mut self, text: &[u8]) {
        let Ok(length) = u16::try_from(text.len()) else {
            return;
        };
        let mut state = START;
        for byte in text {
            state = match self.follow(state, *byte) {
                START if state == START => {
                    let new = self.add_state(*byte, START);
                    self.first[usize::from(*byte)] = new;
                    new
                }
                START => {
                    let new = self.add_state(*byte, self.child[state as usize]);
                    self.child[state as usize] = new;
                    new
                }
                known => known,
            };
        }
        self.found[state as usize] = length;
    }

    /// The state that follows by this byte; [`START`] if none does.
    fn follow(&self, state: u32, byte: u8) -> u32 {
        if state == START {
            return self.first[usize::from(byte)];
        }
        let mut child = self.child[state as usize];
        while child != START && self.byte[child as usize] != byte {
            child = self.sibling[child as usize];
        }
        child
    }

    /// The state after this byte: of the longest beginning that goes on with it.
    fn next(&self, mut state: u32, byte: u8) -> u32 {
        loop {
            let next = self.follow(state, byte);
            if next != START || state == START {
                return next;
            }
            state = self.fallback[state as usize];
        }
    }

    /// Links each state to its fallback, the shorter ones first: a fallback is shorter.
    fn link(&mut self) {
        let mut queue: VecDeque<u32> = self
            .first
            .into_iter()
            .filter(|state| *state != START)
            .collect();
        while let Some(state) = queue.pop_front() {
            let fallback = self.fallback[state as usize];
            if self.found[state as usize] == 0 {
                self.found[state as usize] = self.found[fallback as usize];
            }
            let mut child = self.child[state as usize];
            while child != START {
                self.fallback[child as usize] = self.next(fallback, self.byte[child as usize]);
                queue.push_back(child);
                child = self.sibling[child as usize];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(texts: &[&str], text: &str) -> Vec<Range<usize>> {
        Finder::new(texts.iter().copied()).find(text)
    }

    /// The same by looking for each by itself, everywhere.
    fn one_by_one(texts: &[String], text: &str) -> Vec<Range<usize>> {
        let is_hidden = |at: usize| {
            texts.iter().any(|one| {
                let from = (at + 1).saturating_sub(one.len());
                (from..=at).any(|start| text.as_bytes()[start..].starts_with(one.as_bytes()))
            })
        };
        let mut found: Vec<Range<usize>> = Vec::new();
        for at in (0..text.len()).filter(|at| is_hidden(*at)) {
            match found.last_mut() {
                Some(last) if last.end == at => last.end = at + 1,
                _ => found.push(at..at + 1),
            }
        }
        found
    }

    #[test]
    fn what_overlaps_is_one_part() {
        type Case = (
            &'static [&'static str],
            &'static str,
            &'static [(usize, usize)],
        );
        let cases: &[Case] = &[
            (&["abcd", "bc", "cde"], "xabcdex bc", &[(1, 6), (8, 10)]),
            (&["aaa"], "aaaaa baa", &[(0, 5)]),
            (&["ab", "cd"], "abcd", &[(0, 4)]),
            (&["é", "éé"], "aééb", &[(1, 5)]),
            (&[], "abcd", &[]),
            // One that begins earlier ends later.
            (&["bc", "abcde"], "abcde", &[(0, 5)]),
        ];
        for (texts, text, wanted) in cases {
            let found = find(texts, text).into_iter();
            let found: Vec<_> = found.map(|part| (part.start, part.end)).collect();
            assert_eq!(found, *wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_looking_for_each_finds(
            texts in proptest::collection::vec("[abé]{1,6}", 0..8),
            text in "[abcé]{0,60}",
        ) {
            let finder = Finder::new(texts.iter().map(String::as_str));
            prop_assert_eq!(finder.find(&text), one_by_one(&texts, &text));
        }
    }
}
