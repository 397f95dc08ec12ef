//! `nodevigil records`: the state of the host when a problem began.

use anyhow::Context as _;
use clap::Subcommand;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{BAD, GOOD, Output, complain, is_colored, print};
use crate::host::clock;
use crate::records::record::{ConditionPart, Record};
use crate::records::store::{self, Kept};
use crate::report::table;
use crate::timeline::TimelineEntry;

/// List and show the records of problems
///
/// The agent records the state of the host when the condition of the kubelet, the container runtime, storage, the kernel or memory changes to
/// a problem. Works without the agent. Needs root.
///
/// Exit code: 0 the records are printed, 1 they cannot be read.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Records {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print a table, or JSON
    #[arg(short, long, default_value = "text")]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a record: what happened, and the state of the host
    Show {
        /// The record's name, or how it begins [default: the newest record]
        name: Option<String>,
        /// Print text, or the record's JSON
        #[arg(short, long, default_value = "text")]
        output: Output,
    },
}

impl Records {
    pub fn run(self) -> anyhow::Result<u8> {
        anyhow::ensure!(rustix::process::geteuid().is_root(), "records needs root: run it with sudo");
        let all = store::list();
        match self.command {
            None => print(&self.output.render(&names(&all), || list(&all, clock::wall()))?)?,
            Some(Command::Show { name, output }) => {
                let begins = name.as_deref().unwrap_or_default();
                let Some(kept) = all.iter().find(|kept| kept.name.starts_with(begins)) else {
                    let named = name.map_or_else(String::new, |name| format!(" whose name begins with {name}"));
                    complain(&format!("there is no record{named} in {} or {}", store::PERSISTENT, store::VOLATILE));
                    return Ok(BAD);
                };
                print(&match output {
                    Output::Json => kept.text()? + "\n",
                    Output::Text => show(&kept.read().with_context(|| kept.path.display().to_string())?, is_colored()),
                })?;
            }
        }
        Ok(GOOD)
    }
}

/// What scripts are told of each record.
pub fn names(all: &[Kept]) -> Value {
    let record = |kept: &Kept| {
        let record = kept.read().ok();
        json!({"name": kept.name, "path": kept.path, "bytes": kept.bytes, "uploaded": kept.is_uploaded,
            "begun_at": record.as_ref().map(|record| record.begun_at), "condition": record.map(|record| record.condition)})
    };
    all.iter().map(record).collect()
}

fn list(all: &[Kept], now: Timestamp) -> String {
    if all.is_empty() {
        return format!("No records in {} or {}\n", store::PERSISTENT, store::VOLATILE);
    }
    let row = |kept: &Kept| {
        let [age, condition, message] = match kept.read() {
            Ok(Record { condition, begun_at, .. }) => {
                [table::age(now.duration_since(begun_at)), condition.kind, redact::escape_controls(&condition.message)]
            }
            Err(error) => ["-".to_owned(), "-".to_owned(), format!("cannot be read: {error}")],
        };
        ([kept.name.clone(), age, condition, message], "")
    };
    table::text(["NAME", "AGE", "CONDITION", "MESSAGE"], all.iter().map(row))
}

/// A record as a person reads it: what, when and why; then the timeline and the parts.
fn show(record: &Record, colored: bool) -> String {
    let Record { name, node, agent_version, begun_at, condition, .. } = record;
    let escape = |line: String| redact::escape_controls(&line);
    let head = [
        format!("{name}: {} is {} ({})", condition.kind, condition.status.name(), condition.reason),
        condition.message.clone(),
        format!("Recorded at {begun_at} on {node} by nodevigil {agent_version}"),
    ];
    let timeline = record.timeline.iter().map(|TimelineEntry { at, until, times, source, text }| {
        let times = until.map_or_else(String::new, |until| format!(" ({times} times, until {until:.3})"));
        format!("{at:.3} {source}: {text}{times}")
    });
    let conditions = record
        .conditions
        .iter()
        .map(|ConditionPart { kind, status, reason, message }| format!("{kind} {} {reason}: {message}", status.name()));
    let mut sections =
        vec![("timeline".to_owned(), timeline.collect()), ("conditions".to_owned(), conditions.collect())];
    sections.extend(record.parts.iter().map(|(name, part)| (name.clone(), lines(part))));
    let missing = |(name, why): (&String, &String)| (format!("{name} is missing or incomplete"), vec![why.clone()]);
    sections.extend(record.missing.iter().map(missing));

    let (bold, plain) = if colored { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let mut text = head.map(escape).join("\n") + "\n";
    for (name, lines) in sections {
        text.extend(["\n", bold, &escape(name), plain, "\n"]);
        text.extend(lines.into_iter().map(|line| format!("  {}\n", escape(line))));
    }
    text
}

/// A part as lines. Lists and objects of plain values take one line each.
fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.iter().flat_map(lines).collect(),
        Value::Object(fields) if !is_plain(fields) => {
            fields.iter().flat_map(|(name, value)| of_field(name, value)).collect()
        }
        value => vec![plain(value)],
    }
}

fn of_field(name: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Array(_) | Value::Object(_) => {
            let indented = lines(value).into_iter().map(|line| format!("  {line}"));
            [format!("{name}:")].into_iter().chain(indented).collect()
        }
        value => vec![format!("{name}: {}", plain(value))],
    }
}

fn is_plain(fields: &Map<String, Value>) -> bool {
    fields.len() < 10 && fields.values().all(|value| !value.is_array() && !value.is_object())
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect::<Vec<_>>().join(" ")
        }
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::tests::record;

    #[test]
    fn a_record_is_shown_as_text() {
        let mut record = record("20261128t184502z-kubelet-crashed");
        record.parts.insert("journal".into(), json!(["one\u{1b}", "two"]));
        record.parts.insert("processes".into(), json!({"count": 2, "by_cpu": [{"pid": 1, "name": "a"}]}));
        record.missing.insert("kernel_log".into(), "no result".into());
        let expected = format!(
            "20261128t184502z-kubelet-crashed: KubeletHealthy is False (KubeletCrashed)\nit crashed\n\
             Recorded at 2026-11-28T18:45:02Z on worker-1 by nodevigil {}\n\ntimeline\n\nconditions\n\njournal\n  one␛\n  two\n\n\
             processes\n  by_cpu:\n    name=a pid=1\n  count: 2\n\nkernel_log is missing or incomplete\n  no result\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(show(&record, false), expected);
    }
}
