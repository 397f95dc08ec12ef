//! What is made from the program itself: manual, completions, the journal's catalogue.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it runs where packages are made, not on a node"
)]

use std::{fmt::Write as _, fs, io::Write as _, path::Path};

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::Shell;
use jiff::Timestamp;
use nodevigil::{cli::Cli, host::journal::Kind};

/// Where the programs' own files are, for the manual's first page.
const FILES: &str = "\
.SH FILES
.TP
.I /etc/nodevigil/config.d/*.toml
The configuration, with that of /run and /usr/lib under the same name. Every key is in
.IR /usr/lib/nodevigil/config.d/00\\-defaults.toml .
.TP
.I /etc/nodevigil/kubeconfig
The agent's own credential, root:nodevigil 0640. Without it the kubelet's is used.
.TP
.I /run/nodevigil/status.json
What the daemon found, for
.BR nodevigil\\-status (1).
.TP
.I /usr/share/nodevigil
Manifests for the cluster, alert rules, a dashboard, the list of parts (SBOM).
.SH SEE ALSO
.BR systemctl (1),
.BR journalctl (1).
The documents are in
.IR /usr/share/doc/nodevigil .
";

/// A page for nodevigil and one for each subcommand.
pub(super) fn manual(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), folder)?;
    let first = fs::File::options()
        .append(true)
        .open(folder.join("nodevigil.1"));
    first?.write_all(FILES.as_bytes())?;
    Ok(())
}

/// For bash, zsh and fish.
pub(super) fn completions(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "nodevigil", folder)?;
    }
    Ok(())
}

/// What `journalctl --catalog` says beside each kind of line.
pub(super) fn catalogue() -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        let (id, doc) = (kind.id(), kind.doc());
        let _ = write!(
            text,
            "-- {id}\nSubject: nodevigil: {doc}\nDefined-By: nodevigil\n\
             Support: https://github.com/nodevigil/nodevigil\n\n{doc}\n\n"
        );
    }
    text
}

/// The packages' own; what has changed is in CHANGELOG.md.
pub(super) fn changelog(version: &str, epoch: u32) -> String {
    let date = Timestamp::from_second(epoch.into()).unwrap_or_default();
    format!(
        "- semver: {version}-1\n  date: {date}\n  packager: nodevigil maintainers <maintainers@nodevigil.io>\n  \
         deb:\n    urgency: medium\n    distributions: [stable]\n  \
         changes:\n    - note: \"Release {version}; CHANGELOG.md of the sources says what is new.\"\n"
    )
}
