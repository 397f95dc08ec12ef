//! The merged configuration over the defaults.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    super::{
        config::{
            Configuration,
            document::{Entry, Node, Value as Written},
            fields::{FIELDS, Field, FieldDefault, Kind},
        },
        duration,
        version::Version,
    },
    Effective, From, Settings, defaults,
};

/// Lays the files' values over the defaults.
pub(super) fn lay_over(settings: &mut Settings, config: &Configuration, version: Option<&Version>) {
    for field in FIELDS.iter().filter(|field| defaults::is_setting(field) && field.is_known_in(version)) {
        let Some(entry) = config.entry(field.path) else {
            continue;
        };
        let effective = written(entry, field);
        let is_unset = matches!(field.default, FieldDefault::UnlessZero(_)) && defaults::is_zero(&effective.value)
            || field.path == "podPidsLimit" && effective.value.as_i64().is_some_and(|n| n < 0);
        if !is_unset && entry.node.value != Written::Null {
            settings.0.insert(field.path.to_owned(), effective);
        }
    }
    eviction_hard(settings, config);
    dependent(settings);
}

fn written(entry: &Entry, field: &Field) -> Effective {
    let keys = entry.node.entries().iter().map(|entry| (entry.key.clone(), From::File(entry.at.clone()))).collect();
    Effective { value: masked(field.path, normal(&entry.node, field.kind)), from: From::File(entry.at.clone()), keys }
}

/// A value in the form in which the kubelet prints it.
fn normal(node: &Node, kind: Kind) -> Value {
    let json = node.to_json();
    match (kind, json.as_str()) {
        (Kind::Duration | Kind::Flexible, Some(text)) => duration::normal(text).map_or(json, Value::from),
        _ => json,
    }
}

/// Headers may hold a password: the kubelet does not log them either.
pub(super) fn masked(path: &str, mut value: Value) -> Value {
    if path == "staticPodURLHeader"
        && let Some(headers) = value.as_object_mut()
    {
        for header in headers.values_mut() {
            *header = json!(["<masked>"]);
        }
    }
    value
}

/// Defaults that follow from another setting: `SetDefaults_KubeletConfiguration`.
fn dependent(settings: &mut Settings) {
    let is_written = |settings: &Settings, path: &str| {
        settings.get(path).is_some_and(|setting| matches!(setting.from, From::File(_)))
    };
    if !is_written(settings, "nodeStatusReportFrequency")
        && is_written(settings, "nodeStatusUpdateFrequency")
        && let Some(update) = settings.get("nodeStatusUpdateFrequency").cloned()
    {
        settings.0.insert("nodeStatusReportFrequency".to_owned(), update);
    }
    if !is_written(settings, "serializeImagePulls")
        && settings.int("maxParallelImagePulls").is_some_and(|n| n >= 2)
        && let Some(serialize) = settings.0.get_mut("serializeImagePulls")
    {
        serialize.value = json!(false);
    }
}

/// `evictionHard` has its defaults laid under it when the main file is loaded (`loadConfigFile` in
/// `cmd/kubelet/app/server.go`), before drop-ins: one key in the main file leaves the others without a threshold, one in
/// a drop-in does not.
fn eviction_hard(settings: &mut Settings, config: &Configuration) {
    const PATH: &str = "evictionHard";
    let main = config.files.iter().find(|file| !file.drop_in);
    let main = main.and_then(|file| file.document.as_ref());
    let of_main = main.and_then(|root| root.get(PATH)).filter(|node| node.value != Written::Null);
    let merges = main
        .and_then(|root| root.get("mergeDefaultEvictionSettings"))
        .is_some_and(|node| node.value == Written::Bool(true));
    let has_base = config.given && (of_main.is_none() || merges);
    let drop_ins =
        || config.files.iter().filter(|file| file.drop_in).filter_map(|file| file.document.as_ref()?.get(PATH));
    let Some(Effective { value: Value::Object(mut map), from, mut keys }) = settings.0.get(PATH).cloned() else {
        return;
    };
    let mut from = from;
    if has_base && let From::File(_) = from {
        for (key, value) in default_thresholds() {
            let deleted = drop_ins().any(|node| {
                node.value == Written::Null || node.get(&key).is_some_and(|value| value.value == Written::Null)
            });
            if !deleted && !map.contains_key(&key) {
                keys.insert(key.clone(), From::Default { legacy: false });
                map.insert(key, value);
            }
        }
    } else if let Some(null) = drop_ins().next_back().filter(|node| node.value == Written::Null) {
        // Nothing lays the defaults under it a second time.
        map = Map::new();
        from = From::File(null.at.clone());
    }
    let value = Value::Object(map);
    settings.0.insert(PATH.to_owned(), Effective { value, from, keys });
}

fn default_thresholds() -> BTreeMap<String, Value> {
    FIELDS
        .iter()
        .find(|field| field.path == "evictionHard")
        .and_then(|field| defaults::of_field(field, None))
        .and_then(|value| serde_json::from_value(value).ok())
        .unwrap_or_default()
}
