//! `nodevigil replay` over recordings of real exhaustion, and over these made other than they were: what must be said of
//! them, and what must not.

mod trace;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use trace::{Sample, Trace, number};

/// A printed line.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    t_s: f64,
    from: String,
    to: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/memory-traces")
}

/// Exit code, stdout, stderr.
fn run(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nodevigil"))
        .arg("replay")
        .args(args)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn told(stdout: &str) -> Vec<Told> {
    let line = |line: &str| {
        let line: Sample = serde_json::from_str(line).unwrap();
        assert!(
            line["why"].as_str().is_some_and(|why| why.len() > 10),
            "{line:?}"
        );
        let word = |field: &str| line[field].as_str().unwrap().to_owned();
        Told {
            t_s: number(&line, "t_s"),
            from: word("from"),
            to: word("to"),
        }
    };
    stdout.lines().map(line).collect()
}

fn replay(trace: &Trace) -> Vec<Told> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.jsonl");
    fs::write(&file, trace.text()).unwrap();
    let (code, stdout, stderr) = run(&[file.to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let told = told(&stdout);
    let mut state = "calm";
    for told in &told {
        assert_eq!(told.from, state, "each begins where the last one ended");
        assert_ne!(told.from, told.to);
        state = &told.to;
    }
    told
}

fn first<'a>(told: &'a [Told], states: &[&str]) -> Option<&'a Told> {
    told.iter().find(|told| states.contains(&told.to.as_str()))
}

/// What is wrong with what was told of it, by what happened.
fn wrong(trace: &Trace, told: &[Told], lead: f64) -> Option<String> {
    let alarm = first(told, &["imminent", "thrashing", "oom"]);
    if trace.what().starts_with("lethal") {
        let killed_at = trace.killed_at().unwrap();
        let imminent = first(told, &["imminent"]);
        let ahead = imminent.map(|told| killed_at - told.t_s);
        if ahead.is_none_or(|ahead| ahead < lead) {
            return Some(format!("imminent {ahead:?} s ahead"));
        }
        let oom = first(told, &["oom"]).map(|told| told.t_s - killed_at);
        if oom.is_none_or(|late| !(-0.1..2.1).contains(&late)) {
            return Some(format!("oom {oom:?} s after the kill"));
        }
        return None;
    }
    if trace.what().starts_with("livelock") {
        let short_from = trace.short_from().unwrap();
        let late = first(told, &["thrashing"]).map(|told| told.t_s - short_from);
        if late.is_none_or(|late| late > 10.0) {
            return Some(format!("thrashing {late:?} s after {short_from} s"));
        }
        return first(told, &["oom"]).map(|told| format!("{told:?} without a kill"));
    }
    if trace.what() == "unseen" {
        return None;
    }
    if trace.what().contains("swap") || trace.what().contains("zram") {
        let end = first(told, &["imminent", "oom"]);
        return end.map(|told| format!("{told:?} without a kill"));
    }
    alarm.map(|told| format!("an alarm: {told:?}"))
}

/// The recordings of a folder below the recordings.
fn traces_of(below: &str) -> Vec<(String, Trace)> {
    let mut traces: Vec<_> = fs::read_dir(folder().join(below))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, Trace::read(&path))
        })
        .collect();
    traces.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(traces.len() >= 8);
    traces
}

/// Every recording, changed so, is judged as it must be, and exhaustion said that long ahead.
fn hold(what: &str, lead: f64, change: impl Fn(&Trace) -> Trace) {
    hold_of("", what, lead, change);
}

fn hold_of(below: &str, what: &str, lead: f64, change: impl Fn(&Trace) -> Trace) {
    let mut all_wrong = Vec::new();
    for (name, trace) in traces_of(below) {
        let changed = change(&trace);
        let told = replay(&changed);
        if let Some(wrong) = wrong(&changed, &told, lead) {
            all_wrong.push(format!("{name}: {wrong}; {told:?}"));
        }
    }
    assert!(all_wrong.is_empty(), "{what}: {}", all_wrong.join("\n"));
}

#[test]
fn what_was_recorded_is_said_as_it_was() {
    hold("as recorded", 2.5, Trace::clone);
}

#[test]
fn what_the_guest_recorded_is_said_as_it_was() {
    for below in ["recorded", "held-out"] {
        if !folder().join(below).is_dir() {
            continue;
        }
        hold_of(below, below, 2.5, |trace| {
            let mut trace = trace.clone();
            // It grows as fast as what is lethal does, until 15 % are left: until then nobody can tell them apart.
            if trace.what().contains("15 % of the memory stays available") {
                trace.samples.truncate(50);
            }
            trace
        });
    }
}

