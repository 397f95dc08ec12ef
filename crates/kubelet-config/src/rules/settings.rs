//! What several families ask of the settings: where one would edit one, and whether they can be known at all.

use crate::kubelet::{
    config::ConfigFileState,
    effective::From,
    flags::table::FLAGS,
    layers::Launcher,
    location::Location,
    snapshot::{Lifecycle, Snapshot},
};

/// Says that a setting could not be judged because the kubelet's command line is not known.
pub(super) const COMMAND: &str = "the kubelet's command line";

/// Whether the kubelet's words, and with them its settings, are known.
pub(super) fn are_known(snapshot: &Snapshot) -> bool {
    snapshot.command.launcher != Launcher::Script && !snapshot.command.args.is_empty()
}

/// Whether the distribution gets certificates and CNI for its kubelet by itself.
pub(super) fn are_managed(snapshot: &Snapshot) -> bool {
    matches!(snapshot.command.launcher, Launcher::K3s | Launcher::Rke2)
}

/// Whether this setting is not set.
pub(super) fn is_default(snapshot: &Snapshot, path: &str) -> bool {
    snapshot.settings.get(path).is_none_or(|setting| matches!(setting.from, From::Default { .. } | From::Distribution))
}

/// Whether this setting has the default of a kubelet that was given no `--config`.
pub(super) fn is_legacy(snapshot: &Snapshot, path: &str) -> bool {
    snapshot.settings.get(path).is_some_and(|setting| setting.from == From::Default { legacy: true })
}

/// The file that `--config` names.
pub(super) fn config_file(snapshot: &Snapshot) -> Option<&Location> {
    let files = &snapshot.config.files;
    files.iter().find(|file| !file.drop_in).map(|file| &file.at)
}

/// Whether the file of `--config` is still to be written, as before `kubeadm join`: what it will say is not known.
pub(super) fn are_to_come(snapshot: &Snapshot) -> bool {
    snapshot.lifecycle == Lifecycle::BeforeFirstStart
        && snapshot.config.files.iter().any(|file| !file.drop_in && file.state == ConfigFileState::Missing)
}

/// The arguments file of a snap's kubelet.
fn arguments_file(snapshot: &Snapshot) -> Option<&Location> {
    let command = &snapshot.command;
    let has_one = matches!(command.launcher, Launcher::MicroK8s | Launcher::K8sSnap);
    command.files.first().filter(|_| has_one)
}

/// Where the kubelet's flags are written: the command that starts it, or the arguments file of a snap.
pub(super) fn command(snapshot: &Snapshot) -> Location {
    let unit = &snapshot.unit;
    if let Some(file) = arguments_file(snapshot) {
        return file.clone();
    }
    match (&unit.exec, &unit.fragment) {
        (Some(exec), _) => exec.at.clone(),
        (None, Some(fragment)) => Location::file(fragment),
        (None, None) => Location::file(&unit.name),
    }
}

/// Where one would edit a setting: where it is set, else in the configuration file, else in the command.
pub(super) fn place(snapshot: &Snapshot, path: &str) -> Location {
    match snapshot.settings.get(path).map(|setting| &setting.from) {
        Some(From::Flag(at) | From::File(at)) => at.clone(),
        _ => config_file(snapshot).map_or_else(|| command(snapshot), Clone::clone),
    }
}

/// How to set a setting: in the place where it is set, in the configuration file, or as a flag of the command.
pub(super) fn edit(snapshot: &Snapshot, path: &str, field: &str, flag: &str) -> String {
    let unit = &snapshot.unit.name;
    let at = place(snapshot, path);
    match snapshot.settings.get(path).map(|setting| &setting.from) {
        Some(From::Flag(_)) => format!("{at}: write {flag} instead, then systemctl restart {unit}"),
        Some(From::File(_)) => {
            // The keys above it are written there already.
            let field = path.rsplit_once('.').and_then(|(parents, _)| field.strip_prefix(parents)).unwrap_or(field);
            format!("{at}: write {} instead, then systemctl restart {unit}", field.trim_start_matches('.'))
        }
        _ if config_file(snapshot).is_some() => {
            format!("{at}: add {field}, then systemctl restart {unit}")
        }
        _ if arguments_file(snapshot).is_some() => {
            format!("{at}: add {flag}, then systemctl restart {unit}")
        }
        _ => format!(
            "{at}: add {flag} (or give the kubelet a file with --config), then systemctl daemon-reload && systemctl \
             restart {unit}"
        ),
    }
}

/// What a setting is called where another one is set: its field, or its flag if the other one is set by a flag.
pub(super) fn name(snapshot: &Snapshot, path: &str, beside: &str) -> String {
    let by_flag = matches!(snapshot.settings.get(beside).map(|setting| &setting.from), Some(From::Flag(_)));
    let flag = FLAGS.iter().find(|spec| by_flag && spec.field == Some(path));
    flag.map_or_else(|| path.to_owned(), |flag| format!("--{}", flag.name))
}

/// The same with a value.
pub(super) fn written(snapshot: &Snapshot, path: &str, beside: &str, value: &str) -> String {
    let name = name(snapshot, path, beside);
    let sign = if name.starts_with('-') { "=" } else { ": " };
    format!("{name}{sign}{value}")
}

/// Why a setting that is not set has its value.
pub(super) fn by_default(snapshot: &Snapshot, path: &str, flag: &str) -> String {
    if is_legacy(snapshot, path) || config_file(snapshot).is_none() {
        format!("no {flag} and no --config")
    } else {
        format!("no {path} in the configuration")
    }
}
