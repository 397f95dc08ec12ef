//! The kubelet over HTTP: one probe of `/healthz`, told apart by how it fails.
//!
//! Own HTTP/1.1, because of what an idle agent costs this one request is the most: a write and a read on a connection that
//! is kept, in the loop itself, without a task, a timer of tokio's or an allocation. Nobody else is asked: no proxy (an
//! `http_proxy` in the environment must not turn into a dead kubelet), no redirect, no resolver.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door that the ban on connecting points to"
)]

use std::{
    io::{self, Write as _},
    net::{IpAddr, SocketAddr},
    pin::Pin,
};

use http::Uri;
use tokio::{io::Interest, net::TcpStream};

use crate::checks::kubelet::Probe;

/// So much of an answer is read. The kubelet's own is 151 bytes.
const MAX_ANSWER_BYTES: usize = 4096;

/// Asks a kubelet's healthz over a connection that is kept. Its deadline is the loop's.
pub struct Healthz {
    /// The URL that was asked last, and what it says.
    url: String,
    target: Result<Target, String>,
    stream: Option<TcpStream>,
    /// Whether `stream` has carried an answer before: it may have been closed since, which says nothing.
    is_kept: bool,
    phase: Phase,
    answer: Box<[u8; MAX_ANSWER_BYTES]>,
    answered_bytes: usize,
}

/// Whom to ask, and the bytes to send.
struct Target {
    address: SocketAddr,
    request: Vec<u8>,
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// How far a probe is.
enum Phase {
    Idle,
    Connecting(Connecting),
    /// So many bytes of the request are out.
    Writing(usize),
    Reading,
}

/// Why there is no status.
enum Failure {
    Io(io::Error),
    /// The answer makes no sense.
    Nonsense(&'static str),
}

impl std::fmt::Debug for Healthz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Healthz")
            .field("url", &self.url)
            .field("is_connected", &self.stream.is_some())
            .finish_non_exhaustive()
    }
}

impl Default for Healthz {
    fn default() -> Self {
        Self {
            url: String::new(),
            target: Err("no URL".to_owned()),
            stream: None,
            is_kept: false,
            phase: Phase::Idle,
            answer: Box::new([0; MAX_ANSWER_BYTES]),
            answered_bytes: 0,
        }
    }
}

impl Healthz {
    /// Begins a probe; one that is under way is given up.
    pub fn start(&mut self, url: &str) {
        self.give_up();
        if self.url != url {
            url.clone_into(&mut self.url);
            self.target = target(url);
            self.stream = None;
        }
        self.begin();
        // At once, and not when the loop waits next: the kubelet answers while the rest of the turn is done.
        if let (Phase::Writing(0), Some(stream), Ok(target)) =
            (&self.phase, &self.stream, &self.target)
            && let Ok(sent) = stream.try_write(&target.request)
        {
            self.phase = match sent {
                sent if sent < target.request.len() => Phase::Writing(sent),
                _ => Phase::Reading,
            };
        }
    }

    /// What a probe that is under way has come to when its time is up.
    pub fn overdue(&self) -> Probe {
        match self.phase {
            Phase::Connecting(_) => Probe::Unreachable,
            _ => Probe::Timeout,
        }
    }

    /// Gives the probe up that is under way: its answer must not be taken for the next one's.
    pub fn give_up(&mut self) {
        if !matches!(self.phase, Phase::Idle) {
            (self.phase, self.stream) = (Phase::Idle, None);
        }
    }

    fn begin(&mut self) {
        self.is_kept = self.stream.is_some();
        self.answered_bytes = 0;
        self.phase = match &self.target {
            Ok(_) if self.is_kept => Phase::Writing(0),
            Ok(target) => Phase::Connecting(Box::pin(TcpStream::connect(target.address))),
            // `step` says why.
            Err(_) => Phase::Reading,
        };
    }

    /// Waits for the end of the probe, for ever if none is under way. It may be dropped and called again: nothing is lost.
    pub async fn probe(&mut self) -> Probe {
        loop {
            let step = self.step().await;
            let failure = match step {
                Ok(None) => continue,
                Ok(Some(status)) => {
                    self.phase = Phase::Idle;
                    return match status {
                        200 => Probe::Ok,
                        status => Probe::Status(status),
                    };
                }
                Err(failure) => failure,
            };
            (self.phase, self.stream) = (Phase::Idle, None);
            if self.is_kept {
                self.begin(); // on a new connection, once
                continue;
            }
            return classify(failure, &self.target);
        }
    }

