//! CF007: values that the kubelet refuses once it has decoded them.
//!
//! Read from `ValidateKubeletConfiguration` of Kubernetes 1.36.3
//! (`pkg/kubelet/apis/config/validation/validation.go`); of the checks that depend on feature gates none is made
//! here. The kubelet 1.36.3 refused each of these; a soft threshold without grace period it refuses later, in
//! `pkg/kubelet/eviction/helpers.go`.

use super::{
    super::{Finding, Report, Severity, at, settings},
    edits, restart,
};
use crate::{
    edit::Change,
    kubelet::{effective::From, flags::duration_nanos, location::Location, snapshot::Snapshot, text::shortened},
};

/// Whole numbers, with the least and the greatest that are taken.
const RANGES: &[(&str, i64, i64)] = &[
    ("eventBurst", 0, i64::MAX),
    ("eventRecordQPS", 0, i64::MAX),
    ("healthzPort", 0, 65535),
    ("imageGCHighThresholdPercent", 0, 100),
    ("imageGCLowThresholdPercent", 0, 100),
    ("iptablesDropBit", 0, 31),
    ("iptablesMasqueradeBit", 0, 31),
    ("kubeAPIBurst", 0, i64::MAX),
    ("kubeAPIQPS", 0, i64::MAX),
    ("maxOpenFiles", 0, i64::MAX),
    ("maxParallelImagePulls", 1, i64::MAX),
    ("maxPods", 0, i64::MAX),
    ("nodeLeaseDurationSeconds", 1, i64::MAX),
    ("nodeStatusMaxImages", -1, i64::MAX),
    ("oomScoreAdj", -1000, 1000),
    ("podsPerCore", 0, i64::MAX),
    ("port", 1, 65535),
    ("readOnlyPort", 0, 65535),
    ("registryBurst", 0, i64::MAX),
    ("registryPullQPS", 0, i64::MAX),
];

/// Texts, with those that are taken.
const WORDS: &[(&str, &[&str])] = &[
    ("hairpinMode", &["promiscuous-bridge", "hairpin-veth", "none"]),
    ("topologyManagerPolicy", &["none", "best-effort", "restricted", "single-numa-node"]),
    ("topologyManagerScope", &["container", "pod"]),
];

const SECOND: i64 = 1_000_000_000;

/// CF007.
pub(super) fn invalid(snapshot: &Snapshot, report: &mut Report) {
    if !settings::are_known(snapshot) {
        return report.not_checked("CF007", settings::COMMAND);
    }
    let mut refuse = |path: &str, why: String, right: &str| {
        report.add(refused(snapshot, path, &format!("{path} {why}")).fix(format!(
            "at {}: write {right}, then {}",
            settings::place(snapshot, path),
            restart(snapshot)
        )));
    };
    for (path, least, most) in RANGES {
        let Some(value) = snapshot.settings.int(path).filter(|value| value < least || value > most) else {
            continue;
        };
        let range = if *most == i64::MAX { format!("{least} or more") } else { format!("{least} to {most}") };
        refuse(path, format!("is {value}, and the kubelet takes {range}"), &format!("a value of {range}"));
    }
    for (path, taken) in WORDS {
        if let Some(text) = snapshot.settings.text(path).filter(|text| !taken.contains(text)) {
            let words = taken.join(", ");
            let why = format!("is '{}', and the kubelet takes one of {words}", shortened(text));
            refuse(path, why, &format!("one of {words}"));
        }
    }
    contradictions(snapshot, &mut refuse);
    periods(snapshot, &mut refuse);
    report.findings.extend(image_thresholds(snapshot));
}

fn refused(snapshot: &Snapshot, path: &str, message: &str) -> Finding {
    let at = settings::place(snapshot, path);
    Finding::new("CF007", Severity::Fatal, at, format!("{message}: the kubelet exits"))
}

