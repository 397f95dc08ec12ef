//! The distribution's options with their places: files, then the command line, then variables for what neither gives.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::Program;
use crate::kubelet::layers::{KubeletCommand, Launcher, ReplacedList, Slip};
use crate::kubelet::location::Location;
use crate::kubelet::systemd::{Arg, Unit};
use crate::kubelet::table::rows;
use crate::kubelet::text::nearest;
use crate::kubelet::tree::Tree;

/// Options that may be given several times, of those that bear on the kubelet.
const LISTS: [&str; 3] = ["kubelet-arg", "node-label", "node-taint"];

/// Options that a variable may give, of those that bear on the kubelet.
const FROM_VARIABLES: [&str; 5] = ["node-name", "resolv-conf", "data-dir", "cloud-provider-name", "kubelet-path"];

const MAX_REPLACED: usize = 100;

#[derive(Debug, Clone)]
struct Values {
    /// The key, or the first word.
    at: Location,
    /// The values; of a word only its text is replaced, so that it keeps where it comes from.
    items: Vec<Arg>,
    /// The maps among them, which the kubelet does not understand: `a=b` for `a: b`.
    maps: Vec<(Location, String)>,
}

#[derive(Debug, Default)]
pub(super) struct Options(BTreeMap<String, Values>);

impl Options {
    pub(super) fn all(&self, option: &str) -> &[Arg] {
        self.0.get(option).map_or(&[], |values| values.items.as_slice())
    }

    /// The value of an option whose last one counts.
    pub(super) fn last(&self, option: &str) -> Option<&Arg> {
        self.all(option).last()
    }

    /// The text of the same, if it is not empty.
    pub(super) fn text(&self, option: &str) -> Option<&str> {
        self.last(option).map(|word| word.text.as_str()).filter(|text| !text.is_empty())
    }

    /// Whether a switch is on, as Go reads it.
    pub(super) fn is_set(&self, option: &str) -> bool {
        self.text(option).is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }
}

/// Reads all options; `words` are those after `agent` or `server`. `kubelet` gets what was read, or not.
pub(super) fn read(
    tree: &dyn Tree,
    unit: &Unit,
    program: Program,
    words: &[Arg],
    kubelet: &mut KubeletCommand,
) -> Options {
    let given = command_line(words);
    let mut options = Options::default();
    for file in files::find(tree, unit, program, &given, kubelet) {
        files::read(tree, &file, program, &mut options, kubelet);
    }
    for (option, values) in given {
        // The parser puts the files' values before the command line's, into a list that keeps both, whatever the
        // documentation says; of another option the last value counts.
        let Values { at, items, .. } = values;
        let first = || Values { at, items: Vec::new(), maps: Vec::new() };
        options.0.entry(option).or_insert_with(first).items.extend(items);
    }
    for unknown in &mut kubelet.unknown_options {
        unknown.is_given = unknown.meant.is_some_and(|meant| options.0.contains_key(meant));
    }
    for list in LISTS {
        let maps = options.0.get(list).into_iter().flat_map(|values| &values.maps);
        kubelet.slips.extend(maps.map(|(at, meant)| (at.clone(), Slip::Map { list, meant: meant.clone() })));
    }
    for option in FROM_VARIABLES {
        if let (None, Some(word)) = (options.last(option), program.variable(unit, option)) {
            options
                .0
                .insert(option.to_owned(), Values { at: word.declared.clone(), items: vec![word], maps: Vec::new() });
        }
    }
    options
}

/// Puts values in the place of earlier ones; what a list loses is noted.
fn replace(options: &mut Options, option: String, values: Values, kubelet: &mut KubeletCommand) {
    let by = values.at.clone();
    let again: BTreeSet<String> = values.items.iter().map(|new| name_of(&option, &new.text).to_owned()).collect();
    let Some(old) = options.0.insert(option.clone(), values) else { return };
    let lost = old.items.iter().filter(|item| !again.contains(name_of(&option, &item.text)));
    let lost: Vec<_> = lost.map(|item| (item.text.clone(), item.at().clone())).collect();
    let is_list = LISTS.contains(&option.as_str());
    if is_list && !lost.is_empty() && kubelet.replaced.len() < MAX_REPLACED {
        kubelet.replaced.push(ReplacedList { key: option, at: old.at, lost, by, by_command_line: false });
    }
}

