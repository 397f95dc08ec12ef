//! Rules on the kubelet's argument list: flags that it does not know, flags that went, values that it does not take,
//! flags given twice, words that are no flags.

use super::{Finding, Report, Rule, Severity, at};
use crate::kubelet::{
    flags::{self, FlagSpec, FlagUse, Repeat, Stray, ValueKind, check_value, pairs, table},
    layers::Launcher,
    snapshot::Snapshot,
    version::{Minor, Version},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "FL001",
        name: "unknown-flag",
        severity: "fatal; warning where the kubelet's release is not in the table, or is a distribution's own build",
        doc: "A flag of the argument list is in no release of the kubelet, or came with a later one. The kubelet exits \
              with `unknown flag`. The table of flags is compared with real kubelets in nodevigil's tests.",
        source: "kubernetes/kops#17657; spf13/pflag",
        fix: "Correct the spelling, or remove the flag.",
        run: unknown,
    },
    Rule {
        id: "FL002",
        name: "removed-flag",
        severity: "fatal",
        doc: "A flag of the argument list was removed in this kubelet's release or before: it exits with `unknown \
              flag`. Files such as /var/lib/kubelet/kubeadm-flags.env keep flags over upgrades.",
        source: "Azure/AKSFlexNode#57; Azure/karpenter-provider-azure#338, #1517, #1543; Azure/AgentBaker#5438, #8273; \
                 kubernetes/kops#17657; kubernetes-sigs/image-builder#1866; Azure/AKS#4604",
        fix: "Delete the flag; its replacement, if there is one, is named.",
        run: removed,
    },
    Rule {
        id: "FL003",
        name: "flag-removed-soon",
        severity: "info; warning if the next release removes it",
        doc: "A flag that this kubelet takes is gone in a later release: an upgrade that keeps the file will not start. \
              Not reported for flags that a distribution (k3s, RKE2) writes by itself.",
        source: "the threads of FL002; kubeadm rewrites kubeadm-flags.env on join and upgrade only",
        fix: "Remove the flag before the upgrade.",
        run: removed_soon,
    },
    Rule {
        id: "FL004",
        name: "bad-value",
        severity: "fatal; error for a value that is another flag",
        doc: "A flag's value does not have the form that the flag wants, or the last flag lacks its value: the kubelet \
              exits with `invalid argument` or `flag needs an argument`. pflag takes the next word as the value, \
              whatever it looks like: `--node-ip --v=2` sets the address `--v=2`.",
        source: "canonical/cluster-api-k8s#115; kube-hetzner's example system-reserved=cpu=memory=200Mi; spf13/pflag",
        fix: "Write the value in the form that the flag wants.",
        run: bad_value,
    },
    Rule {
        id: "FL005",
        name: "duplicate-flag",
        severity: "info if the last one wins; warning if a part of the earlier value is lost",
        doc: "A flag is given more than once. Of most flags the last one wins. Lists are appended. The pairs of maps \
              accumulate, and of a key that is there twice the last one wins. --register-with-taints does not \
              accumulate: the last one replaces all taints of the earlier ones.",
        source: "kubelet-config.md 3.2; k8s.io/component-base/cli/flag",
        fix: "Keep one, in the place that is meant to win.",
        run: duplicate,
    },
    Rule {
        id: "SD016",
        name: "stray-positional-argument",
        severity: "fatal",
        doc: "A word of the argument list is neither a flag nor a flag's value: the kubelet takes it for a command and \
              exits with `unknown command`. Usual causes: a backslash with a blank behind it, a comment behind a value, \
              a typographic dash, a shell's operator, an empty `${X}`, a blank in a value.",
        source: "openshift/installer#2080; systemd.service(5), COMMAND LINES",
        fix: "Remove the word.",
        run: stray,
    },
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
    snapshot
        .flags
        .uses
        .iter()
        .filter(|used| !at::is_built_in(snapshot, used.word))
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
                let severity = if sure {
                    Severity::Fatal
                } else {
                    Severity::Warning
                };
                let near = nearest(&used.name, version.map(|version| version.minor));
                let meant = near.map_or(String::new(), |near| format!("; did you mean --{near}?"));
                let release = version.map_or(String::new(), |version| format!(" in {version}"));
                let consequence = if sure {
                    "the kubelet exits with"
                } else {
                    "a kubelet exits with"
                };
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
    let value = if used.value.is_empty() || used.value_in_next_word {
        String::new()
    } else {
        format!("={}", used.value)
    };
    let letter = bare.chars().next().unwrap_or('-');
    let says = if used.name.starts_with("--") {
        format!("bad flag syntax: {}", used.name)
    } else {
        format!(
            "unknown shorthand flag: '{letter}' in {}{value}",
            used.written
        )
    };
    let fix = if table::find(&bare.replace('_', "-")).is_some() {
        format!("write --{bare}{value}")
    } else {
        format!("remove {}", used.written)
    };
    let message = format!(
        "{} is no flag of the kubelet: it exits with '{says}'",
        used.written
    );
    (Severity::Fatal, message, fix)
}

