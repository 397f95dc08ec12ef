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
        let client = client(&Config::new(url.parse().unwrap())).unwrap();
        let api = Api::new(client, "n1");
        api.apply(&Apply::default(), jiff::Timestamp::UNIX_EPOCH)
            .await
            .unwrap_err()
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
}
