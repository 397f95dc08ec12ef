//! The flags over everything else: scalars replace, lists and maps replace at their first use and then grow, feature
//! gates merge per key (`kubeletConfigFlagPrecedence` in `cmd/kubelet/app/server.go`).

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::{
    super::{
        duration,
        flags::{self, CommandLine, FlagUse, Repeat, ValueKind},
        version::Version,
    },
    Effective, From, Settings,
    files::masked,
};

/// Lays the flags' values over the rest. A value that the kubelet refuses, and a flag that it does not know, set nothing.
pub(super) fn lay_over(settings: &mut Settings, line: &CommandLine, version: Option<&Version>) {
    let mut touched = HashSet::new();
    for used in &line.uses {
        let Some(spec) = used.spec else { continue };
        if version.is_some_and(|version| !spec.known_in(version.minor)) {
            continue;
        }
        let Some(value) = value_of(spec.value, &used.value) else {
            continue;
        };
        let path = spec.field.map_or_else(|| format!("--{}", spec.name), str::to_owned);
        let is_first = touched.insert(spec.name);
        // This flag can only turn the setting on.
        if spec.name == "seccomp-default" && value == json!(false) {
            continue;
        }
        let before = match (spec.repeat, spec.value) {
            (Repeat::LastWins, _) => None,
            (Repeat::Merge, ValueKind::Gates) => settings.0.remove(&path),
            _ => settings.0.remove(&path).filter(|_| !is_first),
        };
        let effective = joined(before, value, used);
        let effective = Effective { value: masked(&path, effective.value), ..effective };
        settings.0.insert(path, effective);
    }
}

fn joined(before: Option<Effective>, value: Value, used: &FlagUse) -> Effective {
    let from = From::Flag(used.at.clone());
    let (before, mut keys) = before.map_or((Value::Null, BTreeMap::new()), |before| (before.value, before.keys));
    if let Value::Object(map) = &value {
        keys.extend(map.keys().map(|key| (key.clone(), from.clone())));
    }
    let value = match (before, value) {
        (Value::Array(mut list), Value::Array(more)) => {
            list.extend(more);
            Value::Array(list)
        }
        (Value::Object(mut map), Value::Object(more)) => {
            for (key, value) in more {
                match (map.get_mut(&key), value) {
                    (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
                    (_, value) => {
                        map.insert(key, value);
                    }
                }
            }
            Value::Object(map)
        }
        (_, value) => value,
    };
    Effective { value, from, keys }
}

/// A flag's value as JSON, in the form of its field.
fn value_of(kind: ValueKind, text: &str) -> Option<Value> {
    if !kind.takes(text) {
        return None;
    }
    Some(match kind {
        ValueKind::Bool => flags::parse_bool(text)?.into(),
        ValueKind::Int32 | ValueKind::Int => flags::parse_int(text, 64)?.into(),
        ValueKind::Uint => text.parse::<u32>().ok()?.into(),
        ValueKind::Duration => duration::normal(text)?.into(),
        ValueKind::Ip if text.is_empty() => return None,
        ValueKind::String | ValueKind::Ip | ValueKind::Quantity | ValueKind::Version => text.into(),
        ValueKind::Strings => flags::csv(text)?.into(),
        ValueKind::Map | ValueKind::OnePair | ValueKind::Labels | ValueKind::Thresholds => {
            map(kind, text, |value| value.into())
        }
        ValueKind::Gates => map(kind, text, |value| flags::parse_bool(value).unwrap_or_default().into()),
        ValueKind::Headers => {
            let mut headers = Map::new();
            for pair in flags::pairs(kind, text) {
                let values = headers.entry(pair.key).or_insert_with(|| json!([]));
                if let Some(values) = values.as_array_mut() {
                    values.push(pair.value.into());
                }
            }
            headers.into()
        }
        ValueKind::Taints => text.split(',').filter_map(taint).collect(),
        ValueKind::ReservedMemory => text.split(';').filter_map(reservation).collect(),
        ValueKind::VModule => text.split(',').filter_map(module).collect(),
    })
}

fn map(kind: ValueKind, text: &str, value: impl Fn(&str) -> Value) -> Value {
    flags::pairs(kind, text)
        .into_iter()
        .map(|pair| (pair.key.to_owned(), value(pair.value)))
        .collect::<Map<_, _>>()
        .into()
}

/// `key=value:Effect`, `key:Effect`, `key=value`.
fn taint(text: &str) -> Option<Value> {
    let (front, effect) = text.split_once(':').unwrap_or((text, ""));
    let (key, value) = front.split_once('=').unwrap_or((front, ""));
    (!key.is_empty()).then(|| json!({"key": key, "value": value, "effect": effect}))
}

/// `0:memory=1Gi,hugepages-1M=2Gi`.
fn reservation(text: &str) -> Option<Value> {
    let (node, limits) = text.split_once(':')?;
    let node: i32 = node.parse().ok()?;
    Some(json!({"numaNode": node, "limits": map(ValueKind::Map, limits, |value| value.into())}))
}

/// `pattern=4`.
fn module(text: &str) -> Option<Value> {
    let (pattern, verbosity) = text.split_once('=')?;
    let verbosity: u32 = verbosity.trim().parse().ok()?;
    Some(json!({"filePattern": pattern.trim(), "verbosity": verbosity}))
}
