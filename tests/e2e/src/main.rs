//! Stories of nodevigil on a real node: systemd, containerd, the kubelet and a control plane, judged from outside alone,
//! by the Node, `nodevigil status`, the journal and systemctl. `make stories` runs them.
#![expect(unreachable_pub, reason = "a binary: `pub` marks what other modules use")]

mod bench;
mod demo;
mod disturbances;
mod fleet;
mod peer;
mod platforms;
mod provoked;
mod runner;
mod scene;
mod stories;
mod well;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use nodevigil_e2e::support;
use platforms::Platforms;
use stories::Tier;
use support::kinds::{self, Kind};
use support::namespaces::{self, Stage};
use support::{boot, say};

/// Runs stories of nodevigil on real nodes, one at a time.
#[derive(Debug, Parser)]
struct CommandLine {
    /// Which stories to run; `full` runs those of the gate too.
    #[arg(long, value_enum, default_value_t = Tier::Full)]
    tier: Tier,
    /// The kind of the nodes: `namespaces`, or a guest such as `debian-13`.
    #[arg(long, value_name = "KIND", default_value = "namespaces", value_parser = Kind::find)]
    node: &'static Kind,
    /// Lists the stories and runs none.
    #[arg(long)]
    list: bool,
    /// Measures what the agent costs and how fast it is, instead of the stories; CPU use is counted for so many seconds.
    #[arg(long, value_name = "SECONDS")]
    bench: Option<u64>,
    /// Measures what so many agents cost the API server, instead of the stories, and how they behave when it fails.
    #[arg(long, value_name = "AGENTS")]
    fleet: Option<u32>,
    /// For how many minutes the healthy agents of `--fleet` are counted.
    #[arg(long, value_name = "MINUTES", default_value_t = 10, requires = "fleet")]
    healthy: u64,
    /// Shows on two nodes what nodevigil does, instead of the stories.
    #[arg(long)]
    demo: bool,
    /// Disturbs a healthy node at random for so many minutes, instead of the stories; ends at the first problem that the Node shows.
    #[arg(long, value_name = "MINUTES")]
    well: Option<u64>,
    /// Writes which problems the stories have provoked, and the messages on the Node, to this table; what `--fleet` measures, into this
    /// document.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["well", "demo", "bench"])]
    table: Option<PathBuf>,
    /// Writes which stories passed on this kind of nodes, and its versions, to this table.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["well", "demo", "bench"])]
    platforms: Option<PathBuf>,
    /// What `--well` draws by, to repeat a run.
    #[arg(long, requires = "well")]
    seed: Option<u64>,
    /// Boots a node and waits until it is killed.
    #[arg(long, hide = true)]
    hold: bool,
    /// Runs only stories whose name contains one of these.
    filters: Vec<String>,
}

fn main() -> ExitCode {
    // On the machine of a fleet.
    if std::env::args().next().is_some_and(|program| program.ends_with("/kubelet")) {
        return fleet::members::stand_in().unwrap_or(ExitCode::FAILURE);
    }
    let done = match Stage::current() {
        Stage::Boot(spec) => boot::boot(&spec).map(|never| match never {}),
        Stage::Outside => outside(&CommandLine::parse()),
        Stage::Inside(run) => inside(&run, &CommandLine::parse()),
    };
    done.unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn outside(line: &CommandLine) -> Result<ExitCode> {
    if line.list {
        for story in stories::select(line.node, line.tier, &line.filters) {
            say(story.name);
        }
        return Ok(ExitCode::SUCCESS);
    }
    line.node.prepare()?;
    namespaces::outside()
}

fn inside(run: &str, line: &CommandLine) -> Result<ExitCode> {
    namespaces::inside(run)?;
    kinds::set_current(line.node)?;
    if line.hold {
        return stories::harness::hold();
    }
    if line.demo {
        return demo::run();
    }
    if let Some(idle) = line.bench {
        return bench::run(Duration::from_secs(idle));
    }
    if let Some(agents) = line.fleet {
        return fleet::run(agents, Duration::from_secs(60 * line.healthy), line.table.as_deref());
    }
    if let Some(minutes) = line.well {
        return well::run(Duration::from_secs(60 * minutes), line.seed);
    }
    let platforms = line.platforms.as_deref().map(|path| Platforms::new(path, line.node)).transpose()?;
    runner::run(&stories::select(line.node, line.tier, &line.filters), line.table.as_deref(), platforms)
}
