//! Which functions the agent's loop runs while nothing happens, as a linker script that has them side by side.
//!
//! A process that wakes once a second finds the caches cold, and what a turn costs is by how many pages and lines its code is
//! spread over. The loop is stepped through for two seconds of each six, so that it keeps up all the same; the functions that
//! come again and again are written to `packaging/order.ld`, the most frequent first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use procfs::process::{MMapPath, MemoryMap, Process};

use crate::stage::Stage;
use crate::support::{repository, say, tools};

const FILE: &str = "packaging/order.ld";
/// The loop is stepped through for so long, and then left alone for so long.
const STEPPED: Duration = Duration::from_secs(2);
const LEFT_ALONE: Duration = Duration::from_secs(4);
const HEAD: &str = "/* Written by `make order`: what the agent's loop runs while nothing happens (docs/decisions.md, \"Small by the linker, too\").\n   \
    A name that is no longer in the program does no harm. */\n\
    SECTIONS\n{\n  .text.idle :\n  {\n";
const TAIL: &str = "  }\n}\nINSERT BEFORE .text;\n";

/// Writes the script anew.
///
/// # Errors
/// The binary has no symbols, or the agent cannot be traced.
pub(crate) fn write(stage: &Stage, took: Duration) -> Result<()> {
    let functions = Functions::of_the_binary()?;
    let pid = stage.node.unit_pid("nodevigil.service")?;
    say(&format!("stepping through pid {pid} for {took:?}"));
    let mut steps = HashMap::new();
    let (end, mut rounds) = (Instant::now() + took, 0);
    while Instant::now() < end {
        step(pid, &mut steps)?;
        rounds += 1;
        thread::sleep(LEFT_ALONE);
    }
    // In half of the rounds at least: what comes less often is not worth a place.
    let names = functions.by_heat(&steps, rounds / 2);
    // The very functions first. Where the compiler has given them other names since, those of the same kind follow.
    let exact = names.iter().map(|name| name.replace('$', "?"));
    let patterns: Vec<String> = exact
        .chain(names.iter().map(|name| pattern(name)))
        .collect();
    let mut known = HashSet::new(); // one of a generic function may be there with another type
    let mut script = HEAD.to_owned();
    for pattern in patterns.iter().filter(|pattern| known.insert(*pattern)) {
        writeln!(script, "    *(.text.{pattern})")?;
    }
    script += TAIL;
    fs::write(repository().join(FILE), script)?;
    say(&format!("{} functions written to {FILE}", names.len()));
    Ok(())
}

/// Where each function of the binary begins.
struct Functions(BTreeMap<u64, String>);

impl Functions {
    fn of_the_binary() -> Result<Self> {
        let binary = tools::agent()?;
        let listed = Command::new("nm").arg(&binary).output().context("nm")?;
        let lines = String::from_utf8(listed.stdout)?;
        let function = |line: &str| {
            let mut words = line.split(' ');
            let at = u64::from_str_radix(words.next()?, 16).ok()?;
            let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
            is_code.then_some((at, words.next()?.to_owned()))
        };
        let all: BTreeMap<_, _> = lines.lines().filter_map(function).collect();
        ensure!(!all.is_empty(), "{} has no symbols", binary.display());
        Ok(Self(all))
    }

    /// Those of which an instruction ran so often, the most frequent first.
    fn by_heat(&self, steps: &HashMap<u64, u32>, least: u32) -> Vec<String> {
        let mut heat: HashMap<&String, u32> = HashMap::new();
        for (at, times) in steps {
            if let Some((_, name)) = self.0.range(..=at).next_back() {
                let most = heat.entry(name).or_default();
                *most = (*most).max(*times);
            }
        }
        let mut heat: Vec<_> = heat.into_iter().collect();
        heat.retain(|(_, times)| *times >= least);
        heat.sort_by_key(|(name, times)| (u32::MAX - times, *name));
        heat.into_iter().map(|(name, _)| name.clone()).collect()
    }
}

/// Counts how often each instruction of the first thread runs for [`STEPPED`], by its place in the binary.
fn step(pid: i32, steps: &mut HashMap<u64, u32>) -> Result<()> {
    let maps = Process::new(pid)?.maps()?;
    let is_the_program = |map: &&MemoryMap| matches!(&map.pathname, MMapPath::Path(path) if path.ends_with("nodevigil"));
    let first = maps.iter().find(is_the_program);
    let (base, _) = first.context("the program's mapping")?.address;
    let thread = Pid::from_raw(pid);
    ptrace::seize(thread, Options::empty())?;
    ptrace::interrupt(thread)?;
    let end = Instant::now() + STEPPED;
    loop {
        let signal = match waitpid(thread, Some(WaitPidFlag::__WALL))? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                let at = ptrace::getregs(thread)?.rip.wrapping_sub(base);
                *steps.entry(at).or_default() += 1;
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            WaitStatus::PtraceEvent(..) => None,
            ended => bail!("the agent has ended: {ended:?}"),
        };
        if Instant::now() > end {
            return Ok(ptrace::detach(thread, signal)?);
        }
        ptrace::step(thread, signal)?;
    }
}

/// A name as it is in the next build: without what the compiler makes of versions and content (`17h…E`, `Cs…_`, `.1052`), and
/// without what means something to the linker.
fn pattern(name: &str) -> String {
    let name = name.replace('$', "?");
    let name = match name.rsplit_once('.') {
        Some((stem, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{stem}.*")
        }
        _ => name,
    };
    if name.starts_with("_ZN") {
        let (stem, _) = name.rsplit_once("17h").unwrap_or((&name, ""));
        return format!("{stem}17h*");
    }
    let mut parts = name.split("Cs");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| {
        let rest = part.split_once('_').map_or(part, |(_, rest)| rest);
        format!("{whole}Cs*_{rest}")
    })
}
