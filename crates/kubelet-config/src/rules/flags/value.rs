//! FL004: values that the kubelet does not take.

use super::uses;
use crate::{
    kubelet::{
        flags::{self, FlagSpec, FlagUse, ValueKind, check_value, pairs, table},
        snapshot::Snapshot,
    },
    rules::{Finding, Report, Severity, at, at::shortened},
};

pub(super) fn bad_value(snapshot: &Snapshot, report: &mut Report) {
    let minor = snapshot.version.as_ref().map(|version| version.minor);
    for used in uses(snapshot) {
        // A flag that this release does not know is FL001's or FL002's.
        let known = |spec: &&FlagSpec| minor.is_none_or(|minor| spec.known_in(minor));
        let Some(spec) = used.spec.filter(known) else {
            continue;
        };
        let place = || at::value_part(snapshot, used, 0, used.value.len());
        let flag = &used.written;
        if let Err(reason) = check_value(spec.value, &used.value).and_then(|()| reserved(used)) {
            let value = flags::go_quote(&shortened(&used.value));
            let place = place();
            report.add(
                Finding::new(
                    "FL004",
                    Severity::Fatal,
                    place.clone(),
                    format!("invalid argument {value} for {flag}: {reason}: the kubelet exits"),
                )
                .fix(format!("at {place}: write it as {flag}={}", spec.value.example())),
            );
        } else if used.value_in_next_word && names_a_flag(&used.value) {
            report.add(
                Finding::new(
                    "FL004",
                    Severity::Error,
                    place(),
                    format!(
                        "{flag} has no value of its own, so the kubelet takes the next word, '{}', as its value: that \
                         flag is lost",
                        shortened(&used.value)
                    ),
                )
                .fix(format!("write {flag}=VALUE, or remove {flag}")),
            );
        }
    }
    let last = snapshot.flags.lacks_value.as_ref();
    if let Some(used) = last.filter(|used| !at::is_built_in(snapshot, used.word)) {
        let example = used.spec.map_or("text", |spec| spec.value.example());
        let flag = &used.written;
        report.add(
            Finding::new(
                "FL004",
                Severity::Fatal,
                at::flag(snapshot, used),
                format!("{flag} is the last word and lacks its value: the kubelet exits with 'flag needs an argument: {flag}'"),
            )
            .fix(format!("write {flag}={example}, or remove {flag}")),
        );
    }
}

/// Whether a word is another flag: its name is one, or has its two dashes.
fn names_a_flag(value: &str) -> bool {
    value.strip_prefix("--").is_some_and(|rest| {
        let name = rest.split('=').next().unwrap_or_default();
        table::find(&name.replace('_', "-")).is_some()
    })
}

/// What the kubelet makes of `--kube-reserved` and `--system-reserved` after its flags are parsed: it exits all the
/// same (`parseResourceList` of cmd/kubelet/app/server.go).
fn reserved(used: &FlagUse) -> Result<(), String> {
    if !matches!(used.name.as_str(), "kube-reserved" | "system-reserved") {
        return Ok(());
    }
    for pair in pairs(ValueKind::Map, &used.value) {
        if !["cpu", "memory", "ephemeral-storage", "pid"].contains(&pair.key) {
            return Err(format!("cannot reserve {} resource", flags::go_quote(pair.key)));
        }
        check_value(ValueKind::Quantity, pair.value).map_err(|error| {
            let (value, key) = (flags::go_quote(pair.value), flags::go_quote(pair.key));
            format!("failed to parse quantity {value} for {key} resource: {error}")
        })?;
        if pair.value.starts_with('-') {
            let key = flags::go_quote(pair.key);
            return Err(format!("resource quantity for {key} cannot be negative: {}", pair.value));
        }
    }
    Ok(())
}
