//! The view of a condition that its checks make together. Does no I/O and reads no clock.

use std::time::Duration;

use crate::condition::{ConditionType, Finding, Reason, Uptime, View};
use crate::settings::CustomSettings;

/// What a check has found, with a message: what comes first is shown first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Problem(String),
    /// What is known does not tell.
    Unknown(String),
    /// It is about to be known: what is shown stays.
    Pending(String),
    /// Somebody wants it so.
    Intended(String),
    Nothing(String),
}

impl Found {
    const fn rank(&self) -> u8 {
        match self {
            Self::Problem(_) => 0,
            Self::Unknown(_) => 1,
            Self::Pending(_) => 2,
            Self::Intended(_) => 3,
            Self::Nothing(_) => 4,
        }
    }
}

/// What the settings say of a check's condition.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) kind: ConditionType,
    reason: Reason,
    /// A problem is shown when it has lasted for this long.
    after: Duration,
    problem_since: Option<Uptime>,
}

impl Check {
    /// A check whose type and reason are registered.
    pub(super) fn of(name: &str, settings: &CustomSettings) -> Option<Self> {
        let kind = ConditionType::by_name(settings.kind(name))?;
        let (reason, after) = (Reason::of(kind, &settings.reason)?, settings.after_secs.duration());
        Some(Self { kind, reason, after, problem_since: None })
    }

    /// When its problem has lasted long enough, if that is still to come.
    pub(super) fn shown_at(&self, now: Uptime) -> Option<Uptime> {
        self.problem_since.map(|since| since + self.after).filter(|at| *at > now)
    }

    /// What it has found; a problem that has not lasted long enough is pending.
    fn settled(&mut self, found: Found, now: Uptime) -> Found {
        match found {
            Found::Problem(message) => {
                self.problem_since.get_or_insert(now);
                if self.shown_at(now).is_none() { Found::Problem(message) } else { Found::Pending(message) }
            }
            Found::Pending(_) => found,
            _ => {
                self.problem_since = None;
                found
            }
        }
    }
}

/// The view of the condition that these checks have, by what they have found. Problems come first, then what is not known.
pub(super) fn view(kind: ConditionType, checks: &mut [Check], found: &[Found], now: Uptime) -> View {
    let of_kind = checks.iter_mut().zip(found).filter(|(check, _)| check.kind == kind);
    merged(kind, of_kind.map(|(check, found)| (check.reason, check.settled(found.clone(), now))).collect())
}

