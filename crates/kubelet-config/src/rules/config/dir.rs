//! Rules on `--config-dir`: whether this kubelet knows it, and what in it is read.

use super::{ConfigFile, ConfigFileState, Finding, Location, Report, Severity, Snapshot, at, settings};
use crate::rules::{Launcher, env_files};

pub(in crate::rules) fn config_dir(snapshot: &Snapshot, report: &mut Report) {
    const ALPHA: &str = "KUBELET_CONFIG_DROPIN_DIR_ALPHA";
    let Some(used) = snapshot.flags.last("config-dir").filter(|used| !used.value.is_empty()) else { return };
    // k3s and RKE2 create the directory before they start the kubelet.
    if at::is_built_in(snapshot, used.word) {
        return;
    }
    let place = used.at.clone();
    let is_direct = snapshot.command.launcher == Launcher::Direct;
    let old = snapshot.version.as_ref().filter(|version| is_direct && (28..30).contains(&version.minor.0));
    if let Some(version) = old.filter(|_| !may_be_set(snapshot, ALPHA)) {
        let message = format!("before 1.30 --config-dir needs the variable {ALPHA}: this kubelet ({version}) exits");
        let fix = format!("add `Environment={ALPHA}=on` to [Service]");
        report.add(
            Finding::new("CF003", Severity::Fatal, place.clone(), message).say_at(&settings::command(snapshot), fix),
        );
    }
    let is_missing = |file: &&ConfigFile| file.drop_in && file.state == ConfigFileState::Missing;
    if let Some(file) = snapshot.config.files.iter().find(is_missing) {
        let message = format!("--config-dir names {}, which does not exist: the kubelet exits", file.at);
        report.add(Finding::new("CF003", Severity::Fatal, place, message).say(format!("run `mkdir -p {}`", file.at)));
    }
}

/// Whether the kubelet may get a variable: from the unit, from systemd, from a program before it (`env`).
fn may_be_set(snapshot: &Snapshot, name: &str) -> bool {
    let unit = &snapshot.unit;
    let passed = unit.settings.get(&("Service".to_owned(), "PassEnvironment".to_owned()));
    unit.variables.contains_key(name)
        || unit.argv.iter().any(|word| word.text.contains(name))
        || passed.is_some_and(|passed| passed.value.split_whitespace().any(|word| word == name))
        || env_files::are_to_come(snapshot)
}

pub(in crate::rules) fn ignored(snapshot: &Snapshot, report: &mut Report) {
    /// What people write instead of `.conf`.
    const USUAL: [&str; 3] = [".yaml", ".yml", ".json"];
    let directory = snapshot.flags.value("config-dir").unwrap_or_default();
    for file in snapshot.config.files.iter().filter(|file| file.state == ConfigFileState::Ignored) {
        let name = &*file.at.file;
        let bare = USUAL.iter().find_map(|end| name.strip_suffix(end));
        let severity = if bare.is_some() || name == directory { Severity::Warning } else { Severity::Info };
        let (message, fix) = if name == directory {
            (
                format!(
                    "{name} is a link or a file, and --config-dir takes a directory: the kubelet reads nothing in it"
                ),
                format!("write the directory's real path at {}, or end the path with a slash", file.declared),
            )
        } else {
            (
                format!(
                    "the kubelet does not read {name}: of --config-dir it reads only files whose name ends in .conf"
                ),
                format!("rename {name} to {}.conf, or delete it", bare.unwrap_or(name)),
            )
        };
        report.add(Finding::new("CF004", severity, Location::file(name), message).say(fix));
    }
}
