//! CF007: values that the kubelet refuses once it has decoded them.
//!
//! Read from `ValidateKubeletConfiguration` of Kubernetes 1.36.3
//! (`pkg/kubelet/apis/config/validation/validation.go`); of the checks that depend on feature gates none is made
//! here. The kubelet 1.36.3 refused each of these; a soft threshold without grace period it refuses later, in
//! `pkg/kubelet/eviction/helpers.go`.

use super::super::{Finding, Report, Severity, settings};
use crate::kubelet::{flags::duration_nanos, snapshot::Snapshot};

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
    let mut refuse = |path: &str, why: String| {
        let at = settings::place(snapshot, path);
        report.add(
            Finding::new("CF007", Severity::Fatal, at.clone(), format!("{path} {why}: the kubelet exits"))
                .fix(format!("{at}: correct {path}, then systemctl restart {}", snapshot.unit.name)),
        );
    };
    for (path, least, most) in RANGES {
        let Some(value) = snapshot.settings.int(path) else {
            continue;
        };
        if value < *least {
            refuse(path, format!("is {value}, and must be {least} or more"));
        } else if value > *most {
            refuse(path, format!("is {value}, and must be {most} or less"));
        }
    }
    for (path, taken) in WORDS {
        if let Some(text) = snapshot.settings.text(path)
            && !taken.contains(&text)
        {
            let shown: String = text.chars().take(40).collect();
            refuse(path, format!("is {shown}, and must be one of {}", taken.join(", ")));
        }
    }
    pairs(snapshot, &mut refuse);
}

/// Settings that contradict one another.
fn pairs(snapshot: &Snapshot, refuse: &mut impl FnMut(&str, String)) {
    let settings = &snapshot.settings;
    let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
    if let (Some(low_value), Some(high_value)) = (settings.int(low), settings.int(high))
        && low_value >= high_value
    {
        let path = if settings::is_default(snapshot, low) { high } else { low };
        refuse(path, format!("does not fit: {low} {low_value} must be less than {high} {high_value}"));
    }
    if settings.bool("serializeImagePulls") == Some(true)
        && settings.int("maxParallelImagePulls").is_some_and(|n| n > 1)
    {
        refuse("maxParallelImagePulls", "is more than 1, and serializeImagePulls is true".to_owned());
    }
    if settings.bool("runOnce") == Some(true) {
        refuse("runOnce", "is true, which no kubelet takes any more".to_owned());
    }
    if settings.text("systemCgroups").is_some() && settings.text("cgroupRoot").is_none() {
        refuse("systemCgroups", "is set, and cgroupRoot is not".to_owned());
    }
    periods(snapshot, refuse);
    let grace = settings.map("evictionSoftGracePeriod");
    for signal in settings.map("evictionSoft").keys() {
        if !grace.contains_key(signal) {
            let signal: String = signal.chars().take(40).collect();
            refuse("evictionSoft", format!("has {signal}, and evictionSoftGracePeriod has not"));
        }
    }
    let levels = settings.list("enforceNodeAllocatable");
    if levels.contains(&"none") && levels.len() > 1 {
        refuse("enforceNodeAllocatable", "has none beside others".to_owned());
    }
}

/// The two periods of a graceful shutdown.
fn periods(snapshot: &Snapshot, refuse: &mut impl FnMut(&str, String)) {
    let settings = &snapshot.settings;
    let period = |path: &str| settings.text(path).and_then(|text| duration_nanos(text).ok()).unwrap_or(0);
    let (all, critical) = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods");
    for path in [all, critical] {
        if period(path) < 0 || (1..SECOND).contains(&period(path)) {
            refuse(path, "must be 0 or at least 1s".to_owned());
        }
    }
    if period(critical) > period(all) {
        refuse(critical, format!("is longer than {all}"));
    }
}
