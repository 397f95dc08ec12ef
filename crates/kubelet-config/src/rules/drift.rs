//! Disk, systemd's memory and the running process compared: what a restart would change, and what it would not.

mod memory;
mod running;

use std::collections::{BTreeMap, BTreeSet};

use memory::one_usr;
pub(super) use running::running_config;

use super::lost::{duration, quoted, whole};
use super::{Finding, Launcher, Location, Report, Severity, Snapshot, flags_in, settings};
use crate::kubelet::expected_flag::ExpectedFlag;
use crate::kubelet::snapshot::{Loaded, Process};
use crate::kubelet::systemd::{Arg, LoadState};
use crate::step::{reload, unit_name};

/// What differs in one file.
#[derive(Debug)]
struct Difference {
    at: Location,
    what: Vec<String>,
    text: String,
}

#[derive(Debug, Default)]
struct Differences(BTreeMap<String, Difference>);

impl Differences {
    fn add(&mut self, at: &Location, what: String, text: &str) {
        let known = self.0.entry(at.file.to_string()).or_insert_with(|| Difference {
            at: at.clone(),
            what: Vec::new(),
            text: String::new(),
        });
        if known.at.line == 0 {
            known.at = at.clone();
        }
        known.what.push(what);
        known.text.push_str(text);
        known.text.push('\n');
    }
}

pub(super) fn needs_daemon_reload(snapshot: &Snapshot, report: &mut Report) {
    let Some(loaded) = &snapshot.observed.loaded else {
        report.not_checked("SD020", "the unit as systemd has loaded it");
        return;
    };
    let unit = &snapshot.unit;
    if unit.load == LoadState::NotFound || loaded.load_state.is_empty() {
        return;
    }
    let fragment = unit.fragment.as_deref().map_or_else(|| Location::file(&unit.name), Location::file);
    let differences = differences(snapshot, loaded, &fragment);
    if differences.0.is_empty() {
        if loaded.need_daemon_reload {
            let message = format!(
                "systemd reports that a file of {} has changed since it was loaded. The command and the environment \
                 are the same, but other settings may differ",
                unit.name
            );
            report.add(
                Finding::new("SD020", Severity::Warning, fragment, message).say(format!("run {}", reload(snapshot))),
            );
        }
        return;
    }
    let only_on_disk = only_on_disk(snapshot, loaded);
    let names_it = |difference: &Difference| only_on_disk.iter().any(|wanted| wanted.is_in(&difference.text));
    let any_names_it = differences.0.values().any(names_it);
    for difference in differences.0.values() {
        let is_cause = !any_names_it || names_it(difference);
        report.add(not_loaded(snapshot, difference, if is_cause { &only_on_disk } else { &[] }));
    }
}

fn not_loaded(snapshot: &Snapshot, difference: &Difference, lost: &[ExpectedFlag]) -> Finding {
    let severity = if lost.is_empty() { Severity::Warning } else { Severity::Error };
    let (at, what) = (&difference.at, difference.what.join(", "));
    let message = format!("systemd has not loaded {} as it is now: {what}. A restart keeps the old settings", at.file);
    Finding::new("SD020", severity, at.clone(), message)
        .lost(lost.iter().map(ExpectedFlag::written).collect())
        .say(format!("run {}", reload(snapshot)))
}

/// The wanted flags that the disk gives and systemd's memory does not.
fn only_on_disk(snapshot: &Snapshot, loaded: &Loaded) -> Vec<ExpectedFlag> {
    if !matches!(snapshot.command.launcher, Launcher::Direct) {
        return Vec::new(); // The flags come from a second layer, which systemd does not load.
    }
    let remembered = memory::words(snapshot, loaded).join(" ");
    ExpectedFlag::all(&snapshot.intent)
        .into_iter()
        .filter(|wanted| wanted.reaches(snapshot) && !wanted.is_in(&remembered))
        .collect()
}

fn differences(snapshot: &Snapshot, loaded: &Loaded, fragment: &Location) -> Differences {
    let unit = &snapshot.unit;
    let mut found = Differences::default();
    match (&unit.load, loaded.load_state.as_str()) {
        (LoadState::Masked { .. }, "masked") => return found,
        (LoadState::Masked { by }, state) => {
            found.add(by, format!("it is masked on disk and {state} in memory"), "");
            return found;
        }
        (_, state @ ("not-found" | "masked")) => {
            found.add(fragment, format!("in memory it is {state}"), "");
            return found;
        }
        _ => {}
    }
    if !loaded.fragment.is_empty() && one_usr(&loaded.fragment) != one_usr(&fragment.file) {
        found.add(fragment, format!("in memory it is {}", quoted(&loaded.fragment)), "");
    }
    let on_disk: Vec<String> = unit.dropins.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let differs = |path: &&String, others: &[String]| others.iter().all(|other| one_usr(other) != one_usr(path));
    for path in on_disk.iter().filter(|path| differs(path, &loaded.dropins)) {
        found.add(&Location::file(path), "the drop-in is new".to_owned(), "");
    }
    for path in loaded.dropins.iter().filter(|path| differs(path, &on_disk)) {
        found.add(&Location::file(path), "the drop-in is no longer read".to_owned(), "");
    }
    memory::environment(unit, loaded, fragment, &mut found);
    memory::environment_files(unit, loaded, fragment, &mut found);
    memory::exec(unit, loaded, &mut found);
    found
}

