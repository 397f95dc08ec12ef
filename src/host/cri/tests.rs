//! Against a server of our own that speaks real gRPC over a real socket: containerd and CRI-O answer like it, and will
//! not go wrong on demand. (The real containerd is asked in `tests/node`.)

use std::{
    convert::Infallible,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Response};
use hyper::{Request as HttpRequest, body::Incoming, server::conn::http2 as server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};

use super::*;

const DEADLINE: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);
const A_MOMENT: Duration = Duration::from_millis(100);

/// How the runtime behaves.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// As CRI-O says it when all is well.
    Ready,
    /// As CRI-O says it while something is missing.
    NotReady,
    /// Says that it is ready and nothing else.
    Laconic,
    /// A containerd without its CRI plugin.
    WithoutCri,
    /// Answers the first question alone.
    HangsAtStatus,
    /// Takes the connection and says nothing.
    Hangs,
    /// Speaks something else.
    Babbles,
    /// Ends in the middle.
    Dies,
    /// Says far too much.
    Floods,
    /// Is well, and ends each connection after a moment: it was restarted.
    Restarts,
}

struct Runtime {
    _folder: TempDir,
    socket: PathBuf,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU32,
    versions: AtomicU32,
    ended: AtomicU32,
}

impl Runtime {
    fn start(manner: Manner) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("runtime.sock");
        let path = socket.clone();
        let (up, is_up) = std::sync::mpsc::channel();
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = UnixListener::bind(path).unwrap();
                up.send(()).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    counted.connections.fetch_add(1, Ordering::Relaxed);
                    let counted = Arc::clone(&counted);
                    tokio::spawn(async move {
                        serve(stream, manner, &counted).await;
                        counted.ended.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        });
        is_up.recv().unwrap();
        Self {
            _folder: folder,
            socket,
            counts,
        }
    }

    /// How many connections it has taken.
    fn taken(&self) -> u32 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// How many of those have ended.
    fn ended(&self) -> u32 {
        self.counts.ended.load(Ordering::Relaxed)
    }

    /// How often it was asked what it is.
    fn versions(&self) -> u32 {
        self.counts.versions.load(Ordering::Relaxed)
    }

    fn ask(&self, deadline: Duration) -> Asked {
        Asker::default().ask(&self.socket, deadline).unwrap()
    }
}

async fn serve(stream: UnixStream, manner: Manner, counts: &Counts) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = stream;
    match manner {
        Manner::Hangs => {
            // What it is told is HTTP/2's beginning; after that only the end comes.
            let told = &mut [0; 1024];
            while stream.read(told).await.is_ok_and(|count| count > 0) {}
        }
        Manner::Babbles => {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
        Manner::Dies => {
            let _ = stream.read(&mut [0; 64]).await;
        }
        _ => {
            let service = hyper::service::service_fn(move |request: HttpRequest<Incoming>| {
                let path = request.uri().path().to_owned();
                if path == VERSION {
                    counts.versions.fetch_add(1, Ordering::Relaxed);
                }
                answer(manner, path)
            });
            let served = server::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            let life = match manner {
                Manner::Restarts => A_MOMENT,
                _ => Duration::MAX,
            };
            let _ = tokio::time::timeout(life, served).await;
        }
    }
}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>>;

async fn answer(manner: Manner, path: String) -> Result<Answer, Infallible> {
    let method = path.strip_prefix("/runtime.v1.RuntimeService/").unwrap();
    if manner == Manner::WithoutCri {
        return Ok(grpc(None, 12, "unknown service runtime.v1.RuntimeService"));
    }
    Ok(match method {
        "Version" => {
            // What CRI-O sends, with the fields that we do not read.
            #[derive(Clone, PartialEq, Message)]
            struct Whole {
                #[prost(string, tag = "1")]
                version: String,
                #[prost(string, tag = "2")]
                runtime_name: String,
                #[prost(string, tag = "3")]
                runtime_version: String,
                #[prost(string, tag = "4")]
                runtime_api_version: String,
            }
            let version = Whole {
                version: "0.1.0".to_owned(),
                runtime_name: "cri-o".to_owned(),
                runtime_version: "1.33.1".to_owned(),
                runtime_api_version: "v1".to_owned(),
            };
            grpc(Some(version.encode_to_vec()), 0, "")
        }
        _ if manner == Manner::HangsAtStatus => std::future::pending().await,
        _ => grpc(Some(status(manner).encode_to_vec()), 0, ""),
    })
}

