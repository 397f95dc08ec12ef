//! The corners of systemd's grammar, each an ingredient with a name: what is in these tables is what the oracle covers.
//!
//! Texts have placeholders, see [`Draft::fill`].

mod aliases;
mod command_lines;
mod env_files;
mod environment;
mod files;
mod globs;
mod soup;
mod syntax;
mod words;

use crate::draft::{Draft, weighted};

/// What an ingredient does to a tree.
#[derive(Clone, Copy)]
enum Add {
    /// Lines of a `[Service]` section.
    Lines(&'static str),
    /// A drop-in, byte by byte.
    DropIn(&'static [u8]),
    /// Words at the end of a command line.
    Words(&'static str),
    /// A drop-in that resets the command line and sets this one.
    Command(&'static str),
    /// Text at the end of an environment file.
    Text(&'static [u8]),
    /// Anything else.
    Change(fn(&mut Draft)),
}

type Ingredient = (&'static str, Add);

/// The tables, each with its name and how often it is drawn from.
const TABLES: [(u32, (&str, &[Ingredient])); 8] = [
    (18, ("environment", environment::LINES)),
    (8, ("environment file", environment::FILES)),
    (20, ("env file", env_files::TEXTS)),
    (18, ("word", words::WORDS)),
    (7, ("command line", command_lines::COMMANDS)),
    (16, ("files", files::CHANGES)),
    (9, ("syntax", syntax::DROP_INS)),
    (8, ("soup", soup::SOUPS)),
];

/// The names of all ingredients.
pub(crate) fn names() -> impl Iterator<Item = String> {
    TABLES
        .iter()
        .flat_map(|(_, (table, ingredients))| ingredients.iter().map(move |(name, _)| format!("{table}: {name}")))
}

/// Adds one ingredient to a tree.
pub(crate) fn stir_in(draft: &mut Draft) {
    let (table, ingredients) = weighted(&mut draft.random, &TABLES);
    let (name, add) = ingredients[draft.random.usize(..ingredients.len())];
    draft.ingredients.push(format!("{table}: {name}"));
    match add {
        Add::Lines(lines) => draft.service_lines(lines),
        Add::DropIn(content) => draft.drop_in(content),
        Add::Words(words) => draft.words(words),
        Add::Text(text) => draft.environment_text(text),
        Add::Change(change) => change(draft),
        Add::Command(command) => {
            draft.drop_in(format!("[Service]\nExecStart=\nExecStart={command}\n").as_bytes());
        }
    }
}

/// Drop-ins in `service.d`, which are all services'; a group of trees shares them.
pub(crate) fn type_level(draft: &mut Draft) {
    files::type_level(draft);
}
