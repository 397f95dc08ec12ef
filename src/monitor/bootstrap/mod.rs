//! The bootstrap of the node: from boot until its Node is ready for the first time.
//!
//! This file waits, and follows one Node. [`assess`] judges its progress, for the condition and for `nodevigil bootstrap`.

pub mod assess;
pub mod observed;
pub mod stage;
#[cfg(test)]
mod tests;

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use tokio::time::sleep;

use self::assess::{Assessment, assess};
use self::observed::{Facts, is_ready};
use self::stage::{Progress, Stage, StageState};
use super::{Inputs, Reporter};
use crate::condition::{ConditionType, Finding, Reason, Status, Uptime, View};
use crate::facts::{ApiFacts, NodeAnswer, NodeFacts, Reach};
use crate::host::bootstrap::HostFacts;
use crate::host::clock::{Now, Timer, uptime};
use crate::host::systemd::Unit;

/// How often the host is read while the bootstrap is expected to go on.
const READ_EVERY: Duration = Duration::from_secs(10);
/// The same after that, unless the Node changes, as this may be no node of a cluster; and once only the Node is waited for, which the
/// publisher watches. A reading runs two programs.
const READ_EVERY_LATER: Duration = Duration::from_mins(5);
/// The publisher finds the Node within this time and `spread_secs`, if there is one and the API server answers.
const NODE_KNOWN_WITHIN: Duration = Duration::from_secs(30);
/// If two readings are so far apart, the host was suspended.
const SUSPENDED_FROM: Duration = Duration::from_mins(3);
/// The shortest time between two readings if the Node changes often.
const PAUSE: Duration = Duration::from_secs(1);

/// The Node whose bootstrap is followed, by its uid.
#[derive(Debug)]
enum Followed {
    /// No Node has been seen since the agent started; `until` then the publisher may still find one.
    Unseen { until: Uptime },
    /// The Node was deleted.
    Gone,
    /// It has not been ready, and should be by `deadline`. It was last read at `read_at`.
    Young { uid: String, deadline: Uptime, read_at: Uptime },
    /// It was ready once.
    Bootstrapped { uid: String },
    /// It was there before the agent, and is not ready.
    Old { uid: String },
}

/// The host as it was last read.
struct Reading {
    host: HostFacts,
    at: Uptime,
    /// The state of the API server at that time.
    api: (Discriminant<Reach>, Option<NodeFacts>),
    /// The stage that the node waits for.
    stage: Option<Stage>,
}

/// Follows the bootstrap until the channel of reports is closed.
pub async fn run(mut inputs: Inputs) {
    let limit = inputs.settings.bootstrap.deadline_secs.duration();
    let mut reporter = Reporter::new(ConditionType::NodeBootstrapped, inputs.reports.clone());
    let spread = inputs.settings.kubernetes.spread_secs.duration();
    let mut followed = Followed::Unseen { until: uptime() + NODE_KNOWN_WITHIN + spread };
    let (mut last, timer) = (None::<Reading>, Timer::new());
    loop {
        let api = inputs.api.borrow_and_update().clone();
        followed.observe(&api, limit, Now::read(api.server_clock));
        let mut next_reading = Uptime::MAX;
        let view = if let Some(view) = followed.settled() {
            view
        } else {
            let state = (discriminant(&api.reach), api.node.clone());
            let kept = last.take().filter(|last| {
                let is_new = last.api != state && !is_of_node(last.stage);
                !is_new && uptime() < followed.read_again_at(last.at, last.stage, limit)
            });
            let (host, at) = match kept {
                Some(kept) => (kept.host, kept.at),
                None => (HostFacts::read(&inputs.settings).await, uptime()),
            };
            let facts = Facts { host, node: answer(&api), now: Now::read(api.server_clock) };
            let assessment = assess(&facts);
            let stage = assessment.current().map(|report| report.stage);
            next_reading = followed.read_again_at(at, stage, limit);
            last = Some(Reading { host: facts.host.clone(), at, api: state, stage });
            followed.view(&facts, &assessment)
        };
        if !reporter.report(view, uptime()).await {
            return;
        }
        sleep(PAUSE).await;
        let wake = next_reading.min(reporter.due_at(uptime()));
        tokio::select! {
            _ = inputs.api.changed() => {}
            () = timer.at(wake) => {}
        }
    }
}

/// Whether a stage is judged by the Node alone, once it is registered.
fn is_of_node(stage: Option<Stage>) -> bool {
    stage.is_some_and(|stage| stage > Stage::Registered)
}

fn answer(api: &ApiFacts) -> NodeAnswer {
    match (&api.reach, &api.node) {
        (Reach::Off { why }, _) => NodeAnswer::NotAsked(why.clone()),
        (Reach::Untried, _) => NodeAnswer::NotAsked("the API server has not answered yet".into()),
        (Reach::Unreached { error, .. }, _) => NodeAnswer::Unreached(error.clone()),
        (Reach::Reached { .. }, Some(node)) => NodeAnswer::Node(Box::new(node.clone())),
        (Reach::Reached { .. }, None) => NodeAnswer::NoNode("of this host".into()),
    }
}

