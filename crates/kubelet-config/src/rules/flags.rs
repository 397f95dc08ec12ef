//! Rules on the kubelet's argument list: flags that it does not know, flags that were removed, values that it does not
//! take, flags given twice, feature gates, words that are no flags.

pub(super) mod duplicate;
pub(super) mod gates;
pub(super) mod stray;
pub(super) mod value;

use super::{Finding, FlagUse, Report, Severity, Snapshot, Step, at, flags_in, shortened};
use crate::kubelet::config::fields::FIELDS;
use crate::kubelet::flag_text::FlagText;
use crate::kubelet::flags::FlagSpec;
use crate::kubelet::flags::table::{self, FLAGS};
use crate::kubelet::text::nearest;
use crate::kubelet::version::{Minor, Version};

/// The releases whose flags are in the table.
const RELEASES: std::ops::RangeInclusive<Minor> = Minor(24)..=Minor(37);

/// The oldest release that is supported together with the newest of the table.
const OLDEST_SUPPORTED: Minor = Minor(34);

/// Whether the table has every flag of that build: a distribution may add its own.
fn is_in_the_table(version: &Version) -> bool {
    RELEASES.contains(&version.minor) && version.is_of_kubernetes()
}

/// Whether the kubelet exits with this flag; of an unknown release, whether those that are supported do.
pub(super) fn is_refused(snapshot: &Snapshot, flag: &FlagText<'_>) -> bool {
    let version = snapshot.version.as_ref();
    let minor = version.map_or(OLDEST_SUPPORTED, |version| version.minor);
    match table::find(&flag.name) {
        Some(spec) => !spec.known_in(minor) || !spec.value.takes(flag.value.or(flag.next).unwrap_or("true")),
        None => version.is_none_or(is_in_the_table),
    }
}

/// What a remedy that brings lost flags back must leave out: those with which this kubelet exits.
pub(super) fn exception(snapshot: &Snapshot, lost: &[String]) -> Option<String> {
    let is_refused = |flag: &FlagText<'_>| is_refused(snapshot, flag);
    let refused = lost.iter().filter(|flag| flags_in(flag).first().is_some_and(is_refused));
    let refused: Vec<String> = refused.map(|flag| format!("`{}`", shortened(flag))).collect();
    let exits = match &snapshot.version {
        Some(version) => format!("kubelet {version} exits"),
        None => format!("kubelets from {OLDEST_SUPPORTED} exit"),
    };
    (!refused.is_empty()).then(|| format!(". Leave out {}, with which {exits}", refused.join(" and ")))
}

/// How many findings of a rule are worth having: the kubelet exits at the first of them.
const MAX_FINDINGS: usize = 32;

fn uses(snapshot: &Snapshot) -> impl Iterator<Item = &FlagUse> {
    snapshot.flags.uses.iter().filter(|used| !at::is_built_in(snapshot, used.word))
}

pub(super) fn unknown(snapshot: &Snapshot, report: &mut Report) {
    let minor = snapshot.version.as_ref().map(|version| version.minor);
    let findings = uses(snapshot).filter_map(|used| {
        let since = used.spec.and_then(|spec| spec.since);
        match (used.spec, minor.zip(since)) {
            (None, _) if used.name.starts_with('-') => Some(not_a_long_flag(snapshot, used)),
            (None, _) => Some(in_no_release(snapshot, used)),
            (Some(_), Some((minor, since))) if minor < since => Some(too_new(snapshot, used, since)),
            _ => None,
        }
    });
    for finding in findings.take(MAX_FINDINGS) {
        report.add(finding);
    }
}

fn exits(used: &FlagUse) -> String {
    format!("exits with 'unknown flag: {}'", shortened(&used.written))
}

fn in_no_release(snapshot: &Snapshot, used: &FlagUse) -> Finding {
    let version = snapshot.version.as_ref();
    let flag = shortened(&used.written);
    let at = at::flag(snapshot, used);
    let exits = exits(used);
    let (severity, message) = if let Some(version) = version.filter(|version| is_in_the_table(version)) {
        (Severity::Fatal, format!("kubelet {version} has no flag {flag} and {exits}"))
    } else {
        let (first, last) = (RELEASES.start(), RELEASES.end());
        let message =
            format!("no kubelet from {first} to {last} has a flag {flag}. A kubelet that does not know it {exits}");
        (Severity::Warning, message)
    };
    let bare = used.name.replace('-', "");
    let field = FIELDS.iter().map(|field| field.path).find(|path| path.eq_ignore_ascii_case(&bare));
    // A build that the table does not cover may have the flag.
    let is_sure = severity == Severity::Fatal;
    let known = |spec: &&FlagSpec| version.map_or(spec.removed.is_none(), |version| spec.known_in(version.minor));
    // Of a field that a flag of this release sets, too, that flag is meant.
    let of_field = FLAGS.iter().filter(known).find(|spec| field.is_some() && spec.field == field);
    let field = field.filter(|_| of_field.is_none());
    let near = || nearest(&used.name, FLAGS.iter().filter(known).map(|spec| spec.name)).filter(|_| field.is_none());
    let Some(near) = of_field.map(|spec| spec.name).or_else(near) else {
        // Whether the next word is its value is not known.
        let finding = Finding::new("FL001", severity, at, message)
            .with(at::delete(snapshot, used))
            .by_hand_if(!is_sure || used.value_in_next_word || field.is_some());
        return match field {
            Some(field) => finding.say(format!("Only the configuration file has this setting: {field}")),
            None => finding,
        };
    };
    let finding = Finding::new("FL001", severity, at, format!("{message}. Did you mean --{near}?"));
    Finding { lost_flags: meant(used, near), ..finding }
        .with(at::rename(snapshot, used, format!("--{near}")))
        .by_hand_if(!is_sure)
}

