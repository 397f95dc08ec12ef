//! As whom we speak to the API: our own kubeconfig, else the kubelet's through the helper, else as nobody.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;

use super::{
    connection::{Connection, ConnectionError},
    inherited, tls,
};
use crate::{
    clock::CoarseTimer,
    helper::OWN_KUBECONFIG,
    host::{
        files::Root,
        helper::{Credential, HelperClient, HelperError},
    },
    kubeconfig::{self, Access, Fault, MAX_KUBECONFIG_BYTES},
};

/// Where our own kubeconfig lies unless the configuration says otherwise.
pub const DEFAULT_KUBECONFIG: &str = OWN_KUBECONFIG;
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

    /// The kubeconfig.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Own(path) | Self::Kubelet(path) => Some(path),
            Self::None(_) => None,
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
    /// There is none of our own, and the kubelet's is not wanted.
    #[error(
        "there is no kubeconfig of our own at {}, and [kubernetes] kubelet_identity = false rules out the kubelet's; put one \
         there, or allow it", path.display()
    )]
    NotLent {
        /// Where one was looked for.
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
    /// Whether the kubelet's is taken where there is none of our own: `[kubernetes] kubelet_identity`.
    pub kubelets: bool,
    /// The helper.
    pub helper: HelperClient,
    /// Whether it is noted which credential this machine uses ([`inherited`]): the agent does.
    pub keeps_note: bool,
    /// What the pings of a connection go by; else tokio's.
    pub timer: Option<CoarseTimer>,
}

/// What is spoken with already, and the helper's mark of it.
pub type Known = (Connection, Option<String>);

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// As whom we speak.
    pub identity: Identity,
    /// A connection; `None` if the credential is the one that is known.
    pub connection: Option<Connection>,
    /// The helper's mark of it.
    pub mark: Option<String>,
    /// When it should be looked at again.
    pub terms: Terms,
}

/// How long a credential is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terms {
    /// It lies in files that may change at any time: they are looked at again after that long.
    Files(Duration, Option<Validity>),
    /// A program gave it, and is asked again before that time, if it said one.
    Program(Option<Timestamp>),
}

/// From when to when a certificate is good, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: i64,
    /// The last.
    pub until: i64,
}

/// Each look takes three or four small files and a thread for a millisecond.
const LOOK_AT_OWN: Duration = Duration::from_mins(1);
/// Each look wakes the helper, which reads the files.
const LOOK_AT_KUBELETS: Duration = Duration::from_mins(5);

/// Takes the first identity that is there and makes a connection of it; nothing is sent yet.
///
/// # Errors
/// When a source is there and cannot be used, or the helper refuses.
pub async fn find(sources: Sources) -> Result<(Identity, Connection), IdentityError> {
    let found = look(sources, None).await?;
    let connection = found.connection.expect("nothing was known");
    Ok((found.identity, connection))
}

/// The same, and no connection if the credential is the known one.
///
/// # Errors
/// As [`find`].
pub async fn look(sources: Sources, known: Option<Known>) -> Result<Found, IdentityError> {
    let (path, must_exist) = match sources.explicit {
        Some(path) => (path, true),
        None => (sources.default, false),
    };
    let (root, own_path) = (sources.root.clone(), path.clone());
    let read = move || own(&root, &own_path, must_exist, sources.keeps_note);
    let (identity, credential) = match on_worker(&path, read).await? {
        Some(access) if access.exec.is_none() => {
            let found = (access, None, Terms::Files(LOOK_AT_OWN, None));
            (Identity::Own(path), found)
        }
        Some(_) if path == Path::new(OWN_KUBECONFIG) => {
            let given = sources.helper.own_credential().await?;
            (Identity::Own(path), from_helper(given, None))
        }
        // It would run with our privileges, in our sandbox, in the moment of need.
        Some(_) => {
            return Err(IdentityError::Kubeconfig(format!(
                "kubeconfig {}: an exec plugin is run for {OWN_KUBECONFIG} alone, which is root's: put it there, or \
                 give it a client certificate or a token file",
                path.display()
            )));
        }
        // The helper is not even asked: what it hands over is then in the agent's memory.
        None if !sources.kubelets => return Err(IdentityError::NotLent { path }),
        None => {
            let (connection, mark) = known.clone().unzip();
            let mark = mark.flatten();
            let given = sources.helper.credential(mark).await?;
            let path = given.source.clone();
            (Identity::Kubelet(path), from_helper(given, connection))
        }
    };
    let known = known.map(|(connection, _)| connection);
    connect(sources.root, identity, credential, known, sources.timer).await
}

