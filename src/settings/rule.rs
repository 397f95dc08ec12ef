//! Names of the rules of `nodevigil check`, as the settings and the command line write them.

use std::fmt;
use std::str::FromStr;

use kubelet_config::kubelet::text::nearest;
use kubelet_config::rules::{self, Rule, Severity};
use serde::{Deserialize, Serialize};

/// The severities, worst first, with their names.
pub const SEVERITIES: [(Severity, &str); 4] =
    [(Severity::Fatal, "fatal"), (Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Info, "info")];

/// A rule's id or name, or the start of the ids of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct RuleName(String);

impl RuleName {
    /// Whether it names this rule.
    pub fn is(&self, rule: &Rule) -> bool {
        let start = rule.id.get(..self.0.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(&self.0)) || rule.name.eq_ignore_ascii_case(&self.0)
    }

    /// The rules that it names.
    pub fn rules(&self) -> impl Iterator<Item = &'static Rule> {
        rules::rules().filter(|rule| self.is(rule))
    }
}

impl FromStr for RuleName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = Self(text.trim().to_owned());
        if !name.0.is_empty() && name.rules().next().is_some() {
            return Ok(name);
        }
        let known = rules::rules().flat_map(|rule| [rule.id, rule.name]);
        let hint = nearest(&name.0, known).map_or_else(
            || "list the rules with: nodevigil explain".to_owned(),
            |known| format!("did you mean {known}?"),
        );
        Err(format!("no rule is named {:?}; {hint}", name.0))
    }
}

impl TryFrom<String> for RuleName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A severity's name.
pub fn severity_name(severity: Severity) -> &'static str {
    SEVERITIES.iter().find(|(known, _)| *known == severity).map_or("", |(_, name)| name)
}

/// A rule's name.
pub fn name_of(id: &str) -> &'static str {
    rules::rules().find(|rule| rule.id == id).map_or("", |rule| rule.name)
}
