//! The value of a setting that is not set: it depends on the version, and on whether `--config` is given.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Effective, From};
use crate::kubelet::config::fields::{FIELDS, Field, FieldDefault, Kind};
use crate::kubelet::table::{given, minor, rows};
use crate::kubelet::version::Version;

/// Other values than those of the newest release: up to which one, or `legacy` without `--config`, field, value.
const OTHERS: &str = include_str!("defaults.txt");

/// Flags without a field that have a default: `cmd/kubelet/app/options/options.go`.
const FLAGS: &[(&str, &str)] = &[("--cert-dir", "\"/var/lib/kubelet/pki\""), ("--root-dir", "\"/var/lib/kubelet\"")];

pub(super) fn defaults(config_given: bool, version: Option<&Version>) -> BTreeMap<String, Effective> {
    let fields = FIELDS.iter().filter(|field| is_setting(field) && field.is_known_in(version));
    let by_default = |value, legacy| Effective::new(value, From::Default { legacy });
    let of_fields = fields.filter_map(|field| Some((field.path, by_default(of_field(field, version)?, false))));
    let of_flags = FLAGS.iter().map(|(flag, value)| (*flag, by_default(parse(value), false)));
    let legacy = rows(OTHERS).filter(|[until, _, _]| *until == "legacy" && !config_given);
    let legacy = legacy.map(|[_, path, value]| (path, by_default(parse(value), true)));
    of_fields.chain(of_flags).chain(legacy).map(|(path, setting)| (path.to_owned(), setting)).collect()
}

/// Whether a field holds a value of its own, and is not a structure or a part of a list.
pub(super) fn is_setting(field: &Field) -> bool {
    field.kind != Kind::Object && !field.path.contains('[') && !matches!(field.path, "kind" | "apiVersion")
}

fn of_field(field: &Field, version: Option<&Version>) -> Option<Value> {
    let is_before = |until| minor(until).is_some_and(|until| version.is_some_and(|version| version.minor < until));
    if let Some([_, _, value]) = rows(OTHERS).find(|[until, path, _]| *path == field.path && is_before(until)) {
        return given(value).map(parse);
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
