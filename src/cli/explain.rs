//! `nodevigil explain`: the reasons of conditions and the rules of `nodevigil check`.

use kubelet_config::rules::{self, Rule};
use serde_json::json;

use super::{GOOD, Output, USAGE, complain, print};
use crate::condition::suppression::MAINTENANCE_SIGNALS;
use crate::condition::{Reason, ReasonSpec};
use crate::report::table;

/// Explain a condition's reason or a rule of `nodevigil check`; without a name, list them
///
/// Exit code: 0 the name exists, 64 there is no such reason, condition or rule.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: nodevigil explain KubeletCrashed")]
pub struct Explain {
    /// A reason, a condition (for all its reasons), or the id or name of a rule
    name: Option<String>,
    /// Print text, or JSON
    #[arg(short, long, default_value = "text")]
    output: Output,
}

impl Explain {
    pub fn run(self) -> anyhow::Result<u8> {
        let reasons = find(self.name.as_deref());
        if reasons.is_empty() {
            let name = self.name.unwrap_or_default();
            if let Some(rule) = rules::rules().find(|rule| rule.id.eq_ignore_ascii_case(&name) || rule.name == name) {
                print(&explain_rule(rule, self.output)?)?;
                return Ok(GOOD);
            }
            complain(&format!("no reason, condition or rule is named {name:?}; list them with: nodevigil explain"));
            return Ok(USAGE);
        }
        print(&match self.output {
            Output::Text if reasons.len() == 1 => text(reasons[0]),
            Output::Text if self.name.is_none() => format!("{}\n{}", list(&reasons), list_rules()),
            Output::Text => list(&reasons),
            Output::Json => {
                serde_json::to_string_pretty(&reasons.iter().map(|spec| json(spec)).collect::<Vec<_>>())? + "\n"
            }
        })?;
        Ok(GOOD)
    }
}

fn explain_rule(rule: &Rule, output: Output) -> anyhow::Result<String> {
    let Rule { id, name, severity, fix, seen, .. } = rule;
    let meaning = rule.meaning();
    if output == Output::Json {
        let row = json!({"rule": id, "name": name, "severity": severity, "meaning": meaning, "fix": fix, "seen": seen});
        return Ok(serde_json::to_string_pretty(&row)? + "\n");
    }
    Ok(format!(
        "{id} {name}: {meaning}\n\nSeverity:   {severity}\nFix:        {fix}\nSeen:       {seen}\n\n\
         A comment above the line allows it: # nodevigil: allow {id}: the reason\n"
    ))
}

/// The reasons of that name or condition, worst first; all without a name.
fn find(name: Option<&str>) -> Vec<&'static ReasonSpec> {
    let is_meant = |spec: &&ReasonSpec| {
        name.is_none_or(|name| name.eq_ignore_ascii_case(spec.name) || name.eq_ignore_ascii_case(condition(spec)))
    };
    Reason::ALL.iter().map(|reason| reason.spec()).filter(is_meant).collect()
}

fn condition(spec: &ReasonSpec) -> &'static str {
    spec.condition.map_or("any", |kind| kind.name())
}

fn remedy(spec: &ReasonSpec) -> String {
    format!("{:?}", spec.remedy).to_lowercase()
}

fn text(spec: &ReasonSpec) -> String {
    let (name, condition, status, remedy, meaning) =
        (spec.name, condition(spec), spec.status.name(), remedy(spec), spec.meaning);
    let survives = if spec.survives_boot { "yes" } else { "no" };
    let signals = if name == Reason::NodeInMaintenance.spec().name { signals() } else { String::new() };
    format!(
        "{name}: {meaning}\n\nCondition:           {condition}\nStatus:              {status}\n\
         Remedy:              {remedy}\nSurvives a reboot:   {survives}\n{signals}"
    )
}

/// The maintenance signals that nodevigil knows.
fn signals() -> String {
    let rows = MAINTENANCE_SIGNALS.iter().map(|(signal, by)| ([signal.to_string(), (*by).to_owned()], ""));
    format!("\n{}", table::text(["ON THE NODE", "SET BY"], rows))
}

fn list(reasons: &[&ReasonSpec]) -> String {
    let row = |spec: &&ReasonSpec| {
        ([spec.name, condition(spec), spec.status.name(), &remedy(spec), spec.meaning].map(str::to_owned), "")
    };
    table::text(["REASON", "CONDITION", "STATUS", "REMEDY", "MEANING"], reasons.iter().map(row))
}

fn list_rules() -> String {
    let row = |rule: &Rule| ([rule.id, rule.name, rule.summary].map(str::to_owned), "");
    table::text(["RULE", "NAME", "MEANING"], rules::rules().map(row))
}

fn json(spec: &ReasonSpec) -> serde_json::Value {
    json!({
        "reason": spec.name,
        "condition": condition(spec),
        "status": spec.status.name(),
        "remedy": remedy(spec),
        "sampled": spec.sampled,
        "survives_boot": spec.survives_boot,
        "meaning": spec.meaning,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_its_name_and_its_condition() {
        assert_eq!(find(Some("kubeletcrashed")).len(), 1);
        assert!(find(Some("KubeletHealthy")).len() > 5);
        assert_eq!(find(None).len(), Reason::ALL.len());
        assert!(find(Some("KubeletCrash")).is_empty());
    }

    #[test]
    fn a_reason_is_explained_in_full() {
        let expected = "\
KubeletHung: Three probes of /healthz in a row failed, and the kubelet's process state, its listening socket or its Lease confirms that it does not work.

Condition:           KubeletHealthy
Status:              False
Remedy:              restart
Survives a reboot:   no
";
        assert_eq!(text(Reason::KubeletHung.spec()), expected);
        assert!(text(Reason::NodeInMaintenance.spec()).contains("\ntaint karpenter.sh/rebooting"));
        let list = list(&find(Some("KubeletHealthy")));
        assert!(
            list.starts_with("REASON                         CONDITION        STATUS    REMEDY    MEANING\n"),
            "{list}"
        );
    }
}
