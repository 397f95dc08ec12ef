//! `nodevigil config import-npd`: settings that do the same as configuration files of node-problem-detector.

mod regex;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::iter;
use std::path::{Path, PathBuf};

use heck::ToKebabCase as _;
use jiff::SignedDuration;
use serde_json::Value as Json;
use toml::Value;

use crate::condition::profile;
use crate::files;
use crate::settings::custom::{CustomSettings, MAX_CHECKS, ReasonName, definitions};
use crate::settings::{EXIT_CONFIG, MAX_FILE_BYTES, Settings};

use super::super::{GOOD, complain, print};

/// node-problem-detector's defaults, in seconds.
const INTERVAL_SECS: u64 = 30;
const TIMEOUT_SECS: u64 = 5;
/// The shortest interval of a custom check.
const MIN_INTERVAL_SECS: u64 = 5;
/// The length of a check's name that leaves room for a number.
const MAX_NAME_CHARS: usize = 36;

/// Convert configuration files of node-problem-detector to settings, and print them
///
/// Reads those of its system-log-monitor (kmsg, journald) and its custom-plugin-monitor. A comment explains each part that is not imported.
///
/// Exit code: 0 every file was read, 78 a file is invalid.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: nodevigil config import-npd /etc/node-problem-detector.d/*.json")]
pub struct ImportNpd {
    /// A configuration file of node-problem-detector
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The working directory of node-problem-detector, to which the paths of plugins may be relative
    #[arg(long, value_name = "DIR", default_value = "/")]
    directory: PathBuf,
}

/// The settings so far.
#[derive(Debug, Default)]
struct Import {
    text: String,
    checks: BTreeMap<String, CustomSettings>,
    has_profile: bool,
}

impl ImportNpd {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let (mut import, mut code) = (Import::default(), GOOD);
        for path in &self.files {
            let text = files::read(path, MAX_FILE_BYTES).map_err(|error| error.to_string());
            match text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
                Ok(monitor) => import.add(path, &monitor, &self.directory),
                Err(error) => {
                    complain(&format!("{}: {error}", path.display()));
                    code = EXIT_CONFIG;
                }
            }
        }
        print(&import.finished())?;
        Ok(code)
    }
}

impl Import {
    fn comment(&mut self, text: &str) {
        _ = writeln!(self.text, "# {}", redact::sanitize_line(text, 1000));
    }

    fn comment_if_set(&mut self, object: &Json, key: &str, why: &str) {
        let is_set = match &object[key] {
            Json::Array(list) => !list.is_empty(),
            value => *value == true || !text(object, key).is_empty(),
        };
        if is_set {
            self.comment(&format!("Not imported: {key}: {why}."));
        }
    }

    fn add(&mut self, path: &Path, monitor: &Json, directory: &Path) {
        self.text.push('\n');
        self.comment(&format!("From {}", path.display()));
        let (plugin, config) = (text(monitor, "plugin"), &monitor["pluginConfig"]);
        let why = match plugin {
            "kmsg" | "custom" => "",
            "journald" if !text(config, "source").is_empty() => "",
            "journald" => "it names no source, without which node-problem-detector refuses it too",
            "filelog" => "a check reads the kernel's log or the journal, not a file",
            "" => "it names no plugin; for metrics of the host, use Prometheus' node exporter",
            _ => "its plugin is not one of kmsg, journald and custom",
        };
        if !why.is_empty() {
            return self.comment(&format!("Not imported: {why}."));
        }
        for (object, key, why) in [
            (monitor, "skipList", "a check cannot skip lines"),
            (config, "enable_message_change_based_condition_update", "the first message of a problem stays"),
            (monitor, "delay", "a check begins when the agent starts"),
        ] {
            self.comment_if_set(object, key, why);
        }
        for rule in list(monitor, "rules") {
            self.text.push('\n');
            if let Err(why) = self.rule(rule, monitor, directory) {
                self.comment(&format!("{} is not imported: {why}.", text(rule, "reason")));
            }
        }
    }

    /// Adds the table of a rule.
    fn rule(&mut self, rule: &Json, monitor: &Json, directory: &Path) -> Result<(), String> {
        let (reason, kind, config) = (text(rule, "reason"), text(rule, "condition"), &monitor["pluginConfig"]);
        if is_permanent(rule) && profile::is_of_npd(kind) {
            self.has_profile = true;
            self.comment(&format!("{reason}: nodevigil has {kind} itself, and judges it by more than this rule."));
            return Ok(());
        }
        let is_custom = text(monitor, "plugin") == "custom";
        let is_twin =
            |other: &&Json| is_permanent(other) && ["path", "args", "reason"].iter().all(|key| other[key] == rule[key]);
        if is_custom && !is_permanent(rule) && list(monitor, "rules").any(|other| is_twin(&other)) {
            self.comment(&format!(
                "{reason} (temporary) is not imported: the condition of the same command also creates an Event."
            ));
            return Ok(());
        }
        self.comment_if_set(rule, "patternGeneratedMessageSuffix", "the message is the line alone");
        ReasonName::try_from(reason.to_owned())?;
        let mut lines = vec![format!("reason = {}", Value::from(reason))];
        if is_permanent(rule) {
            lines.push(format!("condition = {}\nproblem = \"True\"", Value::from(kind)));
            let healthy = list(monitor, "conditions").find(|one| text(one, "type") == kind);
            let healthy = healthy.map_or("", |one| text(one, "reason"));
            let is_of_problem = list(monitor, "rules").any(|rule| text(rule, "reason") == healthy);
            if ReasonName::try_from(healthy.to_owned()).is_ok() && !is_of_problem {
                lines.push(format!("healthy_reason = {}", Value::from(healthy)));
            } else if !healthy.is_empty() {
                self.comment(&format!(
                    "The healthy reason {healthy} is not imported: it is not in CamelCase, or that of a problem."
                ));
            }
        }
        lines.push(if is_custom { command(rule, config, directory)? } else { log(rule, config)? });
        self.table(&self.name(reason), &lines.join("\n"))
    }

