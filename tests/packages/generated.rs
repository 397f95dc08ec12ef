//! What is in the files that are generated: licences, list of parts, manual, completions, catalogue.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Made, packed, said, text};

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
