//! What is in the files that are generated: licences, list of parts, manual, completions, catalogue.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Made, build, packed, said, text};

fn parts(made: &Made) -> Result<Value> {
    let bytes = packed(made, "usr/share/nodevigil/nodevigil.cdx.json")?;
    serde_json::from_slice(&bytes).context("the list of parts")
}

pub(crate) fn every_part_has_its_copyright_and_licence(made: &Made) -> Result<()> {
    let copyright = String::from_utf8(packed(made, "usr/share/doc/nodevigil/copyright")?)?;
    ensure!(
        copyright.starts_with("Format: https://www.debian.org/"),
        "{copyright:.200}"
    );
    let stanzas: Vec<&str> = copyright.split("\n\n").collect();
    let parts = parts(made)?;
    let mut counted = 0;
    for part in parts["components"].as_array().context("components")? {
        let Some(version) = part["version"].as_str() else {
            continue;
        };
        let head = format!(
            "Files: crates/{}-{version}/*\n",
            part["name"].as_str().unwrap_or_default()
        );
        let stanza = stanzas.iter().find(|stanza| stanza.starts_with(&head));
        let stanza = stanza.with_context(|| format!("no `{head}`"))?;
        let license = stanza.split("\nLicense: ").nth(1).context("a license")?;
        for name in license.trim().split(" and ") {
            let text = format!("License: {name}\n ");
            ensure!(
                stanzas.iter().any(|stanza| stanza.starts_with(&text)),
                "no text of {name}"
            );
        }
        counted += 1;
    }
    ensure!(counted > 100, "only {counted} crates");
    Ok(())
}

pub(crate) fn the_list_of_parts_is_whole(made: &Made) -> Result<()> {
    let parts = parts(made)?;
    ensure!(
        parts["bomFormat"] == "CycloneDX" && parts["specVersion"] == "1.5",
        "{parts:#}"
    );
    let this = &parts["metadata"]["component"];
    ensure!(this["version"] == env!("CARGO_PKG_VERSION"), "{this:#}");
    let components = parts["components"].as_array().context("components")?;
    let mut known: BTreeSet<&str> = components
        .iter()
        .filter_map(|part| part["bom-ref"].as_str())
        .collect();
    ensure!(
        known.len() == components.len(),
        "a reference stands for two parts"
    );
    known.extend(this["bom-ref"].as_str());
    // What the manifest asks for is in it, with the checksum that the build was held to; what only tests use is not.
    for (name, is_in) in [
        ("rustls", true),
        ("tokio", true),
        ("ring", true),
        ("proptest", false),
        ("clap_mangen", false),
        ("serde_derive", false),
    ] {
        let part = components.iter().find(|part| part["name"] == name);
        ensure!(part.is_some() == is_in, "{name}");
        let hashed = part.is_none_or(|part| {
            part["hashes"][0]["content"]
                .as_str()
                .is_some_and(|hash| hash.len() == 64)
        });
        ensure!(hashed, "{name} has no checksum");
    }
    for line in parts["dependencies"].as_array().context("dependencies")? {
        let mut named = vec![&line["ref"]];
        named.extend(line["dependsOn"].as_array().into_iter().flatten());
        let unknown = named
            .iter()
            .find(|name| !name.as_str().is_some_and(|name| known.contains(name)));
        ensure!(unknown.is_none(), "{unknown:?} is no part");
    }
    Ok(())
}

/// By another way than it was made: the manifest without what only tests use, followed along what is used at run time, each with
/// the checksum that Cargo.lock holds it to.
pub(crate) fn the_list_of_parts_is_what_cargo_links(made: &Made) -> Result<()> {
    let parts = parts(made)?;
    let this = &parts["metadata"]["component"];
    let components = parts["components"].as_array().context("components")?;
    let listed: BTreeSet<(String, String)> = components
        .iter()
        .chain([this])
        .filter(|part| part["version"].is_string())
        .map(|part| {
            let checksum = part["hashes"][0]["content"].as_str();
            let name = format!("{}@{}", as_text(&part["name"]), as_text(&part["version"]));
            (name, checksum.unwrap_or_default().to_owned())
        })
        .collect();
    let lock = fs::read_to_string(build::repository().join("Cargo.lock"))?;
    let lock: Value = serde_json::to_value(toml::from_str::<toml::Table>(&lock)?)?;
    let locked = lock["package"].as_array().context("packages")?;
    let checksums: BTreeMap<String, &str> = locked
        .iter()
        .map(|part| {
            let name = format!("{}@{}", as_text(&part["name"]), as_text(&part["version"]));
            (name, as_text(&part["checksum"]))
        })
        .collect();
    let linked: BTreeSet<(String, String)> = linked(made)?
        .into_iter()
        .map(|name| {
            let checksum = checksums.get(&name).copied().unwrap_or_default();
            (name, checksum.to_owned())
        })
        .collect();
    let differ: Vec<_> = listed.symmetric_difference(&linked).collect();
    ensure!(differ.is_empty(), "in one of the two only: {differ:#?}");
    Ok(())
}

