//! The snaps `MicroK8s`, whose kubelite is a kubelet too, and Canonical's k8s: a file has the kubelet's arguments.

use std::path::Path;

use super::args_file::{self, Environment, Split};
use super::{KubeletCommand, Launcher};
use crate::kubelet::args;
use crate::kubelet::location::Location;
use crate::kubelet::systemd::{Arg, Unit};
use crate::kubelet::tree::Tree;

/// `MicroK8s`. `words` are those of the unit from kubelite on, if it runs that without the snap's wrapper.
pub(super) fn microk8s(tree: &dyn Tree, unit: &Unit, words: &[Arg]) -> KubeletCommand {
    let environment = environment(tree, unit, "microk8s");
    let words = if words.is_empty() {
        // The snap's wrapper gives kubelite the words of a file of its own, which it hands to bash.
        let path = Path::new("/var/snap/microk8s/current/args/kubelite");
        args_file::bash(&Location::file(path), &tree.read_text(path).unwrap_or_default(), &environment).args
    } else {
        words.to_vec()
    };
    // The wrapper names the file by its revision; the name that does not change is the one that people edit.
    let usual = Path::new("/var/snap/microk8s/current/args/kubelet");
    let named = args::values(&words, &["--kubelet-args-file"]).pop().map(|word| word.text);
    let named = named.as_deref().map(Path::new).filter(|path| path.is_absolute());
    let path = named.filter(|named| tree.real_path(named) != tree.real_path(usual)).unwrap_or(usual);
    read(tree, Launcher::MicroK8s, path, |place, text| args_file::kubelite(place, text, &environment))
}

pub(super) fn k8s(tree: &dyn Tree, unit: &Unit) -> KubeletCommand {
    let environment = environment(tree, unit, "k8s");
    let common = Path::new("/var/snap/k8s/common/args/kubelet");
    // Releases before 1.30 kept it with the revision's data.
    let old = Path::new("/var/snap/k8s/current/args/kubelet");
    let path = if !tree.exists(common) && tree.exists(old) { old } else { common };
    read(tree, Launcher::K8sSnap, path, |place, text| args_file::bash(place, text, &environment))
}

fn read(
    tree: &dyn Tree,
    launcher: Launcher,
    path: &Path,
    split: impl FnOnce(&Location, &str) -> Split,
) -> KubeletCommand {
    let command = KubeletCommand::new(launcher);
    let place = Location::file(path);
    let text = match tree.read_text(path) {
        Ok(text) => text,
        Err(error) => {
            let reason = format!("{place} holds the kubelet's arguments and {error}");
            return command.with_unknown(place, reason);
        }
    };
    let Split { mut args, oddities, unknown, .. } = split(&place, &text);
    let command = KubeletCommand { files: vec![place.clone()], oddities, ..command };
    if let Some((at, reason)) = unknown {
        return command.with_unknown(at, format!("{} {reason}", path.display()));
    }
    args.insert(0, Arg { built_in: true, ..Arg::new("kubelet", place) });
    KubeletCommand { args, ..command }
}

/// The service's environment with what `snap run` sets in it for the snap `name`.
fn environment(tree: &dyn Tree, unit: &Unit, name: &str) -> Environment {
    let current = tree.read_link(&Path::new("/var/snap").join(name).join("current"));
    let current = current.ok().and_then(|target| Some(target.file_name()?.to_string_lossy().into_owned()));
    let revision = current.unwrap_or_else(|| "current".to_owned());
    let of_snap = [
        ("SNAP", format!("/snap/{name}/{revision}")),
        ("SNAP_NAME", name.to_owned()),
        ("SNAP_INSTANCE_NAME", name.to_owned()),
        ("SNAP_DATA", format!("/var/snap/{name}/{revision}")),
        ("SNAP_COMMON", format!("/var/snap/{name}/common")),
        ("SNAP_REVISION", revision),
    ];
    let of_unit = unit.variables.iter().map(|(name, variable)| (name.clone(), variable.effective.value.clone()));
    of_unit.chain(of_snap.map(|(name, value)| (name.to_owned(), value))).collect()
}
