//! A tar archive in memory, as POSIX lays it down (ustar): plain files that only their owner can read.
//!
//! Not compressed: nothing that could do it is in the program, and who wants it small has a program for that.

/// Everything in a tar archive comes in blocks of so many bytes.
const BLOCK: usize = 512;
/// What the name's field holds.
const MAX_NAME_BYTES: usize = 100;
/// What the field for the folders before it holds.
const MAX_PREFIX_BYTES: usize = 155;

/// The archive, as far as it is written.
#[derive(Debug, Default)]
pub(super) struct Archive(Vec<u8>);

impl Archive {
    /// An empty one, with room for files of these lengths: to grow would take twice the memory.
    pub(super) fn with_room_for(lengths: impl Iterator<Item = usize>) -> Self {
        let file = |length: usize| BLOCK + length.next_multiple_of(BLOCK);
        Self(Vec::with_capacity(
            lengths.map(file).sum::<usize>() + 2 * BLOCK,
        ))
    }

    /// Whether a file can have that name: short enough for the format, and none that programs refuse to unpack.
    pub(super) fn takes(name: &str) -> bool {
        split(name).is_some() && name.split('/').all(|folder| folder != "..")
    }

    /// Adds a file. One whose name it does not take is left out.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8], modified_secs: u64) {
        let Some((prefix, name)) = split(name).filter(|_| Self::takes(name)) else {
            return;
        };
        let mut header = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, b"0000600\0");
        put(108, b"0000000\0"); // of root
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", bytes.len()).as_bytes());
        put(136, format!("{modified_secs:011o}\0").as_bytes());
        put(148, b"        "); // the sum counts its own field as blanks
        put(156, b"0");
        put(257, b"ustar\x0000");
        put(345, prefix.as_bytes());
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }

    /// The whole of it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

/// The folders and the rest of a path, each short enough for its field.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= MAX_NAME_BYTES {
        return Some(("", path));
    }
    let fits = |(prefix, name): &(&str, &str)| {
        prefix.len() <= MAX_PREFIX_BYTES && name.len() <= MAX_NAME_BYTES && !name.is_empty()
    };
    let halves = path
        .match_indices('/')
        .map(|(at, _)| (&path[..at], &path[at + 1..]));
    halves.rev().find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_split_where_it_fits() {
        assert_eq!(split("a/b"), Some(("", "a/b")));
        let path = format!("{}/{}", "f".repeat(90), "n".repeat(60));
        let (prefix, name) = split(&path).unwrap();
        assert_eq!((prefix.len(), name.len()), (90, 60));
        assert_eq!(split(&"n".repeat(101)), None);
        assert_eq!(split(&format!("{}/x", "f".repeat(156))), None);
        assert!(!Archive::takes(&"n".repeat(101)) && !Archive::takes("a/../b"));
        assert!(Archive::takes("a/b..c"));
        let mut archive = Archive::default();
        archive.add("a/../b", b"x", 0);
        assert_eq!(archive.finish().len(), 2 * BLOCK);
    }

    #[test]
    fn files_take_whole_blocks() {
        let mut archive = Archive::default();
        archive.add("a/b", &[b'x'; 513], 8);
        let bytes = archive.finish();
        assert_eq!(bytes.len(), 5 * BLOCK);
        assert_eq!(&bytes[..4], b"a/b\0");
        assert_eq!(&bytes[124..136], b"00000001001\0");
        assert_eq!(&bytes[257..265], b"ustar\x0000");
    }
}
