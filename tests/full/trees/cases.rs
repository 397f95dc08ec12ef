//! What the kubelets are asked: the hosts of the repository, and a sound configuration with one change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result};
use nodevigil_e2e::support::{output, repository};

use super::{slips, tree};

const ANSWERS: &str = "crates/kubelet-config/src/rules/config/answers.txt";

/// A tree.
pub(crate) struct Case {
    /// `host NAME`, `file CHANGE`, `dropin CHANGE` or `flag CHANGE`.
    pub(crate) name: String,
    source: Source,
}

enum Source {
    Host(PathBuf),
    File(String),
    DropIn(String),
    Flag(String),
}

impl Case {
    /// Writes the tree below `root`.
    pub(crate) fn lay_out(&self, root: &Path) -> Result<()> {
        fs::create_dir_all(root)?;
        match &self.source {
            Source::Host(tree) => drop(output(Command::new("cp").arg("-a").arg(tree.join(".")).arg(root))?),
            Source::File(change) => tree::write(root, change, None, "")?,
            Source::DropIn(change) => tree::write(root, "", Some(change), "")?,
            Source::Flag(change) => tree::write(root, "", None, change)?,
        }
        tree::prepare(root)
    }
}

/// All, or those that the environment selects.
pub(crate) fn all() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(repository().join("tests/hosts"))? {
        let path = entry?.path();
        let name = path.file_name().context("a host has a name")?.to_string_lossy().into_owned();
        cases.push(Case { name: format!("host {name}"), source: Source::Host(path.join("rootfs")) });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    let share: usize = env::var("ORACLE_SHARE").ok().map_or(Ok(1), |text| text.parse()).context("ORACLE_SHARE")?;
    let answers = fs::read_to_string(repository().join(ANSWERS)).context(ANSWERS)?;
    let answered = answers.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    let answered = answered.map(|(_, change)| change.to_owned());
    let of_fields = slips::in_fields().map(|change| format!("file {change}"));
    let of_flags = slips::in_flags().map(|change| format!("flag {change}"));
    let mut seen = BTreeSet::new();
    let changes = answered.chain(of_fields).chain(of_flags).filter(|change| seen.insert(change.clone()));
    for change in changes.step_by(share.max(1)) {
        let (place, change) = change.split_once(' ').context("a place and a change")?;
        let lines = format!("{}\n", change.replace("\\n", "\n"));
        if place == "flag" {
            cases.push(Case { name: format!("flag {change}"), source: Source::Flag(change.to_owned()) });
        } else {
            cases.push(Case { name: format!("file {change}"), source: Source::File(lines.clone()) });
            cases.push(Case { name: format!("dropin {change}"), source: Source::DropIn(lines) });
        }
    }
    if let Ok(only) = env::var("ORACLE_ONLY") {
        cases.retain(|case| case.name.contains(&only));
    }
    Ok(cases)
}
