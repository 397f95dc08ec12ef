//! The snaps: `MicroK8s`, whose kubelite runs the kubelet in its own process, and Canonical's k8s. Both take the
//! kubelet's arguments from a file.

use std::path::{Path, PathBuf};

use super::{
    super::{
        location::Location,
        systemd::{Arg, Unit},
        tree::Tree,
    },
    KubeletCommand, Launcher, Unknown,
    args_file::{self, Environment, Split},
};

/// `MicroK8s`. `instance` is the snap's name (`microk8s`, or `microk8s_key` of a parallel installation); `first` is
/// where kubelite's own words begin, if the unit runs it without the snap's wrapper.
pub(super) fn microk8s(tree: &dyn Tree, unit: &Unit, instance: &str, first: Option<usize>) -> KubeletCommand {
    let environment = environment(tree, unit, instance);
    let data = Path::new("/var/snap").join(instance).join("current");
    let named = if let Some(first) = first {
        let words = unit.argv.get(first..).unwrap_or_default();
        args_file_option(words.iter().map(|word| word.text.as_str()))
    } else {
        // The snap's wrapper gives kubelite the words of a file of its own, which it hands to bash.
        let path = data.join("args/kubelite");
        let text = tree.read_text(&path).unwrap_or_default();
        let split = args_file::bash(&Location::file(&path), &text, &environment);
        args_file_option(split.args.iter().map(|arg| arg.text.as_str()))
    };
    // The wrapper names the file by its revision; the name that does not change is the one that people edit.
    let usual = data.join("args/kubelet");
    let path =
        named.map(PathBuf::from).filter(|named| tree.real_path(named) != tree.real_path(&usual)).unwrap_or(usual);
    read(tree, KubeletCommand::new(Launcher::MicroK8s), &path, |place, text| {
        args_file::kubelite(place, text, &environment)
    })
}

/// Canonical's k8s.
pub(super) fn k8s(tree: &dyn Tree, unit: &Unit, instance: &str) -> KubeletCommand {
    let environment = environment(tree, unit, instance);
    let snap = Path::new("/var/snap").join(instance);
    let common = snap.join("common/args/kubelet");
    // Releases before 1.30 kept it with the revision's data.
    let old = snap.join("current/args/kubelet");
    let path = if !tree.exists(&common) && tree.exists(&old) { old } else { common };
    read(tree, KubeletCommand::new(Launcher::K8sSnap), &path, |place, text| args_file::bash(place, text, &environment))
}

/// Reads an arguments file into the kubelet's words.
fn read(
    tree: &dyn Tree,
    mut command: KubeletCommand,
    path: &Path,
    split: impl FnOnce(&Location, &str) -> Split,
) -> KubeletCommand {
    let place = Location::file(path);
    let text = match tree.read_text(path) {
        Ok(text) => text,
        Err(error) => {
            command.unreadable.push((place.clone(), error.to_string()));
            command.unknown = Some(Unknown {
                at: place,
                program: path.display().to_string(),
                reason: format!("holds the kubelet's arguments and {error}"),
            });
            return command;
        }
    };
    let split = split(&place, &text);
    command.files.push(place.clone());
    command.oddities = split.oddities;
    if let Some((at, reason)) = split.unknown {
        command.unreadable.push((at.clone(), reason.clone()));
        command.unknown = Some(Unknown { at, program: path.display().to_string(), reason });
        return command;
    }
    let name = Arg { text: "kubelet".to_owned(), declared: place, origins: Vec::new() };
    let words = split.args.into_iter().map(|arg| Arg { text: arg.text, declared: arg.at, origins: Vec::new() });
    let mut command = command.with_args(std::iter::once(name).chain(words).collect());
    if let Some(name) = command.built_in.first_mut() {
        *name = true;
    }
    command
}

/// The value of kubelite's `--kubelet-args-file`; the last one counts.
fn args_file_option<'a>(words: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut found = None;
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let Some(rest) = word.trim_start_matches('-').strip_prefix("kubelet-args-file") else {
            continue;
        };
        found = match rest.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if rest.is_empty() => words.peek().map(|value| (*value).to_owned()),
            None => found,
        };
    }
    found.filter(|path| path.starts_with('/'))
}

/// The service's environment with what `snap run` sets in it.
fn environment(tree: &dyn Tree, unit: &Unit, instance: &str) -> Environment {
    let name = instance.split('_').next().unwrap_or(instance);
    let current = Path::new("/var/snap").join(instance).join("current");
    let revision = tree
        .read_link(&current)
        .ok()
        .and_then(|target| Some(target.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "current".to_owned());
    let mut environment: Environment =
        unit.variables.iter().map(|(name, variable)| (name.clone(), variable.effective.value.clone())).collect();
    environment.extend(
        [
            ("SNAP", format!("/snap/{name}/{revision}")),
            ("SNAP_NAME", name.to_owned()),
            ("SNAP_INSTANCE_NAME", instance.to_owned()),
            ("SNAP_DATA", format!("/var/snap/{instance}/{revision}")),
            ("SNAP_COMMON", format!("/var/snap/{instance}/common")),
            ("SNAP_REVISION", revision),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    environment
}
