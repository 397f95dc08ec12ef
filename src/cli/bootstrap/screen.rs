//! How a way is shown: a table that is drawn anew on a terminal; elsewhere lines, on the console too.

use std::{fmt::Write as _, io, time::Duration};

use super::print;
use crate::{
    bootstrap::{Mark, Moved, Progress, Stage, Standing, Timeline},
    clock::Now,
    host::console::Console,
    kubelet::shown::harmless,
};

/// So many lines at most: a kubelet that comes and goes must not fill a console.
const MAX_LINES: u32 = 200;
/// A line is no wider, and no terminal is believed to be narrower.
const MAX_COLUMNS: usize = 200;
const MIN_COLUMNS: usize = 20;
/// How a line begins where other programs write too.
const NAME: &str = "nodevigil bootstrap: ";

/// What kind of place it is shown at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Whether lines can be drawn over.
    pub(super) is_terminal: bool,
    pub(super) colour: bool,
    pub(super) columns: usize,
}

/// Where it is shown.
pub(super) struct Screen {
    shape: Shape,
    console: Console,
    /// Lines of the table that stands there.
    drawn: usize,
    lines: u32,
}

impl Screen {
    pub(super) fn new(shape: Shape, console: Console) -> Self {
        Self {
            shape,
            console,
            drawn: 0,
            lines: 0,
        }
    }

    pub(super) fn begin(&mut self, timeline: &Timeline) -> anyhow::Result<()> {
        let deadline = in_words(timeline.deadline());
        self.say(&format!(
            "waits for this node to be of use, {deadline} at most"
        ))
    }

    /// Says a line, above the table if there is one.
    pub(super) fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.lines += 1;
        if self.lines > MAX_LINES {
            return Ok(());
        }
        let over = if self.lines == MAX_LINES {
            " (the last line but the end)"
        } else {
            ""
        };
        self.always(&format!("{text}{over}"))
    }

    fn always(&mut self, text: &str) -> anyhow::Result<()> {
        let line = format!("{NAME}{}", harmless(text));
        if !self.shape.is_terminal {
            self.console.line(&line);
        }
        let erase = self.erase();
        Ok(print(
            &mut io::stdout().lock(),
            &format!("{erase}{line}\n"),
        )?)
    }

    /// Takes the table away.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }

    /// Draws the table, on a terminal.
    pub(super) fn table(
        &mut self,
        progress: &Progress,
        timeline: &Timeline,
        now: Now,
    ) -> anyhow::Result<()> {
        if !self.shape.is_terminal {
            return Ok(());
        }
        // It may have been made narrower meanwhile, and a line that is broken would not be erased.
        self.shape.columns = size().map_or(self.shape.columns, |(columns, _)| columns);
        let text = table(progress, timeline, now.uptime, self.shape);
        let erase = self.erase();
        self.drawn = text.lines().count();
        Ok(print(&mut io::stdout().lock(), &format!("{erase}{text}"))?)
    }

    /// Says what has changed; the table shows it by itself.
    pub(super) fn moved(
        &mut self,
        moved: &[Moved],
        progress: &Progress,
        timeline: &Timeline,
        now: Now,
    ) -> anyhow::Result<()> {
        if self.shape.is_terminal {
            return Ok(());
        }
        for one in moved {
            let (stage, what) = match one {
                Moved::Reached(stage) => (*stage, "reached"),
                Moved::Lost(stage) => (*stage, "lost"),
            };
            let when = when(timeline, stage).unwrap_or_else(|| since(timeline, now.uptime));
            let seen = progress.get(stage).words();
            self.say(&format!("{when} {} {what}: {seen}", stage.name()))?;
        }
        Ok(())
    }

    /// Says what is waited for now.
    pub(super) fn waits(
        &mut self,
        progress: &Progress,
        timeline: &Timeline,
        now: Now,
    ) -> anyhow::Result<()> {
        let Some(stage) = progress.stuck.filter(|_| !self.shape.is_terminal) else {
            return Ok(());
        };
        let seen = progress.get(stage).words();
        let since = since(timeline, now.uptime);
        self.say(&format!("{since} waits for {}: {seen}", stage.name()))
    }

    /// A part of the deadline has passed.
    pub(super) fn mark(
        &mut self,
        mark: Mark,
        progress: &Progress,
        timeline: &Timeline,
        now: Now,
    ) -> anyhow::Result<()> {
        let part = if mark == Mark::Half {
            "half"
        } else {
            "four fifths"
        };
        let deadline = in_words(timeline.deadline());
        self.say(&format!(
            "{} {part} of {deadline} have passed",
            since(timeline, now.uptime)
        ))?;
        self.stuck(progress)
    }

    /// A stage takes longer than it may.
    pub(super) fn slow(
        &mut self,
        stage: Stage,
        progress: &Progress,
        timeline: &Timeline,
        now: Now,
    ) -> anyhow::Result<()> {
        let since = since(timeline, now.uptime);
        let patience = in_words(timeline.patience(stage));
        self.say(&format!(
            "{since} {} takes longer than {patience}",
            stage.name()
        ))?;
        self.stuck(progress)
    }

    /// The deadline has passed.
    pub(super) fn late(
        &mut self,
        progress: &Progress,
        timeline: &Timeline,
        now: Now,
    ) -> anyhow::Result<()> {
        self.timeline(progress, timeline, now)?;
        let deadline = in_words(timeline.deadline());
        self.always(&format!("not of use after {deadline}"))?;
        self.stuck(progress)
    }

    /// The node is of use.
    pub(super) fn done(
        &mut self,
        progress: &Progress,
        timeline: &Timeline,
        now: Now,
    ) -> anyhow::Result<()> {
        self.timeline(progress, timeline, now)?;
        let uptime = in_words(now.uptime);
        self.always(&format!("this node is of use, {uptime} after its boot"))
    }

    /// The stage that is stuck, its cause and what to do.
    fn stuck(&mut self, progress: &Progress) -> anyhow::Result<()> {
        let Some(stage) = progress.stuck else {
            return Ok(());
        };
        let seen = progress.get(stage).words();
        self.always(&format!("stuck at {}: {seen}", stage.name()))?;
        match &progress.cause {
            Some(cause) => {
                self.always(&format!("probable cause {}: {}", cause.id, cause.message))?;
                self.always(&format!("what to do: {}", cause.fix))
            }
            None => self.always("no cause is known"),
        }
    }

    /// Every stage with its time, at the end.
    fn timeline(
        &mut self,
        progress: &Progress,
        timeline: &Timeline,
        now: Now,
    ) -> anyhow::Result<()> {
        if self.shape.is_terminal {
            self.table(progress, timeline, now)?;
            self.drawn = 0;
            return Ok(());
        }
        let plain = Shape {
            colour: false,
            columns: 160,
            ..self.shape
        };
        for line in table(progress, timeline, now.uptime, plain).lines() {
            self.always(line)?;
        }
        Ok(())
    }
}

