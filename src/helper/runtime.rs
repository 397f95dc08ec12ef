//! The verb `runtime`: whether the container runtime answers at its socket, which is root's alone, and what it says of
//! itself.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    configured::{Configured, Wanted},
    kubelet,
    process::{self as kubelets, Kubelet},
    protocol::{Code, Heard, Listener, Refusal, RuntimeAnswer, RuntimeRequest, Verb},
};
use crate::{
    clock::Clock,
    host::{
        cri::{self, Asked},
        files::Root,
        pressure::{Pressure, Resource},
        process,
    },
};

/// The verb. The agent waits [`PATIENCE`] longer than it lets the runtime take.
pub const VERB: Verb = Verb {
    name: "runtime",
    sentence: "Asks the container runtime over CRI whether it is ready (Version and Status).",
    deadline: Duration::from_secs(12),
};

/// The longest that a runtime may take; the agent asks for less.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// How much longer than the runtime's deadline the agent waits for the helper.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Where the sockets of the runtimes that nodes have lie, if nobody says it. Those that a distribution of Kubernetes
/// brings along come first: where they are they are used, whatever else is installed.
const SOCKETS: &[&str] = &[
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/crio/crio.sock",
    "/run/containerd/containerd.sock",
];

/// The runtime's socket, and on whose word; `None`: the well-known ones are tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Socket {
    /// Nobody has named one.
    #[default]
    Unknown,
    /// The operator's configuration.
    Operators(PathBuf),
    /// The arguments or the configuration of a kubelet that runs, or ran last. `None`: they name no socket (`tcp://`).
    Kubelets(Option<PathBuf>),
}

impl Socket {
    /// The socket that the operator has named, else that of the kubelet `kubelet`.
    fn of(root: &Root, wanted: &Wanted, kubelet: Option<&Kubelet>) -> Self {
        if let Some(path) = &wanted.runtime_socket {
            return Self::Operators(path.clone());
        }
        let facts = kubelet.and_then(|kubelet| kubelet::facts(root, kubelet).ok());
        facts.map_or(Self::Unknown, |facts| Self::Kubelets(facts.runtime_socket))
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Unknown => None,
            Self::Operators(path) => Some(path),
            Self::Kubelets(path) => path.as_deref(),
        }
    }
}

/// Asks once.
///
/// # Errors
/// As of [`Asker::answer`].
pub fn answer(
    root: &Root,
    configured: &Configured,
    request: &RuntimeRequest,
) -> Result<RuntimeAnswer, Refusal> {
    Asker::default().answer(root, configured, request)
}

/// Asks once at `socket`, which the helper has found in the kubelet's files; without it, at the well-known ones.
///
/// # Errors
/// As of [`Asker::answer`].
pub(super) fn answer_at(
    root: &Root,
    socket: Option<&str>,
    request: &RuntimeRequest,
) -> Result<RuntimeAnswer, Refusal> {
    let socket = socket.map(PathBuf::from);
    let mut asker = Asker {
        socket: socket.map_or(Socket::Unknown, |path| Socket::Kubelets(Some(path))),
        ..Asker::default()
    };
    asker.answer_at(root, request)
}

/// Asks again and again, on one connection while there is one.
#[derive(Debug, Default)]
pub struct Asker {
    cri: cri::Asker,
    /// Who listens at the other end of what it keeps.
    listener: Option<Listener>,
    /// The kubelet whose word `socket` is: a kubelet goes by what was written when it started.
    kubelet: Option<Kubelet>,
    socket: Socket,
}

impl Asker {
    /// What it keeps: [`cri::Asker::descriptor`], [`cri::Asker::attend`].
    pub fn connection(&mut self) -> &mut cri::Asker {
        &mut self.cri
    }

    /// Asks the kubelet's runtime; where no socket is known, the first of the well-known ones that answers.
    ///
    /// # Errors
    /// The refusal for the peer: the socket could not be asked.
    pub fn answer(
        &mut self,
        root: &Root,
        configured: &Configured,
        request: &RuntimeRequest,
    ) -> Result<RuntimeAnswer, Refusal> {
        self.find_socket(root, configured);
        self.answer_at(root, request)
    }

