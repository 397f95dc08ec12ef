//! The value of a flag, read by the form that the flag wants.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::ValueKind;
use super::number::{duration_nanos, is_ip, parse_bool, parse_int, parse_level};
use crate::kubelet::{duration, label, quantity};

impl ValueKind {
    /// Whether a flag of that kind takes the value: the kubelet exits with `invalid argument` over what it does not take.
    pub fn takes(self, text: &str) -> bool {
        self.read(text).is_some()
    }

    /// The value as JSON, in the form of the field that the flag sets; `None` if the flag does not take it.
    pub(in crate::kubelet) fn read(self, text: &str) -> Option<Value> {
        let as_text = |is_taken: bool| is_taken.then(|| Value::from(text));
        match self {
            Self::String => as_text(true),
            Self::Version => as_text(text == "raw" || text.starts_with('v') || parse_bool(text).is_some()),
            Self::Ip => as_text(text.is_empty() || is_ip(text)),
            Self::Quantity => as_text(quantity::parse(text).is_some()),
            Self::Bool => parse_bool(text).map(Value::from),
            Self::Int32 => parse_int(text, 32).map(Value::from),
            Self::Int => parse_int(text, 64).map(Value::from),
            Self::Uint => parse_level(text).map(Value::from),
            Self::Duration => duration_nanos(text).map(|nanos| Value::from(duration::print(nanos))),
            Self::Strings => csv(text).map(Value::from),
            Self::OnePair if text.is_empty() => None,
            Self::Labels | Self::Map | Self::OnePair | Self::Thresholds => {
                self.map(text, |value| Some(Value::from(value)))
            }
            Self::Gates => self.map(text, |value| parse_bool(value).map(Value::from)),
            // Headers may hold a password: the kubelet does not log them either.
            Self::Headers => self.map(text, |_| Some(json!(["<masked>"]))),
            Self::Taints | Self::ReservedMemory if text.is_empty() => Some(json!([])),
            Self::Taints => taints(text),
            Self::ReservedMemory => text.split(';').map(reservation).collect(),
            Self::VModule => text.split(',').filter(|pattern| !pattern.is_empty()).map(verbosity).collect(),
        }
    }

    fn separator(self) -> char {
        match self {
            Self::Thresholds => '<',
            Self::Headers => ':',
            _ => '=',
        }
    }

    /// The pairs of a map; only a label may lack its value.
    fn map(self, text: &str, read: impl Fn(&str) -> Option<Value>) -> Option<Value> {
        let mut map = Map::new();
        for pair in pairs(self, text) {
            if self != Self::Labels && !pair.text.contains(self.separator()) {
                return None;
            }
            map.insert(pair.key.to_owned(), read(pair.value)?);
        }
        Some(map.into())
    }
}

/// The pairs of a value in the order of the text, each with its offset in bytes: of a map, labels, thresholds, gates,
/// headers; empty parts left out, blanks around key and value too. A part without separator has an empty value.
pub fn pairs(kind: ValueKind, value: &str) -> Vec<Pair<'_>> {
    let whole = kind == ValueKind::OnePair;
    let mut offset = 0;
    value
        .split(|letter| letter == ',' && !whole)
        .filter_map(|text| {
            let start = offset;
            offset += text.len() + 1;
            if text.is_empty() {
                return None;
            }
            let (key, value) = text.split_once(kind.separator()).unwrap_or((text, ""));
            Some(Pair { offset: start, text, key: key.trim(), value: value.trim() })
        })
        .collect()
}

/// A pair of a map's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    /// Where it begins in the value, in bytes.
    pub(crate) offset: usize,
    /// The pair as it is written.
    pub text: &'a str,
    /// Its key.
    pub key: &'a str,
    /// Its value.
    pub value: &'a str,
}

/// The items of one record of Go's `encoding/csv`; `None` if it is none. `""` in quotes is a quote.
fn csv(text: &str) -> Option<Vec<String>> {
    let mut items = Vec::new();
    let mut next = Some(text).filter(|text| !text.is_empty());
    while let Some(rest) = next {
        let Some(mut tail) = rest.strip_prefix('"') else {
            let (item, after) = rest.split_once(',').map_or((rest, None), |(item, after)| (item, Some(after)));
            if item.contains('"') {
                return None;
            }
            items.push(item.to_owned());
            next = after;
            continue;
        };
        let mut item = String::new();
        loop {
            let (front, after) = tail.split_once('"')?;
            item.push_str(front);
            tail = after;
            let Some(more) = after.strip_prefix('"') else { break };
            item.push('"');
            tail = more;
        }
        items.push(item);
        next = if tail.is_empty() { None } else { Some(tail.strip_prefix(',')?) };
    }
    Some(items)
}

fn taints(text: &str) -> Option<Value> {
    let mut seen = BTreeSet::new();
    let mut taints = Vec::new();
    for written in text.split(',') {
        // A dash after it asks for a taint's removal; the kubelet reads it and does nothing.
        if let Some(removed) = written.strip_suffix('-') {
            taint(removed)?;
            continue;
        }
        let (key, value, effect) = taint(written)?;
        // Of the same key and effect there is one at most.
        if effect.is_empty() || !seen.insert((key, effect)) {
            return None;
        }
        taints.push(json!({"key": key, "value": value, "effect": effect}));
    }
    Some(taints.into())
}

/// Key, value and effect of `key=value:Effect` or `key:Effect`; without an effect all of it is the key.
fn taint(text: &str) -> Option<(&str, &str, &str)> {
    let (pair, effect) = text.split_once(':').map_or((text, None), |(pair, effect)| (pair, Some(effect)));
    let (key, value) = pair.split_once('=').filter(|_| effect.is_some()).unwrap_or((pair, ""));
    let is_effect = effect.is_none_or(|effect| ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect));
    (is_effect && label::is_key(key) && label::is_value(value)).then_some((key, value, effect.unwrap_or_default()))
}

/// `0:memory=1Gi,hugepages-1Mi=2Gi`.
fn reservation(text: &str) -> Option<Value> {
    let (node, limits) = text.split_once(':')?;
    let node: i64 = node.parse().ok()?;
    let limit = |limit: &str| {
        let (name, amount) = limit.split_once('=')?;
        let is_known = name == "memory" || name.starts_with("hugepages-");
        (is_known && quantity::parse(amount).is_some()).then(|| (name.to_owned(), Value::from(amount)))
    };
    let limits = limits.split(',').map(limit).collect::<Option<Map<_, _>>>()?;
    Some(json!({"numaNode": node, "limits": limits}))
}

/// `--vmodule`'s `pattern=N`.
fn verbosity(text: &str) -> Option<Value> {
    let (pattern, level) = text.split_once('=')?;
    let level = parse_level(level).filter(|_| !pattern.is_empty())?;
    Some(json!({"filePattern": pattern, "verbosity": level}))
}
