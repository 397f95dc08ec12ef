//! How the boot before this one ended: a marker on the disk says whether the agent saw a shutdown, and pstore has what the kernel said last
//! if it panicked.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{names, store};
use crate::files;
use crate::host::clock::wall;
use crate::host::snapshot::boot_id;

/// The reason of the Event.
pub const EVENT_REASON: &str = "LastBootEnded";
const MARKER: &str = "/var/lib/nodevigil/boot.json";
/// Where the kernel keeps what it said before it panicked, and where systemd-pstore.service moves that.
const PSTORE: [&str; 2] = ["/sys/fs/pstore", "/var/lib/systemd/pstore"];
const MAX_PSTORE_FILES: usize = 64;
const MAX_BYTES: u64 = 1 << 20;
/// How much of a panic is quoted, and how many records of that boot are named.
const PANIC_LINES: usize = 3;
const MAX_PANIC_BYTES: usize = 400;
/// Registers and a call trace separate the line with the cause from the line of the panic. Lines farther away are older.
const MAX_PANIC_TRACE: usize = 120;
const MAX_NAMES: usize = 3;

/// The marker of this boot, for a disk that could not be written to when the agent started.
static BEGUN: OnceLock<Marker> = OnceLock::new();

/// How the agent ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    /// In a shutdown of the host.
    Shutdown(Timestamp),
    /// Nothing told that the host shuts down.
    Stopped(Timestamp),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Marker {
    boot_id: String,
    /// When the agent of that boot started first.
    since: Timestamp,
    /// None while it runs.
    end: Option<End>,
}

impl Marker {
    /// From when on a panic is that boot's end. What pstore has from before a known end is older than that.
    fn panics_from(&self) -> Timestamp {
        match self.end {
            Some(End::Shutdown(at) | End::Stopped(at)) => at,
            None => self.since,
        }
    }
}

/// How the previous boot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastBoot {
    pub message: String,
    /// Whether nothing indicates a reset or a crash.
    pub is_clean: bool,
}

/// Marks that the agent runs, and finds out how the previous boot ended. None if no agent ran in an earlier boot, or one has already
/// started in this boot. Waits for the disk.
pub fn begin() -> Option<LastBoot> {
    let (left, boot_id) = (read(), boot_id());
    let found = left.as_ref().filter(|left| left.boot_id != boot_id).map(|before| {
        let names: Vec<_> = store::list().into_iter().map(|kept| kept.name).collect();
        judge(before, &names, panic_since(before.panics_from()))
    });
    write(BEGUN.get_or_init(|| begun(left.as_ref(), &boot_id, wall())));
    found
}

/// The marker of an agent that starts, by the one that was left.
fn begun(left: Option<&Marker>, boot_id: &str, now: Timestamp) -> Marker {
    let since = left.filter(|left| left.boot_id == boot_id).map_or(now, |left| left.since);
    Marker { boot_id: boot_id.to_owned(), since, end: None }
}

/// Marks how the agent ended. Waits for the disk.
pub fn end(is_shutdown: bool) {
    let end = if is_shutdown { End::Shutdown } else { End::Stopped };
    if let Some(marker) = ended(read(), BEGUN.get(), &boot_id(), end(wall())) {
        write(&marker);
    }
}

/// The marker of an agent that ends, by the one on the disk or else the one it began with. None if it has not begun: then the one on the
/// disk has not been judged.
fn ended(left: Option<Marker>, begun: Option<&Marker>, boot_id: &str, end: End) -> Option<Marker> {
    let marker = left.filter(|left| left.boot_id == boot_id).or_else(|| begun.cloned())?;
    Some(Marker { end: Some(end), ..marker })
}

fn read() -> Option<Marker> {
    serde_json::from_str(&files::read(Path::new(MARKER), MAX_BYTES).ok()?).ok()
}

fn write(marker: &Marker) {
    let text = serde_json::to_string(marker).map_err(io::Error::other);
    if let Err(error) = text.and_then(|text| files::replace(Path::new(MARKER), 0o600, &text)) {
        tracing::warn!("{MARKER}: {error}; the next boot does not say how this one ended");
    }
}

