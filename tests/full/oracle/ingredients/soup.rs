//! Text at random, of the characters that mean something: for unexpected combinations.

use super::{Add, Ingredient};
use crate::draft::Draft;

const fn soup(name: &'static str, change: fn(&mut Draft)) -> Ingredient {
    (name, Add::Change(change))
}

pub(super) const SOUPS: &[Ingredient] = &[
    soup("Environment", |draft| {
        let text = some(draft, ENVIRONMENT, 12);
        draft.service_lines(&format!("Environment={text}"));
    }),
    soup("Environment, assignments", |draft| {
        let mut line = String::from("Environment=");
        for name in ["A", "B", "C"] {
            let quote = draft.one(&["", "\"", "'"]);
            let text = some(draft, ENVIRONMENT, 5);
            line.push_str(&format!("{quote}{name}={text}{quote} "));
        }
        draft.service_lines(line.trim_end());
    }),
    soup("UnsetEnvironment", |draft| {
        let text = some(draft, NAMES, 4);
        draft.service_lines(&format!("Environment=A=1 B=2\nUnsetEnvironment={text}"));
    }),
    soup("PassEnvironment", |draft| {
        let text = some(draft, NAMES, 4);
        draft.service_lines(&format!("PassEnvironment={text}"));
    }),
    soup("environment file", |draft| {
        let text = some(draft, FILE, 20);
        draft.environment_text(text.as_bytes());
    }),
    soup("environment file, values", |draft| {
        for name in ["A", "B", "<V>"] {
            let text = some(draft, FILE, 8);
            draft.environment_text(format!("{name}={text}").as_bytes());
        }
    }),
    soup("environment file, quoted values", |draft| {
        for name in ["A", "B", "<V>"] {
            let quote = draft.one(&["\"", "'"]);
            let text = some(draft, FILE, 8);
            draft.environment_text(format!("{name}={quote}{text}{quote}").as_bytes());
        }
    }),
    soup("value for a command line", |draft| {
        let text = some(draft, VALUE, 10).replace('\'', "\"");
        draft.environment_text(format!("S='{text}'").as_bytes());
        draft.words("$S --s=${S}");
    }),
    soup("words", |draft| {
        let text = some(draft, WORDS, 10);
        draft.words(&text);
    }),
    soup("words without quotes and percent signs", |draft| {
        let text = some(draft, WORDS, 14);
        draft.words(&text.replace(['"', '\'', '%', '\\'], ""));
    }),
    soup("command line", |draft| {
        let prefix = some(draft, &["-", "@", ":", "+", "!", "", ""], 3);
        let text = some(draft, WORDS, 6);
        draft.drop_in(format!("[Service]\nExecStart=\nExecStart={prefix}<B> {text}\nEnvironment=AFTER=1\n").as_bytes());
    }),
    soup("unit file", |draft| {
        let text = some(draft, UNIT, 14);
        draft.drop_in(text.as_bytes());
    }),
    soup("path of an environment file", |draft| {
        let text = some(draft, PATH, 5);
        draft.service_lines(&format!("EnvironmentFile=-/etc/<N>/{text}"));
    }),
];

const ENVIRONMENT: &[&str] = &[
    " ", " ", "  ", "\t", "\"", "\"", "'", "'", "\\", "\\\\", "\\\"", "\\'", "\\n", "\\x41", "\\x20", "\\x", "\\1",
    "\\101", "%%", "%n", "%N", "%i", "%", "%5", "$A", "${A}", "=", "==", "A=", "B=", "<V>=", "a", "b", "1", "#", ";",
    "\\\n", "é", "\u{a0}", ",", "\\s", "\\t",
];

const NAMES: &[&str] =
    &[" ", " ", " ", "\"", "'", "A", "B", "A=1", "B=2", "=", "%N", "<V>", "\\", "\\\n", "ORACLE_SET", "1"];

const FILE: &[&str] = &[
    " ", " ", "\t", "\"", "\"", "'", "'", "\\", "\\", "\\\\", "\\\"", "\\'", "\\$", "\\`", "\\n", "\n", "\n", "\\\n",
    "\\\n", "\r", "\r\n", "#", "# x", ";", "=", "=", "A=", "B=", "<V>=", "<V>=", "a", "b", "c d", "$A", "`", "%n",
    "export ", "é", "1", "\u{b}",
];

const VALUE: &[&str] = &[
    " ", " ", " ", "  ", "\t", "\n", "\"", "\"", "'", "\\", "\\\\", "\\\"", "\\n", "\\x41", "\\x20", "\\q", "$A",
    "${A}", "$$", "%n", "a", "b", "--c=d", "é", ";", " ; ", "#", "\r", "\u{a0}",
];

const WORDS: &[&str] = &[
    " ", " ", " ", " ", "\t", "\"", "'", "$", "$$", "${", "}", "$A", "${A}", "$<V>", "${<V>}", "$<V>", "${<V>}",
    "\"$<V>\"", "'${<V>}'", "{", "a", "b", "--c=", "=", "\\\\", "\\\"", "\\n", "\\x41", "\\x24", "\\x25", "\\x20",
    "\\s", "%%", "%n", "%N", "%i", "% ", "\\;", ";", " ; ", "#", "\\\n", "-", ":", "@", "é", "\u{a0}", "1", "_", ".",
];

const UNIT: &[&str] = &[
    "[Service]\n",
    "[Service]\n",
    "[Service]\n",
    "[Unit]\n",
    "[X-A]\n",
    "[Install]\n",
    "[service]\n",
    "Environment=A=1\n",
    "Environment=B=1 C=2\n",
    "Environment=\"<V>=<F>\"\n",
    "Environment=",
    "A=1",
    " ",
    "\t",
    "\n",
    "\n",
    "\\\n",
    "\\\n",
    "\\ \n",
    "# x\n",
    "; x\n",
    "# x \\\n",
    "  # x\n",
    "\r",
    "\r\n",
    "\0",
    "=",
    "X=y\n",
    "Description=x\n",
    "Environment=\n",
    "UnsetEnvironment=A\n",
    "EnvironmentFile=-<E>\n",
    "EnvironmentFile=\n",
    "\u{feff}",
    "é",
];

const PATH: &[&str] = &[
    "/", "/", "etc", "default", "<N>", "<E>", "*", "?", "[", "]", "a", ".", "..", " ", "%N", "\"", "\\", "{", "}", "-",
];

/// So many of them at random, at most.
fn some(draft: &mut Draft, of: &[&str], most: usize) -> String {
    let mut text = String::new();
    for _ in 0..draft.random.usize(1..=most) {
        text.push_str(draft.one(of));
    }
    text
}