pub(super) fn argv_drift(snapshot: &Snapshot, report: &mut Report) {
    let Some(process) = &snapshot.observed.process else {
        report.not_checked("SD021", "the running kubelet");
        return;
    };
    let command = &snapshot.command;
    if command.launcher.is_in_process() || command.args.is_empty() || process.argv.is_empty() {
        report.not_checked("SD021", "the arguments of a kubelet without a command line of its own");
        return;
    }
    // What a distribution adds by itself is modelled, not known: only the user's words are compared.
    let is_modelled = command.launcher == Launcher::Rke2;
    let mut running_words: BTreeMap<&str, usize> = BTreeMap::new();
    for word in process.argv.iter().skip(1) {
        *running_words.entry(word).or_default() += 1;
    }
    let mut lacking = Vec::new();
    for word in command.args.iter().skip(1) {
        match running_words.get_mut(word.text.as_str()) {
            Some(count) if *count > 0 => *count -= 1,
            _ if is_modelled && word.built_in => {}
            _ => lacking.push(word),
        }
    }
    running_words.retain(|_, count| *count > 0);
    let excess: Vec<&str> = if is_modelled { Vec::new() } else { running_words.into_keys().collect() };
    if lacking.is_empty() && excess.is_empty() {
        if command.launcher.is_order_significant() && order_matters(snapshot, process) {
            report.add(other_order(snapshot, process));
        }
        return;
    }
    report.add(drifted(snapshot, report, process, &lacking, &excess));
}

fn drifted(snapshot: &Snapshot, report: &Report, process: &Process, lacking: &[&Arg], excess: &[&str]) -> Finding {
    let lacking_text: Vec<&str> = lacking.iter().map(|word| word.text.as_str()).collect();
    let both = format!("{} {}", lacking_text.join(" "), excess.join(" "));
    let wanted = ExpectedFlag::all(&snapshot.intent);
    let is_error = wanted.iter().any(|wanted| wanted.is_in(&both)) || is_fatal(snapshot, &lacking_text);
    let severity = if is_error { Severity::Error } else { Severity::Warning };
    let mut parts = Vec::new();
    if !lacking.is_empty() {
        parts.push(format!("lacks {}", quoted(&lacking_text.join(" "))));
    }
    if !excess.is_empty() {
        parts.push(format!("also has {}", quoted(&excess.join(" "))));
    }
    let message = format!(
        "compared with the files as they are now, the running kubelet ({}) {}",
        running(process),
        parts.join(" and ")
    );
    let at = lacking.first().map_or_else(|| settings::command(snapshot), |word| word.at().clone());
    let lost_flags = flags_in(&lacking_text.join(" ")).iter().map(whole).collect();
    with_restart(snapshot, report, Finding { lost_flags, ..Finding::new("SD021", severity, at, message) })
}

/// Whether a flag that is given more than once is in another order.
fn order_matters(snapshot: &Snapshot, process: &Process) -> bool {
    let mut names = BTreeSet::new();
    let words = &snapshot.command.args;
    let same = process.argv.iter().skip(1).eq(words.iter().skip(1).map(|word| &word.text));
    let uses = &snapshot.flags.uses;
    !same && uses.iter().any(|used| !names.insert(&used.name))
}

fn other_order(snapshot: &Snapshot, process: &Process) -> Finding {
    let message = format!(
        "the running kubelet ({}) has the same flags in another order. Of a flag that is given twice it takes the last value",
        running(process)
    );
    Finding::new("SD021", Severity::Warning, settings::command(snapshot), message)
        .say(format!("run `systemctl restart {}`", unit_name(snapshot)))
}

fn with_restart(snapshot: &Snapshot, report: &Report, finding: Finding) -> Finding {
    let stale = report.findings.iter().find(|finding| finding.rule == "SD020");
    match (stale, &snapshot.observed.loaded) {
        (Some(stale), _) => finding
            .say(format!("run {} (systemd has not loaded the files either: SD020)", reload(snapshot)))
            .caused_by("SD020", stale.at.clone()),
        (None, Some(_)) => finding.say(format!(
            "run `systemctl restart {}` (systemd has loaded the unit as it is on disk: no daemon-reload is needed)",
            unit_name(snapshot)
        )),
        (None, None) => finding.say(format!("run {}", reload(snapshot))),
    }
}

/// Whether the next start would fail on a flag that the running kubelet was spared.
fn is_fatal(snapshot: &Snapshot, lacking: &[&str]) -> bool {
    snapshot.version.as_ref().is_some_and(|version| {
        let mut unknown =
            snapshot.flags.uses.iter().filter(|used| used.spec.is_none_or(|spec| !spec.known_in(version.minor)));
        unknown.any(|used| lacking.iter().any(|word| word.starts_with(&used.written)))
    })
}

fn running(process: &Process) -> String {
    let age = process.age_secs.map_or_else(String::new, |secs| format!(", started {} ago", duration(secs)));
    format!("pid {}{age}", process.pid)
}

#[cfg(test)]
mod tests;
