//! `nodevigil bootstrap`: waits for the node to become of use, shows each stage with its time, and says which one is stuck
//! and why.
#![expect(
    clippy::disallowed_methods,
    reason = "a subcommand reads the environment for itself"
)]

mod gather;
mod screen;

use std::{
    env,
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::bail;

use self::{
    gather::Gatherer,
    screen::{Screen, Shape},
};
use super::{pause::duration, status::print};
use crate::{
    bootstrap::{self, By, Mark, Progress, Record, RecordedResult, Timeline},
    clock::Clock,
    config::{self, Settings},
    helper,
    host::{console::Console, files::Root},
};

/// The node is of use.
const EXIT_DONE: u8 = 0;
/// The deadline has passed.
const EXIT_LATE: u8 = 1;
/// It could not be watched.
const EXIT_CANNOT: u8 = 2;

/// The width of a line where nobody says otherwise.
const COLUMNS: usize = 80;

/// Wait for this node to become of use, from boot to Ready; say which stage is stuck and why
///
/// For the end of a cloud-init, or for whoever waits for a node. Shows each stage with its evidence and its time: a table
/// on a terminal; elsewhere a line for each stage, on /dev/console too. When half of the deadline has passed, and four
/// fifths, and when a stage takes longer than the configuration gives it, it names the one stage that is stuck and the
/// most probable cause. The record is kept in /var/lib/nodevigil-helper/bootstrap.json. Reads, and changes nothing else.
/// Needs root, and no daemon.
///
/// Exit code: 0 the node is of use, 1 the deadline has passed, 2 it could not be watched.
#[derive(Debug, Clone, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct BootstrapCommand {
    /// How long it may take: 90s, 10m, 1h [default: the configuration's `deadline_secs`, 10 minutes]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<Duration>,
    /// As for `run`: read this file, or the *.toml of this folder, instead of the default places
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Vec<PathBuf>,
}

impl BootstrapCommand {
    /// Watches until the node is of use or the deadline has passed.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.prepare() {
            Ok(watch) => Ok(watch.run()?.into()),
            Err(error) => {
                let text = format!("nodevigil bootstrap: {error:#}\n");
                print(&mut io::stderr().lock(), &text)?;
                Ok(EXIT_CANNOT.into())
            }
        }
    }

    fn prepare(self) -> anyhow::Result<Watch> {
        if !nix::unistd::geteuid().is_root() {
            bail!("needs root, which alone can read the kubelet's files: sudo nodevigil bootstrap");
        }
        let root = Root::default();
        let settings = config::load(&root, &self.config)?.0;
        let deadline = self
            .deadline
            .unwrap_or_else(|| settings.seconds("bootstrap", "deadline_secs"));
        let screen = Screen::new(shape(), Console::open(&root));
        Ok(Watch {
            every: settings.seconds("bootstrap", "look_every_secs"),
            timeline: Timeline::new(Clock.now().uptime, deadline, settings.patience()),
            gatherer: gatherer(&root, settings)?,
            screen,
            root,
            told: None,
            record_fails: false,
        })
    }
}

fn gatherer(root: &Root, settings: Settings) -> anyhow::Result<Gatherer> {
    let name = nix::unistd::gethostname().unwrap_or_default();
    Gatherer::new(root.clone(), settings, &name.to_string_lossy())
}

fn shape() -> Shape {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
    let columns = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    Shape {
        is_terminal: io::stdout().is_terminal() && !is_dumb && screen::is_high_enough(),
        colour: !set("NO_COLOR"),
        columns: columns.unwrap_or(COLUMNS),
    }
}

/// One way, watched.
struct Watch {
    root: Root,
    gatherer: Gatherer,
    timeline: Timeline,
    screen: Screen,
    every: Duration,
    /// The stage that was last said to be waited for.
    told: Option<bootstrap::Stage>,
    record_fails: bool,
}

impl Watch {
    fn run(mut self) -> anyhow::Result<u8> {
        self.screen.begin(&self.timeline)?;
        loop {
            let evidence = self.gatherer.look();
            let now = Clock.now();
            let progress = bootstrap::assess(&evidence);
            let moved = self.timeline.take(&progress, now.uptime);
            self.screen.moved(&moved, &progress, &self.timeline, now)?;
            if progress.is_done() {
                self.keep(RecordedResult::Bootstrapped, &progress);
                self.screen.done(&progress, &self.timeline, now)?;
                return Ok(EXIT_DONE);
            }
            let mark = self.timeline.mark(now.uptime);
            if mark == Some(Mark::Over) {
                self.keep(RecordedResult::Late, &progress);
                self.screen.late(&progress, &self.timeline, now)?;
                return Ok(EXIT_LATE);
            }
            let late = self.timeline.newly_late(now.uptime);
            if let Some(mark) = mark {
                self.screen.mark(mark, &progress, &self.timeline, now)?;
            } else if let Some(stage) = late {
                self.screen.slow(stage, &progress, &self.timeline, now)?;
            } else if progress.stuck != self.told {
                self.screen.waits(&progress, &self.timeline, now)?;
            }
            self.told = progress.stuck;
            if !moved.is_empty() || mark.is_some() || late.is_some() {
                self.keep(RecordedResult::UnderWay, &progress);
            }
            self.screen.table(&progress, &self.timeline, now)?;
            let next = self.timeline.next_word().unwrap_or(Duration::MAX);
            let after = Clock.now().uptime;
            thread::sleep(self.every.min(next.saturating_sub(after)));
        }
    }

    /// Keeps the record; that it cannot be kept is said once.
    fn keep(&mut self, result: RecordedResult, progress: &Progress) {
        let record = Record::new(By::Command, result, &self.timeline, progress, Clock.now());
        if let Err(why) = helper::bootstrap::keep(&self.root, &record)
            && !self.record_fails
        {
            self.record_fails = true;
            let _ = self.screen.say(&format!("the record is not kept: {why}"));
        }
    }
}