/// `records`: their names, the newest first.
fn judge(marker: &Marker, records: &[String], panic: Option<String>) -> LastBoot {
    let (since, start) = (marker.since, names::start(marker.since));
    let of_boot: Vec<&str> =
        records.iter().map(String::as_str).filter(|name| *name >= start.as_str()).take(MAX_NAMES).collect();
    let is_clean = marker.end.is_some() && panic.is_none();
    let mut message = match marker.end {
        _ if panic.is_some() => "the previous boot ended with a kernel panic".to_owned(),
        Some(End::Shutdown(at)) => format!("the previous boot ended with a shutdown at {at:.0}"),
        Some(End::Stopped(at)) => {
            format!("nodevigil was stopped at {at:.0}, so how the previous boot ended is not known")
        }
        None => format!(
            "the previous boot, in which nodevigil ran since {since:.0}, ended without a shutdown: by a reset, a power failure or a crash"
        ),
    };
    if !is_clean && !of_boot.is_empty() {
        message = format!("{message}; its last records: {}", of_boot.join(", "));
    }
    if let Some(panic) = panic {
        message = format!("{message}; the kernel's last lines: {panic}");
    }
    LastBoot { message, is_clean }
}

/// The first lines of a panic that pstore has from after that time.
fn panic_since(at: Timestamp) -> Option<String> {
    let since = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(at.as_second()).ok()?);
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for directory in PSTORE {
        find(Path::new(directory), 3, &mut found);
    }
    found.retain(|(changed, _)| *changed >= since);
    found.sort();
    // Of several parts the one that has the beginning.
    let mut texts =
        found.iter().rev().filter_map(|(_, path)| Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned()));
    texts.find_map(|text| panic_lines(&text))
}

fn find(directory: &Path, depth: usize, found: &mut Vec<(SystemTime, PathBuf)>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_PSTORE_FILES) {
        let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
        let is_dump = entry.file_name().to_string_lossy().contains("dmesg") && meta.len() <= MAX_BYTES;
        if meta.is_dir() && depth > 0 {
            find(&path, depth - 1, found);
        } else if is_dump && let Ok(changed) = meta.modified() {
            found.push((changed, path));
        }
    }
}