/// What an item sets: an item that the later list sets otherwise is overridden, which may be meant, and not lost.
fn name_of<'a>(option: &str, item: &'a str) -> &'a str {
    let item = if option == "kubelet-arg" { item.strip_prefix("--").unwrap_or(item) } else { item };
    item.split('=').next().unwrap_or(item)
}

/// The options of the command line, in Go's way: one dash or two, the value after `=` or in the next word.
fn command_line(words: &[Arg]) -> BTreeMap<String, Values> {
    let mut found = BTreeMap::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.text.strip_prefix('-') else { continue };
        let text = text.strip_prefix('-').unwrap_or(text);
        if text.is_empty() {
            // `--` ends the options.
            break;
        }
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let option = long_name(name);
        let value = value.or_else(|| KNOWN.get(option).is_some_and(|known| known.is_switch).then_some("true"));
        let item = value.map(|value| Arg { text: value.to_owned(), ..word.clone() });
        let Some(item) = item.or_else(|| words.next().cloned()) else { break };
        let first = || Values { at: word.at().clone(), items: Vec::new(), maps: Vec::new() };
        found.entry(option.to_owned()).or_insert_with(first).items.push(item);
    }
    found
}

/// The options that have a letter of their own.
fn long_name(name: &str) -> &str {
    match name {
        "c" => "config",
        "d" => "data-dir",
        "i" => "node-ip",
        "l" => "log",
        "s" => "server",
        "t" => "token",
        name => name,
    }
}

/// A line of `options.txt`, which has the options of k3s and RKE2.
struct Known {
    k3s: &'static str,
    rke2: &'static str,
    is_switch: bool,
}

static KNOWN: LazyLock<BTreeMap<&str, Known>> = LazyLock::new(|| {
    let lines = rows(include_str!("options.txt"));
    lines.map(|[name, k3s, rke2, switch]| (name, Known { k3s, rke2, is_switch: switch == "switch" })).collect()
});

impl Known {
    fn applies_to(&self, program: Program) -> bool {
        let commands = if program.launcher == Launcher::K3s { self.k3s } else { self.rke2 };
        commands.contains(if program.is_server { "server" } else { "agent" })
    }
}

/// Whether `k3s agent`, `k3s server` and so on have the option. RKE2's agent skips a server's: some share one file.
fn is_known(program: Program, option: &str) -> bool {
    let is_server = program.is_server || program.launcher == Launcher::Rke2;
    KNOWN.get(option).is_some_and(|known| known.applies_to(Program { is_server, ..program }))
}

fn meant(program: Program, key: &str) -> Option<&'static str> {
    let known = KNOWN.iter().filter(|(_, known)| known.applies_to(program)).map(|(name, _)| *name);
    nearest(key, known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const K3S_AGENT: Program = Program { launcher: Launcher::K3s, is_server: false };
    const K3S_SERVER: Program = Program { is_server: true, ..K3S_AGENT };
    const RKE2_SERVER: Program = Program { launcher: Launcher::Rke2, is_server: true };

    #[test]
    fn every_line_of_the_table_is_an_option() {
        let lines = include_str!("options.txt").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), KNOWN.len());
        for (name, known) in KNOWN.iter() {
            let columns = [known.k3s, known.rke2];
            assert!(
                columns
                    .iter()
                    .all(|column| ["-", "agent,server", "server"].contains(column) || *name == "disable-apiserver-lb"),
                "{name}"
            );
        }
        assert!(is_known(K3S_AGENT, "kubelet-arg") && is_known(RKE2_SERVER, "kubelet-arg"));
        assert!(is_known(K3S_SERVER, "flannel-backend") && !is_known(RKE2_SERVER, "flannel-backend"));
        assert!(!is_known(K3S_AGENT, "disable"));
        assert!(KNOWN["debug"].is_switch && !KNOWN["node-ip"].is_switch);
    }

    #[test]
    fn a_slip_is_told_from_another_word() {
        for key in ["kublet-arg", "kubelet-args", "kubelet_arg", "kubeletArg", "Kubelet-Arg"] {
            assert_eq!(meant(K3S_SERVER, key), Some("kubelet-arg"), "{key}");
        }
        assert_eq!(meant(K3S_SERVER, "max-pods"), None);
        assert_eq!(meant(K3S_AGENT, "disable"), None);
        assert_eq!(meant(K3S_SERVER, &"k".repeat(1 << 20)), None);
    }
}
