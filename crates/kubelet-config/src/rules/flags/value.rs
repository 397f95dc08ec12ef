//! FL004: values that the kubelet does not take.

use super::uses;
use crate::kubelet::flags::{FlagSpec, table};
use crate::kubelet::machine::{ClientCredential, FileState, Kubeconfig};
use crate::kubelet::systemd::EventKind;
use crate::rules::lost::{as_written, whole};
use crate::rules::{Finding, FlagUse, Report, Severity, Snapshot, at, flags_in, shortened};

/// A flag that begins within a value, where no space is: `a,--name=b`.
fn joined(value: &str) -> Option<&str> {
    let mut starts = value.match_indices("--").filter(|(start, _)| *start > 0);
    starts.find_map(|(start, _)| {
        let (name, _) = value[start + 2..].split_once('=')?;
        table::find(name).map(|_| &value[start..])
    })
}

/// Whether systemd has joined it to what a quote closes: SD014 tells.
fn is_after_quote(snapshot: &Snapshot, text: &str) -> bool {
    let mut events = snapshot.unit.events.iter();
    events.any(|event| matches!(event.kind, EventKind::EnvTextAfterQuote) && event.text.starts_with(text))
}

/// How bad it is that what a flag names is not there, of the flags of which no other rule tells.
fn without_it(snapshot: &Snapshot, used: &FlagUse) -> Option<Severity> {
    let bootstraps = || snapshot.flags.uses.iter().any(|other| other.name == "bootstrap-kubeconfig");
    let exits = match used.name.as_str() {
        "config" | "image-credential-provider-bin-dir" | "image-credential-provider-config" => true,
        // It creates a directory, but exits with a path that is not absolute.
        "root-dir" => !used.value.starts_with('/'),
        "kubeconfig" => !bootstraps(),
        // It asks for a certificate unless it has one (AU001).
        "bootstrap-kubeconfig" => {
            let has_certificate = |found: &Kubeconfig| {
                let is_certificate = !matches!(found.credential, ClientCredential::Token | ClientCredential::Exec);
                is_certificate && found.missing_files.is_empty()
            };
            match &snapshot.machine.kubeconfig {
                // A standalone kubelet asks for none.
                FileState::NotAsked => false,
                FileState::Present(found) => !has_certificate(found),
                _ => true,
            }
        }
        "cert-dir" | "provider-id" => false,
        _ => return None,
    };
    Some(if exits { Severity::Fatal } else { Severity::Error })
}

pub(in crate::rules) fn bad_value(snapshot: &Snapshot, report: &mut Report) {
    let minor = snapshot.version.as_ref().map(|version| version.minor);
    for used in uses(snapshot) {
        // A flag that this release does not know is FL001's or FL002's.
        let known = |spec: &&FlagSpec| minor.is_none_or(|minor| spec.known_in(minor));
        let Some(spec) = used.spec.filter(known) else { continue };
        let (flag, value) = (&used.written, shortened(&used.value));
        let at = at::value_part(snapshot, used, 0, used.value.len());
        let (form, example) = spec.value.form();
        let (severity, message, fix) = if !spec.value.takes(&used.value) {
            let fix = format!("write {form}, for example `{flag}={example}`,");
            let why = as_written(snapshot, &used.value).map(|why| format!(". {why}")).unwrap_or_default();
            (Severity::Fatal, format!("the kubelet exits because of {flag}='{value}': the flag takes {form}{why}"), fix)
        } else if used.value_in_next_word && names_a_flag(&used.value) {
            let message = format!("{flag} has no value: the kubelet takes '{value}' as its value and not as a flag");
            (Severity::Error, message, format!("write {flag}=VALUE, or delete {flag},"))
        } else if let Some(rest) = used.value.strip_prefix('=') {
            let message = format!("{flag} has two equals signs: the second one is a part of its value, {value}");
            let finding = Finding::new("FL004", without_it(snapshot, used).unwrap_or(Severity::Error), at, message);
            report.add(finding.with(at::set_value(snapshot, used, rest)));
            continue;
        } else if let Some((why, severity)) = as_written(snapshot, &used.value).zip(without_it(snapshot, used)) {
            let message = format!("{flag} is '{value}', as it is written: {why}");
            (severity, message, "write the value out".to_owned())
        } else if let Some(flag) =
            flags_in(&used.value).first().filter(|found| found.offset > 0 && !in_braces(snapshot, used))
        {
            let message = format!(
                "{} takes all of '{value}' as its value: a quote inside the quotes of the file makes {} a part of it",
                used.written, flag.text
            );
            (Severity::Error, message, "delete the inner quotes".to_owned())
        } else if let Some(next) =
            joined(&used.value).filter(|next| !in_braces(snapshot, used) && !is_after_quote(snapshot, next))
        {
            let message = format!("{flag} takes all of '{value}' as its value: no space is before {}", shortened(next));
            (Severity::Error, message, "write a space, and nothing else, between the two flags".to_owned())
        } else {
            continue;
        };
        let spaced = flags_in(&used.value);
        let joined = joined(&used.value).filter(|_| spaced.is_empty()).map(str::to_owned);
        // What braces swallow SD006 names.
        let lost = spaced.iter().map(whole).chain(joined).filter(|_| !in_braces(snapshot, used));
        let lost_flags = lost.collect();
        let finding = Finding::new("FL004", severity, at.clone(), message).say_at(&at, fix);
        report.add(Finding { lost_flags, ..finding });
    }
    let last = snapshot.flags.lacks_value.as_ref();
    if let Some(used) = last.filter(|used| !at::is_built_in(snapshot, used.word)) {
        let example = used.spec.map_or("text", |spec| spec.value.form().1);
        let (flag, at) = (&used.written, at::flag(snapshot, used));
        let message = format!(
            "{flag} is the last argument and has no value: the kubelet exits with 'flag needs an argument: {flag}'"
        );
        let fix = format!("write {flag}={example}, or delete {flag},");
        report.add(Finding::new("FL004", Severity::Fatal, at.clone(), message).say_at(&at, fix));
    }
}

/// Whether the value comes by `${VAR}`, of which SD006 tells, or is a label, which is judged as one.
fn in_braces(snapshot: &Snapshot, used: &FlagUse) -> bool {
    let word = at::word(snapshot, used, usize::from(used.value_in_next_word));
    used.name == "node-labels" || word.is_some_and(|word| word.origins.iter().any(|origin| origin.braces))
}

/// Whether a word is another flag: its name is one, or has its two dashes.
fn names_a_flag(value: &str) -> bool {
    value.strip_prefix("--").is_some_and(|rest| {
        let name = rest.split('=').next().unwrap_or_default();
        table::find(&name.replace('_', "-")).is_some()
    })
}
