//! The kubelet over HTTP: one probe of `/healthz`, told apart by how it fails.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door that the ban on HTTP clients points to"
)]

use std::{error::Error, io};

use crate::checks::kubelet::{PROBE_TIMEOUT, Probe};

/// Asks a kubelet's healthz over a connection that is kept.
#[derive(Debug, Clone)]
pub struct Healthz {
    client: reqwest::Client,
}

impl Healthz {
    /// A client that asks nobody else: no proxy (an `http_proxy` in the environment must not turn into a dead
    /// kubelet) and no redirects.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub fn new() -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PROBE_TIMEOUT)
            // Shorter, so that it is known which of the two has passed.
            .connect_timeout(PROBE_TIMEOUT * 3 / 4)
            .pool_max_idle_per_host(1)
            .build()?;
        Ok(Self { client })
    }

    /// One probe; ends within [`PROBE_TIMEOUT`].
    pub async fn probe(&self, url: &str) -> Probe {
        match self.client.get(url).send().await {
            Ok(response) if response.status() == reqwest::StatusCode::OK => Probe::Ok,
            Ok(response) => Probe::Status(response.status().as_u16()),
            Err(e) if e.is_timeout() && e.is_connect() => Probe::Unreachable,
            Err(e) if e.is_timeout() => Probe::Timeout,
            Err(e) => classify(&e),
        }
    }
}

/// A kubelet that dies between two bytes resets or closes the connection: nobody listens there any more.
fn classify(error: &reqwest::Error) -> Probe {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut last = String::new();
    while let Some(e) = cause {
        if let Some(io) = e.downcast_ref::<io::Error>()
            && matches!(
                io.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
            )
        {
            return Probe::Refused;
        }
        last = e.to_string();
        cause = e.source();
    }
    Probe::Impossible(last)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    async fn answer(bytes: &'static [u8]) -> Probe {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert_ne!(stream.read(&mut request).await.unwrap(), 0);
            if bytes.is_empty() {
                std::future::pending::<()>().await;
            }
            stream.write_all(bytes).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let probe = Healthz::new().unwrap().probe(&url).await;
        server.abort();
        probe
    }

    #[tokio::test]
    async fn each_ending_is_a_different_fact() {
        assert_eq!(
            answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await,
            Probe::Ok
        );
        assert_eq!(
            answer(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n").await,
            Probe::Status(500)
        );
        assert_eq!(
            answer(
                b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
            )
            .await,
            Probe::Status(302)
        );
        assert_eq!(answer(b"").await, Probe::Timeout);
        assert!(matches!(
            answer(b"garbage\r\n\r\n").await,
            Probe::Impossible(_)
        ));

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        drop(listener);
        assert_eq!(Healthz::new().unwrap().probe(&url).await, Probe::Refused);
    }
}
