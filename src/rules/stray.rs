//! Why a word of the argument list is no flag: the causes of SD016.

use crate::kubelet::{
    flags::{FlagUse, Stray},
    snapshot::Snapshot,
    systemd::{EventKind, Word},
};

/// The most probable cause, and what to do.
pub(super) fn cause(snapshot: &Snapshot, stray: &Stray) -> (String, String) {
    let word = snapshot.launch.words.get(1 + stray.word);
    let text = stray.text.as_str();
    let remove = format!("remove '{text}' at {}", stray.at);
    if text.is_empty() {
        return empty(snapshot, stray, word);
    }
    if let Some((letter, name)) = typographic(text) {
        let code = u32::from(letter);
        return (
            format!("it has {name} (U+{code:04X}), as word processors and web pages write it"),
            format!("at {}: type plain ASCII '-', '\"' and blanks", stray.at),
        );
    }
    if text == "\\" {
        return (
            "a backslash continues a line only as the very last character of it".to_owned(),
            format!("remove the blanks behind the backslash at {}", stray.at),
        );
    }
    if text.starts_with('#') {
        return (
            "systemd knows no comment behind a value".to_owned(),
            format!(
                "give the comment a line of its own: remove '#' and what follows at {}",
                stray.at
            ),
        );
    }
    if let Some(found) = before(snapshot, stray).and_then(|used| after_flag(used, text)) {
        return found;
    }
    if is_shell(text) {
        return (
            "it is a shell's, and systemd is no shell".to_owned(),
            format!("{remove}; systemd's StandardOutput= and ExecStartPre= do what a shell would"),
        );
    }
    if text.starts_with('$') {
        return (
            "systemd does not expand a variable here: it writes $X as a word of its own, or ${X}"
                .to_owned(),
            format!("at {}: write the value out, or ${{X}}", stray.at),
        );
    }
    if behind_dashes(snapshot, stray) {
        return (
            "'--' ends the flags".to_owned(),
            format!("remove '--' before {}", stray.at),
        );
    }
    if let Some(word) = word.filter(|word| split_from_the_flag_before(snapshot, stray, word)) {
        let variable = word
            .origins
            .first()
            .map_or("", |origin| origin.variable.as_str());
        return (
            format!("${variable} is split at blanks, and no flag before it takes this word"),
            format!(
                "quote the value with its flag in ${variable} at {}, or remove the blank",
                stray.at
            ),
        );
    }
    ("no flag before it takes it as its value".to_owned(), remove)
}

fn empty(snapshot: &Snapshot, stray: &Stray, word: Option<&Word>) -> (String, String) {
    let variable = word.and_then(|word| {
        word.origins
            .first()
            .map(|origin| origin.variable.clone())
            .or_else(|| unset_at(snapshot, word))
    });
    match variable.filter(|name| !name.is_empty()) {
        Some(name) => (
            format!(
                "${{{name}}} is unset or empty, and in braces an empty variable still is an argument"
            ),
            format!("write ${name} in place of ${{{name}}}: unset, it gives no argument"),
        ),
        None => (
            "the word is empty".to_owned(),
            format!(
                "remove the empty word (\"\", or a second blank in an arguments file) at {}",
                stray.at
            ),
        ),
    }
}

/// The unset variable that an empty word stands for.
fn unset_at(snapshot: &Snapshot, word: &Word) -> Option<String> {
    snapshot
        .unit
        .events
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::UnsetVariable { name, braces: true } if event.at == word.declared => {
                Some(name.clone())
            }
            _ => None,
        })
}

/// A character that only looks like a dash, a blank or a quote.
fn typographic(text: &str) -> Option<(char, &'static str)> {
    text.chars().find_map(|letter| {
        let name = match letter {
            '\u{2010}' | '\u{2011}' => "a typographic hyphen",
            '\u{2012}' | '\u{2013}' => "an en dash",
            '\u{2014}' | '\u{2015}' => "an em dash",
            '\u{2212}' => "a minus sign",
            '\u{a0}' | '\u{202f}' => "a no-break space",
            '\u{2000}'..='\u{200a}' | '\u{3000}' => "a typographic blank",
            '\u{200b}'..='\u{200d}' | '\u{feff}' | '\u{2060}' => "an invisible character",
            '\u{201c}'..='\u{201f}' | '\u{2018}'..='\u{201b}' => "a typographic quote",
            _ => return None,
        };
        Some((letter, name))
    })
}

fn is_shell(text: &str) -> bool {
    matches!(text, "|" | "||" | "&" | "&&" | ";" | "<" | "tee")
        || text
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .starts_with('>')
        || text.starts_with("&>")
        || text.starts_with("$(")
        || text.starts_with('`')
}

/// The flag before it.
fn before<'a>(snapshot: &'a Snapshot, stray: &Stray) -> Option<&'a FlagUse> {
    snapshot
        .flags
        .uses
        .iter()
        .rfind(|used| used.word + 1 + usize::from(used.value_in_next_word) == stray.word)
}

/// What the flag before it says of the cause.
fn after_flag(used: &FlagUse, text: &str) -> Option<(String, String)> {
    let flag = &used.written;
    let join = |value: &str| format!("write {flag}={value} without blanks around '='");
    let spec = used.spec?;
    if used.value_in_next_word && used.value == "=" {
        return Some((format!("{flag} took '=' as its value"), join(text)));
    }
    if !spec.value.stands_alone() && used.value.is_empty() && !used.value_in_next_word {
        return Some((
            format!("{flag}= has an empty value before the blank"),
            join(text),
        ));
    }
    if used.value_in_next_word && text == "=" {
        return Some((
            format!("a blank stands before '=' of {flag}"),
            join("VALUE"),
        ));
    }
    if spec.value.stands_alone() && used.value == "true" {
        let value = if text == "=" { "false" } else { text };
        return Some((
            format!("{flag} takes its value only behind '=', never from the next word: it is true"),
            format!("write {flag}={value}"),
        ));
    }
    if used.value.ends_with([',', ':']) {
        return Some((
            format!("a blank follows the comma in the value of {flag}"),
            format!("write {flag}={}{text}", used.value),
        ));
    }
    None
}

/// Whether `--` stands before the word and is nobody's value.
fn behind_dashes(snapshot: &Snapshot, stray: &Stray) -> bool {
    let words = snapshot
        .launch
        .words
        .get(1..=stray.word)
        .unwrap_or_default();
    let is_value = |index: usize| {
        let mut uses = snapshot.flags.uses.iter();
        uses.any(|used| used.value_in_next_word && used.word + 1 == index)
    };
    words
        .iter()
        .enumerate()
        .any(|(index, word)| word.text == "--" && !is_value(index))
}

/// Whether word and flag before it come from one variable, which systemd split.
fn split_from_the_flag_before(snapshot: &Snapshot, stray: &Stray, word: &Word) -> bool {
    let variable = |word: &Word| {
        let origin = word.origins.first()?;
        (!origin.braces && !origin.variable.is_empty()).then(|| origin.variable.clone())
    };
    let previous = snapshot.launch.words.get(stray.word);
    variable(word).is_some_and(|name| previous.and_then(variable) == Some(name))
}
