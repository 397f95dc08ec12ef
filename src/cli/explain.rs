//! `nodevigil explain`: the reasons of conditions, the troubles of nodevigil itself and the rules of `nodevigil check`.

use kubelet_config::kubelet::text::nearest;
use kubelet_config::rules::{self, Rule};
use serde_json::json;

use super::advice::Advice;
use super::{GOOD, Output, USAGE, advice, complain, print};
use crate::condition::suppression::MAINTENANCE_SIGNALS;
use crate::condition::{Reason, ReasonSpec};
use crate::report::table;
use crate::settings::RuleName;
use crate::trouble::Trouble;

/// Explain a reason, a trouble of nodevigil itself or a rule of `nodevigil check`, and what to do; without a name, list them
///
/// Exit code: 0 the name exists, 64 there is no such reason, condition, trouble or rule.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: nodevigil explain KubeletCrashed")]
pub struct Explain {
    /// A reason, a condition (for all its reasons), a trouble, or a rule: its id or name, or the start of the ids of several, such as SD
    name: Option<String>,
    /// Print text, or JSON
    #[arg(short, long, default_value = "text")]
    output: Output,
}

impl Explain {
    pub fn run(self) -> anyhow::Result<u8> {
        match self.explain() {
            Ok(text) => print(&text).map(|()| GOOD),
            Err(wrong) => {
                complain(&wrong);
                Ok(USAGE)
            }
        }
    }

    fn explain(&self) -> Result<String, String> {
        let name = self.name.as_deref();
        let reasons = find(name);
        if let Some(trouble @ (_, name, meaning)) = name.filter(|_| reasons.is_empty()).and_then(find_trouble) {
            return Ok(match self.output {
                Output::Json => format!("{:#}\n", json_of_trouble(trouble)),
                Output::Text => format!("{name}: {meaning}\n{}", to_do(name)),
            });
        }
        let rules: Vec<&Rule> = match name {
            None => rules::rules().collect(),
            Some(_) if !reasons.is_empty() => Vec::new(),
            Some(name) => name.parse::<RuleName>().map_err(|_| unknown(name))?.rules().collect(),
        };
        Ok(match (self.output, reasons.as_slice(), rules.as_slice()) {
            (Output::Json, [], [rule]) => format!("{:#}\n", json_of_rule(rule)),
            (Output::Json, ..) => {
                let troubles = Trouble::ALL.into_iter().filter(|_| name.is_none()).map(json_of_trouble);
                let rules = rules.iter().map(|rule| json_of_rule(rule));
                let all = reasons.iter().map(|spec| json(spec)).chain(troubles).chain(rules);
                format!("{:#}\n", all.collect::<serde_json::Value>())
            }
            (Output::Text, [], [rule]) => text_of_rule(rule),
            (Output::Text, [], rules) => list_rules(rules),
            (Output::Text, [reason], []) => text(reason),
            (Output::Text, reasons, []) => list(reasons),
            (Output::Text, reasons, rules) => format!("{}\n{}\n{}", list(reasons), list_troubles(), list_rules(rules)),
        })
    }
}

/// Why a name is refused, with the nearest one of them all.
fn unknown(name: &str) -> String {
    let reasons = Reason::ALL.iter().map(|reason| reason.spec());
    let known = reasons.flat_map(|spec| [spec.name, condition(spec)]);
    let known = known.chain(Trouble::ALL.map(|(_, name, _)| name));
    let known = known.chain(rules::rules().flat_map(|rule| [rule.id, rule.name]));
    let hint = nearest(name, known)
        .map_or_else(|| "list them with: nodevigil explain".to_owned(), |known| format!("did you mean {known}?"));
    format!("no reason, condition, trouble or rule is named {name:?}; {hint}")
}

fn json_of_trouble((_, name, meaning): (Trouble, &str, &str)) -> serde_json::Value {
    json!({"trouble": name, "meaning": meaning, "do": steps(name)})
}

fn json_of_rule(rule: &Rule) -> serde_json::Value {
    let Rule { id, name, severity, fix, seen, .. } = rule;
    json!({"rule": id, "name": name, "severity": severity, "meaning": rule.meaning(), "fix": fix, "seen": seen})
}

fn text_of_rule(rule: &Rule) -> String {
    let Rule { id, name, severity, fix, seen, .. } = rule;
    format!(
        "{id} {name}: {}\n\nSeverity:   {severity}\nFix:        {fix}\nSeen:       {seen}\n\n\
         A comment above the line allows it: # nodevigil: allow {id}: the reason\n",
        rule.meaning()
    )
}

