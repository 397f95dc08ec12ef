//! The container runtime over CRI (`runtime.v1.RuntimeService` of k8s.io/cri-api): `Status`, `Version` once a connection, and
//! `ListPodSandbox` once a minute.
//!
//! The messages have only the fields that are read; protobuf passes over all others.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message;
use rustix::fs::{Mode, OFlags, open};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::blocking;

/// Finding a socket by its path takes longer only if a disk does not answer.
const FIND_TIMEOUT: Duration = Duration::from_secs(2);
/// A probe that has no answer by then has failed.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// A list may take longer, on a node with many pods.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two lists, if the first is answered: every other probe.
const LIST_EVERY: Duration = Duration::from_secs(55);
/// A label that no pod has, so that the runtime looks at all pods and returns none.
const LABEL: &str = "nodevigil/none";
/// An answer has some hundred bytes; one that is longer, of a runtime that lists its pods in spite of the label, is refused.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// What is kept of each text in it.
const MAX_TEXT_BYTES: usize = 300;
const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const STATUS: &str = "/runtime.v1.RuntimeService/Status";
const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";

#[derive(Clone, PartialEq, Message)]
struct ListPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    filter: Option<PodSandboxFilter>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxFilter {
    #[prost(btree_map = "string, string", tag = "3")]
    label_selector: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct VersionResponse {
    #[prost(string, tag = "2")]
    runtime_name: String,
    #[prost(string, tag = "3")]
    runtime_version: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<RuntimeStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeCondition {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(bool, tag = "2")]
    status: bool,
    #[prost(string, tag = "3")]
    reason: String,
    #[prost(string, tag = "4")]
    message: String,
}

/// How a probe ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// It answers and does not report that it is not ready. `name`: name and version, such as `containerd 1.7.24`.
    Ready { name: String },
    /// It answers so, but does not list its pods, without which the kubelet does nothing; `why` is a sentence without its subject.
    Unlisted { name: String, why: String },
    /// It reports that it is not ready, answers with an error, or closes the connection; the text is a sentence without its subject.
    NotReady(String),
    /// No process listens on the socket, or there is no socket.
    NoListener,
    /// The connection is not accepted, or the call is not answered.
    TimedOut,
    /// The probe could not be made; the runtime is not the cause.
    Impossible(String),
}

/// As the timeline of a record has it.
impl fmt::Display for Probe {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { name } => write!(to, "{name} is ready"),
            Self::Unlisted { name, why } => write!(to, "{name} {why}"),
            Self::NotReady(why) => write!(to, "it {why}"),
            Self::NoListener => to.write_str("no process listens"),
            Self::TimedOut => to.write_str("it does not answer"),
            Self::Impossible(why) => to.write_str(why),
        }
    }
}

/// Probes the runtime at one socket, over a connection that is kept while the answers are good.
#[derive(Debug)]
pub struct Prober {
    pub socket: PathBuf,
    connection: Option<Connection>,
    /// When it last listed its pods; none since it failed to.
    listed_at: Option<Instant>,
    /// The process that listened when the last connection was made (`SO_PEERCRED` of unix(7)); 1 if systemd does, for a socket unit.
    pub listener: Option<i32>,
}

#[derive(Debug)]
struct Connection {
    channel: Channel,
    name: String,
}

impl Prober {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, connection: None, listed_at: None, listener: None }
    }

    /// Probes once; takes at most [`TIMEOUT`] and [`LIST_TIMEOUT`].
    pub async fn probe(&mut self) -> Probe {
        match timeout(TIMEOUT, self.ask()).await.unwrap_or(Probe::TimedOut) {
            Probe::Ready { name } => match self.list().await {
                None => Probe::Ready { name },
                Some(why) => Probe::Unlisted { name, why },
            },
            probe => {
                self.connection = None;
                probe
            }
        }
    }

    /// Why it does not list its pods. Once it does, it is not asked again for a minute.
    async fn list(&mut self) -> Option<String> {
        let is_due = self.listed_at.is_none_or(|at| at.elapsed() >= LIST_EVERY);
        let connection = self.connection.as_ref().filter(|_| is_due)?;
        let listed = timeout(LIST_TIMEOUT, connection.list()).await;
        self.listed_at = matches!(listed, Ok(Ok(()))).then(Instant::now);
        match listed {
            // A connection that has ended since is no failure of the runtime.
            Ok(Err(error)) if error.source().is_some() => {
                self.connection = None;
                None
            }
            Ok(answer) => answer.err().map(|error| format!("{} to ListPodSandbox", refusal(&error))),
            Err(_) => Some(format!("does not answer ListPodSandbox within {} s", LIST_TIMEOUT.as_secs())),
        }
    }

    async fn ask(&mut self) -> Probe {
        // A connection that has ended since the last probe is no failure of the runtime.
        if let Some(connection) = &self.connection
            && let Ok(probe) = connection.status().await
        {
            return probe;
        }
        let stream = match connect(&self.socket).await {
            Ok(stream) => stream,
            Err(error) => return not_connected(&self.socket, &error),
        };
        self.listener = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let probe = async {
            let connection = Connection::open(stream).await?;
            let probe = connection.status().await?;
            self.connection = Some(connection);
            Ok::<_, Status>(probe)
        };
        probe.await.unwrap_or_else(|error| Probe::NotReady(refusal(&error)))
    }
}