    /// Adds a table, if the settings are valid with it.
    fn table(&mut self, name: &str, lines: &str) -> Result<(), String> {
        let table = format!("[custom.{name}]\n{lines}\n");
        let added = toml::from_str::<Settings>(&table).map_err(|error| error.message().to_owned())?.custom;
        let condition = &added[name].condition;
        let others = self.checks.iter().filter(|(_, check)| condition.is_some() && check.condition == *condition);
        definitions(&others.chain(&added).map(|(name, check)| (name.clone(), check.clone())).collect())?;
        self.checks.extend(added);
        self.text += &table;
        Ok(())
    }

    /// A name that no other check has: `OOMKilling` becomes `oom-killing`.
    fn name(&self, reason: &str) -> String {
        let mut name = reason.to_kebab_case();
        name.truncate(MAX_NAME_CHARS);
        let mut names = iter::once(name.clone()).chain((2..).map(|number| format!("{name}-{number}")));
        names.find(|name| !self.checks.contains_key(name)).unwrap_or_default()
    }

    fn finished(self) -> String {
        let mut text = "# Settings for nodevigil, written by `nodevigil config import-npd`. In a pattern, `*` stands for any text: it may match\n\
                        # more than the regular expression above it.\n".to_owned();
        if self.checks.len() > MAX_CHECKS {
            _ = writeln!(
                text,
                "# These are {} checks, and nodevigil allows {MAX_CHECKS}: delete those that you do not need.",
                self.checks.len()
            );
        }
        if self.has_profile {
            text += "kubernetes.profile = \"npd\"\n";
        }
        text + &self.text
    }
}

/// The source of a plugin's rule.
fn command(rule: &Json, config: &Json, directory: &Path) -> Result<String, String> {
    let (path, args) = (text(rule, "path"), list(rule, "args").filter_map(Json::as_str).collect::<Vec<_>>());
    if path.contains('\\') {
        return Err(format!("{path} is a path of Windows"));
    }
    if args.contains(&"--enable-repair=true") {
        return Err("the command repairs (--enable-repair=true), and a check changes nothing".into());
    }
    let program = directory.join(path.trim_start_matches("./"));
    let argv: Value = [&*program.to_string_lossy()].into_iter().chain(args).map(Value::from).collect::<Vec<_>>().into();
    let mut lines = format!("command.argv = {argv}\n");
    let interval = secs(&rule["invoke_interval"], secs(&config["invoke_interval"], INTERVAL_SECS)?)?;
    if interval < MIN_INTERVAL_SECS {
        _ = writeln!(lines, "# The shortest interval of a check is {MIN_INTERVAL_SECS} s, not {interval} s.");
    }
    let longest = secs(&config["timeout"], TIMEOUT_SECS)?;
    let timeout = secs(&rule["timeout"], longest)?.min(longest).max(1);
    _ = write!(lines, "command.interval_secs = {}\ncommand.timeout_secs = {timeout}", interval.max(MIN_INTERVAL_SECS));
    Ok(lines)
}

/// The source of a rule about lines.
fn log(rule: &Json, config: &Json) -> Result<String, String> {
    let pattern = text(rule, "pattern");
    let (comment, patterns) = (redact::sanitize_line(pattern, 1000), Value::from(regex::patterns(pattern)?));
    let mut lines = format!("# {comment}\nlog.patterns = {patterns}");
    // The journal has the kernel's lines too.
    if let Some(source) = config["source"].as_str().filter(|source| *source != "kernel") {
        _ = write!(lines, "\nlog.identifier = {}", Value::from(source));
    }
    if is_permanent(rule) {
        lines += "\nlog.until_boot = true";
    }
    Ok(lines)
}

fn is_permanent(rule: &Json) -> bool {
    text(rule, "type") == "permanent"
}

/// A text of an object; none is empty.
fn text<'a>(object: &'a Json, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

fn list<'a>(object: &'a Json, key: &str) -> impl Iterator<Item = &'a Json> {
    object[key].as_array().into_iter().flatten()
}

/// A duration as Go prints it, in whole seconds.
fn secs(value: &Json, default: u64) -> Result<u64, String> {
    let Some(text) = value.as_str() else { return Ok(default) };
    let duration = text.parse::<SignedDuration>().ok().and_then(|duration| u64::try_from(duration.as_millis()).ok());
    duration.map(|millis| millis.div_ceil(1000)).ok_or_else(|| format!("{text:?} is not a duration"))
}
