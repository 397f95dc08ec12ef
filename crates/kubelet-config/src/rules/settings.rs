//! What several families ask of the settings: where one would edit one, and whether they can be known at all.

use super::{From, Launcher, Lifecycle, Location, Snapshot, shortened};
use serde_json::Value;

use super::lost::is_not_expanded;
use crate::kubelet::config::{ConfigFile, ConfigFileState};
use crate::kubelet::flags::table::FLAGS;
use crate::kubelet::systemd::{Event, EventKind, LoadState};
use crate::kubelet::text::nearest;

/// Why a rule on settings cannot judge: they are not known at all, or one of these is still to be written.
pub(super) fn unknown(snapshot: &Snapshot, paths: &[&str]) -> Option<&'static str> {
    if snapshot.command.launcher == Launcher::Script || snapshot.command.args.is_empty() {
        return Some("the kubelet's command line");
    }
    if snapshot.unit.exec.as_ref().is_some_and(is_not_expanded) {
        return Some("a command whose variables systemd expands");
    }
    if !paths.iter().any(|path| is_default(snapshot, path)) {
        return None;
    }
    let is_lost = |event: &Event| matches!(event.kind, EventKind::FileUnreadable { .. });
    if snapshot.unit.load != LoadState::Loaded || snapshot.unit.events.iter().any(is_lost) {
        return Some("a unit that can be read whole");
    }
    if config_file(snapshot).is_none() && is_misspelt(snapshot, "config") {
        return Some("the kubelet's --config, which is misspelt");
    }
    let is_unread = |file: &ConfigFile| matches!(file.state, ConfigFileState::Bad { .. }) && file.document.is_none();
    if snapshot.command.launcher == Launcher::K0s {
        return Some("the configuration file that k0s writes when it starts");
    }
    if !snapshot.command.unreadable.is_empty() || snapshot.config.files.iter().any(is_unread) {
        return Some("a configuration file that can be read");
    }
    are_to_come(snapshot).then_some("the kubelet's configuration, which is still to be written")
}

/// Whether an argument that is no flag may be this one, misspelt: then it is not known what is set.
pub(super) fn is_misspelt(snapshot: &Snapshot, flag: &str) -> bool {
    let unknown = snapshot.flags.uses.iter().filter(|used| used.spec.is_none()).map(|used| &used.written);
    let mut words = unknown.chain(snapshot.flags.strays.iter().map(|stray| &stray.text));
    words.any(|word| {
        let name = word.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = name.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or_default();
        nearest(name, std::iter::once(flag)).is_some()
    })
}

/// Whether the distribution gets certificates and CNI for its kubelet by itself.
pub(super) fn are_managed(snapshot: &Snapshot) -> bool {
    matches!(snapshot.command.launcher, Launcher::K3s | Launcher::Rke2 | Launcher::K0s)
}

/// Whether the kubelet is to run static pods alone: an API server it could not even ask whom to let in.
pub(super) fn is_standalone(snapshot: &Snapshot) -> bool {
    let settings = &snapshot.settings;
    let asks = settings.bool("authentication.webhook.enabled") != Some(false);
    let has_pods = settings.text("staticPodPath").is_some_and(|path| !path.is_empty());
    settings.text("--kubeconfig").is_none() && has_pods && !asks
}

/// Where a setting comes from.
pub(super) fn from<'a>(snapshot: &'a Snapshot, path: &str) -> Option<&'a From> {
    snapshot.settings.get(path).map(|setting| &setting.from)
}

/// Whether this setting is not set.
pub(super) fn is_default(snapshot: &Snapshot, path: &str) -> bool {
    !matches!(from(snapshot, path), Some(From::Flag(_) | From::File(_)))
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

/// Where the kubelet's flags are written: the command that starts it, or the arguments file of a snap.
pub(super) fn command(snapshot: &Snapshot) -> Location {
    let unit = &snapshot.unit;
    let arguments_file = snapshot.command.files.first().filter(|_| !are_managed(snapshot));
    match (arguments_file, &unit.exec, &unit.fragment) {
        (Some(file), _, _) => file.clone(),
        (_, Some(exec), _) => exec.at.clone(),
        (_, None, Some(fragment)) => Location::file(fragment),
        (_, None, None) => Location::file(&unit.name),
    }
}

/// Where one would edit a setting: where it is set, else in the configuration file, else in the command.
pub(super) fn place(snapshot: &Snapshot, path: &str) -> Location {
    match from(snapshot, path) {
        Some(From::Flag(at) | From::File(at)) => at.clone(),
        _ => config_file(snapshot).map_or_else(|| command(snapshot), Clone::clone),
    }
}

/// The flag that sets a field.
pub(super) fn flag_of(path: &str) -> Option<&'static str> {
    FLAGS.iter().find(|spec| spec.field == Some(path)).map(|spec| spec.name)
}

/// What a setting is called where another one is set: its field, or its flag where flags are written.
pub(super) fn name(snapshot: &Snapshot, path: &str, beside: &str) -> String {
    let by_flag = match from(snapshot, beside) {
        Some(From::Flag(_)) => true,
        Some(From::File(_)) => false,
        _ => config_file(snapshot).is_none(),
    };
    let flag = flag_of(path).filter(|_| by_flag);
    flag.map_or_else(|| path.to_owned(), |flag| format!("--{flag}"))
}

/// A setting and its value, and where the value comes from if nobody set it.
pub(super) fn shown(snapshot: &Snapshot, path: &str) -> String {
    let value = snapshot.settings.get(path).map_or(&Value::Null, |setting| &setting.value);
    let value = shortened(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let value = if value.is_empty() { "empty" } else { &value };
    match (from(snapshot, path), snapshot.command.launcher.rancher_name()) {
        (Some(From::Flag(_) | From::File(_)), _) => format!("{path} is {value}"),
        (Some(From::Distribution), Some(program)) => format!("{path} is {value}, which {program} sets itself"),
        (Some(From::Default { legacy: true }), _) => match flag_of(path) {
            Some(flag) => format!("{path} is {value} by default (no --{flag} and no --config)"),
            None => format!("{path} is {value} by default (no --config)"),
        },
        _ => format!("{path} is {value} by default"),
    }
}
