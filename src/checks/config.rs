//! The kubelet's configuration: what the rules say of what it got and of what it will get at its next start.
//!
//! The helper resolves and judges, because the files are root's; this makes findings of its answer. Pure.

use std::time::Duration;

use crate::{
    checks::Spec,
    clock::Now,
    health::{AWAY_GRACE, ConditionType, Finding, Reason},
    helper::{
        config::MAX_CONFIG_ERRORS,
        protocol::{ConfigAnswer, ConfigFinding},
    },
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "config",
    condition: ConditionType::KubeletConfigValid,
    doc: "The kubelet's unit, environment, flags and configuration, by the rules of `nodevigil check`.",
};

/// What is known of the kubelet's configuration.
#[derive(Debug, Default)]
pub struct Config {
    /// At most one for each error that an answer holds.
    findings: Vec<Finding>,
    /// Since when the helper has not answered (uptime).
    away_since: Option<Duration>,
}

impl Config {
    /// What is to be published; nothing until the helper has answered, or has been away at the first question.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The helper has judged.
    pub fn answered(&mut self, answer: &ConfigAnswer) {
        self.away_since = None;
        self.findings = assess(answer);
    }

    /// The helper could not judge, or does not answer.
    pub fn unanswered(&mut self, why: &str, now: Now) {
        let since = *self.away_since.get_or_insert(now.uptime);
        if self.findings.is_empty() || now.uptime.saturating_sub(since) >= AWAY_GRACE {
            self.findings = not_checked(why.to_owned());
        }
    }
}

/// The findings of the whole answer: each error, in the helper's order; never none.
pub fn assess(answer: &ConfigAnswer) -> Vec<Finding> {
    let unit = &answer.unit;
    if let Some(why) = &answer.not_resolved {
        return not_checked(format!("{unit}: {why}"));
    }
    if answer.errors.is_empty() {
        return vec![Finding {
            reason: Reason::KubeletConfigIsValid,
            message: valid(answer),
        }];
    }
    let errors = answer.errors.iter().take(MAX_CONFIG_ERRORS);
    let known: Vec<Finding> = errors.filter_map(|error| of_error(unit, error)).collect();
    if known.is_empty() {
        // A helper of another version. Not to know what its word means is no fault of the kubelet's.
        let names: Vec<&str> = answer.errors.iter().map(|e| e.rule.as_str()).collect();
        return not_checked(format!(
            "{unit}: the helper names rules that this version does not know: {}",
            names.join(", ")
        ));
    }
    known
}

fn of_error(unit: &str, error: &ConfigFinding) -> Option<Finding> {
    let mut message = format!("{unit}: {} {}: {}", error.rule, error.at, error.message);
    if error.at_next_start {
        message.push_str(
            "; the running kubelet was started without this: it takes effect at the next start",
        );
    }
    Some(Finding {
        reason: Reason::of_rule(&error.rule)?,
        message,
    })
}

fn not_checked(message: String) -> Vec<Finding> {
    vec![Finding {
        reason: Reason::KubeletConfigNotChecked,
        message,
    }]
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
        let findings = assess(&answer(Vec::new()));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].reason, Reason::KubeletConfigIsValid);
        assert!(
            findings[0].message.contains("1 warning"),
            "{}",
            findings[0].message
        );
    }

    #[test]
    fn every_error_is_a_finding_and_there_is_a_bound() {
        let rules: Vec<_> = crate::rules::all().map(|rule| rule.id).collect();
        let errors = vec![error(rules[0], true), error(rules[1], false)];
        let findings = assess(&answer(errors));
        let reasons: Vec<_> = findings.iter().map(|f| Some(f.reason)).collect();
        assert_eq!(
            reasons,
            [Reason::of_rule(rules[0]), Reason::of_rule(rules[1])]
        );
        assert!(findings[0].message.contains("/etc/default/kubelet:1: lost"));
        assert!(findings[0].message.contains("at the next start"));
        assert!(!findings[1].message.contains("at the next start"));
        let many = vec![error(rules[0], true); 100];
        assert_eq!(assess(&answer(many)).len(), MAX_CONFIG_ERRORS);
    }

    #[test]
    fn a_rule_of_another_version_is_no_fault_and_no_health() {
        let findings = assess(&answer(vec![error("XX999", false)]));
        assert_eq!(findings[0].reason, Reason::KubeletConfigNotChecked);
        assert!(findings[0].message.ends_with("XX999"));
    }

    #[test]
    fn a_helper_that_is_away_for_a_moment_is_no_news() {
        let mut config = Config::default();
        config.answered(&answer(Vec::new()));
        config.unanswered("away", at(10));
        config.unanswered("away", at(69));
        assert_eq!(config.findings()[0].reason, Reason::KubeletConfigIsValid);
        config.unanswered("away", at(70));
        assert_eq!(config.findings()[0].reason, Reason::KubeletConfigNotChecked);
        config.answered(&answer(Vec::new()));
        config.unanswered("away", at(80));
        assert_eq!(config.findings()[0].reason, Reason::KubeletConfigIsValid);
        // One that was never there is said at once.
        let mut config = Config::default();
        config.unanswered("away", at(1));
        assert_eq!(config.findings()[0].reason, Reason::KubeletConfigNotChecked);
    }
}
