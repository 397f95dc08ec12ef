//! The table of platforms, docs/platforms.md: which story passed on which kind of node, when, and with which versions. `make nodes` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::scene::ObservedNode;
use crate::stories::{Place, STORIES, Story};
use crate::support::kinds::{KINDS, Kind};
use crate::support::{output, programs};

/// Separates a kind from what is of another release.
const OTHER_RELEASE: &str = ", ";
const HEAD: &str = "\
# Platforms

The nodes on which the stories (the end-to-end tests in tests/e2e) ran, and how each story ended. `make nodes` writes this page. Nodes of the kind
`namespaces` use the kernel of the machine that runs the stories. The others are virtual machines with the kernel and the programs of a Debian
release. Every node runs a real kubelet, container runtime and systemd, with a real control plane.

";
const RELEASES_HEAD: &str = "\
\n## Other releases of Kubernetes

Some stories with another release of the kubelet alone (*kubelet*), or of both the kubelet and the control plane (*Kubernetes*).

";
const STORIES_HEAD: &str = "\
\nThe table lists the stories that ran on at least one kind of node. *not run*: `make nodes` did not run the story there, because it is not part of the gate.
*elsewhere*: only other kinds of nodes can run it.

";

/// What a run adds to the table.
pub struct Platforms {
    path: PathBuf,
    kind: &'static Kind,
    /// What the table calls the nodes: their kind, and what is of another release.
    name: String,
    today: String,
    /// Whether this run has written the versions.
    has_versions: bool,
}

/// What the table has.
#[derive(Debug, Default, PartialEq)]
struct Table {
    /// Cells of the kinds' own table, by kind.
    versions: BTreeMap<String, Vec<String>>,
    /// Results, by kind and story.
    results: BTreeMap<(String, String), String>,
}

impl Platforms {
    /// To add what happens on this kind of nodes to the table in that file.
    pub fn new(path: &Path, kind: &'static Kind) -> Result<Self> {
        let today = output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
        let name = programs::other_release()
            .map_or_else(|| kind.name.to_owned(), |release| format!("{}{OTHER_RELEASE}{release}", kind.name));
        Ok(Self { path: path.to_owned(), kind, name, today, has_versions: false })
    }

    /// Adds how a story ended, with the versions of its node. Reads the table each time, as another run may write it too.
    pub fn add(&mut self, story: &Story, passed: bool, node: Option<&ObservedNode>) -> Result<()> {
        let text = if self.path.exists() { fs::read_to_string(&self.path)? } else { String::new() };
        let mut table = Table::parse(&text);
        if let Some(node) = node.filter(|_| !self.has_versions) {
            table.versions.insert(self.name.clone(), self.read_versions(node)?);
            self.has_versions = true;
        }
        let result = format!("{} {}", if passed { "passed" } else { "**failed**" }, self.today);
        table.results.insert((self.name.clone(), story.name.to_owned()), result);
        fs::write(&self.path, table.text()).with_context(|| self.path.display().to_string())
    }

    fn read_versions(&self, node: &ObservedNode) -> Result<Vec<String>> {
        let state = node.watch().last().context("there is no Node")?;
        let info = |name: &str| state["status"]["nodeInfo"][name].as_str().unwrap_or_default().to_owned();
        let systemd = node.sh("systemctl --version | head -n 1 | cut -d' ' -f2; test -e /sys/fs/cgroup/cgroup.controllers && echo v2 || echo v1")?;
        let mut words = systemd.split_whitespace().map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let (systemd, cgroup) = (word(), word());
        let runtime = info("containerRuntimeVersion").replace("://", " ");
        let mut cells = vec![self.today.clone(), info("osImage"), info("kernelVersion"), systemd, cgroup, runtime];
        cells.extend([info("kubeletVersion"), format!("`{}`, `{}`", node.unit("kubelet"), self.kind.socket)]);
        Ok(cells)
    }
}

