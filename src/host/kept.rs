//! Kernel tables that are read again and again: each stays open, and a read goes into a buffer on the stack and allocates
//! nothing.

use std::{os::fd::OwnedFd, path::PathBuf};

use rustix::fs::{Mode, OFlags};

use super::files::Root;

/// A table that is not there is looked for again at each so manieth look: its module may be loaded later, its cgroup made.
pub(super) const LOOKS_BETWEEN: u8 = 30;
/// What one read takes. The kernel hands no table out in larger pieces than a page.
const PIECE_BYTES: usize = 4096;
/// The longest table that is read to its end: `/proc/zoneinfo` of a host with hundreds of processors.
const MAX_PIECES: usize = 1024;

/// A table that is kept open.
#[derive(Debug)]
pub(super) struct Kept {
    /// Where it may be, joined to the root once: the first that is there.
    paths: Vec<PathBuf>,
    open: Option<OwnedFd>,
    look_in: u8,
}

impl Kept {
    /// Nothing is open yet.
    pub(super) fn new(root: &Root, paths: &[&str]) -> Self {
        Self {
            paths: paths.iter().map(|path| root.join(path)).collect(),
            open: None,
            look_in: 0,
        }
    }

    /// What one read says of it: so many bytes; `None` where there is none.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.with(|file| rustix::io::pread(file, buffer, 0))
    }

    /// As [`lines`]; `None` where there is no table.
    pub(super) fn lines(&mut self, goes_on: &mut dyn FnMut(&[u8]) -> bool) -> Option<()> {
        self.with(|file| lines(file, goes_on))
    }

    fn with<T>(&mut self, read: impl FnOnce(&OwnedFd) -> rustix::io::Result<T>) -> Option<T> {
        let is_new = self.open.is_none();
        if is_new {
            if self.look_in > 0 {
                self.look_in -= 1;
                return None;
            }
            self.look_in = LOOKS_BETWEEN;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let open = |path: &PathBuf| rustix::fs::open(path, flags, Mode::empty()).ok();
            self.open = Some(self.paths.iter().find_map(open)?);
        }
        let read = read(self.open.as_ref()?).ok();
        if read.is_none() {
            self.open = None;
            if !is_new {
                // Its cgroup was removed: perhaps there is another by now.
                self.look_in = 0;
            }
        }
        read
    }
}

/// Hands out a table's lines without their ends, until `goes_on` says that it has seen enough. A line longer than a page
/// comes in pieces.
pub(super) fn lines(
    file: &OwnedFd,
    goes_on: &mut dyn FnMut(&[u8]) -> bool,
) -> rustix::io::Result<()> {
    let mut buffer = [0; PIECE_BYTES];
    let (mut kept, mut offset) = (0, 0);
    for _ in 0..MAX_PIECES {
        let length = rustix::io::pread(file, &mut buffer[kept..], offset)?;
        if length == 0 {
            break;
        }
        offset += length as u64;
        let filled = kept + length;
        let mut from = 0;
        while let Some(end) = buffer[from..filled].iter().position(|byte| *byte == b'\n') {
            if !goes_on(&buffer[from..from + end]) {
                return Ok(());
            }
            from += end + 1;
        }
        if from == 0 && filled == PIECE_BYTES {
            if !goes_on(&buffer) {
                return Ok(());
            }
            from = PIECE_BYTES;
        }
        buffer.copy_within(from..filled, 0);
        kept = filled - from;
    }
    if kept > 0 {
        goes_on(&buffer[..kept]);
    }
    Ok(())
}

/// The number that a word is.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A line's words.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = line.split(u8::is_ascii_whitespace);
    words.filter(|word| !word.is_empty())
}

/// Writes a file below a test's root in place, so that whoever keeps it open sees the new text.
#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "host::files replaces a file, and what is kept open must see the new text"
)]
pub(super) fn put(root: &Root, path: &str, text: &str) {
    let (dir, _) = path.rsplit_once('/').unwrap();
    root.create_dir_all(dir).unwrap();
    std::fs::write(root.join(path), text).unwrap();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(kept: &mut Kept) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        kept.lines(&mut |line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            line != b"enough"
        })?;
        Some(lines)
    }

    #[test]
    fn a_table_that_comes_later_is_found_and_one_that_changes_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let mut kept = Kept::new(&root, &["/nothing", "/table"]);
        assert_eq!(lines(&mut kept), None);
        put(&root, "/table", "a 1\nb 2");
        for _ in 0..LOOKS_BETWEEN {
            assert_eq!(lines(&mut kept), None);
        }
        assert_eq!(lines(&mut kept).unwrap(), ["a 1", "b 2"]);
        put(&root, "/table", "");
        assert_eq!(lines(&mut kept).unwrap(), [""; 0]);
        put(&root, "/table", "a\nenough\nb\n");
        assert_eq!(lines(&mut kept).unwrap(), ["a", "enough"]);
        put(&root, "/table", "c\n");
        let mut buffer = [0; 8];
        assert_eq!(kept.read(&mut buffer), Some(2));
    }

    proptest! {
        #[test]
        fn every_line_of_a_long_table_comes_once(
            lengths in proptest::collection::vec(0_usize..900, 0..60),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::new(folder.path());
            let wanted: Vec<String> = lengths.iter().map(|n| "x".repeat(*n)).collect();
            let text = wanted.iter().fold(String::new(), |text, line| text + line + "\n");
            put(&root, "/table", &text);
            prop_assert_eq!(lines(&mut Kept::new(&root, &["/table"])).unwrap(), wanted);
        }
    }
}