/// The flag that does not reach the kubelet because of a slip in its name.
fn meant(used: &FlagUse, name: &str) -> Vec<String> {
    vec![if used.value.is_empty() { format!("--{name}") } else { format!("--{name}={}", used.value) }]
}

fn too_new(snapshot: &Snapshot, used: &FlagUse, since: Minor) -> Finding {
    let at = at::flag(snapshot, used);
    let version = snapshot.version.as_ref().map_or_else(String::new, |version| format!(" ({version})"));
    let flag = &used.written;
    let message = format!("{flag} exists since {since}: this kubelet{version} {}", exits(used));
    Finding::new("FL001", Severity::Fatal, at, message)
        .with(at::delete(snapshot, used))
        .say(format!("or upgrade the kubelet to {since}"))
}

/// `-cloud-provider=external`, `---x`, `--=x`.
fn not_a_long_flag(snapshot: &Snapshot, used: &FlagUse) -> Finding {
    let at = at::flag(snapshot, used);
    let bare = used.written.trim_start_matches('-');
    let flag = shortened(&used.written);
    let error = match (used.name.starts_with("--"), bare.chars().next()) {
        (false, Some(letter)) => format!("unknown shorthand flag: '{letter}' in {flag}"),
        _ => format!("bad flag syntax: {}", shortened(&used.name)),
    };
    let message = format!("{flag} is not a flag: the kubelet exits with '{error}'");
    let finding = Finding::new("FL001", Severity::Fatal, at.clone(), message);
    if table::find(&bare.replace('_', "-")).is_none() {
        return finding.say_at(&at, format!("delete `{flag}`"));
    }
    Finding { lost_flags: meant(used, bare), ..finding }.with(at::rename(snapshot, used, format!("--{bare}")))
}

/// The user's flags that are removed in some release, with that release.
fn with_removal(snapshot: &Snapshot) -> impl Iterator<Item = (&FlagUse, &'static FlagSpec, Minor)> {
    uses(snapshot).filter_map(|used| Some((used, used.spec?, used.spec?.removed?)))
}

pub(super) fn removed(snapshot: &Snapshot, report: &mut Report) {
    let Some(version) = &snapshot.version else {
        for (used, spec, removed) in with_removal(snapshot).take(MAX_FINDINGS) {
            if removed > OLDEST_SUPPORTED {
                report.not_checked("FL002", "the kubelet's version");
                continue;
            }
            let at = at::flag(snapshot, used);
            let message = format!(
                "{} was removed in {removed}: every kubelet that is supported {}. The version of this one is not known",
                used.written,
                exits(used)
            );
            let severity = if removed <= *RELEASES.start() { Severity::Fatal } else { Severity::Error };
            report.add(
                Finding::new("FL002", severity, at, message).remedy(delete(snapshot, used, spec)).by_hand_if(true),
            );
        }
        return;
    };
    let gone = with_removal(snapshot).filter(|(_, _, removed)| *removed <= version.minor);
    for (used, spec, removed) in gone.take(MAX_FINDINGS) {
        let at = at::flag(snapshot, used);
        let message = format!("{} was removed in {removed}: this kubelet ({version}) {}", used.written, exits(used));
        report.add(Finding::new("FL002", Severity::Fatal, at, message).remedy(delete(snapshot, used, spec)));
    }
}

fn delete(snapshot: &Snapshot, used: &FlagUse, spec: &FlagSpec) -> Vec<Step> {
    let mut steps = vec![at::delete(snapshot, used)];
    steps.extend(match spec.instead.unwrap_or("nothing") {
        "nothing" => None,
        text => Some(Step::say(match text.strip_prefix("nothing: ") {
            Some(why) => format!("Nothing takes its place ({why})"),
            None => format!("Use instead: {text}"),
        })),
    });
    let is_kubeadms = steps[0].at().is_some_and(|at| at.file.ends_with("kubeadm-flags.env"));
    steps.extend(is_kubeadms.then(|| Step::say("Only on join and upgrade kubeadm writes this file")));
    steps
}

pub(super) fn removed_soon(snapshot: &Snapshot, report: &mut Report) {
    let version = snapshot.version.as_ref();
    let is_going = |removed: Minor| version.map_or(removed > OLDEST_SUPPORTED, |version| version.minor < removed);
    let going = with_removal(snapshot).filter(|(_, _, removed)| is_going(*removed));
    for (used, spec, removed) in going.take(MAX_FINDINGS) {
        let at = at::flag(snapshot, used);
        let flag = &used.written;
        let is_next = version.is_some_and(|version| removed.0 == version.minor.0 + 1);
        let severity = if is_next { Severity::Warning } else { Severity::Info };
        let now = version.map_or_else(
            || "The version of this kubelet is not known".to_owned(),
            |version| format!("This kubelet ({version}) still takes it"),
        );
        let message = format!("{flag} is removed in {removed}: from {removed} on the kubelet {}. {now}", exits(used));
        // No edit: until then the flag has its effect.
        let finding = Finding::new("FL003", severity, at, message).say("before the upgrade");
        report.add(finding.remedy(delete(snapshot, used, spec)).by_hand_if(true));
    }
}

#[cfg(test)]
mod tests;
