//! `nodevigil check`: what the kubelet will get, where each word of it comes from, and what is wrong with it.
#![expect(
    clippy::disallowed_methods,
    reason = "a subcommand reads the environment for itself"
)]

mod choice;
mod facts;
mod gather;
mod json;
mod live;
mod remember;
mod sarif;
mod show;
mod source;
mod text;
pub(super) mod wrap;

use std::{
    env,
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};

use clap::ValueEnum;

pub(super) use self::live::is_this_host;
use self::{choice::Choice, gather::Gathered, json::Document, show::Show, source::Sources};
use super::status::print;
use crate::{
    host::tree::HostTree,
    kubelet::{
        resolve,
        snapshot::{Phase, Snapshot},
        systemd::LoadState,
        version::Version,
    },
    rules::{self, Severity, allow},
};

/// Nothing of severity error or worse.
const EXIT_CLEAN: u8 = 0;
/// Something of severity error or worse.
const EXIT_FOUND: u8 = 1;
/// It could not be checked.
const EXIT_CANNOT: u8 = 2;

/// The width of a line where nobody says otherwise.
const COLUMNS: usize = 80;

/// Check what the kubelet will get: its unit, its arguments, its configuration
///
/// Reads the host's files, or those of an image below --root, as systemd and the kubelet will read them, and says what is
/// wrong, where, and what to do. Changes nothing. A comment above a line allows a finding there:
/// `# nodevigil: allow FL003: kubeadm rewrites this at the next upgrade`.
///
/// Exit code: 0 nothing of severity error or worse, 1 something of severity error or worse, 2 could not check.
#[derive(Debug, Clone, clap::Args)]
#[command(max_term_width = 100)]
pub struct Check {
    /// The root of the file system to check; nothing outside is read
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The unit that runs the kubelet [default: [kubelet] unit of the configuration, else the likeliest one that is there]
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
    /// How to print what is found
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// The kubelet's version [default: what its binary says on a live host, else what the tree says]
    #[arg(long, value_name = "VERSION")]
    kubelet_version: Option<Version>,
    /// What the node should get: cloud-provider=external, node-ip=ADDRESS, provider-id=ID, node-label=KEY=VALUE; may be
    /// given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = gather::intent)]
    intent: Vec<gather::Wish>,
    /// The host's name [default: the running host's, else /etc/hostname below the root]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Whether the kubelet has yet to start for the first time, as in an image (no certificate, no CNI: normal), or should
    /// be running
    #[arg(long, value_name = "PHASE", default_value = "after")]
    phase: PhaseArg,
    /// Only these rules: ids, names or beginnings of ids (SD001,FL); may be given again
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = choice::rule)]
    select: Vec<String>,
    /// Not these rules; may be given again
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = choice::rule)]
    ignore: Vec<String>,
    /// Show no findings below this severity (the exit code does not change)
    #[arg(long, value_name = "SEVERITY", default_value = "info")]
    severity: SeverityArg,
    /// Print what the kubelet gets, each part with where it comes from, instead of findings
    #[arg(long, value_name = "WHAT")]
    show: Option<Show>,
    /// Facts that no file holds, as JSON: what the API and the cloud's metadata say (docs/reference/check-json.md)
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// Also say what each rule that could not judge lacked
    #[arg(long, short)]
    verbose: bool,
    /// When to use colour; auto respects `NO_COLOR`
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
    /// Read this file, or the *.toml of this folder, for [kubelet] unit and [intent], instead of the default places; may be
    /// given again [default with --root: none]
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Vec<PathBuf>,
    /// Print nothing if all of it was printed the last time; FILE remembers it
    #[arg(long, value_name = "FILE", hide = true)]
    once: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One document, described in docs/reference/check-json.md
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PhaseArg {
    Before,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SeverityArg {
    Info,
    Warning,
    Error,
    Fatal,
}

impl From<PhaseArg> for Phase {
    fn from(phase: PhaseArg) -> Self {
        match phase {
            PhaseArg::Before => Self::Before,
            PhaseArg::After => Self::After,
        }
    }
}

impl From<SeverityArg> for Severity {
    fn from(severity: SeverityArg) -> Self {
        match severity {
            SeverityArg::Info => Self::Info,
            SeverityArg::Warning => Self::Warning,
            SeverityArg::Error => Self::Error,
            SeverityArg::Fatal => Self::Fatal,
        }
    }
}

impl Check {
    /// Prints what is found; the exit code says how bad it is.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.check() {
            Ok((code, text)) => {
                let unchanged = self
                    .once
                    .as_ref()
                    .is_some_and(|file| remember::is_the_same(file, &text));
                if !unchanged {
                    print(&mut io::stdout().lock(), &text)?;
                }
                Ok(code.into())
            }
            Err(error) => {
                let text = format!("nodevigil check: {error:#}\n");
                print(&mut io::stderr().lock(), &text)?;
                Ok(EXIT_CANNOT.into())
            }
        }
    }

    fn check(&self) -> anyhow::Result<(u8, String)> {
        let tree = HostTree::new(&self.root)
            .map_err(|error| anyhow::anyhow!("--root {}: {error}", self.root.display()))?;
        let Gathered {
            inputs,
            notes,
            is_live,
            server_disables_cloud_controller,
        } = gather::gather(self, &tree)?;
        let mut snapshot = resolve::snapshot(&tree, inputs);
        let told = &mut snapshot.launch.server_disables_cloud_controller;
        *told = server_disables_cloud_controller.or(*told);
        if is_live {
            live::try_socket(&mut snapshot);
        }
        let choice = Choice {
            select: &self.select,
            ignore: &self.ignore,
            shown_from: self.severity.into(),
        };
        let report = choice.apply(rules::run(&snapshot), |findings| {
            allow::part(&tree, findings)
        });
        if snapshot.unit.load == LoadState::NotFound && !report.is_about(&snapshot.unit.name, &tree)
        {
            anyhow::bail!("{}", no_unit(self, &snapshot));
        }
        let sources = Sources::new(&tree, &snapshot);
        let text = match (self.format, self.show) {
            (Format::Text, Some(show)) => show.table(&snapshot),
            (Format::Text, None) => {
                text::report(&snapshot, &sources, &report, &notes, &self.style())
            }
            (Format::Json, _) => Document::new(self, &snapshot, &report, &notes).print(),
            (Format::Sarif, _) => sarif::print(&self.root, &sources, &report),
        };
        let is_bad = report.worst() >= Some(Severity::Error);
        let code = if is_bad && self.show.is_none() {
            EXIT_FOUND
        } else {
            EXIT_CLEAN
        };
        Ok((code, text))
    }

    fn style(&self) -> text::Style {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let colour = match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                io::stdout().is_terminal()
                    && !set("NO_COLOR")
                    && env::var_os("TERM").is_some_and(|term| term != "dumb")
            }
        };
        let columns = env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok())
            .map_or(COLUMNS, |columns: usize| columns.clamp(40, 160));
        text::Style {
            colour,
            columns,
            verbose: self.verbose,
        }
    }
}

/// Why there is nothing to check.
fn no_unit(check: &Check, snapshot: &Snapshot) -> String {
    let name = &snapshot.unit.name;
    let below = check.root.display();
    if check.unit.is_some() {
        return format!("{name} is not a unit below {below}: no fragment in systemd's search path");
    }
    format!(
        "no unit that runs a kubelet below {below} (looked for {name} and the units of k3s, RKE2, MicroK8s and the k8s \
         snap); name it with --unit"
    )
}

#[cfg(test)]
mod tests;
