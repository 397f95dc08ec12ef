//! Journal files as journald lays them out, made here, and whatever else may lie there.

use std::{collections::BTreeMap, io::Write as _};

use proptest::prelude::*;

use super::*;

/// The form of a file.
#[derive(Debug, Clone, Copy)]
pub(in crate::helper::journal) struct Form {
    pub(in crate::helper::journal) keyed: bool,
    pub(in crate::helper::journal) compact: bool,
}

pub(in crate::helper::journal) const FORMS: [Form; 3] = [
    Form {
        keyed: false,
        compact: false,
    },
    Form {
        keyed: true,
        compact: false,
    },
    Form {
        keyed: true,
        compact: true,
    },
];

const FILE_ID: [u8; 16] = *b"0123456789abcdef";
const BUCKETS: u64 = 4;
const HEADER: u64 = 264;

/// An entry to be: its time in microseconds, its fields; one that begins with `~` is compressed.
pub(in crate::helper::journal) type Made<'a> = (u64, &'a [&'a str]);

struct Writer {
    bytes: Vec<u8>,
    form: Form,
}

impl Writer {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put64(&mut self, at: u64, number: u64) {
        self.put(at, &number.to_le_bytes());
    }

    fn object(&mut self, kind: u8, flags: u8, size: u64) -> u64 {
        while !self.bytes.len().is_multiple_of(8) {
            self.bytes.push(0);
        }
        let at = self.bytes.len() as u64;
        self.bytes
            .resize(self.bytes.len() + usize::try_from(size).unwrap(), 0);
        self.put(at, &[kind, flags]);
        self.put64(at + 8, size);
        at
    }

    fn number(&mut self, at: u64, index: u64, number: u64) {
        if self.form.compact {
            let number = u32::try_from(number).unwrap();
            self.put(at + index * 4, &number.to_le_bytes());
        } else {
            self.put64(at + index * 8, number);
        }
    }
}

/// A file with these entries.
pub(in crate::helper::journal) fn journal(form: Form, entries: &[Made<'_>]) -> Vec<u8> {
    let mut w = Writer {
        bytes: vec![0; usize::try_from(HEADER).unwrap()],
        form,
    };
    let flags = u32::from(form.keyed) * KEYED_HASH + u32::from(form.compact) * COMPACT;
    w.put(0, SIGNATURE);
    w.put(12, &flags.to_le_bytes());
    w.put(24, &FILE_ID);
    let table = w.object(4, 0, 16 + BUCKETS * 16) + 16;
    w.put64(104, table);
    w.put64(112, BUCKETS * 16);
    let mut datas: BTreeMap<&str, (u64, Vec<u64>)> = BTreeMap::new();
    for (time, fields) in entries {
        for field in *fields {
            if !datas.contains_key(field) {
                datas.insert(field, (data(&mut w, field), Vec::new()));
            }
        }
        let width = if form.compact { 4 } else { 16 };
        let entry = w.object(ENTRY, 0, 64 + fields.len() as u64 * width);
        w.put64(entry + 32, *time);
        for (index, field) in fields.iter().enumerate() {
            let (at, used) = datas.get_mut(field).unwrap();
            used.push(entry);
            let index = index as u64 * if form.compact { 1 } else { 2 };
            w.number(entry + 64, index, *at);
        }
    }
    for (at, used) in datas.values() {
        chain(&mut w, *at, used);
    }
    w.bytes
}

fn data(w: &mut Writer, field: &str) -> u64 {
    let skip = if w.form.compact { 72 } else { 64 };
    let flags = if field.starts_with('~') { 4 } else { 0 };
    let at = w.object(DATA, flags, skip + field.len() as u64);
    let hash = if w.form.keyed {
        siphash(FILE_ID, field.as_bytes())
    } else {
        jenkins(field.as_bytes())
    };
    w.put64(at + 16, hash);
    w.put(at + skip, field.as_bytes());
    let bucket = HEADER + 16 + hash % BUCKETS * 16;
    let head = le64(&w.bytes, usize::try_from(bucket).unwrap());
    w.put64(at + 24, head);
    w.put64(bucket, at);
    at
}

fn chain(w: &mut Writer, data: u64, used: &[u64]) {
    w.put64(data + 40, used[0]);
    w.put64(data + 56, used.len() as u64);
    let (mut rest, mut room, mut link) = (&used[1..], 4, data + 48);
    while !rest.is_empty() {
        let width = if w.form.compact { 4 } else { 8 };
        let array = w.object(ENTRY_ARRAY, 0, 24 + room * width);
        w.put64(link, array);
        let take = rest.len().min(usize::try_from(room).unwrap());
        for (index, entry) in rest[..take].iter().enumerate() {
            w.number(array + 24, index as u64, *entry);
        }
        (rest, room, link) = (&rest[take..], room * 2, array + 16);
    }
}

fn opened(bytes: &[u8]) -> io::Result<JournalFile<impl FileExt>> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    JournalFile::open(file)
}

const WANTED: Wanted<'static> = Wanted {
    names: &["MESSAGE"],
    max_field_bytes: 100,
    max_entries: 400,
};

