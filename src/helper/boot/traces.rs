//! What kernel and hardware keep of the end of a boot: pstore, and the status of the watchdogs.

use std::io::{BufRead, BufReader, Read as _};

use jiff::Timestamp;

use crate::{clock::Now, health::bounded, host::files::Root};

/// Where the kernel shows what was kept …
const PSTORE: &str = "/sys/fs/pstore";
/// … and where `systemd-pstore.service` puts it early in the next boot, in folders of folders.
const ARCHIVE: &str = "/var/lib/systemd/pstore";
/// Files and folders that are looked at: a panic leaves a few dozen.
const MAX_ENTRIES: usize = 256;
/// What is read of each: more than any store for such a purpose holds.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The longest line that is looked at.
const MAX_LINE_BYTES: u64 = 1024;
/// What is told of a panic.
const MAX_TOLD_BYTES: usize = 256;
/// The clock may have been set between the dump and now by so much.
const SLACK_SECS: i64 = 600;

/// `WDIOF_CARDRESET` of the kernel's watchdog interface: the card reset the machine.
const CARD_RESET: u32 = 0x20;

/// What the kernel said when it panicked, if that was in the boot that began at `since` (where that is known).
pub(super) fn panic(root: &Root, since: Option<Timestamp>, now: Now) -> Option<String> {
    let booted = now.wall.as_second() - i64::try_from(now.uptime.as_secs()).unwrap_or(0);
    // The files in pstore bear the time of the dump, those in the archive that of the boot that found them.
    let oldest = since.map_or(i64::MIN, |since| since.as_second() - SLACK_SECS);
    let places = [(PSTORE, oldest), (ARCHIVE, booted - SLACK_SECS)];
    let mut found = None;
    for (place, oldest) in places {
        let mut left = MAX_ENTRIES;
        walk(root, place, 3, oldest, &mut left, &mut found);
    }
    found.map(|said| match said {
        Said::Line(line) => line,
        Said::Panicked => "it kept no line that says why".to_owned(),
    })
}

/// What a dump says, the less telling first.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Panicked,
    Line(String),
}

fn walk(
    root: &Root,
    folder: &str,
    depth: usize,
    oldest: i64,
    left: &mut usize,
    found: &mut Option<Said>,
) {
    for name in root.list(folder).unwrap_or_default() {
        if *left == 0 || matches!(found, Some(Said::Line(_))) {
            return;
        }
        *left -= 1;
        let path = format!("{folder}/{name}");
        if root.is_dir(&path) {
            if depth > 1 {
                walk(root, &path, depth - 1, oldest, left, found);
            }
            continue;
        }
        let is_new = root
            .stamp(&path)
            .is_some_and(|(_, seconds, _)| seconds >= oldest);
        if name.starts_with("dmesg") && is_new {
            let said = root
                .open(&path)
                .ok()
                .and_then(|file| read_dump(BufReader::new(file.take(MAX_FILE_BYTES))));
            *found = said.or(found.take());
        }
    }
}

/// The line that says why it panicked: `Kernel panic - not syncing: …`. A dump of an oops that was survived, or of a
/// shutdown, is no end.
fn read_dump(mut dump: impl BufRead) -> Option<Said> {
    let mut panicked = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = dump
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return panicked;
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(at) = text.find("Kernel panic - not syncing") {
            let said: String = text[at..].trim_end().replace(char::is_control, " ");
            return Some(Said::Line(bounded(&said, MAX_TOLD_BYTES)));
        }
        if text.starts_with("Panic#") {
            panicked = Some(Said::Panicked);
        }
    }
}

/// A watchdog that says that it reset the machine.
pub(super) fn watchdog(root: &Root) -> Option<String> {
    const CLASS: &str = "/sys/class/watchdog";
    let names = root.list(CLASS).ok()?;
    names.into_iter().take(MAX_ENTRIES).find_map(|name| {
        let text = |file: &str| root.read_text(format!("{CLASS}/{name}/{file}"), 256).ok();
        let status: u32 = text("bootstatus")?.trim().parse().ok()?;
        let identity = text("identity").map(|identity| identity.trim().to_owned());
        (status & CARD_RESET != 0).then(|| identity.unwrap_or(name))
    })
}
