//! Records in, events out.

use super::*;

fn record(facility: u32, sequence: u64, secs: u64, text: &str) -> Vec<u8> {
    let priority = facility << 3 | 3;
    format!(
        "{priority},{sequence},{},-;{text}\n SUBSYSTEM=x\n",
        secs * 1_000_000
    )
    .into_bytes()
}

fn sifted(sifter: &mut Sifter, record: &[u8]) -> Vec<KernelEvent> {
    let mut events = Vec::new();
    sifter.take(record, &mut |event| events.push(event));
    events
}

const KILL: &str = "Memory cgroup out of memory: Killed process 5 (x) total-vm:1kB, anon-rss:1kB";
const HUNG: &str = "INFO: task tar:5 blocked for more than 122 seconds.";

#[test]
fn only_the_kernel_is_believed() {
    let mut sifter = Sifter::default();
    for facility in 1..32 {
        for text in [KILL, HUNG] {
            let record = record(facility, facility.into(), 1, text);
            assert_eq!(sifted(&mut sifter, &record), []);
        }
    }
    assert!(matches!(
        sifted(&mut sifter, &record(0, 40, 1, KILL))[..],
        [KernelEvent::OomKill(_)]
    ));
    assert!(matches!(
        &sifted(&mut sifter, &record(0, 41, 1, HUNG))[..],
        [KernelEvent::Line(line)] if line.subject.as_deref() == Some("tar:5") && line.text == HUNG
    ));
}

#[test]
fn what_is_missing_is_counted_whoever_wrote_it() {
    let mut sifter = Sifter::default();
    sifted(&mut sifter, &record(0, 10, 1, "x"));
    sifted(&mut sifter, &record(1, 11, 1, "x"));
    assert_eq!(sifter.take_lost(), 0);
    sifted(&mut sifter, &record(1, 1000, 1, "x"));
    assert_eq!(sifter.take_lost(), 988);
    assert_eq!(sifter.take_lost(), 0);
    sifted(&mut sifter, &record(1, 3, 1, "x"));
    assert_eq!(sifter.take_lost(), 0, "numbers that go back are no loss");
}

#[test]
fn a_flood_of_one_pattern_is_held_back_and_others_are_not() {
    let mut sifter = Sifter::default();
    let mut lines = 0;
    for sequence in 0..20_000 {
        lines += sifted(&mut sifter, &record(0, sequence, 100, HUNG)).len();
    }
    assert_eq!(lines, LINES as usize);
    let kill = record(0, 20_000, 100, KILL);
    assert_eq!(sifted(&mut sifter, &kill).len(), 1);
    let later = record(0, 20_001, 111, HUNG);
    assert_eq!(sifted(&mut sifter, &later).len(), 1);
}

#[test]
fn lines_are_bounded() {
    let mut sifter = Sifter::default();
    let long = format!(
        "INFO: task {} blocked for more than {} seconds.",
        "é".repeat(400),
        "9".repeat(4000)
    );
    let events = sifted(&mut sifter, &record(0, 1, 1, &long));
    let [KernelEvent::Line(line)] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(line.text.len() <= MAX_TEXT_BYTES);
    assert!(line.subject.as_ref().unwrap().len() <= MAX_SUBJECT_BYTES);
}

proptest::proptest! {
    /// Whatever is written: nothing panics, and what is handed on is bounded.
    #[test]
    fn nothing_that_is_written_hurts(
        records in proptest::collection::vec((0_u32..2, "\\PC{0,60}", 0..PATTERNS.len(), "[ -~]{0,80}"), 0..40),
    ) {
        let mut sifter = Sifter::default();
        for (sequence, (facility, noise, pattern, rest)) in (0..).zip(&records) {
            let start = PATTERNS[*pattern].starts[0];
            for text in [noise.as_str(), &format!("{start}{rest}"), &format!("{start}{noise}")] {
                sifter.take(&record(*facility, sequence, sequence, text), &mut |event| {
                    if let KernelEvent::Line(line) = event {
                        assert!(line.text.len() <= MAX_TEXT_BYTES);
                    }
                });
            }
            sifter.take(noise.as_bytes(), &mut |_| {});
        }
        sifter.flush(&mut |_| {});
    }
}
