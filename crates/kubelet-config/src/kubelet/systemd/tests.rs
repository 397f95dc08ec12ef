//! Whole units. What is expected is what systemd 252 did with the same files; each number in a test's name is one such trial.

use std::path::Path;

use serde_json::Value;

use super::*;
use crate::kubelet::tree::{MemoryTree, Tree};

mod environment;
mod exec;
mod hostile;
pub(crate) mod hosts;
mod loading;
mod syntax;

const ETC: &str = "/etc/systemd/system";
const USR: &str = "/usr/lib/systemd/system";

/// A tree with `k.service`, whose `[Service]` has these lines.
fn service(lines: &str) -> MemoryTree {
    MemoryTree::new().file(format!("{USR}/k.service"), format!("[Service]\n{lines}\n"))
}

fn load(tree: &MemoryTree) -> Unit {
    resolve_unit(tree, "k.service", &Manager::default())
}

fn argv(unit: &Unit) -> Vec<&str> {
    unit.argv.iter().map(|word| word.text.as_str()).collect()
}

/// The words after the program.
fn words(lines: &str) -> Vec<String> {
    let unit = load(&service(lines));
    assert_eq!(unit.load, LoadState::Loaded, "{lines}");
    argv(&unit)[1..].iter().map(|word| (*word).to_owned()).collect()
}

/// Whether the unit has an event like this, with this text.
fn has(unit: &Unit, text: &str, kind: impl Fn(&EventKind) -> bool) -> bool {
    unit.events.iter().any(|event| kind(&event.kind) && event.text.contains(text))
}
