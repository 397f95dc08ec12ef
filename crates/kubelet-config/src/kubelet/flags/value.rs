//! Whether the kubelet takes a flag's value, by the form that the flag wants, in the kubelet's own words if not.

use std::fmt::Write as _;

use super::{
    ValueKind,
    number::{check_quantity, is_ip, parse_bool, parse_int, parse_level},
};
use crate::kubelet::label;

pub use super::number::duration_nanos;

/// Whether a flag of that kind takes the value.
///
/// # Errors
/// What the flag's `Set` says in the kubelet; pflag writes `invalid argument "…" for "--flag" flag: ` before it.
pub fn check_value(kind: ValueKind, value: &str) -> Result<(), String> {
    match kind {
        ValueKind::String | ValueKind::Labels => Ok(()),
        ValueKind::Version if value == "raw" || value.starts_with('v') => Ok(()),
        ValueKind::Bool | ValueKind::Version => parse_bool(value).map(drop),
        ValueKind::Int32 => parse_int(value, 32).map(drop),
        ValueKind::Int => parse_int(value, 64).map(drop),
        ValueKind::Uint => parse_level(value).map(drop),
        ValueKind::Duration => duration_nanos(value).map(drop),
        ValueKind::Ip if value.is_empty() || is_ip(value) => Ok(()),
        ValueKind::Ip => Err(format!("{} is not a valid IP address", go_quote(value))),
        ValueKind::Quantity => check_quantity(value),
        ValueKind::Strings => check_csv(value),
        ValueKind::Map => each_pair(value, '=', "malformed pair, expect string=string"),
        ValueKind::Thresholds => each_pair(value, '<', "malformed pair, expect string<string"),
        ValueKind::Headers => each_pair(value, ':', "malformed pair, expect string:string"),
        ValueKind::OnePair if value.contains('=') => Ok(()),
        ValueKind::OnePair => Err("malformed pair, expect string=string".to_owned()),
        ValueKind::Gates => check_gates(value),
        ValueKind::Taints => check_taints(value),
        ValueKind::ReservedMemory => check_reserved_memory(value),
        ValueKind::VModule => check_vmodule(value),
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

fn each_pair(value: &str, separator: char, error: &str) -> Result<(), String> {
    let fine = value.split(',').all(|pair| pair.is_empty() || pair.contains(separator));
    if fine { Ok(()) } else { Err(error.to_owned()) }
}

fn check_gates(value: &str) -> Result<(), String> {
    for pair in value.split(',').filter(|pair| !pair.is_empty()) {
        let (key, text) = pair.split_once('=').ok_or("malformed pair, expect string=bool")?;
        let text = text.trim();
        parse_bool(text).map_err(|error| format!("invalid value of {}: {text}, err: {error}", key.trim()))?;
    }
    Ok(())
}

/// One record of `encoding/csv`.
fn check_csv(value: &str) -> Result<(), String> {
    let mut rest = value;
    let mut column = 1;
    while !rest.is_empty() {
        let Some(quoted) = rest.strip_prefix('"') else {
            let end = rest.find(',').unwrap_or(rest.len());
            let field = rest.get(..end).unwrap_or_default();
            if let Some(quote) = field.find('"') {
                return Err(format!("parse error on line 1, column {}: bare \" in non-quoted-field", column + quote));
            }
            rest = rest.get(end + 1..).unwrap_or_default();
            column += end + 1;
            continue;
        };
        let mut end = 0;
        loop {
            let Some(quote) = quoted.get(end..).and_then(|tail| tail.find('"')) else {
                return Err(format!(
                    "parse error on line 1, column {}: extraneous or missing \" in quoted-field",
                    column + 1 + quoted.len()
                ));
            };
            end += quote + 1;
            if quoted.get(end..).is_some_and(|tail| tail.starts_with('"')) {
                end += 1;
                continue;
            }
            break;
        }
        let behind = quoted.get(end..).unwrap_or_default();
        if !behind.is_empty() && !behind.starts_with(',') {
            return Err(format!(
                "parse error on line 1, column {}: extraneous or missing \" in quoted-field",
                column + end
            ));
        }
        rest = behind.get(1..).unwrap_or_default();
        column += end + 2;
    }
    Ok(())
}

fn check_taints(value: &str) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    if value.is_empty() {
        return Ok(());
    }
    for taint in value.split(',') {
        // A dash behind it asks for a taint's removal; the kubelet reads it and does nothing.
        let (text, adds) = match taint.strip_suffix('-') {
            Some(text) => (text, false),
            None => (taint, true),
        };
        let (key, effect) = check_taint(text)?;
        if adds && effect.is_empty() {
            return Err(format!("invalid taint spec: {taint}"));
        }
        if adds && !seen.insert((effect, key)) {
            return Err(format!("duplicated taints with the same key and effect: {key}:{effect}"));
        }
    }
    Ok(())
}

/// A taint's key and effect.
fn check_taint(text: &str) -> Result<(&str, &str), String> {
    let invalid = |why: &str| {
        let separator = if why.is_empty() { "" } else { ", " };
        Err(format!("invalid taint spec: {text}{separator}{why}"))
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (pair, effect) = match parts.as_slice() {
        [key] => (*key, ""),
        [pair, effect] => (*pair, *effect),
        _ => return invalid(""),
    };
    let mut key = pair;
    if parts.len() == 2 {
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Err(format!("invalid taint effect: {effect}, unsupported taint effect"));
        }
        if let Some((name, value)) = pair.split_once('=') {
            if value.contains('=') {
                return invalid("");
            }
            if let Err(why) = label::check_value(value) {
                return invalid(&why);
            }
            key = name;
        }
    }
    match label::check_key(key) {
        Ok(()) => Ok((key, effect)),
        Err(why) => invalid(&why),
    }
}

fn check_reserved_memory(value: &str) -> Result<(), String> {
    const FORM: &str = "the reserved memory has incorrect format, expected \
                        numaNodeID:type=quantity[,type=quantity...], got";
    if value.is_empty() {
        return Ok(());
    }
    for reservation in value.split(';') {
        let Some((node, limits)) = reservation.split_once(':').filter(|(_, limits)| !limits.contains(':')) else {
            return Err(format!("{FORM} {reservation}"));
        };
        // strconv.Atoi: base 10, no underscores.
        if node.parse::<i64>().is_err() {
            return Err(format!("failed to convert the NUMA node ID, expected integer, got {node}"));
        }
        for limit in limits.split(',') {
            let Some((name, quantity)) = limit.split_once('=').filter(|(_, quantity)| !quantity.contains('=')) else {
                return Err(format!("the reserved limit has incorrect value, expected type=quantity, got {limit}"));
            };
            if name != "memory" && !name.starts_with("hugepages-") {
                return Err(format!("memory type conversion error, unknown type: {}", go_quote(name)));
            }
            if check_quantity(quantity).is_err() {
                return Err(format!("failed to parse the quantity: {quantity}"));
            }
        }
    }
    Ok(())
}

fn check_vmodule(value: &str) -> Result<(), String> {
    for pattern in value.split(',').filter(|pattern| !pattern.is_empty()) {
        let level = match pattern.split_once('=') {
            Some((name, level)) if !name.is_empty() && !level.is_empty() && !level.contains('=') => level,
            _ => {
                return Err(format!("{} does not have the pattern=N format", go_quote(pattern)));
            }
        };
        parse_level(level).map_err(|error| format!("parsing verbosity in {}: {error}", go_quote(pattern)))?;
    }
    Ok(())
}

/// Go's `%q`: quoted, with quotes, backslashes and what cannot be printed escaped.
pub fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{a0}' => quoted.push_str("\\u00a0"),
            letter if letter.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
