//! The conditions and their reasons, told from the registry: for `explain` and for docs/reference/conditions.md.

use std::fmt::Write as _;

use crate::{
    checks,
    desired::{TYPES, TypeSpec},
    health::{ConditionType, Reason, ReasonSpec, damping, reasons, suppress, witness},
    rules::{self, Rule},
};

/// `docs/reference/conditions.md`.
pub fn conditions_md() -> String {
    let mut text = String::from(
        "# Conditions\n\n\
         Made by `nodevigil generate conditions`; do not edit. `nodevigil explain KubeletHealthy` prints one of them, \
         `nodevigil explain KubeletCrashed` a reason.\n\n\
         `True` is good. **`False` means: if this lasts, replacing the node is a sane answer**, but for reasons of class *none*, which nothing that \
         is done to a\nmachine mends: those of `KubeletConfigValid` and `NodeBootstrapped`. `Unknown` means that it cannot be \
         told, or that it is\nsomebody's will; it takes the place of `False` in two cases alone: an explicit pause (`NodePaused`), and a nodevigil that is stopped (`NodevigilStopped`). `lastTransitionTime` moves when `status` flips, \
         and at no other time.\nOne is a hint and the other way round, as `MemoryPressure` is: of `MemoryExhaustionImminent` `True` is bad. What \
         is said here of `False` holds for its `True`.\n",
    );
    text.push_str(SCOPES);
    text.push_str(&timing());
    for kind in ConditionType::ALL {
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\nPublished as {}.\n\n",
            kind.as_str(),
            kind.doc(),
            published_as(*kind)
        );
        for check in checks::ALL.iter().filter(|check| check.condition == *kind) {
            let _ = writeln!(text, "Fed by the check `{}`: {}\n", check.id, check.doc);
        }
        text.push_str(HEADER);
        for spec in reasons().filter(|spec| spec.condition == Some(*kind)) {
            row(&mut text, spec.reason, &with_witnesses(spec));
        }
        if *kind == RULES_CONDITION {
            for rule in rules::all().filter(|rule| fails(rule)) {
                if let Some(reason) = Reason::of_rule(rule.id) {
                    let doc = format!(
                        "[Rule {}](rules.md), {}: {}",
                        rule.id, rule.name, rule.severity
                    );
                    row(&mut text, reason, &doc);
                }
            }
        }
    }
    text.push_str(
        "\n## Any condition\n\n\
         Reasons of somebody who asks for quiet, whom the message names, with what is held back; and of an agent that was stopped.\n\n",
    );
    text.push_str(HEADER);
    for spec in reasons().filter(|spec| spec.condition.is_none()) {
        row(&mut text, spec.reason, spec.doc);
    }
    text
}

/// What a reason means, and who must say so.
fn with_witnesses(spec: &ReasonSpec) -> String {
    if spec.witnesses.is_empty() {
        return spec.doc.to_owned();
    }
    format!(
        "{} *Seen by: {}.*",
        spec.doc,
        witness::in_words(spec.witnesses)
    )
}

/// The condition whose reasons the rules are.
const RULES_CONDITION: ConditionType = ConditionType::KubeletConfigValid;

/// Whose trouble it is, and what mends it.
const SCOPES: &str = "\n## Whose trouble, and what mends it\n\n\
    - *Scope*: *local* is this machine's trouble. *Correlated* may have a cause that many nodes share, which is named: whoever repairs node by node \
    carries\n  it through the fleet.\n\
    - *Class*: the least that mends the node, if it is this node's trouble: *restart* (the kubelet or the runtime), *reboot*, *replace* \
    (another machine), or\n  *none*. [consumers.md](../consumers.md#by-reason) has who waits how long for which.\n";

const HEADER: &str = "| reason | status | severity | scope | class | in other dialects | enters | leaves | meaning |\n|---|---|---|---|---|---|---|---|---|\n";

