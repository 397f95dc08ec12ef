//! Whether the node has bootstrapped: the condition `NodeBootstrapped`, by the same judgement as `nodevigil bootstrap`.
//!
//! A young Node is followed until it is of use; from then on it has bootstrapped, whatever befalls it later. One that was
//! there long before us, and is not Ready, says nothing of how it was born: of that nothing is told. Pure.

mod found;

use std::{collections::VecDeque, time::Duration};

use super::{Check, Question, Reading, Spec};
use crate::{
    bootstrap::{
        self, By, CredentialSeen, Evidence, HealthzSeen, HostSeen, KubeletRun, NodeSeen, NodeWords,
        Patience, Progress, Record, RecordedResult, RuntimeSeen, ServerSeen, Stage, Timeline,
        UnitSeen,
    },
    clock::Now,
    config::Settings,
    health::{
        ConditionType, Finding, MAX_MESSAGE_BYTES, Status, bounded,
        news::{News, Told},
    },
    helper::{bootstrap::BootstrapRequest, protocol::ConfigRequest},
    kubelet::snapshot::ClusterFacts,
};
use found::{arrived, on_its_way, reason, stuck};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "bootstrap",
    condition: ConditionType::NodeBootstrapped,
    doc: "A young Node's way from boot to being of use; once it has arrived nothing is watched any more.",
};

/// How often the helper looks at the host while the Node is on its way …
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// … and when it is late.
const LOOK_EVERY_LATE: Duration = Duration::from_mins(1);
/// How soon after a change of the Node it looks.
const LOOK_SOON: Duration = Duration::from_secs(1);

/// What is read of our Node for this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReading {
    /// What it says.
    pub words: NodeWords,
    /// What our own condition on it says, if it is there: of an earlier life of ours.
    pub shown: Option<Status>,
}

/// How far our Node is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// There is none yet.
    NoNode,
    /// It is on its way until that uptime, and late from then on.
    Young(Duration),
    /// It is of use, or was when we first saw it.
    Done,
    /// It was there before us, and is not Ready: whether it ever was nobody knows.
    Unknown,
}

/// What is known of the way.
#[derive(Debug)]
pub struct Bootstrap {
    deadline: Duration,
    patience: Patience,
    config: ConfigRequest,
    /// The kubelet's unit, as it is configured.
    unit: String,
    /// The kubelet that runs.
    pid: Option<i32>,
    way: Way,
    node: Option<NodeWords>,
    host: Option<HostSeen>,
    /// Whether the helper was asked in vain, and has not answered since.
    is_untold: bool,
    timeline: Option<Timeline>,
    /// The stages of this Node that were reported as late, and those reports that are not handed out yet.
    reported: Vec<Stage>,
    reports: VecDeque<Told>,
    /// Whether a kubelet was ever found in this life, and whether it answers.
    has_seen_kubelet: bool,
    is_well: bool,
    wall_secs: i64,
    look_at: Duration,
    findings: Vec<Finding>,
    /// What is to be kept, and what was kept last.
    keep: Option<Record>,
    kept: Option<RecordedResult>,
}

