//! Every file of `cloud-init/` is what cloud-init's schema allows, and is run by a test.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::FILES;
use crate::support::{enter, repository};

/// cloud-init 22.4 does not look into templates.
const TEMPLATE: &str = "## template: jinja\n";

pub(super) fn every_file_is_allowed_and_run() -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(repository().join("cloud-init"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let (is_allowed, said) = allows(&text)?;
        ensure!(is_allowed, "{}: {said}", path.display());
        let (is_allowed, said) =
            allows(&text.replacen("write_files:\n", "write_files:\n- 7\n", 1))?;
        ensure!(!is_allowed, "{}: {said}", path.display());
        names.extend(
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    let mut run: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
    run.sort_unstable();
    ensure!(names == run, "{names:?} are there, {run:?} are run");
    for (name, text) in FILES {
        ensure!(!text.is_empty(), "{name} is empty");
    }
    Ok(())
}

fn allows(text: &str) -> Result<(bool, String)> {
    let folder = enter::work().join("schema");
    fs::create_dir_all(&folder)?;
    let file = folder.join("user-data");
    fs::write(&file, text.strip_prefix(TEMPLATE).unwrap_or(text))?;
    validate(&file)
}

fn validate(file: &Path) -> Result<(bool, String)> {
    let done = Command::new("cloud-init")
        .args(["schema", "--config-file"])
        .arg(file)
        .output()
        .context("starting cloud-init")?;
    let said = [done.stdout, done.stderr].concat();
    Ok((
        done.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}
