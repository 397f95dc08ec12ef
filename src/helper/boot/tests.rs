//! The record over several boots of a little host, and the traces that kernel and hardware leave.

use super::*;
use crate::helper::{
    storage::OWN_FOLDER,
    testing::{host, write as put},
};

const FILE: &str = "/var/lib/nodevigil-helper/boot.json";

/// So many seconds after the first boot's start.
fn at(secs: u64) -> Now {
    let wall = 1_800_000_000 + i64::try_from(secs).unwrap();
    Now {
        uptime: Duration::from_secs(secs + 30),
        wall: Timestamp::from_second(wall).unwrap(),
    }
}

/// A host and what the helper that runs on it remembers.
struct Host {
    _folder: tempfile::TempDir,
    root: Root,
    memory: Memory,
}

impl Host {
    fn new() -> Self {
        let (folder, root) = host();
        root.create_dir_all(OWN_FOLDER).unwrap();
        put(&root, "/etc/machine-id", "0123456789abcdef\n");
        let mut host = Self {
            _folder: folder,
            root,
            memory: Memory::default(),
        };
        host.boots("first");
        host
    }

    /// Another boot: another helper, too.
    fn boots(&mut self, id: &str) {
        put(&self.root, "/proc/sys/kernel/random/boot_id", id);
        self.memory = Memory::default();
    }

    fn ask(&self, secs: u64) -> LastBoot {
        ask(&self.memory, &self.root, at(secs))
    }

    fn keep(&self, note: &BootNote, secs: u64) {
        keep(&self.memory, &self.root, note, at(secs));
    }