impl Followed {
    /// Records the Node. A Node that is younger than `limit` may take until then to become ready.
    fn observe(&mut self, api: &ApiFacts, limit: Duration, now: Now) {
        let known = match self {
            Self::Unseen { .. } | Self::Gone => None,
            Self::Young { uid, .. } | Self::Bootstrapped { uid } | Self::Old { uid } => Some(uid.clone()),
        };
        match &api.node {
            Some(node) if known.as_ref() != Some(&node.uid) => *self = self.follow(node, limit, now),
            Some(node) if matches!(self, Self::Old { .. }) && is_ready(node) => {
                *self = Self::Bootstrapped { uid: node.uid.clone() };
            }
            None if known.is_some() && matches!(api.reach, Reach::Reached { .. }) => *self = Self::Gone,
            _ => {}
        }
        if let Self::Young { deadline, read_at, .. } = self {
            let was_over = *read_at >= *deadline;
            let was_suspended = now.uptime > *read_at + SUSPENDED_FROM;
            if !was_over && (was_suspended || matches!(api.reach, Reach::Unreached { .. })) {
                // It could not become ready meanwhile, and has all its time again from here on.
                *deadline = (*deadline).max(now.uptime + limit);
            }
            *read_at = now.uptime;
        }
    }

    fn follow(&self, node: &NodeFacts, limit: Duration, now: Now) -> Self {
        let uid = node.uid.clone();
        let shown = node.condition(ConditionType::NodeBootstrapped.name()).map(|shown| shown.status.as_str());
        // On a Node that was created again it may be what was published of the former one.
        let shown = shown.filter(|_| matches!(self, Self::Unseen { .. }));
        let age = Duration::try_from(now.server.duration_since(node.created)).unwrap_or_default();
        if shown == Some(Status::True.name()) {
            Self::Bootstrapped { uid }
        } else if age < limit || shown == Some(Status::False.name()) {
            // Of older Nodes only those are followed that an earlier run of the agent has found stuck.
            let deadline = now.since_boot_by_server(node.created) + limit;
            Self::Young { uid, deadline, read_at: now.uptime }
        } else if is_ready(node) {
            Self::Bootstrapped { uid }
        } else {
            Self::Old { uid }
        }
    }

    /// When to read the host again. `stage`: what the node waits for; `limit`: the time that a bootstrap may take.
    fn read_again_at(&self, read_at: Uptime, stage: Option<Stage>, limit: Duration) -> Uptime {
        let boot_deadline = Uptime::ZERO + limit;
        let expected_until = match self {
            Self::Unseen { until } => boot_deadline.max(*until),
            Self::Young { deadline, .. } => *deadline,
            Self::Gone | Self::Bootstrapped { .. } | Self::Old { .. } => boot_deadline,
        };
        let is_rare = is_of_node(stage) || read_at >= expected_until;
        let next = read_at + if is_rare { READ_EVERY_LATER } else { READ_EVERY };
        // Then the Node may be found stuck, which needs the host as it is.
        if read_at < expected_until { next.min(expected_until) } else { next }
    }

    /// What to report, if that does not depend on the host.
    fn settled(&self) -> Option<View> {
        match self {
            Self::Bootstrapped { .. } => Some(View::healthy("the Node has become ready")),
            Self::Old { .. } => {
                let message = "the Node is not ready; it was created before nodevigil started, so whether it was ever ready is not known";
                Some(View::Unknown(Finding::new(Reason::NodeBootstrapping, message)))
            }
            Self::Unseen { .. } | Self::Gone | Self::Young { .. } => None,
        }
    }

    /// What to report of an assessment.
    fn view(&mut self, facts: &Facts, assessment: &Assessment) -> View {
        let Some(current) = assessment.current() else {
            if let NodeAnswer::Node(node) = &facts.node {
                *self = Self::Bootstrapped { uid: node.uid.clone() };
            }
            let unknown = || View::found(Reason::NodeBootstrapping, "the Node is not known yet");
            return self.settled().unwrap_or_else(unknown);
        };
        let (stage, StageState { status, message, advice, .. }) = (current.stage.name(), &current.state);
        let is_late = matches!(status, Progress::Late | Progress::Failed);
        let (reason, message) = if is_late {
            let advice = if advice.is_empty() { String::new() } else { format!(" (what to do: {advice})") };
            (Reason::BootstrapStageLate, format!("stuck at stage {stage}: {message}{advice}"))
        } else {
            (Reason::NodeBootstrapping, format!("at stage {stage}: {message}"))
        };
        let is_over = matches!(self, Self::Young { deadline, .. } if facts.now.uptime >= *deadline);
        let unit = match current.stage {
            Stage::Runtime => facts.host.runtime.as_ref(),
            Stage::Kubelet => facts.host.kubelet.as_ref().ok().and_then(Option::as_ref),
            _ => None,
        };
        let may_have_been_stopped =
            |unit: &Unit| ["inactive", "deactivating"].contains(&unit.state.active_state.as_str());
        let may_be_found = matches!(self, Self::Unseen { until }
            if facts.now.uptime < *until || matches!(facts.node, NodeAnswer::Unreached(_)));
        match &facts.node {
            // It may show what an earlier run of the agent has found.
            _ if may_be_found => View::Unchanged(Finding::new(reason, message)),
            _ if !is_over => View::found(reason, message),
            _ if unit.is_some_and(may_have_been_stopped) => View::Excused(Finding::new(reason, message)),
            NodeAnswer::Node(_) if is_late => View::found(Reason::BootstrapStuck, message),
            _ => View::Unknown(Finding::new(reason, message)),
        }
    }
}
