//! `nodevigil check`: resolves the kubelet's configuration and reports what is wrong with it.

mod choice;
mod configz;
mod fix;
mod gather;
mod json;
mod live;
mod sarif;
mod source;
mod text;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::{env, fs};

use anyhow::Context as _;
use clap::{ColorChoice, ValueEnum};
use kubelet_config::fix::Plan;
use kubelet_config::kubelet::host_tree::HostTree;
use kubelet_config::kubelet::resolve;
use kubelet_config::kubelet::snapshot::{Lifecycle, Snapshot};
use kubelet_config::kubelet::systemd::LoadState;
use kubelet_config::kubelet::tree::Tree;
use kubelet_config::rules::{self, Report};
use terminal_size::terminal_size_of;

use self::choice::Choice;
use self::fix::Patch;
use self::gather::{Gathered, Given};
use self::source::Sources;
use self::text::{Fix, Style};
use super::{BAD, GOOD, UNKNOWN, block_on, complain, is_colored, print};
use crate::files;
use crate::report::ci;
use crate::settings::{self, EXIT_CONFIG};

/// The width of a line if `COLUMNS` is not set and standard output is not a terminal.
const COLUMNS: usize = 80;
/// The least width: findings cannot be read in fewer columns.
const MIN_COLUMNS: usize = 40;
/// The rule that finds files that changed since systemd loaded them.
const STALE: &str = "SD020";
/// A report has about ten KiB.
const MAX_REPORT_BYTES: u64 = 1 << 20;

/// Check the kubelet's configuration: its unit, its flags and its configuration files
///
/// Reads the files of this host, or of an image, as systemd and the kubelet will at the kubelet's next start. Reports what is wrong, where,
/// and what to do. Changes nothing: `--fix` prints a patch. A comment above a line allows a finding in it:
/// `# nodevigil: allow FL003: kubeadm rewrites this at the next upgrade`.
///
/// Exit code: 0 no finding of severity error or worse (see `--deny`), 1 such a finding, 2 the check failed or its output cannot be written, 78 nodevigil's settings are invalid.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The root of the file system to check
    #[arg(value_name = "PATH", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    shown: Shown,
}

/// The options about the output.
#[derive(Debug, clap::Args)]
struct Shown {
    /// Print text, JSON (docs/reference/check-json.md), SARIF 2.1.0 for code scanning, `JUnit` for test reports, or workflow commands, which
    /// GitHub Actions shows as annotations
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    /// Print a patch for the errors that an edit of a file can fix (with --severity=warning also for warnings). Standard error lists what
    /// the patch fixes, what it does not fix, and what to do next. The patch quotes lines of the files, including secrets. Exit code 1 if a
    /// finding of severity error or worse (see --deny) is not fixed
    #[arg(long, conflicts_with_all = ["output", "verbose", "once"])]
    fix: bool,
    /// Write the output to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
    /// List the rules that were not checked, and why
    #[arg(long, short)]
    verbose: bool,
    /// When to use color; auto respects `NO_COLOR`
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    /// Print nothing if the report is the same as the one in FILE; write the report to FILE
    #[arg(long, value_name = "FILE", hide = true)]
    once: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Sarif,
    Junit,
    Github,
}

impl Check {
    pub fn run(self) -> u8 {
        self.report().unwrap_or_else(|error| {
            complain(&format!("{error:#}"));
            if error.is::<settings::Error>() { EXIT_CONFIG } else { UNKNOWN }
        })
    }

    /// The exit code. A report that cannot be written is an error, because 1 means that there are findings.
    fn report(&self) -> anyhow::Result<u8> {
        let (code, report) = self.check()?;
        if let Some(file) = &self.shown.once {
            if files::read(file, MAX_REPORT_BYTES).is_ok_and(|last| last == report) {
                return Ok(code);
            }
            files::replace(file, 0o600, &report).ok(); // a report that cannot be kept is printed again
        }
        match &self.shown.output_file {
            Some(file) => fs::write(file, report).with_context(|| format!("--output-file {}", file.display()))?,
            None => print(&report)?,
        }
        Ok(code)
    }