fn row(text: &mut String, reason: Reason, doc: &str) {
    let _ = writeln!(
        text,
        "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |",
        reason.as_str(),
        reason.shown().as_str(),
        reason.severity().as_str(),
        reason
            .scope()
            .map_or("–".to_owned(), |scope| scope.to_string()),
        reason.remedy().as_str(),
        in_dialects(reason),
        reason.enter(),
        reason.leave(),
        doc.replace('|', "\\|")
    );
}

/// The rules of time, with the engine's own numbers.
fn timing() -> String {
    let minutes = |time: std::time::Duration| time.as_secs() / 60;
    format!(
        "\n## When a status changes\n\n\
         - A *fact*, which enters at once, is what the kernel or systemd says, or somebody's will. Everything else is *sampled*, or \
         read from a\n  file.\n\
         - A fact is `False` at once, each time. What is sampled is `False` as soon as its check has counted it, if nothing sampled \
         of the condition has\n  ended within the hour. After that it must have lasted {} s, or a {} of the last {} s was bad \
         with it; the message says meanwhile what is\n  held back.\n\
         - A problem ends by the *healthy spell*: the check that named it has known for `[kubelet] healthy_for_secs` (60) that it is \
         gone. That this check\n  cannot tell starts it anew; what other checks say does not count. For what is sampled the spell \
         is twice as long with each return within the\n  hour, up to {} minutes; and it ends sooner, a spell after it entered and after \
         {} good seconds, if less than a {} of the last {} spells was bad.\n  So trouble that is rare never adds up: with at most ten seconds \
         of it in any hundred `False` stands for five minutes at the most. A restart of the\n  agent forgets nothing of this; a boot \
         of the host does, and with it every problem that cannot outlive one.\n\
         - Between `True` and `Unknown` nothing sampled flips the status within the *minimum hold*, which is as long as the spell is \
         now, since it last flipped\n  out of `False` or in that way.\n\
         - Of several problems the worst is the reason (severities: *failed*, *degraded*); the message names the others. A lesser one \
         takes its place when the\n  worst has been gone for the healthy spell, so that two that alternate change nothing. A message is at \
         most {} bytes.\n\
         - Under a `False` that stands, a reason of another *class* is shown only when it has stood for {} minutes itself, also if it refines the one \
         that is shown: who\n  repairs by reasons counts from `lastTransitionTime`, and that is the status's. Message and Event name it at once. A restart of the agent \
         counts anew.\n\
         - *Standing down* (a pause, maintenance, a Node that is being deleted, a shutdown): nothing becomes `False`. What would, is \
         `Unknown` with one of the\n  last table's reasons. What is `False` already stays so until it is well; but an explicit pause \
         (`nodevigil pause`, the annotation) makes it\n  `Unknown` too, with the reason `NodePaused`, and takes nodevigil's taints away. \
         When it ends, what is still true is told at once, as a new flip.\n\
         - A *hold* (a package manager at work: {} minutes at most; the first moments of a host or a Node: {} minutes at most): \
         nothing but a fact makes a status worse.\n",
        damping::LASTS.as_secs(),
        part(damping::OFTEN),
        damping::LATELY.as_secs(),
        minutes(damping::LONGEST_SPELL),
        damping::LASTS.as_secs(),
        part(damping::SELDOM),
        damping::SELDOM_SPELLS,
        crate::health::MAX_MESSAGE_BYTES,
        minutes(crate::health::RECLASSED),
        minutes(suppress::PACKAGE_UPGRADE_HOLDS),
        minutes(suppress::BOOT_GRACE_HOLDS),
    )
}

/// One of so many parts, in words.
fn part(of: u32) -> &'static str {
    match of {
        5 => "fifth",
        6 => "sixth",
        _ => "part",
    }
}

/// The types on the Node that show the condition.
fn published_as(kind: ConditionType) -> String {
    let types = TYPES.iter().filter(|spec| spec.fed_by.contains(&kind));
    let names: Vec<String> = types
        .map(|spec| {
            let (name, dialect, bad) = (spec.name, spec.dialect.as_str(), spec.bad.as_str());
            format!("`{name}` (dialect {dialect}, {bad} is bad)")
        })
        .collect();
    names.join(", ")
}