fn as_text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `name@version` of each crate that cargo links into the program.
fn linked(made: &Made) -> Result<BTreeSet<String>> {
    let manifest = fs::read_to_string(build::repository().join("Cargo.toml"))?;
    let whole: toml::Table = toml::from_str(&manifest)?;
    let kept = ["package", "dependencies"];
    let kept: toml::Table = whole
        .into_iter()
        .filter(|(key, _)| kept.contains(&key.as_str()))
        .collect();
    let folder = made.work.join("without tests");
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/main.rs"), "fn main() {}\n")?;
    fs::write(folder.join("Cargo.toml"), toml::to_string(&kept)?)?;
    fs::copy(
        build::repository().join("Cargo.lock"),
        folder.join("Cargo.lock"),
    )?;
    let manifest = folder.join("Cargo.toml");
    let metadata = said(
        "cargo",
        &[
            "metadata",
            "--offline",
            "--format-version=1",
            "--filter-platform",
            build::Arch::Amd64.target(),
            "--manifest-path",
            text(&manifest),
        ],
    )?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let rows = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = rows(&metadata["packages"]);
    let nodes = rows(&metadata["resolve"]["nodes"]);
    let mut left = vec![metadata["resolve"]["root"].clone()];
    let mut seen = BTreeSet::new();
    while let Some(id) = left.pop() {
        let package = packages.iter().find(|package| package["id"] == id);
        let package = package.context("a package of that id")?;
        let mut kinds = rows(&package["targets"])
            .into_iter()
            .flat_map(|target| rows(&target["kind"]));
        let name = format!(
            "{}@{}",
            as_text(&package["name"]),
            as_text(&package["version"])
        );
        // A macro runs in the compiler, and so does what it uses.
        if kinds.any(|kind| kind == "proc-macro") || !seen.insert(name) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id);
        let used = rows(&node.context("a node of that id")?["deps"]).into_iter();
        let at_run_time = |used: &Value| {
            let kinds = rows(&used["dep_kinds"]);
            kinds.iter().any(|kind| kind["kind"].is_null())
        };
        left.extend(used.filter(at_run_time).map(|used| used["pkg"].clone()));
    }
    Ok(seen)
}

pub(crate) fn every_subcommand_has_its_page(made: &Made) -> Result<()> {
    use clap::CommandFactory as _;
    let command = nodevigil::cli::Cli::command();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = sub.get_name();
        packed(made, &format!("usr/share/man/man1/nodevigil-{name}.1.gz"))?;
    }
    let first = made.work.join("unpacked/usr/share/man/man1/nodevigil.1.gz");
    let page = said("gzip", &["--decompress", "--stdout", text(&first)])?;
    for word in [".SH FILES", "status.json", "nodevigil\\-check"] {
        ensure!(page.contains(word), "{word} is not in {page}");
    }
    Ok(())
}

/// bash is there; of the others' files only that they speak of every subcommand.
pub(crate) fn shells_can_read_their_completions(made: &Made) -> Result<()> {
    for path in [
        "usr/share/bash-completion/completions/nodevigil",
        "usr/share/fish/vendor_completions.d/nodevigil.fish",
        "usr/share/zsh/vendor-completions/_nodevigil",
    ] {
        let text = String::from_utf8(packed(made, path)?)?;
        for word in ["check", "status", "--phase", "doctor"] {
            let fish = word.trim_start_matches("--");
            ensure!(
                text.contains(word) || text.contains(fish),
                "{word} is not in {path}"
            );
        }
    }
    let bash = made
        .work
        .join("unpacked/usr/share/bash-completion/completions/nodevigil");
    let script = format!(
        "source '{}'; COMP_WORDS=(nodevigil sta); COMP_CWORD=1; _nodevigil nodevigil sta nodevigil; echo \"${{COMPREPLY[@]}}\"",
        bash.display()
    );
    let completed = said("bash", &["-c", &script])?;
    ensure!(completed.trim() == "status", "{completed}");
    Ok(())
}

pub(crate) fn the_journal_reads_the_catalogue(made: &Made) -> Result<()> {
    let root = made.work.join("catalogue");
    let own = "usr/lib/systemd/catalog/nodevigil.catalog";
    fs::create_dir_all(root.join("usr/lib/systemd/catalog"))?;
    fs::create_dir_all(root.join("var/lib/systemd/catalog"))?;
    fs::write(root.join(own), packed(made, own)?)?;
    let at = format!("--root={}", root.display());
    said("journalctl", &[&at, "--update-catalog"])?;
    for kind in nodevigil::host::journal::Kind::ALL {
        let shown = said("journalctl", &[&at, "--dump-catalog", kind.id()])?;
        ensure!(shown.contains(kind.doc()), "{kind:?}: {shown}");
    }
    Ok(())
}
