//! What is linked into the binary: `cargo tree` says which crates, `cargo metadata` what they are.
#![expect(
    clippy::disallowed_methods,
    reason = "it runs where packages are made, not on a node: it starts cargo"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// A crate.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) license: Option<String>,
    pub(super) license_file: Option<PathBuf>,
    pub(super) repository: Option<String>,
    pub(super) authors: Vec<String>,
    pub(super) manifest_path: PathBuf,
    id: String,
    /// The checksum that Cargo.lock holds it to.
    #[serde(skip)]
    pub(super) checksum: Option<String>,
    /// The names with versions of those linked crates that it uses itself.
    #[serde(skip)]
    pub(super) uses: BTreeSet<String>,
}

impl Crate {
    /// `name@version`.
    pub(super) fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The licence, with the older `/` between alternatives made an `OR`.
    pub(super) fn expression(&self) -> Result<String> {
        let written = self.license.clone();
        let written = written.with_context(|| format!("{} names no license", self.reference()))?;
        Ok(written.replace(" / ", "/").replace('/', " OR "))
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// All crates in the binary for this target, ours too, by name and version.
pub(super) fn linked(target: &str) -> Result<Vec<Crate>> {
    let tree = cargo(&[
        "tree",
        "--locked",
        "--package=nodevigil",
        "--target",
        target,
        "--edges",
        "normal,no-proc-macro",
        "--prefix=none",
        "--format",
        "{p}",
    ])?;
    // `name v1.2.3`, then in parentheses where it lies or that it was shown before.
    let names: BTreeSet<String> = tree
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            Some(format!("{name}@{}", rest.split(' ').next()?))
        })
        .collect();
    let metadata = cargo(&[
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        target,
    ])?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
    let lock = std::fs::read_to_string(super::repository().join("Cargo.lock"))?;
    let lock: Lock = toml::from_str(&lock).context("Cargo.lock")?;
    let references: BTreeMap<String, String> = metadata
        .packages
        .iter()
        .map(|found| (found.id.clone(), found.reference()))
        .collect();
    let mut linked: Vec<Crate> = metadata.packages;
    linked.retain(|found| names.contains(&found.reference()));
    linked.sort_by_key(Crate::reference);
    ensure!(
        linked.len() == names.len(),
        "cargo tree and cargo metadata differ"
    );
    for found in &mut linked {
        let node = metadata
            .resolve
            .nodes
            .iter()
            .find(|node| node.id == found.id);
        let uses = node
            .map(|node| node.dependencies.iter())
            .unwrap_or_default();
        let uses = uses.filter_map(|id| references.get(id));
        found.uses = uses.filter(|name| names.contains(*name)).cloned().collect();
        let same = |locked: &&Locked| locked.name == found.name && locked.version == found.version;
        found.checksum = lock
            .package
            .iter()
            .find(same)
            .and_then(|locked| locked.checksum.clone());
    }
    Ok(linked)
}

fn cargo(arguments: &[&str]) -> Result<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(super::repository())
        .output()
        .context("cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo {}: {said}", arguments[0]);
    String::from_utf8(output.stdout).context("cargo's output")
}
