//! One kept connection to the API server.
//!
//! HTTP/2: the watch of our Node and every write share one connection, which the watch keeps warm, so that the apply
//! that matters finds it open. (Over HTTP/1.1 a request after an idle minute would connect and shake hands anew.) Proxies
//! are not used: an `https_proxy` in the environment is meant for other programs, and what the kubelet reaches directly
//! we reach directly.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{AUTHORIZATION, USER_AGENT},
};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    rt::Executor,
};
use hyper_util::{
    client::legacy::{Client as HttpClient, Error},
    rt::TokioTimer,
};
use tokio::task::JoinSet;

use super::dial::Connector;
use crate::{clock::CoarseTimer, kubeconfig::Access};

/// A connection on which nothing came is asked whether it lives, and given up: client-go's own numbers
/// (kubernetes/kubernetes#95981), without which a half-open one costs 15 minutes.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// So much of an answer may be on its way before we have read it: this bounds our memory, whatever is sent.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// Why there is no connection to be made of a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// Certificate, key or CA that cannot be used.
    #[error("its certificates cannot be used: {0}")]
    Tls(String),
    /// `tls-server-name` that is none.
    #[error("tls-server-name `{0}` is no server name")]
    ServerName(String),
    /// `server` that is no URL.
    #[error("server `{0}` is no URL; wanted https://host:port")]
    Url(String),
    /// A token with a line break in it, or the like.
    #[error("its token cannot be sent in a header")]
    Token,
    /// The server's certificate would not be looked at.
    #[error(
        "insecure-skip-tls-verify: a server that anybody could be is given no credential; name its certificate-authority"
    )]
    Insecure,
    /// A way that we do not take.
    #[error("proxy-url {0}: proxies are not used; name the API server's own address")]
    Proxy(String),
}

/// A way to the API server; clones share it. When the last is dropped its connection ends after its last answer.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    access: Access,
    /// Scheme and authority, without a slash at the end.
    base: String,
    authorization: Option<HeaderValue>,
    way: Arc<Way>,
}

/// What is the same for each token.
struct Way {
    connector: Connector,
    timer: Option<CoarseTimer>,
    open: Mutex<Open>,
}

/// What can be given up at once.
struct Open {
    client: HttpClient<Connector, Full<Bytes>>,
    tasks: Tasks,
}

