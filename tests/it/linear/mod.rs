//! Text of others of up to 1 MiB takes time in proportion to its size, whatever its shape: the whole of what
//! `nodevigil check` does with it, resolver, rules and comments that allow.
//!
//! Each shape is made in four sizes, each four times the one before, and the CPU time of one thread is compared with
//! that of the next size in the same run, so that a slow machine does not matter: four times is linear, sixteen times
//! is quadratic.

mod rows;
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

/// The sizes of the text, in bytes. The last one leaves room for what stands around it: a line of more than 1 MiB is
/// refused as a whole.
const SIZES: [usize; 4] = [1 << 14, 1 << 16, 1 << 18, (1 << 20) - 256];
/// How much longer four times as much may take.
const MAX_RATIO: f64 = 10.0;
/// How often a shape is tried before it fails: the least time of all tries counts.
const TRIES: usize = 1;
/// Larger sizes of a shape are not tried after one that took this: what is slow shows early. `LINEAR_FULL=1` tries
/// them all.
const ENOUGH: Duration = Duration::from_millis(25);
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

/// The least times of a shape, size by size, as far as it is measured.
#[derive(Debug)]
struct Times(Vec<Duration>);

impl Times {
    /// Measures once more what was measured before, or all sizes up to the first that takes long enough.
    fn measure(&mut self, make: &dyn Fn(usize) -> MemoryTree, unit: &str, version: &str) {
        let everything = std::env::var_os("LINEAR_FULL").is_some();
        for (index, size) in SIZES.into_iter().enumerate() {
            let spent = check(&make(size), unit, version);
            match self.0.get_mut(index) {
                Some(least) => *least = spent.min(*least),
                None => self.0.push(spent),
            }
            if spent > ENOUGH && index > 0 && !everything {
                break;
            }
        }
    }

    fn is_steep(&self) -> bool {
        self.0.windows(2).any(|pair| {
            pair[1].max(LEAST).as_secs_f64() > MAX_RATIO * pair[0].max(LEAST).as_secs_f64()
        })
    }
}

/// Fails with every shape that grows faster than its text.
fn ensure_linear(unit: &str, version: &str, shapes: &[Shape]) {
    let mut failed = String::new();
    for (name, make) in shapes {
        let mut times = Times(Vec::new());
        for _ in 0..TRIES {
            times.measure(make, unit, version);
            if !times.is_steep() {
                break;
            }
        }
        if times.is_steep() {
            writeln!(failed, "{name}: {times:?} for {SIZES:?} bytes").unwrap();
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