type Given = (Access, Option<String>, Terms);

/// What the helper gave; what it left out is what the connection was made of.
fn from_helper(given: Credential, known: Option<Connection>) -> Given {
    let access = given
        .access
        .or_else(|| known.map(|connection| connection.access().clone()));
    let terms = match given.plugin {
        Some(plugin) => Terms::Program(plugin.expires_at),
        None => Terms::Files(LOOK_AT_KUBELETS, None),
    };
    (access.unwrap_or_default(), Some(given.mark), terms)
}

async fn connect(
    root: Root,
    identity: Identity,
    (access, mark, terms): Given,
    known: Option<Connection>,
    timer: Option<CoarseTimer>,
) -> Result<Found, IdentityError> {
    let path = identity.path().unwrap_or(Path::new("/")).to_owned();
    let shown = path.clone();
    let made = on_worker(&shown, move || {
        let access = with_authority(&root, access);
        let validity = tls::validity(&access).map(|(from, until)| Validity { from, until });
        if known
            .as_ref()
            .is_some_and(|known| *known.access() == access)
        {
            return Ok((None, validity));
        }
        let made = match known {
            Some(known) => known.renewed(access),
            None => Connection::new(access, timer),
        };
        let connection = made.map_err(|source| IdentityError::Connection { path, source })?;
        Ok((Some(connection), validity))
    });
    let (connection, validity) = made.await?;
    Ok(Found {
        identity,
        connection,
        mark,
        terms: match terms {
            Terms::Files(after, _) => Terms::Files(after, validity),
            program @ Terms::Program(_) => program,
        },
    })
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

/// Our own kubeconfig; `None` if it may be missing and is, or is another machine's.
fn own(
    root: &Root,
    path: &Path,
    must_exist: bool,
    keeps_note: bool,
) -> Result<Option<Access>, IdentityError> {
    if !must_exist && root.identity(path).is_none() {
        return Ok(None);
    }
    let text = root
        .read_text(path, MAX_KUBECONFIG_BYTES)
        .map_err(|e| IdentityError::Kubeconfig(format!("kubeconfig: {e}")))?;
    let access = kubeconfig::read(root, path, &text)?;
    let is_ours = if keeps_note {
        inherited::claim(root, &access)
    } else {
        !inherited::is_another_machines(root, &access)
    };
    if is_ours {
        return Ok(Some(access));
    }
    if must_exist {
        let (path, why) = (path.display(), inherited::WHY);
        return Err(IdentityError::Kubeconfig(format!(
            "kubeconfig {path}: {why}"
        )));
    }
    inherited::say(path);
    Ok(None)
}

/// Whether the kubeconfig there is left alone because another machine has used it ([`inherited`]).
pub fn is_inherited(root: &Root, path: &Path) -> bool {
    let text = root.read_text(path, MAX_KUBECONFIG_BYTES).ok();
    let access = text.and_then(|text| kubeconfig::read(root, path, &text).ok());
    access.is_some_and(|access| inherited::is_another_machines(root, &access))
}

/// One that names no authority believes those that everybody believes.
fn with_authority(root: &Root, mut access: Access) -> Access {
    if access.authority.is_none() && access.server.starts_with("https:") {
        access.authority = SYSTEM_AUTHORITIES
            .iter()
            .find_map(|bundle| root.read(bundle, MAX_AUTHORITIES_BYTES).ok())
            .map(|pem| BASE64_STANDARD.encode(pem));
    }
    access
}

impl From<Fault> for IdentityError {
    fn from(fault: Fault) -> Self {
        Self::Kubeconfig(fault.message)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const PATH: &str = OWN_KUBECONFIG;

    fn host(text: &str) -> (TempDir, Sources) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        root.create_dir_all("/etc/nodevigil").unwrap();
        root.write_atomically(PATH, text.as_bytes()).unwrap();
        let sources = Sources {
            explicit: Some(PATH.into()),
            default: PATH.into(),
            root,
            kubelets: true,
            helper: HelperClient::new(folder.path().join("none")),
            keeps_note: false,
            timer: None,
        };
        (folder, sources)
    }

    fn kubeconfig(user: &str, cluster: &str) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"Config","current-context":"c",
            "contexts":[{{"name":"c","context":{{"cluster":"c","user":"u"}}}}],
            "clusters":[{{"name":"c","cluster":{{"server":"https://10.0.0.1:6443"{cluster}}}}}],
            "users":[{{"name":"u","user":{{{user}}}}}]}}"#
        )
    }

    #[tokio::test]
    async fn what_is_not_done_is_refused_by_name() {
        let token = r#""token":"t""#;
        let exec = r#""exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"aws"}"#;
        for (user, cluster, word) in [
            (exec, "", "nodevigil-helper.socket"),
            (token, r#","proxy-url":"http://p:3128""#, "http://p:3128"),
            (token, r#","insecure-skip-tls-verify":true"#, "insecure"),
            (token, r#","tls-server-name":"no name""#, "no name"),
            (
                token,
                r#","certificate-authority-data":"QUJD""#,
                "no certificate",
            ),
            (r#""token":"a\u0001b""#, "", "header"),
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
            let (_folder, sources) = host(&kubeconfig(user, cluster));
            let said = find(sources).await.unwrap_err().to_string();
            assert!(said.contains(word), "{user}{cluster}: {said}");
            assert!(said.contains(PATH) || user == exec, "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
        let (_folder, mut sources) = host(&kubeconfig(exec, ""));
        let elsewhere = "/etc/nodevigil/other";
        let text = kubeconfig(exec, "");
        sources
            .root
            .write_atomically(elsewhere, text.as_bytes())
            .unwrap();
        sources.explicit = Some(elsewhere.into());
        let said = find(sources).await.unwrap_err().to_string();
        assert!(
            said.contains(elsewhere) && said.contains("put it there"),
            "{said}"
        );
    }

    #[test]
    fn one_that_may_be_missing_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(own(&root, PATH.as_ref(), false, false).unwrap().is_none());
        assert!(own(&root, PATH.as_ref(), true, false).is_err());
    }

    /// A helper that is asked answers, or it is seen that nobody came.
    #[tokio::test]
    async fn the_kubelets_is_not_asked_for_where_it_is_not_wanted() {
        let (folder, mut sources) = host(&kubeconfig(r#""token":"t""#, ""));
        let socket = folder.path().join("helper.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        sources.explicit = None;
        sources.helper = HelperClient::new(&socket);
        sources.kubelets = false;
        let own = find(sources.clone()).await.unwrap().0;
        assert_eq!(own, Identity::Own(PATH.into()));
        sources.root.remove(PATH).unwrap();
        let error = find(sources.clone()).await.unwrap_err();
        assert!(matches!(&error, IdentityError::NotLent { path } if path == Path::new(PATH)));
        let said = error.to_string();
        assert!(
            said.contains("kubelet_identity = false") && said.contains(PATH),
            "{said}"
        );
        let nobody = std::io::ErrorKind::WouldBlock;
        assert_eq!(listener.accept().unwrap_err().kind(), nobody);
        sources.kubelets = true;
        let asked = tokio::time::timeout(Duration::from_secs(1), find(sources)).await;
        assert!(!matches!(asked, Ok(Err(IdentityError::NotLent { .. }))));
        assert!(listener.accept().is_ok(), "the helper is asked by default");
    }

    #[tokio::test]
    async fn only_what_changed_makes_a_new_connection() {
        let user = r#""tokenFile":"token""#;
        let (_folder, sources) = host(&kubeconfig(user, ""));
        let root = sources.root.clone();
        let token = |text: &str| root.write_atomically("/etc/nodevigil/token", text.as_bytes());
        token("one\n").unwrap();
        let first = look(sources.clone(), None).await.unwrap();
        assert_eq!(first.terms, Terms::Files(LOOK_AT_OWN, None));
        let connection = first.connection.unwrap();
        let known = Some((connection, None));
        let same = look(sources.clone(), known.clone()).await.unwrap();
        assert!(same.connection.is_none());
        token("two").unwrap();
        let second = look(sources, known).await.unwrap().connection.unwrap();
        assert_eq!(second.access().token.as_deref(), Some("two"));
    }

    #[test]
    fn a_certificate_says_how_long_it_is_good() {
        let mut params = rcgen::CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2025, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let access = Access {
            certificate: Some(BASE64_STANDARD.encode(pem)),
            ..Access::default()
        };
        assert_eq!(tls::validity(&access), Some((1_735_689_600, 1_767_225_600)));
        assert_eq!(tls::validity(&Access::default()), None);
    }
}
