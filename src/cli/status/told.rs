//! What is told besides the conditions, for people: news, taints, Events.

use std::{collections::BTreeMap, fmt::Write as _};

use jiff::Timestamp;

use super::{YELLOW, age, paint, plain};
use crate::status::{self, News, StatusFile};

/// What has happened and is no condition, the newest first.
pub(super) fn news(out: &mut String, file: &StatusFile, now: Timestamp, colour: bool) {
    let name = |news: &News| news.name.chars().count();
    let width = file.news.iter().map(name).max().unwrap_or(0);
    for news in file.news.iter().rev() {
        let name = format!("{:<width$}", plain(&news.name));
        let name = if news.warning {
            paint(colour, YELLOW, &name)
        } else {
            name
        };
        let (ago, note) = (age(news.at, now), plain(&news.note));
        writeln!(out, "{name}   {ago} ago   {note}").expect("writing to a String cannot fail");
    }
    if !file.news.is_empty() {
        out.push('\n');
    }
}

pub(super) fn taints(taints: &status::Taints) -> Option<String> {
    let mut parts = taints.on_node.clone();
    let to_add = taints.to_add.iter();
    parts.extend(to_add.map(|key| format!("{key} is to come")));
    if parts.is_empty() && !taints.conditions.is_empty() {
        parts.push(format!("none, {} may", taints.conditions.join(" and ")));
    }
    parts.extend(taints.problem.clone());
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub(super) fn events(events: &status::Events) -> Option<String> {
    let mut parts = vec![format!("{} told", events.sent)];
    let counts = [
        (events.waiting, "wait"),
        (events.dropped, "could not be told"),
    ];
    let some = counts.iter().filter(|(count, _)| *count > 0);
    parts.extend(some.map(|(count, word)| format!("{count} {word}")));
    parts.extend(events.problem.clone());
    (*events != status::Events::default()).then(|| parts.join(", "))
}

/// The reasons for `False` that are only warnings, or off.
pub(super) fn turned_down(reasons: &BTreeMap<String, String>) -> Option<String> {
    let words = reasons.iter().map(|(reason, word)| {
        let what = match word.as_str() {
            "warning" => "a warning only",
            other => other,
        };
        format!("{reason} is {what}")
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("{}, by [reasons]", words.join(", ")))
}
