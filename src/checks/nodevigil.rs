//! nodevigil itself: whether it runs with the configuration that is written, and whether what it depends on here answers.
//!
//! Nothing that it finds is `False`: a failure of ours is no failure of the node. Pure.

use std::time::Duration;

use super::{Check, Question, Reading, Spec};
use crate::{
    clock::Now,
    config::Settings,
    health::{AWAY_GRACE, ConditionType, Finding, Reason},
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "nodevigil",
    condition: ConditionType::NodevigilHealthy,
    doc: "nodevigil itself: whether the configuration is in use as written, and whether the helper and the system bus answer.",
};

const WELL: &str = "nodevigil works as configured";

/// What the agent knows of those on this host without which it sees less.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// The helper: `None` until it was asked, then whether it answers, else why not.
    pub helper: Option<Result<(), String>>,
    /// The system bus.
    pub bus: Option<Result<(), String>>,
}

/// What is known of nodevigil itself.
#[derive(Debug)]
pub struct Nodevigil {
    /// Why the configuration as written cannot be used, and what is used in its place.
    refused: Option<String>,
    helper: Part,
    bus: Part,
    due_at: Option<Duration>,
    findings: Vec<Finding>,
}

/// Something that may be away.
#[derive(Debug, Default)]
struct Part {
    is_known: bool,
    /// Since when (uptime), and why.
    away: Option<(Duration, String)>,
}

impl Part {
    fn learn(&mut self, word: Option<&Result<(), String>>, now: Now) {
        let Some(word) = word else { return };
        self.is_known = true;
        self.away = word.as_ref().err().map(|why| {
            let since = self.away.as_ref().map(|(since, _)| *since);
            (since.unwrap_or(now.uptime), why.clone())
        });
    }

    fn grace_ends(&self) -> Option<Duration> {
        self.away.as_ref().map(|(since, _)| *since + AWAY_GRACE)
    }

    /// Why, once it has been away for too long.
    fn is_gone(&self, now: Now) -> Option<&str> {
        let (_, why) = self.away.as_ref()?;
        (now.uptime >= self.grace_ends()?).then_some(why)
    }
}

impl Nodevigil {
    /// Nothing is known but where the configuration comes from.
    pub fn new(settings: &Settings) -> Self {
        let refused = settings.stand_in.as_ref().map(ToString::to_string);
        Self {
            due_at: refused.is_some().then_some(Duration::ZERO),
            refused,
            helper: Part::default(),
            bus: Part::default(),
            findings: Vec::new(),
        }
    }

    fn judge(&mut self, now: Now) {
        let ends = [self.helper.grace_ends(), self.bus.grace_ends()];
        self.due_at = ends
            .into_iter()
            .flatten()
            .filter(|at| *at > now.uptime)
            .min();
        let refused = self.refused.clone();
        let helper = self.helper.is_gone(now).map(|why| {
            format!("the helper does not answer ({why}): what only root may read is not judged")
        });
        let bus = self.bus.is_gone(now).map(|why| {
            format!("systemd cannot be reached over the system bus ({why}): why a process ended, and who stopped it, is not known")
        });
        let found = [
            (Reason::NodevigilConfigRefused, refused),
            (Reason::NodevigilHelperAway, helper),
            (Reason::NodevigilBusLost, bus),
        ];
        let found = found.into_iter();
        let found: Vec<_> = found
            .filter_map(|(reason, message)| message.map(|message| Finding { reason, message }))
            .collect();
        if !found.is_empty() {
            self.findings = found;
        } else if self.helper.is_known && self.helper.away.is_none() && self.bus.away.is_none() {
            self.findings = vec![Finding {
                reason: Reason::NodevigilIsHealthy,
                message: WELL.to_owned(),
            }];
        }
        // Else something is away, and not yet for long: what was said stands.
    }
}

