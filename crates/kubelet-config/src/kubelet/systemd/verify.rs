//! What systemd says against a service (`service_verify()` in `src/core/service.c`), and settings that spoil a unit.

use std::path::Path;

use super::exec::Context;
use super::syntax::Pair;
use super::{Exec, LoadState, Settings};
use crate::kubelet::location::{Located, Location};

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

fn boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
        _ => None,
    }
}

/// Settings whose bad value spoils the unit.
pub(super) fn check(context: &Context<'_>, pair: &Pair) -> Result<(), LoadState> {
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
        Some(why) => {
            let reason = format!("{}={value}: {why}", pair.key);
            Err(LoadState::BadSetting { at: pair.value.place(context.source), reason })
        }
    }
}

/// A setting that is not empty.
pub(super) fn get<'a>(settings: &'a Settings, section: &str, key: &str) -> Option<&'a Located<String>> {
    settings.get(&(section.to_owned(), key.to_owned())).filter(|setting| !setting.value.is_empty())
}

pub(super) fn is_oneshot(execs: &[Exec], settings: &Settings) -> bool {
    match get(settings, "Service", "Type") {
        Some(kind) => kind.value == "oneshot",
        None => execs.is_empty() && get(settings, "Service", "BusName").is_none(),
    }
}

pub(super) fn verify(
    execs: &[Exec],
    settings: &Settings,
    reset: Option<&Location>,
    fragment: Option<&Path>,
) -> LoadState {
    let nowhere = || reset.cloned().or_else(|| fragment.map(Location::file)).unwrap_or_else(|| Location::file(""));
    let found = without_command(execs, settings).map(|reason| (nowhere(), reason));
    match found.or_else(|| contradiction(execs, settings)) {
        Some((at, reason)) => LoadState::BadSetting { at, reason: format!("{reason} Refusing.") },
        None => LoadState::Loaded,
    }
}

/// Why a service may not be without `ExecStart=`, if it is.
fn without_command(execs: &[Exec], settings: &Settings) -> Option<&'static str> {
    let succeeds = get(settings, "Unit", "SuccessAction").is_some_and(|setting| setting.value != "none");
    let remains = get(settings, "Service", "RemainAfterExit").and_then(|setting| boolean(&setting.value));
    if !execs.is_empty() || succeeds {
        None
    } else if get(settings, "Service", "ExecStop").is_none() {
        Some("Service has no ExecStart=, ExecStop=, or SuccessAction=.")
    } else if !is_oneshot(execs, settings) {
        Some("Service has no ExecStart= and no SuccessAction= setting and does not have Type=oneshot set.")
    } else if remains != Some(true) {
        Some("Service has no ExecStart= setting, which is only allowed for RemainAfterExit=yes services.")
    } else {
        None
    }
}

/// The setting that another one forbids, and what systemd says of it.
fn contradiction(execs: &[Exec], settings: &Settings) -> Option<(Location, &'static str)> {
    let service = |key| get(settings, "Service", key);
    let is_oneshot = is_oneshot(execs, settings);
    let restart = service("Restart").filter(|restart| ["always", "on-success"].contains(&restart.value.as_str()));
    let dbus = service("Type").filter(|kind| kind.value == "dbus" && service("BusName").is_none());
    let (at, reason) = match (execs, restart, service("RestartForceExitStatus"), dbus) {
        ([_, .., last], ..) if !is_oneshot => {
            (&last.at, "Service has more than one ExecStart= setting, which is only allowed for Type=oneshot services.")
        }
        (_, Some(restart), ..) if is_oneshot => (
            &restart.at,
            "Service has Restart= set to either always or on-success, which isn't allowed for Type=oneshot services.",
        ),
        (_, _, Some(forced), _) if is_oneshot => {
            (&forced.at, "Service has RestartForceExitStatus= set, which isn't allowed for Type=oneshot services.")
        }
        (.., Some(dbus)) => (&dbus.at, "Service is of type D-Bus but no D-Bus service name has been specified."),
        _ => return None,
    };
    Some((at.clone(), reason))
}