impl Bootstrap {
    /// A check that has seen nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            deadline: settings.seconds("bootstrap", "deadline_secs"),
            patience: settings.patience(),
            config: ConfigRequest {
                intent: settings.intent.clone(),
                ..ConfigRequest::default()
            },
            unit: settings.kubelet.unit.clone(),
            pid: None,
            way: Way::NoNode,
            node: None,
            host: None,
            is_untold: false,
            timeline: None,
            reported: Vec::new(),
            reports: VecDeque::new(),
            has_seen_kubelet: false,
            is_well: false,
            wall_secs: 0,
            look_at: Duration::ZERO,
            findings: Vec::new(),
            keep: None,
            kept: None,
        }
    }

    fn see(&mut self, seen: Option<&NodeReading>, now: Now) {
        let Some(seen) = seen else {
            (self.node, self.way) = (None, Way::NoNode);
            self.findings.clear();
            return;
        };
        let is_new = self
            .node
            .as_ref()
            .is_none_or(|node| node.uid != seen.words.uid);
        if is_new {
            self.way = self.begin(seen, now);
            self.timeline = match self.way {
                Way::Young(ends) => {
                    let begun = ends.saturating_sub(self.deadline);
                    Some(Timeline::new(begun, self.deadline, self.patience))
                }
                _ => None,
            };
            (self.host, self.kept, self.look_at) = (None, None, Duration::ZERO);
            self.reported.clear();
            self.reports.clear();
            self.is_untold = false;
        }
        if self.way == Way::Unknown && seen.words.ready {
            self.way = Way::Done;
        }
        if self.node.as_ref() != Some(&seen.words) {
            self.look_at = self.look_at.min(now.uptime + LOOK_SOON);
            self.node = Some(seen.words.clone());
        }
        self.judge(now);
    }

    /// What a Node is that we see for the first time.
    fn begin(&self, seen: &NodeReading, now: Now) -> Way {
        if seen.shown == Some(Status::True) {
            return Way::Done;
        }
        let age = seen.words.created.map(|at| now.wall.duration_since(at));
        // One that was created in the future was created by a clock that is ahead: just now.
        let age = age
            .and_then(|age| Duration::try_from(age).ok())
            .unwrap_or_default();
        // What we have told of before is followed on, however old it is.
        if age < self.deadline || seen.shown.is_some() {
            return Way::Young(now.uptime + self.deadline.saturating_sub(age));
        }
        if seen.words.ready {
            Way::Done
        } else {
            Way::Unknown
        }
    }

    /// What is known. A Node that is Ready has a kubelet, a runtime and a credential, wherever this host keeps them: not to
    /// find one of them is no evidence then.
    fn evidence(&self, node: &NodeWords, host: &HostSeen) -> Evidence {
        let mut host = host.clone();
        if node.ready {
            let elsewhere = || "not found, and the Node is Ready with it".to_owned();
            if matches!(host.runtime, RuntimeSeen::Silent { .. }) {
                host.runtime = RuntimeSeen::Unknown { why: elsewhere() };
            }
            if !matches!(host.credential, CredentialSeen::Other { .. }) {
                host.credential = CredentialSeen::Other {
                    what: "the Node is Ready with it".to_owned(),
                };
            }
        }
        let run = match self.pid {
            Some(pid) => KubeletRun::Runs { pid },
            None if node.ready || !self.has_seen_kubelet => KubeletRun::Unknown {
                why: "no kubelet was found".to_owned(),
            },
            None => KubeletRun::Down(UnitSeen {
                name: self.unit.clone(),
                load: "loaded".to_owned(),
                active: "not running".to_owned(),
                result: String::new(),
            }),
        };
        let healthz = if self.is_well || node.ready {
            HealthzSeen::Well
        } else {
            HealthzSeen::Bad("does not answer".to_owned())
        };
        Evidence {
            host,
            run,
            healthz,
            server: ServerSeen::Answers,
            node: NodeSeen::There(Box::new(node.clone())),
            wall_secs: self.wall_secs,
            ..Evidence::default()
        }
    }

    fn judge(&mut self, now: Now) {
        self.wall_secs = now.wall.as_second();
        let found = match (&self.way, &self.node) {
            (Way::NoNode | Way::Unknown, _) | (_, None) => None,
            (Way::Done, Some(_)) => Some(arrived()),
            (Way::Young(ends), Some(node)) => {
                let (ends, host) = (*ends, self.host.as_ref());
                let progress = host.map(|host| bootstrap::assess(&self.evidence(node, host)));
                self.follow(progress, ends, now)
            }
        };
        if found.as_ref() != self.findings.first() || found.is_none() {
            self.findings = found.into_iter().collect();
        }
    }

    /// What is found of a Node on its way, and what is to be kept of it.
    fn follow(&mut self, progress: Option<Progress>, ends: Duration, now: Now) -> Option<Finding> {
        let Some(progress) = progress else {
            // Nothing is told before the helper was asked: what an earlier life of ours has said stands.
            let is_late = self.is_untold && now.uptime >= ends;
            let why = "how far it is cannot be told: the helper does not say";
            return is_late.then(|| on_its_way(why));
        };
        if let Some(timeline) = &mut self.timeline {
            timeline.take(&progress, now.uptime);
            timeline.newly_late(now.uptime);
        }
        let Some(stage) = progress.stuck else {
            self.keep(RecordedResult::Bootstrapped, &progress, now);
            self.way = Way::Done;
            return Some(arrived());
        };
        let reason = reason(stage, progress.get(stage));
        let is_slow = self
            .timeline
            .as_ref()
            .is_some_and(|timeline| timeline.was_late(stage));
        if is_slow && reason.is_some() {
            self.report(stage, &progress);
        }
        if now.uptime < ends && is_slow && reason.is_some() {
            return Some(on_its_way(&format!("it is {}", stuck(stage, &progress))));
        }
        if now.uptime < ends {
            return Some(on_its_way(&format!("it waits for {}", stage.name())));
        }
        let Some(reason) = reason else {
            let why = progress.get(stage).words();
            let how = format!("it is late, and what it waits for cannot be told: {why}");
            return Some(on_its_way(&how));
        };
        self.keep(RecordedResult::Late, &progress, now);
        let message = format!("the node is {}", stuck(stage, &progress));
        let message = bounded(&message, MAX_MESSAGE_BYTES);
        Some(Finding { reason, message })
    }

    /// A stage takes longer than it may. Autoscalers delete a Node that is not Ready after five minutes, and its condition
    /// with it, before the deadline has passed; an Event is in another namespace and remains.
    fn report(&mut self, stage: Stage, progress: &Progress) {
        if self.reported.contains(&stage) {
            return;
        }
        self.reported.push(stage);
        let patience = self.timeline.as_ref().map(|way| way.patience(stage));
        let patience = patience.unwrap_or_default().as_secs();
        let note = format!(
            "the node is {}; this stage may take {patience} s",
            stuck(stage, progress)
        );
        let note = bounded(&note, MAX_MESSAGE_BYTES);
        let told = Told::new(News::BootstrapStageLate, note);
        self.reports.push_back(told.about(stage.name()));
    }

    fn keep(&mut self, result: RecordedResult, progress: &Progress, now: Now) {
        if self.kept != Some(result)
            && let Some(timeline) = &self.timeline
        {
            self.kept = Some(result);
            self.keep = Some(Record::new(By::Daemon, result, timeline, progress, now));
        }
    }
}

