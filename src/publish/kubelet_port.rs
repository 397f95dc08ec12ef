//! A client for the kubelet's authenticated port. The certificate with which the kubelet serves is as a rule signed by itself, and the
//! credential is shown only to who holds its key: another program at the port does not get it.
//!
//! The API server's proxy would need `nodes/proxy`, with which commands can be run in every pod.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::{Client, Config};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use crate::files;
use crate::host::kubelet::Port;

const MAX_CERTIFICATE_BYTES: u64 = 1 << 20;

/// A client with the credential of `config`. Reads the certificate's file.
///
/// # Errors
/// When the certificate cannot be read, naming its file.
pub fn client(config: Config, port: &Port) -> Result<Client> {
    Ok(Client::try_from(to_port(config, port)?)?)
}

fn to_port(mut config: Config, port: &Port) -> Result<Config> {
    let certificates = certificates(&port.certificate).with_context(|| port.certificate.display().to_string())?;
    config.cluster_url = format!("https://{}/", port.address).parse()?;
    config.tls_server_name = certificates.first().and_then(name_of);
    config.root_cert = Some(certificates.into_iter().map(|block| block.contents).collect());
    config.default_retry = false;
    config.accept_invalid_certs = false; // whatever the kubeconfig says of the API server
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<Pem>> {
    let text = files::read(path, MAX_CERTIFICATE_BYTES)?;
    let blocks = Pem::iter_from_buffer(text.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    Ok(blocks.into_iter().filter(|block| block.label == "CERTIFICATE").collect())
}

/// A name for which a certificate is valid.
fn name_of(certificate: &Pem) -> Option<String> {
    let certificate = certificate.parse_x509().ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelets_certificate_is_verified_even_if_that_of_the_api_server_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let port = Port { address: "127.0.0.1:10250".parse().unwrap(), certificate: dir.path().join("kubelet.crt") };
        let certificate = rcgen::generate_simple_self_signed(["node-1".to_owned()]).unwrap().cert;
        std::fs::write(&port.certificate, certificate.pem()).unwrap();
        let mut config = Config::new("https://10.0.0.1".parse().unwrap());
        config.accept_invalid_certs = true;
        let config = to_port(config, &port).unwrap();
        assert_eq!((config.accept_invalid_certs, config.tls_server_name.as_deref()), (false, Some("node-1")));
        assert_eq!(config.root_cert.unwrap(), [certificate.der().to_vec()]);
    }
}