/// What the types of other dialects show for a reason.
fn in_dialects(reason: Reason) -> String {
    let shows = |spec: &&TypeSpec| {
        let kind = reason.condition();
        !spec.is_native() && kind.is_none_or(|kind| spec.fed_by.contains(&kind))
    };
    let types: Vec<String> = TYPES
        .iter()
        .filter(shows)
        .map(|spec| format!("`{}={}`", spec.name, spec.show(reason).as_str()))
        .collect();
    if types.is_empty() {
        "–".to_owned()
    } else {
        types.join(", ")
    }
}

/// A condition, for `explain`; paragraphs are to be filled.
pub(super) fn condition(kind: ConditionType) -> (String, Vec<String>) {
    let names = |status| {
        let of_this = reasons().filter(|spec| spec.condition == Some(kind));
        let names: Vec<&str> = of_this
            .filter(|spec| spec.reason.shown().as_str() == status)
            .map(|spec| spec.name)
            .collect();
        names.join(", ")
    };
    let mut parts = vec![kind.doc().to_owned()];
    for status in ["True", "False", "Unknown"] {
        let names = names(status);
        if kind == RULES_CONDITION && status == "False" {
            parts.push("False: the name of the rule, as in docs/reference/rules.md.".to_owned());
        } else {
            parts.push(format!("{status}: {names}."));
        }
    }
    let will: Vec<&str> = reasons()
        .filter(|spec| spec.condition.is_none())
        .map(|spec| spec.name)
        .collect();
    parts.push(format!(
        "Unknown, where somebody asks for quiet: {}.",
        will.join(", ")
    ));
    parts.push(format!(
        "Published as {}.",
        published_as(kind).replace('`', "")
    ));
    (format!("{}\ncondition\n", kind.as_str()), parts)
}

/// A reason, for `explain`.
pub(super) fn reason(spec: &ReasonSpec) -> (String, Vec<String>) {
    let title = format!("{}\n{}\n", spec.name, standing(spec.reason));
    (title, vec![spec.doc.to_owned(), times(spec.reason)])
}

/// What a rule's reason is to its condition.
pub(super) fn of_rule(rule: &Rule) -> Option<String> {
    let reason = Reason::of_rule(rule.id).filter(|_| fails(rule))?;
    Some(format!(
        "As a reason: {}, {}. {}",
        reason.as_str(),
        standing(reason),
        times(reason)
    ))
}

/// Whether it can be an error: what only warns is no reason.
fn fails(rule: &Rule) -> bool {
    ["error", "fatal"]
        .iter()
        .any(|word| rule.severity.contains(word))
}

fn standing(reason: Reason) -> String {
    let mut text = format!(
        "condition: {} {}, {}",
        reason.condition().map_or("any", ConditionType::as_str),
        reason.shown().as_str(),
        reason.severity().as_str()
    );
    if let Some(scope) = reason.scope() {
        let _ = write!(
            text,
            "; scope: {scope}; class: {}",
            reason.remedy().as_str()
        );
    }
    text
}

fn times(reason: Reason) -> String {
    format!("Enters {}; leaves {}.", reason.enter(), reason.leave())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_and_reason_is_in_the_document_once() {
        let text = conditions_md();
        for kind in ConditionType::ALL {
            assert!(text.contains(&format!("\n## {}\n\n{}", kind.as_str(), kind.doc())));
        }
        let rules = rules::all().filter(|rule| fails(rule));
        let rules = rules.filter_map(|rule| Reason::of_rule(rule.id));
        for reason in reasons().map(|spec| spec.reason).chain(rules) {
            let row = format!("\n| `{}` | {} |", reason.as_str(), reason.shown().as_str());
            assert_eq!(text.matches(&row).count(), 1, "{row}");
        }
        for spec in TYPES {
            assert!(text.contains(&format!("`{}` (dialect", spec.name)));
        }
        let crash = text
            .lines()
            .find(|line| line.contains("| `KubeletCrashed` |"));
        assert!(crash.unwrap().contains("`KubeletUnhealthy=True`"));
        for check in checks::ALL {
            assert!(text.contains(check.doc), "{}", check.id);
        }
    }
}
