//! The verb `runtime`: whether the container runtime answers at its socket, which is root's alone, and what it says of
//! itself.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::protocol::{Code, Heard, Listener, Refusal, RuntimeAnswer, RuntimeRequest, Verb};
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

/// Asks once.
pub fn answer(root: &Root, request: &RuntimeRequest) -> Result<RuntimeAnswer, Refusal> {
    Asker::default().answer(root, request)
}

/// Asks again and again, on one connection while there is one.
#[derive(Debug, Default)]
pub struct Asker {
    cri: cri::Asker,
    /// Who listens at the other end of what it keeps.
    listener: Option<Listener>,
}

impl Asker {
    /// What it keeps: [`cri::Asker::descriptor`], [`cri::Asker::attend`].
    pub fn connection(&mut self) -> &mut cri::Asker {
        &mut self.cri
    }

    /// Asks the runtime at the socket that was named; with none, the first of the well-known ones that answers.
    ///
    /// # Errors
    /// The refusal for the peer: a socket without an absolute path, or one that could not be asked.
    pub fn answer(
        &mut self,
        root: &Root,
        request: &RuntimeRequest,
    ) -> Result<RuntimeAnswer, Refusal> {
        let timeout = request.timeout().min(MAX_TIMEOUT);
        if let Some(socket) = &request.socket {
            if !socket.is_absolute() {
                let message = format!("socket {}: wanted an absolute path", socket.display());
                return Err(Refusal::new(Code::BadRequest, message));
            }
            return self.ask(root, socket, timeout);
        }
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
    use crate::helper::testing::{host, write};

    const CONTAINERD: &str = "/run/containerd/containerd.sock";

    fn request(socket: Option<&str>) -> RuntimeRequest {
        RuntimeRequest {
            socket: socket.map(PathBuf::from),
            timeout_millis: 200,
        }
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
        let answer = answer(&root, &request(None)).unwrap();
        assert_eq!(answer.heard, Heard::NoSocket);
        assert_eq!(answer.socket, Path::new(""));
        let named = super::answer(&root, &request(Some("/run/x.sock"))).unwrap();
        assert_eq!(named.heard, Heard::NoSocket);
        assert_eq!(named.socket, Path::new("/run/x.sock"));
        let refused = super::answer(&root, &request(Some("x.sock"))).unwrap_err();
        assert_eq!(refused.code, Code::BadRequest);
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
        let answer = answer(&root, &request(None)).unwrap();
        assert_eq!(answer.heard, Heard::Refused, "the first that is there");
        let answer = super::answer(&root, &request(Some(CONTAINERD))).unwrap();
        assert_eq!(answer.heard, Heard::TimedOut { connected: true });
        assert_eq!(answer.io_full_percent, Some(81));
        assert!((200_000..2_000_000).contains(&answer.took_micros));
    }

    #[test]
    fn the_listener_is_named_with_its_unit() {
        let (_folder, root) = host();
        let me = i32::try_from(std::process::id()).unwrap();
        let _listener = listen(&root, CONTAINERD);
        let ask = || answer(&root, &request(Some(CONTAINERD))).unwrap().listener;
        assert_eq!(ask(), None, "this host does not know the process");
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
            let listener = ask().unwrap();
            assert_eq!(listener.pid, me);
            assert_eq!(listener.unit.as_deref(), unit);
        }
    }
}
