//! What the kubelet can show to the API server: a client certificate, a token, or only what it gets a certificate with.

use std::path::{Path, PathBuf};

use kubelet_config::kubelet::machine::{ClientCredential, Kubeconfig, Needed};
use serde::{Deserialize, Serialize};

use super::certificate::{ClientCertificate, client_certificate, read_kubeconfig};

/// The bootstrap kubeconfigs of kubeadm, of those who follow the kubelet's own default, and of Bottlerocket.
const BOOTSTRAP_KUBECONFIGS: [&str; 3] = [
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/var/lib/kubelet/bootstrap-kubeconfig",
    "/etc/kubernetes/kubelet/bootstrap-kubeconfig",
];

/// The kubelet's credential.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

/// The credential in `kubeconfig`; none if it is not known where the kubelet's kubeconfig is. Call it in a child.
pub fn read(kubeconfig: Option<&Path>) -> Credential {
    let bootstrap = BOOTSTRAP_KUBECONFIGS.iter().map(PathBuf::from).find(|path| path.exists());
    judge(kubeconfig.map_or(Needed::NotAsked, |path| read_kubeconfig(path, None)), bootstrap)
}

fn judge(kubeconfig: Needed<Kubeconfig>, bootstrap: Option<PathBuf>) -> Credential {
    let found = match kubeconfig {
        Needed::Present(found) => found,
        Needed::Bad { at, reason } => return Credential::Unusable(format!("{at} {reason}")),
        Needed::NotAsked | Needed::Missing { .. } => {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_kubeconfig_without_its_certificate_counts_as_bootstrapping_if_there_is_something_to_bootstrap_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubelet.conf");
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
