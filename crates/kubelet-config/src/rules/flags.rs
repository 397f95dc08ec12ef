//! Rules on the kubelet's argument list: flags that it does not know, flags that went, values that it does not take,
//! flags given twice, words that are no flags.

mod duplicate;
mod stray;
mod value;

use super::{Check, Finding, Report, Severity, at};
use crate::kubelet::{
    flags::{FlagSpec, FlagUse, table},
    snapshot::Snapshot,
    version::{Minor, Version},
};

pub(super) const RULES: &[(&str, Check)] = &[
    ("FL001", unknown),
    ("FL002", removed),
    ("FL003", removed_soon),
    ("FL004", value::bad_value),
    ("FL005", duplicate::duplicate),
    ("SD016", stray::stray),
];

/// The releases whose flags were read from their sources; later ones are only announced.
const READ: std::ops::RangeInclusive<u16> = 24..=36;

/// Whether the table has every flag of that build: a distribution may add its own.
fn is_in_the_table(version: Option<&Version>) -> bool {
    version.is_some_and(|version| READ.contains(&version.minor.0) && version.suffix.is_empty())
}

/// How many findings of a rule are worth having: the kubelet exits at the first of them.
const MAX_FINDINGS: usize = 32;

/// The flags that are the user's.
fn uses(snapshot: &Snapshot) -> impl Iterator<Item = &FlagUse> {
    snapshot.flags.uses.iter().filter(|used| !at::is_built_in(snapshot, used.word))
}

fn unknown(snapshot: &Snapshot, report: &mut Report) {
    let version = snapshot.version.as_ref();
    let too_new = |used: &&FlagUse| match (used.spec, version) {
        (Some(spec), Some(version)) => spec.since.is_some_and(|since| version.minor < since),
        (spec, _) => spec.is_none(),
    };
    for used in uses(snapshot).filter(too_new).take(MAX_FINDINGS) {
        let place = at::flag(snapshot, used);
        let finding = match used.spec {
            None if used.name.starts_with('-') => not_a_long_flag(used),
            None => {
                let sure = is_in_the_table(version);
                let severity = if sure { Severity::Fatal } else { Severity::Warning };
                let near = nearest(&used.name, version.map(|version| version.minor));
                let meant = near.map_or(String::new(), |near| format!("; did you mean --{near}?"));
                let release = version.map_or(String::new(), |version| format!(" in {version}"));
                let consequence = if sure { "the kubelet exits with" } else { "a kubelet exits with" };
                let message = format!(
                    "unknown flag {}{release}: {consequence} 'unknown flag: {}'{meant}",
                    used.written, used.written
                );
                let fix = near.map_or_else(
                    || format!("remove {} at {place}", used.written),
                    |near| format!("at {place}: write --{near} for {}", used.written),
                );
                (severity, message, fix)
            }
            Some(spec) => match (spec.since, version) {
                (Some(since), Some(version)) if version.minor < since => (
                    Severity::Fatal,
                    format!(
                        "{} exists since {since} and this kubelet is {version}: it exits with 'unknown flag: {}'",
                        used.written, used.written
                    ),
                    format!("remove {} at {place}, or upgrade the kubelet", used.written),
                ),
                _ => continue,
            },
        };
        let (severity, message, fix) = finding;
        report.add(Finding::new("FL001", severity, place, message).fix(fix));
    }
}

/// `-cloud-provider=external`, `---x`, `--=x`.
fn not_a_long_flag(used: &FlagUse) -> (Severity, String, String) {
    let bare = used.written.trim_start_matches('-');
    let value =
        if used.value.is_empty() || used.value_in_next_word { String::new() } else { format!("={}", used.value) };
    let letter = bare.chars().next().unwrap_or('-');
    let says = if used.name.starts_with("--") {
        format!("bad flag syntax: {}", used.name)
    } else {
        format!("unknown shorthand flag: '{letter}' in {}{value}", used.written)
    };
    let fix = if table::find(&bare.replace('_', "-")).is_some() {
        format!("write --{bare}{value}")
    } else {
        format!("remove {}", used.written)
    };
    let message = format!("{} is no flag of the kubelet: it exits with '{says}'", used.written);
    (Severity::Fatal, message, fix)
}

/// The flag that was probably meant.
fn nearest(name: &str, minor: Option<Minor>) -> Option<&'static str> {
    let known = |spec: &&FlagSpec| minor.map_or(spec.removed.is_none(), |minor| spec.known_in(minor));
    // Longer than any flag by more than what is allowed to differ: no need to compare.
    if name.len() > 64 {
        return None;
    }
    table::FLAGS
        .iter()
        .filter(known)
        .map(|spec| (strsim::osa_distance(name, spec.name), spec.name))
        .min()
        .filter(|(distance, near)| *distance <= 3 && *distance * 3 <= near.len())
        .map(|(_, near)| near)
}

fn removed(snapshot: &Snapshot, report: &mut Report) {
    let removed = |used: &FlagUse| Some((used.spec?, used.spec?.removed?));
    let Some(version) = &snapshot.version else {
        if uses(snapshot).any(|used| removed(used).is_some()) {
            report.not_checked("FL002", "the kubelet's version");
        }
        return;
    };
    let gone = uses(snapshot).filter_map(|used| {
        let (spec, _) = removed(used).filter(|(_, minor)| *minor <= version.minor)?;
        Some((used, spec))
    });
    for (used, spec) in gone.take(MAX_FINDINGS) {
        let minor = spec.removed.unwrap_or(version.minor);
        let place = at::flag(snapshot, used);
        let flag = &used.written;
        report.add(
            Finding::new(
                "FL002",
                Severity::Fatal,
                place.clone(),
                format!(
                    "{flag} was removed in {minor} and this kubelet is {version}: it exits with 'unknown flag: {flag}'"
                ),
            )
            .fix(delete(used, spec, &place.to_string())),
        );
    }
}

/// What to do about a removed flag.
fn delete(used: &FlagUse, spec: &FlagSpec, place: &str) -> String {
    let instead = spec.instead.unwrap_or("nothing");
    let generated =
        if place.contains("kubeadm-flags.env") { " (kubeadm rewrites this file only on join and upgrade)" } else { "" };
    format!("delete {} at {place}{generated}; in its place: {instead}", used.written)
}

fn removed_soon(snapshot: &Snapshot, report: &mut Report) {
    let version = snapshot.version.as_ref();
    let going = uses(snapshot).filter_map(|used| Some((used, used.spec?, used.spec?.removed?)));
    let later = |minor: &Minor| version.is_none_or(|version| version.minor < *minor);
    for (used, spec, minor) in going.filter(|(_, _, minor)| later(minor)).take(MAX_FINDINGS) {
        let place = at::flag(snapshot, used);
        let flag = &used.written;
        let (severity, message) = match version {
            Some(version) => {
                let next = minor.0 == version.minor.0 + 1;
                let severity = if next { Severity::Warning } else { Severity::Info };
                let message = format!(
                    "{flag} is removed in {minor}: this kubelet ({version}) still accepts it; an upgrade to {minor} that \
                     keeps this file will not start"
                );
                (severity, message)
            }
            None => (Severity::Info, format!("{flag} is removed in {minor}; the kubelet's version is not known here")),
        };
        report.add(Finding::new("FL003", severity, place.clone(), message).fix(delete(used, spec, &place.to_string())));
    }
}

#[cfg(test)]
mod tests;
