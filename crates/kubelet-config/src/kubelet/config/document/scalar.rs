//! What a YAML scalar means to the kubelet.
//!
//! Read from go.yaml.in/yaml/v2 v2.4.3 `resolve.go` (YAML 1.1 without base 60), which `sigs.k8s.io/yaml` v1.6.0 uses.

use granit_parser::{ScalarStyle, Tag};

use super::Value;
use crate::kubelet::flags::parse_int;

pub(super) fn resolve(style: ScalarStyle, tag: Option<&Tag>, text: &str) -> Value {
    let is_text = match tag.map(Tag::core_suffix) {
        None => style != ScalarStyle::Plain,
        Some(name) => !matches!(name, Some("bool" | "int" | "float" | "null")),
    };
    if is_text { Value::String(text.to_owned()) } else { plain(text) }
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

/// A number as JSON writes it.
fn number(text: &str) -> Option<String> {
    match text.as_bytes().first()? {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            let bare = text.replace('_', "");
            integer(&bare).or_else(|| float(&bare))
        }
        _ => None,
    }
}

/// As Go's `strconv.ParseInt(text, 0, 64)`, and where that does not fit `ParseUint`.
fn integer(text: &str) -> Option<String> {
    let unsigned = || text.parse::<u64>().ok().filter(|_| !text.starts_with(['+', '0'])).map(|value| value.to_string());
    parse_int(text, 64).map(|value| value.to_string()).or_else(unsigned)
}

/// As go-yaml's `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, in the range of a float64.
fn float(text: &str) -> Option<String> {
    // Rust would take infinity and NaN by name.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let value: f64 = text.parse().ok().filter(|_| is_number)?;
    value.is_finite().then(|| value.to_string())
}

pub(super) fn key(value: Value) -> Result<String, &'static str> {
    match value {
        Value::String(text) | Value::Number(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Null => Err("a key of a map is null"),
        Value::List(_) | Value::Map(_) => {
            Err("a key of a map is a list or a map, as in a template `{{ … }}` that no program has filled in")
        }
    }
}
