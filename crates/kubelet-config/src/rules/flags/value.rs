//! FL004: values that the kubelet does not take.

use super::uses;
use crate::kubelet::flags::{FlagSpec, FlagUse, ValueKind, pairs, table};
use crate::kubelet::snapshot::Snapshot;
use crate::kubelet::text::shortened;
use crate::rules::{Finding, Report, Severity, at};

pub(in crate::rules) fn bad_value(snapshot: &Snapshot, report: &mut Report) {
    let minor = snapshot.version.as_ref().map(|version| version.minor);
    for used in uses(snapshot) {
        // A flag that this release does not know is FL001's or FL002's.
        let known = |spec: &&FlagSpec| minor.is_none_or(|minor| spec.known_in(minor));
        let Some(spec) = used.spec.filter(known) else { continue };
        let (flag, value) = (&used.written, shortened(&used.value));
        let at = at::value_part(snapshot, used, 0, used.value.len());
        let (severity, message, fix) = if let Some(reason) = refusal(spec, used) {
            let fix =
                format!("write {} for {flag} at {at}, for example {flag}={}", spec.value.form().0, spec.value.form().1);
            (Severity::Fatal, format!("the kubelet exits because of {flag}='{value}': {reason}"), fix)
        } else if used.value_in_next_word && names_a_flag(&used.value) {
            let message = format!("{flag} has no value: the kubelet takes '{value}' as its value and not as a flag");
            (Severity::Error, message, format!("write {flag}=VALUE at {at}, or delete {flag}"))
        } else {
            continue;
        };
        report.add(Finding::new("FL004", severity, at, message).fix(fix));
    }
    let last = snapshot.flags.lacks_value.as_ref();
    if let Some(used) = last.filter(|used| !at::is_built_in(snapshot, used.word)) {
        let example = used.spec.map_or("text", |spec| spec.value.form().1);
        let (flag, at) = (&used.written, at::flag(snapshot, used));
        let message = format!(
            "{flag} is the last argument and has no value: the kubelet exits with 'flag needs an argument: {flag}'"
        );
        let fix = format!("write {flag}={example} at {at}, or delete {flag}");
        report.add(Finding::new("FL004", Severity::Fatal, at, message).fix(fix));
    }
}

/// Whether a word is another flag: its name is one, or has its two dashes.
fn names_a_flag(value: &str) -> bool {
    value.strip_prefix("--").is_some_and(|rest| {
        let name = rest.split('=').next().unwrap_or_default();
        table::find(&name.replace('_', "-")).is_some()
    })
}

/// Why the kubelet does not take the value; `None` if it does. Over a wrong `--kube-reserved` or `--system-reserved` it
/// exits after its flags are parsed (`parseResourceList` of cmd/kubelet/app/server.go).
fn refusal(spec: &FlagSpec, used: &FlagUse) -> Option<String> {
    if !spec.value.takes(&used.value) {
        return Some(format!("the flag takes {}", spec.value.form().0));
    }
    if !matches!(spec.name, "kube-reserved" | "system-reserved") {
        return None;
    }
    pairs(ValueKind::Map, &used.value).into_iter().find_map(|pair| {
        let (key, value) = (shortened(pair.key), shortened(pair.value));
        if !["cpu", "memory", "ephemeral-storage", "pid"].contains(&pair.key) {
            return Some(format!("the kubelet can reserve cpu, memory, ephemeral-storage and pid, but not '{key}'"));
        }
        if !ValueKind::Quantity.takes(pair.value) {
            return Some(format!("'{value}' for {key} is not a quantity"));
        }
        pair.value.starts_with('-').then(|| format!("'{value}' for {key} is negative"))
    })
}
