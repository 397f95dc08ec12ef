//! The documents' commands, each as it stands there, on a real node with the real package: as a new user would.
//!
//! A block of commands (```` ```sh ````, or the lines after `$ ` of a ```` ```console ````) is run by one shell that ends at the
//! first command that fails. Comments right before the fence, which nobody sees who reads the page, say what else there is to know:
//!
//! | comment | means |
//! |---|---|
//! | `<!-- not run: WHY -->` | nothing of the block is run |
//! | `<!-- exit 1 -->` | its exit code, 0 if nothing is said |
//! | `<!-- after: COMMAND -->` | run before it: the trouble that the block is for |
//! | `<!-- then: COMMAND -->` | run after it, to have the node as it was |

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;

use crate::packages::kit::{DEB, Kit};
use crate::samples;
use crate::scene::{SHORT_SPELL, Scene};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::node_builder::NodeBuilder;
use crate::support::{enter, repository, say, tools};
use crate::trial;

/// In the order in which they are read; the last one ends with the package's removal.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "docs/operate.md",
    "docs/bootstrap.md",
    "docs/consumers.md",
    "packaging/monitoring/README.md",
    "docs/install.md",
];
const NODE: &str = "worker-1";
/// Far longer than any block takes.
const LIMIT: Duration = Duration::from_mins(2);
/// First words of what people run: in a block that is not marked as commands they are commands all the same.
const PROGRAMS: &[&str] = &[
    "$",
    "apt-get",
    "curl",
    "dnf",
    "journalctl",
    "kubectl",
    "make",
    "nodevigil",
    "rpm",
    "systemctl",
];

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial("tried::documents", each_command_works)]
}

/// A block of commands, and what the comments before it say.
#[derive(Debug, Default)]
struct Block {
    line: usize,
    script: String,
    not_run: Option<String>,
    exit: i32,
    after: Option<String>,
    then: Option<String>,
}

fn each_command_works() -> Result<()> {
    let mut blocks = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(repository().join(document))?;
        let found = read(&text).with_context(|| (*document).to_owned())?;
        blocks.extend(found.into_iter().map(|block| (*document, block)));
    }
    let kit = Kit::made()?;
    let plane = ControlPlane::start(Options::default())?;
    samples::define(&plane)?; // as where the controllers are that docs/consumers.md is about
    let watch = plane.watch_node(NODE)?;
    let mut builder = NodeBuilder::new(&plane, NODE)
        .program(tools::path("kubectl")?)
        .config("50-test.toml", SHORT_SPELL)
        .restart_sec(Duration::from_secs(1))
        // The one who types says yes; the machine's own triggers (an index of all its manuals) take minutes.
        .file(
            "/etc/apt/apt.conf.d/99-tried",
            "APT::Get::Assume-Yes \"true\";\nDPkg::Options { \"--no-triggers\"; };\n",
            0o644,
        );
    let admin = plane.kubeconfig("admin", &["system:masters"], enter::ADDRESS)?;
    builder = builder.file("/root/.kube/config", &admin.to_string(), 0o600);
    for package in kit.both(&DEB) {
        builder = builder.program(package.clone());
    }
    let node = builder.boot()?;
    node.wait_ready(Duration::from_mins(1))?;
    let scene = Scene { plane, node, watch };
    scene.play(|scene| {
        lay_out(scene, kit)?;
        let mut told = String::new();
        let (mut ran, mut marked) = (0, 0);
        for (document, block) in &blocks {
            let place = format!("{document}:{}", block.line);
            if let Some(why) = &block.not_run {
                marked += 1;
                writeln!(told, "  {place}: not run: {why}")?;
                continue;
            }
            block.run(scene).with_context(|| place)?;
            ran += 1;
        }
        say(&format!(
            "tried: {ran} blocks of commands run, {marked} not:\n{told}"
        ));
        ensure!(ran >= 25, "only {ran} blocks");
        Ok(())
    })
}

/// The packages where the documents have them: in the folder in which the reader types.
fn lay_out(scene: &Scene, kit: &Kit) -> Result<()> {
    let [first, next] = kit.both(&DEB);
    let name = |path: &std::path::Path| -> Result<String> {
        let name = path.file_name().context("a package has a name")?;
        Ok(name.to_string_lossy().into_owned())
    };
    let (first, next) = (name(first)?, name(next)?);
    scene.node.sh(&format!(
        "mkdir -p /root/here && cd /root/here && ln -s /usr/bin/{first} . && ln -s /usr/bin/{next} nodevigil_NEXT_amd64.deb"
    ))?;
    Ok(())
}

impl Block {
    fn run(&self, scene: &Scene) -> Result<()> {
        if let Some(command) = &self.after {
            let (code, said) = shell(scene, command)?;
            ensure!(code == 0, "before it, `{command}`: {code}: {said}");
        }
        let (code, said) = shell(scene, &self.script)?;
        ensure!(
            code == self.exit,
            "exit code {code}, and {} expected; what it said, each command after a +:\n{said}",
            self.exit
        );
        if let Some(command) = &self.then {
            let (code, said) = shell(scene, command)?;
            ensure!(code == 0, "after it, `{command}`: {code}: {said}");
        }
        Ok(())
    }
}

/// Exit code and output of a script that ends at its first failure.
fn shell(scene: &Scene, script: &str) -> Result<(i32, String)> {
    scene.node.run(&format!(
        "cat >/run/tried.sh <<'END_OF_BLOCK'\n{script}\nEND_OF_BLOCK\n\
         cd /root/here; export HOME=/root NODE={NODE}\n\
         timeout {} sh -eux /run/tried.sh </dev/null",
        LIMIT.as_secs()
    ))
}

/// The blocks of a document; fails if commands stand where nobody would run them.
fn read(text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut marks = Block::default();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if let Some(info) = line.strip_prefix("```") {
            let inside: Vec<&str> = lines
                .by_ref()
                .map(|(_, line)| line.get(indent..).unwrap_or(line.trim_start()))
                .take_while(|line| line.trim() != "```")
                .collect();
            let mut block = std::mem::take(&mut marks);
            block.line = index + 1;
            block.script = match info {
                "sh" => inside.join("\n"),
                "console" => {
                    let commands = inside.iter().filter_map(|line| line.strip_prefix("$ "));
                    commands.collect::<Vec<_>>().join("\n")
                }
                _ => {
                    let command = inside.iter().find(|line| {
                        let first = line.split(' ').next().unwrap_or_default();
                        PROGRAMS.contains(&first)
                    });
                    if let Some(command) = command {
                        bail!(
                            "line {}: `{command}` stands in a block that is neither sh nor console",
                            index + 1
                        );
                    }
                    continue;
                }
            };
            ensure!(
                !block.script.trim().is_empty(),
                "line {}: a block without a command",
                block.line
            );
            blocks.push(block);
        } else if let Some(mark) = line
            .strip_prefix("<!-- ")
            .and_then(|m| m.strip_suffix(" -->"))
        {
            marks.take(mark);
        } else if !line.is_empty() {
            marks = Block::default();
        }
    }
    Ok(blocks)
}

impl Block {
    /// Other comments are none of ours.
    fn take(&mut self, mark: &str) {
        if let Some(why) = mark.strip_prefix("not run: ") {
            self.not_run = Some(why.to_owned());
        } else if let Some(command) = mark.strip_prefix("after: ") {
            self.after = Some(command.to_owned());
        } else if let Some(command) = mark.strip_prefix("then: ") {
            self.then = Some(command.to_owned());
        } else if let Some(code) = mark.strip_prefix("exit ").and_then(|c| c.parse().ok()) {
            self.exit = code;
        }
    }
}
