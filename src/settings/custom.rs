//! `[custom.NAME]`: checks that an administrator defines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::values::{Secs, checked};
use crate::condition::custom::{Definition, UNKNOWN, is_reserved};
use crate::condition::{ConditionType, Reason, Status};

/// Each check has a condition, which every Node of every list carries.
pub const MAX_CHECKS: usize = 32;
/// systemd.unit(5).
const UNIT_KINDS: &[&str] =
    &["service", "socket", "mount", "automount", "timer", "path", "scope", "slice", "target", "swap", "device"];

/// `[custom.NAME]`: a check of your own. It has one of the tables `unit`, `command` and `log`, which says what is checked (docs/checks.md).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomSettings {
    /// The type of the condition on the Node, such as `ChronyHealthy` or `example.com/ChronyHealthy`. Several checks may share one. Without
    /// a type there is no condition, and a problem is a Warning Event.
    pub condition: Option<TypeName>,
    /// The reason of the condition, or of the Event, while there is a problem.
    pub reason: ReasonName,
    /// The condition's status while there is a problem: `False`, or `True`, which is usual with node-problem-detector.
    #[serde(default)]
    pub problem: ProblemStatus,
    /// The reason of the condition while there is no problem.
    #[serde(default = "check_passed")]
    pub healthy_reason: ReasonName,
    /// How long a problem must last before it is published, in seconds.
    #[serde(default)]
    pub after_secs: Secs<0, 540, 0>,
    pub unit: Option<UnitCheck>,
    pub command: Option<CommandCheck>,
    pub log: Option<LogCheck>,
}

/// `[custom.NAME.unit]`: a service of systemd. A service that has failed is a problem. A service that an administrator has stopped is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitCheck {
    /// The service's unit.
    pub name: ServiceName,
    /// An enabled unit that has not been active for this many seconds is also a problem, even if it was never started or ended without an
    /// error. 0: never.
    #[serde(default)]
    pub inactive_secs: Secs<0, 86_400, 0>,
    /// This many restarts by systemd (Restart=) within `restarts_within_secs` are also a problem. 0: never.
    #[serde(default)]
    pub restarts: u8,
    /// The time within which `restarts` are counted, in seconds.
    #[serde(default)]
    pub restarts_within_secs: Secs<60, 86_400, 600>,
}

/// `[custom.NAME.command]`: a command that systemd runs as a unit of its own. Exit code 0: no problem, 1: a problem, any other: unknown. The
/// first line of the output is the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandCheck {
    /// The absolute path of the program, and its arguments. No shell reads them.
    pub argv: Argv,
    /// The time from one start to the next, in seconds.
    #[serde(default)]
    pub interval_secs: Secs<5, 86_400, 60>,
    /// The time after which systemd kills all processes of the command, in seconds.
    #[serde(default)]
    pub timeout_secs: Secs<1, 3600, 10>,
    /// The user who runs it.
    #[serde(default = "root")]
    pub user: Name,
}

/// `[custom.NAME.log]`: lines of a log. Without `unit` and `identifier` it is the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogCheck {
    /// Read the journal of this unit.
    pub unit: Option<UnitName>,
    /// Read the journal of this syslog identifier. Every user can log with any identifier: a unit is safer.
    pub identifier: Option<Name>,
    /// The beginnings of the lines. `*` matches any text, also at the beginning.
    pub patterns: Patterns,
    /// How long a problem lasts after the last such line, in seconds.
    #[serde(default)]
    pub lasts_secs: Secs<1, 604_800, 300>,
    /// Whether a problem lasts until the host boots, whatever `lasts_secs` is.
    #[serde(default)]
    pub until_boot: bool,
}

/// The status of a condition while there is a problem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProblemStatus {
    True,
    #[default]
    False,
}

impl CustomSettings {
    /// The name of its condition: that of the check, if the Node has none.
    pub fn kind<'a>(&'a self, check: &'a str) -> &'a str {
        self.condition.as_deref().unwrap_or(check)
    }

    const fn problem_status(&self) -> Status {
        match (self.problem, &self.condition) {
            (ProblemStatus::True, Some(_)) => Status::True,
            _ => Status::False,
        }
    }
}

impl LogCheck {
    pub const fn is_of_kernel(&self) -> bool {
        self.unit.is_none() && self.identifier.is_none()
    }

    /// For how long a line counts; none: until the host boots.
    pub fn lasts(&self) -> Option<Duration> {
        (!self.until_boot).then(|| self.lasts_secs.duration())
    }
}

/// The condition types of the checks.
///
/// # Errors
/// When there are too many checks, or two of one type differ in what they say of it.
pub fn definitions(checks: &BTreeMap<String, CustomSettings>) -> Result<Vec<Definition>, String> {
    if checks.len() > MAX_CHECKS {
        return Err(format!("custom: there are {} checks: expected {MAX_CHECKS} at most", checks.len()));
    }
    let mut definitions: Vec<Definition> = Vec::new();
    for (name, check) in checks {
        let (kind, healthy, status) = (check.kind(name), &*check.healthy_reason, check.problem_status());
        let known = definitions.iter().position(|known| known.name == kind);
        let index = known.unwrap_or_else(|| {
            definitions.push(Definition {
                name: kind.to_owned(),
                problem_status: status,
                is_published: check.condition.is_some(),
                reasons: Vec::new(),
                healthy_reason: healthy.to_owned(),
            });
            definitions.len() - 1
        });
        let definition = &mut definitions[index];
        if (definition.problem_status, &*definition.healthy_reason) != (status, healthy) {
            return Err(format!(
                "custom.{name}: another check of {kind} has another `problem` or `healthy_reason`: expected the same"
            ));
        }
        let reason = &*check.reason;
        if definition.reasons.iter().all(|(known, _)| known != reason) {
            definition.reasons.push((reason.to_owned(), check.command.is_some()));
        }
    }
    Ok(definitions)
}