fn messages(bytes: &[u8], field: &str, wanted: Wanted<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let each = |entry: Entry| {
        let message = entry.field("MESSAGE").unwrap_or(b"-");
        found.push(String::from_utf8(message.to_vec()).unwrap());
        false
    };
    let journal = opened(bytes).unwrap();
    let is_there = journal
        .entries_with(field.as_bytes(), wanted, each)
        .unwrap();
    assert_eq!(is_there, !found.is_empty());
    found
}

#[test]
fn the_newest_entries_of_a_field_come_first_in_every_form() {
    let lines: Vec<[String; 3]> = (0..100)
        .map(|n| {
            let run = if n % 3 == 0 { "RUN=a" } else { "RUN=b" };
            [run.to_owned(), format!("MESSAGE={n}"), format!("_PID={n}")]
        })
        .collect();
    let fields: Vec<[&str; 3]> = lines
        .iter()
        .map(|l| l.each_ref().map(String::as_str))
        .collect();
    let made: Vec<Made<'_>> = fields.iter().map(|f| (1, f.as_slice())).collect();
    for form in FORMS {
        let bytes = journal(form, &made);
        let wanted: Vec<String> = (0..100)
            .rev()
            .filter(|n| n % 3 == 0)
            .map(|n| n.to_string())
            .collect();
        assert_eq!(messages(&bytes, "RUN=a", WANTED), wanted, "{form:?}");
        let few = Wanted {
            max_entries: 5,
            ..WANTED
        };
        assert_eq!(
            messages(&bytes, "RUN=b", few),
            ["98", "97", "95", "94", "92"]
        );
        assert_eq!(messages(&bytes, "RUN=c", WANTED), [""; 0]);
        assert_eq!(messages(&bytes, "MESSAGE=7", WANTED), ["7"]);
    }
}

#[test]
fn long_and_compressed_fields_are_bounded_and_told() {
    let long = format!("MESSAGE={}", "x".repeat(5000));
    for form in FORMS {
        let bytes = journal(form, &[(1, &["RUN=a", &long]), (2, &["RUN=a", "~"])]);
        let mut entries = Vec::new();
        let journal = opened(&bytes).unwrap();
        let each = |entry| {
            entries.push(entry);
            false
        };
        journal.entries_with(b"RUN=a", WANTED, each).unwrap();
        assert!(entries[0].compressed && entries[0].fields.is_empty());
        assert_eq!(
            (entries[1].fields[0].len(), entries[1].monotonic_us),
            (100, 1)
        );
    }
}

/// Bob Jenkins' own examples, and one of `SipHash`'s.
#[test]
fn the_hashes_are_those_of_their_papers() {
    let four_score = b"Four score and seven years ago";
    assert_eq!(jenkins(b""), 0xdead_beef_dead_beef);
    assert_eq!(jenkins(four_score), 0x1777_0551_ce72_26e6);
    let key: [u8; 16] = std::array::from_fn(|n| u8::try_from(n).unwrap());
    let bytes: Vec<u8> = (0..15).collect();
    assert_eq!(siphash(key, &bytes), 0xa129_ca61_49be_45e5);
}

#[test]
fn what_is_no_journal_is_refused() {
    assert!(opened(b"").is_err());
    assert!(opened(&[0; 1000]).is_err());
    let mut bytes = journal(FORMS[2], &[(1, &["RUN=a"])]);
    bytes[12] |= 64;
    assert!(opened(&bytes).is_err(), "a form that is not known yet");
}

proptest! {
    /// Torn, or made up to lead astray: bounded, and no panic.
    #[test]
    fn no_bytes_lead_astray(
        form in 0_usize..3,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = journal(FORMS[form], &[
            (1, &["RUN=a", "MESSAGE=1"]),
            (2, &["RUN=a", "MESSAGE=2", "_PID=3"]),
            (3, &["RUN=a", "MESSAGE=3", "_PID=3"]),
        ]);
        for (at, byte) in flips {
            let at = at.index(bytes.len() - 40) + 40;
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(journal) = opened(&bytes) {
            let mut entries = 0;
            let each = |_| { entries += 1; false };
            let _ = journal.entries_with(b"RUN=a", WANTED, each);
            prop_assert!(entries <= 401);
            prop_assert!(journal.read.get() <= MAX_READ_BYTES);
        }
    }
}
