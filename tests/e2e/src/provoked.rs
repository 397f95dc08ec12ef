//! The table of the problems that stories have provoked, with the messages on the Node: docs/reference/provoked.md.
//! `make stories TABLE=docs/reference/provoked.md` writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::scene::{Condition, Scene};
use crate::support::{output, programs};

const HEAD: &str = "\
# Provoked problems

Each problem that a condition can show, the story of tests/e2e that provokes it, and the message that the Node then showed.
The nodes are real (kubelet, containerd, systemd, control plane); `memory::host_thrashes` runs only the agent, in a
virtual machine. `make stories TABLE=docs/reference/provoked.md` writes the rows of the stories that it runs.

`KernelHardwareFailing` and `KernelLockedUp` would need broken hardware or a broken kernel; unit tests use lines that
kernels logged.

| reason | shown as | story | message |
|---|---|---|---|
";
const NOT_PROVOKED: &str = "| none | no story has shown it |";

/// The table, in the order of `nodevigil explain`.
pub struct Provoked {
    path: PathBuf,
    /// Reason, condition and status of each problem.
    problems: Vec<[String; 3]>,
    /// The lines, by reason.
    rows: BTreeMap<String, String>,
}

impl Provoked {
    /// Reads the table that is there, if any.
    pub fn read(path: &Path) -> Result<Self> {
        let explained = output(Command::new(programs::agent()?).args(["explain", "--output=json"]))?;
        let explained: Vec<Value> = serde_json::from_str(&explained).context("`nodevigil explain -o json`")?;
        let cells = |row: &Value| {
            ["reason", "condition", "status"].map(|cell| row[cell].as_str().unwrap_or_default().to_owned())
        };
        let is_problem = |[_, condition, status]: &[String; 3]| {
            status == if condition == "MemoryExhaustionImminent" { "True" } else { "False" }
        };
        let problems = explained.iter().map(cells).filter(is_problem).collect();
        let table = if path.exists() {
            fs::read_to_string(path).with_context(|| path.display().to_string())?
        } else {
            String::new()
        };
        let rows = table.lines().filter_map(|line| {
            let line = Some(line).filter(|line| !line.ends_with(NOT_PROVOKED))?;
            let reason = line.strip_prefix("| `")?.split('`').next()?;
            Some((reason.to_owned(), line.to_owned()))
        });
        Ok(Self { path: path.to_owned(), problems, rows: rows.collect() })
    }

    /// Adds what the Nodes of a story have shown, and writes the table.
    pub fn add(&mut self, story: &str, scene: &Scene) -> Result<()> {
        for watch in scene.watches() {
            let states = watch.since(None);
            for [reason, condition, status] in &self.problems {
                let mut shown = states.iter().filter_map(|(at, node)| Condition::read(*at, node, condition));
                let Some(shown) = shown.find(|shown| (&shown.reason, &shown.status) == (reason, status)) else {
                    continue;
                };
                let message = shown.message.replace('|', "\\|");
                let row = format!("| `{reason}` | `{condition}={status}` | {story} | {message} |");
                // Of several stories the one that is in the table already stays there.
                let is_of_another = |known: &String| !known.contains(&format!("| {story} |"));
                if !self.rows.get(reason).is_some_and(is_of_another) {
                    self.rows.insert(reason.clone(), row);
                }
            }
        }
        let row = |[reason, condition, status]: &[String; 3]| {
            let row = self.rows.get(reason).cloned();
            row.unwrap_or_else(|| format!("| `{reason}` | `{condition}={status}` {NOT_PROVOKED}")) + "\n"
        };
        let table: String = self.problems.iter().map(row).collect();
        fs::write(&self.path, format!("{HEAD}{table}")).with_context(|| self.path.display().to_string())
    }
}
