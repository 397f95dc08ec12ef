//! The progress of the bootstrap, for the condition and for `nodevigil bootstrap`.

use serde::Serialize;

use super::observed::{Facts, state_of};
use super::stage::{Progress, STAGES, Stage, StageState};
use crate::condition::Uptime;

/// One stage of an assessment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageReport {
    pub stage: Stage,
    #[serde(flatten)]
    pub state: StageState,
    /// How long ago it was done, or how long the node has waited for it.
    pub age_secs: Option<i64>,
}

/// The progress of the bootstrap.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assessment {
    /// All of them, in order.
    pub stages: Vec<StageReport>,
    current: Option<Stage>,
}

impl Assessment {
    /// The stage that the node waits for; none when the bootstrap is done.
    pub fn current(&self) -> Option<&StageReport> {
        self.stages.iter().find(|report| Some(report.stage) == self.current)
    }
}

/// Judges all stages.
pub fn assess(facts: &Facts) -> Assessment {
    let mut stages = STAGES.map(|(stage, ..)| StageReport { stage, state: state_of(stage, facts), age_secs: None });
    let current = current(&stages);
    // A stage is waited for since the boot, or since the last one before it was done.
    let (now, mut waited_since) = (facts.now.uptime, Uptime::ZERO);
    for StageReport { stage, state, age_secs } in &mut stages {
        let is_current = Some(*stage) == current;
        let is_later = current.is_some_and(|current| *stage > current);
        match state.status {
            Progress::Running | Progress::Failed if is_later => state.status = Progress::Pending,
            Progress::Running if is_current && now >= waited_since + stage.usual_time() => {
                state.status = Progress::Late;
            }
            _ => {}
        }
        if !is_current {
            state.advice.clear();
        }
        let since = state.done_at.or(is_current.then_some(waited_since));
        *age_secs = since.map(|since| (now - since).as_secs().cast_signed());
        waited_since = waited_since.max(state.done_at.unwrap_or_default());
    }
    Assessment { stages: stages.into(), current }
}

/// The first stage that the node waits for.
fn current(stages: &[StageReport]) -> Option<Stage> {
    let is_done = |report: &StageReport| report.state.status == Progress::Done;
    // A stage that could not be read is done if a later stage is done that depends on it.
    let is_proof = |stage| stage <= Stage::Registered || stage == Stage::Ready;
    let is_proven = |stage| stages.iter().any(|later| later.stage > stage && is_proof(later.stage) && is_done(later));
    let is_waited_for = |report: &&StageReport| match report.state.status {
        Progress::Done | Progress::Skipped => false,
        Progress::Unknown => !is_proven(report.stage),
        // A kubelet that runs does not wait for cloud-init.
        _ => report.stage != Stage::CloudInit || !is_done(&stages[Stage::Kubelet as usize]),
    };
    stages.iter().find(is_waited_for).map(|report| report.stage)
}