fn merged(kind: ConditionType, mut found: Vec<(Reason, Found)>) -> View {
    let ConditionType::Custom(custom) = kind else { return View::healthy("") };
    let unknown = |message: String| Finding::new(custom.unknown(), message);
    // A check that cannot tell says nothing of the problems of others.
    let has_ended = |found: &Found| matches!(found, Found::Nothing(_) | Found::Intended(_));
    let may_last = |reason| found.iter().any(|(of, found)| *of == reason && !has_ended(found));
    let reasons: Vec<_> = found.iter().map(|(reason, _)| *reason).filter(|reason| !may_last(*reason)).collect();
    let partly = |view| View::Ended { reasons, view: Box::new(view) };
    found.sort_by_key(|(_, found)| found.rank());
    match found.first().map(|(_, first)| first.clone()) {
        Some(Found::Problem(_)) => {
            let finding = |(reason, found)| match found {
                Found::Problem(message) => Some(Finding::new(reason, message)),
                _ => None,
            };
            let mut findings: Vec<_> = found.into_iter().filter_map(finding).collect();
            findings.sort_by_key(|finding| finding.reason);
            findings.dedup_by_key(|finding| finding.reason);
            View::Seen { healthy: String::new(), findings }
        }
        Some(Found::Unknown(message)) => partly(View::Unknown(unknown(message))),
        Some(Found::Pending(message)) => partly(View::Unchanged(unknown(message))),
        Some(Found::Intended(message)) => View::Excused(unknown(message)),
        Some(Found::Nothing(message)) => View::healthy(message),
        None => View::healthy(""),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::condition::custom::tests::registered;
    use crate::condition::engine::Engine;

    fn at(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    #[test]
    fn a_problem_comes_before_what_is_not_known_and_that_before_health() {
        let [ntp, ..] = registered();
        let (down, late) = (Reason::of(ntp, "NTPIsDown").unwrap(), Reason::of(ntp, "NTPIsLate").unwrap());
        let [nothing, problem, pending, unknown, intended] =
            [Found::Nothing, Found::Problem, Found::Pending, Found::Unknown, Found::Intended].map(|of| of("m".into()));
        let merged = |found: &[(Reason, &Found)]| {
            merged(ntp, found.iter().map(|(reason, found)| (*reason, (*found).clone())).collect())
        };
        let both = merged(&[(late, &problem), (down, &problem), (down, &problem), (down, &unknown)]);
        let findings = vec![Finding::new(down, "m"), Finding::new(late, "m")];
        assert_eq!(both, View::Seen { healthy: String::new(), findings });
        let partly = |found: &[(Reason, &Found)]| match merged(found) {
            View::Ended { reasons, view } => (reasons, *view),
            view => (vec![], view),
        };
        assert!(matches!(partly(&[(down, &nothing), (late, &unknown)]), (ended, View::Unknown(_)) if ended == [down]));
        assert!(
            matches!(partly(&[(down, &intended), (late, &pending)]), (ended, View::Unchanged(_)) if ended == [down])
        );
        assert!(matches!(merged(&[(down, &nothing), (late, &intended)]), View::Excused(_)));
        assert_eq!(merged(&[(down, &nothing)]), View::healthy("m"));
    }

    #[test]
    fn a_check_that_cannot_tell_keeps_no_problem_of_another_that_has_ended() {
        let [ntp, ..] = registered();
        let (down, late) = (Reason::of(ntp, "NTPIsDown").unwrap(), Reason::of(ntp, "NTPIsLate").unwrap());
        let found = |of: fn(String) -> Found| of("m".into());
        for undecided in [Found::Unknown, Found::Pending] {
            let mut engine = Engine::new(Duration::from_mins(1), BTreeMap::new());
            let mut shown = |first: fn(String) -> Found, second, secs: [u64; 2]| {
                for secs in secs {
                    engine.report(ntp, merged(ntp, vec![(down, found(first)), (late, found(second))]), at(secs));
                }
                engine.evaluate(at(secs[1])).pop().map(|shown| shown.reason)
            };
            assert_eq!(shown(Found::Problem, Found::Nothing, [1, 2]).as_deref(), Some("NTPIsDown"));
            assert_eq!(shown(Found::Nothing, undecided, [10, 60]).as_deref(), Some("NTPIsDown"));
            assert_eq!(shown(Found::Nothing, undecided, [69, 70]).as_deref(), Some("CheckUnknown"));
            assert_eq!(shown(Found::Nothing, Found::Problem, [71, 72]).as_deref(), Some("NTPIsLate"));
            assert_eq!(shown(Found::Nothing, undecided, [80, 135]).as_deref(), Some("NTPIsLate"), "its own is kept");
        }
    }

    #[test]
    fn a_problem_that_has_not_lasted_long_enough_is_pending() {
        let [ntp, ..] = registered();
        let reason = Reason::of(ntp, "NTPIsDown").unwrap();
        let mut check = Check { kind: ntp, reason, after: Duration::from_secs(30), problem_since: None };
        let mut settled = |found: fn(String) -> Found, secs| check.settled(found("m".into()), at(secs));
        assert_eq!(settled(Found::Problem, 1), Found::Pending("m".into()));
        assert_eq!(settled(Found::Pending, 20), Found::Pending("m".into()));
        assert_eq!(settled(Found::Problem, 31), Found::Problem("m".into()));
        assert_eq!(settled(Found::Nothing, 32), Found::Nothing("m".into()));
        assert_eq!(settled(Found::Problem, 33), Found::Pending("m".into()));
    }
}
