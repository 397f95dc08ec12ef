//! The flags over everything else: scalars replace, lists and maps replace at their first use and then grow, feature
//! gates merge per key (`kubeletConfigFlagPrecedence` in `cmd/kubelet/app/server.go`).

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::{Effective, From, Settings};
use crate::kubelet::flags::{CommandLine, FlagUse, Repeat, ValueKind};
use crate::kubelet::version::Version;

/// Lays the flags' values over the rest. A value that the kubelet refuses, and a flag that it does not know, set nothing.
pub(super) fn lay_over(settings: &mut Settings, line: &CommandLine, version: Option<&Version>) {
    let mut touched = HashSet::new();
    for used in &line.uses {
        let Some(spec) = used.spec else { continue };
        if version.is_some_and(|version| !spec.known_in(version.minor)) {
            continue;
        }
        let Some(value) = spec.value.read(&used.value) else { continue };
        // pflag takes an empty address and sets nothing.
        if spec.value == ValueKind::Ip && used.value.is_empty() {
            continue;
        }
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
        settings.0.insert(path, joined(before, value, used));
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
            list.into()
        }
        (Value::Object(mut map), Value::Object(more)) => {
            map.extend(more);
            map.into()
        }
        (_, value) => value,
    };
    Effective { value, from, keys }
}
