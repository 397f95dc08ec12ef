//! The proxy's connections: accepted, served, and broken as the fault wants.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};

use super::Shared;
use super::answer::{answer, kind_of};
use super::fault::Fault;
use crate::support::pki::{Authority, Pair};

/// What speaks where HTTP was expected.
const NO_HTTP: &[u8] = b"SSH-2.0-OpenSSH_9.9\r\n";

/// What the server shows of itself: as it should be, and in two wrong ways.
pub(super) struct Faces {
    good: TlsAcceptor,
    of_another_authority: TlsAcceptor,
    expired: TlsAcceptor,
}

impl Faces {
    pub(super) fn new(authority: &Authority, host: &str) -> Result<Self> {
        let stranger = Authority::new()?.sign("kube-apiserver", &[], &[host])?;
        let face = |pair: &Pair| acceptor(pair, &authority.pair.certificate);
        Ok(Self {
            good: face(&authority.sign("kube-apiserver", &[], &[host])?)?,
            of_another_authority: face(&stranger)?,
            expired: face(&authority.sign_expired("kube-apiserver", &[host])?)?,
        })
    }

    fn of(&self, fault: Option<Fault>) -> TlsAcceptor {
        match fault {
            Some(Fault::WrongCa) => self.of_another_authority.clone(),
            Some(Fault::Expired) => self.expired.clone(),
            _ => self.good.clone(),
        }
    }
}

/// Like the API server it offers HTTP/2 and HTTP/1.1; and it wants a client certificate of the cluster's.
fn acceptor(pair: &Pair, ca: &str) -> Result<TlsAcceptor> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    let provider = Arc::new(ring::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()?;
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts until the runtime ends. While connections are refused there is no listener.
pub(super) async fn listen(shared: Arc<Shared>, address: SocketAddr, first: TcpListener) {
    let mut fault = shared.fault.subscribe();
    let mut listener = Some(first);
    loop {
        if *fault.borrow_and_update() == Some(Fault::Refuse) {
            listener = None;
            if fault.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(open) = &listener else {
            listener = TcpListener::bind(address).await.ok();
            if listener.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            continue;
        };
        tokio::select! {
            changed = fault.changed() => if changed.is_err() { return },
            accepted = open.accept() => if let Ok((stream, _)) = accepted {
                tokio::spawn(connection(Arc::clone(&shared), stream));
            },
        }
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream) {
    // A failure is the client's or the fault's: both are what is being tested.
    let _ = serve(&shared, stream).await;
}

async fn serve(shared: &Arc<Shared>, stream: TcpStream) -> Result<()> {
    let mut fault = shared.fault.subscribe();
    let at_first = *fault.borrow_and_update();
    let number = shared.connection();
    match at_first {
        Some(Fault::Reset) => return Ok(stream.set_zero_linger()?),
        Some(Fault::HandshakeHang) => std::future::pending().await,
        _ => {}
    }
    let stream = stream.into_std()?;
    let twin = TcpStream::from_std(stream.try_clone()?)?;
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    let acceptor = shared.faces.of(at_first);
    let serving = async {
        let mut stream = acceptor.accept(stream).await?;
        if at_first == Some(Fault::NotHttp) {
            stream.write_all(NO_HTTP).await?;
            return Ok(stream.shutdown().await?);
        }
        let service = service_fn(|request| {
            shared.request(number, kind_of(&request));
            answer(Arc::clone(shared), request)
        });
        let served = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
        served.map_err(|error| anyhow::anyhow!("{error}"))
    };
    let mut serving = pin!(serving);
    loop {
        tokio::select! {
            served = &mut serving => return served,
            changed = fault.changed() => changed?,
        }
        let now = *fault.borrow_and_update();
        match now {
            // Kept, and never polled again.
            Some(Fault::HalfOpen) => std::future::pending().await,
            Some(fault) if fault.resets_connections() => return Ok(twin.set_zero_linger()?),
            _ => {}
        }
    }
}
