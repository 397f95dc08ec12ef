//! What the state makes of the kubelet's configuration: when the helper is asked about it anew, and what it answers.
//!
//! The helper follows the files by itself. What it cannot know is told with the question: which process runs, what
//! systemd has loaded, what the Node shows. When one of these changes the question is asked anew.

use std::time::Duration;

use super::{event::Effect, state::State};
use crate::{
    checks::{config::Config, kubelet::Sign},
    clock::Now,
    cluster::api::NodeFacts,
    helper::protocol::{ConfigAnswer, ConfigRequest},
    host::helper::HelperError,
    kubelet::snapshot::{ClusterFacts, Loaded},
    rules::{UNINITIALIZED, UNINITIALIZED_TOO_LATE_SECS},
};

/// How long what is known may settle before the question is asked: systemd's word and the process come together.
const SETTLE: Duration = Duration::from_millis(200);

/// At least so long from one question to the next: each has the helper run every rule, and others may write to the Node
/// hundreds of times a second.
const BETWEEN: Duration = Duration::from_secs(1);

/// How often a helper that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(10);

/// The configuration's check and what it is asked with.
#[derive(Debug, Default)]
pub(super) struct Checking {
    pub(super) config: Config,
    /// What systemd has loaded, as it said last.
    loaded: Option<Loaded>,
    /// What the API says of the Node.
    node: Option<NodeFacts>,
    /// What was asked last, and which kubelet ran.
    asked: Option<(ConfigRequest, Option<i32>)>,
    /// The number of the question that is open; answers to earlier ones are stale.
    question: u64,
    /// When to ask (uptime).
    ask_at: Option<Duration>,
    /// Before which it is not asked again (uptime).
    not_before: Duration,
    /// When a taint that is still there has become an error by its age alone (uptime).
    overdue_at: Option<Duration>,
}

/// When to ask again about a taint that stays: the Node's age is told in whole seconds.
const OVERDUE: Duration = Duration::from_secs(UNINITIALIZED_TOO_LATE_SECS + 1);

impl Checking {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        [self.ask_at, self.overdue_at].into_iter().flatten().min()
    }

    fn ask_soon(&mut self, now: Now) {
        let at = (now.uptime + SETTLE).max(self.not_before);
        self.ask_at = Some(self.ask_at.map_or(at, |earlier| earlier.min(at)));
    }
}

impl State {
    /// systemd has read its units, at the start or anew.
    pub(super) fn apply_loaded(&mut self, loaded: Loaded, now: Now) {
        self.checking.loaded = Some(loaded);
        self.checking.ask_soon(now);
    }

    /// The API's word about our Node, as far as the rules judge it.
    pub(super) fn learn_of_node(&mut self, facts: &NodeFacts, now: Now) {
        self.standing.learn_will(&facts.will, now);
        if self.checking.node.as_ref() != Some(facts) {
            self.checking.node = Some(facts.clone());
            self.kubelet.apply(Sign::AwaitsJoin(false), now);
            self.checking.overdue_at = overdue_at(facts, self.link.time.of(now));
            self.checking.ask_soon(now);
        }
    }

    /// There is another kubelet process, or none.
    pub(super) fn check_anew(&mut self, now: Now) {
        self.checking.ask_soon(now);
    }

    pub(super) fn apply_config(
        &mut self,
        question: u64,
        answer: Result<ConfigAnswer, HelperError>,
        now: Now,
    ) {
        if question != self.checking.question {
            return;
        }
        match answer {
            Ok(answer) => {
                self.helper.answers();
                self.checking.config.answered(&answer);
                let has_node = self.checking.node.is_some();
                let awaits_join = answer.no_credentials && !has_node;
                self.kubelet.apply(Sign::AwaitsJoin(awaits_join), now);
            }
            Err(error) => {
                match &error {
                    HelperError::Refused { .. } => self.helper.answers(),
                    away => self.helper.is_away(&away.to_string()),
                }
                self.checking.config.unanswered(&error.to_string(), now);
                self.kubelet.apply(Sign::AwaitsJoin(false), now);
                self.checking.asked = None;
                self.checking.ask_at = Some(now.uptime + RETRY);
            }
        }
    }

    /// Asks, if it is time and there is something new to ask.
    pub(super) fn ask_about_config(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let due = |at: Option<Duration>| at.is_some_and(|at| now.uptime >= at);
        if due(self.checking.overdue_at) {
            // The same question has another answer now.
            (self.checking.overdue_at, self.checking.asked) = (None, None);
        } else if !due(self.checking.ask_at) {
            return;
        }
        self.checking.ask_at = None;
        let node = self.checking.node.as_ref();
        let mut request = ConfigRequest {
            kubelet_version: node.and_then(|node| node.kubelet_version.clone()),
            intent: self.settings.intent.clone(),
            loaded: self.checking.loaded.clone(),
            cluster: node.map(cluster_facts),
            network: None, // read when the question goes out
        };
        let asked = (
            request.clone(),
            self.kubelet.process().map(|kubelet| kubelet.pid),
        );
        if self.checking.asked.as_ref() == Some(&asked) {
            return;
        }
        self.checking.asked = Some(asked);
        let age = node
            .and_then(|node| node.created)
            .map(|at| self.link.time.of(now).wall.duration_since(at));
        if let (Some(cluster), Some(age)) = (&mut request.cluster, age) {
            cluster.node_age_secs = u64::try_from(age.as_secs()).ok();
        }
        self.checking.question += 1;
        self.checking.not_before = now.uptime + BETWEEN;
        effects.push(Effect::FollowConfig(
            self.checking.question,
            Box::new(request),
        ));
    }
}

/// Its age is told with the question: it would make a new one of every old.
fn cluster_facts(node: &NodeFacts) -> ClusterFacts {
    ClusterFacts {
        node_exists: Some(true),
        provider_id: node.provider_id.clone(),
        taints: Some(node.taints.clone()),
        ..ClusterFacts::default()
    }
}

fn overdue_at(node: &NodeFacts, now: Now) -> Option<Duration> {
    let waits = node.taints.iter().any(|taint| taint == UNINITIALIZED);
    let age = now.wall.duration_since(node.created.filter(|_| waits)?);
    let age = Duration::try_from(age).unwrap_or_default();
    OVERDUE.checked_sub(age).map(|left| now.uptime + left)
}
