//! The kubelet's kubeconfig: the API server that it names, and the client certificate that the kubelet shows there.

use std::path::Path;

use jiff::Timestamp;
use kubelet_config::kubelet::{
    machine::{Kubeconfig, Needed, of_running},
    tree::MemoryTree,
};
use serde::{Deserialize, Serialize};

use crate::files;

/// A kubeconfig or a certificate has a few KiB.
const MAX_BYTES: u64 = 256 * 1024;
/// Where the kubelet keeps the certificates that it has renewed, without `--cert-dir`.
const CERT_DIR: &str = "/var/lib/kubelet/pki";

/// A client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    pub file: String,
    pub valid_from: Timestamp,
    /// It is valid through this second.
    pub valid_until: Timestamp,
}

/// The API server's URL in the kubeconfig, and the client certificate of its user. None where it has none or cannot be read: what is wrong
/// with it then is a matter of the kubelet's configuration. `cert_dir` is the kubelet's `--cert-dir`. Reads files: call it in a child.
pub fn of_kubeconfig(path: &Path, cert_dir: Option<&str>) -> (Option<String>, Option<ClientCertificate>) {
    let Needed::Present(found) = read_kubeconfig(path, cert_dir) else { return (None, None) };
    let certificate = client_certificate(&found);
    (found.server, certificate)
}

/// A kubeconfig and what it names. Reads files: call it in a child.
pub fn read_kubeconfig(path: &Path, cert_dir: Option<&str>) -> Needed<Kubeconfig> {
    let renewed = Path::new(cert_dir.unwrap_or(CERT_DIR)).join("kubelet-client-current.pem");
    let tree = with_file(with_file(MemoryTree::new(), path), &renewed);
    let read = |tree: &MemoryTree| of_running(tree, &path.to_string_lossy(), cert_dir);
    match read(&tree) {
        // Once more, now that the files are known which it names.
        Needed::Present(found) => read(&found.files.iter().map(Path::new).fold(tree, with_file)),
        other => other,
    }
}

/// The certificate of its user, if that has one that can be read.
pub fn client_certificate(kubeconfig: &Kubeconfig) -> Option<ClientCertificate> {
    let certificate = kubeconfig.certificate.as_ref()?;
    Some(ClientCertificate {
        file: certificate.at.file.to_string(),
        valid_from: Timestamp::from_second(certificate.not_before_secs).ok()?,
        valid_until: Timestamp::from_second(certificate.not_after_secs).ok()?,
    })
}

fn with_file(tree: MemoryTree, path: &Path) -> MemoryTree {
    match files::read(path, MAX_BYTES) {
        Ok(text) => tree.file(path, text),
        Err(_) => tree,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use k8s_openapi::ByteString;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate that is valid for some years from 2026 on, as PEM.
    fn certificate(until: i32) -> String {
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(until, 1, 1));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_certificate_is_that_of_the_kubeconfig_or_the_one_that_was_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let cert_dir = file("pki");
        let read = || of_kubeconfig(&file("kubelet.conf"), cert_dir.to_str());
        let until = || read().1.map(|found| (found.file, found.valid_until.to_string()));
        assert_eq!(read(), (None, None));

        let kubeconfig = |user: serde_json::Value| {
            let kubeconfig = serde_json::json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "a", "user": "u"}}],
                "clusters": [{"name": "a", "cluster": {"server": "https://10.0.0.1:6443"}}],
                "users": [{"name": "u", "user": user}],
            });
            fs::write(file("kubelet.conf"), kubeconfig.to_string()).unwrap();
        };
        kubeconfig(serde_json::json!({"token": "s3cret"}));
        assert_eq!(read(), (Some("https://10.0.0.1:6443".into()), None));

        kubeconfig(serde_json::json!({"client-certificate": "own.pem", "client-key": "own.key"}));
        assert_eq!(until(), None, "it is not there");
        fs::write(file("own.pem"), certificate(2027)).unwrap();
        let own = file("own.pem").to_str().unwrap().to_owned();
        assert_eq!(until(), Some((own, "2027-01-01T00:00:00Z".into())));

        fs::create_dir(&cert_dir).unwrap();
        fs::write(cert_dir.join("kubelet-client-current.pem"), certificate(2028)).unwrap();
        assert!(until().unwrap().1.starts_with("2028"));

        let data = |until| ByteString(certificate(until).into_bytes());
        kubeconfig(serde_json::json!({"client-certificate-data": data(2027), "client-key-data": "a2V5"}));
        assert!(until().unwrap().1.starts_with("2028"));
        kubeconfig(serde_json::json!({"client-certificate-data": data(2029), "client-key-data": "a2V5"}));
        assert!(until().unwrap().1.starts_with("2029"), "a leftover");
    }
}
