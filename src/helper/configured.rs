//! What the operator's configuration says of kubelet and container runtime, as the helper reads it itself: the agent's word is
//! no leave to read root's files.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tracing::warn;

use super::runtime::Socket;
use crate::{
    config::{self, KubeletSettings, Settings},
    host::files::Root,
};

/// Which kubelet to look for, and which container runtime to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The kubelet.
    pub kubelet: KubeletSettings,
    /// The socket of `[runtime] endpoint`.
    pub runtime_socket: Option<PathBuf>,
    /// Whether the kubelet's credential is handed out: `[kubernetes] kubelet_identity`.
    pub lends_identity: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self::from(Settings::default())
    }
}

/// The configuration, read anew at each question: it is a few small files, and the helper outlives changes of them.
#[derive(Debug)]
pub struct Configured {
    root: Root,
    given: Vec<PathBuf>,
    last: Mutex<Last>,
}

/// What was read last.
#[derive(Debug, Default)]
struct Last {
    wanted: Wanted,
    /// What is wrong with what is written now, so that each trouble is logged once.
    trouble: Vec<String>,
    /// Where the runtime of the last kubelet listened.
    socket: Socket,
}

impl Configured {
    /// The files and folders in `given`, else those in the default folders.
    pub fn new(root: Root, given: Vec<PathBuf>) -> Self {
        Self {
            root,
            given,
            last: Mutex::default(),
        }
    }

    /// Remembers where the runtime of a kubelet that runs listens.
    pub fn keep_socket(&self, socket: &Socket) {
        self.last().socket.clone_from(socket);
    }

    /// Where the runtime of the kubelet that ran last listened.
    pub fn kept_socket(&self) -> Socket {
        self.last().socket.clone()
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is configured. One that cannot be used changes nothing: the last that could be is gone by, else the defaults.
    pub fn wanted(&self) -> Wanted {
        let read = config::load_roots(&self.root, &self.given);
        let mut last = self.last();
        let trouble = match read {
            Ok((settings, left_out)) => {
                last.wanted = Wanted::from(settings);
                left_out
                    .iter()
                    .map(|file| format!("{file}; the helper does not go by it"))
                    .collect()
            }
            Err(error) => vec![error.to_string()],
        };
        if last.trouble != trouble {
            for trouble in &trouble {
                warn!("configuration: {trouble}");
            }
            last.trouble = trouble;
        }
        last.wanted.clone()
    }
}

impl From<Settings> for Wanted {
    fn from(settings: Settings) -> Self {
        Self {
            kubelet: settings.kubelet,
            runtime_socket: settings.runtime.socket,
            lends_identity: settings.kubernetes.kubelet_identity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::testing::{host, write};

    const LOCAL: &str = "/etc/nodevigil/config.d/50-local.toml";
    const AGENTS: &str = "/run/nodevigil/config.d/60-agents.toml";

    fn unit(configured: &Configured) -> String {
        configured.wanted().kubelet.unit
    }

    #[test]
    fn the_operators_files_count_and_are_read_anew() {
        let (_folder, root) = host();
        let configured = Configured::new(root.clone(), Vec::new());
        assert_eq!(configured.wanted(), Wanted::default());
        write(&root, LOCAL, "[kubelet]\nunit = \"mine.service\"\n");
        assert_eq!(unit(&configured), "mine.service");
        write(&root, LOCAL, "[kubelet]\nunit = 5\n");
        assert_eq!(
            unit(&configured),
            "mine.service",
            "the last that could be used"
        );
        write(&root, LOCAL, "");
        assert_eq!(unit(&configured), "kubelet.service");
    }

    #[test]
    fn what_others_can_write_does_not_count() {
        let (_folder, root) = host();
        let configured = Configured::new(root.clone(), Vec::new());
        write(&root, AGENTS, "[kubelet]\npid_file = \"/tmp/pid\"\n");
        assert!(
            configured.wanted().kubelet.pid_file.is_some(),
            "root's folder"
        );
        std::fs::set_permissions(
            root.join("/run/nodevigil"),
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )
        .unwrap();
        assert_eq!(configured.wanted().kubelet.pid_file, None);
    }
}
