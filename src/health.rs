//! Findings over time → verdicts: when a problem enters, when it leaves, and what a condition says meanwhile.
//!
//! Pure: every moment is handed in. The registry of reasons ([`REASONS`]) is the one place that says which status a
//! reason stands for; checks name reasons, nobody names a status by hand.

mod reasons;
pub mod suppress;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Now;

pub use reasons::{REASONS, Reason, ReasonSpec};

/// The status of a Node condition, as Kubernetes spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Good.
    True,
    /// If this lasts, replacing the node is a sane answer.
    False,
    /// We cannot tell, or it is somebody's will: never a reason to replace a node.
    Unknown,
}

impl Status {
    /// The word that stands in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A Node condition type that we publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionType {
    /// The kubelet's process lives and its healthz answers.
    KubeletHealthy,
    /// What the kubelet got, and will get at its next start, is what it needs.
    KubeletConfigValid,
}

impl ConditionType {
    /// All types, in the order in which they are shown.
    pub const ALL: &[Self] = &[Self::KubeletHealthy, Self::KubeletConfigValid];

    /// The condition's `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KubeletHealthy => "KubeletHealthy",
            Self::KubeletConfigValid => "KubeletConfigValid",
        }
    }
}

/// What a check says now, by itself, without a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Why; its status follows.
    pub reason: Reason,
    /// One sentence for people, free of counters, so that the same state is the same sentence.
    pub message: String,
}

/// What a condition says: a finding with a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The condition's status.
    pub status: Status,
    /// Its reason.
    pub reason: Reason,
    /// Its message.
    pub message: String,
    /// `lastTransitionTime`: when `status` last flipped, and nothing else.
    pub since: Timestamp,
}

/// A verdict of an earlier life of the agent, from the API or the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The stored status.
    pub status: Status,
    /// The stored reason, perhaps of another version.
    pub reason: String,
    /// The stored message.
    pub message: String,
    /// The stored `lastTransitionTime`.
    pub since: Timestamp,
}

/// One condition's memory.
#[derive(Debug)]
pub struct Health {
    kind: ConditionType,
    healthy_for: Duration,
    verdict: Option<Verdict>,
    /// Since when every finding has been good (uptime).
    good_since: Option<Duration>,
    /// The status of the last finding: `None` until the check has run in this life.
    last: Option<Status>,
    /// Whether what we say is tied to what the Node shows: by a record taken over, or by our own apply.
    anchored: bool,
    /// Whether the status has flipped since, after which an older record has nothing to teach.
    flipped: bool,
}

impl Health {
    /// A condition without a past. `healthy_for` is the spell of health that ends a problem.
    pub fn new(kind: ConditionType, healthy_for: Duration) -> Self {
        Self {
            kind,
            healthy_for,
            verdict: None,
            good_since: None,
            last: None,
            anchored: false,
            flipped: false,
        }
    }

