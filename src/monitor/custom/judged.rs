//! The view of a condition that its checks make together. Does no I/O and reads no clock.

use std::time::Duration;

use super::command::CommandState;
use super::found::Found;
use super::log::LogState;
use super::unit::Unit;
use crate::condition::{ConditionType, Finding, Reason, Uptime, View};

/// A check of the settings.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) kind: ConditionType,
    pub(super) watch: Watch,
    reason: Reason,
    /// A problem is shown when it has lasted for this long.
    after: Duration,
    problem_since: Option<Uptime>,
}

#[derive(Debug)]
pub(super) enum Watch {
    Unit(Box<Unit>),
    Command(CommandState),
    Log(LogState),
}

impl Check {
    pub(super) const fn new(name: String, kind: ConditionType, reason: Reason, after: Duration, watch: Watch) -> Self {
        Self { name, kind, watch, reason, after, problem_since: None }
    }

    /// When what it has found changes by the passing of time alone, at the soonest.
    pub(super) fn due_at(&self, now: Uptime) -> Option<Uptime> {
        let of_source = match &self.watch {
            Watch::Unit(unit) => unit.due_at(now),
            Watch::Command(_) => None,
            Watch::Log(log) => log.ends_at(),
        };
        let shown_at = self.problem_since.map(|since| since + self.after);
        [of_source, shown_at].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// When its command runs next.
    pub(super) const fn next_run(&self) -> Option<Uptime> {
        if let Watch::Command(command) = &self.watch { command.next_run() } else { None }
    }

    fn found(&mut self, now: Uptime) -> Found {
        let found = match &self.watch {
            Watch::Unit(unit) => unit.state.found(now),
            Watch::Command(command) => command.found.clone(),
            Watch::Log(log) => log.found(now),
        };
        self.settled(found, now)
    }

    /// The same; a problem that has not lasted long enough is pending.
    fn settled(&mut self, found: Found, now: Uptime) -> Found {
        let Found::Problem(message) = found else {
            if !matches!(found, Found::Pending(_)) {
                self.problem_since = None;
            }
            return found;
        };
        let since = *self.problem_since.get_or_insert(now);
        if now >= since + self.after { Found::Problem(message) } else { Found::Pending(message) }
    }
}

/// The view of the condition that these checks have. Problems come first, then what is not known.
pub(super) fn view(kind: ConditionType, checks: &mut [Check], now: Uptime) -> View {
    let found = checks.iter_mut().filter(|check| check.kind == kind).map(|check| (check.reason, check.found(now)));
    merged(kind, found.collect())
}

fn merged(kind: ConditionType, found: Vec<(Reason, Found)>) -> View {
    let ConditionType::Custom(custom) = kind else { return View::healthy("") };
    let unknown = |message: String| Finding::new(custom.unknown(), message);
    let mut findings: Vec<Finding> = Vec::new();
    let (mut healthy, mut pending, mut not_known, mut intended) = (None, None, None, None);
    for (reason, found) in found {
        match found {
            Found::Problem(message) if findings.iter().all(|finding| finding.reason != reason) => {
                findings.push(Finding::new(reason, message));
            }
            Found::Problem(_) => {}
            Found::Nothing(message) => healthy = healthy.or(Some(message)),
            Found::Pending(message) => pending = pending.or(Some(message)),
            Found::Unknown(message) => not_known = not_known.or(Some(message)),
            Found::Intended(message) => intended = intended.or(Some(message)),
        }
    }
    findings.sort_by_key(|finding| finding.reason);
    match (pending, not_known, intended) {
        _ if !findings.is_empty() => View::Seen { healthy: String::new(), findings },
        (_, Some(message), _) => View::Unknown(unknown(message)),
        (Some(message), ..) => View::Unchanged(unknown(message)),
        (.., Some(message)) => View::Excused(unknown(message)),
        _ => View::healthy(healthy.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::custom::tests::registered;

    fn at(secs: u64) -> Uptime {
        Duration::from_secs(secs)
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
        assert!(matches!(merged(&[(down, &nothing), (late, &unknown)]), View::Unknown(_)));
        assert!(matches!(merged(&[(down, &intended), (late, &pending)]), View::Unchanged(_)));
        assert!(matches!(merged(&[(down, &nothing), (late, &intended)]), View::Excused(_)));
        assert_eq!(merged(&[(down, &nothing)]), View::healthy("m"));
    }

    #[test]
    fn a_problem_that_has_not_lasted_long_enough_is_pending() {
        let [ntp, ..] = registered();
        let watch = Watch::Log(LogState::new(toml::from_str("patterns = ['x']").unwrap()));
        let mut check = Check::new("ntp".into(), ntp, Reason::of(ntp, "NTPIsDown").unwrap(), at(30), watch);
        let mut settled = |found: fn(String) -> Found, secs| check.settled(found("m".into()), at(secs));
        assert_eq!(settled(Found::Problem, 1), Found::Pending("m".into()));
        assert_eq!(settled(Found::Pending, 20), Found::Pending("m".into()));
        assert_eq!(settled(Found::Problem, 31), Found::Problem("m".into()));
        assert_eq!(settled(Found::Nothing, 32), Found::Nothing("m".into()));
        assert_eq!(settled(Found::Problem, 33), Found::Pending("m".into()));
    }
}
