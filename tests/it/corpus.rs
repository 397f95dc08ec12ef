//! The inputs that the fuzz targets kept, each once again without libFuzzer, so that none of them panics here either.
//!
//! `make fuzz` finds and keeps them; an input that once failed is kept by hand, with a name that says why.

#[expect(
    unreachable_pub,
    reason = "the targets are programs of another package, for which these functions are public"
)]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// Each input is read in full by a person some day.
const MAX_BYTES: usize = 8 << 10;

/// All inputs together: whoever clones the repository has them.
const MAX_CORPORA_BYTES: u64 = 5 << 20;

#[test]
fn every_target_has_its_source_and_inputs_and_all_are_small() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let names: BTreeSet<&str> = manifest
        .split("[[bin]]\nname = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let known: BTreeSet<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, known, "Cargo.toml and TARGETS");
    let folders = fs::read_dir(fuzz.join("corpus")).unwrap().flatten();
    let folders: BTreeSet<String> = folders
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert!(
        folders.iter().eq(names.iter()),
        "folders in corpus: {folders:?}"
    );
    let mut bytes = 0;
    for name in names {
        let source = fs::read_to_string(fuzz.join(format!("targets/{name}.rs"))).unwrap();
        let call = format!("nodevigil_fuzz::{name}(bytes)");
        assert!(source.contains(&call), "targets/{name}.rs has no {call}");
        for entry in fs::read_dir(fuzz.join("corpus").join(name)).unwrap() {
            bytes += entry.unwrap().metadata().unwrap().len();
        }
    }
    assert!(bytes < MAX_CORPORA_BYTES, "{bytes} bytes");
}

/// `make fuzz` builds with `--locked`: a dependency that came or changed since makes it end at once.
#[test]
fn the_targets_are_built_with_what_the_program_is_built_with() {
    #[derive(serde::Deserialize)]
    struct Lock {
        package: Vec<Package>,
    }
    #[derive(serde::Deserialize, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Package {
        name: String,
        version: String,
        #[serde(default)]
        dependencies: Vec<String>,
    }
    let lock = |path: &str| -> Lock {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let (own, fuzz) = (lock("Cargo.lock"), lock("fuzz/Cargo.lock"));
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    let manifest: toml::Table = toml::from_str(&manifest.unwrap()).unwrap();
    let wanted = manifest["dependencies"].as_table().unwrap();
    let program = fuzz.package.iter().find(|part| part.name == "nodevigil");
    // `rand 0.9.2` where there are two.
    let has = program.unwrap().dependencies.iter();
    let has: BTreeSet<&str> = has.filter_map(|name| name.split(' ').next()).collect();
    assert!(
        wanted.keys().map(String::as_str).eq(has.iter().copied()),
        "fuzz/Cargo.lock is of another time; in fuzz/: cargo update -p nodevigil"
    );
    let differ: Vec<&Package> = fuzz
        .package
        .iter()
        .filter(|part| wanted.contains_key(&part.name))
        .filter(|part| {
            let same = |own: &Package| own.name == part.name && own.version == part.version;
            !own.package.iter().any(same)
        })
        .collect();
    assert!(
        differ.is_empty(),
        "fuzz/Cargo.lock has other versions: {differ:#?}"
    );
}

#[test]
fn every_input_that_was_kept_is_judged() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut failed = Vec::new();
    for (name, target) in targets::TARGETS {
        let mut count = 0;
        for entry in fs::read_dir(corpus.join(name)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            assert!(bytes.len() <= MAX_BYTES, "{}", path.display());
            if catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_err() {
                failed.push(path);
            }
            count += 1;
        }
        assert!(count > 0, "the corpus of {name} is empty");
    }
    assert!(failed.is_empty(), "these inputs fail: {failed:#?}");
}