/// The types in `[taints]` that no check of `known` and no condition of nodevigil's has.
pub fn unknown_types<'a>(listed: &'a BTreeSet<TypeName>, known: &[Definition]) -> impl Iterator<Item = &'a str> {
    let is_known = |name: &str| {
        ConditionType::ALL.iter().any(|kind| kind.name() == name)
            || known.iter().any(|one| one.is_published && one.name == name)
    };
    listed.iter().map(|name| &**name).filter(move |name| !is_known(name))
}

fn check_passed() -> ReasonName {
    ReasonName("CheckPassed".into())
}

fn root() -> Name {
    Name("root".into())
}

/// `[custom]`, in which each check has a name and exactly one source.
pub fn checks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, CustomSettings>, D::Error> {
    let checks = BTreeMap::<CheckName, Checked>::deserialize(deserializer)?;
    Ok(checks.into_iter().map(|(name, check)| (name.0, check.0)).collect())
}

#[derive(Deserialize)]
#[serde(try_from = "CustomSettings")]
struct Checked(CustomSettings);

impl TryFrom<CustomSettings> for Checked {
    type Error = &'static str;

    fn try_from(check: CustomSettings) -> Result<Self, Self::Error> {
        let CustomSettings { condition, reason, healthy_reason, after_secs, unit, command, log, .. } = &check;
        let sources = [unit.is_some(), command.is_some(), log.is_some()];
        let log = log.as_ref();
        let wrong = [
            (
                log.is_some_and(|log| log.unit.is_some() && log.identifier.is_some()),
                "a log has a unit or an identifier: expected one of them",
            ),
            (
                sources.into_iter().filter(|is_there| *is_there).count() != 1,
                "expected exactly one of the tables `unit`, `command` and `log`",
            ),
            (
                reason == healthy_reason,
                "the reason of a problem is that of health: expected another `reason` or `healthy_reason`",
            ),
            (
                log.and_then(LogCheck::lasts).is_some_and(|lasts| lasts <= after_secs.duration()),
                "a problem of the log ends before it is shown: expected `lasts_secs` above `after_secs`",
            ),
            (
                condition.as_deref().is_some_and(is_reserved),
                "the condition is one of nodevigil's own, of its profiles, or of Kubernetes: expected another type",
            ),
        ];
        let why = wrong.into_iter().find_map(|(is_wrong, why)| is_wrong.then_some(why));
        why.map_or(Ok(Self(check)), Err)
    }
}

// Limits: a taint's key has 63 characters after its prefix, of which `nodevigil-check-` takes 16; that of a reason is the policy's
// (packaging/kubernetes/policy.yaml); the name of a check is part of the name of a unit.
checked!(TypeName(String as "String") -> str, is_type, "a type such as ChronyHealthy or example.com/ChronyHealthy, of 47 characters at most");
checked!(ReasonName(String as "String") -> str,
    |text| is_camel_case(text) && text.len() <= 128 && Reason::by_name(text).is_none() && *text != *UNKNOWN,
    "a reason in CamelCase, such as ChronyFailed, that is not one of nodevigil's (nodevigil explain)");
checked!(ServiceName(String as "String") -> str,
    |text| text.strip_suffix(".service").is_some_and(|name| is_made_of(name, "-_.@:\\")),
    "a service, such as chrony.service");
checked!(UnitName(String as "String") -> str,
    |text| text.rsplit_once('.').is_some_and(|(name, kind)| is_made_of(name, "-_.@:\\") && UNIT_KINDS.contains(&kind)),
    "a unit with its suffix, such as chrony.service");
checked!(Name(String as "String") -> str, |text| !text.is_empty(), "a name");
checked!(CheckName(String as "String") -> str,
    |text| is_made_of(text, "-") && text.len() <= 40 && *text == text.to_ascii_lowercase(),
    "a name of 40 lower-case letters, digits and `-` at most");
checked!(Argv(Vec<String> as "Vec<String>") -> [String],
    |argv| argv.first().is_some_and(|program| program.starts_with('/')),
    "the absolute path of a program, and its arguments");
checked!(Patterns(Vec<String> as "Vec<String>") -> [String],
    |patterns| !patterns.is_empty() && patterns.iter().all(|one| one.chars().any(|c| c != '*' && c != ' ')),
    "patterns with a text, such as \"*I/O error\"");

fn is_type(text: &str) -> bool {
    let (domain, name) = text.rsplit_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let is_label = |label: &str| is_made_of(label, "-") && *label == label.to_ascii_lowercase();
    let is_domain = |text: &str| text.contains('.') && text.split('.').all(is_label);
    is_camel_case(name) && domain.is_none_or(is_domain) && text.len() <= 47
}

fn is_camel_case(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase()) && is_made_of(text, "")
}

/// Whether it is made of letters, digits and these characters, and is not empty.
fn is_made_of(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

#[cfg(test)]
mod tests;