    /// The exit code and the output.
    fn check(&self) -> anyhow::Result<(u8, String)> {
        let root = &self.root;
        let tree = HostTree::new(root).map_err(|error| anyhow::anyhow!("{}: {error}", root.display()))?;
        let settings = self.given.settings(tree.is_this_host())?;
        let (mut gathered, mut notes) = (self.given.gather(&tree, &settings)?, Vec::new());
        if tree.is_this_host() {
            block_on("asking systemd and the kubelet", live::ask(&tree, &mut gathered.inputs, &mut notes))?;
        }
        let mut snapshot = resolve(&tree, gathered.clone());
        if tree.is_this_host() {
            block_on("connecting to the container runtime", live::try_socket(&mut snapshot))?;
            let kubeconfig = settings.kubernetes.kubeconfig.as_deref();
            let answer = live::ask_configuration(kubeconfig, &mut snapshot, &mut notes);
            block_on("asking the kubelet for its configuration", answer)?;
        }
        let choice = self.choice.with(&settings.check);
        let chosen = choice.apply(rules::lint(&snapshot), &tree);
        if snapshot.unit.load == LoadState::NotFound && !chosen.is_about(&snapshot.unit.name, &tree) {
            anyhow::bail!(self.no_unit(&snapshot));
        }
        notes.extend(tree.denied().iter().map(|path| format!("permission denied: {}", path.display())));
        if self.shown.fix {
            for note in &notes {
                complain(note);
            }
            let is_stale = chosen.findings.iter().any(|finding| finding.rule == STALE);
            let plan = plan(&tree, gathered, &snapshot, &choice);
            let patch = Patch::of(&plan, &snapshot.unit.name, &self.fix_command(), chosen.deny, is_stale);
            _ = io::stderr().lock().write_all(patch.notes.as_bytes());
            return Ok((if patch.is_bad { BAD } else { GOOD }, patch.diff));
        }
        let is_bad = chosen.findings.iter().any(|finding| chosen.is_denied(finding));
        let sources = Sources::read(&tree, &snapshot, &chosen.findings);
        let report = match self.shown.output {
            Format::Text => {
                let plan = plan(&tree, gathered, &snapshot, &choice);
                let fix = Fix { plan: &plan, command: &self.fix_command() };
                text::report(&snapshot, &sources, &chosen, &notes, fix, self.shown.style())
            }
            Format::Json => format!("{:#}\n", json::document(root, &snapshot, &chosen, &notes, &tree.denied())),
            Format::Sarif => format!("{:#}\n", sarif::log(root, &sources, &chosen)),
            Format::Junit => {
                let shown: Vec<_> = chosen.shown().collect();
                ci::junit(&chosen.rules, &shown, &chosen.not_checked, chosen.deny)
            }
            Format::Github => chosen.shown().map(|finding| ci::workflow_command(root, finding)).collect(),
        };
        Ok((if is_bad { BAD } else { GOOD }, report))
    }

    fn no_unit(&self, snapshot: &Snapshot) -> String {
        let (name, below) = (&snapshot.unit.name, self.root.display());
        if self.given.unit.is_some() {
            return format!("{name} is not a unit below {below}: no fragment in systemd's search path");
        }
        format!(
            "no unit that runs a kubelet below {below} (searched for {name} and the units of k3s, RKE2, MicroK8s and the k8s snap); \
             name it with --unit"
        )
    }

    /// The command that applies the patch, with the options of this one.
    fn fix_command(&self) -> String {
        let words = env::args_os().map(|word| word.to_string_lossy().into_owned());
        fix::command(words.skip_while(|word| word != "check").skip(1), &self.root)
    }
}

/// The edits that fix findings.
fn plan(tree: &HostTree, mut gathered: Gathered, snapshot: &Snapshot, choice: &Choice) -> Plan {
    // An edited file differs from what systemd and the running kubelet have loaded.
    (gathered.inputs.loaded, gathered.inputs.process) = (None, None);
    let judge = |tree: &dyn Tree| {
        let mut edited = resolve(tree, gathered.clone());
        edited.machine.cri.socket.clone_from(&snapshot.machine.cri.socket);
        let chosen = choice.apply(rules::lint(&edited), tree);
        Report { findings: chosen.findings, not_checked: chosen.not_checked }
    };
    kubelet_config::fix::plan(tree, &judge, &|finding| choice.is_to_be_fixed(finding))
}

/// The configuration of the kubelet in `tree`.
fn resolve(tree: &dyn Tree, gathered: Gathered) -> Snapshot {
    let mut snapshot = resolve::resolve(tree, gathered.inputs);
    if gathered.is_phase_open && !gather::has_run(tree, &snapshot) {
        snapshot.lifecycle = Lifecycle::BeforeFirstStart;
    }
    let disables = &mut snapshot.command.server_disables_cloud_controller;
    *disables = gathered.server_disables_cloud_controller.or(*disables);
    snapshot
}

impl Shown {
    fn style(&self) -> Style {
        let is_colored = match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_colored(),
        };
        let columns = env::var("COLUMNS").ok().and_then(|text| text.parse::<usize>().ok());
        let of_terminal = || terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        let columns = columns.or_else(of_terminal).map_or(COLUMNS, |columns| columns.max(MIN_COLUMNS));
        Style { is_colored, columns, is_verbose: self.verbose }
    }
}

#[cfg(test)]
mod tests;