    /// The verdict to publish: none until the check has really run in this life.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.last.and(self.verdict.as_ref())
    }

    /// What an earlier life said last, if nothing has been found since.
    pub fn adopted(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Takes back what an earlier life of the agent published, so that a restart neither flips the status nor moves
    /// its transition time. Late is fine: a record that comes after the first finding still gives its time.
    pub fn adopt(&mut self, stored: Stored) {
        if self.flipped {
            return;
        }
        self.anchored = true;
        match &mut self.verdict {
            // Its reason too: it may remember what nobody can see any more, such as who stopped the kubelet. The next
            // finding is judged in its light.
            Some(verdict) if verdict.status == stored.status => {
                *verdict = stored.verdict(self.kind);
            }
            // A problem that was published ends by a healthy spell, not by our having been away; and not to have known
            // for a moment is no reason to take health back.
            Some(verdict)
                if stored.status == Status::False
                    || (stored.status == Status::True && verdict.status == Status::Unknown) =>
            {
                *verdict = stored.verdict(self.kind);
            }
            Some(_) => {}
            None => self.verdict = Some(stored.verdict(self.kind)),
        }
    }

    /// The Node shows our verdict.
    pub fn published(&mut self) {
        self.anchored = true;
    }

    /// The Node was made anew under our name: what befell before it was born is no longer its story, unless it still
    /// lasts. (A kubelet crash-loops by design until `kubeadm join`; its Node must not be born with that.)
    pub fn node_is_new(&mut self) {
        let lasts = self.last == Some(Status::False);
        let failed = |v: &Verdict| v.status == Status::False;
        if self.last.is_none() || (!lasts && self.verdict.as_ref().is_some_and(failed)) {
            self.verdict = None;
        }
    }

    /// Takes a finding in; `true` if what is to be published changed.
    pub fn observe(&mut self, finding: &Finding, now: Now) -> bool {
        let before = self.verdict().cloned();
        let status = finding.reason.status();
        self.last = Some(status);
        if status == Status::True {
            self.good_since.get_or_insert(now.uptime);
        } else {
            self.good_since = None;
        }
        let held = match &self.verdict {
            Some(verdict) if verdict.status == Status::False => match status {
                Status::False => false,
                Status::Unknown => true, // failing to know never clears a problem
                Status::True => !self.spell_is_over(now),
            },
            _ => false,
        };
        if !held {
            self.set(finding, now);
        }
        before.as_ref() != self.verdict()
    }

    /// When the healthy spell ends (uptime): observe again then.
    pub fn next_deadline(&self) -> Option<Duration> {
        let verdict = self.verdict.as_ref()?;
        (verdict.status == Status::False).then_some(self.good_since? + self.healthy_for)
    }

    fn spell_is_over(&self, now: Now) -> bool {
        self.good_since
            .is_some_and(|since| now.uptime.saturating_sub(since) >= self.healthy_for)
    }

    fn set(&mut self, finding: &Finding, now: Now) {
        let status = finding.reason.status();
        let since = match &self.verdict {
            Some(verdict) if verdict.status == status => verdict.since,
            Some(_) => {
                self.flipped |= self.anchored;
                now.wall
            }
            None => now.wall,
        };
        self.verdict = Some(Verdict {
            status,
            reason: finding.reason,
            message: finding.message.clone(),
            since,
        });
    }
}

/// The memories of all conditions.
#[derive(Debug)]
pub struct Conditions(Vec<Health>);

impl Conditions {
    /// Conditions without a past; see [`Health::new`].
    pub fn new(healthy_for: Duration) -> Self {
        let memory = |kind: &ConditionType| Health::new(*kind, healthy_for);
        Self(ConditionType::ALL.iter().map(memory).collect())
    }

    /// One condition's memory.
    pub fn get(&self, kind: ConditionType) -> &Health {
        &self.0[kind as usize]
    }

    /// One condition's memory, to change it.
    pub fn get_mut(&mut self, kind: ConditionType) -> &mut Health {
        &mut self.0[kind as usize]
    }

    /// The verdicts to publish, in the order of [`ConditionType::ALL`].
    pub fn verdicts(&self) -> impl Iterator<Item = (ConditionType, &Verdict)> {
        // Nothing before the first check has run. From then on a condition whose own check is still to run keeps what
        // the Node shows of it: it would vanish from the Node if an apply, which is the whole set, left it out.
        let any = self.0.iter().any(|health| health.verdict().is_some());
        self.0
            .iter()
            .filter(move |_| any)
            .filter_map(|health| Some((health.kind, health.adopted()?)))
    }

    /// When a healthy spell ends that has not ended by `now` (uptime).
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        let ends = self.0.iter().filter_map(Health::next_deadline);
        ends.filter(|at| *at > now.uptime).min()
    }

    /// See [`Health::published`]: the Node shows all of them.
    pub fn published(&mut self) {
        self.0.iter_mut().for_each(Health::published);
    }

    /// See [`Health::node_is_new`].
    pub fn node_is_new(&mut self) {
        self.0.iter_mut().for_each(Health::node_is_new);
    }
}

impl Stored {
    fn verdict(self, kind: ConditionType) -> Verdict {
        // A reason of another version is replaced by this check's next finding; until then its nearest kin stands in.
        let reason = Reason::parse(&self.reason)
            .filter(|reason| reason.status() == self.status && reason.condition() == kind)
            .unwrap_or(reasons::kin(kind, self.status));
        Verdict {
            status: self.status,
            reason,
            message: self.message,
            since: self.since,
        }
    }
}

