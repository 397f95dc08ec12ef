//! CF007: values that the kubelet refuses once it has decoded them.
//!
//! Read from `ValidateKubeletConfiguration` of Kubernetes 1.36.3
//! (`pkg/kubelet/apis/config/validation/validation.go`); of the checks that depend on feature gates none is made
//! here. The kubelet 1.36.3 refused each of these; a soft threshold without grace period it refuses later, in
//! `pkg/kubelet/eviction/helpers.go`.

use crate::kubelet::flags::duration_nanos;
use crate::kubelet::snapshot::Snapshot;
use crate::kubelet::table::rows;
use crate::kubelet::text::shortened;
use crate::rules::{Finding, Report, Severity, settings};

/// What the kubelet takes for each setting, `0..100` or `one|other`.
pub(super) const LIMITS: &str = include_str!("limits.txt");

const SECOND: i64 = 1_000_000_000;

/// CF007.
pub(in crate::rules) fn invalid(snapshot: &Snapshot, report: &mut Report) {
    let mut refuse = |path: &str, message: String, right: &str| {
        let at = settings::place(snapshot, path);
        report.add(
            refused(snapshot, path, &message)
                .fix(format!("write {right} at {at}, then {}", settings::restart(snapshot, &at))),
        );
    };
    for [path, taken] in rows(LIMITS).filter(|[path, taken]| !is_taken(snapshot, path, taken)) {
        let taken = match taken.strip_suffix("..") {
            Some(least) => format!("{least} or more"),
            None => taken.replace("..", " to ").replace('|', " or "),
        };
        let message = format!("{}, but the kubelet takes {taken}", settings::shown(snapshot, path));
        refuse(path, message, &format!("a value of {taken}"));
    }
    contradictions(snapshot, &mut refuse);
    periods(snapshot, &mut refuse);
    report.findings.extend(run_once(snapshot).into_iter().chain(image_thresholds(snapshot)));
}

fn is_taken(snapshot: &Snapshot, path: &str, taken: &str) -> bool {
    let settings = &snapshot.settings;
    let is_in = |value: i64, least: &str, most: &str| {
        least.parse().is_ok_and(|least| value >= least) && most.parse().map_or(true, |most| value <= most)
    };
    match taken.split_once("..") {
        Some((least, most)) => settings.int(path).is_none_or(|value| is_in(value, least, most)),
        None => settings.text(path).is_none_or(|text| taken.split('|').any(|word| word == text)),
    }
}

fn refused(snapshot: &Snapshot, path: &str, message: &str) -> Finding {
    let at = settings::place(snapshot, path);
    Finding::new("CF007", Severity::Fatal, at, format!("{message}: the kubelet exits"))
}

/// Settings that contradict one another.
fn contradictions(snapshot: &Snapshot, refuse: &mut impl FnMut(&str, String, &str)) {
    let settings = &snapshot.settings;
    let pulls = settings.int("maxParallelImagePulls").filter(|pulls| *pulls > 1);
    if let Some(pulls) = pulls.filter(|_| settings.bool("serializeImagePulls") == Some(true)) {
        let serial = settings::shown(snapshot, "serializeImagePulls");
        let message = format!("maxParallelImagePulls is {pulls}, but {serial} and allows one image at a time");
        let serial = settings::name(snapshot, "serializeImagePulls", "serializeImagePulls");
        refuse("maxParallelImagePulls", message, &format!("false for {serial}, or maxParallelImagePulls: 1"));
    }
    if settings.text("systemCgroups").is_some() && settings.text("cgroupRoot").is_none() {
        let root = settings::name(snapshot, "cgroupRoot", "systemCgroups");
        let right = format!("{root} as well, or delete systemCgroups");
        refuse("systemCgroups", "systemCgroups is set, but cgroupRoot is not".to_owned(), &right);
    }
    let grace = settings.map("evictionSoftGracePeriod");
    for signal in settings.map("evictionSoft").keys().filter(|signal| !grace.contains_key(*signal)) {
        let signal = shortened(signal);
        let message = format!("evictionSoft has {signal}, but evictionSoftGracePeriod has no period for it");
        let periods = settings::name(snapshot, "evictionSoftGracePeriod", "evictionSoft");
        refuse("evictionSoft", message, &format!("a period for {signal} into {periods}, or delete {signal}"));
    }
    let levels = settings.list("enforceNodeAllocatable");
    if levels.contains(&"none") && levels.len() > 1 {
        let message = "enforceNodeAllocatable has 'none' beside other values".to_owned();
        refuse("enforceNodeAllocatable", message, "either 'none' or the others");
    }
}

/// The two periods of a graceful shutdown.
fn periods(snapshot: &Snapshot, refuse: &mut impl FnMut(&str, String, &str)) {
    let period = |path: &str| snapshot.settings.text(path).and_then(duration_nanos).unwrap_or(0);
    let shown = |path: &str| settings::shown(snapshot, path);
    let (all, critical) = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods");
    for path in [all, critical] {
        if period(path) < 0 || (1..SECOND).contains(&period(path)) {
            refuse(path, format!("{}, but the kubelet takes 0 or at least 1s", shown(path)), "at least 1s");
        }
    }
    if period(critical) > period(all) {
        let message = format!("{}, but {} and must not be shorter", shown(critical), shown(all));
        refuse(critical, message, &format!("{all}'s value or less"));
    }
}

fn run_once(snapshot: &Snapshot) -> Option<Finding> {
    snapshot.settings.bool("runOnce").filter(|is_on| *is_on)?;
    let finding = refused(snapshot, "runOnce", "runOnce is true, which the kubelet no longer supports");
    Some(settings::set(finding, snapshot, "runOnce", "false"))
}

/// The threshold down to which images are deleted must be below the one from which they are.
fn image_thresholds(snapshot: &Snapshot) -> Option<Finding> {
    /// The distance of the two by default, 80 and 85.
    const USUAL_DISTANCE: i64 = 5;
    let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
    let most = snapshot.settings.int(high).filter(|most| snapshot.settings.int(low) >= Some(*most))?;
    let (has_low, has_high) = (!settings::is_default(snapshot, low), !settings::is_default(snapshot, high));
    let path = if has_low { low } else { high };
    let message =
        format!("{}, but {} and must be higher", settings::shown(snapshot, low), settings::shown(snapshot, high));
    let finding = refused(snapshot, path, &message);
    // Of two that somebody set it is not known which one is wrong.
    if has_low && has_high || most <= 0 {
        let at = |path| settings::place(snapshot, path);
        let higher = format!("a higher {high} at {}", at(high));
        let what = if most > 0 { format!("a lower {low} at {}, or {higher}", at(low)) } else { higher };
        return Some(finding.fix(format!("write {what}, then {}", settings::restart(snapshot, &at(path)))));
    }
    Some(settings::set(finding, snapshot, low, &(most - USUAL_DISTANCE).max(0).to_string()))
}
