//! `nodevigil replay` over what the guest recorded (`tests/vm`), and over the half that was kept for testing only.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

/// What a forecast is worth: so long ahead of the kill.
const AHEAD_SECS: f64 = 2.5;
/// A livelock is told so soon after the memory was as good as gone.
const LIVELOCK_SECS: f64 = 10.0;

#[test]
fn what_the_guest_recorded_is_told_as_it_happened() {
    all_of("recorded");
}

#[test]
fn what_was_held_out_is_told_as_it_happened() {
    all_of("held-out");
}

fn all_of(folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/memory-traces")
        .join(folder);
    let (mut wrong, mut traces) = (Vec::new(), 0);
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "jsonl") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            traces += 1;
            wrong.extend(judged(&path).map(|why| format!("{name}: {why}")));
        }
    }
    assert!(traces >= 10, "only {traces} traces in {}", folder.display());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with what is told of a trace.
fn judged(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (head, samples) = lines.split_first().unwrap();
    let what = head["what"].as_str().unwrap();
    let told = replayed(path);
    let first = |state: &str| told.iter().find(|(_, to)| to == state).map(|(at, _)| *at);
    if let Some(kill) = head["oom_kill_at_s"].as_f64() {
        let ahead = first("imminent").map(|at| kill - at);
        return ahead
            .is_none_or(|ahead| ahead < AHEAD_SECS)
            .then(|| format!("{ahead:?} s ahead of the kill"));
    }
    if what.starts_with("livelock") {
        let gone = gone_from(samples, head["total_mib"].as_f64().unwrap());
        let late = first("thrashing").map(|at| at - gone);
        return late
            .is_none_or(|late| late > LIVELOCK_SECS)
            .then(|| format!("thrashing after {late:?} s"));
    }
    // Swap that is filled at once may stall a kubelet for good seconds: only a forecast is wrong there.
    let allowed: &[&str] = if head["swap"] == "none" {
        &["calm", "rising"]
    } else {
        &["calm", "rising", "thrashing"]
    };
    told.iter()
        .find(|(_, to)| !allowed.contains(&to.as_str()))
        .map(|told| format!("{told:?}"))
}

/// When at most a twentieth of the memory was available, and stayed so for a second.
fn gone_from(samples: &[Value], total_mib: f64) -> f64 {
    let scarce = |sample: &Value| sample["available_mib"].as_f64().unwrap() <= total_mib / 20.0;
    let at = |sample: &Value| sample["t_s"].as_f64().unwrap();
    let stays = |from: usize| {
        let start = at(&samples[from]);
        samples[from..]
            .iter()
            .take_while(|sample| at(sample) < start + 1.0)
            .all(scarce)
    };
    let from = (0..samples.len())
        .find(|from| stays(*from))
        .expect("a livelock has next to nothing left");
    at(&samples[from])
}

/// Each change of state: when, and to which.
fn replayed(path: &Path) -> Vec<(f64, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_nodevigil"))
        .arg("replay")
        .arg(path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        path.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    let change = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        (
            line["t_s"].as_f64().unwrap(),
            line["to"].as_str().unwrap().to_owned(),
        )
    };
    lines.lines().map(change).collect()
}
