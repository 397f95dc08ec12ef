//! One file of the journal's, read where it lies: the entries that hold a given field, the newest first.
//!
//! No program is started and nothing is mapped: each object is read by its offset, with every offset, size and chain
//! bounded, so that a file that is being written, torn or made up can say nothing or nonsense, and no more. What is read
//! is what <https://systemd.io/JOURNAL_FILE_FORMAT> lays down, both forms of it: the old one and the compact one.

use std::{cell::Cell, io, os::unix::fs::FileExt};

/// What one question may read in all; an entry with its fields takes some 2 KiB the first time, and 300 bytes after.
const MAX_READ_BYTES: u64 = 1024 * 1024;
/// Data objects of one hash bucket that are looked at.
const MAX_COLLISIONS: usize = 256;
/// Each array of a chain is twice as long as the one before.
const MAX_ARRAYS: usize = 48;
/// Fields of one entry that are looked at; the kubelet's have 25.
const MAX_ITEMS: u64 = 128;
/// Fields that are known to be of no interest: the same few in every entry.
const MAX_KNOWN: usize = 256;

const SIGNATURE: &[u8] = b"LPKSHHRH";
const HEADER_BYTES: usize = 208;
const KEYED_HASH: u32 = 4;
const COMPACT: u32 = 16;
/// Compression by XZ, LZ4 and ZSTD, the keyed hash, the compact form: what is not among them is not understood.
const KNOWN_FLAGS: u32 = 31;
const COMPRESSED: u8 = 7;

const DATA: u8 = 1;
const ENTRY: u8 = 3;
const ENTRY_ARRAY: u8 = 6;
const OBJECT_HEADER_BYTES: u64 = 16;

/// A journal file that has been opened.
#[derive(Debug)]
pub(super) struct JournalFile<F> {
    file: F,
    file_id: [u8; 16],
    keyed: bool,
    compact: bool,
    hash_table: u64,
    buckets: u64,
    read: Cell<u64>,
}

/// One entry, as far as it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// When journald got it, in microseconds since boot.
    pub(super) monotonic_us: u64,
    /// `NAME=value` of the fields that were asked for, each cut to the length that was asked for.
    pub(super) fields: Vec<Vec<u8>>,
    /// Whether a field is there that is compressed, whose name cannot be seen.
    pub(super) compressed: bool,
}

impl Entry {
    /// The value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find_map(|field| {
            let value = field.strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        })
    }
}

/// What is to be read of each entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The fields' names.
    pub(super) names: &'a [&'a str],
    /// At most so much of each field.
    pub(super) max_field_bytes: usize,
    /// At most so many entries.
    pub(super) max_entries: usize,
}

