//! TLS towards the API server: whom we believe and what we prove ourselves with, made from PEM.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::connection::ConnectionError;
use crate::kubeconfig::Access;

/// Sessions that are kept for a shorter handshake: we speak to one server.
const SESSIONS: usize = 4;

/// The configuration that goes with a kubeconfig.
///
/// # Errors
/// When authority, certificate or key cannot be used; the text quotes none of them.
pub(super) fn config(access: &Access) -> Result<ClientConfig, ConnectionError> {
    let bad = |what: &str, why: String| ConnectionError::Tls(format!("{what}: {why}"));
    let mut roots = RootCertStore::empty();
    if let Some(authority) = &access.authority {
        let what = "certificate-authority";
        for one in certificates(authority).map_err(|e| bad(what, e))? {
            roots.add(one).map_err(|e| bad(what, e.to_string()))?;
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| bad("TLS", e.to_string()))?
        .with_root_certificates(roots);
    let mut config = match (&access.certificate, &access.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate).map_err(|e| bad("client-certificate", e))?;
            let key = decode(key)
                .and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).map_err(|e| e.to_string()))
                .map_err(|e| bad("client-key", e))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| bad("client-certificate and client-key", e.to_string()))?
        }
        _ => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

fn certificates(data: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&decode(data)?)
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    if chain.is_empty() {
        return Err("no certificate in it".to_owned());
    }
    Ok(chain)
}

/// From when to when our certificate is good, in seconds since 1970.
pub(super) fn validity(access: &Access) -> Option<(i64, i64)> {
    let chain = certificates(access.certificate.as_ref()?).ok()?;
    let (_, read) = X509Certificate::from_der(chain.first()?).ok()?;
    let validity = read.validity();
    Some((
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    ))
}

/// The bytes behind a `…-data` field, which may be broken into lines.
pub(super) fn decode(data: &str) -> Result<Vec<u8>, String> {
    let text: String = data.split_ascii_whitespace().collect();
    BASE64_STANDARD
        .decode(text)
        .map_err(|_| "not base64".to_owned())
}
