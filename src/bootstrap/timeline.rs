//! When each stage was reached, and what of the deadline has passed.

use std::time::Duration;

use super::{
    assess::{Progress, Standing},
    stage::Stage,
};

/// What has changed of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It is reached.
    Reached(Stage),
    /// It was, and is not any more: there is evidence against it.
    Lost(Stage),
}

/// A part of the deadline that has passed; each is told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Half of it.
    Half,
    /// Four fifths.
    Most,
    /// All of it.
    Over,
}

impl Mark {
    const ALL: [Self; 3] = [Self::Half, Self::Most, Self::Over];

    /// How much of the deadline that is.
    fn of(self, deadline: Duration) -> Duration {
        match self {
            Self::Half => deadline / 2,
            Self::Most => deadline / 5 * 4,
            Self::Over => deadline,
        }
    }
}

/// How long each stage may be waited for, once all before is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience([Duration; Stage::ALL.len()]);

impl Patience {
    /// As `secs` says for each key of [`Stage::wait`].
    pub fn new(secs: impl Fn(&'static str) -> Duration) -> Self {
        Self(Stage::ALL.map(|stage| stage.wait().map_or(Duration::MAX, |wait| secs(wait.key))))
    }
}

/// The memory of one way. Times are uptimes.
#[derive(Debug, Clone)]
pub struct Timeline {
    begun: Duration,
    deadline: Duration,
    patience: Patience,
    /// The stage that is waited for, and since when.
    waits: Option<(Stage, Duration)>,
    /// Those that were waited for too long.
    late: [bool; Stage::ALL.len()],
    reached: [Option<Duration>; Stage::ALL.len()],
    /// Those that were reached when it was begun, nobody knows when.
    before: [bool; Stage::ALL.len()],
    has_looked: bool,
    marked: Option<Mark>,
}

impl Timeline {
    /// One that begins at that uptime and is to end within `deadline`.
    pub fn new(begun: Duration, deadline: Duration, patience: Patience) -> Self {
        Self {
            begun,
            deadline,
            patience,
            waits: None,
            late: [false; Stage::ALL.len()],
            reached: [None; Stage::ALL.len()],
            before: [false; Stage::ALL.len()],
            has_looked: false,
            marked: None,
        }
    }

    /// When it was begun.
    pub fn begun(&self) -> Duration {
        self.begun
    }

    /// How long it may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Takes in how far the node is. What was reached stays so until there is evidence against it: not to know is none.
    pub fn take(&mut self, progress: &Progress, uptime: Duration) -> Vec<Moved> {
        let mut moved = Vec::new();
        for stage in Stage::ALL {
            let i = stage.index();
            match (progress.get(stage), self.reached[i]) {
                (Standing::Reached(_), None) => {
                    self.reached[i] = Some(uptime);
                    self.before[i] = !self.has_looked;
                    moved.push(Moved::Reached(stage));
                }
                (Standing::Waiting(_), Some(_)) => {
                    self.reached[i] = None;
                    moved.push(Moved::Lost(stage));
                }
                _ => {}
            }
        }
        if self.waits.map(|(stage, _)| stage) != progress.stuck {
            let since = if self.has_looked { uptime } else { self.begun };
            self.waits = progress.stuck.map(|stage| (stage, since));
        }
        self.has_looked = true;
        moved
    }

    /// How long a stage may be waited for.
    pub fn patience(&self, stage: Stage) -> Duration {
        self.patience.0[stage.index()]
    }

    /// The stage that has been waited for too long, the first time that it is asked.
    pub fn newly_late(&mut self, uptime: Duration) -> Option<Stage> {
        let (stage, since) = self.waits?;
        let late = &mut self.late[stage.index()];
        let is_new = !*late && uptime.saturating_sub(since) >= self.patience.0[stage.index()];
        *late |= is_new;
        is_new.then_some(stage)
    }

    /// Whether a stage was waited for too long, be it reached since.
    pub fn was_late(&self, stage: Stage) -> bool {
        self.late[stage.index()]
    }

    /// When the stage that is waited for has been so too long (uptime).
    pub fn late_at(&self) -> Option<Duration> {
        let (stage, since) = self.waits?;
        let at = since.checked_add(self.patience(stage))?;
        (!self.was_late(stage)).then_some(at)
    }

    /// When the stage was reached; `None` if it is not.
    pub fn reached(&self, stage: Stage) -> Option<Duration> {
        self.reached[stage.index()]
    }

    /// Whether it had been reached when the first look was taken.
    pub fn was_before(&self, stage: Stage) -> bool {
        self.before[stage.index()]
    }

    /// The mark that has been passed since the last call; of several the last.
    pub fn mark(&mut self, uptime: Duration) -> Option<Mark> {
        let passed = uptime.saturating_sub(self.begun);
        let last = Mark::ALL
            .into_iter()
            .rfind(|mark| passed >= mark.of(self.deadline))?;
        if self.marked >= Some(last) {
            return None;
        }
        self.marked = Some(last);
        Some(last)
    }

    /// When there is something to say though nothing has moved (uptime): the next mark, or a stage that takes too long.
    pub fn next_word(&self) -> Option<Duration> {
        let next = Mark::ALL.into_iter().find(|mark| self.marked < Some(*mark));
        let mark = next.map(|next| self.begun + next.of(self.deadline));
        mark.into_iter().chain(self.late_at()).min()
    }
}
