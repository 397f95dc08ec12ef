//! The distribution's options, each value with its place: files, then the command line, then variables for what neither
//! gives.

mod command_line;
mod files;
mod known;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        super::{
            location::Location,
            systemd::{Arg, Unit},
            tree::Tree,
        },
        KubeletCommand, ReplacedList,
    },
    Program,
};

/// Options that may be given several times, of those that bear on the kubelet.
const LISTS: [&str; 3] = ["kubelet-arg", "node-label", "node-taint"];

/// Options that a variable may give, of those that bear on the kubelet.
const FROM_VARIABLES: [&str; 5] = ["node-name", "resolv-conf", "data-dir", "cloud-provider-name", "kubelet-path"];

/// The most replaced lists that are kept.
const MAX_REPLACED: usize = 100;

/// An option's values.
#[derive(Debug, Clone)]
struct Values {
    /// The key, or the first word.
    at: Location,
    /// The values; of a word only its text is replaced, so that it keeps where it comes from.
    items: Vec<Arg>,
}

/// The options that count.
#[derive(Debug, Default)]
pub(super) struct Options(BTreeMap<String, Values>);

impl Options {
    /// The values of an option, in order.
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

/// Reads all options; `words` are those behind `agent` or `server`. Notes in `kubelet` what was read, replaced and
/// could not be read.
pub(super) fn read(
    tree: &dyn Tree,
    unit: &Unit,
    program: Program,
    words: &[Arg],
    kubelet: &mut KubeletCommand,
) -> Options {
    let given = command_line::read(words);
    let mut options = Options::default();
    for file in files::find(tree, unit, program, &given, kubelet) {
        files::read(tree, &file, program, &mut options, kubelet);
    }
    for (option, values) in given {
        if option == "kubelet-arg" {
            kubelet.new_argument = None;
        }
        // k3s's and RKE2's documentation: the command line overwrites all values of the list. (Their parser puts the
        // files' values before the command line's, into a list that would keep both: who relies on that, relies on
        // what the documentation denies.)
        replace(&mut options, option, values, true, kubelet);
    }
    for unknown in &mut kubelet.unknown_options {
        unknown.is_given = unknown.meant.is_some_and(|meant| options.0.contains_key(meant));
    }
    for option in FROM_VARIABLES {
        if let (None, Some(word)) = (options.last(option), program.variable(unit, option)) {
            options.0.insert(option.to_owned(), Values { at: word.declared.clone(), items: vec![word] });
        }
    }
    options
}

/// Puts values in the place of earlier ones; what a list loses is noted.
fn replace(options: &mut Options, option: String, values: Values, by_command_line: bool, kubelet: &mut KubeletCommand) {
    let by = values.at.clone();
    let lost = match options.0.get(&option) {
        Some(old) if LISTS.contains(&option.as_str()) => {
            let again: BTreeSet<&str> = values.items.iter().map(|new| name_of(&option, &new.text)).collect();
            old.items
                .iter()
                .filter(|item| !again.contains(name_of(&option, &item.text)))
                .map(|item| (item.text.clone(), item.at().clone()))
                .collect()
        }
        _ => Vec::new(),
    };
    if let Some(old) = options.0.insert(option.clone(), values)
        && !lost.is_empty()
        && kubelet.replaced.len() < MAX_REPLACED
    {
        kubelet.replaced.push(ReplacedList { key: option, at: old.at, lost, by, by_command_line });
    }
}

/// What an item sets: an item that the later list sets to something else is overridden, which may be meant, and not
/// lost.
fn name_of<'a>(option: &str, item: &'a str) -> &'a str {
    let item = if option == "kubelet-arg" { item.strip_prefix("--").unwrap_or(item) } else { item };
    item.split('=').next().unwrap_or(item)
}