    /// Nothing is looked for while the kubelet is the one whose word is known. While none runs, the last one's word counts.
    fn find_socket(&mut self, root: &Root, configured: &Configured) {
        let known = self.kubelet.as_ref().map(|kubelet| &kubelet.process);
        if known.is_some_and(|known| process::identify(root, known.pid).as_ref() == Some(known)) {
            return;
        }
        let wanted = configured.wanted();
        let kubelet = kubelets::find(root, &wanted.kubelet).ok().flatten();
        (self.socket, self.kubelet) = match Socket::of(root, &wanted, kubelet.as_ref()) {
            // Of a kubelet whose files could not be read just now it is tried again. One within another program never names it.
            Socket::Unknown => {
                let never_names = kubelet.filter(|kubelet| kubelet.argv.is_none());
                (configured.kept_socket(), never_names)
            }
            socket => {
                configured.keep_socket(&socket);
                (socket, kubelet)
            }
        };
    }

    fn answer_at(
        &mut self,
        root: &Root,
        request: &RuntimeRequest,
    ) -> Result<RuntimeAnswer, Refusal> {
        let timeout = request.timeout().min(MAX_TIMEOUT);
        if let Some(socket) = self.socket.path().map(Path::to_owned) {
            return self.ask(root, &socket, timeout);
        }
        Ok(RuntimeAnswer {
            is_guess: true,
            ..self.try_all(root, timeout)?
        })
    }

    /// The first of the well-known sockets that answers.
    fn try_all(&mut self, root: &Root, timeout: Duration) -> Result<RuntimeAnswer, Refusal> {
        let begin = Clock.now().uptime;
        let mut first = None;
        for socket in SOCKETS {
            let left = timeout.saturating_sub(Clock.now().uptime.saturating_sub(begin));
            let answer = self.ask(root, Path::new(socket), left)?;
            match answer.heard {
                Heard::NoSocket => {}
                Heard::Status(_) => return Ok(answer),
                _ => first = first.or(Some(answer)),
            }
        }
        Ok(first.unwrap_or_else(|| RuntimeAnswer {
            socket: PathBuf::new(),
            is_guess: true,
            listener: None,
            took_micros: 0,
            io_full_percent: None,
            heard: Heard::NoSocket,
        }))
    }

    fn ask(
        &mut self,
        root: &Root,
        socket: &Path,
        timeout: Duration,
    ) -> Result<RuntimeAnswer, Refusal> {
        let begin = Clock.now().uptime;
        let asked = self.cri.ask(&root.join(socket), timeout);
        let Asked {
            pid,
            heard,
            is_kept,
        } = asked.map_err(|error| {
            let message = format!("ask the runtime at {}: {error}", socket.display());
            Refusal::new(Code::Unreadable, message)
        })?;
        let took = Clock.now().uptime.saturating_sub(begin);
        let listener = if is_kept {
            self.listener.clone()
        } else {
            pid.and_then(|pid| listener(root, pid))
        };
        if let Heard::Status(_) = heard {
            self.listener.clone_from(&listener);
        }
        let is_late = matches!(heard, Heard::TimedOut { .. });
        Ok(RuntimeAnswer {
            socket: socket.to_owned(),
            is_guess: false,
            listener,
            took_micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            io_full_percent: is_late.then(|| io_full_percent(root)).flatten(),
            heard,
        })
    }
}

/// A socket that systemd made for a service to come belongs to systemd; a process of another PID namespace has pid 0.
fn listener(root: &Root, pid: i32) -> Option<Listener> {
    let process = process::identify(root, pid).filter(|_| pid > 1)?;
    Some(Listener {
        pid,
        started: process.started,
        unit: process::unit_of(root, pid),
    })
}