/// Columns and rows of the terminal that it is drawn on; `None` if it does not say.
fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let size = (usize::from(size.ws_col), usize::from(size.ws_row));
    (size.0 > 0 && size.1 > 0).then_some(size)
}

/// Whether the table and a line fit on the terminal, so that it can be drawn over.
pub(super) fn is_high_enough() -> bool {
    size().is_none_or(|(_, rows)| rows > Stage::ALL.len() + 1)
}

/// Every stage on a line.
fn table(progress: &Progress, timeline: &Timeline, uptime: Duration, shape: Shape) -> String {
    let mut text = String::new();
    for stage in Stage::ALL {
        let standing = progress.get(stage);
        let is_stuck = progress.stuck == Some(stage);
        let (word, colour) = match (standing, timeline.reached(stage)) {
            (Standing::NotNeeded(_), _) => ("-", "2"),
            (_, Some(_)) => ("done", "32"),
            _ if is_stuck && timeline.was_late(stage) => ("LATE", "1;31"),
            _ if is_stuck => ("WAITS", "1;33"),
            (Standing::Unknown(_), _) => ("?", "2"),
            _ => ("", "2"),
        };
        let when = when(timeline, stage).unwrap_or_else(|| {
            if is_stuck {
                since(timeline, uptime)
            } else {
                String::new()
            }
        });
        let seen = match standing {
            Standing::Waiting(_) if !is_stuck => "",
            other => other.words(),
        };
        let line = format!("  {word:<5} {:<20} {when:>11}  {seen}", stage.name());
        let line = cut(
            &harmless(line.trim_end()),
            shape.columns.clamp(MIN_COLUMNS, MAX_COLUMNS),
        );
        let done = if shape.is_terminal && shape.colour {
            writeln!(text, "\x1b[{colour}m{line}\x1b[0m")
        } else {
            writeln!(text, "{line}")
        };
        done.expect("a text takes every line");
    }
    text
}

/// As much of a line as fits.
fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars()
        .take(columns.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// When a stage was reached, counted from where the way was begun.
fn when(timeline: &Timeline, stage: Stage) -> Option<String> {
    let at = timeline.reached(stage)?;
    Some(if timeline.was_before(stage) {
        "before".to_owned()
    } else {
        since(timeline, at)
    })
}

/// `+12.3 s`.
fn since(timeline: &Timeline, uptime: Duration) -> String {
    let since = uptime.saturating_sub(timeline.begun());
    format!("+{:.1} s", since.as_secs_f64())
}

/// `90 s`, `10 min`, `14 h`.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        secs if secs >= 7200 => format!("{} h", secs / 3600),
        secs if secs >= 120 && secs.is_multiple_of(60) => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    }
}
