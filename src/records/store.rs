//! Where records are kept: on the disk, and in /run while the disk cannot be written to.

use std::cmp::Reverse;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags, open};

use super::names::is_name;
use super::record::{MAX_BYTES, Record};
use crate::files;

/// On the disk, and in memory.
pub const PERSISTENT: &str = "/var/lib/nodevigil/records";
pub const VOLATILE: &str = "/run/nodevigil/records";
/// What is kept in each: the newest.
const MAX_RECORDS: usize = 20;
const MAX_TOTAL_BYTES: u64 = 4 << 20;
/// The mode of a record, and of one that was uploaded. One that replaces it, because it was not complete, is uploaded again.
const MODE: u32 = 0o600;
const UPLOADED: u32 = 0o400;
/// A cloud keeps what is written to them. The first that can be opened is used.
const CONSOLES: [&str; 2] = ["/dev/console", "/dev/ttyS0"];
const MAX_CONSOLE_BYTES: usize = 600;

/// A record that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
    pub modified: Option<SystemTime>,
    pub is_uploaded: bool,
}

impl Kept {
    /// By this the newest come first. Two problems may begin within a second, which is what a name tells.
    fn age(&self) -> Reverse<(String, Option<SystemTime>)> {
        let second = self.name.split('-').next().unwrap_or_default();
        Reverse((second.to_owned(), self.modified))
    }

    pub fn read(&self) -> io::Result<Record> {
        read(&self.path)
    }

    /// Its JSON.
    pub fn text(&self) -> io::Result<String> {
        files::read(&self.path, MAX_BYTES as u64)
    }
}

/// Marks a record as uploaded.
pub fn mark_uploaded(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(UPLOADED))
}

pub fn read(path: &Path) -> io::Result<Record> {
    Ok(serde_json::from_str(&files::read(path, MAX_BYTES as u64)?)?)
}

/// The records in both directories, the newest first. Waits for the disk.
pub fn list() -> Vec<Kept> {
    let mut all = list_in(Path::new(PERSISTENT));
    let volatile = list_in(Path::new(VOLATILE));
    let is_moved = |kept: &Kept| all.iter().any(|other| other.name == kept.name);
    let volatile: Vec<_> = volatile.into_iter().filter(|kept| !is_moved(kept)).collect();
    all.extend(volatile);
    all.sort_by_cached_key(Kept::age);
    all
}

pub(super) fn list_in(directory: &Path) -> Vec<Kept> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let kept = |entry: fs::DirEntry| {
        let path = entry.path();
        let name = path.file_name()?.to_str()?.strip_suffix(".json").filter(|name| is_name(name))?.to_owned();
        let metadata = entry.metadata().ok()?;
        let is_uploaded = metadata.mode() & 0o777 == UPLOADED;
        Some(Kept { name, bytes: metadata.len(), path, modified: metadata.modified().ok(), is_uploaded })
    };
    let mut all: Vec<_> = entries.filter_map(kept).collect();
    all.sort_by_cached_key(Kept::age);
    all
}

/// Writes a record for root alone, and removes the oldest that are too many. An error names the path.
pub fn write(directory: &Path, record: &Record) -> io::Result<()> {
    let path = directory.join(format!("{}.json", record.name));
    let written = (|| {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        files::replace(&path, MODE, &record.clone().text()?)?;
        // So that its name outlives a power failure too.
        File::open(directory)?.sync_all()
    })();
    prune(directory, &record.name);
    written.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Removes the oldest that are too many, and what a crash has left of another write. `written` stays, even if the clock was ahead when the
/// others were written.
fn prune(directory: &Path, written: &str) {
    let mut kept = list_in(directory);
    kept.sort_by_key(|record| record.name != written);
    let mut total = 0;
    for (index, record) in kept.iter().enumerate() {
        total += record.bytes;
        if index >= MAX_RECORDS || total > MAX_TOTAL_BYTES {
            fs::remove_file(&record.path).ok();
        }
    }
    // In memory another process may be writing.
    if directory != Path::new(VOLATILE) {
        let left = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        left.filter(|path| path.extension().is_some_and(|extension| extension == "tmp"))
            .for_each(|path| _ = fs::remove_file(path).ok());
    }
}

/// Moves a completed record to the disk. What cannot be moved stays in /run.
pub fn keep(record: &Record) -> io::Result<()> {
    // First in memory: the disk may hang.
    write(Path::new(VOLATILE), record)?;
    write(Path::new(PERSISTENT), record)?;
    fs::remove_file(Path::new(VOLATILE).join(format!("{}.json", record.name)))
}

/// In one line, that a problem has begun whose record is not on the disk, and why.
pub fn not_on_disk(record: &Record, why: &str) -> String {
    let (condition, name) = (&record.condition, &record.name);
    let line = format!(
        "nodevigil: {}: {} is {} ({}): {}; {VOLATILE}/{name}.json is not on the disk: {why}",
        record.node,
        condition.kind,
        condition.status.name(),
        condition.reason,
        condition.message
    );
    redact::sanitize_line(&line, MAX_CONSOLE_BYTES)
}

/// Writes a line to the console, which may be all that is left of the machine. May hang.
pub fn say_on_console(line: &str) {
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let console = CONSOLES.iter().find_map(|path| open(*path, flags, Mode::empty()).ok());
    if let Some(console) = console {
        File::from(console).write_all(format!("\r\n{line}\r\n").as_bytes()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::tests::record;

    #[test]
    fn of_two_that_began_within_a_second_the_later_one_is_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["20261128t184502z-kubelet-crashed", "20261128t184502z-kubelet-crash-looping"] {
            write(directory.path(), &record(name)).unwrap();
        }
        let file = File::open(directory.path().join("20261128t184502z-kubelet-crashed.json")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(list_in(directory.path())[0].name, "20261128t184502z-kubelet-crash-looping");
    }

    #[test]
    fn what_was_just_written_stays_and_what_a_crash_has_left_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        // By a clock that was ahead.
        for number in 0..20 {
            write(path, &record(&format!("20361128t1845{number:02}z-kubelet-crashed"))).unwrap();
        }
        fs::write(path.join("20261127t184502z-a.json.tmp"), "").unwrap();
        write(path, &record("20261128t184502z-kubelet-crashed")).unwrap();
        assert_eq!(fs::read_dir(path).unwrap().count(), 20);
        assert_eq!(list_in(path)[19].name, "20261128t184502z-kubelet-crashed");
    }

    #[test]
    fn the_newest_twenty_are_kept_for_root_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let name = |number: usize| format!("20261128t1845{number:02}z-kubelet-crashed");
        for number in 0..25 {
            write(&path, &record(&name(number))).unwrap();
        }
        let kept = list_in(&path);
        assert_eq!((kept.len(), kept[0].name.clone(), kept[19].name.clone()), (20, name(24), name(5)));
        assert_eq!(kept[0].read().unwrap(), record(&name(24)));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&kept[0].path)), (0o700, 0o600));
        mark_uploaded(&File::open(&kept[0].path).unwrap()).unwrap();
        assert!(list_in(&path)[0].is_uploaded && !kept[0].is_uploaded);
        write(&path, &record(&name(24))).unwrap();
        assert!(!list_in(&path)[0].is_uploaded, "it is another one");
        fs::write(path.join("20261128t184559z-large.json"), vec![b'x'; 4 << 20]).unwrap();
        prune(&path, &name(24));
        assert_eq!(list_in(&path).len(), 1, "4 MiB");
    }
}
