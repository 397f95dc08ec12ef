//! Reasons that the operator has turned down (`[reasons.X] as`): to a warning, which is an Event and a count, or off.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{ConditionType, Finding, Reason, Status, reasons};

/// What becomes of a reason for `False` that is switched by `[reasons]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToldAs {
    /// An Event of type `Warning` when it is found, and a count.
    Warning,
    /// Nothing on the Node.
    Off,
}

impl ToldAs {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Off => "off",
        }
    }
}

/// The operator's choice, by reason.
pub type TurnedDown = BTreeMap<Reason, ToldAs>;

/// What the conditions say of a check that finds nothing but what is turned down.
const NOTHING_ELSE: &str =
    "nothing is found but what [reasons] in nodevigil's configuration turns down";

/// Takes out of each check's word what is turned down.
#[derive(Debug, Default)]
pub(super) struct Turned {
    pub(super) choice: TurnedDown,
    /// What each check's last word has named of it.
    named: BTreeSet<(&'static str, Reason)>,
    /// What has become a warning, and was not taken yet.
    pub(super) warnings: Vec<(ConditionType, Finding)>,
}

impl Turned {
    /// What is left of a check's whole word.
    pub(super) fn sift<'a>(
        &mut self,
        kind: ConditionType,
        check: &'static str,
        findings: &'a [Finding],
    ) -> Cow<'a, [Finding]> {
        if self.choice.is_empty() || findings.is_empty() {
            return Cow::Borrowed(findings);
        }
        let is_named = |reason: Reason| findings.iter().any(|f| f.reason == reason);
        self.named
            .retain(|(of, reason)| *of != check || is_named(*reason));
        if !findings.iter().any(|f| self.choice.contains_key(&f.reason)) {
            return Cow::Borrowed(findings);
        }
        let mut left = Vec::new();
        for finding in findings {
            let Some(told_as) = self.choice.get(&finding.reason) else {
                left.push(finding.clone());
                continue;
            };
            let is_new = self.named.insert((check, finding.reason));
            if is_new && *told_as == ToldAs::Warning {
                self.warnings.push((kind, finding.clone()));
            }
        }
        if left.is_empty() {
            left.push(Finding {
                reason: nothing_else(kind),
                message: NOTHING_ELSE.to_owned(),
            });
        }
        Cow::Owned(left)
    }
}

/// That all is well; of a bootstrap, which would stay so, only that it is not late.
fn nothing_else(kind: ConditionType) -> Reason {
    match kind {
        ConditionType::NodeBootstrapped => Reason::NodeBootstrapping,
        _ => reasons::kin(kind, Status::True),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(reasons: &[Reason]) -> Vec<Finding> {
        let finding = |reason: &Reason| Finding {
            reason: *reason,
            message: reason.as_str().to_lowercase(),
        };
        reasons.iter().map(finding).collect()
    }

    #[test]
    fn a_warning_is_told_once_for_each_time_and_what_is_off_not_at_all() {
        let mut turned = Turned {
            choice: TurnedDown::from([
                (Reason::KubeletCrashed, ToldAs::Warning),
                (Reason::KubeletHung, ToldAs::Off),
            ]),
            ..Turned::default()
        };
        let kind = ConditionType::KubeletHealthy;
        let mut sift = |said: &[Reason]| {
            let found = findings(said);
            let left = turned.sift(kind, "kubelet", &found);
            let left: Vec<Reason> = left.iter().map(|f| f.reason).collect();
            let told: Vec<Reason> = turned.warnings.drain(..).map(|(_, f)| f.reason).collect();
            (left, told)
        };
        let well = vec![Reason::KubeletIsHealthy];
        let crashed = [Reason::KubeletCrashed];
        assert_eq!(sift(&crashed), (well.clone(), crashed.to_vec()));
        assert_eq!(sift(&crashed), (well.clone(), vec![]), "it lasts");
        assert_eq!(sift(&[]), (vec![], vec![]), "nothing new");
        assert_eq!(sift(&[Reason::KubeletHung]), (well.clone(), vec![]));
        assert_eq!(sift(&crashed), (well, crashed.to_vec()), "another time");
        let gone = [Reason::KubeletCrashed, Reason::KubeletGone];
        assert_eq!(sift(&gone), (vec![Reason::KubeletGone], vec![]));
    }

    #[test]
    fn no_node_has_bootstrapped_because_a_reason_is_off() {
        let reason = nothing_else(ConditionType::NodeBootstrapped);
        assert_eq!(reason.status(), Status::Unknown);
        for kind in ConditionType::ALL {
            assert_ne!(nothing_else(*kind).status(), Status::False);
        }
    }
}