impl<F: FileExt> JournalFile<F> {
    /// Reads the header.
    pub(super) fn open(file: F) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let flags = le32(&header, 12);
        if !header.starts_with(SIGNATURE) || flags & !KNOWN_FLAGS != 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "no journal file of a form that is known here",
            ));
        }
        let mut file_id = [0; 16];
        file_id.copy_from_slice(&header[24..40]);
        Ok(Self {
            file,
            file_id,
            keyed: flags & KEYED_HASH != 0,
            compact: flags & COMPACT != 0,
            hash_table: le64(&header, 104),
            buckets: le64(&header, 112) / 16,
            read: Cell::new(0),
        })
    }

    /// Hands over the entries that hold `field` (`NAME=value`), the newest first, until `each` says that it is enough;
    /// `false` if the file holds none.
    pub(super) fn entries_with(
        &self,
        field: &[u8],
        wanted: Wanted<'_>,
        mut each: impl FnMut(Entry) -> bool,
    ) -> io::Result<bool> {
        let Some(data) = self.find(field)? else {
            return Ok(false);
        };
        let mut known = Known::default();
        for at in self.entry_offsets(&data, wanted.max_entries)? {
            let entry = self.entry(at, wanted, &mut known)?;
            if each(entry) {
                break;
            }
        }
        Ok(true)
    }

    /// The data object that holds exactly this.
    fn find(&self, field: &[u8]) -> io::Result<Option<Data>> {
        if self.buckets == 0 {
            return Ok(None);
        }
        let hash = if self.keyed {
            siphash(self.file_id, field)
        } else {
            jenkins(field)
        };
        let mut bucket = [0; 8];
        self.read_at(&mut bucket, self.hash_table, hash % self.buckets * 16)?;
        let mut at = u64::from_le_bytes(bucket);
        for _ in 0..MAX_COLLISIONS {
            if at == 0 {
                return Ok(None);
            }
            let data = self.data(at)?;
            let same_length = data.payload_bytes == field.len() as u64;
            if data.hash == hash && same_length && !data.compressed {
                let mut payload = vec![0; field.len()];
                self.read_at(&mut payload, data.payload_at, 0)?;
                if payload == field {
                    return Ok(Some(data));
                }
            }
            at = data.next_hash;
        }
        Ok(None)
    }

    /// Where the newest entries of a data object lie, the newest first.
    fn entry_offsets(&self, data: &Data, max: usize) -> io::Result<Vec<u64>> {
        let item_bytes = if self.compact { 4 } else { 8 };
        let mut left = data.entries.saturating_sub(1); // the first stands in the object itself
        let mut arrays = Vec::new();
        let mut at = data.entry_array;
        while left > 0 && at != 0 && arrays.len() < MAX_ARRAYS {
            let mut head = [0; 24];
            self.object(&mut head, at, ENTRY_ARRAY)?;
            let room = object_bytes(&head).saturating_sub(24) / item_bytes;
            let used = room.min(left);
            if used == 0 {
                break;
            }
            arrays.push((at, used));
            left -= used;
            at = le64(&head, 16);
        }
        let mut offsets = Vec::new();
        for (at, used) in arrays.into_iter().rev() {
            let take = used.min((max - offsets.len()) as u64);
            let mut items = vec![0; usize::try_from(take * item_bytes).unwrap_or(0)];
            self.read_at(&mut items, at, 24 + (used - take) * item_bytes)?;
            let offset = |item: &[u8]| {
                if self.compact {
                    u64::from(le32(item, 0))
                } else {
                    le64(item, 0)
                }
            };
            let newest_first = items.rchunks_exact(if self.compact { 4 } else { 8 });
            offsets.extend(newest_first.map(offset));
            if offsets.len() >= max {
                return Ok(offsets);
            }
        }
        offsets.push(data.first_entry);
        Ok(offsets)
    }

    fn entry(&self, at: u64, wanted: Wanted<'_>, known: &mut Known) -> io::Result<Entry> {
        let mut head = [0; 64];
        self.object(&mut head, at, ENTRY)?;
        let item_bytes: u64 = if self.compact { 4 } else { 16 };
        let count = (object_bytes(&head).saturating_sub(64) / item_bytes).min(MAX_ITEMS);
        let mut items = vec![0; usize::try_from(count * item_bytes).unwrap_or(0)];
        self.read_at(&mut items, at, 64)?;
        let mut entry = Entry {
            monotonic_us: le64(&head, 32),
            ..Entry::default()
        };
        for item in items.chunks_exact(if self.compact { 4 } else { 16 }) {
            let at = if self.compact {
                u64::from(le32(item, 0))
            } else {
                le64(item, 0)
            };
            if known.0.contains(&at) {
                continue;
            }
            let data = self.data(at)?;
            if data.compressed {
                entry.compressed = true;
                continue;
            }
            match self.field(&data, wanted)? {
                Some(field) => entry.fields.push(field),
                None => known.add(at),
            }
        }
        Ok(entry)
    }

    /// The field, if its name is among those that are wanted.
    fn field(&self, data: &Data, wanted: Wanted<'_>) -> io::Result<Option<Vec<u8>>> {
        let bytes = usize::try_from(data.payload_bytes).unwrap_or(usize::MAX);
        let mut start = [0; 32];
        let start = &mut start[..bytes.min(32)];
        self.read_at(start, data.payload_at, 0)?;
        let is_wanted = wanted.names.iter().any(|name| {
            let rest = start.strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"="))
        });
        if !is_wanted {
            return Ok(None);
        }
        let mut field = vec![0; bytes.min(wanted.max_field_bytes)];
        self.read_at(&mut field, data.payload_at, 0)?;
        Ok(Some(field))
    }

    fn data(&self, at: u64) -> io::Result<Data> {
        let mut head = [0; 64];
        self.object(&mut head, at, DATA)?;
        let skip = if self.compact { 72 } else { 64 };
        Ok(Data {
            compressed: head[1] & COMPRESSED != 0,
            hash: le64(&head, 16),
            next_hash: le64(&head, 24),
            first_entry: le64(&head, 40),
            entry_array: le64(&head, 48),
            entries: le64(&head, 56),
            payload_at: at.saturating_add(skip),
            payload_bytes: object_bytes(&head).saturating_sub(skip),
        })
    }

    /// Reads an object's beginning, which must be of that type.
    fn object(&self, head: &mut [u8], at: u64, kind: u8) -> io::Result<()> {
        self.read_at(head, at, 0)?;
        if head[0] != kind || object_bytes(head) < OBJECT_HEADER_BYTES || !at.is_multiple_of(8) {
            return Err(torn());
        }
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64, plus: u64) -> io::Result<()> {
        let read = self.read.get().saturating_add(bytes.len() as u64);
        if read > MAX_READ_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("over {MAX_READ_BYTES} bytes to read"),
            ));
        }
        self.read.set(read);
        let at = at.checked_add(plus).ok_or_else(torn)?;
        self.file.read_exact_at(bytes, at)
    }
}

