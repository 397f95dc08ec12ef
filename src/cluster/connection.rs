//! One kept connection to the API server.
//!
//! kube's own stack speaks HTTP/1.1, where a request after an idle minute must connect and shake hands anew (the API
//! server hangs up after 90 s). Ours offers HTTP/2: the watch of our Node and every apply share one connection, which
//! the watch keeps warm, so that the apply that matters finds it open. Proxies are not used: an `https_proxy` in the
//! environment is meant for other programs, and what the kubelet reaches directly we reach directly.

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use tower::ServiceBuilder;

/// Connecting, TLS not included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// A connection on which nothing came is asked whether it lives, and given up: client-go's own numbers
/// (kubernetes/kubernetes#95981), without which a half-open one costs 15 minutes.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Certificate, key or CA that cannot be used.
    #[error("the kubeconfig's certificates cannot be used: {0}")]
    Tls(#[source] Box<kube::Error>),
    /// `tls-server-name` that is none.
    #[error("the kubeconfig's tls-server-name `{0}` is no server name")]
    ServerName(String),
}

/// Makes a client; nothing is sent yet. Dropping it and the answers that are still open closes its connection.
///
/// # Errors
/// When the credential's files do not make sense together.
pub fn client(config: &Config) -> Result<Client, ConnectionError> {
    let tls = |e| ConnectionError::Tls(Box::new(e));
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config().map_err(tls)?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let server_name = name
            .clone()
            .try_into()
            .map_err(|_| ConnectionError::ServerName(name.clone()))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(server_name));
    }
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = builder.enable_http1().enable_http2().wrap_connector(http);
    let http_client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(1)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(tls)?)
        .map_err(tower::BoxError::from)
        .service(http_client);
    Ok(Client::new(service, config.default_namespace.clone()))
}
