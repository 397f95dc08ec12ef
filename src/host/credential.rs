//! The kubelet's kubeconfig: what the kubelet can show to the API server: a client certificate, a token, or only
//! what it gets a certificate with.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubelet_config::kubelet::host_tree::HostTree;
use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::machine::{ClientCredential, FileState, Kubeconfig, of_running};
use serde::{Deserialize, Serialize};

use super::subject::node_of;

/// The bootstrap kubeconfigs of kubeadm, of the kubelet's own default, and of Bottlerocket.
const BOOTSTRAP_KUBECONFIGS: [&str; 3] = [
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/var/lib/kubelet/bootstrap-kubeconfig",
    "/etc/kubernetes/kubelet/bootstrap-kubeconfig",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    pub file: String,
    /// The Node in the name of its user.
    pub node: Option<String>,
    pub valid_from: Timestamp,
    /// It is valid through this second.
    pub valid_until: Timestamp,
}

/// The kubelet's credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Credential {
    /// It could not be read, and why.
    Unreadable(String),
    /// There is neither a kubeconfig nor a bootstrap kubeconfig.
    Missing,
    /// A bootstrap kubeconfig, and no client certificate yet.
    Bootstrap {
        file: PathBuf,
    },
    Certificate(ClientCertificate),
    /// A kubeconfig with a token or an exec plugin.
    Other {
        file: String,
    },
    /// A kubeconfig that cannot be used, and why.
    Unusable(String),
}

/// The credential in `kubeconfig`. No path: it is not known where the kubelet's kubeconfig is.
/// `cert_dir` is the kubelet's `--cert-dir`. Reads files: call it in a child.
pub fn read(kubeconfig: Option<&Path>, cert_dir: Option<&str>) -> Credential {
    let bootstrap = BOOTSTRAP_KUBECONFIGS.iter().map(PathBuf::from).find(|path| path.exists());
    let found = kubeconfig.map_or(FileState::NotAsked, |path| read_kubeconfig(path, cert_dir));
    judge(found, bootstrap)
}

/// A kubeconfig and what it names.
fn read_kubeconfig(path: &Path, cert_dir: Option<&str>) -> FileState<Kubeconfig> {
    match HostTree::new(Path::new("/")) {
        Ok(tree) => of_running(&tree, &path.to_string_lossy(), cert_dir),
        Err(error) => FileState::Bad { at: Location::file("/"), reason: error.to_string() },
    }
}

fn judge(kubeconfig: FileState<Kubeconfig>, bootstrap: Option<PathBuf>) -> Credential {
    let found = match kubeconfig {
        FileState::Present(found) => found,
        FileState::Bad { at, reason } => return Credential::Unusable(format!("{at} {reason}")),
        FileState::NotAsked | FileState::Missing { .. } => {
            return bootstrap.map_or(Credential::Missing, |file| Credential::Bootstrap { file });
        }
    };
    if let Some(certificate) = client_certificate(&found) {
        return Credential::Certificate(certificate);
    }
    let file = found.at.file.to_string();
    match (found.credential, bootstrap) {
        (ClientCredential::Token | ClientCredential::Exec, _) => Credential::Other { file },
        // The kubelet writes its kubeconfig before it gets the certificate that the kubeconfig names.
        (_, Some(file)) => Credential::Bootstrap { file },
        (_, None) => {
            let problem = found.certificate_problem.unwrap_or_else(|| "it has no credential".into());
            Credential::Unusable(format!("{file}: {problem}"))
        }
    }
}

/// The certificate of its user, if that has one that can be read.
fn client_certificate(kubeconfig: &Kubeconfig) -> Option<ClientCertificate> {
    let certificate = kubeconfig.certificate.as_ref()?;
    Some(ClientCertificate {
        file: certificate.at.file.to_string(),
        node: certificate.common_name.as_deref().and_then(node_of),
        valid_from: Timestamp::from_second(certificate.not_before_secs).ok()?,
        valid_until: Timestamp::from_second(certificate.not_after_secs).ok()?,
    })
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
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let cert_dir = file("pki");
        let found = || read_kubeconfig(&file("kubelet.conf"), cert_dir.to_str());
        let until = || match judge(found(), None) {
            Credential::Certificate(found) => Some((found.file, found.valid_until.to_string())),
            _ => None,
        };

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
        let credential = read(Some(&file("kubelet.conf")), None);
        assert!(matches!(credential, Credential::Other { .. }), "{credential:?}");

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
    #[test]
    fn a_kubeconfig_without_its_certificate_counts_as_bootstrapping_if_there_is_something_to_bootstrap_with() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.conf");
        let with = |user: &str| {
            let head = "kind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: a, user: u}}]\n";
            let cluster = "clusters: [{name: a, cluster: {server: \"https://10.0.0.1:6443\"}}]\n";
            fs::write(&path, format!("{head}{cluster}users: [{{name: u, user: {{{user}}}}}]\n")).unwrap();
            read_kubeconfig(&path, None)
        };
        let bootstrap = || Some(PathBuf::from("/b"));
        let joining = Credential::Bootstrap { file: "/b".into() };
        assert_eq!(judge(read_kubeconfig(&path, None), None), Credential::Missing);
        assert_eq!(judge(read_kubeconfig(&path, None), bootstrap()), joining);
        let unjoined = || with("client-certificate: own.pem, client-key: own.pem");
        assert_eq!(judge(unjoined(), bootstrap()), joining);
        let Credential::Unusable(why) = judge(unjoined(), None) else { panic!("no certificate") };
        assert!(why.contains("own.pem does not exist"), "{why}");
        let file = path.display().to_string();
        assert_eq!(judge(with("token: s3cret"), bootstrap()), Credential::Other { file });
        fs::write(&path, "users: [").unwrap();
        assert!(matches!(judge(read_kubeconfig(&path, None), None), Credential::Unusable(_)));
    }
}
