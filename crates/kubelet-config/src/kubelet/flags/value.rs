//! Whether the kubelet takes a flag's value, by the form that the flag wants.

use super::{
    ValueKind,
    number::{duration_nanos, is_ip, parse_bool, parse_int, parse_level},
};
use crate::kubelet::{label, quantity};

impl ValueKind {
    /// Whether a flag of that kind takes the value: the kubelet exits with `invalid argument` over what it does not take.
    pub fn takes(self, value: &str) -> bool {
        let each_pair = |separator| value.split(',').all(|pair| pair.is_empty() || pair.contains(separator));
        match self {
            Self::String | Self::Labels => true,
            Self::Version => value == "raw" || value.starts_with('v') || parse_bool(value).is_some(),
            Self::Bool => parse_bool(value).is_some(),
            Self::Int32 => parse_int(value, 32).is_some(),
            Self::Int => parse_int(value, 64).is_some(),
            Self::Uint => parse_level(value).is_some(),
            Self::Duration => duration_nanos(value).is_some(),
            Self::Ip => value.is_empty() || is_ip(value),
            Self::Quantity => quantity::parse(value).is_some(),
            Self::Strings => csv(value).is_some(),
            Self::Map => each_pair('='),
            Self::Thresholds => each_pair('<'),
            Self::Headers => each_pair(':'),
            Self::OnePair => value.contains('='),
            Self::Gates => each_pair('=') && pairs(self, value).iter().all(|pair| parse_bool(pair.value).is_some()),
            Self::Taints => value.is_empty() || are_taints(value),
            Self::ReservedMemory => value.is_empty() || value.split(';').all(is_reservation),
            Self::VModule => value.split(',').all(|pattern| pattern.is_empty() || is_verbosity(pattern)),
        }
    }
}

/// The pairs of a value in the order of the text, each with its offset in bytes: of a map, labels, thresholds, gates,
/// headers; empty parts left out, blanks around key and value too. A part without separator has an empty value.
pub fn pairs(kind: ValueKind, value: &str) -> Vec<Pair<'_>> {
    let separator = match kind {
        ValueKind::Thresholds => '<',
        ValueKind::Headers => ':',
        _ => '=',
    };
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
            let (key, value) = text.split_once(separator).unwrap_or((text, ""));
            Some(Pair { offset: start, text, key: key.trim(), value: value.trim() })
        })
        .collect()
}

/// A pair of a map's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    /// Where it begins in the value, in bytes.
    pub offset: usize,
    /// The pair as it is written.
    pub text: &'a str,
    /// Its key.
    pub key: &'a str,
    /// Its value.
    pub value: &'a str,
}

/// The items of one record of Go's `encoding/csv`; `None` if it is none. `""` in quotes is a quote.
pub(in crate::kubelet) fn csv(text: &str) -> Option<Vec<String>> {
    let mut items = Vec::new();
    let mut next = Some(text).filter(|text| !text.is_empty());
    while let Some(rest) = next {
        let Some(mut tail) = rest.strip_prefix('"') else {
            let (item, behind) = rest.split_once(',').map_or((rest, None), |(item, behind)| (item, Some(behind)));
            if item.contains('"') {
                return None;
            }
            items.push(item.to_owned());
            next = behind;
            continue;
        };
        let mut item = String::new();
        loop {
            let (front, behind) = tail.split_once('"')?;
            item.push_str(front);
            tail = behind;
            let Some(more) = behind.strip_prefix('"') else { break };
            item.push('"');
            tail = more;
        }
        items.push(item);
        next = if tail.is_empty() { None } else { Some(tail.strip_prefix(',')?) };
    }
    Some(items)
}

fn are_taints(value: &str) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    value.split(',').all(|taint| {
        // A dash behind it asks for a taint's removal; the kubelet reads it and does nothing.
        let (text, adds) = taint.strip_suffix('-').map_or((taint, true), |text| (text, false));
        // Of the same key and effect there is one at most.
        key_and_effect(text).is_some_and(|pair| !adds || (!pair.1.is_empty() && seen.insert(pair)))
    })
}

/// A taint's key and effect; `None` if it is none.
fn key_and_effect(text: &str) -> Option<(&str, &str)> {
    let (pair, effect) = text.split_once(':').map_or((text, None), |(pair, effect)| (pair, Some(effect)));
    let key = match (effect, pair.split_once('=')) {
        (Some(_), Some((key, value))) => label::is_value(value).then_some(key)?,
        _ => pair,
    };
    let is_effect = effect.is_none_or(|effect| ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect));
    (is_effect && label::is_key(key)).then_some((key, effect.unwrap_or_default()))
}

/// `0:memory=1Gi,hugepages-1Mi=2Gi`.
fn is_reservation(text: &str) -> bool {
    let is_limit = |limit: &str| {
        limit.split_once('=').is_some_and(|(name, amount)| {
            (name == "memory" || name.starts_with("hugepages-")) && quantity::parse(amount).is_some()
        })
    };
    text.split_once(':').is_some_and(|(node, limits)| node.parse::<i64>().is_ok() && limits.split(',').all(is_limit))
}

/// `--vmodule`'s `pattern=N`.
fn is_verbosity(pattern: &str) -> bool {
    pattern.split_once('=').is_some_and(|(name, level)| !name.is_empty() && parse_level(level).is_some())
}
