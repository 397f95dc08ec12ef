//! A record: its format, its limits, and what is removed from it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::condition::{Condition, Status};
use crate::timeline::{TimelineEntry, UnitRun};

/// The format's version. It changes when a field is removed or changes its meaning, not when one is added.
const VERSION: u32 = 1;
/// The largest record.
pub const MAX_BYTES: usize = 256 * 1024;
/// The longest text in one.
const MAX_TEXT_BYTES: usize = 1024;

/// The content of a record's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub name: String,
    pub node: String,
    pub agent_version: String,
    pub begun_at: Timestamp,
    /// The problem, and all conditions at that time.
    pub condition: ConditionPart,
    pub conditions: Vec<ConditionPart>,
    pub timeline: Vec<TimelineEntry>,
    pub units: Vec<UnitRun>,
    /// What was read of the host, by part.
    #[serde(default)]
    pub parts: BTreeMap<String, Value>,
    /// The parts that could not be read, or not wholly, and why.
    #[serde(default)]
    pub missing: BTreeMap<String, String>,
    /// How long reading took; none if the record was not completed.
    #[serde(default)]
    pub took_millis: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionPart {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: Status,
    pub reason: String,
    pub message: String,
}

impl From<&Condition> for ConditionPart {
    fn from(condition: &Condition) -> Self {
        let (reason, message) = (condition.reason.clone(), condition.message.clone());
        Self { kind: condition.kind.name().to_owned(), status: condition.status, reason, message }
    }
}

impl Record {
    /// A record of this problem that has no parts yet.
    pub fn new(name: String, node: &str, condition: &Condition, begun_at: Timestamp) -> Self {
        Self {
            version: VERSION,
            name,
            node: node.to_owned(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            begun_at,
            condition: condition.into(),
            conditions: Vec::new(),
            timeline: Vec::new(),
            units: Vec::new(),
            parts: BTreeMap::new(),
            missing: BTreeMap::new(),
            took_millis: None,
        }
    }

    /// Adds a part, or why it is missing.
    pub fn add(&mut self, name: &str, part: Result<Value, String>) {
        match part {
            Ok(part) => _ = self.parts.insert(name.to_owned(), part),
            Err(why) => _ = self.missing.insert(name.to_owned(), why),
        }
    }

    /// Removes secrets and control characters.
    pub fn mask(&mut self) {
        let conditions = [&mut self.condition].into_iter().chain(&mut self.conditions);
        conditions.for_each(|condition| mask_text(&mut condition.message));
        self.timeline.iter_mut().for_each(|entry| mask_text(&mut entry.text));
        self.missing.values_mut().for_each(mask_text);
        self.parts.values_mut().for_each(mask);
    }

    /// The record as its file has it, within its limit. Of the longest list the older half is dropped until it fits.
    pub fn text(&mut self) -> serde_json::Result<String> {
        loop {
            let text = serde_json::to_string(self)?;
            if text.len() <= MAX_BYTES || !self.shorten() {
                return Ok(text);
            }
        }
    }

    fn shorten(&mut self) -> bool {
        let lists = self.parts.iter_mut().filter_map(|(name, part)| Some((name, part.as_array_mut()?)));
        let size = |list: &[Value]| list.iter().map(|value| value.to_string().len()).sum::<usize>();
        let longest = lists.filter(|(_, list)| list.len() > 1).max_by_key(|(_, list)| size(list));
        let Some((name, list)) = longest else { return false };
        list.drain(..list.len() / 2);
        self.missing.insert(name.clone(), format!("only the last {} fit into {MAX_BYTES} bytes", list.len()));
        true
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::String(text) => mask_text(text),
        Value::Array(list) => list.iter_mut().for_each(mask),
        Value::Object(fields) => fields.values_mut().for_each(mask),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mask_text(text: &mut String) {
    *text = redact::sanitize_line(text, MAX_TEXT_BYTES);
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;
    use crate::condition::{ConditionType, Uptime};

    pub fn record(name: &str) -> Record {
        let (kind, status, message) = (ConditionType::KubeletHealthy, Status::False, "it crashed".to_owned());
        let condition = Condition { kind, status, reason: "KubeletCrashed".into(), message, since: Uptime::ZERO };
        Record::new(name.into(), "worker-1", &condition, "2026-11-28T18:45:02Z".parse().unwrap())
    }

    #[test]
    fn a_record_has_no_secrets_and_keeps_the_last_of_what_is_too_long() {
        let mut record = record("20261128t184502z-kubelet-crashed");
        let line = |number: usize| format!("{number} {}", "x".repeat(900));
        record.parts.insert("journal".into(), (0..400).map(line).collect());
        record
            .parts
            .insert("unit".into(), json!({"a": {"Text": "--token=canary", "n": 1}, "b": ["password: canary\u{1b}"]}));
        record.condition.message = "--token=canary".into();
        record.conditions = vec![record.condition.clone()];
        record.missing.insert("units".into(), "--token=canary".into());
        record.mask();
        let text = record.text().unwrap();
        assert!(text.len() <= MAX_BYTES && text.contains("399 xxx") && !text.contains("\"0 xxx"));
        assert!(!text.contains("canary") && text.contains("--token=***"), "{}", record.parts["unit"]);
        assert_eq!(record.missing["journal"], "only the last 200 fit into 262144 bytes");
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