/// The flag that was probably meant.
fn nearest(name: &str, minor: Option<Minor>) -> Option<&'static str> {
    let known =
        |spec: &&FlagSpec| minor.map_or(spec.removed.is_none(), |minor| spec.known_in(minor));
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
    let generated = if place.contains("kubeadm-flags.env") {
        " (kubeadm rewrites this file only on join and upgrade)"
    } else {
        ""
    };
    format!(
        "delete {} at {place}{generated}; in its place: {instead}",
        used.written
    )
}

fn removed_soon(snapshot: &Snapshot, report: &mut Report) {
    let version = snapshot.version.as_ref();
    let going = uses(snapshot).filter_map(|used| Some((used, used.spec?, used.spec?.removed?)));
    let later = |minor: &Minor| version.is_none_or(|version| version.minor < *minor);
    for (used, spec, minor) in going
        .filter(|(_, _, minor)| later(minor))
        .take(MAX_FINDINGS)
    {
        let place = at::flag(snapshot, used);
        let flag = &used.written;
        let (severity, message) = match version {
            Some(version) => {
                let next = minor.0 == version.minor.0 + 1;
                let severity = if next {
                    Severity::Warning
                } else {
                    Severity::Info
                };
                let message = format!(
                    "{flag} is removed in {minor}: this kubelet ({version}) still accepts it; an upgrade to {minor} that \
                     keeps this file will not start"
                );
                (severity, message)
            }
            None => (
                Severity::Info,
                format!("{flag} is removed in {minor}; the kubelet's version is not known here"),
            ),
        };
        report.add(
            Finding::new("FL003", severity, place.clone(), message).fix(delete(
                used,
                spec,
                &place.to_string(),
            )),
        );
    }
}

