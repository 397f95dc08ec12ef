//! The files around the kubelet as they may be shown: what could hold a secret is left out, whatever its name.

use std::fmt::Write as _;

use serde_json::Value;

use super::redact::{Redactor, STARS};
use crate::kubelet::{place::Place, shown::is_secret_variable, systemd::env_file};

/// Settings of a unit whose value is a secret or may be one.
const SECRET_SETTINGS: &[&str] = &[
    "SetCredential",
    "SetCredentialEncrypted",
    "StandardInputText",
    "StandardInputData",
];

/// Whether a variable's value may be shown: it becomes words of the kubelet's command line, or names a proxy.
pub(super) fn may_be_shown(name: &str, is_referenced: bool) -> bool {
    let upper = name.to_ascii_uppercase();
    let is_known = upper.starts_with("KUBELET")
        || ["_ARGS", "_OPTS", "_FLAGS", "_PROXY"]
            .iter()
            .any(|end| upper.ends_with(end));
    (is_known || is_referenced) && !is_secret_variable(name)
}

/// The assignments of an environment file as systemd reads them, one a line. Text that is none (comments, broken lines, the
/// rest of a value of several lines) is not shown. What is not shown is learnt.
pub(super) fn environment(
    text: &str,
    redactor: &mut Redactor,
    shown: &dyn Fn(&str) -> bool,
) -> String {
    let parsed = env_file::parse(&Place::file("/"), text.as_bytes(), u32::MAX);
    let mut out = String::from("# LINE: NAME=VALUE, as systemd reads it; comments are left out\n");
    if let Some(why) = &parsed.unusable {
        let _ = writeln!(out, "# systemd takes nothing of it: {why}");
    }
    for assignment in &parsed.assignments {
        let (name, value) = (&assignment.name, &assignment.value);
        let is_shown = shown(name);
        if !is_shown {
            redactor.learn_value(value);
        }
        let value = if is_shown || value.is_empty() {
            value.replace('\n', "\\n")
        } else {
            STARS.to_owned()
        };
        let _ = writeln!(out, "{}: {name}={value}", assignment.at.line);
    }
    out
}

/// A unit or drop-in, line by line. Of `Environment=` only an assignment that may be shown; of the programs that are run
/// before and after, only their names.
pub(super) fn unit(text: &str, shown: &dyn Fn(&str) -> bool) -> String {
    let mut out = String::new();
    // Whether the line before goes on here, and whether it is hidden.
    let mut open: Option<bool> = None;
    for line in text.lines() {
        let hide = open.unwrap_or(false);
        let masked = match open {
            Some(true) => STARS.to_owned(),
            Some(false) => line.to_owned(),
            None => setting(line, shown),
        };
        open = line.ends_with('\\').then_some(hide || masked != line);
        out += &masked;
        out.push('\n');
    }
    out
}

fn setting(line: &str, shown: &dyn Fn(&str) -> bool) -> String {
    if line.trim_start().starts_with(['#', ';']) {
        let is_plain = !line.contains('=') && !line.contains(": ");
        return if is_plain {
            line.to_owned()
        } else {
            format!("# {STARS}")
        };
    }
    let Some((key, value)) = line.split_once('=') else {
        return line.to_owned();
    };
    let name = key.trim();
    let is_hidden = match name {
        "Environment" => !is_shown_assignment(value, shown),
        "ExecStart" => false,
        _ if SECRET_SETTINGS.contains(&name) => true,
        _ if name.starts_with("Exec") => {
            let value = value.trim();
            let program = value.split_whitespace().next().unwrap_or_default();
            return if program == value {
                line.to_owned()
            } else {
                format!("{key}={program} {STARS}")
            };
        }
        _ => false,
    };
    if is_hidden && !value.trim().is_empty() {
        format!("{key}={STARS}")
    } else {
        line.to_owned()
    }
}

/// Whether it is one assignment, and its variable may be shown.
fn is_shown_assignment(value: &str, shown: &dyn Fn(&str) -> bool) -> bool {
    let value = value.trim();
    let inner = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => match value[1..].strip_suffix(quote) {
            Some(inner) if !inner.contains(quote) => inner,
            _ => return false,
        },
        _ if value.contains(char::is_whitespace) => return false,
        _ => value,
    };
    inner.split_once('=').is_some_and(|(name, _)| shown(name))
}

/// The kubelet's configuration without the headers that it sends for static pods.
pub(super) fn kubelet_configuration(text: &str, redactor: &mut Redactor) -> String {
    const HEADERS: &str = "staticPodURLHeader";
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut out = String::new();
    let mut below = None;
    for line in text.lines() {
        if below.is_some_and(|top| indent(line) > top && !line.trim().is_empty()) {
            let value = line.trim().trim_start_matches("- ");
            redactor.learn(value.split_once(": ").map_or(value, |(_, value)| value));
            let _ = writeln!(out, "{:1$}{STARS}", "", indent(line));
            continue;
        }
        below = None;
        let _ = if let Some((before, _)) = line.split_once(HEADERS) {
            below = Some(indent(line));
            writeln!(out, "{before}{HEADERS}: {STARS}")
        } else {
            writeln!(out, "{line}")
        };
    }
    out
}

/// TOML as JSON, whose keys tell what is secret.
pub(super) fn toml(text: &str) -> Result<Value, String> {
    toml::from_str(text).map_err(|_| {
        "is no TOML that can be read, so what is secret in it cannot be told".to_owned()
    })
}

/// What `check` says, without the values of variables that may not be shown. They are learnt.
pub(super) fn findings(document: &mut Value, redactor: &mut Redactor) {
    let Some(variables) = document.get_mut("variables").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, row) in variables {
        if may_be_shown(name, row.get("referenced_at").is_some()) {
            continue;
        }
        let is_written = ["Environment", "EnvironmentFile"]
            .iter()
            .any(|s| row["source"] == *s);
        let mut hide = |row: &mut Value| {
            let Some(value) = row.get_mut("value") else {
                return;
            };
            if let Some(text) = value.as_str().filter(|_| is_written) {
                redactor.learn_value(text);
            }
            *value = STARS.into();
        };
        hide(row);
        let lost = row.get_mut("overrides").and_then(Value::as_array_mut);
        if let Some(lost) = lost {
            lost.iter_mut().for_each(hide);
        }
    }
}
