//! The kubelet's configuration: what the rules say of what it got and of what it will get at its next start.
//!
//! The helper resolves and judges, because the files are root's; this makes one finding of its answer. Pure.

use std::time::Duration;

use crate::{
    checks::Spec,
    clock::Now,
    health::{ConditionType, Finding, Reason},
    helper::protocol::{ConfigAnswer, ConfigFinding},
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "config",
    condition: ConditionType::KubeletConfigValid,
    doc: "The kubelet's unit, environment, flags and configuration, by the rules of `nodevigil check`.",
};

/// How long the last answer stands while the helper is away: a helper that is being upgraded is no news.
pub const AWAY_GRACE: Duration = Duration::from_mins(1);

/// What is known of the kubelet's configuration.
#[derive(Debug, Default)]
pub struct Config {
    finding: Option<Finding>,
    /// Since when the helper has not answered (uptime).
    away_since: Option<Duration>,
}

impl Config {
    /// What is to be published; `None` until the helper has answered, or has been away at the first question.
    pub fn finding(&self) -> Option<&Finding> {
        self.finding.as_ref()
    }

    /// The helper has judged.
    pub fn answered(&mut self, answer: &ConfigAnswer) {
        self.away_since = None;
        self.finding = Some(assess(answer));
    }

    /// The helper could not judge, or does not answer.
    pub fn unanswered(&mut self, why: &str, now: Now) {
        let since = *self.away_since.get_or_insert(now.uptime);
        if self.finding.is_none() || now.uptime.saturating_sub(since) >= AWAY_GRACE {
            self.finding = Some(Finding {
                reason: Reason::KubeletConfigNotChecked,
                message: why.to_owned(),
            });
        }
    }
}

/// One finding of the whole answer: the worst error first, the others by name.
pub fn assess(answer: &ConfigAnswer) -> Finding {
    if let Some(why) = &answer.not_resolved {
        return Finding {
            reason: Reason::KubeletConfigNotChecked,
            message: format!("{}: {why}", answer.unit),
        };
    }
    let worst = answer
        .errors
        .iter()
        .find_map(|error| Some((error, Reason::of_rule(&error.rule)?)));
    let Some((worst, reason)) = worst else {
        return Finding {
            reason: Reason::KubeletConfigIsValid,
            message: valid(answer),
        };
    };
    let mut message = format!(
        "{}: {} {}: {}",
        answer.unit, worst.rule, worst.at, worst.message
    );
    if worst.at_next_start {
        message.push_str(
            "; the running kubelet was started without this: it takes effect at the next start",
        );
    }
    let others: Vec<String> = answer
        .errors
        .iter()
        .filter(|other| *other != worst)
        .map(brief)
        .collect();
    if !others.is_empty() {
        message.push_str("; also ");
        message.push_str(&others.join(", "));
    }
    Finding { reason, message }
}

fn brief(finding: &ConfigFinding) -> String {
    format!("{} {}", finding.rule, finding.at)
}

fn valid(answer: &ConfigAnswer) -> String {
    let unit = &answer.unit;
    match answer.warnings {
        0 => format!("{unit}: no rule finds an error or a warning"),
        1 => format!("{unit}: no rule finds an error; 1 warning, see `nodevigil check`"),
        n => format!("{unit}: no rule finds an error; {n} warnings, see `nodevigil check`"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_secs(secs),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn answer(errors: Vec<ConfigFinding>) -> ConfigAnswer {
        ConfigAnswer {
            unit: "kubelet.service".to_owned(),
            errors,
            warnings: 1,
            ..ConfigAnswer::default()
        }
    }

    fn error(rule: &str, at_next_start: bool) -> ConfigFinding {
        ConfigFinding {
            rule: rule.to_owned(),
            at: "/etc/default/kubelet:1".to_owned(),
            message: "lost".to_owned(),
            at_next_start,
        }
    }

    #[test]
    fn warnings_leave_it_valid() {
        let finding = assess(&answer(Vec::new()));
        assert_eq!(finding.reason, Reason::KubeletConfigIsValid);
        assert!(finding.message.contains("1 warning"), "{}", finding.message);
    }

    #[test]
    fn the_worst_is_the_reason_and_the_others_are_named() {
        let Some(rule) = crate::rules::all().next() else {
            return;
        };
        let finding = assess(&answer(vec![error(rule.id, true), error("XX999", false)]));
        assert_eq!(Some(finding.reason), Reason::of_rule(rule.id));
        assert!(finding.message.contains("/etc/default/kubelet:1: lost"));
        assert!(finding.message.contains("at the next start"));
        assert!(
            finding
                .message
                .ends_with("also XX999 /etc/default/kubelet:1")
        );
    }

    #[test]
    fn a_helper_that_is_away_for_a_moment_is_no_news() {
        let mut config = Config::default();
        config.answered(&answer(Vec::new()));
        config.unanswered("away", at(10));
        config.unanswered("away", at(69));
        assert_eq!(
            config.finding().unwrap().reason,
            Reason::KubeletConfigIsValid
        );
        config.unanswered("away", at(70));
        assert_eq!(
            config.finding().unwrap().reason,
            Reason::KubeletConfigNotChecked
        );
        config.answered(&answer(Vec::new()));
        config.unanswered("away", at(80));
        assert_eq!(
            config.finding().unwrap().reason,
            Reason::KubeletConfigIsValid
        );
        // One that was never there is said at once.
        let mut config = Config::default();
        config.unanswered("away", at(1));
        assert_eq!(
            config.finding().unwrap().reason,
            Reason::KubeletConfigNotChecked
        );
    }
}
