//! CF007: values that the kubelet refuses once it has decoded them. One checker a setting, whatever file or flag sets it:
//! ranges and words (`limits.txt`), values of a form of their own (`values`), and settings that exclude each other
//! (`pairs`). The kubelet 1.36.3 refused each of these.

use crate::kubelet::flags::duration_nanos;
use crate::kubelet::gates;
use crate::kubelet::table::rows;
use crate::kubelet::text::nearest;
use crate::rules::{Finding, From, Severity, Snapshot, remedy, settings};

/// What the kubelet takes for each setting, `0..100` or `one|other`, and the gate without which it does not look.
pub(super) const LIMITS: &str = include_str!("limits.txt");

/// The settings that are out of their range.
pub(super) fn out_of_ranges(snapshot: &Snapshot) -> Vec<Finding> {
    let mut said = "";
    let mut findings = Vec::new();
    for [path, taken, gate] in rows(LIMITS) {
        let looks = path != said && (gate == "-" || is_on(snapshot, gate) == Some(true));
        if looks && !is_built_in(snapshot, path) && !is_taken(snapshot, path, taken) {
            said = path;
            findings.push(out_of_range(snapshot, path, taken));
        }
    }
    findings
}

/// Whether a feature gate is on; `None` where that is not known.
pub(super) fn is_on(snapshot: &Snapshot, gate: &str) -> Option<bool> {
    gates::is_on(gate, &snapshot.settings, snapshot.version.as_ref())
}

/// Whether the distribution sets it: no file of the user is to blame.
pub(super) fn is_built_in(snapshot: &Snapshot, path: &str) -> bool {
    match settings::from(snapshot, path) {
        Some(From::Flag(_)) => {
            let used = snapshot.flags.last(settings::flag_of(path).unwrap_or_else(|| path.trim_start_matches('-')));
            used.is_some_and(|used| crate::rules::at::is_built_in(snapshot, used.word))
        }
        Some(From::File(at)) => super::are_written_by_distribution(snapshot, at),
        _ => false,
    }
}

fn is_taken(snapshot: &Snapshot, path: &str, taken: &str) -> bool {
    let Some((least, most)) = taken.split_once("..") else {
        // In a file an empty text counts as none.
        let set = snapshot.settings.get(path).filter(|_| !settings::is_default(snapshot, path));
        let text = set.and_then(|set| set.value.as_str());
        return text.is_none_or(|text| taken.split('|').any(|word| word == text));
    };
    let bound = |text: &str| text.parse::<i64>().ok().or_else(|| duration_nanos(text));
    let settings = &snapshot.settings;
    let value = settings.int(path).or_else(|| settings.text(path).and_then(duration_nanos));
    value.is_none_or(|value| {
        bound(least).is_none_or(|least| value >= least) && bound(most).is_none_or(|most| value <= most)
    })
}

fn out_of_range(snapshot: &Snapshot, path: &'static str, taken: &'static str) -> Finding {
    let is_words = !taken.contains("..");
    let wanted = match taken.strip_suffix("..") {
        Some("1ns") => "a period longer than 0".to_owned(),
        Some(least) => format!("{least} or more"),
        None => taken.trim_end_matches('|').replace("..", " to ").replace('|', " or "),
    };
    let finding =
        refused(snapshot, path, &format!("{}, but the kubelet takes {wanted}", settings::shown(snapshot, path)));
    let meant = snapshot.settings.text(path).filter(|_| is_words).and_then(|text| nearest(text, taken.split('|')));
    let at = settings::place(snapshot, path);
    match meant {
        // With it any client may do everything.
        Some("AlwaysAllow") => finding.say_at(&at, "write Webhook, with which the API server decides,"),
        // By itself it is an exit as well.
        Some("Static") => finding.say_at(&at, "write Static, with the reservedMemory that it needs,"),
        Some("static") => finding.say_at(&at, "write static, with a reservation of CPUs,"),
        Some(meant) => finding.remedy(remedy::set(snapshot, path, meant)),
        None => finding.say_at(&at, format!("write a value of {wanted}")),
    }
}

/// A value that the kubelet refuses.
pub(super) fn refused(snapshot: &Snapshot, path: &str, message: &str) -> Finding {
    let at = settings::place(snapshot, path);
    Finding::new("CF007", Severity::Fatal, at, format!("{message}: the kubelet exits"))
}