fn bad_value(snapshot: &Snapshot, report: &mut Report) {
    let minor = snapshot.version.as_ref().map(|version| version.minor);
    for used in uses(snapshot) {
        // A flag that this release does not know is FL001's or FL002's.
        let known = |spec: &&FlagSpec| minor.is_none_or(|minor| spec.known_in(minor));
        let Some(spec) = used.spec.filter(known) else {
            continue;
        };
        let place = at::value_part(snapshot, used, 0, used.value.len());
        let flag = &used.written;
        if let Err(reason) = check_value(spec.value, &used.value).and_then(|()| reserved(used)) {
            let value = flags::go_quote(&shortened(&used.value));
            report.add(
                Finding::new(
                    "FL004",
                    Severity::Fatal,
                    place.clone(),
                    format!("invalid argument {value} for {flag}: {reason}: the kubelet exits"),
                )
                .fix(format!(
                    "at {place}: write it as {flag}={}",
                    spec.value.example()
                )),
            );
        } else if used.value_in_next_word && names_a_flag(&used.value) {
            report.add(
                Finding::new(
                    "FL004",
                    Severity::Error,
                    place,
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
            return Err(format!(
                "cannot reserve {} resource",
                flags::go_quote(pair.key)
            ));
        }
        check_value(ValueKind::Quantity, pair.value).map_err(|error| {
            let (value, key) = (flags::go_quote(pair.value), flags::go_quote(pair.key));
            format!("failed to parse quantity {value} for {key} resource: {error}")
        })?;
        if pair.value.starts_with('-') {
            let key = flags::go_quote(pair.key);
            return Err(format!(
                "resource quantity for {key} cannot be negative: {}",
                pair.value
            ));
        }
    }
    Ok(())
}

/// At most 80 characters of a text, for a message.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn duplicate(snapshot: &Snapshot, report: &mut Report) {
    let mut seen: std::collections::BTreeMap<&str, Vec<&FlagUse>> =
        std::collections::BTreeMap::new();
    for used in uses(snapshot).filter(|used| used.spec.is_some()) {
        seen.entry(&used.name).or_default().push(used);
    }
    for (name, uses) in seen {
        let (Some(spec), Some((last, earlier))) = (table::find(name), uses.split_last()) else {
            continue;
        };
        if earlier.is_empty() {
            continue;
        }
        let Some((severity, rule)) = what_is_lost(spec, last, earlier) else {
            continue;
        };
        let place = at::flag(snapshot, last);
        let times = match uses.len() {
            2 => "twice".to_owned(),
            n => format!("{n} times"),
        };
        let others: Vec<String> = earlier
            .iter()
            .take(SHOWN + 1)
            .map(|used| at::flag(snapshot, used).to_string())
            .collect();
        let message = format!(
            "{} is given {times}: {rule} (also at {})",
            last.written,
            some(&others)
        );
        let mut finding = Finding::new("FL005", severity, place.clone(), message).fix(format!(
            "keep one {}: delete it at {}",
            last.written,
            some(&others)
        ));
        for used in earlier.iter().take(SHOWN) {
            finding = finding.step(
                at::flag(snapshot, used),
                format!("{} is given here, and again later", shown(used)),
            );
        }
        report.add(finding.step(place, format!("{} is what counts", shown(last))));
    }
}

/// How many of many are named.
const SHOWN: usize = 8;

fn some(items: &[String]) -> String {
    let mut text = items
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if items.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

fn shown(used: &FlagUse) -> String {
    format!("{}={}", used.written, shortened(&used.value))
}

/// What a second use does to the earlier ones; `None` if nothing that one would want to know.
fn what_is_lost(
    spec: &FlagSpec,
    last: &FlagUse,
    earlier: &[&FlagUse],
) -> Option<(Severity, String)> {
    let value = shortened(&last.value);
    match spec.repeat {
        Repeat::LastWins if spec.value == ValueKind::Taints => {
            let kept: std::collections::BTreeSet<&str> = last.value.split(',').collect();
            let lost: Vec<String> = earlier
                .iter()
                .flat_map(|used| used.value.split(','))
                .filter(|taint| !taint.is_empty() && !kept.contains(taint))
                .map(str::to_owned)
                .collect();
            (!lost.is_empty()).then(|| {
                let lost = some(&lost);
                (
                    Severity::Warning,
                    format!("the last one ({value}) replaces all taints; lost: {lost}"),
                )
            })
        }
        Repeat::LastWins if earlier.iter().all(|used| used.value == last.value) => {
            Some((Severity::Info, "every time with the same value".to_owned()))
        }
        Repeat::LastWins => Some((Severity::Info, format!("the last one ({value}) wins"))),
        Repeat::Append => None,
        Repeat::Merge => {
            let mut replaced = Vec::new();
            let mut values = std::collections::BTreeMap::new();
            for used in earlier.iter().chain(std::iter::once(&last)) {
                for pair in pairs(spec.value, &used.value) {
                    let before = values.insert(pair.key, pair);
                    if let Some(before) = before.filter(|before| before.value != pair.value) {
                        replaced.push(format!(
                            "{} is replaced by {}",
                            before.text.trim(),
                            pair.text.trim()
                        ));
                    }
                }
            }
            let replaced = (!replaced.is_empty()).then(|| some(&replaced))?;
            Some((
                Severity::Warning,
                format!("the pairs accumulate, but {}", shortened(&replaced)),
            ))
        }
    }
}

fn stray(snapshot: &Snapshot, report: &mut Report) {
    if snapshot.launch.launcher == Launcher::Script {
        return;
    }
    let mut comment: Option<&Stray> = None;
    let strays = snapshot.flags.strays.iter().filter(|stray| {
        // The words of a comment are one mistake.
        let file_line = |stray: &Stray| (stray.at.file.clone(), stray.at.line);
        if comment.is_some_and(|comment| file_line(comment) == file_line(stray)) {
            return false;
        }
        comment = stray.text.starts_with('#').then_some(*stray);
        !at::is_built_in(snapshot, stray.word)
    });
    for stray in strays.take(MAX_FINDINGS) {
        let (cause, fix) = super::stray::cause(snapshot, stray);
        let word = shortened(&stray.text);
        let message = format!(
            "'{word}' is taken as a command: the kubelet exits with 'unknown command{}{word}'; {cause}",
            if word.is_empty() { "" } else { " " },
        );
        let mut finding =
            Finding::new("SD016", Severity::Fatal, stray.at.clone(), message).fix(fix);
        if let Some(oddity) = oddity(snapshot, stray) {
            finding = finding.caused_by("SD028", oddity);
        }
        report.add(finding);
    }
}

/// The oddity of an arguments file on whose line the word stands.
fn oddity(snapshot: &Snapshot, stray: &Stray) -> Option<crate::kubelet::place::Place> {
    let oddities = snapshot.launch.oddities.iter();
    let mut same_line = oddities
        .filter(|oddity| oddity.at.file == stray.at.file && oddity.at.line == stray.at.line);
    same_line.next().map(|oddity| oddity.at.clone())
}

#[cfg(test)]
mod tests;