/// The reasons of that name or condition, worst first; all without a name.
fn find(name: Option<&str>) -> Vec<&'static ReasonSpec> {
    let is_meant = |spec: &&ReasonSpec| {
        name.is_none_or(|name| name.eq_ignore_ascii_case(spec.name) || name.eq_ignore_ascii_case(condition(spec)))
    };
    Reason::ALL.iter().map(|reason| reason.spec()).filter(is_meant).collect()
}

fn find_trouble(name: &str) -> Option<(Trouble, &'static str, &'static str)> {
    Trouble::ALL.into_iter().find(|(_, known, _)| known.eq_ignore_ascii_case(name))
}

/// What docs/operate.md says to do.
fn steps(name: &str) -> Option<String> {
    advice::of(name).map(|advice| advice.text)
}

/// The same for a terminal, with the commands to run first; empty for a reason of health.
fn to_do(name: &str) -> String {
    let Some(Advice { text, commands, url }) = advice::of(name) else { return String::new() };
    let commands: String = commands.lines().flat_map(|line| ["  ", line, "\n"]).collect();
    let separator = if commands.is_empty() { "" } else { "\n" };
    format!("\nWhat to do: {text}\n{separator}{commands}\n{url}\n")
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
         Remedy:              {remedy}\nSurvives a reboot:   {survives}\n{signals}{}",
        to_do(name)
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

fn list_troubles() -> String {
    let row = |(_, name, meaning): (Trouble, &str, &str)| ([name, meaning].map(str::to_owned), "");
    table::text(["TROUBLE", "MEANING"], Trouble::ALL.map(row))
}

fn list_rules(rules: &[&Rule]) -> String {
    let row = |rule: &&Rule| ([rule.id, rule.name, rule.summary].map(str::to_owned), "");
    table::text(["RULE", "NAME", "MEANING"], rules.iter().map(row))
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
        "do": steps(spec.name),
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
    fn a_rule_is_found_by_its_id_its_name_and_its_family() {
        let explain = |name: Option<&str>, output| Explain { name: name.map(str::to_owned), output }.explain();
        assert_eq!(explain(Some("sd005"), Output::Text), explain(Some("env-assignment-split"), Output::Text));
        let family = explain(Some("SD"), Output::Text).unwrap();
        assert!(family.lines().count() > 20 && family.lines().skip(1).all(|line| line.starts_with("SD")), "{family}");
        let all: Vec<serde_json::Value> = serde_json::from_str(&explain(None, Output::Json).unwrap()).unwrap();
        assert_eq!(all.len(), Reason::ALL.len() + Trouble::ALL.len() + rules::rules().count());
        let text = explain(None, Output::Text).unwrap();
        assert!(text.lines().any(|line| line.starts_with("ApiRefused  ")), "{text}");
        for (wrong, meant) in
            [("KubeletHangs", "KubeletHung"), ("SD0005", "SD005"), ("env-asignment-split", "env-assignment-split")]
        {
            let error = explain(Some(wrong), Output::Text).unwrap_err();
            assert!(error.contains(&format!("did you mean {meant}")), "{error}");
        }
        assert!(explain(Some("weather"), Output::Text).unwrap_err().ends_with("nodevigil explain"));
    }

    #[test]
    fn a_trouble_is_found_by_its_name() {
        let explain = |name: &str| Explain { name: Some(name.to_owned()), output: Output::Text }.explain();
        let text = explain("apirefused").unwrap();
        assert!(text.starts_with("ApiRefused: The API server refuses") && text.contains("Apply `rbac.yaml`"), "{text}");
        // A reason of the same name comes first.
        assert!(explain("KernelLogUnreadable").unwrap().contains("NodeKernelHealthy"));
    }

    #[test]
    fn a_reason_is_explained_in_full() {
        let expected = "\
KubeletHung: The kubelet runs but does not work. Three probes of /healthz in a row failed, and its process state, its listening socket or its Lease confirms the hang. Or the kubelet itself reports that its sync loop does not run.

Condition:           KubeletHealthy
Status:              False
Remedy:              restart
Survives a reboot:   no

What to do: The message says what confirms the hang. ";
        let shown = text(Reason::KubeletHung.spec());
        assert!(shown.starts_with(expected), "{shown}");
        assert!(shown.contains("\n  nodevigil status KubeletHealthy\n"), "{shown}");
        assert!(text(Reason::KubeletIsHealthy.spec()).ends_with("Survives a reboot:   no\n"));
        let maintenance = text(Reason::NodeInMaintenance.spec());
        assert!(
            maintenance.contains("\ntaint karpenter.sh/rebooting") && !maintenance.contains("\n\n\n"),
            "{maintenance}"
        );
        let list = list(&find(Some("KubeletHealthy")));
        assert!(
            list.starts_with("REASON                         CONDITION        STATUS    REMEDY    MEANING\n"),
            "{list}"
        );
    }
}