impl Check for Nodevigil {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        if let Reading::Surroundings(Surroundings { helper, bus }) = reading {
            self.helper.learn(helper.as_ref(), now);
            self.bus.learn(bus.as_ref(), now);
            self.judge(now);
        }
    }

    fn due_at(&self) -> Option<Duration> {
        self.due_at
    }

    fn turn(&mut self, now: Now) -> Option<Question> {
        self.judge(now);
        None
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::config::StandIn;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_secs(secs),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn around(helper: Option<Result<(), &str>>, bus: Option<Result<(), &str>>) -> Reading {
        let word = |word: Option<Result<(), &str>>| word.map(|word| word.map_err(str::to_owned));
        Reading::Surroundings(Surroundings {
            helper: word(helper),
            bus: word(bus),
        })
    }

    fn reasons(check: &Nodevigil) -> Vec<Reason> {
        check.findings().iter().map(|f| f.reason).collect()
    }

    #[test]
    fn all_is_well_once_the_helper_has_answered() {
        let mut check = Nodevigil::new(&Settings::default());
        assert_eq!(check.due_at(), None);
        check.take(&around(None, Some(Ok(()))), at(1));
        assert_eq!(reasons(&check), [], "the helper was not asked yet");
        check.take(&around(Some(Ok(())), Some(Ok(()))), at(2));
        assert_eq!(reasons(&check), [Reason::NodevigilIsHealthy]);
        assert_eq!(check.due_at(), None, "it wakes nobody");
    }

    #[test]
    fn a_helper_that_is_away_is_said_after_its_grace_and_one_that_is_back_at_once() {
        let mut check = Nodevigil::new(&Settings::default());
        check.take(&around(Some(Ok(())), None), at(1));
        check.take(&around(Some(Err("refused")), None), at(10));
        // Each further failure is the same absence.
        check.take(&around(Some(Err("timeout")), None), at(40));
        assert_eq!(reasons(&check), [Reason::NodevigilIsHealthy]);
        assert_eq!(check.due_at(), Some(Duration::from_secs(70)));
        check.turn(at(69));
        assert_eq!(reasons(&check), [Reason::NodevigilIsHealthy]);
        assert_eq!(check.turn(at(70)), None);
        assert_eq!(reasons(&check), [Reason::NodevigilHelperAway]);
        assert!(check.findings()[0].message.contains("timeout"));
        assert_eq!(check.due_at(), None);
        check.take(&around(Some(Ok(())), None), at(71));
        assert_eq!(reasons(&check), [Reason::NodevigilIsHealthy]);
    }

    #[test]
    fn away_from_the_start_is_said_after_the_grace_too() {
        let mut check = Nodevigil::new(&Settings::default());
        check.take(&around(Some(Err("none")), Some(Err("none"))), at(1));
        assert_eq!(reasons(&check), []);
        check.turn(at(61));
        let both = [Reason::NodevigilHelperAway, Reason::NodevigilBusLost];
        assert_eq!(reasons(&check), both);
    }

    #[test]
    fn a_refused_configuration_is_said_at_its_first_turn_and_stays() {
        let mut settings = Settings::default();
        settings.stand_in = Some(StandIn {
            why: "/etc/x.toml:3: kubelet.unti: unknown key".to_owned(),
            kept_at: Timestamp::UNIX_EPOCH,
        });
        let mut check = Nodevigil::new(&settings);
        assert_eq!(check.due_at(), Some(Duration::ZERO));
        check.turn(at(1));
        check.take(&around(Some(Ok(())), Some(Ok(()))), at(2));
        assert_eq!(reasons(&check), [Reason::NodevigilConfigRefused]);
        let message = &check.findings()[0].message;
        assert!(
            message.contains("/etc/x.toml:3: kubelet.unti") && message.contains("1970-01-01"),
            "{message}"
        );
    }

    #[test]
    fn nothing_of_it_is_false() {
        let of_ours = crate::health::reasons().filter(|row| row.condition == Some(SPEC.condition));
        let mut count = 0;
        for row in of_ours {
            count += 1;
            assert_ne!(row.status, crate::health::Status::False, "{}", row.name);
        }
        assert_eq!(count, 4);
    }
}