impl From<&Verdict> for Stored {
    fn from(verdict: &Verdict) -> Self {
        Self {
            status: verdict.status,
            reason: verdict.reason.as_str().to_owned(),
            message: verdict.message.clone(),
            since: verdict.since,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_secs(secs),
            wall: Timestamp::from_second(1_800_000_000 + i64::try_from(secs).unwrap()).unwrap(),
        }
    }

    fn finding(reason: Reason) -> Finding {
        Finding {
            reason,
            message: reason.as_str().to_owned(),
        }
    }

    fn stored(status: Status, reason: &str, secs: u64) -> Stored {
        Stored {
            status,
            reason: reason.to_owned(),
            message: "from before".to_owned(),
            since: at(secs).wall,
        }
    }

    #[test]
    fn registry_is_whole() {
        for (i, spec) in REASONS.iter().enumerate() {
            assert!(spec.doc.ends_with('.'), "{}", spec.name);
            assert!(spec.name.starts_with("Kubelet") && !spec.timing.is_empty());
            assert!(spec.condition == spec.reason.condition());
            assert_eq!(format!("{:?}", spec.reason), spec.name);
            assert_eq!(Reason::parse(spec.name), Some(spec.reason));
            assert!(REASONS[..i].iter().all(|other| other.name != spec.name));
        }
    }

    #[test]
    fn every_condition_has_its_place() {
        let conditions = Conditions::new(Duration::ZERO);
        for kind in ConditionType::ALL {
            assert_eq!(conditions.get(*kind).kind, *kind);
        }
    }

    #[test]
    fn what_the_node_shows_stays_until_its_own_check_has_run() {
        let mut conditions = Conditions::new(Duration::from_mins(1));
        let config = ConditionType::KubeletConfigValid;
        conditions
            .get_mut(config)
            .adopt(stored(Status::True, "KubeletConfigIsValid", 5));
        assert_eq!(conditions.verdicts().count(), 0);
        let healthy = finding(Reason::KubeletIsHealthy);
        conditions
            .get_mut(ConditionType::KubeletHealthy)
            .observe(&healthy, at(30));
        let shown: Vec<_> = conditions.verdicts().map(|(k, v)| (k, v.since)).collect();
        assert_eq!(shown[1], (config, at(5).wall));
        // Another Node's is not this one's.
        conditions.node_is_new();
        assert_eq!(conditions.verdicts().count(), 1);
    }

    #[test]
    fn every_rule_is_a_reason_for_false() {
        for rule in crate::rules::all() {
            let reason = Reason::of_rule(rule.id).unwrap();
            assert_eq!(reason.status(), Status::False);
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
            assert!(REASONS.iter().all(|spec| spec.name != reason.as_str()));
        }
    }

    #[test]
    fn a_problem_leaves_only_after_a_healthy_spell() {
        let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
        assert!(health.observe(&finding(Reason::KubeletIsHealthy), at(1)));
        assert!(health.observe(&finding(Reason::KubeletCrashed), at(10)));
        assert!(!health.observe(&finding(Reason::KubeletIsHealthy), at(20)));
        assert_eq!(health.next_deadline(), Some(Duration::from_secs(80)));
        // A relapse starts the spell anew.
        assert!(health.observe(&finding(Reason::KubeletHung), at(50)));
        assert!(!health.observe(&finding(Reason::KubeletIsHealthy), at(60)));
        assert!(!health.observe(&finding(Reason::KubeletIsHealthy), at(119)));
        assert!(health.observe(&finding(Reason::KubeletIsHealthy), at(120)));
        assert_eq!(health.verdict().unwrap().since, at(120).wall);
    }

    #[test]
    fn a_refined_reason_keeps_the_transition_time() {
        let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
        health.observe(&finding(Reason::KubeletGone), at(10));
        assert!(health.observe(&finding(Reason::KubeletCrashed), at(11)));
        assert_eq!(health.verdict().unwrap().since, at(10).wall);
    }