/// Of a dump of the kernel's log at a panic, the lines from the one that says why, without their levels.
fn panic_lines(text: &str) -> Option<String> {
    const BEGINS: [&str; 5] =
        ["Kernel panic", "BUG: ", "Oops: ", "general protection fault", "Unable to handle kernel"];
    // An Oops leaves a dump too, and most hosts go on.
    if !text.starts_with("Panic#") && !text.contains("Kernel panic") {
        return None;
    }
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().rposition(|line| line.contains("Kernel panic")).unwrap_or(lines.len());
    let start = end.saturating_sub(MAX_PANIC_TRACE);
    let first = start + lines[start..].iter().position(|line| BEGINS.iter().any(|begin| line.contains(begin)))?;
    let said = |line: &&str| line.split_once("] ").map_or(*line, |(_, said)| said).to_owned();
    let said: Vec<String> = lines[first..].iter().take(PANIC_LINES).map(said).collect();
    Some(redact::sanitize_line(&said.join(" / "), MAX_PANIC_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn judged(end: Option<End>, panic: Option<&str>) -> LastBoot {
        let marker = Marker { boot_id: "a".into(), since: time("2026-11-28T18:00:00Z"), end };
        let names = ["20261128t184502z-kubelet-crashed", "20261127t184502z-kubelet-hung"].map(str::to_owned);
        judge(&marker, &names, panic.map(str::to_owned))
    }

    #[test]
    fn a_boot_that_ends_without_a_shutdown_is_told_with_its_own_records() {
        let at = time("2026-11-28T19:00:00Z");
        let shutdown = judged(Some(End::Shutdown(at)), None);
        assert_eq!(
            (shutdown.message.as_str(), shutdown.is_clean),
            ("the previous boot ended with a shutdown at 2026-11-28T19:00:00Z", true)
        );
        let reset = judged(None, None);
        assert!(reset.message.ends_with("; its last records: 20261128t184502z-kubelet-crashed") && !reset.is_clean);
        let stopped = judged(Some(End::Stopped(at)), None);
        assert!(stopped.message.contains("is not known") && stopped.is_clean, "{stopped:?}");
        let panic = judged(None, Some("Kernel panic - not syncing")).message;
        assert!(
            panic.starts_with("the previous boot ended with a kernel panic")
                && panic.ends_with(": Kernel panic - not syncing"),
            "{panic}"
        );
    }

    #[test]
    fn an_agent_that_was_stopped_and_started_again_keeps_the_beginning_of_its_boot() {
        let (first, later) = (time("2026-11-28T18:00:00Z"), time("2026-11-28T19:00:00Z"));
        let marker = begun(None, "a", first);
        let stopped = Marker { end: Some(End::Stopped(later)), ..marker.clone() };
        assert_eq!(begun(Some(&stopped), "a", later), marker);
        assert_eq!(begun(Some(&stopped), "b", later).since, later);
    }

    #[test]
    fn a_shutdown_is_marked_though_the_disk_did_not_take_the_marker_of_the_start() {
        let (first, later) = (time("2026-11-28T18:00:00Z"), time("2026-11-28T19:00:00Z"));
        let (older, begun) = (begun(None, "a", first), begun(None, "b", first));
        let shutdown = |left, begun| ended(left, begun, "b", End::Shutdown(later));
        let expected = Some(Marker { end: Some(End::Shutdown(later)), ..begun.clone() });
        assert_eq!(shutdown(Some(older.clone()), Some(&begun)), expected);
        assert_eq!(shutdown(None, Some(&begun)), expected);
        assert_eq!(shutdown(Some(begun.clone()), None), expected);
        assert_eq!(shutdown(Some(older), None), None, "it was not judged");
    }

    #[test]
    fn a_panic_from_before_a_known_end_is_an_older_one() {
        let (since, at) = (time("2026-11-28T18:00:00Z"), time("2026-11-28T19:00:00Z"));
        let from = |end| Marker { end, ..begun(None, "a", since) }.panics_from();
        let ends = [Some(End::Shutdown(at)), Some(End::Stopped(at)), None];
        assert_eq!(ends.map(from), [at, at, since]);
    }

    #[test]
    fn of_a_dump_the_lines_that_say_why_are_quoted() {
        let dump = "Panic#1 Part1\n<6>[  12.1] ok\n<0>[  13.5] Kernel panic - not syncing: sysrq triggered crash\n<4>[  13.6] CPU: 0\n<4>[ 13.7] x\n<4>[ 13.8] y\n";
        assert_eq!(panic_lines(dump).unwrap(), "Kernel panic - not syncing: sysrq triggered crash / CPU: 0 / x");
        assert_eq!(panic_lines("<6>[  12.1] ok\n"), None);
        let oops = "Part1\n<1>[ 13.5] BUG: kernel NULL pointer dereference\n<4>[ 13.6] Oops: 0002 [#1] SMP\n";
        assert_eq!(panic_lines(&format!("Oops#1 {oops}")), None, "the host went on");
        assert!(panic_lines(&format!("Panic#2 {oops}")).unwrap().starts_with("BUG: kernel NULL"));
        let older =
            format!("Panic#1 Part1\n<1>[ 1.0] BUG: soft lockup\n{}{}", "<6>[ 2.0] ok\n".repeat(200), &dump[14..]);
        assert_eq!(panic_lines(&older), panic_lines(dump));
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("1")).unwrap();
        fs::write(directory.path().join("1/dmesg.txt"), dump).unwrap();
        fs::write(directory.path().join("console-ramoops-0"), dump).unwrap();
        let mut found = Vec::new();
        find(directory.path(), 3, &mut found);
        assert_eq!(found.len(), 1);
    }
}