fn status(manner: Manner) -> StatusResponse {
    let condition = |kind: &str, status, reason: &str, message: String| RuntimeCondition {
        r#type: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
    };
    let good = |kind| condition(kind, true, "", String::new());
    let conditions = match manner {
        Manner::Laconic => Vec::new(),
        Manner::NotReady => vec![
            condition(
                "RuntimeReady",
                false,
                "StorageNotReady",
                "the storage\nis locked".to_owned(),
            ),
            condition(
                "NetworkReady",
                false,
                "NetworkPluginNotReady",
                "no CNI configuration file in /etc/cni/net.d/. Has your network provider started?"
                    .to_owned(),
            ),
        ],
        Manner::Floods => vec![condition("RuntimeReady", false, "", "x".repeat(1 << 20))],
        _ => vec![good("RuntimeReady"), good("NetworkReady"), good("Other")],
    };
    StatusResponse {
        status: Some(RuntimeConditions { conditions }),
    }
}

/// One message, uncompressed, and the trailers; without a message the trailers alone.
fn grpc(message: Option<Vec<u8>>, code: u8, text: &'static str) -> Answer {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(code)));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    let answer = Response::builder().header("content-type", "application/grpc");
    let Some(message) = message else {
        let mut answer = answer.body(Full::default().boxed_unsync()).unwrap();
        answer.headers_mut().extend(trailers);
        return answer;
    };
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    let body = Full::new(Bytes::from(frame))
        .with_trailers(async { Some(Ok(trailers)) })
        .boxed_unsync();
    answer.body(body).unwrap()
}

