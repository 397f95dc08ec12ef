//! As whom we speak to the API: our own kubeconfig, else the kubelet's through the helper, else as nobody.

use std::{path::PathBuf, time::Duration};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::connection::{self, ConnectionError};
use crate::host::{
    files::Root,
    helper::{HelperClient, HelperError},
};
use crate::kubelet::yaml;

/// Where our own kubeconfig lies unless the configuration says otherwise.
pub const DEFAULT_KUBECONFIG: &str = "/etc/nodevigil/kubeconfig";
/// A kubeconfig is read from a disk that may hang.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// A kubeconfig with certificate and key in it has some 10 KiB.
const MAX_KUBECONFIG_BYTES: usize = 1024 * 1024;

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
    /// A kubeconfig that cannot be read or does not make sense.
    #[error("kubeconfig {}: {why}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
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
    #[error("{}: {source}", path.display())]
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

/// Takes the first identity that is there and makes a client of it.
///
/// # Errors
/// When a source is there and cannot be used, or the helper refuses.
pub async fn find(sources: Sources) -> Result<(Identity, kube::Client), IdentityError> {
    let (path, must_exist) = match sources.explicit {
        Some(path) => (path, true),
        None => (sources.default, false),
    };
    if let Some(config) = read_file(sources.root, path.clone(), must_exist).await? {
        return with_client(Identity::Own(path.clone()), path, &config);
    }
    let credential = sources.helper.credential(sources.pid).await?;
    let path = credential.source;
    let kubeconfig = yaml::read(&credential.kubeconfig).map_err(|e| bad(&path, &e))?;
    let config = config(&path, kubeconfig).await?;
    with_client(Identity::Kubelet(path.clone()), path, &config)
}

fn with_client(
    identity: Identity,
    path: PathBuf,
    config: &Config,
) -> Result<(Identity, kube::Client), IdentityError> {
    match connection::client(config) {
        Ok(client) => Ok((identity, client)),
        Err(source) => Err(IdentityError::Connection { path, source }),
    }
}

/// Reads on the blocking worker, because the disk may hang. `None` if the file may be missing and is.
async fn read_file(
    root: Root,
    path: PathBuf,
    must_exist: bool,
) -> Result<Option<Config>, IdentityError> {
    let (for_error, runtime) = (path.clone(), tokio::runtime::Handle::current());
    let reading = tokio::task::spawn_blocking(move || {
        if !must_exist && root.identity(&path).is_none() {
            return Ok(None);
        }
        let text = root
            .read_text(&path, MAX_KUBECONFIG_BYTES)
            .map_err(|e| bad(&path, &e))?;
        let mut kubeconfig = yaml::read(&text).map_err(|e| bad(&path, &e))?;
        settle_paths(&root, &path, &mut kubeconfig);
        runtime.block_on(config(&path, kubeconfig)).map(Some)
    });
    match tokio::time::timeout(READ_TIMEOUT, reading).await {
        Ok(Ok(result)) => result,
        Ok(Err(e)) => Err(bad(&for_error, &e)),
        Err(_) => Err(IdentityError::Slow { path: for_error }),
    }
}

async fn config(
    path: &std::path::Path,
    mut kubeconfig: Kubeconfig,
) -> Result<Config, IdentityError> {
    refuse_programs(path, &kubeconfig)?;
    ignore_proxies(path, &mut kubeconfig)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| bad(path, &e))
}

/// Files that a kubeconfig names without a leading slash are meant from its own folder.
fn settle_paths(root: &Root, path: &std::path::Path, kubeconfig: &mut Kubeconfig) {
    let folder = path.parent().unwrap_or(path);
    let settle = |file: &mut Option<String>| {
        if let Some(file) = file {
            *file = root
                .join(folder.join(&*file))
                .to_string_lossy()
                .into_owned();
        }
    };
    for named in &mut kubeconfig.clusters {
        if let Some(cluster) = &mut named.cluster {
            settle(&mut cluster.certificate_authority);
        }
    }
    for named in &mut kubeconfig.auth_infos {
        if let Some(user) = &mut named.auth_info {
            settle(&mut user.client_certificate);
            settle(&mut user.client_key);
            settle(&mut user.token_file);
        }
    }
}

/// The agent starts no programs: a plugin would run with its privileges, in its sandbox, in the moment of need.
fn refuse_programs(path: &std::path::Path, kubeconfig: &Kubeconfig) -> Result<(), IdentityError> {
    let runs_one = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref())
        .any(|user| user.exec.is_some() || user.auth_provider.is_some());
    if runs_one {
        return Err(bad(
            path,
            &"exec plugins are not run yet: give nodevigil a client certificate or a token file",
        ));
    }
    Ok(())
}

/// A proxy that the kubeconfig asks for is refused, because none is used. One in the environment is meant for other
/// programs; kube would read it nevertheless, and stumble over one that is no URL, unless the kubeconfig names one:
/// so it names one, and `connection` takes no notice.
fn ignore_proxies(
    path: &std::path::Path,
    kubeconfig: &mut Kubeconfig,
) -> Result<(), IdentityError> {
    for cluster in kubeconfig
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
    {
        if let Some(proxy) = &cluster.proxy_url {
            let why = format!(
                "proxy-url {proxy}: proxies are not used; name the API server's own address"
            );
            return Err(bad(path, &why));
        }
        cluster.proxy_url = Some("http://unused.invalid".to_owned());
    }
    Ok(())
}

fn bad(path: &std::path::Path, why: &dyn std::fmt::Display) -> IdentityError {
    IdentityError::Kubeconfig {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(user: &str, cluster: &str) -> String {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Config","current-context":"c",
            "contexts":[{{"name":"c","context":{{"cluster":"c","user":"u"}}}}],
            "clusters":[{{"name":"c","cluster":{{"server":"https://10.0.0.1:6443"{cluster}}}}}],
            "users":[{{"name":"u","user":{{{user}}}}}]}}"#
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let kubeconfig = yaml::read(&text).unwrap();
        match runtime.block_on(config("/etc/nodevigil/kubeconfig".as_ref(), kubeconfig)) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn what_would_run_a_program_or_take_a_detour_is_refused_by_name() {
        assert_eq!(refusal(r#""token":"t""#, ""), "");
        let exec = r#""exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"aws","interactiveMode":"Never"}"#;
        let said = refusal(exec, "");
        assert!(
            said.contains("/etc/nodevigil/kubeconfig") && said.contains("exec plugins"),
            "{said}"
        );
        let said = refusal(r#""token":"t""#, r#","proxy-url":"http://p:3128""#);
        assert!(
            said.contains("http://p:3128") && said.contains("not used"),
            "{said}"
        );
    }
}