/// Connects to a socket, which may be on a dead disk.
///
/// # Errors
/// Those of open(2) and connect(2); `Other` if the disk does not answer.
pub async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let path = socket.to_owned();
    let find = move || open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let found = blocking::run(&format!("finding {}", socket.display()), FIND_TIMEOUT, find).await;
    let found = found.map_err(|error| io::Error::other(format!("finding it: {error}")))??;
    // Not by its path, which connect(2) would walk on the loop.
    UnixStream::connect(format!("/proc/self/fd/{}", found.as_raw_fd())).await
}

/// Tries whether a socket accepts a connection.
///
/// # Errors
/// Those of [`connect`], and `TimedOut` after two seconds.
pub async fn try_connect(socket: &Path) -> io::Result<()> {
    let no_answer =
        |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", FIND_TIMEOUT.as_secs()));
    timeout(FIND_TIMEOUT, connect(socket)).await.map_err(no_answer)?.map(drop)
}

impl Connection {
    async fn open(stream: UnixStream) -> Result<Self, Status> {
        // The stream is given once, so that a connection never becomes another one unseen.
        let mut stream = Some(TokioIo::new(stream));
        let connector = tower::service_fn(move |_| {
            let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
            async { stream }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| Status::from_error(error.into()))?;
        let version: VersionResponse = call(&channel, VERSION, ()).await?;
        let name = text(&format!("{} {}", version.runtime_name, version.runtime_version));
        Ok(Self { channel, name })
    }

    async fn list(&self) -> Result<(), Status> {
        let filter = PodSandboxFilter { label_selector: BTreeMap::from([(LABEL.into(), LABEL.into())]) };
        call(&self.channel, LIST, ListPodSandboxRequest { filter: Some(filter) }).await
    }

    async fn status(&self) -> Result<Probe, Status> {
        let response: StatusResponse = call(&self.channel, STATUS, ()).await?;
        let conditions = response.status.unwrap_or_default().conditions;
        // NetworkReady is about the network plugin; the kubelet reports it on the Node.
        let not_ready = conditions.iter().find(|condition| condition.r#type == "RuntimeReady" && !condition.status);
        Ok(match not_ready {
            None => Probe::Ready { name: self.name.clone() },
            Some(RuntimeCondition { reason, message, .. }) => {
                Probe::NotReady(format!("reports RuntimeReady=false ({}: {})", text(reason), text(message)))
            }
        })
    }
}

async fn call<Q, A>(channel: &Channel, method: &'static str, request: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let (request, codec) = (Request::new(request), ProstCodec::<Q, A>::default());
    Ok(client.unary(request, PathAndQuery::from_static(method), codec).await?.into_inner())
}

fn not_connected(socket: &Path, error: &io::Error) -> Probe {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Probe::NoListener,
        // As many connections wait to be accepted as may (unix(7), EAGAIN).
        io::ErrorKind::WouldBlock => Probe::TimedOut,
        _ => Probe::Impossible(format!("{}: {error}", socket.display())),
    }
}

/// The text of an error: the runtime's own, or that of a connection that ended before the answer, for which tonic creates a `Status` too.
fn refusal(error: &Status) -> String {
    match error.source() {
        Some(_) => format!("closes the connection ({})", text(&error.to_string())),
        None => format!("answers with {:?}: {}", error.code(), text(error.message())),
    }
}

/// One line, without secrets, as a runtime quotes the URLs that it pulls from.
fn text(text: &str) -> String {
    redact::sanitize_line(text, MAX_TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use h2::server::SendResponse;
    use tokio::net::UnixListener;
    use tonic::codegen::Bytes;
    use tonic::codegen::http::{HeaderMap, HeaderValue, Response};

    use super::*;

    /// How the runtime of a test behaves.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Behavior {
        Ready,
        NotReady,
        /// As containerd without its CRI plugin.
        Unimplemented,
        /// It answers `Version` alone.
        Hangs,
        /// It answers all but lists.
        ListHangs,
        ListFails,
        /// Each connection ends after the first `Status`.
        Closes,
        NoGrpc,
    }

    /// Serves real gRPC; returns a prober.
    fn serve(behavior: Behavior) -> (tempfile::TempDir, Prober) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("runtime.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    if behavior == Behavior::NoGrpc {
                        stream.try_write(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
                        return;
                    }
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, response))) = connection.accept().await {
                        let is_status = request.uri().path() == STATUS;
                        let is_list = request.uri().path() == LIST;
                        if (is_status && behavior == Behavior::Hangs) || (is_list && behavior == Behavior::ListHangs) {
                            // Kept, as dropping it would reset the stream.
                            std::mem::forget(response);
                            continue;
                        }
                        let behavior =
                            if is_list && behavior == Behavior::ListFails { Behavior::Unimplemented } else { behavior };
                        answer(behavior, is_status, response);
                        if is_status && behavior == Behavior::Closes {
                            connection.graceful_shutdown();
                        }
                    }
                });
            }
        });
        (directory, Prober::new(socket))
    }

    fn answer(behavior: Behavior, is_status: bool, mut response: SendResponse<Bytes>) {
        let mut headers = Response::builder().header("content-type", "application/grpc");
        if behavior == Behavior::Unimplemented {
            headers = headers.header("grpc-status", "12").header("grpc-message", "unknown service");
            response.send_response(headers.body(()).unwrap(), true).unwrap();
            return;
        }
        let condition = |kind: &str, status, reason: &str| RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: reason.into(),
            message: "of a\ntest".into(),
        };
        let message = if is_status {
            let ready = condition("RuntimeReady", behavior != Behavior::NotReady, "StorageNotReady");
            let conditions = vec![ready, condition("NetworkReady", false, "NetworkPluginNotReady")];
            StatusResponse { status: Some(RuntimeStatus { conditions }) }.encode_to_vec()
        } else {
            VersionResponse { runtime_name: "cri-o".into(), runtime_version: "1.36.1".into() }.encode_to_vec()
        };
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend(message);
        let mut stream = response.send_response(headers.body(()).unwrap(), false).unwrap();
        stream.send_data(frame.into(), false).unwrap();
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
        stream.send_trailers(trailers).unwrap();
    }

    #[tokio::test]
    async fn a_ready_runtime_is_asked_on_one_connection_and_on_a_new_one_when_that_has_ended() {
        let ready = Probe::Ready { name: "cri-o 1.36.1".into() };
        for behavior in [Behavior::Ready, Behavior::Closes] {
            let (_directory, mut prober) = serve(behavior);
            for _ in 0..3 {
                assert_eq!(prober.probe().await, ready, "{behavior:?}");
                assert_eq!(prober.listener, i32::try_from(std::process::id()).ok());
            }
        }
        // The socket's file is not needed while the connection lasts.
        let (directory, mut prober) = serve(Behavior::Ready);
        assert_eq!(prober.probe().await, ready);
        drop(directory);
        assert_eq!(prober.probe().await, ready);
    }

    #[tokio::test]
    async fn each_refusal_is_quoted() {
        for (behavior, wanted) in [
            (Behavior::NotReady, "reports RuntimeReady=false (StorageNotReady: of a␊test)"),
            (Behavior::Unimplemented, "answers with Unimplemented: unknown service"),
            (Behavior::NoGrpc, "closes the connection ("),
        ] {
            let (_directory, mut prober) = serve(behavior);
            let probe = prober.probe().await;
            assert!(matches!(&probe, Probe::NotReady(why) if why.starts_with(wanted)), "{behavior:?}: {probe:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_answers_and_does_not_list_its_pods_is_asked_again_each_time() {
        for (behavior, wanted) in [
            (Behavior::ListHangs, "does not answer ListPodSandbox within 10 s"),
            (Behavior::ListFails, "answers with Unimplemented: unknown service to ListPodSandbox"),
        ] {
            let (_directory, mut prober) = serve(behavior);
            let unlisted = Probe::Unlisted { name: "cri-o 1.36.1".into(), why: wanted.into() };
            for _ in 0..3 {
                assert_eq!(prober.probe().await, unlisted);
            }
        }
        let (_directory, mut prober) = serve(Behavior::Ready);
        prober.probe().await;
        let listed_at = prober.listed_at.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        prober.probe().await;
        assert_eq!(prober.listed_at, Some(listed_at));
        tokio::time::sleep(Duration::from_secs(30)).await;
        prober.probe().await;
        assert!(prober.listed_at.unwrap() > listed_at, "every other probe");
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_hangs_has_a_deadline_and_a_listener() {
        let (_directory, mut prober) = serve(Behavior::Hangs);
        assert_eq!(prober.probe().await, Probe::TimedOut);
        assert!(prober.listener.is_some());
    }

    #[tokio::test]
    async fn a_socket_without_a_listener_and_none_at_all_are_alike() {
        let directory = tempfile::tempdir().unwrap();
        let mut prober = Prober::new(directory.path().join("runtime.sock"));
        assert_eq!(prober.probe().await, Probe::NoListener);
        drop(std::os::unix::net::UnixListener::bind(&prober.socket).unwrap());
        assert_eq!(prober.probe().await, Probe::NoListener);
        let mut prober = Prober::new("/proc/self/status/runtime.sock".into());
        assert!(matches!(prober.probe().await, Probe::Impossible(_)));
    }
}
