//! One probe of the kubelet's /healthz, with the different ways in which it can fail.

use std::{
    error::Error as _,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use reqwest::{Client, Url, redirect};

/// A probe that has no answer by then has failed.
pub const TIMEOUT: Duration = Duration::from_millis(800);
/// An answer of the kubelet's has a few hundred bytes; what is longer is not read.
const MAX_BODY_BYTES: u64 = 64 * 1024;

/// How a probe ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// HTTP 200.
    Healthy,
    /// Nobody listens.
    Refused,
    /// Somebody listens and does not answer, or the connection is neither accepted nor refused.
    TimedOut,
    /// The connection was accepted, and closed without an answer, or something else than HTTP came.
    NoHttp,
    /// Another HTTP status.
    Status(u16),
    /// The probe could not be made, which says nothing about the kubelet.
    Impossible(String),
}

/// Probes one address over a connection that is kept.
#[derive(Debug, Clone)]
pub struct Prober {
    client: Client,
    url: Url,
    /// As it was given.
    given_url: String,
    address: SocketAddr,
}

impl Prober {
    /// A prober for `url`, whose host is an address or `localhost`.
    ///
    /// # Errors
    /// When it is no such URL.
    pub fn new(given_url: &str) -> Result<Self, String> {
        let mut url = Url::parse(given_url).map_err(|error| format!("{given_url}: {error}"))?;
        if url.scheme() != "http" {
            return Err(format!("{url}: wanted http://ADDRESS:PORT/healthz"));
        }
        if url.host_str() == Some("localhost") {
            // Looking a name up starts a thread for the resolver, and may hang.
            url.set_ip_host(IpAddr::V4(Ipv4Addr::LOCALHOST)).map_err(|()| format!("{url} has no host"))?;
        }
        // Not through a proxy of the environment: it would be asked for this host's own address.
        let client = Client::builder().no_proxy().redirect(redirect::Policy::none()).timeout(TIMEOUT);
        let client = client.build().map_err(|error| format!("{url}: {error}"))?;
        let address = address(&url).ok_or_else(|| format!("{url}: its host is not an address"))?;
        Ok(Self { client, url, given_url: given_url.to_owned(), address })
    }

    /// Whether it was made for this URL.
    pub fn is_for(&self, url: &str) -> bool {
        self.given_url == url
    }

    /// Where it probes.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// The address and port of the URL.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Probes once; takes at most [`TIMEOUT`].
    pub async fn probe(&self) -> Probe {
        let answer = match self.client.get(self.url.clone()).send().await {
            Ok(answer) => answer,
            Err(error) => return failure(&error),
        };
        let status = answer.status();
        // Read to its end, so that the connection is kept.
        if answer.content_length().is_some_and(|length| length <= MAX_BODY_BYTES)
            && let Err(error) = answer.bytes().await
        {
            return failure(&error);
        }
        if status == reqwest::StatusCode::OK { Probe::Healthy } else { Probe::Status(status.as_u16()) }
    }
}

fn address(url: &Url) -> Option<SocketAddr> {
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
    Some(SocketAddr::new(host.parse().ok()?, url.port_or_known_default()?))
}

fn failure(error: &reqwest::Error) -> Probe {
    if error.is_timeout() {
        return Probe::TimedOut;
    }
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::ConnectionRefused => Probe::Refused,
                io::ErrorKind::TimedOut => Probe::TimedOut,
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
                    Probe::NoHttp
                }
                _ => Probe::Impossible(error.to_string()),
            };
        }
        source = cause.source();
    }
    // An error of HTTP, such as a connection that is closed within an answer.
    Probe::NoHttp
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

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
        let address = Prober::new("http://[::1]:10248/healthz").unwrap().address();
        assert_eq!(address, SocketAddr::new("::1".parse().unwrap(), 10248));
    }
}
