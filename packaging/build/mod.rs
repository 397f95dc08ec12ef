//! Packages: what is generated (manual, completions, catalogue, licences, list of parts), then nfpm with the one description.
//!
//! The same input gives the same bytes: every file gets one time and one mode, nothing names the machine, and every list has
//! an order.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it runs where packages are made, not on a node: it starts programs and writes files"
)]

mod copyright;
mod crates;
mod derived;
mod parts;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

/// An architecture, by Debian's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    /// x86-64.
    Amd64,
    /// `AArch64`.
    Arm64,
}

impl Arch {
    /// Debian's name, which nfpm takes for both kinds of package.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// rpm's name.
    pub(crate) fn rpm(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Rust's name of what is built for it.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }
}

/// What is to be made.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) version: String,
    pub(crate) binary: PathBuf,
    pub(crate) arch: Arch,
    pub(crate) nfpm: PathBuf,
    pub(crate) out: PathBuf,
    /// The time that everything has, in seconds since 1970.
    pub(crate) epoch: u32,
}

/// The version of these sources.
pub(crate) fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Makes both packages; returns their paths, the deb first.
pub(crate) fn packages(wanted: &Wanted) -> Result<[PathBuf; 2]> {
    fs::create_dir_all(&wanted.out).with_context(|| wanted.out.display().to_string())?;
    let out = wanted.out.canonicalize()?;
    let folder = out.join(format!("generated-{}", wanted.arch.debian()));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    generate(wanted, &folder)?;
    settle(&folder, wanted.epoch)?;
    let version = &wanted.version;
    let names = [
        format!("nodevigil_{version}-1_{}.deb", wanted.arch.debian()),
        format!("nodevigil-{version}-1.{}.rpm", wanted.arch.rpm()),
    ];
    let description = folder.join("nfpm.yaml");
    fs::write(&description, describe(wanted, &folder)?)?;
    for (packager, name) in ["deb", "rpm"].into_iter().zip(&names) {
        let made = Command::new(&wanted.nfpm)
            .args(["package", "--config"])
            .arg(&description)
            .args(["--packager", packager, "--target"])
            .arg(out.join(name))
            .current_dir(repository())
            .env("SOURCE_DATE_EPOCH", wanted.epoch.to_string())
            .output()
            .with_context(|| wanted.nfpm.display().to_string())?;
        let said = [made.stdout, made.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(made.status.success(), "nfpm did not make {name}: {said}");
    }
    Ok(names.map(|name| out.join(name)))
}

/// The description with its blanks filled in. (nfpm itself would not do it in every field.)
fn describe(wanted: &Wanted, folder: &Path) -> Result<String> {
    let template = fs::read_to_string(repository().join("packaging/nfpm.yaml"))?;
    let binary = wanted.binary.canonicalize();
    let binary = binary.with_context(|| wanted.binary.display().to_string())?;
    let filled = template
        .replace("${VERSION}", &wanted.version)
        .replace("${ARCH}", wanted.arch.debian())
        .replace("${BINARY}", &binary.display().to_string())
        .replace("${GENERATED}", &folder.display().to_string());
    let mut text = String::new();
    for line in filled.lines() {
        if line.starts_with("  - ") && line.contains("type: doc") {
            text += &documents(line)?;
        } else {
            text += line;
            text.push('\n');
        }
    }
    Ok(text)
}

/// A line for each file that the line's pattern (`FOLDER/[PREFIX]*[SUFFIX]`) matches: documentation in the rpm, a file in the deb.
fn documents(line: &str) -> Result<String> {
    let source = line.split('"').nth(1).context("a pattern in quotes")?;
    let target = line
        .split("dst: ")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    let target = target.context("a place for it")?;
    let (folder, pattern) = source.rsplit_once('/').unwrap_or((".", source));
    let (prefix, suffix) = pattern.split_once('*').context("a pattern with a star")?;
    let mut names: Vec<String> = files(&repository().join(folder))?
        .iter()
        .filter(|path| path.is_file())
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .filter(|name| name.starts_with(prefix) && name.ends_with(suffix))
        .collect();
    names.sort();
    ensure!(!names.is_empty(), "nothing matches {source}");
    let each = names.iter().map(|name| {
        let one = line.replace(source, &format!("{folder}/{name}"));
        let one = one.replace(target, &format!("{target}{name}"));
        let in_deb = one.replace("type: doc", "packager: deb");
        format!(
            "{}\n{in_deb}\n",
            one.replace("type: doc", "type: doc, packager: rpm")
        )
    });
    Ok(each.collect())
}

fn generate(wanted: &Wanted, folder: &Path) -> Result<()> {
    derived::manual(&folder.join("man"))?;
    derived::completions(&folder.join("completions"))?;
    fs::write(folder.join("nodevigil.catalog"), derived::catalogue())?;
    fs::write(
        folder.join("changelog.yaml"),
        derived::changelog(&wanted.version, wanted.epoch),
    )?;
    let linked = crates::linked(wanted.arch.target())?;
    fs::write(folder.join("copyright"), copyright::text(&linked)?)?;
    let parts = parts::json(&linked, wanted.arch.target(), wanted.epoch)?;
    fs::write(folder.join("nodevigil.cdx.json"), parts)?;
    compress(&folder.join("man"))
}

/// As Debian wants its manual: `gzip -9n`.
fn compress(folder: &Path) -> Result<()> {
    let mut pages = files(folder)?;
    pages.sort();
    let done = Command::new("gzip").arg("-9n").args(&pages).status();
    ensure!(done.context("gzip")?.success(), "gzip failed");
    Ok(())
}

/// One time and one mode for all.
fn settle(folder: &Path, epoch: u32) -> Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(epoch.into());
    for path in files(folder)? {
        if path.is_dir() {
            settle(&path, epoch)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
            fs::File::options()
                .write(true)
                .open(&path)?
                .set_modified(time)?;
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}
