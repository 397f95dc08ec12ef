//! `nodevigil explain`: what a rule, a condition, its reason or a flag of the kubelet means.

use std::{fmt::Write as _, io, process::ExitCode};

use super::{conditions, status::print};
use crate::{
    health::{ConditionType, reasons},
    kubelet::flags::{FlagSpec, Repeat, ValueKind, table},
    rules::{self, Rule},
};

/// Nothing of that name.
const EXIT_UNKNOWN: u8 = 2;
const WIDTH: usize = 80;

/// Say what a rule, a condition, its reason or a flag of the kubelet means
///
/// Takes the id or the name of a rule (SD001, env-overridden-by-file), a condition (`KubeletHealthy`), a
/// reason (`KubeletCrashed`) or a flag (--cloud-provider). docs/reference/ lists every rule, condition and reason.
#[derive(Debug, Clone, clap::Args)]
pub struct Explain {
    /// A rule's id or name, a condition, a reason, or a flag
    #[arg(value_name = "ID", allow_hyphen_values = true)]
    id: String,
}

impl Explain {
    /// Prints the explanation; exit code 2 if there is nothing of that name.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(text) = explain(&self.id) {
            print(&mut io::stdout().lock(), &text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let hint = match nearest(&self.id).as_slice() {
            [] => "; docs/reference/rules.md lists the rules".to_owned(),
            near => format!("; did you mean {}?", near.join(", ")),
        };
        let text = format!(
            "nodevigil explain: no rule, condition, reason or flag is called {}{hint}\n",
            self.id
        );
        print(&mut io::stderr().lock(), &text)?;
        Ok(EXIT_UNKNOWN.into())
    }
}

fn explain(id: &str) -> Option<String> {
    let wanted = id.trim();
    if let Some(name) = wanted.strip_prefix("--") {
        let name = name.split('=').next().unwrap_or(name).replace('_', "-");
        return all_flags().find(|flag| flag.name == name).map(flag);
    }
    let camel = rules::reasons().iter().position(|name| name == wanted);
    rules::all()
        .enumerate()
        .find(|(index, rule)| {
            rule.id.eq_ignore_ascii_case(wanted) || rule.name == wanted || camel == Some(*index)
        })
        .map(|(_, rule)| self::rule(rule))
        .or_else(|| {
            let spec = reasons().find(|spec| spec.name == wanted)?;
            Some(paragraphs(conditions::reason(spec)))
        })
        .or_else(|| {
            let all = ConditionType::ALL.iter();
            let kind = all.copied().find(|kind| kind.as_str() == wanted)?;
            Some(paragraphs(conditions::condition(kind)))
        })
}

fn all_flags() -> impl Iterator<Item = &'static FlagSpec> {
    table::FLAGS.iter()
}

