//! The files that systemd or the kubelet trusts: who may write them, or read them, may run commands as root or act as
//! the node.

use std::path::{Path, PathBuf};

use super::{
    super::{
        effective::Settings,
        flags::CommandLine,
        location::Location,
        systemd::{EnvFileState, Unit},
        tree::{Kind, Tree},
    },
    FileState, Kubeconfig, TrustedFile,
    credentials::cert_dir,
};

/// How many files are listed: a unit with more drop-ins than that has other problems.
const MAX_FILES: usize = 1000;

/// Lists them, each once, those that are there. `kubeconfigs` have been read from `--kubeconfig` and
/// `--bootstrap-kubeconfig`.
pub(super) fn list(
    tree: &dyn Tree,
    unit: &Unit,
    flags: &CommandLine,
    settings: &Settings,
    kubeconfigs: [&FileState<Kubeconfig>; 2],
) -> Vec<TrustedFile> {
    let mut list = List { tree, files: Vec::new() };
    let unit_files = unit.fragment.iter().chain(&unit.dropins);
    unit_files.for_each(|path| list.add(path, false));
    unit.env_files.iter().filter(|file| file.state == EnvFileState::Read).for_each(|file| list.add(&file.path, false));
    if let Some(program) = unit.exec.as_ref().map(|exec| exec.program.as_str()) {
        list.add(Path::new(program), false);
    }
    if let Some(path) = flags.value("config") {
        list.add(Path::new(path), false);
    }
    if let Some(folder) = flags.value("config-dir").map(Path::new) {
        let names = tree.list(folder).unwrap_or_default();
        let names = names.into_iter().filter(|name| Path::new(name).extension().is_some_and(|suffix| suffix == "conf"));
        names.for_each(|name| list.add(&folder.join(name), false));
    }
    for flag in ["--kubeconfig", "--bootstrap-kubeconfig"] {
        if let Some(path) = settings.text(flag) {
            list.add(Path::new(path), true);
        }
    }
    for kubeconfig in kubeconfigs {
        if let FileState::Present(kubeconfig) = kubeconfig {
            let files = kubeconfig.files.iter();
            files.for_each(|path| list.add(Path::new(path), is_secret(path)));
        }
    }
    if let Some(path) = settings.text("tlsPrivateKeyFile") {
        list.add(Path::new(path), true);
    }
    for name in ["kubelet-client-current.pem", "kubelet-server-current.pem"] {
        list.add(&cert_dir(settings).join(name), true);
    }
    list.files
}

/// Whether a file that a kubeconfig names holds a secret: a certificate alone (`.crt`) does not; the `.pem` files of
/// the kubelet hold the key as well.
fn is_secret(path: &str) -> bool {
    Path::new(path).extension().is_none_or(|suffix| suffix != "crt")
}

struct List<'t> {
    tree: &'t dyn Tree,
    files: Vec<TrustedFile>,
}

impl List<'_> {
    fn add(&mut self, path: &Path, secret: bool) {
        let path: PathBuf = path.into();
        let at = Location::file(&path);
        if let Some(known) = self.files.iter_mut().find(|known| known.at == at) {
            known.secret |= secret;
            return;
        }
        let Ok(meta) = self.tree.stat(&path) else {
            return;
        };
        if meta.kind == Kind::File && self.files.len() < MAX_FILES {
            self.files.push(TrustedFile { at, secret, mode: meta.mode, uid: meta.uid, gid: meta.gid });
        }
    }
}