    fn known(&self, secs: u64) -> Boot {
        match self.ask(secs).record {
            Kept::Known(boot) => boot,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_boot_is_asked_about_once_whoever_restarts() {
    let mut host = Host::new();
    let first = host.ask(0);
    assert_eq!((first.asked_before, &first.record), (false, &Kept::Absent));
    assert!(host.ask(1).asked_before);
    // Another helper in the same boot.
    host.memory = Memory::default();
    assert!(host.ask(2).asked_before);
    host.boots("second");
    assert!(!host.ask(100).asked_before);
    assert!(host.ask(101).asked_before);
}

#[test]
fn each_end_leaves_its_trace() {
    let mut host = Host::new();
    host.ask(0);
    keep_alive(&host.memory, &host.root, at(400));
    host.boots("second");
    let cut = host.known(1000);
    assert_eq!(
        (cut.boot_id.as_str(), cut.started, cut.seen),
        ("first", at(0).wall, at(400).wall)
    );
    assert_eq!((cut.going_down, cut.out_of_memory), (None, None));
    let victim = "x".repeat(999);
    host.keep(&BootNote::OutOfMemory { victim }, 1100);
    host.boots("third");
    let (when, victim) = host.known(2000).out_of_memory.unwrap();
    assert!(when == at(1100).wall && victim.len() <= 64, "{victim}");
    host.keep(&BootNote::GoingDown, 2100);
    host.boots("fourth");
    assert_eq!(host.known(3000).going_down, Some(at(2100).wall));
    // A shutdown that was called off, and one that was but a start of the agent anew (a soft reboot).
    host.keep(&BootNote::GoingDown, 3100);
    host.keep(&BootNote::StaysUp, 3101);
    host.boots("fifth");
    assert_eq!(host.known(4000).going_down, None);
    host.keep(&BootNote::GoingDown, 4100);
    host.ask(4200);
    host.boots("sixth");
    assert_eq!(host.known(5000).going_down, None);
}

#[test]
fn it_is_written_seldom() {
    let host = Host::new();
    host.ask(0);
    let before = host.root.stamp(FILE);
    for secs in 1..KEEP_EVERY.as_secs() {
        keep_alive(&host.memory, &host.root, at(secs));
    }
    assert_eq!(host.root.stamp(FILE), before, "nothing was written");
    keep_alive(&host.memory, &host.root, at(KEEP_EVERY.as_secs()));
    assert_ne!(host.root.stamp(FILE), before);
    assert_eq!(host.root.list(OWN_FOLDER).unwrap(), ["boot.json"]);
}

#[test]
fn a_record_of_another_machine_is_not_believed() {
    let mut host = Host::new();
    host.ask(0);
    // The image's child.
    put(&host.root, "/etc/machine-id", "another");
    host.boots("second");
    assert_eq!(host.ask(100).record, Kept::Foreign);
    // Images whose machine id stays: the firmware's word differs.
    put(&host.root, "/sys/class/dmi/id/product_uuid", "a\n");
    host.boots("third");
    assert!(matches!(host.ask(200).record, Kept::Known(_)));
    put(&host.root, "/sys/class/dmi/id/product_uuid", "b\n");
    host.boots("fourth");
    assert_eq!(host.ask(300).record, Kept::Foreign);
    // One without a name is nobody.
    put(&host.root, "/etc/machine-id", "\n");
    host.boots("fifth");
    assert_eq!(host.ask(400).record, Kept::Foreign);
}

#[test]
fn whatever_lies_there_is_said_and_replaced() {
    let mut host = Host::new();
    host.ask(0);
    let good = host.root.read_text(FILE, 9999).unwrap();
    let half = good[..good.len() / 2].to_owned();
    let other_version = good.replace("\"version\":1", "\"version\":9");
    let long = format!("{good}{}", " ".repeat(20_000));
    for (index, bad) in ["", "null", &half, &other_version, &long]
        .iter()
        .enumerate()
    {
        put(&host.root, FILE, bad);
        host.boots(&format!("boot {index}"));
        let Kept::Unreadable { why } = host.ask(100).record else {
            panic!("{bad}");
        };
        assert!(why.contains("boot.json"), "{why}");
        // From here on it is a record again.
        host.boots(&format!("boot after {index}"));
        host.known(200);
    }
}

#[test]
fn where_nothing_can_be_written_it_is_still_asked_once_a_life() {
    let (_folder, root) = host();
    put(&root, "/etc/machine-id", "m");
    let memory = Memory::default();
    assert!(!ask(&memory, &root, at(0)).asked_before);
    assert!(ask(&memory, &root, at(1)).asked_before);
}

/// As `pstore` keeps them: the parts of one dump, the last lines in the first.
const PANIC: &str = "Panic#1 Part1\n<4>[ 1234.500000] Call Trace:\n\
    <0>[ 1234.567890] Kernel panic - not syncing: Fatal exception in interrupt\n<0>[ 1234.6] Kernel Offset: disabled\n";
const OOPS: &str =
    "Oops#1 Part1\n<1>[ 99.1] BUG: kernel NULL pointer dereference, address: 0000000000000008\n";

fn panic_in(files: &[(&str, &str)], since: Option<Timestamp>) -> Option<String> {
    let (_folder, root) = host();
    for (path, text) in files {
        put(&root, path, text);
    }
    // The files bear the time of the test.
    traces::panic(&root, since, Clock.now())
}

#[test]
fn pstore_says_why_the_kernel_panicked() {
    let line = "Kernel panic - not syncing: Fatal exception in interrupt";
    let here = "/sys/fs/pstore/dmesg-ramoops-0";
    let archived = "/var/lib/systemd/pstore/1800000000/001/dmesg.txt";
    for path in [here, archived] {
        assert_eq!(panic_in(&[(path, PANIC)], None).as_deref(), Some(line));
        assert_eq!(panic_in(&[(path, OOPS)], None), None, "it was survived");
    }
    let parts = [
        (here, "Panic#1 Part2\n<6>[ 1.0] long before\n"),
        ("/sys/fs/pstore/dmesg-ramoops-1", PANIC),
    ];
    assert_eq!(panic_in(&parts, None).as_deref(), Some(line));
    assert!(panic_in(&parts[..1], None).unwrap().contains("no line"));
    // An older one, that nobody has cleared away, is of no boot that matters.
    let later = Timestamp::from_second(Clock.now().wall.as_second() + 3600).unwrap();
    assert_eq!(panic_in(&[(here, PANIC)], Some(later)), None);
    // What is in pstore besides is no dump.
    assert_eq!(
        panic_in(&[("/sys/fs/pstore/console-ramoops-0", PANIC)], None),
        None
    );
    let endless = format!("Panic#1 Part1\n{}", "x".repeat(3_000_000));
    assert!(panic_in(&[(here, &endless)], None).is_some());
    let odd = format!(
        "Panic#1\nKernel panic - not syncing: \u{1b}[31m{}",
        "y".repeat(900)
    );
    let told = panic_in(&[(here, &odd)], None).unwrap();
    assert!(told.len() <= 256 && !told.contains('\u{1b}'), "{told}");
}

#[test]
fn a_watchdog_that_reset_the_machine_says_so() {
    let (_folder, root) = host();
    assert_eq!(traces::watchdog(&root), None);
    let put_status = |text: &str| put(&root, "/sys/class/watchdog/watchdog0/bootstatus", text);
    for (status, says) in [
        ("0\n", false),
        ("32\n", true),
        ("33\n", true),
        ("1\n", false),
        ("x", false),
    ] {
        put_status(status);
        assert_eq!(traces::watchdog(&root).is_some(), says, "{status}");
    }
    put_status("32\n");
    put(
        &root,
        "/sys/class/watchdog/watchdog0/identity",
        "iTCO_wdt\n",
    );
    assert_eq!(traces::watchdog(&root).as_deref(), Some("iTCO_wdt"));
}
