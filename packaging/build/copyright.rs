//! The copyright file, in Debian's machine-readable form: ours, and each linked crate's notices under the licence that was chosen.
#![expect(
    clippy::disallowed_methods,
    reason = "it runs where packages are made, not on a node: it reads crates' files"
)]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::crates::Crate;

const HEAD: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: nodevigil
Source: https://github.com/nodevigil/nodevigil
Comment:
 The binary is linked statically. Below crates/ stands each crate of
 crates.io that is in it, with the license that was chosen where there is a
 choice, and the notices that its files carry.

Files: *
Copyright: 2026 the nodevigil maintainers
License: Apache-2.0

Files: rust/std/*
Copyright: The Rust Project contributors
License: Apache-2.0

Files: musl/*
Copyright: 2005-2020 Rich Felker, et al.
License: MIT
";

/// Apache's text is 200 lines, and stands beside this file or in Debian's place for it.
const APACHE: &str = "\
On Debian its text is /usr/share/common-licenses/Apache-2.0, elsewhere
/usr/share/licenses/nodevigil/LICENSE.
";

/// Preferred first.
const CHOICE: &[&str] = &["Apache-2.0", "MIT", "ISC", "BSD-3-Clause", "Unicode-3.0"];

/// More than any crate has.
const MAX_NOTICES: usize = 40;

pub(super) fn text(linked: &[Crate]) -> Result<String> {
    let mut text = HEAD.to_owned();
    let mut used = BTreeSet::from(["Apache-2.0", "MIT"]);
    for part in linked.iter().filter(|part| part.name != "nodevigil") {
        let chosen = choose(&part.expression()?)
            .with_context(|| format!("{}: {:?}", part.reference(), part.license))?;
        used.extend(chosen.iter().copied());
        let _ = write!(
            text,
            "\nFiles: crates/{}-{}/*\nCopyright: {}\nLicense: {}\n",
            part.name,
            part.version,
            notices(part).join("\n           "),
            chosen.join(" and "),
        );
    }
    for name in used {
        let own = super::repository().join(format!("packaging/licenses/{name}.txt"));
        let body = match name {
            "Apache-2.0" => APACHE.to_owned(),
            _ => fs::read_to_string(&own).with_context(|| own.display().to_string())?,
        };
        let _ = write!(text, "\nLicense: {name}\n{}", indented(&body));
    }
    Ok(text)
}

/// One licence of each alternative, in the order of the expression.
fn choose(expression: &str) -> Option<Vec<&'static str>> {
    let parts = expression.split(" AND ").map(|part| {
        let offered: Vec<&str> = part.trim_matches(['(', ')']).split(" OR ").collect();
        CHOICE.iter().copied().find(|name| offered.contains(name))
    });
    parts.collect()
}

/// The lines that begin with `Copyright` in the files that speak of licences; else its authors.
fn notices(part: &Crate) -> Vec<String> {
    let folder = part.manifest_path.parent().unwrap_or(Path::new("/"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.extend(part.license_file.iter().map(|file| folder.join(file)));
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_ascii_lowercase();
        ["license", "licence", "copying", "copyright", "notice"]
            .iter()
            .any(|word| name.starts_with(word))
    });
    files.sort();
    let mut found: Vec<String> = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        for line in text.lines().filter_map(notice) {
            if !found.contains(&line) && found.len() < MAX_NOTICES {
                found.push(line);
            }
        }
    }
    if found.is_empty() {
        found.extend(part.authors.iter().cloned());
    }
    if found.is_empty() {
        found.push(format!("the authors of {}", part.name));
    }
    found
}

/// What follows `Copyright (c)`, if it is somebody and no template or sentence.
fn notice(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches(['/', '*', '#', '-', ' ']);
    let rest = line.strip_prefix("Copyright ")?;
    let rest = rest.trim_start_matches("(c)").trim_start_matches("(C)");
    let rest = rest.trim_start_matches('©').trim();
    let is_template = rest.contains('[') || rest.contains('{') || rest.contains("<year>");
    let is_somebody = rest.starts_with(|c: char| c.is_ascii_digit() || c.is_uppercase());
    let is_sentence = ["License", "Notice"]
        .iter()
        .any(|word| rest.starts_with(word));
    (is_somebody && !is_template && !is_sentence).then(|| rest.to_owned())
}

/// As a field's continuation: a space before each line, a point in an empty one.
fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |text, line| {
        let line = line.trim_end();
        text + " " + if line.is_empty() { "." } else { line } + "\n"
    })
}
