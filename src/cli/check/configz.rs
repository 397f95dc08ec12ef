//! The configuration with which the kubelet runs: `/configz` of its own API, for which the agent's identity needs `nodes/configz`.
//!
//! The API server's proxy would need `nodes/proxy`, with which commands can be run in every pod. So the kubelet is asked itself, and only
//! by its serving certificate: another program at its port must not get the credential.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use hyper::Request;
use kube::Client;
use kubelet_config::kubelet::effective::Settings;
use serde_json::Value;
use tokio::time::timeout;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use crate::files;
use crate::publish::identity::{self, OWN_KUBECONFIG};

const DEADLINE: Duration = Duration::from_secs(5);
const MAX_CERTIFICATE_BYTES: u64 = 1 << 20;

/// The configuration of the running kubelet; none without an identity of nodevigil's own that may read it. `settings`: the kubelet's.
pub async fn read(kubeconfig: Option<&Path>, settings: &Settings) -> anyhow::Result<Option<Value>> {
    let Some(source) = identity::choose(kubeconfig, Path::new(OWN_KUBECONFIG), None) else { return Ok(None) };
    let mut config = identity::read(source)?.config;
    let file = serving_certificate(settings);
    let pem = files::read(&file, MAX_CERTIFICATE_BYTES).with_context(|| file.display().to_string())?;
    let blocks: Vec<Pem> = Pem::iter_from_buffer(pem.as_bytes()).flatten().collect();
    let certificates: Vec<&Pem> = blocks.iter().filter(|block| block.label == "CERTIFICATE").collect();
    let host = settings.text("address").filter(|address| !["0.0.0.0", "::"].contains(address)).unwrap_or("127.0.0.1");
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let port = settings.int("port").unwrap_or(10250);
    config.cluster_url = format!("https://{host}:{port}/").parse()?;
    config.tls_server_name = certificates.first().and_then(|certificate| name_of(certificate));
    config.root_cert.get_or_insert_default().extend(certificates.into_iter().map(|block| block.contents.clone()));
    let client = Client::try_from(config)?;
    let answer = client.request::<Value>(Request::get("/configz").body(Vec::new())?);
    match timeout(DEADLINE, answer).await {
        Ok(Ok(mut answer)) => Ok(Some(answer["kubeletconfig"].take())),
        Ok(Err(kube::Error::Api(status))) if [401, 403].contains(&status.code) => Ok(None),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => bail!("no answer within {} s", DEADLINE.as_secs()),
    }
}

/// The certificate that the kubelet shows: the one that it is given, that was issued to it, or that it has made.
fn serving_certificate(settings: &Settings) -> PathBuf {
    let directory = Path::new(settings.text("--cert-dir").unwrap_or("/var/lib/kubelet/pki"));
    let issued = directory.join("kubelet-server-current.pem");
    let made = || if issued.exists() { issued.clone() } else { directory.join("kubelet.crt") };
    settings.text("tlsCertFile").map_or_else(made, PathBuf::from)
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
