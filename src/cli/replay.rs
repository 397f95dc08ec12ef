//! `nodevigil replay`: the memory check over a recording of what a host's memory did.

use std::{
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, anyhow};
use serde::Serialize;

use crate::{
    checks::memory::{
        Depth, Limits, Machine, Sample, Stage, Transition,
        recording::{Kill, Recorded, Recording},
    },
    config,
    host::files::Root,
};

/// A line is no longer than this.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Run the memory check over a recording, to tune its thresholds
///
/// Reads JSON lines as docs/reference/memory-trace.md describes them, looks at them as often as the daemon looks at a host,
/// as fast as it can, and prints a JSON line for each change of state: `t_s`, `from`, `to`, `why`, and `file` if more than
/// one is given. The states are calm, rising, imminent, thrashing and oom.
///
/// Exit code: 0 all of it was replayed, 1 a recording cannot be read, 78 the configuration is wrong.
#[derive(Debug, Clone, clap::Args)]
#[command(max_term_width = 100)]
pub struct Replay {
    /// Read this file, or the *.toml of this folder, for [memory], instead of the default places; may be given again
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Vec<PathBuf>,
    /// A recording
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// A printed line.
#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
    t_s: f64,
    from: &'static str,
    to: &'static str,
    why: String,
}

impl Replay {
    /// Replays every file.
    ///
    /// # Errors
    /// When the configuration or a recording cannot be read.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let root = Root::default();
        let (settings, _) = config::load(&root, &self.config)?;
        let limits = Limits::new(&settings);
        let mut out = BufWriter::new(io::stdout().lock());
        for file in &self.files {
            let shown = (self.files.len() > 1).then_some(file.as_path());
            let path =
                std::path::absolute(file).with_context(|| format!("find {}", file.display()))?;
            let replayed = replay(&root, &path, limits, |transition| {
                let mut line = serde_json::to_string(&line(shown, transition))?;
                line.push('\n');
                out.write_all(line.as_bytes())
            });
            match replayed {
                Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(ExitCode::SUCCESS);
                }
                Err(Failure::Output(error)) => return Err(error).context("print"),
                Err(Failure::Open(error)) => return Err(error),
                Err(Failure::Line(number, why)) => {
                    out.flush().ok();
                    return Err(anyhow!("{}:{number}: {why}", file.display()));
                }
                Ok(()) => {}
            }
        }
        match out.flush() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("print"),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Why a file was not replayed to its end.
enum Failure {
    Open(anyhow::Error),
    Line(usize, String),
    Output(io::Error),
}

fn line<'a>(file: Option<&'a Path>, transition: &Transition) -> Line<'a> {
    let name = |stage: Stage| stage.as_str();
    Line {
        file,
        t_s: (transition.at.as_secs_f64() * 1000.0).round() / 1000.0,
        from: name(transition.from),
        to: name(transition.to),
        why: transition.why.to_string(),
    }
}

fn replay(
    root: &Root,
    path: &Path,
    limits: Limits,
    mut print: impl FnMut(&Transition) -> io::Result<()>,
) -> Result<(), Failure> {
    let file = root
        .open(path)
        .map_err(|error| Failure::Open(error.into()))?;
    let mut reader = BufReader::new(file);
    let mut machine = Machine::new(limits);
    let mut recording = None;
    let mut text = String::new();
    for number in 1.. {
        text.clear();
        let fails = |why: String| Failure::Line(number, why);
        let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX) + 1;
        let read = reader.by_ref().take(most).read_line(&mut text);
        if read.map_err(|error| fails(error.to_string()))? == 0 {
            break;
        }
        if text.len() > MAX_LINE_BYTES {
            return Err(fails(format!(
                "the line is longer than {MAX_LINE_BYTES} bytes"
            )));
        }
        let trimmed = text.trim();
        if trimmed.is_empty() {
            continue;
        }
        let Some(recording) = &mut recording else {
            recording = Some(Recording::new(trimmed).map_err(fails)?);
            continue;
        };
        let Some(recorded) = recording.next(trimmed).map_err(fails)? else {
            continue;
        };
        step(&mut machine, &recorded, &mut print).map_err(Failure::Output)?;
    }
    match recording {
        Some(_) => Ok(()),
        None => Err(Failure::Line(
            1,
            "the recording is empty: there is no header".to_owned(),
        )),
    }
}

/// What the daemon does at this moment: it is told of a kill at once, and looks when a look is due.
fn step(
    machine: &mut Machine,
    recorded: &Recorded,
    print: &mut impl FnMut(&Transition) -> io::Result<()>,
) -> io::Result<()> {
    let at = recorded.sample.at;
    let killed = recorded.kill.and_then(|kill| match kill {
        Kill::Of(scope) => machine.killed(at, scope),
        Kill::Counted => machine.counted_kill(at),
    });
    killed.iter().try_for_each(&mut *print)?;
    // A recorder's samples are never quite on time.
    let early = machine.interval() / 5;
    if at + early < machine.due_at() {
        return Ok(());
    }
    let sample = match machine.depth() {
        Depth::Whole => recorded.sample,
        // A recording holds no calls of the kernel's: it is read as on a host where none come.
        Depth::Level | Depth::Head => level(&recorded.sample),
    };
    machine.look(&sample).iter().try_for_each(print)
}

/// What is read of it in a calm.
fn level(sample: &Sample) -> Sample {
    Sample {
        at: sample.at,
        level: sample.level,
        stall: sample.stall,
        ..Sample::default()
    }
}
