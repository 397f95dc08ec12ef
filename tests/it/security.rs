//! SECURITY.md names the tests that show what it says: each of them must be there.

use std::collections::BTreeSet;

use super::tidy::{read, root, sources};

/// `hostile::files`, as the document writes it.
fn named(document: &str) -> BTreeSet<&str> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_name = |text: &&str| {
        let parts: Vec<_> = text.split("::").collect();
        let is_word = |part: &&str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        parts.len() == 2 && parts.iter().all(is_word)
    };
    quoted.filter(is_name).collect()
}

#[test]
fn every_test_that_security_names_is_there() {
    let document = read(root().join("SECURITY.md"));
    let names = named(&document);
    assert!(names.len() >= 8, "{names:?}");
    let sources: String = (sources("tests/node").into_iter())
        .map(|(_, text)| text)
        .collect();
    for name in names {
        let topic = name.split("::").next().unwrap();
        if !root().join(format!("tests/node/{topic}.rs")).exists() {
            continue; // a module's name
        }
        assert!(sources.contains(&format!("\"{name}\"")), "no test {name}");
    }
}

#[test]
fn only_names_of_tests_are_taken_for_such() {
    let text = "a `bus::root`, `tests::`, `a::b::c`, `Kind::Name`, `x y`";
    assert_eq!(named(text), BTreeSet::from(["bus::root"]));
}