fn said(manner: Manner) -> RuntimeStatus {
    match Runtime::start(manner).ask(LONG).heard {
        Heard::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_runtime_that_is_ready_says_so_and_who_it_is() {
    let asked = Runtime::start(Manner::Ready).ask(LONG);
    let pid = i32::try_from(std::process::id()).unwrap();
    assert_eq!(asked.pid, Some(pid), "the process that listens");
    let status = RuntimeStatus {
        name: "cri-o".to_owned(),
        version: "1.33.1".to_owned(),
        not_ready: None,
        network_not_ready: None,
    };
    assert_eq!(asked.heard, Heard::Status(status));
    assert_eq!(said(Manner::Laconic).not_ready, None, "it answers");
}

#[test]
fn whoever_asks_again_asks_on_the_connection_that_there_is_and_now_and_then_on_a_new_one() {
    let runtime = Runtime::start(Manner::Ready);
    let mut asker = Asker::default();
    for question in 0..2 * RENEWED_AFTER {
        let asked = asker.ask(&runtime.socket, LONG).unwrap();
        assert_eq!(asked.heard, Heard::Status(said(Manner::Ready)));
        assert_eq!(asked.is_kept, !question.is_multiple_of(RENEWED_AFTER));
        assert_eq!(asked.pid, i32::try_from(std::process::id()).ok());
        assert_eq!(runtime.taken(), 1 + question / RENEWED_AFTER);
        assert_eq!(runtime.versions(), runtime.taken());
        // Whether somebody listens elsewhere is no reason to give it up.
        let elsewhere = asker.ask(&runtime.socket.with_extension("none"), LONG);
        assert_eq!(elsewhere.unwrap().heard, Heard::NoSocket);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a socket is moved by hand")]
fn a_socket_that_is_gone_or_another_is_seen_though_the_connection_lives() {
    let (one, other) = (Runtime::start(Manner::Ready), Runtime::start(Manner::Ready));
    let mut asker = Asker::default();
    let mut ask = || asker.ask(&one.socket, LONG).unwrap();
    ask();
    assert!(ask().is_kept);
    let aside = one.socket.with_extension("aside");
    std::fs::rename(&one.socket, &aside).unwrap();
    assert_eq!(ask().heard, Heard::NoSocket);
    std::fs::rename(&aside, &one.socket).unwrap();
    ask();
    assert!(ask().is_kept);
    std::fs::rename(&other.socket, &one.socket).unwrap();
    assert!(!ask().is_kept);
    assert_eq!((one.taken(), other.taken()), (2, 1));
}

#[test]
fn a_connection_that_has_ended_since_says_nothing_and_one_that_hangs_does() {
    let runtime = Runtime::start(Manner::Restarts);
    let mut asker = Asker::default();
    for _ in 0..3 {
        let asked = asker.ask(&runtime.socket, LONG).unwrap();
        assert!(matches!(asked.heard, Heard::Status(_)), "{asked:?}");
        assert!(!asked.is_kept);
        thread::sleep(2 * A_MOMENT);
    }
    assert_eq!(runtime.taken(), 3);
    // Whoever waits hears of it.
    assert!(asker.descriptor().is_some());
    asker.attend();
    assert!(asker.descriptor().is_none());
    let hangs = Runtime::start(Manner::HangsAtStatus);
    for _ in 0..2 {
        let asked = asker.ask(&hangs.socket, DEADLINE).unwrap();
        assert_eq!(asked.heard, Heard::TimedOut { connected: true });
    }
    assert_eq!(hangs.taken(), 2, "on one that is new each time");
}

#[test]
fn one_that_is_not_ready_says_why() {
    let status = said(Manner::NotReady);
    let why = "StorageNotReady: the storage is locked";
    assert_eq!(status.not_ready.as_deref(), Some(why));
    let network = status.network_not_ready.unwrap();
    assert!(network.starts_with("NetworkPluginNotReady: no CNI"));
}

#[test]
fn one_without_cri_answers_with_an_error() {
    let heard = Runtime::start(Manner::WithoutCri).ask(LONG).heard;
    let Heard::Error { code, message } = heard else {
        panic!("{heard:?}");
    };
    assert_eq!(code, "Unimplemented");
    assert_eq!(message, "unknown service runtime.v1.RuntimeService");
}

#[test]
fn one_that_hangs_is_given_up_at_the_deadline_and_its_process_is_known() {
    for manner in [Manner::Hangs, Manner::HangsAtStatus] {
        let asked = Runtime::start(manner).ask(DEADLINE);
        assert_eq!(asked.heard, Heard::TimedOut { connected: true });
        assert!(asked.pid.is_some());
    }
}

#[test]
fn what_is_no_grpc_is_broken_and_what_is_too_long_is_not_read() {
    for manner in [Manner::Babbles, Manner::Dies] {
        let heard = Runtime::start(manner).ask(LONG).heard;
        assert!(matches!(heard, Heard::Broken(_)), "{heard:?}");
    }
    let heard = Runtime::start(Manner::Floods).ask(LONG).heard;
    assert!(
        matches!(&heard, Heard::Error { code, .. } if code == "OutOfRange"),
        "{heard:?}"
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a socket whose queue is full is made by hand"
)]
fn a_socket_without_a_listener_and_none_at_all_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("runtime.sock");
    let heard = |socket: &Path| Asker::default().ask(socket, LONG).unwrap().heard;
    assert_eq!(heard(&socket), Heard::NoSocket);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert_eq!(heard(&socket), Heard::Refused);
    // One whose queue is full: the next connection is told to wait.
    std::fs::remove_file(&socket).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    assert_eq!(heard(&socket), Heard::TimedOut { connected: false });
}

#[test]
fn texts_are_one_line_and_bounded() {
    let long = text(&"ä\n".repeat(1000));
    assert!(long.len() <= MAX_TEXT_BYTES, "{}", long.len());
    assert!(!long.contains('\n'));
}

/// What is driven beside the questions holds the socket, and what drives it.
#[test]
fn no_connection_outlives_its_questions() {
    for manner in [Manner::Ready, Manner::HangsAtStatus, Manner::Hangs] {
        let runtime = Runtime::start(manner);
        for _ in 0..8 {
            runtime.ask(DEADLINE / 10);
        }
        let until = Clock.now().uptime + LONG;
        while runtime.ended() < runtime.taken() {
            assert!(Clock.now().uptime < until, "{} ended", runtime.ended());
            thread::sleep(A_MOMENT / 10);
        }
    }
}
