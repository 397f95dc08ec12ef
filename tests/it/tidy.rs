//! The repository's own rules: what a reviewer would have to look for by hand.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

pub(crate) fn sources(dir: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    rust_files(&root().join(dir), &mut files);
    files.sort();
    files
        .into_iter()
        .map(|path| (path.strip_prefix(root()).unwrap().to_owned(), read(&path)))
        .collect()
}

/// Tables of data, which may be long.
const TABLES: &[&str] = &[
    "src/checks/kernel/patterns.rs",
    "src/config/keys.rs",
    "src/kubelet/config/fields.rs",
    "src/kubelet/flags/table.rs",
    "src/kubelet/systemd/keys.rs",
];

#[test]
fn files_stay_small_and_say_what_they_are_for() {
    for (path, text) in sources("src").into_iter().chain(sources("tests")) {
        // A module's tests in a file of their own are for that module.
        let is_tests = path.ends_with("tests.rs");
        assert!(
            is_tests || text.starts_with("//! "),
            "{} has no module doc",
            path.display()
        );
        let production = text.split("#[cfg(test)]").next().unwrap().lines().count();
        let is_data = TABLES.contains(&path.to_str().unwrap());
        assert!(
            is_tests || is_data || production <= 400,
            "{} has {production} lines",
            path.display()
        );
    }
}

#[test]
fn unsafe_stands_behind_one_door() {
    let with_unsafe: Vec<_> = sources("src")
        .into_iter()
        .filter(|(_, text)| text.contains("unsafe {"))
        .map(|(path, _)| path)
        .collect();
    let door = ["src/door.rs", "src/door/heap.rs", "src/door/heap/slots.rs"].map(Path::new);
    assert!(
        with_unsafe
            .iter()
            .all(|path| door.contains(&path.as_path())),
        "{with_unsafe:?}"
    );
    assert_eq!(with_unsafe.len(), door.len());
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = read("Cargo.toml");
    let decisions = read("docs/decisions.md");
    let table = manifest
        .split("[dependencies]")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next())
        .unwrap();
    let headings: Vec<_> = decisions
        .lines()
        .filter(|line| line.starts_with("### "))
        .collect();
    for line in table.lines().filter(|line| line.contains('=')) {
        let name = line.split([' ', '=']).next().unwrap();
        assert!(
            headings.iter().any(|heading| heading.contains(name)),
            "docs/decisions.md has no heading for {name}"
        );
    }
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let everything: Vec<String> = sources("tests")
        .into_iter()
        .chain(sources("src"))
        .flat_map(|(path, text)| [path.display().to_string(), text])
        .collect();
    let promises = read("docs/promises.md");
    let mut named = 0;
    for word in promises.split('`') {
        let is_test = (word.contains("::") || word.starts_with("tests/")) && !word.contains(' ');
        if !is_test {
            continue;
        }
        let last = word.rsplit("::").next().unwrap();
        assert!(
            everything.iter().any(|text| text.contains(last)),
            "docs/promises.md names {word}, which is not there"
        );
        named += 1;
    }
    assert!(named >= 5, "only {named} tests are named");
}

#[test]
fn documents_are_there_and_short() {
    assert!(read("ARCHITECTURE.md").lines().count() <= 200);
    assert!(read("README.md").contains("observes"));
    for file in [
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
        "docs/decisions.md",
    ] {
        assert!(!read(file).is_empty());
    }
    // `make test` is what the CI runs and what a newcomer is told to run.
    assert!(read("README.md").contains("make test"));
    assert!(read(".ci/run").contains("make test"));
}

#[test]
fn rooms_are_all_on_the_map() {
    let architecture = read("ARCHITECTURE.md");
    let library = read("src/lib.rs");
    for line in library
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod "))
    {
        let name = line.trim_end_matches(';');
        assert!(
            architecture.contains(&format!("`{name}")),
            "ARCHITECTURE.md does not name the room {name}"
        );
    }
}

#[test]
fn the_rules_document_is_made_from_the_registry() {
    is_made(
        "docs/reference/rules.md",
        &nodevigil::cli::generate::rules_md(),
    );
}

#[test]
fn the_conditions_document_is_made_from_the_registry() {
    is_made(
        "docs/reference/conditions.md",
        &nodevigil::cli::conditions::conditions_md(),
    );
}

#[test]
fn the_metrics_document_is_made_from_the_registry() {
    is_made(
        "docs/reference/metrics.md",
        &nodevigil::cli::metrics::metrics_md(),
    );
}

#[test]
fn the_commented_configuration_is_made_from_the_registry() {
    is_made(
        "packaging/config.d/00-defaults.toml",
        &nodevigil::cli::generate::config_toml(),
    );
}

fn is_made(path: &str, made: &str) {
    if std::env::var_os("NODEVIGIL_WRITE_DOCS").is_some() {
        fs::write(root().join(path), made).unwrap();
        return;
    }
    assert!(
        read(path) == made,
        "{path} is not what the program says: make docs"
    );
}