/// Up to three names that are a slip of the pen away.
fn nearest(id: &str) -> Vec<String> {
    let names = rules::all()
        .flat_map(|rule| [rule.id.to_owned(), rule.name.to_owned()])
        .chain(rules::reasons().iter().cloned())
        .chain(reasons().map(|spec| spec.name.to_owned()))
        .chain(
            ConditionType::ALL
                .iter()
                .map(|kind| kind.as_str().to_owned()),
        )
        .chain(all_flags().map(|flag| format!("--{}", flag.name)));
    let mut near: Vec<(usize, String)> = names
        .map(|name| (strsim::osa_distance(id, &name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

fn rule(rule: &Rule) -> String {
    let Rule {
        id, name, severity, ..
    } = rule;
    let mut text = format!("{id} {name}\nseverity: {severity}\n\n");
    for part in [
        rule.doc.to_owned(),
        format!("Fix: {}", rule.fix),
        format!("Seen: {}", rule.source),
    ]
    .into_iter()
    .chain(conditions::of_rule(rule))
    {
        text.push_str(&fill(&part));
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "{}",
        fill(&format!(
            "A comment above the line allows it: # nodevigil: allow {id}: the reason"
        ))
        .trim_end()
    );
    text
}

fn paragraphs((title, parts): (String, Vec<String>)) -> String {
    let parts: Vec<String> = parts.iter().map(|part| fill(part)).collect();
    format!("{title}\n{}", parts.join("\n"))
}

fn flag(flag: &FlagSpec) -> String {
    let mut text = format!("--{}", flag.name);
    if let Some(letter) = flag.shorthand {
        let _ = write!(text, ", -{letter}");
    }
    let _ = write!(
        text,
        "\nvalue: {}; given twice: {}\n\n",
        value(flag.value),
        match flag.repeat {
            Repeat::LastWins => "the last one wins",
            Repeat::Append => "the first replaces the default, later ones append",
            Repeat::Merge => "the first clears the default, later ones add keys",
        }
    );
    let mut say = |sentence: String| text.push_str(&fill(&sentence));
    match flag.field {
        Some(field) => say(format!(
            "Sets the field {field} of the kubelet's configuration file; the flag wins over the file."
        )),
        None => {
            say("There is only the flag: no field of the configuration file sets this.".to_owned());
        }
    }
    if let Some(since) = flag.since {
        say(format!("Known since {since}."));
    }
    if let Some(removed) = flag.removed {
        say(format!(
            "Removed in {removed}: a kubelet of that version or later exits with 'unknown flag: --{}'.",
            flag.name
        ));
    }
    if flag.deprecated {
        say("The kubelet calls it deprecated.".to_owned());
    }
    if let Some(instead) = flag.instead {
        say(format!("In its place: {instead}."));
    }
    let written = format!("--{}", flag.name);
    let about: Vec<String> = rules::all()
        .filter(|rule| {
            [rule.doc, rule.fix]
                .iter()
                .any(|text| names(text, &written))
        })
        .map(|rule| format!("{} {}", rule.id, rule.name))
        .collect();
    if !about.is_empty() {
        say(format!("Rules that speak of it: {}.", about.join(", ")));
    }
    text
}

/// Whether `text` names the flag, and not one that begins with its name.
fn names(text: &str, flag: &str) -> bool {
    text.match_indices(flag).any(|(at, _)| {
        let next = text
            .get(at + flag.len()..)
            .and_then(|rest| rest.chars().next());
        !next.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-')
    })
}

fn value(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Bool => "true or false; alone it means true",
        ValueKind::Version => "nothing, true, false, raw or a version",
        ValueKind::String => "text",
        ValueKind::Int32 => "a whole number of 32 bits",
        ValueKind::Quantity => "a quantity as 512 or 64Ki",
        ValueKind::OnePair => "one key=value pair; given again for more",
        ValueKind::Labels => "labels as key=value, with commas between",
        ValueKind::Headers => "headers as name:value, with commas between",
        ValueKind::Int => "a whole number",
        ValueKind::Uint => "a whole number from 0",
        ValueKind::Duration => "a duration as 10s or 1h30m",
        ValueKind::Ip => "an IP address",
        ValueKind::Strings => "words with commas between",
        ValueKind::Map => "key=value pairs with commas between",
        ValueKind::Thresholds => "thresholds as memory.available<100Mi, with commas between",
        ValueKind::Gates => "feature gates as Name=true, with commas between",
        ValueKind::Taints => "taints as key=value:Effect, with commas between",
        ValueKind::ReservedMemory => "reserved memory as 0:memory=1Gi",
        ValueKind::VModule => "pattern=N pairs with commas between",
    }
}

/// A paragraph.
fn fill(text: &str) -> String {
    let mut lines = super::check::wrap::wrap(text, WIDTH, 0).join("\n");
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_reason_and_flag_is_explained() {
        for rule in rules::all() {
            for id in [rule.id.to_lowercase().as_str(), rule.name] {
                let text = explain(id).unwrap_or_else(|| panic!("{id}"));
                assert!(
                    text.starts_with(rule.id) && text.contains("Fix: "),
                    "{text}"
                );
            }
        }
        for reason in rules::reasons() {
            assert!(explain(reason).is_some(), "{reason}");
        }
        for spec in reasons() {
            let text = explain(spec.name).unwrap();
            assert!(text.contains(&spec.enter.to_string()), "{text}");
        }
        for kind in ConditionType::ALL {
            let text = explain(kind.as_str()).unwrap();
            for spec in reasons().filter(|spec| spec.reason.belongs_to(*kind)) {
                assert!(text.contains(spec.name), "{} in {text}", spec.name);
            }
        }
        for flag in all_flags() {
            assert!(
                explain(&format!("--{}", flag.name)).is_some(),
                "{}",
                flag.name
            );
        }
    }

    #[test]
    fn a_slip_of_the_pen_is_told() {
        assert_eq!(explain("KubeletCrushed"), None);
        assert_eq!(nearest("KubeletCrushed"), ["KubeletCrashed"]);
        assert!(nearest("xyzzy").is_empty());
    }
}