#[test]
fn without_what_a_host_may_lack_it_is_still_said() {
    hold("no PSI", 2.5, |trace| {
        trace.without(&[
            "psi_some_pct",
            "psi_full_pct",
            "kubepods_some_pct",
            "kubelet_full_pct",
        ])
    });
    hold("no groups", 2.5, |trace| {
        trace.without(&["kubepods_some_pct", "kubelet_full_pct"])
    });
    hold("little", 2.5, |trace| {
        trace.without(&[
            "jitter_ms",
            "free_mib",
            "anon_mib",
            "stalls",
            "majfault_per_s",
            "kubepods_some_pct",
        ])
    });
    // Nothing says whether a page is dropped in vain then.
    let lethal_only = |trace: &Trace| {
        let mut trace = trace.without(&["scan_per_s", "refault_per_s"]);
        if trace.what().starts_with("livelock") {
            trace.header.insert("what".to_owned(), "unseen".into());
        }
        trace
    };
    hold("no vmstat", 2.5, lethal_only);
}

#[test]
fn on_a_host_of_any_size_it_is_said() {
    for gib in [1.0, 4.0, 16.0] {
        hold(&format!("{gib} GiB"), 2.5, |trace| {
            trace.scaled(gib * 1024.0 / 470.0)
        });
    }
}

#[test]
fn on_a_slower_or_a_faster_host_it_is_said() {
    hold("half as fast", 5.0, |trace| trace.stretched(2.0));
    hold("a fifth as fast", 10.0, |trace| trace.stretched(5.0));
    // Twice as fast leaves half of the time.
    hold("twice as fast", 1.2, |trace| {
        let mut trace = trace.stretched(0.5);
        if trace.what().starts_with("lethal") {
            trace.header.insert("what".to_owned(), "lethal".into());
        }
        trace
    });
}

#[test]
fn looked_at_less_often_it_is_said() {
    for keep in [2, 3, 5] {
        hold(&format!("one in {keep}"), 2.0, |trace| {
            trace.picked(|index| index % keep == 0)
        });
    }
    for seed in 1..=4 {
        hold(&format!("a third is missing, seed {seed}"), 2.0, |trace| {
            let mut dice = fastrand::Rng::with_seed(seed);
            trace.picked(|_| dice.u8(0..3) > 0)
        });
    }
}

#[test]
fn bad_recordings_are_named_by_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.jsonl");
    let path = file.to_str().unwrap();
    let header = r#"{"total_mib": 470}"#;
    let sample = r#"{"t_s": 1, "available_mib": 300}"#;
    for (text, line, word) in [
        (String::new(), 1, "empty"),
        ("{\n".to_owned(), 1, "EOF"),
        ("{\"total_mib\": \"much\"}\n".to_owned(), 1, "invalid type"),
        ("{\"total_mib\": -4}\n".to_owned(), 1, "total_mib"),
        (format!("{sample}\n"), 1, "header"),
        (format!("{header}\n{sample}\nnonsense\n"), 3, "expected"),
        (format!("{header}\n\n{{\"available_mib\": 3}}\n"), 3, "t_s"),
        (format!("{header}\n{{\"t_s\": -1}}\n"), 2, "t_s"),
        (format!("{header}\n{{\"t_s\": 1e300}}\n"), 2, "t_s"),
        (format!("{header}\n{}\n", "x".repeat(70_000)), 2, "longer"),
        (
            format!("{header}\n{{\"t_s\": 1, \"oom_scope\": \"moon\"}}\n"),
            2,
            "moon",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        let (code, stdout, stderr) = run(&[path]);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert!(
            stderr.contains(&format!("{path}:{line}: ")) && stderr.contains(word),
            "{stderr}"
        );
    }
    fs::write(&file, [0xff, b'\n']).unwrap();
    let (code, _, stderr) = run(&[path]);
    assert!(
        code == 1 && stderr.contains(&format!("{path}:1: ")),
        "{stderr}"
    );
    let (code, _, stderr) = run(&["/does/not/exist.jsonl"]);
    assert!(
        code == 1 && stderr.contains("/does/not/exist.jsonl"),
        "{stderr}"
    );
    assert_eq!(run(&[]).0, 2, "a file must be given");
}

#[test]
fn thresholds_come_from_the_configuration_and_many_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("memory.toml");
    let config = config.to_str().unwrap();
    fs::write(config, "[memory]\nimminent_percent = 10\n").unwrap();
    let trace = self::folder().join("sslow.jsonl");
    let trace = trace.to_str().unwrap();
    let imminent_at = |args: &[&str]| {
        let (code, stdout, stderr) = run(args);
        assert_eq!(code, 0, "{stderr}");
        first(&told(&stdout), &["imminent"]).unwrap().t_s
    };
    assert!(imminent_at(&["--config", config, trace]) > imminent_at(&[trace]) + 5.0);
    fs::write(config, "[memory]\nimminent_percent = 90\n").unwrap();
    let (code, _, stderr) = run(&["--config", config, trace]);
    assert!(
        code == 78 && stderr.contains("memory.imminent_percent"),
        "{stderr}"
    );
    let other = self::folder().join("skill.jsonl");
    let (_, stdout, _) = run(&[trace, other.to_str().unwrap()]);
    let files: Vec<_> = stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<Sample>(line).unwrap()["file"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert!(files.first().unwrap() == trace && files.last().unwrap() == other.to_str().unwrap());
}