    #[test]
    fn a_restart_keeps_status_and_time() {
        let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
        health.adopt(stored(Status::False, "KubeletCrashed", 5));
        assert_eq!(
            health.verdict(),
            None,
            "nothing is said before the check ran"
        );
        assert!(health.observe(&finding(Reason::KubeletCrashed), at(30)));
        assert_eq!(health.verdict().unwrap().since, at(5).wall);
    }

    #[test]
    fn a_late_record_gives_its_time_and_its_problem() {
        let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
        health.observe(&finding(Reason::KubeletIsHealthy), at(30));
        health.adopt(stored(Status::True, "KubeletIsHealthy", 5));
        assert_eq!(health.verdict().unwrap().since, at(5).wall);

        let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
        health.observe(&finding(Reason::KubeletNotFound), at(30));
        health.adopt(stored(Status::Unknown, "KubeletStoppedByOperator", 5));
        assert_eq!(
            health.adopted().unwrap().reason,
            Reason::KubeletStoppedByOperator
        );

        let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
        health.observe(&finding(Reason::KubeletIsHealthy), at(30));
        health.adopt(stored(Status::False, "KubeletCrashed", 5));
        assert_eq!(health.verdict().unwrap().reason, Reason::KubeletCrashed);
        assert_eq!(health.next_deadline(), Some(Duration::from_secs(90)));
        assert!(health.observe(&finding(Reason::KubeletIsHealthy), at(90)));
        assert_eq!(health.verdict().unwrap().since, at(90).wall);
    }

    #[test]
    fn what_was_thought_before_the_record_came_is_no_flip() {
        let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
        health.observe(&finding(Reason::KubeletStarting), at(30));
        health.observe(&finding(Reason::KubeletCrashed), at(31));
        health.adopt(stored(Status::False, "KubeletCrashed", 5));
        assert_eq!(health.verdict().unwrap().since, at(5).wall);
        // But what has been told since the record is.
        health.observe(&finding(Reason::KubeletIsHealthy), at(32));
        health.observe(&finding(Reason::KubeletIsHealthy), at(92));
        health.adopt(stored(Status::True, "KubeletIsHealthy", 5));
        assert_eq!(health.verdict().unwrap().since, at(92).wall);
    }

    #[test]
    fn a_new_node_is_not_born_with_an_old_crash() {
        let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_mins(1));
        health.observe(&finding(Reason::KubeletCrashed), at(10));
        health.node_is_new();
        assert_eq!(
            health.verdict().unwrap().reason,
            Reason::KubeletCrashed,
            "it lasts"
        );
        health.observe(&finding(Reason::KubeletStarting), at(11));
        health.node_is_new();
        assert!(health.observe(&finding(Reason::KubeletStarting), at(12)));
        assert!(health.observe(&finding(Reason::KubeletIsHealthy), at(13)));
        assert_eq!(health.verdict().unwrap().status, Status::True);
    }

    fn any_reason() -> impl Strategy<Value = Reason> {
        (0..REASONS.len()).prop_map(|i| REASONS[i].reason)
    }

    proptest! {
        #[test]
        fn any_history_keeps_the_rules(steps in prop::collection::vec((any_reason(), 0_u64..40), 1..200)) {
            let spell = 30;
            let mut health = Health::new(ConditionType::KubeletHealthy, Duration::from_secs(spell));
            let (mut now, mut good_for_from) = (1, None);
            let mut before: Option<Verdict> = None;
            for (reason, wait) in steps {
                now += wait;
                health.observe(&finding(reason), at(now));
                if reason.status() == Status::True { good_for_from.get_or_insert(now); } else { good_for_from = None; }
                let verdict = health.verdict().unwrap().clone();
                prop_assert_eq!(verdict.reason.status(), verdict.status);
                if let Some(before) = &before {
                    let flipped = before.status != verdict.status;
                    prop_assert_eq!(verdict.since, if flipped { at(now).wall } else { before.since });
                    if before.status == Status::False && flipped {
                        prop_assert_eq!(verdict.status, Status::True, "Unknown never clears a problem");
                        prop_assert!(now - good_for_from.unwrap() >= spell);
                    }
                }
                before = Some(verdict);
            }
        }
    }
}
