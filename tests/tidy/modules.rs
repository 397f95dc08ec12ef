//! Which top-level module of a crate names which other, computed from the sources. Test code does not count.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use tidy::repository;

/// Each top-level module with the top-level modules that it names.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn top_level_modules_have_no_cycle() {
    let crates = fs::read_dir(repository().join("crates")).unwrap();
    let mut read = 0;
    for directory in crates {
        let directory = directory.unwrap().path();
        let cycle = cycle(uses(&directory));
        assert!(cycle.is_empty(), "{}: {cycle:#?}", directory.display());
        read += 1;
    }
    assert!(read >= 2, "{read} crates in crates/");
}

/// Each top-level module of the agent, and all those that it may name.
const ALLOWED: [(&str, &[&str]); 14] = [
    (
        "cli",
        &[
            "run",
            "monitor",
            "publish",
            "records",
            "report",
            "facts",
            "host",
            "settings",
            "condition",
            "files",
            "timeline",
            "trouble",
        ],
    ),
    (
        "run",
        &[
            "agent",
            "monitor",
            "publish",
            "records",
            "report",
            "facts",
            "timeline",
            "host",
            "settings",
            "condition",
            "trouble",
        ],
    ),
    ("agent", &["records", "report", "facts", "host", "settings", "condition", "trouble"]),
    ("monitor", &["facts", "timeline", "host", "settings", "condition", "files", "trouble"]),
    ("publish", &["facts", "host", "settings", "condition", "files", "trouble"]),
    ("records", &["timeline", "host", "settings", "condition", "files", "trouble"]),
    ("report", &["facts", "host", "settings", "condition", "files", "trouble"]),
    ("facts", &["host", "condition"]),
    ("timeline", &["host", "condition"]),
    ("host", &["settings", "condition", "files", "trouble"]),
    ("settings", &["condition", "files"]),
    ("condition", &[]),
    ("files", &[]),
    ("trouble", &[]),
];

#[test]
fn the_agents_modules_name_only_those_below_them() {
    for (module, named) in uses(repository()) {
        let allowed = ALLOWED.iter().find(|(name, _)| *name == module);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{module} is not in the table"));
        for name in named {
            assert!(allowed.contains(&&*name), "{module} uses {name}; it may use {allowed:?}");
        }
    }
}

#[test]
fn what_the_kubelet_gets_is_known_without_the_rules() {
    let uses = uses(&repository().join("crates/kubelet-config"));
    assert!(uses["rules"].contains("kubelet"), "{uses:?}");
    assert!(!uses["kubelet"].contains("rules"), "{uses:?}");
}

#[test]
fn every_form_of_a_name_is_seen_and_tests_do_not_count() {
    let source = r#"
        mod a { use crate::{b::X, c::{d, Y}}; fn f() { println!("{}", crate::e::Z); } }
        mod b { mod deep { use super::super::a; use super::c; fn f() { super::c::g() } } mod c {} }
        mod c { /* crate::a */ const A: &str = "crate::a"; #[cfg(test)] mod tests { use crate::a; } use super::e; }
        mod e { #[cfg(test)] use crate::a::B; #[cfg(test)] #[path = "x.rs"] mod tests; }
    "#;
    let mut sources = Sources::default();
    sources.scan(&[], Path::new("/none"), source.parse().unwrap());
    let expected = [("a", vec!["b", "c", "e"]), ("b", vec!["a"]), ("c", vec!["e"]), ("e", vec![])];
    let expected: Uses =
        expected.map(|(name, used)| (name.into(), used.into_iter().map(str::to_owned).collect())).into();
    let uses = sources.uses();
    assert_eq!(uses, expected);
    assert!(cycle(uses).into_keys().eq(["a", "b"]));
}

fn uses(package: &Path) -> Uses {
    let directory = package.join("src");
    let root = ["lib.rs", "main.rs"].map(|name| directory.join(name));
    let root = root.iter().find(|file| file.is_file()).unwrap();
    let mut sources = Sources::default();
    sources.read(&[], root, &directory);
    sources.uses()
}

/// Removes modules that name no other until there is none. What remains are the cycles and the modules that lead to one.
fn cycle(mut uses: Uses) -> Uses {
    loop {
        let is_leaf = |(_, named): &(&String, &BTreeSet<String>)| !named.iter().any(|name| uses.contains_key(name));
        let Some(leaf) = uses.iter().find(is_leaf).map(|(name, _)| name.clone()) else {
            return uses;
        };
        uses.remove(&leaf);
    }
}

#[derive(Default)]
struct Sources {
    modules: BTreeSet<String>,
    /// A top-level module, and an item of the crate's root that it names.
    named: BTreeSet<(String, String)>,
}

impl Sources {
    fn uses(self) -> Uses {
        let mut uses: Uses = self.modules.iter().map(|module| (module.clone(), BTreeSet::new())).collect();
        for (module, name) in self.named {
            if module != name && self.modules.contains(&name) {
                uses.entry(module).or_default().insert(name);
            }
        }
        uses
    }

    /// Reads the file of the module at `path` and those of the modules in it, which lie in `directory`.
    fn read(&mut self, path: &[String], file: &Path, directory: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let tokens = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.scan(path, directory, tokens);
    }

    fn scan(&mut self, path: &[String], directory: &Path, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(rest) = tokens.get(at..).filter(|rest| !rest.is_empty()) {
            at += 1;
            match rest {
                [TokenTree::Punct(_), TokenTree::Group(attribute), ..] if is_cfg_test(attribute) => {
                    at += rest.iter().position(ends_item).unwrap_or(rest.len());
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), body, ..] if word == "mod" => {
                    self.module(path, directory, &name.to_string(), body);
                    at += 2;
                }
                [TokenTree::Group(group), ..] => self.scan(path, directory, group.stream()),
                _ => {
                    if let (Some(module), Some(names)) = (path.first(), behind_root(rest, path.len())) {
                        let names = first_words(names);
                        self.named.extend(names.into_iter().map(|name| (module.clone(), name)));
                    }
                }
            }
        }
    }

    fn module(&mut self, path: &[String], directory: &Path, name: &str, body: &TokenTree) {
        if path.is_empty() {
            self.modules.insert(name.to_owned());
        }
        let path = [path, &[name.to_owned()]].concat();
        let children = directory.join(name);
        if let TokenTree::Group(group) = body {
            return self.scan(&path, &children, group.stream());
        }
        let files = [directory.join(format!("{name}.rs")), children.join("mod.rs")];
        let file = files.iter().find(|file| file.is_file());
        self.read(&path, file.unwrap_or_else(|| panic!("no file of mod {name} in {}", directory.display())), &children);
    }
}

fn is_cfg_test(attribute: &Group) -> bool {
    attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    }
}

/// The tokens after `crate::`, or after as many `super::` as lead from a module at this depth to the crate's root.
fn behind_root(tokens: &[TokenTree], depth: usize) -> Option<&[TokenTree]> {
    let [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Punct(_), rest @ ..] = tokens else {
        return None;
    };
    match (word.to_string().as_str(), depth) {
        ("crate", _) | ("super", 1) => Some(rest),
        ("super", 2..) => behind_root(rest, depth - 1),
        _ => None,
    }
}

/// `a` of `a::b`, `a` and `c` of `{a::b, c}`.
fn first_words(tokens: &[TokenTree]) -> Vec<String> {
    match tokens {
        [TokenTree::Ident(name), ..] => vec![name.to_string()],
        [TokenTree::Group(group), ..] => {
            let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
            tokens.split(is_comma).filter_map(|part| part.first().map(TokenTree::to_string)).collect()
        }
        _ => vec![],
    }
}
