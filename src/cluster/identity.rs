//! As whom we speak to the API: our own kubeconfig, else the kubelet's through the helper, else as nobody.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};

use super::connection::{Connection, ConnectionError};
use crate::{
    host::{
        files::Root,
        helper::{HelperClient, HelperError},
    },
    kubeconfig::{self, Access, Fault, MAX_KUBECONFIG_BYTES},
};

/// Where our own kubeconfig lies unless the configuration says otherwise.
pub const DEFAULT_KUBECONFIG: &str = "/etc/nodevigil/kubeconfig";
/// A kubeconfig is read from a disk that may hang.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Where distributions keep the authorities that everybody believes, for a kubeconfig that names none.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The largest of these has some 250 KiB.
const MAX_AUTHORITIES_BYTES: usize = 1024 * 1024;

/// As whom we speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// By a kubeconfig of our own: that file.
    Own(PathBuf),
    /// By the kubelet's credential, which the helper read there. Conditions only: `NodeRestriction` forbids it taints.
    Kubelet(PathBuf),
    /// As nobody: nothing is published.
    None(String),
}

impl Identity {
    /// The word in the status file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Own(_) => "own",
            Self::Kubelet(_) => "kubelet",
            Self::None(_) => "none",
        }
    }

    /// The same for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Own(path) => format!("own kubeconfig {}", path.display()),
            Self::Kubelet(path) => format!(
                "the kubelet's credential from {} through the helper (conditions only: it may not set taints)",
                path.display()
            ),
            Self::None(why) => format!("standalone, nothing is published: {why}"),
        }
    }
}

/// Why an identity could not be had.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A kubeconfig that cannot be read or does not make sense: the sentence names it.
    #[error("{0}")]
    Kubeconfig(String),
    /// The disk did not answer.
    #[error("kubeconfig {}: could not be read within {} s", path.display(), READ_TIMEOUT.as_secs())]
    Slow {
        /// The file.
        path: PathBuf,
    },
    /// The helper has none for us.
    #[error("the kubelet's credential could not be had: {0}")]
    Helper(#[from] HelperError),
    /// It was had and cannot be used.
    #[error("kubeconfig {}: {source}", path.display())]
    Connection {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ConnectionError,
    },
}

/// Where to look.
#[derive(Debug, Clone)]
pub struct Sources {
    /// A kubeconfig that was asked for by name: then no other is tried.
    pub explicit: Option<PathBuf>,
    /// The one that is taken if it exists.
    pub default: PathBuf,
    /// The machine's files.
    pub root: Root,
    /// The helper.
    pub helper: HelperClient,
    /// The kubelet's pid, if it lives.
    pub pid: Option<i32>,
}

/// Takes the first identity that is there and makes a connection of it; nothing is sent yet.
///
/// # Errors
/// When a source is there and cannot be used, or the helper refuses.
pub async fn find(sources: Sources) -> Result<(Identity, Connection), IdentityError> {
    let (path, must_exist) = match sources.explicit {
        Some(path) => (path, true),
        None => (sources.default, false),
    };
    let root = sources.root.clone();
    if let Some(found) = on_worker(&path.clone(), move || own(&root, path, must_exist)).await? {
        return Ok(found);
    }
    let credential = sources.helper.credential(sources.pid).await?;
    let (root, path) = (sources.root, credential.source);
    on_worker(&path.clone(), move || {
        let connection = connection(&root, &path, credential.access)?;
        Ok((Identity::Kubelet(path), connection))
    })
    .await
}

/// On the blocking worker, because the disk may hang.
async fn on_worker<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, IdentityError> + Send + 'static,
) -> Result<T, IdentityError> {
    match tokio::time::timeout(READ_TIMEOUT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(e)) => Err(IdentityError::Kubeconfig(e.to_string())),
        Err(_) => Err(IdentityError::Slow {
            path: path.to_owned(),
        }),
    }
}

/// Our own kubeconfig; `None` if it may be missing and is.
fn own(
    root: &Root,
    path: PathBuf,
    must_exist: bool,
) -> Result<Option<(Identity, Connection)>, IdentityError> {
    if !must_exist && root.identity(&path).is_none() {
        return Ok(None);
    }
    let text = root
        .read_text(&path, MAX_KUBECONFIG_BYTES)
        .map_err(|e| IdentityError::Kubeconfig(format!("kubeconfig: {e}")))?;
    let access = kubeconfig::read(root, &path, &text)?;
    if access.exec.is_some() {
        // It would run with our privileges, in our sandbox, in the moment of need.
        return Err(IdentityError::Kubeconfig(format!(
            "kubeconfig {}: the agent runs no exec plugins; give it a client certificate or a token file",
            path.display()
        )));
    }
    let connection = connection(root, &path, access)?;
    Ok(Some((Identity::Own(path), connection)))
}

fn connection(root: &Root, path: &Path, mut access: Access) -> Result<Connection, IdentityError> {
    if access.authority.is_none() && access.server.starts_with("https:") {
        access.authority = SYSTEM_AUTHORITIES
            .iter()
            .find_map(|bundle| root.read(bundle, MAX_AUTHORITIES_BYTES).ok())
            .map(|pem| BASE64_STANDARD.encode(pem));
    }
    Connection::new(access).map_err(|source| IdentityError::Connection {
        path: path.to_owned(),
        source,
    })
}

impl From<Fault> for IdentityError {
    fn from(fault: Fault) -> Self {
        Self::Kubeconfig(fault.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/etc/nodevigil/kubeconfig";

    fn refusal(user: &str, cluster: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Config","current-context":"c",
            "contexts":[{{"name":"c","context":{{"cluster":"c","user":"u"}}}}],
            "clusters":[{{"name":"c","cluster":{{"server":"https://10.0.0.1:6443"{cluster}}}}}],
            "users":[{{"name":"u","user":{{{user}}}}}]}}"#
        );
        root.create_dir_all("/etc/nodevigil").unwrap();
        root.write_atomically(PATH, text.as_bytes()).unwrap();
        match own(&root, PATH.into(), true) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        let token = r#""token":"t""#;
        assert_eq!(refusal(token, ""), "");
        let exec = r#""exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"aws","interactiveMode":"Never"}"#;
        for (user, cluster, word) in [
            (exec, "", "exec plugins"),
            (token, r#","proxy-url":"http://p:3128""#, "http://p:3128"),
            (token, r#","insecure-skip-tls-verify":true"#, "insecure"),
            (token, r#","tls-server-name":"no name""#, "no name"),
            (
                token,
                r#","certificate-authority-data":"QUJD""#,
                "no certificate",
            ),
            (
                r#""token":"s3cret","client-key-data":"QUJD""#,
                "",
                "no certificate",
            ),
            (
                r#""client-certificate-data":"!","client-key-data":"QUJD""#,
                "",
                "not base64",
            ),
        ] {
            let said = refusal(user, cluster);
            assert!(
                said.contains(word) && said.contains(PATH),
                "{user}{cluster}: {said}"
            );
            assert!(!said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn one_that_may_be_missing_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(own(&root, PATH.into(), false).unwrap().is_none());
        assert!(own(&root, PATH.into(), true).is_err());
    }
}
