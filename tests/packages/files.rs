//! Which files are packed, where and with which modes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result, ensure};

use super::{Made, build, said, text};

const FIXED: &[&str] = &[
    "/usr/bin/nodevigil",
    "/usr/lib/nodevigil/config.d/00-defaults.toml",
    "/usr/lib/systemd/catalog/nodevigil.catalog",
    "/usr/lib/systemd/system-preset/80-nodevigil.preset",
    "/usr/lib/sysusers.d/nodevigil.conf",
    "/usr/lib/tmpfiles.d/nodevigil.conf",
    "/usr/share/bash-completion/completions/nodevigil",
    "/usr/share/doc/nodevigil/copyright",
    "/usr/share/fish/vendor_completions.d/nodevigil.fish",
    "/usr/share/man/man1/nodevigil.1.gz",
    "/usr/share/nodevigil/nodevigil.cdx.json",
    "/usr/share/zsh/vendor-completions/_nodevigil",
];

/// Source, place, kinds.
const FOLDERS: &[(&str, &str, &[&str])] = &[
    (
        "systemd",
        "/usr/lib/systemd/system",
        &["service", "socket", "slice"],
    ),
    (
        "packaging/kubernetes",
        "/usr/share/nodevigil/kubernetes",
        &["yaml", "md"],
    ),
    (
        "packaging/kubernetes/samples",
        "/usr/share/nodevigil/kubernetes/samples",
        &["yaml"],
    ),
    (
        "packaging/monitoring",
        "/usr/share/nodevigil/monitoring",
        &["yaml", "md", "json", "service", "socket"],
    ),
    (
        "cloud-init",
        "/usr/share/nodevigil/cloud-init",
        &["yaml", "md"],
    ),
    ("docs", "/usr/share/doc/nodevigil", &["md"]),
    (
        "docs/reference",
        "/usr/share/doc/nodevigil/reference",
        &["md", "json"],
    ),
];

/// Path → mode and owner, of the deb.
fn contents(made: &Made) -> Result<BTreeMap<String, String>> {
    let listed = said("dpkg-deb", &["--contents", text(&made.deb)])?;
    let lines = listed.lines().map(|line| {
        let mut words = line.split_whitespace();
        let mode = words.next().unwrap_or_default();
        let owner = words.next().unwrap_or_default();
        let path = line.split(" ./").nth(1).unwrap_or_default();
        (format!("/{path}"), format!("{mode} {owner}"))
    });
    Ok(lines.collect())
}

pub(crate) fn each_file_is_there_with_its_mode(made: &Made) -> Result<()> {
    let contents = contents(made)?;
    let mut wanted: Vec<String> = FIXED.iter().map(|path| (*path).to_owned()).collect();
    // Nobody has to remember a new unit, manifest or document.
    for (from, to, kinds) in FOLDERS {
        for entry in fs::read_dir(build::repository().join(from))?.flatten() {
            let path = entry.path();
            let kind = path.extension().unwrap_or_default().to_string_lossy();
            if kinds.contains(&&*kind) {
                wanted.push(format!("{to}/{}", entry.file_name().to_string_lossy()));
            }
        }
    }
    for path in wanted {
        let mode = contents
            .get(&path)
            .with_context(|| format!("{path} is not packed"))?;
        let right = match path.as_str() {
            "/usr/bin/nodevigil" => "-rwxr-xr-x root/root",
            _ => "-rw-r--r-- root/root",
        };
        ensure!(mode == right, "{path}: {mode}");
    }
    let folders = contents.iter().filter(|(path, _)| path.ends_with('/'));
    for (path, mode) in folders {
        ensure!(mode == "drwxr-xr-x root/root", "{path}: {mode}");
    }
    Ok(())
}

pub(crate) fn the_rpm_has_what_the_deb_has(made: &Made) -> Result<()> {
    // Each has a place of its own for these.
    let own = [
        "/usr/share/zsh",
        "/usr/share/lintian",
        "/usr/share/licenses",
        "copyright",
        "changelog",
    ];
    let is_common =
        |path: &String| !path.ends_with('/') && !own.iter().any(|word| path.contains(word));
    let deb: BTreeSet<String> = contents(made)?.into_keys().filter(is_common).collect();
    let listed = said(
        "rpm",
        &[
            "-qp",
            "--qf",
            "[%{FILENAMES} %{FILEMODES:octal} %{FILEUSERNAME}:%{FILEGROUPNAME}\n]",
            text(&made.rpm),
        ],
    )?;
    let mut rpm = BTreeSet::new();
    for line in listed.lines() {
        let (path, mode) = line.split_once(' ').context("a path and a mode")?;
        let right = match path {
            "/usr/bin/nodevigil" => "100755 root:root",
            _ if mode.starts_with("04") || mode.starts_with('4') => mode,
            _ => "100644 root:root",
        };
        ensure!(mode == right, "{path}: {mode}");
        if !mode.starts_with('4') && !mode.starts_with("04") {
            rpm.insert(path.to_owned());
        }
    }
    rpm.retain(is_common);
    let differ: Vec<_> = deb.symmetric_difference(&rpm).collect();
    ensure!(differ.is_empty(), "in one of the two only: {differ:?}");
    // `rpm --nodocs` leaves out what is marked, and that is the manual and the documents.
    let documents = said("rpm", &["-qp", "--docfiles", text(&made.rpm)])?;
    let unmarked = rpm.iter().find(|path| {
        (path.starts_with("/usr/share/doc/") || path.starts_with("/usr/share/man/"))
            && !documents.lines().any(|line| line == path.as_str())
    });
    ensure!(
        unmarked.is_none(),
        "{unmarked:?} is not marked as documentation"
    );
    Ok(())
}

/// What is in /etc is the operator's, what is in /var and /run the programs': no package brings or replaces it.
pub(crate) fn nothing_of_the_operators_is_packed(made: &Made) -> Result<()> {
    let outside = contents(made)?
        .into_keys()
        .find(|path| !path.starts_with("/usr/"));
    ensure!(outside.is_none(), "{outside:?} is packed");
    let defaults =
        fs::read_to_string(build::repository().join("packaging/config.d/00-defaults.toml"))?;
    let sets = defaults
        .lines()
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    ensure!(sets.is_none(), "the packed configuration sets {sets:?}");
    Ok(())
}
