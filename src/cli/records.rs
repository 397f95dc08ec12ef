//! `nodevigil records`: the state of the host when a problem began.

use anyhow::Context as _;
use clap::Subcommand;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{BAD, GOOD, Output, complain, is_colored, print};
use crate::host::clock;
use crate::host::timeline::Entry;
use crate::records::record::{ConditionPart, Record};
use crate::records::store::{self, Kept};
use crate::report::table;

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
        json!({"name": kept.name, "path": kept.path, "bytes": kept.bytes, "uploaded": kept.is_uploaded(),
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

/// A record as a person reads it.
struct Page {
    text: String,
    colored: bool,
}

impl Page {
    fn heading(&mut self, name: &str) {
        let (bold, plain) = if self.colored { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        self.text.extend(["\n", bold, &redact::escape_controls(name), plain, "\n"]);
    }

    fn line(&mut self, depth: usize, line: &str) {
        self.text.extend(["  ".repeat(depth), redact::escape_controls(line), "\n".to_owned()]);
    }

    /// Lists and objects of plain values take one line each.
    fn value(&mut self, depth: usize, value: &Value) {
        match value {
            Value::Array(list) => list.iter().for_each(|value| self.value(depth, value)),
            Value::Object(fields) if !is_plain(fields) => {
                for (name, value) in fields {
                    if value.is_array() || value.is_object() {
                        self.line(depth, &format!("{name}:"));
                        self.value(depth + 1, value);
                    } else {
                        self.line(depth, &format!("{name}: {}", plain(value)));
                    }
                }
            }
            value => self.line(depth, &plain(value)),
        }
    }
}

/// What, when and why; then the timeline and the parts.
fn show(record: &Record, colored: bool) -> String {
    let Record { name, node, agent_version, begun_at, condition, .. } = record;
    let mut page = Page { text: String::new(), colored };
    page.line(0, &format!("{name}: {} is {} ({})", condition.kind, condition.status.name(), condition.reason));
    page.line(0, &condition.message);
    page.line(0, &format!("Recorded at {begun_at} on {node} by nodevigil {agent_version}"));
    page.heading("timeline");
    for Entry { at, until, times, source, text } in &record.timeline {
        let times = until.map_or_else(String::new, |until| format!(" ({times} times, until {until:.3})"));
        page.line(1, &format!("{at:.3} {source}: {text}{times}"));
    }
    page.heading("conditions");
    for ConditionPart { kind, status, reason, message } in &record.conditions {
        page.line(1, &format!("{kind} {} {reason}: {message}", status.name()));
    }
    for (name, part) in &record.parts {
        page.heading(name);
        page.value(1, part);
    }
    for (name, why) in &record.missing {
        page.heading(&format!("{name} is missing or incomplete"));
        page.line(1, why);
    }
    page.text
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