/// The tasks that drive the connection: to abort them closes it in the middle of whatever it says.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.0.access.server)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Makes one; nothing is sent yet. Its pings go by `timer`, or by tokio's.
    ///
    /// # Errors
    /// When what the kubeconfig says does not make sense together, or asks for what we do not do.
    pub fn new(access: Access, timer: Option<CoarseTimer>) -> Result<Self, ConnectionError> {
        Self::after(access, timer, None)
    }

    /// `last`: one to the same server.
    fn after(
        access: Access,
        timer: Option<CoarseTimer>,
        last: Option<&Self>,
    ) -> Result<Self, ConnectionError> {
        if access.insecure {
            return Err(ConnectionError::Insecure);
        }
        if let Some(proxy) = access.proxy_url {
            return Err(ConnectionError::Proxy(proxy));
        }
        let base = access.server.trim_end_matches('/').to_owned();
        let url: Option<Uri> = base.parse().ok();
        if !url.is_some_and(|url| url.scheme().is_some() && url.host().is_some()) {
            return Err(ConnectionError::Url(access.server));
        }
        let connector = Connector::new(&access, last.map(|last| &last.0.way.connector))?;
        let way = Way {
            open: Mutex::new(open(&connector, timer.as_ref())),
            connector,
            timer,
        };
        Ok(Self(Arc::new(Inner {
            base,
            authorization: authorization(&access)?,
            way: Arc::new(way),
            access,
        })))
    }

    /// One for what the kubeconfig says now. Another token alone goes on with the connection that is open: no handshake,
    /// and what is under way on it ends as it would have.
    ///
    /// # Errors
    /// As [`Connection::new`].
    pub fn renewed(&self, access: Access) -> Result<Self, ConnectionError> {
        let last = &self.0.access;
        let same_but_token = Access {
            token: last.token.clone(),
            ..access.clone()
        };
        if *last != same_but_token {
            let is_there = last.server == access.server;
            return Self::after(access, self.timer(), is_there.then_some(self));
        }
        Ok(Self(Arc::new(Inner {
            base: self.0.base.clone(),
            authorization: authorization(&access)?,
            way: self.0.way.clone(),
            access,
        })))
    }

    /// Another one to the same server, which shares nothing with this one but the addresses.
    ///
    /// # Errors
    /// As [`Connection::new`].
    pub fn beside(&self) -> Result<Self, ConnectionError> {
        Self::after(self.0.access.clone(), self.timer(), Some(self))
    }

    fn timer(&self) -> Option<CoarseTimer> {
        self.0.way.timer.clone()
    }

    /// What it was made of.
    pub fn access(&self) -> &Access {
        &self.0.access
    }

    /// Sends a request whose URI begins with the path.
    ///
    /// # Errors
    /// When the request is none, or no answer begins.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Incoming>, SendError> {
        let (mut parts, body) = request.into_parts();
        parts.uri = format!("{}{}", self.0.base, parts.uri)
            .parse()
            .map_err(|_| SendError::Uri)?;
        parts.headers.insert(USER_AGENT, USER);
        if let Some(value) = &self.0.authorization {
            parts.headers.insert(AUTHORIZATION, value.clone());
        }
        let request = Request::from_parts(parts, Full::new(body));
        let client = self.lock().client.clone();
        Ok(client.request(request).await?)
    }

    /// Ends the connection at once: what was not sent yet is never sent. The next request opens another.
    pub fn abort(&self) {
        let way = &self.0.way;
        let next = open(&way.connector, way.timer.as_ref());
        let last = std::mem::replace(&mut *self.lock(), next);
        last.tasks.lock().abort_all();
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        let open = self.0.way.open.lock();
        open.unwrap_or_else(PoisonError::into_inner)
    }
}

const USER: HeaderValue =
    HeaderValue::from_static(concat!("nodevigil/", env!("CARGO_PKG_VERSION")));

/// Why no answer began.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A path that is none.
    #[error("the request's path is no path")]
    Uri,
    /// The connection, or the server.
    #[error(transparent)]
    Http(#[from] Error),
}