impl Table {
    fn text(&self) -> String {
        let kinds: Vec<&str> =
            KINDS.iter().map(|kind| kind.name).filter(|name| self.versions.contains_key(*name)).collect();
        let others: Vec<&str> =
            self.versions.keys().map(String::as_str).filter(|name| name.contains(OTHER_RELEASE)).collect();
        let mut text = format!("{HEAD}{}{STORIES_HEAD}{}", self.kinds(&kinds), self.stories(&kinds));
        if !others.is_empty() {
            let _ = write!(text, "{RELEASES_HEAD}{}\n{}", self.kinds(&others), self.stories(&others));
        }
        text
    }

    fn kinds(&self, names: &[&str]) -> String {
        let mut text = "| kind | passed | failed | last run | system | Linux | systemd | cgroup | runtime | kubelet | unit, socket |\n\
            |---|---|---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
        for name in names {
            let results = || STORIES.iter().filter_map(|story| self.result(name, story));
            let passed = results().filter(|result| result.starts_with("passed")).count();
            let failed = results().count() - passed;
            let _ = writeln!(text, "| `{name}` | {passed} | {failed} | {} |", self.versions[*name].join(" | "));
        }
        text
    }

    fn stories(&self, names: &[&str]) -> String {
        let heads: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let mut text = format!("| story | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(names.len()));
        let ran = |story: &&Story| names.iter().any(|name| self.result(name, story).is_some());
        for story in STORIES.iter().filter(ran) {
            let is_elsewhere = |name: &str| {
                KINDS.iter().any(|kind| name.starts_with(kind.name) && story.place == Place::elsewhere(kind))
            };
            let cell = |name: &&str| match self.result(name, story) {
                Some(result) => result.clone(),
                None if is_elsewhere(name) => "elsewhere".to_owned(),
                None => "not run".to_owned(),
            };
            let cells: Vec<String> = names.iter().map(cell).collect();
            let _ = writeln!(text, "| `{}` | {} |", story.name, cells.join(" | "));
        }
        text
    }

    fn result(&self, name: &str, story: &Story) -> Option<&String> {
        self.results.get(&(name.to_owned(), story.name.to_owned()))
    }

    /// What [`Self::text`] has written.
    fn parse(text: &str) -> Self {
        let (mut table, mut kinds) = (Self::default(), Vec::new());
        for line in text.lines() {
            let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
            let bare = |cell: &String| cell.trim_matches('`').to_owned();
            match &cells[..] {
                [head, ..] if head == "kind" => kinds.clear(),
                [head, names @ ..] if head == "story" => kinds = names.iter().map(bare).collect(),
                [kind, _, _, rest @ ..] if kind.starts_with('`') && kinds.is_empty() => {
                    table.versions.insert(bare(kind), rest.to_vec());
                }
                [story, row @ ..] if story.starts_with('`') => {
                    let known =
                        kinds.iter().zip(row).filter(|(_, cell)| !["elsewhere", "not run"].contains(&cell.as_str()));
                    table.results.extend(known.map(|(kind, cell)| ((kind.clone(), bare(story)), cell.clone())));
                }
                _ => {}
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let result = |kind: &str, story: &str, result: &str| ((kind.to_owned(), story.to_owned()), result.to_owned());
        let cells = |kind: &str| (kind.to_owned(), ["2026-11-28", "Debian", "6.12"].map(str::to_owned).to_vec());
        let table = Table {
            versions: BTreeMap::from(["namespaces", "debian-13", "namespaces, kubelet 1.34"].map(cells)),
            results: BTreeMap::from([
                result("debian-13", "life::crash", "passed 2026-11-28"),
                result("debian-13", "life::hang", "**failed** 2026-11-27"),
                result("namespaces, kubelet 1.34", "life::hang", "passed 2026-11-27"),
            ]),
        };
        let text = table.text();
        assert!(text.contains("| `debian-13` | 1 | 1 | 2026-11-28 | Debian | 6.12 |"), "{text}");
        assert!(text.contains("| `life::crash` | not run | passed 2026-11-28 |"), "{text}");
        let other = "| story | `namespaces, kubelet 1.34` |\n|---|---|\n| `life::hang` | passed 2026-11-27 |\n";
        assert!(text.ends_with(other), "{text}");
        assert!(!text.contains("harness::node_ends"), "{text}");
        assert_eq!(Table::parse(&text), table);
    }
}
