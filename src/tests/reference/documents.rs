//! The commands, settings and reasons in the documents exist.

use std::fs;

use clap::error::ErrorKind;

use super::repository;
use crate::cli;
use crate::condition::Reason;
use crate::settings::Settings;
use crate::trouble::Trouble;

#[test]
fn the_commands_in_the_documents_exist() {
    let readmes = ["kubernetes", "monitoring", "helm/nodevigil"].map(|directory| format!("packaging/{directory}"));
    let directories = [".", "docs", "docs/reference", "cloud-init"].map(str::to_owned).into_iter().chain(readmes);
    let documents = directories
        .flat_map(|directory| fs::read_dir(repository().join(directory)).unwrap())
        .map(|entry| entry.unwrap().path());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in documents.filter(|path| path.extension().is_some_and(|end| end == "md")) {
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
    for (page, example, _) in super::man::EXAMPLES {
        for command in example
            .split(" && ")
            .map(|part| part.split('>').next().unwrap())
            .filter(|part| part.starts_with("nodevigil "))
        {
            let error = cli::command().try_get_matches_from(words(command)).err();
            wrong.extend(error.map(|error| format!("{page}: {command}: {error}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 60, "{count} commands");
}

/// A test of `cli::advice` has the reverse.
#[test]
fn every_name_with_advice_exists() {
    let advice = fs::read_to_string(repository().join("docs/operate.md")).unwrap();
    let name =
        |line: &str| line.strip_prefix("| `").and_then(|row| row.split_once('`')).map(|(name, _)| name.to_owned());
    for table in advice.split("| reason | do |").skip(1) {
        for name in table.split("\n\n").next().unwrap().lines().filter_map(name) {
            assert!(Reason::by_name(&name).is_some(), "docs/operate.md has {name}, which is no reason");
        }
    }
    let troubles = advice.split("| trouble | do |").nth(1).unwrap();
    for name in troubles.split("\n\n").next().unwrap().lines().filter_map(name) {
        let is_known = Trouble::ALL.iter().any(|(_, known, _)| *known == name);
        assert!(is_known, "docs/operate.md has {name}, which is no trouble");
    }
}

/// A block of settings is what a user copies.
#[test]
fn the_settings_in_the_documents_are_accepted() {
    let docs = fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let packaged =
        ["packaging/monitoring/README.md", "packaging/kubernetes/README.md"].map(|name| repository().join(name));
    let mut count = 0;
    for document in docs.chain(packaged).filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&document).unwrap();
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let settings = toml::from_str::<Settings>(block);
            assert!(settings.is_ok(), "{}: {block}: {settings:?}", document.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} blocks");
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
