//! The registry, walked.

pub(crate) mod hosts;
mod shapes;
pub(crate) mod support;

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_rule_is_complete_and_no_two_are_alike() {
    let mut ids = BTreeSet::new();
    let mut names = BTreeSet::new();
    for rule in rules() {
        let id = rule.id;
        let (letters, digits) = id.split_at(2);
        assert!(letters.bytes().all(|b| b.is_ascii_uppercase()), "{id}");
        assert!(digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit()), "{id}");
        assert!(ids.insert(id), "{id} is there twice");
        let words: Vec<&str> = rule.name.split('-').collect();
        assert!(
            words
                .iter()
                .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())),
            "{id}: {} is no kebab-case",
            rule.name
        );
        assert!(names.insert(words.concat()), "{id}: {} as CamelCase is there twice", rule.name);
        for text in [rule.meaning().as_str(), rule.summary, rule.fix] {
            assert!(text.trim_end_matches([')', '`']).ends_with('.'), "{id}: {text}");
        }
        // A finding without a fix of its own shows this one, without its capital and its period.
        let first = rule.fix.split([' ', ',']).next().unwrap_or_default().as_bytes();
        let is_verb = matches!(first, [b'A'..=b'Z', rest @ ..] if rest.iter().all(u8::is_ascii_lowercase));
        assert!(is_verb && rule.fix.ends_with('.'), "{id}: {}", rule.fix);
        for text in [rule.summary, rule.fix, rule.seen, rule.severity] {
            assert!(!text.trim().is_empty(), "{id}");
        }
        for text in [rule.meaning().as_str(), rule.fix, rule.seen, rule.severity] {
            assert!(!text.contains("  "), "{id}: two blanks in {text:?}");
        }
    }
}

/// The text of every file below `src/rules`.
fn texts(directory: &std::path::Path) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(self::texts(&path));
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            texts.push((path.display().to_string(), text));
        }
    }
    texts
}

#[test]
fn every_rule_is_named_in_a_test() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rules");
    let tests: String = texts(&directory)
        .into_iter()
        .filter_map(|(path, text)| {
            if path.ends_with("tests.rs") {
                return (!path.ends_with("rules/tests.rs")).then_some(text);
            }
            let start = text.find("#[cfg(test)]\nmod tests {")?;
            Some(text[start..].to_owned())
        })
        .collect();
    let untested: Vec<_> = rules().filter(|rule| !tests.contains(&format!("\"{}\"", rule.id))).collect();
    assert!(untested.is_empty(), "{untested:?}");
}

/// Whether a text begins with a lower case letter, a name (`NODE_ARGS`, `MicroK8s`), a path, a flag or a quote, and ends
/// without a period.
fn is_in_style(text: &str) -> bool {
    let first = text.split([' ', ',', ':']).next().unwrap_or_default();
    let is_capitalised = first.starts_with(char::is_uppercase) && first.chars().skip(1).all(char::is_lowercase);
    !first.is_empty() && !is_capitalised && !text.ends_with('.')
}

#[test]
fn the_texts_of_the_findings_on_the_hosts_have_no_capital_at_their_start_and_no_period_at_their_end() {
    let mut wrong = BTreeSet::new();
    for name in hosts::names() {
        let (tree, inputs, expected) = hosts::host(&name);
        for Finding { message, fix, chain, .. } in lint(&hosts::resolved(&tree, inputs, &expected)).findings {
            let texts = [message].into_iter().chain(fix).chain(chain.into_iter().map(|step| step.text));
            wrong.extend(texts.filter(|text| !is_in_style(text)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
