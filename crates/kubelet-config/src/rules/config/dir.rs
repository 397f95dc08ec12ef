//! Rules on `--config-dir`: whether this kubelet knows it, and what in it is read.

use super::{ConfigFile, ConfigFileState, Finding, Lifecycle, Location, Report, Severity, Snapshot, at};

/// The environment variable without which 1.28 and 1.29 refuse the flag.
const ALPHA: &str = "KUBELET_CONFIG_DROPIN_DIR_ALPHA";

pub(in crate::rules) fn config_dir(snapshot: &Snapshot, report: &mut Report) {
    let Some(used) = snapshot.flags.last("config-dir").filter(|used| !used.value.is_empty()) else { return };
    // k3s and RKE2 create the directory before they start the kubelet.
    if at::is_built_in(snapshot, used.word) {
        return;
    }
    let place = used.at.clone();
    let minor = snapshot.version.as_ref().map(|version| version.minor.0);
    let has_variable = snapshot.unit.variables.get(ALPHA).is_some_and(|variable| !variable.effective.value.is_empty());
    if matches!(minor, Some(28 | 29)) && !has_variable {
        let message =
            format!("a kubelet 1.28 or 1.29 with --config-dir exits, unless {ALPHA} is set in its environment");
        let fix =
            format!("set {ALPHA}=true for {}, upgrade to 1.30, or delete the flag at {place}", snapshot.unit.name);
        report.add(Finding::new("CF003", Severity::Fatal, place.clone(), message).fix(fix));
    }
    let is_missing = |file: &&ConfigFile| file.drop_in && file.state == ConfigFileState::Missing;
    if let Some(file) = snapshot.config.files.iter().find(is_missing) {
        let severity = match snapshot.lifecycle {
            Lifecycle::BeforeFirstStart => Severity::Warning,
            Lifecycle::Running => Severity::Fatal,
        };
        let message = format!("--config-dir names {}, which does not exist: the kubelet exits", file.at);
        report.add(Finding::new("CF003", severity, place, message).fix(format!("run `mkdir -p {}`", file.at)));
    }
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
        report.add(Finding::new("CF004", severity, Location::file(name), message).fix(fix));
    }
}