/// Settings that contradict one another.
fn contradictions(snapshot: &Snapshot, refuse: &mut impl FnMut(&str, String, &str)) {
    let settings = &snapshot.settings;
    if settings.bool("serializeImagePulls") == Some(true)
        && let Some(pulls) = settings.int("maxParallelImagePulls").filter(|pulls| *pulls > 1)
    {
        let why = format!("is {pulls}, but serializeImagePulls is true, so that one image is pulled at a time");
        let serial = settings::written(snapshot, "serializeImagePulls", "serializeImagePulls", "false");
        let right = format!("{serial} as well, or maxParallelImagePulls: 1");
        refuse("maxParallelImagePulls", why, &right);
    }
    if settings.bool("runOnce") == Some(true) {
        let right = settings::written(snapshot, "runOnce", "runOnce", "false");
        refuse("runOnce", "is true, which the kubelet no longer supports".to_owned(), &right);
    }
    if settings.text("systemCgroups").is_some() && settings.text("cgroupRoot").is_none() {
        let root = settings::name(snapshot, "cgroupRoot", "systemCgroups");
        refuse("systemCgroups", "is set, but cgroupRoot is not".to_owned(), &format!("{root} as well"));
    }
    let grace = settings.map("evictionSoftGracePeriod");
    for signal in settings.map("evictionSoft").keys().filter(|signal| !grace.contains_key(*signal)) {
        let signal = shortened(signal);
        let why = format!("has {signal}, but evictionSoftGracePeriod has no period for it");
        let periods = settings::name(snapshot, "evictionSoftGracePeriod", "evictionSoft");
        refuse("evictionSoft", why, &format!("a period for {signal} to {periods}"));
    }
    let levels = settings.list("enforceNodeAllocatable");
    if levels.contains(&"none") && levels.len() > 1 {
        refuse("enforceNodeAllocatable", "has none beside others".to_owned(), "none alone, or the others alone");
    }
}

/// The two periods of a graceful shutdown.
fn periods(snapshot: &Snapshot, refuse: &mut impl FnMut(&str, String, &str)) {
    let period = |path: &str| snapshot.settings.text(path).and_then(duration_nanos).unwrap_or(0);
    let (all, critical) = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods");
    for path in [all, critical] {
        if period(path) < 0 || (1..SECOND).contains(&period(path)) {
            refuse(
                path,
                format!("is {}, and the kubelet takes 0 or at least 1s", value(snapshot, path)),
                "at least 1s",
            );
        }
    }
    if period(critical) > period(all) {
        let why = format!("is {}, which is longer than {all}, {}", value(snapshot, critical), value(snapshot, all));
        refuse(critical, why, &format!("a period that is not longer than {all}"));
    }
}

/// A setting's value, and whether it is the default.
fn value(snapshot: &Snapshot, path: &str) -> String {
    let value = snapshot.settings.get(path).map_or(serde_json::Value::Null, |setting| setting.value.clone());
    let value = value.as_str().map_or_else(|| value.to_string(), shortened);
    if settings::is_default(snapshot, path) { format!("{value} (the default)") } else { value }
}

/// The threshold down to which images are deleted must be below the one from which they are.
fn image_thresholds(snapshot: &Snapshot) -> Option<Finding> {
    let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
    let most = snapshot.settings.int(high).filter(|most| snapshot.settings.int(low) >= Some(*most))?;
    let message =
        format!("{low} is {} and must be less than {high}, which is {}", value(snapshot, low), value(snapshot, high));
    let (has_low, has_high) = (!settings::is_default(snapshot, low), !settings::is_default(snapshot, high));
    let path = if has_low { low } else { high };
    let at = settings::place(snapshot, path);
    let finding = refused(snapshot, path, &message);
    let then = restart(snapshot);
    let (fix, edit) = match (has_low, has_high) {
        (false, true) if most > 0 => {
            let right = (most - 5).clamp(0, 50);
            let edit = add_low_threshold(snapshot, &at, right);
            let written = settings::written(snapshot, low, high, &right.to_string());
            (format!("at {at}: write {written} as well, or any value below {most}, then {then}"), edit)
        }
        (true, false) => {
            let edits = match snapshot.settings.get(low).map(|setting| &setting.from) {
                Some(From::Flag(_)) => {
                    let used = snapshot.flags.last("image-gc-low-threshold");
                    used.and_then(|used| at::deletion(snapshot, used)).into_iter().collect()
                }
                _ => edits::deletion(snapshot, &at),
            };
            (
                format!(
                    "at {at}: delete {}, which is 80 by default, or write a value below {most}, then {then}",
                    settings::name(snapshot, low, low)
                ),
                edits,
            )
        }
        _ => {
            let (low, high) = (settings::name(snapshot, low, low), settings::name(snapshot, high, high));
            (format!("at {at}: write a {low} below {most}, or a higher {high}, then {then}"), Vec::new())
        }
    };
    Some(finding.fix(fix).edits(edit))
}

/// Writes the low threshold beside the high one, in the file or as a flag.
fn add_low_threshold(snapshot: &Snapshot, at: &Location, value: i64) -> Vec<(Location, Change)> {
    let edit = match snapshot.settings.get("imageGCHighThresholdPercent").map(|setting| &setting.from) {
        Some(From::Flag(_)) => {
            let used = snapshot.flags.last("image-gc-high-threshold");
            let name = used.and_then(|used| at::name(snapshot, used));
            name.map(|at| (at.at(at.line, at.column, 0), Change::Text(format!("--image-gc-low-threshold={value} "))))
        }
        _ => edits::addition(snapshot, at, "imageGCLowThresholdPercent", &value.to_string()),
    };
    edit.into_iter().collect()
}
