//! The credential for the API server: the first of four identities that exists. If it is unusable, that is an error, and the next one
//! is not tried, because it may have other permissions.
//!
//! Everything here blocks on files and belongs into `spawn_blocking`.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Context, Result, anyhow, bail};
use kube::Config;
use kube::config::{AuthInfo, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret;

use crate::files::{self, FileVersion};
use crate::host::subject::Subject;

/// The kubeconfig of nodevigil's own identity, if the settings name no other.
pub const OWN_KUBECONFIG: &str = "/etc/nodevigil/kubeconfig";
/// <https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// A certificate with its chain, or a token, is far smaller.
const MAX_CREDENTIAL_BYTES: u64 = 1 << 20;

/// Where a credential comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    Kubeconfig(PathBuf),
    /// The service account of the pod in which nodevigil runs.
    InCluster,
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig(path) => write!(f, "kubeconfig {}", path.display()),
            Self::InCluster => f.write_str("the pod's service account"),
        }
    }
}

/// A credential that has been read, and the state of the files that it was read from.
#[derive(Debug)]
pub struct Identity {
    pub source: CredentialSource,
    pub config: Config,
    pub files: Vec<FileVersion>,
}

/// The identity to use: the settings' kubeconfig, [`OWN_KUBECONFIG`], the pod's service account, the kubelet's kubeconfig. None if there
/// is none of them.
pub fn choose(settings: Option<&Path>, own: &Path, kubelet: Option<&Path>) -> Option<CredentialSource> {
    let in_cluster =
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && exists(Path::new(SERVICE_ACCOUNT_TOKEN));
    if let Some(path) = settings {
        // It counts even if it is missing: it was asked for.
        Some(CredentialSource::Kubeconfig(path.to_owned()))
    } else if exists(own) {
        Some(CredentialSource::Kubeconfig(own.to_owned()))
    } else if in_cluster() {
        Some(CredentialSource::InCluster)
    } else {
        kubelet.filter(|path| exists(path)).map(|path| CredentialSource::Kubeconfig(path.to_owned()))
    }
}

/// Reads the credential.
pub fn read(source: CredentialSource) -> Result<Identity> {
    let read = match &source {
        CredentialSource::Kubeconfig(path) => read_kubeconfig(path),
        // kube itself reads the token again each minute; one that was refused is tried again at once when it has changed.
        CredentialSource::InCluster => {
            Config::incluster().map(|config| (config, vec![SERVICE_ACCOUNT_TOKEN.into()])).map_err(anyhow::Error::new)
        }
    };
    let (mut config, paths) = read.with_context(|| source.to_string())?;
    config.proxy_url = None; // kube may have taken one from the environment
    let files = paths.iter().map(|path| FileVersion::of(path)).collect();
    Ok(Identity { source, config, files })
}

/// Whose the credential is, and when it ends. The API server also takes a client's certificate before its token.
pub fn subject(user: &AuthInfo) -> Subject {
    let file = |path: &Option<String>| files::read(Path::new(path.as_ref()?), MAX_CREDENTIAL_BYTES).ok();
    let certificate = match &user.client_certificate_data {
        Some(data) => Subject::of_certificate_data(data),
        None => file(&user.client_certificate).and_then(|pem| Subject::of_certificate(pem.as_bytes())),
    };
    let token = || user.token.as_ref().map(|token| token.expose_secret().to_owned());
    let of_token = || Subject::of_token(&token().or_else(|| file(&user.token_file))?);
    certificate.or_else(of_token).unwrap_or_default()
}

fn exists(path: &Path) -> bool {
    // A file that cannot be examined exists, and cannot be used.
    !matches!(fs::symlink_metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}

fn read_kubeconfig(path: &Path) -> Result<(Config, Vec<PathBuf>)> {
    files::check_owner(Path::new("/"), path, files::ROOT_UID, 0)?;
    let kubeconfig = Kubeconfig::read_from(path).map_err(without_content)?;
    let clusters: Vec<_> = kubeconfig.clusters.iter().filter_map(|named| named.cluster.clone()).collect();
    if clusters.iter().any(|cluster| cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty())) {
        bail!("it has a proxy-url, which nodevigil does not support; remove it");
    }
    let config = Config::try_from(kubeconfig).map_err(without_content)?;
    let user = &config.auth_info;
    if user.auth_provider.is_some() {
        bail!("its user has an auth-provider, which Kubernetes has removed; use a certificate or a token");
    }
    let program = user.exec.as_ref().and_then(|exec| exec.command.as_ref()).filter(|command| command.contains('/'));
    let has_secret = user.client_key_data.is_some() || user.token.is_some() || user.password.is_some();
    let secrets = [user.client_key.as_ref(), user.token_file.as_ref()].into_iter().flatten().map(Path::new);
    for file in secrets.chain(has_secret.then_some(path)).filter(|file| file.exists()) {
        files::check_secret(file)?;
    }
    let authorities = clusters.iter().map(|cluster| cluster.certificate_authority.as_ref());
    let named = [user.client_certificate.as_ref(), user.client_key.as_ref(), user.token_file.as_ref(), program];
    let mut paths = vec![path.to_owned()];
    for file in named.into_iter().chain(authorities).flatten().filter(|file| !file.is_empty()) {
        files::check_owner(Path::new("/"), Path::new(file), files::ROOT_UID, 0)?;
        paths.push(file.into());
    }
    Ok((config, paths))
}

/// The parser's errors quote the text that it cannot parse, which may be a secret.
fn without_content(error: KubeconfigError) -> anyhow::Error {
    match error {
        KubeconfigError::Parse(error) => {
            let line = error.location().map_or(0, |location| location.line());
            anyhow!("line {line} cannot be parsed as a kubeconfig; correct it")
        }
        error => anyhow!(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_first_identity_that_exists_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (own, kubelet) = (dir.path().join("own"), dir.path().join("kubelet.conf"));
        let missing = dir.path().join("missing");
        assert_eq!(choose(None, &own, Some(&kubelet)), None);
        fs::write(&kubelet, "").unwrap();
        assert_eq!(choose(None, &own, Some(&kubelet)), Some(CredentialSource::Kubeconfig(kubelet.clone())));
        symlink("nowhere", &own).unwrap();
        assert_eq!(
            choose(None, &own, Some(&kubelet)),
            Some(CredentialSource::Kubeconfig(own.clone())),
            "broken, and there"
        );
        assert_eq!(
            choose(Some(&missing), &own, Some(&kubelet)),
            Some(CredentialSource::Kubeconfig(missing)),
            "asked for by name"
        );
    }

    #[test]
    fn an_error_in_a_kubeconfig_names_the_line_and_quotes_no_secret() {
        let kubeconfig = "kind: Config\nusers:\n- {name: u, user: {token: [s3cret]}}\n";
        let error = Kubeconfig::from_yaml(kubeconfig).map_err(without_content).unwrap_err().to_string();
        assert!(error.contains("line 3") && !error.contains("s3cret"), "{error}");
    }
}