    /// One step; the status once it is known.
    async fn step(&mut self) -> Result<Option<u16>, Failure> {
        match &mut self.phase {
            Phase::Idle => std::future::pending().await,
            Phase::Connecting(connecting) => {
                let stream = connecting.await?;
                stream.set_nodelay(true)?;
                self.stream = Some(stream);
                self.phase = Phase::Writing(0);
            }
            Phase::Writing(sent) => {
                let (Some(stream), Ok(target)) = (&self.stream, &self.target) else {
                    return Err(Failure::Nonsense("there is no connection"));
                };
                stream.writable().await?;
                if let Some(bytes) = unless_it_blocks(stream.try_write(&target.request[*sent..]))? {
                    *sent += bytes;
                }
                if *sent == target.request.len() {
                    self.phase = Phase::Reading;
                }
            }
            Phase::Reading => {
                let Some(stream) = &self.stream else {
                    return Err(Failure::Nonsense("there is no connection"));
                };
                stream.readable().await?;
                let space = &mut self.answer[self.answered_bytes..];
                let Some(bytes) = unless_it_blocks(stream.try_read(space))? else {
                    return Ok(None);
                };
                self.answered_bytes += bytes;
                let answer = &self.answer[..self.answered_bytes];
                let Some(read) = parse(answer, bytes == 0)? else {
                    return Ok(None);
                };
                if read.is_whole {
                    // Else the next probe would begin by reading what cannot be there yet.
                    let nothing = || Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock));
                    let _ = stream.try_io(Interest::READABLE, nothing);
                } else {
                    self.stream = None;
                }
                return Ok(Some(read.status));
            }
        }
        Ok(None)
    }
}

fn unless_it_blocks(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// `http://ADDRESS[:PORT]/PATH`.
fn target(url: &str) -> Result<Target, String> {
    let wanted = "wanted http://ADDRESS:PORT/PATH";
    let uri: Uri = url.parse().map_err(|e| format!("{url}: {e}; {wanted}"))?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(format!("{url}: {wanted}"));
    };
    let host = authority.host().trim_matches(['[', ']']);
    let ip: IpAddr = host
        .parse()
        .map_err(|_| format!("{url}: {host} is no IP address, and names are not looked up"))?;
    let address = SocketAddr::new(ip, authority.port_u16().unwrap_or(80));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Vec::new();
    let head = "accept: */*\r\nuser-agent: nodevigil";
    write!(
        request,
        "GET {path} HTTP/1.1\r\nhost: {authority}\r\n{head}\r\n\r\n"
    )
    .map_err(|e| e.to_string())?;
    Ok(Target { address, request })
}

/// What the head of an answer says.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    status: u16,
    /// Nothing follows, and the connection may carry another request.
    is_whole: bool,
}

/// Reads an answer, as far as it is there; `None`: there must be more. What is not understood ends the connection.
fn parse(answer: &[u8], has_ended: bool) -> Result<Option<Read>, Failure> {
    const VERSION: &[u8] = b"HTTP/1.";
    let known = answer.len().min(VERSION.len());
    if answer[..known] != VERSION[..known] {
        return Err(Failure::Nonsense("healthz answers with no HTTP"));
    }
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match (has_ended, answer.len()) {
            (true, _) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            (_, MAX_ANSWER_BYTES) => Err(Failure::Nonsense("healthz answers with endless headers")),
            _ => Ok(None),
        };
    };
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.next().unwrap_or_default();
    let status = match line.get(VERSION.len()..) {
        Some([b'0' | b'1', b' ', code @ ..]) => number(code.get(..3).unwrap_or_default()),
        _ => None,
    };
    let status = status.and_then(|status| u16::try_from(status).ok());
    let Some(status @ 100..) = status else {
        return Err(Failure::Nonsense("healthz answers without a status"));
    };
    let (mut length, mut stays) = (None, line.starts_with(b"HTTP/1.1"));
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            length = number(value);
        }
        // Only the answer that says plainly where it ends keeps its connection.
        let is_other = [&b"connection"[..], b"transfer-encoding"];
        stays &= !is_other
            .iter()
            .any(|other| name.eq_ignore_ascii_case(other));
    }
    let is_whole = stays && length == Some(body.len());
    Ok(Some(Read { status, is_whole }))
}

