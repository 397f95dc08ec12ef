//! The files that systemd or the kubelet trusts: who writes them, or reads them, run commands as root or are the node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::credentials::cert_dir;
use super::{FileState, Kubeconfig, TrustedFile};
use crate::kubelet::effective::Settings;
use crate::kubelet::flags::CommandLine;
use crate::kubelet::location::Location;
use crate::kubelet::systemd::{EnvFileState, Unit};
use crate::kubelet::tree::{Kind, Tree};

/// How many files are listed: a unit with more drop-ins than that has other problems.
const MAX_FILES: usize = 1000;

/// Lists those that are there, each once. `kubeconfigs` were read from `--kubeconfig` and `--bootstrap-kubeconfig`.
pub(super) fn list(
    tree: &dyn Tree,
    unit: &Unit,
    flags: &CommandLine,
    settings: &Settings,
    kubeconfigs: [&FileState<Kubeconfig>; 2],
) -> Vec<TrustedFile> {
    let unit_files = unit.fragment.iter().chain(&unit.dropins).map(PathBuf::as_path);
    let env_files = unit.env_files.iter().filter(|file| file.state == EnvFileState::Read).map(|file| &*file.path);
    let program = unit.exec.as_ref().map(|exec| Path::new(&exec.program));
    let config = flags.value("config").map(Path::new);
    let config_dir = flags.value("config-dir").map(Path::new);
    let config_dir_files: Vec<PathBuf> = config_dir.map_or_else(Vec::new, |directory| {
        let names = tree.list(directory).unwrap_or_default().into_iter();
        names
            .map(|name| directory.join(name))
            .filter(|path| path.extension().is_some_and(|suffix| suffix == "conf"))
            .collect()
    });
    let public = unit_files.chain(env_files).chain(program).chain(config);
    let public = public.chain(config_dir_files.iter().map(PathBuf::as_path)).map(|path| (path.to_owned(), false));

    let named = ["--kubeconfig", "--bootstrap-kubeconfig", "tlsPrivateKeyFile"].into_iter();
    let named = named.filter_map(|setting| settings.text(setting)).map(PathBuf::from);
    let own = ["kubelet-client-current.pem", "kubelet-server-current.pem"].map(|name| cert_dir(settings).join(name));
    let secret = named.chain(own).map(|path| (path, true));

    let of_kubeconfigs = kubeconfigs.into_iter().flat_map(|kubeconfig| match kubeconfig {
        FileState::Present(kubeconfig) => kubeconfig.files.as_slice(),
        _ => &[],
    });
    let of_kubeconfigs = of_kubeconfigs.map(|path| (PathBuf::from(path), is_secret(path)));

    let mut files = BTreeMap::<PathBuf, bool>::new();
    for (path, is_secret) in public.chain(secret).chain(of_kubeconfigs).take(MAX_FILES) {
        *files.entry(path).or_default() |= is_secret;
    }
    let look = |(path, secret): (PathBuf, bool)| {
        let meta = tree.stat(&path).ok().filter(|meta| meta.kind == Kind::File)?;
        Some(TrustedFile { at: Location::file(path), secret, mode: meta.mode, uid: meta.uid, gid: meta.gid })
    };
    files.into_iter().filter_map(look).collect()
}

/// Whether a file of a kubeconfig holds a secret: a certificate (`.crt`) does not, the kubelet's `.pem` holds a key.
fn is_secret(path: &str) -> bool {
    Path::new(path).extension().is_none_or(|suffix| suffix != "crt")
}
