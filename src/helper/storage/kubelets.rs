//! Whose file systems are looked at: what the helper knows of the kubelet.

use std::{path::PathBuf, sync::PoisonError};

use super::Disk;
use crate::{config::KubeletSettings, helper::process, host::files::Root};

/// What is known of the kubelet.
#[derive(Debug, Default)]
pub(super) struct Kubelets {
    /// Its process, whose view of the mounts counts.
    pub(super) pid: Option<i32>,
    /// Its `--root-dir`; without it the usual places are looked at.
    pub(super) root_dir: Option<PathBuf>,
}

impl Kubelets {
    /// What is known of the folder outlives the process: its disk is looked at while it is down, too.
    pub(super) fn find(disk: &Disk, root: &Root, settings: &KubeletSettings) -> Self {
        let mut last = disk.root_dir.lock().unwrap_or_else(PoisonError::into_inner);
        let kubelet = process::find(root, settings).ok().flatten();
        if let Some(kubelet) = &kubelet {
            let named = kubelet.flags().and_then(|flags| flags.root_dir);
            *last = named.and_then(|path| kubelet.resolve(root, &path).ok());
        }
        Self {
            pid: kubelet.map(|kubelet| kubelet.pid()),
            root_dir: last.clone(),
        }
    }
}