/// The status that an answer tells, and whether its connection may carry another request.
#[doc(hidden)] // public for the fuzz target
pub fn status_in(answer: &[u8], has_ended: bool) -> Option<(u16, bool)> {
    let read = parse(answer, has_ended).ok().flatten();
    read.map(|read| (read.status, read.is_whole))
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A kubelet that dies between two bytes resets or closes the connection: nobody listens there any more.
fn classify(failure: Failure, target: &Result<Target, String>) -> Probe {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    match (failure, target) {
        (_, Err(why)) => Probe::Impossible(why.clone()),
        (Failure::Nonsense(why), _) => Probe::Impossible(why.to_owned()),
        (Failure::Io(error), _) => match error.kind() {
            ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof => Probe::Refused,
            _ => Probe::Impossible(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::timeout,
    };

    use super::*;

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n\r\nok";

    async fn ask(healthz: &mut Healthz, url: &str) -> Probe {
        healthz.start(url);
        let late = Duration::from_millis(500);
        timeout(late, healthz.probe())
            .await
            .unwrap_or(Probe::Timeout)
    }

    /// A server that gives each connection those answers, one for each request, and then closes it.
    async fn serve(answers: &[&[u8]]) -> (String, tokio::task::JoinHandle<()>) {
        let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                for answer in &answers {
                    let mut request = [0; 1024];
                    let length = stream.read(&mut request).await.unwrap();
                    assert!(
                        request[..length].starts_with(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:")
                    );
                    if answer.is_empty() {
                        std::future::pending::<()>().await;
                    }
                    stream.write_all(answer).await.unwrap();
                }
            }
        });
        (url, server)
    }

    async fn answer(answers: &[&[u8]]) -> Probe {
        let (url, server) = serve(answers).await;
        let probe = ask(&mut Healthz::default(), &url).await;
        server.abort();
        probe
    }

    #[tokio::test]
    async fn each_ending_is_a_different_fact() {
        assert_eq!(answer(&[OK]).await, Probe::Ok);
        let error = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answer(&[error]).await, Probe::Status(500));
        let redirect =
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answer(&[redirect]).await, Probe::Status(302));
        assert_eq!(answer(&[b""]).await, Probe::Timeout);
        assert_eq!(answer(&[]).await, Probe::Refused, "closed without a word");
        assert_eq!(answer(&[b"HTTP/1.1 2"]).await, Probe::Refused);
        for nonsense in [
            "garbage\r\n\r\n",
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/1.1 ok\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
        ] {
            let probe = answer(&[nonsense.as_bytes()]).await;
            assert!(matches!(probe, Probe::Impossible(_)), "{nonsense}");
        }

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        drop(listener);
        assert_eq!(ask(&mut Healthz::default(), &url).await, Probe::Refused);
    }

    #[tokio::test]
    async fn a_connection_is_kept_and_one_that_was_closed_meanwhile_is_no_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut of_each = Vec::new();
            for requests in [3, 2] {
                let (mut stream, _) = listener.accept().await.unwrap();
                for _ in 0..requests {
                    assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0);
                    stream.write_all(OK).await.unwrap();
                }
                of_each.push(requests);
            }
            of_each
        });
        let mut healthz = Healthz::default();
        for _ in 0..5 {
            assert_eq!(ask(&mut healthz, &url).await, Probe::Ok);
        }
        assert_eq!(server.await.unwrap(), [3, 2]);
        assert_eq!(
            ask(&mut healthz, &url).await,
            Probe::Refused,
            "nobody listens any more"
        );
    }

    #[tokio::test]
    async fn an_answer_that_comes_too_late_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        let mut healthz = Healthz::default();
        healthz.start(&url);
        let (mut first, _) = tokio::join!(
            async { listener.accept().await.unwrap().0 },
            timeout(Duration::from_millis(100), healthz.probe())
        );
        first.write_all(OK).await.unwrap();
        healthz.start(&url);
        let server = async {
            let (mut second, _) = listener.accept().await.unwrap();
            assert_ne!(second.read(&mut [0; 1024]).await.unwrap(), 0);
            second.write_all(b"HTTP/1.1 500 no\r\n\r\n").await.unwrap();
        };
        let (probe, ()) = tokio::join!(healthz.probe(), server);
        assert_eq!(probe, Probe::Status(500));
    }

    #[tokio::test]
    async fn a_name_is_never_looked_up() {
        let mut healthz = Healthz::default();
        for url in [
            "http://localhost:1/healthz",
            "https://127.0.0.1:1/",
            "nothing",
        ] {
            let probe = ask(&mut healthz, url).await;
            assert!(
                matches!(&probe, Probe::Impossible(why) if why.contains(url)),
                "{probe:?}"
            );
        }
        assert!(target("http://[::1]:10248/healthz").is_ok_and(|t| t.address.port() == 10248));
    }

    #[test]
    fn only_a_plain_whole_answer_keeps_its_connection() {
        let read = |text: &str| parse(text.as_bytes(), false).ok().flatten();
        let keeps = |text: &str| read(text).is_some_and(|read| read.is_whole);
        assert!(keeps("HTTP/1.1 500 x\r\nCONTENT-LENGTH: 3\r\n\r\nabc"));
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcd",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n",
        ] {
            assert!(!keeps(other), "{other}");
            assert_eq!(read(other).map(|read| read.status), Some(200), "{other}");
        }
        assert_eq!(
            read("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n"),
            None,
            "more is to come"
        );
        let endless = [&b"HTTP/1.1 200 OK\r\n"[..], &[b'a'; MAX_ANSWER_BYTES]].concat();
        assert!(parse(&endless[..MAX_ANSWER_BYTES], false).is_err());
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), head in any::<bool>(), ended in any::<bool>()) {
            let answer = if head { [&b"HTTP/1.1 200 OK\r\n"[..], &bytes].concat() } else { bytes };
            let _ = parse(&answer, ended);
        }
    }
}