/// A data object without its payload.
struct Data {
    compressed: bool,
    hash: u64,
    next_hash: u64,
    first_entry: u64,
    entry_array: u64,
    entries: u64,
    payload_at: u64,
    payload_bytes: u64,
}

/// Where fields lie that are not wanted.
#[derive(Default)]
struct Known(Vec<u64>);

impl Known {
    fn add(&mut self, at: u64) {
        if self.0.len() < MAX_KNOWN {
            self.0.push(at);
        }
    }
}

fn torn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a journal file that is torn")
}

fn object_bytes(head: &[u8]) -> u64 {
    le64(head, 8)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_le_bytes)
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes
        .get(at..at + 8)
        .and_then(|eight| eight.try_into().ok());
    eight.map_or(0, u64::from_le_bytes)
}

/// The hash of files since systemd 246, keyed with the file's id.
#[expect(
    deprecated,
    reason = "its successor, the default hasher, promises no algorithm; this one is SipHash-2-4 by its documentation"
)]
fn siphash(key: [u8; 16], bytes: &[u8]) -> u64 {
    use std::hash::{Hasher as _, SipHasher};
    let mut hasher = SipHasher::new_with_keys(le64(&key, 0), le64(&key, 8));
    hasher.write(bytes);
    hasher.finish()
}

/// The hash of older files: Bob Jenkins' lookup3, `hashlittle2`, its two halves put together as systemd does.
fn jenkins(bytes: &[u8]) -> u64 {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let begin = 0xdead_beef_u32.wrapping_add(length);
    let mut state = [begin; 3];
    let mut rest = bytes;
    while rest.len() > 12 {
        add(&mut state, &rest[..12]);
        mix(&mut state);
        rest = &rest[12..];
    }
    if !rest.is_empty() {
        let mut last = [0; 12];
        last[..rest.len()].copy_from_slice(rest);
        add(&mut state, &last);
        finish(&mut state);
    }
    let [_, low, high] = state;
    u64::from(high) << 32 | u64::from(low)
}

fn add(state: &mut [u32; 3], twelve: &[u8]) {
    for (index, word) in state.iter_mut().enumerate() {
        *word = word.wrapping_add(le32(twelve, index * 4));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, turn: u32| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(turn);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn finish([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: u32, turn: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(turn));
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

#[cfg(test)]
pub(super) mod tests;
