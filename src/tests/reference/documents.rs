//! The commands and reasons in the documents exist, and docs/operate.md has advice for every reason and trouble.

use std::fs;

use clap::error::ErrorKind;

use super::repository;
use crate::cli;
use crate::condition::Reason;
use crate::host::trouble::Trouble;

#[test]
fn the_commands_in_the_documents_exist() {
    let documents = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| repository().join(name));
    let docs = fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in documents.into_iter().chain(docs.filter(|path| path.extension().is_some_and(|end| end == "md"))) {
        let text = fs::read_to_string(&document).unwrap();
        for (command, is_complete) in commands(&text) {
            count += 1;
            let error = cli::command().try_get_matches_from(words(command)).err().map(|error| error.kind());
            let is_unknown = matches!(error, Some(ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument));
            if is_unknown || (is_complete && error.is_some()) {
                wrong.push(format!("{}: {command}: {error:?}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 30, "{count} commands");
}

#[test]
fn every_reason_and_trouble_has_advice_and_every_reason_with_advice_exists() {
    let read = |name: &str| fs::read_to_string(repository().join(name)).unwrap();
    let advice = read("docs/operate.md") + &read("docs/bootstrap.md");
    let named: Vec<_> = advice.split('`').skip(1).step_by(2).collect();
    for reason in Reason::ALL {
        let spec = reason.spec();
        let is_health = spec.condition.is_some_and(|kind| Reason::healthy(kind) == *reason);
        assert!(is_health || named.contains(&spec.name), "docs/operate.md does not have {}", spec.name);
    }
    for (_, name) in Trouble::ALL {
        assert!(named.contains(&name), "docs/operate.md does not have {name}");
    }
    let first_cell =
        |line: &str| line.strip_prefix("| `").and_then(|row| row.split_once('`')).map(|(name, _)| name.to_owned());
    let of_reasons =
        advice.split("| reason |").skip(1).flat_map(|table| table.split("\n\n").next().unwrap_or_default().lines());
    for name in of_reasons.filter_map(first_cell) {
        assert!(Reason::by_name(&name).is_some(), "docs/operate.md has {name}, which is no reason");
    }
}

/// The commands of blocks of code, which are complete, and those in the text, which need not be.
fn commands(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.split("```").enumerate().flat_map(|(index, part)| {
        let (block, prose) = if index % 2 == 1 { (part, "") } else { ("", part) };
        let lines =
            block.lines().map(|line| line.trim_start_matches("$ ")).filter(|line| line.starts_with("nodevigil "));
        let spans = prose.split('`').skip(1).step_by(2).filter(|span| span.starts_with("nodevigil "));
        lines.map(|line| (line, true)).chain(spans.map(|span| (span, false)))
    })
}

/// The words of a command line, without its comment and its pipe.
fn words(command: &str) -> Vec<String> {
    let command = command.split(['#', '|']).next().unwrap_or_default();
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}
