//! One probe of the kubelet's /healthz, with the different ways in which it can fail.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::http::uri::Scheme;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// A probe that has no answer by then has failed.
pub const TIMEOUT: Duration = Duration::from_millis(800);
/// An answer of the kubelet's has a few hundred bytes; what is longer is not read.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// How a probe ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// HTTP 200.
    Healthy,
    /// No process listens.
    Refused,
    /// A process listens and does not answer, or the connection is neither accepted nor refused.
    TimedOut,
    /// The connection was accepted, and closed without an answer, or something else than HTTP came.
    NoHttp,
    /// Another HTTP status.
    Status(u16),
    /// The probe could not be made; the kubelet is not the cause.
    Impossible(String),
}

/// As the timeline of a record has it.
impl fmt::Display for Probe {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => to.write_str("HTTP 200"),
            Self::Refused => to.write_str("no process listens"),
            Self::TimedOut => to.write_str("no answer"),
            Self::NoHttp => to.write_str("an answer that is not HTTP"),
            Self::Status(status) => write!(to, "HTTP {status}"),
            Self::Impossible(why) => to.write_str(why),
        }
    }
}

/// Probes one address over a connection that is kept.
#[derive(Debug, Clone)]
pub struct Prober {
    pub url: String,
    /// The address and port of the URL.
    pub address: SocketAddr,
    path: String,
    kept: Arc<Mutex<Option<Connection>>>,
}

type Connection = SendRequest<Empty<&'static [u8]>>;

impl Prober {
    /// A prober for `url`, whose host is an address or `localhost`.
    ///
    /// # Errors
    /// When it is no such URL.
    pub fn new(url: &str) -> Result<Self, String> {
        let parsed: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let host = match parsed.host() {
            // Looking a name up starts a thread for the resolver, and may hang.
            Some("localhost") => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            host => host.and_then(|host| host.trim_matches(['[', ']']).parse().ok()),
        };
        match host {
            Some(host) if parsed.scheme() == Some(&Scheme::HTTP) => Ok(Self {
                url: url.to_owned(),
                address: SocketAddr::new(host, parsed.port_u16().unwrap_or(80)),
                path: parsed.path().to_owned(),
                kept: Arc::default(),
            }),
            _ => {
                Err(format!("{url}: expected http://ADDRESS:PORT/healthz, where ADDRESS is an IP address or localhost"))
            }
        }
    }

    /// Probes once; takes at most [`TIMEOUT`].
    pub async fn probe(&self) -> Probe {
        timeout(TIMEOUT, self.ask()).await.unwrap_or(Probe::TimedOut)
    }

    async fn ask(&self) -> Probe {
        // Taken out: what has not answered in time is not used again.
        let kept = self.kept.lock().await.take().filter(|kept| !kept.is_closed());
        let mut connection = match kept {
            Some(kept) => kept,
            None => match self.connect().await {
                Ok(connection) => connection,
                Err(failed) => return failed,
            },
        };
        let request = Request::get(&self.path).header(HOST, self.address.to_string()).body(Empty::new());
        let Ok(request) = request else { return Probe::Impossible(format!("{}: not a URL", self.url)) };
        let Ok(answer) = connection.send_request(request).await else { return Probe::NoHttp };
        let status = answer.status();
        // Read to its end, so that the connection can be kept.
        if Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await.is_err() {
            return Probe::NoHttp;
        }
        *self.kept.lock().await = Some(connection);
        if status == StatusCode::OK { Probe::Healthy } else { Probe::Status(status.as_u16()) }
    }

    async fn connect(&self) -> Result<Connection, Probe> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Probe::Refused,
            io::ErrorKind::TimedOut => Probe::TimedOut,
            io::ErrorKind::ConnectionReset => Probe::NoHttp,
            _ => Probe::Impossible(error.to_string()),
        })?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| Probe::NoHttp)?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn probe_of(answer: &'static str) -> Probe {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        Prober::new(&format!("http://localhost:{port}/healthz")).unwrap().probe().await
    }

    #[tokio::test]
    async fn each_way_to_answer_is_a_fact_of_its_own() {
        assert_eq!(probe_of("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await, Probe::Healthy);
        assert_eq!(probe_of("HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n").await, Probe::Status(500));
        assert_eq!(probe_of("").await, Probe::NoHttp);
        assert_eq!(probe_of("SSH-2.0-x\r\n\r\n").await, Probe::NoHttp);
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        assert_eq!(Prober::new(&format!("http://127.0.0.1:{port}/")).unwrap().probe().await, Probe::Refused);
    }

    #[test]
    fn only_an_address_is_probed() {
        for wrong in ["https://127.0.0.1/healthz", "http://kubelet.example/healthz", "127.0.0.1:10248"] {
            assert!(Prober::new(wrong).is_err(), "{wrong}");
        }
        let address = Prober::new("http://[::1]:10248/healthz").unwrap().address;
        assert_eq!(address, SocketAddr::new("::1".parse().unwrap(), 10248));
    }
}
