//! What systemd says against a service as a whole (`service_verify()` in `src/core/service.c`), and against single
//! settings that spoil a unit.

use std::collections::BTreeMap;
use std::path::Path;

use super::exec::Context;
use super::syntax::{Pair, ParseAbort};
use super::{Exec, LoadState, Setting};
use crate::kubelet::location::Location;

type Settings = BTreeMap<(String, String), Setting>;

/// Whether it is a list of commands.
pub(super) fn is_command(key: &str) -> bool {
    ["ExecCondition", "ExecStartPre", "ExecStartPost", "ExecReload", "ExecReloadPost", "ExecStop", "ExecStopPost"]
        .contains(&key)
}

/// Whether systemd accepts the value: one that is not in the list is ignored, and the earlier one stays.
pub(super) fn takes(pair: &Pair) -> bool {
    let value = pair.value.text();
    let value = value.as_str();
    match (pair.section, pair.key.as_str()) {
        ("Service", "Type") => {
            ["simple", "exec", "forking", "oneshot", "dbus", "notify", "notify-reload", "idle"].contains(&value)
        }
        ("Service", "Restart") => {
            ["no", "on-success", "on-failure", "on-abnormal", "on-watchdog", "on-abort", "always"].contains(&value)
        }
        ("Service", "RemainAfterExit") => boolean(value).is_some(),
        _ => true,
    }
}

/// A boolean as systemd reads it.
fn boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
        _ => None,
    }
}

/// Settings whose bad value spoils the unit.
pub(super) fn check(context: &Context<'_>, pair: &Pair) -> Result<(), ParseAbort> {
    let value = pair.value.text();
    let bad = match (pair.section, pair.key.as_str()) {
        _ if value.is_empty() => None,
        ("Service", "WorkingDirectory") => {
            let path = value.strip_prefix('-').unwrap_or(&value);
            let relative = path != "~" && !path.starts_with(['/', '%']);
            (relative && !value.starts_with('-')).then_some("the path is not absolute")
        }
        ("Service", "RootDirectory" | "RootImage") => {
            (!value.trim_start_matches('-').starts_with(['/', '%'])).then_some("the path is not absolute")
        }
        ("Service", "User" | "Group") => value.contains([':', '/']).then_some("this is no name of a user or a group"),
        _ => None,
    };
    match bad {
        None => Ok(()),
        Some(why) => Err(ParseAbort {
            at: pair.value.place(context.source),
            reason: format!("{}={value}: {why}", pair.key),
            bad_setting: true,
        }),
    }
}

fn get<'a>(settings: &'a Settings, section: &str, key: &str) -> Option<&'a Setting> {
    settings.get(&(section.to_owned(), key.to_owned())).filter(|setting| !setting.value.is_empty())
}

/// Whether more than one command is allowed.
pub(super) fn is_oneshot(execs: &[Exec], settings: &Settings) -> bool {
    match get(settings, "Service", "Type") {
        Some(kind) => kind.value == "oneshot",
        None => execs.is_empty() && get(settings, "Service", "BusName").is_none(),
    }
}

/// The setting by which a service of `Type=oneshot` would be restarted as it may not be, and what systemd says of it.
fn restarts(settings: &Settings) -> Option<(Location, &'static str)> {
    let restart = get(settings, "Service", "Restart")
        .filter(|setting| ["always", "on-success"].contains(&setting.value.as_str()));
    if let Some(restart) = restart {
        let reason = "Service has Restart= set to either always or on-success, which isn't allowed for Type=oneshot services. Refusing.";
        return Some((restart.at.clone(), reason));
    }
    let forced = get(settings, "Service", "RestartForceExitStatus")?;
    let reason = "Service has RestartForceExitStatus= set, which isn't allowed for Type=oneshot services. Refusing.";
    Some((forced.at.clone(), reason))
}

/// Judges the service as a whole.
pub(super) fn verify(
    execs: &[Exec],
    settings: &Settings,
    reset: Option<&Location>,
    fragment: Option<&Path>,
) -> LoadState {
    let bad = |at: Location, reason: &str| LoadState::BadSetting { at, reason: reason.to_owned() };
    let service = |key| get(settings, "Service", key);
    let succeeds = get(settings, "Unit", "SuccessAction").is_some_and(|setting| setting.value != "none");
    let oneshot = is_oneshot(execs, settings);
    let nowhere = || reset.cloned().or_else(|| fragment.map(Location::file)).unwrap_or_else(|| Location::file(""));
    if execs.is_empty() && !succeeds {
        let remains = service("RemainAfterExit").and_then(|setting| boolean(&setting.value));
        if service("ExecStop").is_none() {
            return bad(nowhere(), "Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing.");
        }
        if !oneshot {
            let reason =
                "Service has no ExecStart= and no SuccessAction= setting and does not have Type=oneshot set. Refusing.";
            return bad(nowhere(), reason);
        }
        if remains != Some(true) {
            let reason =
                "Service has no ExecStart= setting, which is only allowed for RemainAfterExit=yes services. Refusing.";
            return bad(nowhere(), reason);
        }
    }
    if !oneshot && let [_, .., last] = execs {
        let reason =
            "Service has more than one ExecStart= setting, which is only allowed for Type=oneshot services. Refusing.";
        return bad(last.at.clone(), reason);
    }
    if oneshot && let Some((at, reason)) = restarts(settings) {
        return bad(at, reason);
    }
    if let Some(kind) = service("Type")
        && kind.value == "dbus"
        && service("BusName").is_none()
    {
        let reason = "Service is of type D-Bus but no D-Bus service name has been specified. Refusing.";
        return bad(kind.at.clone(), reason);
    }
    LoadState::Loaded
}
