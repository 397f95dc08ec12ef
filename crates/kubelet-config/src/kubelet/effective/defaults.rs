//! The value of a setting that is not set: it depends on the version, and on whether `--config` is given.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Effective, From};
use crate::kubelet::config::fields::{FIELDS, Field, FieldDefault, Kind};
use crate::kubelet::version::Version;

/// Values that older releases had by default: up to which one, field, value. From the change logs of 1.27
/// (kubernetes/kubernetes#116121) and 1.35 (#134298), and from the feature gates of `pkg/features/kube_features.go` 1.36.3, and `defaults.go` 1.37.2.
const BEFORE: &[(u16, &str, Option<&str>)] = &[
    (27, "eventBurst", Some("10")),
    (27, "eventRecordQPS", Some("5")),
    (27, "kubeAPIBurst", Some("10")),
    (27, "kubeAPIQPS", Some("5")),
    (35, "failCgroupV1", Some("false")),
    (35, "crashLoopBackOff.maxContainerRestartPeriod", None),
    (35, "imagePullCredentialsVerificationPolicy", None),
    (37, "memoryThrottlingFactor", Some("0.9")),
];

/// What a kubelet without `--config` has instead: `applyLegacyDefaults` in `cmd/kubelet/app/options/options.go`. Its
/// eviction thresholds are set by `loadConfigFile` alone.
const LEGACY: &[(&str, &str)] = &[
    ("authentication.anonymous.enabled", "true"),
    ("authentication.webhook.enabled", "false"),
    ("authorization.mode", "\"AlwaysAllow\""),
    ("evictionHard", "{}"),
    ("readOnlyPort", "10255"),
];

/// Flags without a field that have a default: `cmd/kubelet/app/options/options.go`.
const FLAGS: &[(&str, &str)] = &[("--cert-dir", "\"/var/lib/kubelet/pki\""), ("--root-dir", "\"/var/lib/kubelet\"")];

pub(super) fn defaults(config_given: bool, version: Option<&Version>) -> BTreeMap<String, Effective> {
    // Before it was a field, it was a flag with the same default.
    let is_known = |field: &&Field| field.is_known_in(version) || field.path == "containerRuntimeEndpoint";
    let fields = FIELDS.iter().filter(|field| is_setting(field)).filter(is_known);
    let by_default = |value, legacy| Effective::new(value, From::Default { legacy });
    let of_fields = fields.filter_map(|field| Some((field.path, by_default(of_field(field, version)?, false))));
    let of_flags = FLAGS.iter().map(|(flag, value)| (*flag, by_default(parse(value), false)));
    let legacy = LEGACY.iter().filter(|_| !config_given).map(|(path, value)| (*path, by_default(parse(value), true)));
    of_fields.chain(of_flags).chain(legacy).map(|(path, setting)| (path.to_owned(), setting)).collect()
}

/// Whether a field holds a value of its own, and is not a structure or a part of a list.
pub(super) fn is_setting(field: &Field) -> bool {
    field.kind != Kind::Object && !field.path.contains('[') && !matches!(field.path, "kind" | "apiVersion")
}

fn of_field(field: &Field, version: Option<&Version>) -> Option<Value> {
    let earlier = BEFORE
        .iter()
        .find(|(until, path, _)| *path == field.path && version.is_some_and(|version| version.minor.0 < *until));
    if let Some((_, _, value)) = earlier {
        return value.map(parse);
    }
    let (FieldDefault::IfAbsent(value) | FieldDefault::UnlessZero(value)) = field.default;
    Some(parse(value)).filter(|value| !value.is_null())
}

/// Whether Go takes the value for an unset one where the field is no pointer.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        _ => false,
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