impl Check for Bootstrap {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        match reading {
            Reading::Node(seen) => self.see(seen.as_deref(), now),
            Reading::Kubelet(process) => {
                self.pid = process.as_ref().map(|process| process.pid);
                self.has_seen_kubelet |= self.pid.is_some();
            }
            Reading::Sight(sight) => self.is_well = sight.healthz == super::lease::Healthz::Answers,
            Reading::Bootstrap(Ok(host)) if self.is_on_its_way() => {
                self.host = Some((**host).clone());
                self.is_untold = false;
                self.judge(now);
            }
            Reading::Bootstrap(Err(_)) if self.is_on_its_way() => {
                self.is_untold = true;
                self.judge(now);
            }
            _ => {}
        }
    }

    fn due_at(&self) -> Option<Duration> {
        if self.keep.is_some() {
            return Some(Duration::ZERO);
        }
        self.is_on_its_way().then_some(self.look_at)
    }

    fn turn(&mut self, now: Now) -> Option<Question> {
        if let Some(record) = self.keep.take() {
            return Some(Question::Bootstrap(Box::new(BootstrapRequest {
                keep: Some(record),
                ..BootstrapRequest::default()
            })));
        }
        let Way::Young(ends) = self.way else {
            return None;
        };
        let is_late = now.uptime >= ends;
        self.look_at = now.uptime + if is_late { LOOK_EVERY_LATE } else { LOOK_EVERY };
        // A stage whose time is up is reported then, and not at the next look.
        let late_at = self.timeline.as_ref().and_then(Timeline::late_at);
        if let Some(at) = late_at.filter(|at| *at > now.uptime) {
            self.look_at = self.look_at.min(at);
        }
        // The deadline itself is no reading: what is known is judged anew.
        self.judge(now);
        let node = self.node.as_ref();
        Some(Question::Bootstrap(Box::new(BootstrapRequest {
            config: ConfigRequest {
                cluster: node.map(|node| ClusterFacts {
                    node_exists: Some(true),
                    provider_id: node.provider_id.clone(),
                    taints: Some(node.taints.clone()),
                    ..ClusterFacts::default()
                }),
                ..self.config.clone()
            },
            keep: None,
        })))
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn told(&mut self) -> Option<Told> {
        self.reports.pop_front()
    }

    fn applies(&self) -> bool {
        self.way != Way::Unknown
    }
}

impl Bootstrap {
    fn is_on_its_way(&self) -> bool {
        matches!(self.way, Way::Young(_))
    }
}

#[cfg(test)]
mod tests;
