//! The merged configuration over the defaults.

use std::path::Path;

use serde_json::{Value, json};

use super::{Effective, From, Settings, defaults};
use crate::kubelet::config::Configuration;
use crate::kubelet::config::document::{Entry, Node, Value as Written};
use crate::kubelet::config::fields::{FIELDS, Field, FieldDefault, Kind};
use crate::kubelet::duration;
use crate::kubelet::flags::duration_nanos;
use crate::kubelet::location::Location;
use crate::kubelet::version::Version;

const EVICTION_HARD: &str = "evictionHard";

pub(super) fn lay_over(settings: &mut Settings, config: &Configuration, version: Option<&Version>) {
    let thresholds = settings.get(EVICTION_HARD).cloned();
    for field in FIELDS.iter().filter(|field| defaults::is_setting(field) && field.is_known_in(version)) {
        let Some(entry) = config.entry(field.path) else { continue };
        let mut effective = written(entry, field);
        let is_mains = config.main().is_some_and(|main| main.at.file == entry.at.file);
        if is_mains && PATHS.split(' ').any(|path| path == field.path) {
            absolute(&mut effective.value, &entry.at);
        }
        let is_unset = matches!(field.default, FieldDefault::UnlessZero(_)) && defaults::is_zero(&effective.value)
            || field.path == "podPidsLimit" && effective.value.as_i64().is_some_and(|n| n < 0);
        if !is_unset && entry.node.value != Written::Null {
            settings.0.insert(field.path.to_owned(), effective);
        }
    }
    eviction_hard(settings, config, thresholds);
    dependent(settings, config);
}

/// The paths that the kubelet takes as relative to its main file (`KubeletConfigurationPathRefs`).
const PATHS: &str = "authentication.x509.clientCAFile podLogsDir resolvConf staticPodPath tlsCertFile tlsPrivateKeyFile volumePluginDir";

fn absolute(value: &mut Value, file: &Location) {
    let relative = value.as_str().filter(|path| !path.is_empty() && !path.starts_with('/'));
    if let (Some(relative), Some(directory)) = (relative, Path::new(&*file.file).parent()) {
        *value = directory.join(relative).to_string_lossy().into_owned().into();
    }
}

fn written(entry: &Entry, field: &Field) -> Effective {
    let keys = entry.node.entries().iter().map(|entry| (entry.key.clone(), From::File(entry.at.clone()))).collect();
    let mut value = masked(field.path, normal(&entry.node, field.kind));
    if field.path == "featureGates"
        && let Some(gates) = value.as_object_mut()
    {
        // Go decodes a null of the main file as false; one of a drop-in has deleted the gate by now.
        gates.values_mut().filter(|gate| gate.is_null()).for_each(|gate| *gate = json!(false));
    }
    Effective { value, from: From::File(entry.at.clone()), keys }
}

/// A value in the form in which the kubelet prints it.
fn normal(node: &Node, kind: Kind) -> Value {
    let json = node.to_json();
    match (kind, json.as_str()) {
        (Kind::Duration | Kind::Flexible, Some(text)) => {
            duration_nanos(text).map_or(json, |nanos| duration::print(nanos).into())
        }
        _ => json,
    }
}

/// Headers may hold a password: the kubelet does not log them either.
fn masked(path: &str, mut value: Value) -> Value {
    if path == "staticPodURLHeader"
        && let Some(headers) = value.as_object_mut()
    {
        for header in headers.values_mut() {
            *header = json!(["<masked>"]);
        }
    }
    value
}

/// Defaults that follow from other settings of the main file, before drop-ins: `SetDefaults_KubeletConfiguration`.
fn dependent(settings: &mut Settings, config: &Configuration) {
    let file = |settings: &Settings, path: &str| match &settings.get(path)?.from {
        From::File(at) => Some(at.file.clone()),
        _ => None,
    };
    let main = config.main().map(|main| main.at.file.clone());
    let is_mains = |settings: &Settings, path: &str| main.is_some() && file(settings, path) == main;
    let mut dropins = config.files.iter().filter(|file| file.drop_in).filter_map(|file| file.document.as_ref());
    let is_reset = dropins.any(|root| root.get("nodeStatusReportFrequency").is_some());
    if file(settings, "nodeStatusReportFrequency").is_none()
        && (is_reset || is_mains(settings, "nodeStatusUpdateFrequency"))
        && let Some(update) = settings.get("nodeStatusUpdateFrequency").cloned()
    {
        settings.0.insert("nodeStatusReportFrequency".to_owned(), update);
    }
    if file(settings, "serializeImagePulls").is_none()
        && is_mains(settings, "maxParallelImagePulls")
        && settings.int("maxParallelImagePulls").is_some_and(|n| n >= 2)
        && let Some(serialize) = settings.0.get_mut("serializeImagePulls")
    {
        serialize.value = json!(false);
    }
}

/// `evictionHard` has its defaults laid under it when the main file is loaded (`loadConfigFile` in
/// `cmd/kubelet/app/server.go`), before drop-ins: one key in the main file leaves the others without a threshold, one in
/// a drop-in does not.
fn eviction_hard(settings: &mut Settings, config: &Configuration, by_default: Option<Effective>) {
    let main = config.main().and_then(|file| file.document.as_ref());
    let written = |path: &str| main.and_then(|root| root.get(path)).map(|node| &node.value);
    let merges = written("mergeDefaultEvictionSettings") == Some(&Written::Bool(true));
    let has_base = config.given && (merges || written(EVICTION_HARD).is_none_or(|value| *value == Written::Null));
    if let Some(Value::Object(defaults)) = by_default.filter(|_| has_base).map(|setting| setting.value)
        && let Some(Effective { value: Value::Object(map), keys, .. }) = settings.0.get_mut(EVICTION_HARD)
    {
        for (key, value) in defaults {
            keys.entry(key.clone()).or_insert(From::Default { legacy: false });
            map.entry(key).or_insert(value);
        }
    }
}