/// `None` where the kernel does not count it.
fn io_full_percent(root: &Root) -> Option<u32> {
    let stall = Pressure::open(root, Resource::Io).ok()?.read().ok()?;
    Some(stall.full?.percent())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::helper::testing::{Process as Kubelet, host, write};

    const CONTAINERD: &str = "/run/containerd/containerd.sock";

    const REQUEST: RuntimeRequest = RuntimeRequest {
        timeout_millis: 200,
    };

    fn ask(root: &Root, socket: Option<&str>) -> RuntimeAnswer {
        answer_at(root, socket, &REQUEST).unwrap()
    }

    fn listen(root: &Root, socket: &str) -> UnixListener {
        let path = root.join(socket);
        root.create_dir_all(Path::new(socket).parent().unwrap())
            .unwrap();
        UnixListener::bind(path).unwrap()
    }

    #[test]
    fn without_any_socket_there_is_none() {
        let (_folder, root) = host();
        let answer = ask(&root, None);
        assert_eq!(answer.heard, Heard::NoSocket);
        assert_eq!(answer.socket, Path::new(""));
        let named = ask(&root, Some("/run/x.sock"));
        assert_eq!(named.heard, Heard::NoSocket);
        assert_eq!(named.socket, Path::new("/run/x.sock"));
    }

    #[test]
    fn the_well_known_ones_are_tried_and_the_time_is_for_all_of_them() {
        let (_folder, root) = host();
        drop(listen(&root, "/run/crio/crio.sock"));
        let _hangs = listen(&root, CONTAINERD);
        write(
            &root,
            "/proc/pressure/io",
            "some avg10=93.10 avg60=1.00 avg300=0.00 total=1\nfull avg10=81.90 avg60=1.00 avg300=0.00 total=1\n",
        );
        let answer = ask(&root, None);
        assert_eq!(answer.heard, Heard::Refused, "the first that is there");
        let answer = ask(&root, Some(CONTAINERD));
        assert_eq!(answer.heard, Heard::TimedOut { connected: true });
        assert_eq!(answer.io_full_percent, Some(81));
        assert!((200_000..2_000_000).contains(&answer.took_micros));
    }

    #[test]
    fn the_socket_is_the_operators_else_the_kubelets_else_a_guess() {
        let (_folder, root) = host();
        let configured = Configured::new(root.clone(), Vec::new());
        let mut asker = Asker::default();
        let mut at = || {
            let answer = asker.answer(&root, &configured, &REQUEST).unwrap();
            (answer.socket.display().to_string(), answer.is_guess)
        };
        assert_eq!(at(), (String::new(), true));
        let argv = [
            "kubelet",
            "--container-runtime-endpoint=unix:///run/mine.sock",
        ];
        Kubelet::kubelet(7, &argv).write(&root);
        let of_kubelet = ("/run/mine.sock".to_owned(), false);
        assert_eq!(at(), of_kubelet);
        std::fs::remove_dir_all(root.join("/proc/7")).unwrap();
        assert_eq!(at(), of_kubelet, "that of the kubelet that ran last");
        let other = Asker::default().answer(&root, &configured, &REQUEST);
        assert_eq!(other.unwrap().socket, Path::new("/run/mine.sock"));
        write(
            &root,
            "/etc/nodevigil/config.d/50-local.toml",
            "[runtime]\nendpoint = \"unix:///run/operators.sock\"\n",
        );
        assert_eq!(at(), ("/run/operators.sock".to_owned(), false));
    }

    #[test]
    fn a_kubelets_files_that_could_not_be_read_are_read_again() {
        let (_folder, root) = host();
        let configured = Configured::new(root.clone(), Vec::new());
        Kubelet::kubelet(7, &["kubelet", "--config=/k"]).write(&root);
        let mut asker = Asker::default();
        let mut answer = || asker.answer(&root, &configured, &REQUEST).unwrap();
        assert!(answer().is_guess, "not there yet");
        write(
            &root,
            "/k",
            "containerRuntimeEndpoint: unix:///run/mine.sock\n",
        );
        let found = answer();
        assert_eq!(
            (found.socket.to_str(), found.is_guess),
            (Some("/run/mine.sock"), false)
        );
    }

    #[test]
    fn the_listener_is_named_with_its_unit() {
        let (_folder, root) = host();
        let me = i32::try_from(std::process::id()).unwrap();
        let _listener = listen(&root, CONTAINERD);
        let listener = || ask(&root, Some(CONTAINERD)).listener;
        assert_eq!(listener(), None, "this host does not know the process");
        for file in ["stat", "status"] {
            let text = Root::new("/")
                .read_text(format!("/proc/{me}/{file}"), 4096)
                .unwrap();
            write(&root, format!("/proc/{me}/{file}"), &text);
        }
        let cgroup = format!("/proc/{me}/cgroup");
        for (text, unit) in [
            (
                "0::/system.slice/containerd.service\n",
                Some("containerd.service"),
            ),
            (
                "12:pids:/x.service\n1:name=systemd:/runtime.slice/crio.service\n",
                Some("crio.service"),
            ),
            (
                "0::/system.slice/k3s.service/runtime\n",
                Some("k3s.service"),
            ),
            ("0::/user.slice\n", None),
        ] {
            write(&root, &cgroup, text);
            let listener = listener().unwrap();
            assert_eq!(listener.pid, me);
            assert_eq!(listener.unit.as_deref(), unit);
        }
    }
}
