//! Holds the resolver's answer against the real systemd's.

use std::collections::BTreeMap;

use kubelet_config::kubelet::systemd::{EnvFileState, LoadState, Manager, Source, Unit, resolve_unit};

use super::case::{Case, Got, Said, World};

/// Variables that systemd sets for every service itself, and whose values do not depend on a tree.
const OWN: [&str; 12] = [
    "PATH",
    "LANG",
    "INVOCATION_ID",
    "SYSTEMD_EXEC_PID",
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
];

/// The manager that the resolver gets.
pub(crate) fn manager(world: &World) -> Manager {
    Manager {
        environment: world.environment.clone(),
        version: world.version,
        hostname: world.hostname.clone(),
        machine_id: world.machine_id.clone(),
        boot_id: world.boot_id.clone(),
        ..Manager::default()
    }
}

/// Resolves the case.
pub(crate) fn resolved(case: &Case, world: &World) -> Unit {
    resolve_unit(&case.tree(world), &case.unit, &manager(world))
}

/// Everything in which the two differ, a line each.
pub(crate) fn differences(case: &Case, world: &World, said: &Said) -> Vec<String> {
    let unit = resolved(case, world);
    let mut found = Vec::new();
    let mut differ = |what: &str, real: &str, ours: &str| {
        if real != ours {
            found.push(format!("{what}: systemd {real}, nodevigil {ours}"));
        }
    };
    if let Some(state) = &said.load_state {
        differ("LoadState", state, load_state(&unit.load));
        let fragment = unit.fragment.as_ref().map_or(String::new(), |path| path.to_string_lossy().into_owned());
        differ("FragmentPath", &merged(&said.fragment), &merged(&fragment));
        let dropins: Vec<String> = unit.dropins.iter().map(|path| merged(&path.to_string_lossy())).collect();
        let real: Vec<String> = said.dropins.iter().map(|path| merged(path)).collect();
        differ("DropInPaths", &real.join(" "), &dropins.join(" "));
        differ("Id", &said.id, unit.names.first().unwrap_or(&unit.name));
        let mut names = unit.names.clone();
        names.sort();
        differ("Names", &said.names.join(" "), &names.join(" "));
    }
    let says = |starts: bool| {
        if starts { "starts it" } else { "refuses to start it" }
    };
    let started = said.process.is_some() || said.not_executed;
    // Of a unit that cannot be shown, it is not known why it left nothing behind.
    if started || said.load_state.is_some() {
        differ("start", says(started), says(starts(&unit)));
    }
    if let Some(got) = said.process.as_ref().filter(|_| starts(&unit)) {
        let argv: Vec<&str> = unit.argv.iter().map(|word| word.text.as_str()).collect();
        differ("argv", &format!("{:?}", got.argv), &format!("{argv:?}"));
        found.extend(environment(got, &unit));
    }
    found
}

/// The two /usr-merged directories have two names.
fn merged(path: &str) -> String {
    match path.strip_prefix("/lib/") {
        Some(rest) => format!("/usr/lib/{rest}"),
        None => path.to_owned(),
    }
}

fn load_state(state: &LoadState) -> &'static str {
    match state {
        LoadState::Loaded => "loaded",
        LoadState::NotFound => "not-found",
        LoadState::Masked { .. } => "masked",
        LoadState::BadSetting { .. } => "bad-setting",
        LoadState::Error { .. } => "error",
    }
}

/// Whether the resolver would have it start: a required environment file must have been read.
pub(crate) fn starts(unit: &Unit) -> bool {
    unit.load == LoadState::Loaded
        && unit.exec.is_some()
        && unit.env_files.iter().all(|file| file.optional || file.state == EnvFileState::Read)
}

fn environment(got: &Got, unit: &Unit) -> Vec<String> {
    let ours: BTreeMap<&str, (&str, bool)> = unit
        .variables
        .iter()
        .map(|(name, variable)| {
            let by_tree = variable.effective.source != Source::Manager;
            (name.as_str(), (variable.effective.value.as_str(), by_tree))
        })
        .collect();
    let mut found = Vec::new();
    for (name, (value, by_tree)) in &ours {
        let own = OWN.contains(name) && !by_tree;
        match got.environment.get(*name) {
            Some(real) if real == value || own => {}
            Some(real) => found.push(format!("{name}: systemd {real:?}, nodevigil {value:?}")),
            None => found.push(format!("{name}: systemd unset, nodevigil {value:?}")),
        }
    }
    for (name, real) in &got.environment {
        if !ours.contains_key(name.as_str()) && !OWN.contains(&name.as_str()) {
            found.push(format!("{name}: systemd {real:?}, nodevigil unset"));
        }
    }
    found
}
