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
pub fn client(mut config: Config, port: &Port) -> Result<Client> {
    let certificates = certificates(&port.certificate).with_context(|| port.certificate.display().to_string())?;
    config.cluster_url = format!("https://{}/", port.address).parse()?;
    config.tls_server_name = certificates.first().and_then(name_of);
    config.root_cert = Some(certificates.into_iter().map(|block| block.contents).collect());
    config.default_retry = false;
    Ok(Client::try_from(config)?)
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
