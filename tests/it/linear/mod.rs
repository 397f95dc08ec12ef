//! Text of others of up to 1 MiB takes time in proportion to its size, whatever its shape: the whole of what
//! `nodevigil check` does with it, resolver, rules and comments that allow.
//!
//! Each shape is made in four sizes, each four times the one before, and the CPU time of one thread is compared with
//! that of the next size in the same run, so that a slow machine does not matter: four times is linear, sixteen times
//! is quadratic.

mod shapes;

use std::{fmt::Write as _, time::Duration};

use nix::time::{ClockId, clock_gettime};
use nodevigil::{
    kubelet::{
        resolve::{Inputs, snapshot},
        tree::MemoryTree,
    },
    rules,
};
use shapes::Shape;

/// The sizes of the text, in bytes.
const SIZES: [usize; 3] = [1 << 13, 1 << 15, 1 << 17];
/// How much longer four times as much may take.
const MAX_RATIO: f64 = 10.0;
/// How often a shape is tried before it fails: the least time of all tries counts.
const TRIES: usize = 1;
/// Less than this is not told from noise, and is taken as this.
const LEAST: Duration = Duration::from_millis(4);

fn thread_time() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
}

/// What one check of a tree takes.
fn check(tree: &MemoryTree, unit: &str, version: &str) -> Duration {
    let start = thread_time();
    let inputs = Inputs {
        unit: Some(unit.to_owned()),
        version: Some(version.parse().unwrap()),
        hostname: Some("node-1".to_owned()),
        now_secs: Some(1_800_000_000),
        ..Inputs::default()
    };
    let snapshot = snapshot(tree, inputs);
    let report = rules::run(&snapshot);
    let parted = rules::allow::part(tree, report.findings);
    let spent = thread_time().saturating_sub(start);
    drop((snapshot, parted));
    spent
}

/// Fails with every shape that grows faster than its text.
fn ensure_linear(unit: &str, version: &str, shapes: &[Shape]) {
    let mut failed = String::new();
    for (name, make) in shapes {
        if std::env::var("ONLY").is_ok_and(|only| !name.contains(&only)) {
            continue;
        }
        let trees = SIZES.map(|size| make(&size));
        let mut least = [Duration::MAX; SIZES.len()];
        let mut steep = true;
        for _ in 0..TRIES {
            for (tree, least) in trees.iter().zip(&mut least) {
                *least = check(tree, unit, version).min(*least);
            }
            steep = least.windows(2).any(|pair| {
                pair[1].max(LEAST).as_secs_f64() > MAX_RATIO * pair[0].max(LEAST).as_secs_f64()
            });
            if !steep {
                break;
            }
        }
        if std::env::var_os("LINEAR_SHOW").is_some() {
            eprintln!(
                "{name}: {least:?}{}",
                if steep { "   <== STEEP" } else { "" }
            );
        }
        if steep {
            writeln!(failed, "{name}: {least:?} for {SIZES:?} bytes").unwrap();
        }
    }
    assert!(failed.is_empty(), "more than linear time:\n{failed}");
}

#[test]
fn units() {
    ensure_linear("kubelet.service", "1.36.3", &shapes::units());
}

#[test]
fn command_lines() {
    ensure_linear("kubelet.service", "1.36.3", &shapes::command_lines());
}

#[test]
fn environment_files() {
    ensure_linear("kubelet.service", "1.36.3", &shapes::environment_files());
}

#[test]
fn configurations() {
    ensure_linear("kubelet.service", "1.36.3", &shapes::configurations());
}

#[test]
fn k3s_configurations() {
    ensure_linear("k3s-agent.service", "1.33.5+k3s1", &shapes::k3s());
}

#[test]
fn argument_files() {
    let unit = "snap.microk8s.daemon-kubelite.service";
    ensure_linear(unit, "1.32.0", &shapes::argument_files());
}