fn authorization(access: &Access) -> Result<Option<HeaderValue>, ConnectionError> {
    let text = match (&access.token, &access.basic) {
        (Some(token), _) => format!("Bearer {token}"),
        (None, Some((name, password))) => {
            let pair = BASE64_STANDARD.encode(format!("{name}:{password}"));
            format!("Basic {pair}")
        }
        (None, None) => return Ok(None),
    };
    let mut value = HeaderValue::try_from(text).map_err(|_| ConnectionError::Token)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn open(connector: &Connector, timer: Option<&CoarseTimer>) -> Open {
    let tasks = Tasks::default();
    let mut builder = HttpClient::builder(tasks.clone());
    match timer {
        Some(timer) => builder.timer(timer.clone()),
        None => builder.timer(TokioTimer::new()),
    };
    let client = builder
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(1)
        // The client counts requests alone: after 90 s without one it would forget the connection that the watch and the
        // pings keep open, and the apply that matters would find none.
        .pool_idle_timeout(None)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .build(connector.clone());
    Open { client, tasks }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::cluster::api::{Api, ApiError};
    use crate::cluster::publisher::Apply;

    /// What an apply comes to at a server that answers with these bytes; with none, it never answers.
    async fn apply(answer: &'static str) -> ApiError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let error = apply_to(&format!("http://{address}")).await;
        server.abort();
        error
    }

    async fn apply_to(url: &str) -> ApiError {
        let access = Access {
            server: url.to_owned(),
            ..Access::default()
        };
        let api = Api::new(Connection::new(access, None).unwrap(), "n1");
        api.apply(&Apply::default()).await.unwrap_err()
    }

    // The real API server shows these on no demand, so this one stands in for it.
    #[tokio::test]
    async fn what_a_server_in_trouble_says_is_understood() {
        let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(
            apply(busy).await,
            ApiError::TooMany(Some(Duration::from_secs(7)))
        );
        let ill =
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\nwait";
        assert_eq!(
            apply(ill).await,
            ApiError::Server {
                code: 503,
                message: "wait".to_owned(),
                retry_after: Some(Duration::from_secs(3)),
            }
        );
        let conflict =
            "HTTP/1.1 409 Conflict\r\ncontent-length: 21\r\n\r\n{\"message\":\"the uid\"}";
        assert_eq!(
            apply(conflict).await,
            ApiError::Conflict("the uid".to_owned())
        );
        let nonsense = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        assert!(matches!(apply(nonsense).await, ApiError::Nonsense(_)));
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{";
        assert!(matches!(apply(cut).await, ApiError::Network(_)));
    }

    #[tokio::test]
    async fn a_server_that_is_away_or_silent_is_given_up() {
        assert_eq!(apply("").await, ApiError::Timeout);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        assert!(matches!(apply_to(&url).await, ApiError::Network(why) if why.contains("refused")));
    }

    #[tokio::test]
    async fn a_date_is_read_against_the_servers_own_clock() {
        let until = "HTTP/1.1 503 Service Unavailable\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                     retry-after: Sun, 06 Nov 1994 08:50:07 GMT\r\ncontent-length: 0\r\n\r\n";
        let error = apply(until).await;
        assert!(
            matches!(error, ApiError::Server { retry_after: Some(wait), .. } if wait.as_secs() == 30),
            "{error:?}"
        );
        let past = "HTTP/1.1 429 Too Many Requests\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                    retry-after: Sun, 06 Nov 1994 08:00:00 GMT\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(apply(past).await, ApiError::TooMany(Some(Duration::ZERO)));
        let odd =
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: soon\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(apply(odd).await, ApiError::TooMany(None));
    }

    /// A server that answers each connection so, and then sends a byte each so many milliseconds, for ever.
    async fn dripping(head: &'static str, every_millis: u64) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
                    stream.write_all(head.as_bytes()).await.unwrap();
                    while stream.write_all(b"1\r\n{\r\n").await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(every_millis)).await;
                    }
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn an_answer_that_does_not_end_is_bounded_in_time_and_in_bytes() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let trickle = format!("http://{}", dripping(head, 300).await);
        let flood = format!("http://{}", dripping(head, 0).await);
        let (slow, long) = tokio::join!(apply_to(&trickle), apply_to(&flood));
        assert_eq!(slow, ApiError::Timeout);
        // Whichever bound is met first.
        assert!(
            matches!(&long, ApiError::Nonsense(why) if why.contains("longer"))
                || long == ApiError::Timeout,
            "{long:?}"
        );
    }

    #[tokio::test]
    async fn a_handshake_that_hangs_is_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let error = apply_to(&url).await;
        assert!(
            matches!(&error, ApiError::Network(why) if why.contains("TLS included")),
            "{error:?}"
        );
    }

    /// What the server still reads of a request that was given up: a reset, and nothing that was still to be sent.
    #[tokio::test]
    async fn a_request_that_is_given_up_is_torn_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let access = Access {
            server: format!("http://{}", listener.local_addr().unwrap()),
            ..Access::default()
        };
        let connection = Connection::new(access, None).unwrap();
        let body = vec![b'x'; 16 * 1024 * 1024]; // more than any socket's buffers hold
        let request = Request::post("/").body(body.into()).unwrap();
        let sending = tokio::spawn({
            let connection = connection.clone();
            async move { connection.send(request).await.map(|_| ()) }
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 64 * 1024];
        stream.read_exact(&mut buffer).await.unwrap();
        connection.abort();
        assert!(sending.await.unwrap().is_err());
        let mut read = buffer.len();
        let end = loop {
            match stream.read(&mut buffer).await {
                Ok(0) => break None,
                Ok(more) => read += more,
                Err(e) => break Some(e.kind()),
            }
        };
        assert_eq!(end, Some(std::io::ErrorKind::ConnectionReset));
        assert!(read < 16 * 1024 * 1024, "{read} bytes");
    }
}
