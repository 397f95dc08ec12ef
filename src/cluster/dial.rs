//! Connecting to the API server: to an address that is kept, within a deadline, on a socket that can be given up.
//!
//! A name is looked up once, and again after an attempt that failed: a resolver that is slow or gone must not stand
//! between a fact and the Node. The lookup runs on the blocking worker, one at a time; while it has no answer, or a
//! wrong one, the addresses of before are tried.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tower::{BoxError, Service};

use super::{connection::ConnectionError, tls};
use crate::kubeconfig::Access;

/// Looking up, connecting and shaking hands together; less than a request's deadline.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Of which a lookup may take so much while there is an address from before.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// An address that does not answer leaves time for the next.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// A name may have many addresses; so many are kept.
const MAX_ADDRESSES: usize = 8;

/// What connecting gives.
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Connects, with TLS where the URL asks for it.
#[derive(Clone)]
pub(super) struct Connector {
    https: HttpsConnector<Dialer>,
    dialer: Dialer,
}

impl Connector {
    /// With another credential for the same server the addresses are those of `last`: no lookup.
    pub(super) fn new(access: &Access, last: Option<&Self>) -> Result<Self, ConnectionError> {
        let dialer = last.map(|last| last.dialer.clone()).unwrap_or_default();
        let mut builder = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(access)?)
            .https_or_http();
        if let Some(name) = &access.tls_server_name {
            let server_name = name
                .clone()
                .try_into()
                .map_err(|_| ConnectionError::ServerName(name.clone()))?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(server_name));
        }
        let https = builder
            .enable_http1()
            .enable_http2()
            .wrap_connector(dialer.clone());
        Ok(Self { https, dialer })
    }
}

impl Service<Uri> for Connector {
    type Response = <HttpsConnector<Dialer> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connecting = self.https.call(url);
        Box::pin(async move {
            timeout(CONNECT_TIMEOUT, connecting)
                .await
                .unwrap_or_else(|_| Err(late("no connection")))
        })
    }
}

fn late(what: &str) -> BoxError {
    let secs = CONNECT_TIMEOUT.as_secs();
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("{what} within {secs} s, TLS included"),
    )
    .into()
}

/// Opens TCP connections to the one server.
#[derive(Clone, Default)]
pub(super) struct Dialer {
    kept: Arc<Kept>,
}

#[derive(Default)]
struct Kept {
    addresses: Mutex<Vec<SocketAddr>>,
    /// Whether a lookup is under way: it may hang for as long as the resolver likes.
    looking: AtomicBool,
}

impl Kept {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SocketAddr>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that works comes first from now on.
    fn works(&self, address: SocketAddr) {
        let mut kept = self.lock();
        if let Some(index) = kept.iter().position(|one| *one == address) {
            kept[..=index].rotate_right(1);
        }
    }

    /// Looks the name up, within the time that is given; what comes later is kept for the next attempt.
    async fn look_up(self: &Arc<Self>, host: String, port: u16, limit: Duration) -> io::Result<()> {
        if self.looking.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let kept = self.clone();
        let looking = tokio::task::spawn_blocking(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            if let Ok(found) = &found {
                let found: Vec<_> = found.clone().take(MAX_ADDRESSES).collect();
                if !found.is_empty() {
                    *kept.lock() = found;
                }
            }
            kept.looking.store(false, Ordering::SeqCst);
            found.map(|_| ())
        });
        match timeout(limit, looking).await {
            Ok(Ok(result)) => result,
            Ok(Err(e)) => Err(io::Error::other(e)),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the name could not be looked up in time",
            )),
        }
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let kept = self.kept.clone();
        Box::pin(async move { Ok(TokioIo::new(dial(&kept, &url).await?)) })
    }
}

async fn dial(kept: &Arc<Kept>, url: &Uri) -> io::Result<TcpStream> {
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let secure = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
    if let Ok(address) = host.parse::<IpAddr>() {
        return open((address, port).into()).await;
    }
    let before = kept.addresses();
    let failed = match try_each(kept, &before).await {
        Ok(stream) => return Ok(stream),
        Err(e) => e,
    };
    // Nothing known, or nobody there any more: the name may have moved.
    let limit = if before.is_empty() {
        CONNECT_TIMEOUT
    } else {
        LOOKUP_TIMEOUT
    };
    let looked_up = kept.look_up(host.to_owned(), port, limit).await;
    let now = kept.addresses();
    if now == before {
        return Err(looked_up
            .err()
            .filter(|_| before.is_empty())
            .unwrap_or(failed));
    }
    try_each(kept, &now).await
}

async fn try_each(kept: &Kept, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        match timeout(ADDRESS_TIMEOUT, open(*address)).await {
            Ok(Ok(stream)) => {
                kept.works(*address);
                return Ok(stream);
            }
            Ok(Err(e)) => failed = e,
            Err(_) => {
                failed = io::Error::new(io::ErrorKind::TimedOut, format!("{address} is silent"));
            }
        }
    }
    Err(failed)
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_nodelay(true)?;
    // Closing throws away what the kernel has not sent yet: a write that we gave up must not land minutes later, when
    // the network heals.
    socket.set_zero_linger()?;
    socket.connect(address).await
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_name_is_looked_up_once_and_again_after_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url: Uri = format!("https://localhost:{port}").parse().unwrap();
        let kept = Arc::new(Kept::default());
        dial(&kept, &url).await.unwrap();
        assert_eq!(kept.addresses()[0], listener.local_addr().unwrap());
        // Were it looked up again, the loopback of IPv6 or the like would be there too, or another order.
        let known = vec![listener.local_addr().unwrap()];
        kept.lock().clone_from(&known);
        dial(&kept, &url).await.unwrap();
        assert_eq!(kept.addresses(), known);
        // An address at which nobody is any more.
        kept.lock()
            .clone_from(&vec!["127.0.0.1:1".parse().unwrap()]);
        dial(&kept, &url).await.unwrap();
        assert_eq!(kept.addresses()[0], listener.local_addr().unwrap());
    }

    #[tokio::test]
    async fn while_a_lookup_hangs_the_old_address_serves() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kept = Arc::new(Kept::default());
        kept.lock().push(address);
        kept.looking.store(true, Ordering::SeqCst);
        let url: Uri = format!("https://api.invalid:{}", address.port())
            .parse()
            .unwrap();
        dial(&kept, &url).await.unwrap();
        drop(listener);
        let error = dial(&kept, &url).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(kept.addresses(), [address], "it may come back");
    }

    #[test]
    fn the_address_that_works_comes_first() {
        let address = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        let kept = Kept::default();
        *kept.lock() = vec![address(1), address(2), address(3)];
        kept.works(address(3));
        assert_eq!(kept.addresses(), [address(3), address(1), address(2)]);
    }
}
