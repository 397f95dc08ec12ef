//! A kubeconfig, read as far as a node's goes: its current context alone, with every file that it names put in.
//!
//! What else one may hold (preferences, extensions, impersonation) is left out, because no node's has it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use crate::{
    host::{files::Root, trusted},
    kubelet::yaml,
};

/// The longest kubeconfig that is read.
pub const MAX_KUBECONFIG_BYTES: usize = 128 * 1024;

/// The longest certificate, key, token or authority file. A kubelet's have a few KiB, a bundle of all public
/// authorities has 220.
const MAX_FILE_BYTES: usize = 512 * 1024;

/// Where to speak and how to prove who speaks. Holds secrets: its `Debug` shows none.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// The API server's URL.
    pub server: String,
    /// Whose certificate it has, where that is not the URL's host.
    pub tls_server_name: Option<String>,
    /// Whether its certificate is not looked at.
    pub insecure: bool,
    /// Through which proxy; refused by whoever uses none.
    pub proxy_url: Option<String>,
    /// PEM in base64: who signs the server's certificate.
    pub authority: Option<String>,
    /// PEM in base64: our certificate.
    pub certificate: Option<String>,
    /// PEM in base64: its key.
    pub key: Option<String>,
    /// A bearer token.
    pub token: Option<String>,
    /// Name and password, which no supported API server takes any more, but a gateway before one may.
    pub basic: Option<(String, String)>,
    /// The program that is to be asked for certificate or token.
    pub exec: Option<Exec>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Whether there is anything to prove oneself with.
    pub fn has_credential(&self) -> bool {
        self.certificate.is_some() || self.token.is_some() || self.basic.is_some()
    }
}

/// An exec plugin: a program that prints an `ExecCredential`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Exec {
    /// `client.authentication.k8s.io/v1` or `…/v1beta1`.
    pub api_version: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Its environment, beside what is there.
    pub env: Option<Vec<ExecVariable>>,
    /// Whether it wants to know the cluster.
    pub provide_cluster_info: bool,
}

/// A variable of an exec plugin's environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What is wrong with a kubeconfig: the sentence names the file, and quotes nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The kind, for the program.
    pub kind: FaultKind,
    /// The sentence.
    pub message: String,
}

/// The kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A file that it names could not be read.
    Unreadable,
    /// It is not what it should be.
    Bad,
    /// Its user has nothing to prove itself with.
    NoCredential,
    /// It asks for a program in a way that is not known (`auth-provider`).
    Program,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<Exec>,
    auth_provider: Option<serde::de::IgnoredAny>,
}

/// Whether `text` is a kubeconfig at all: names of files collide, `/etc/kubernetes/kubelet.conf` is a kubeconfig with
/// kubeadm and a `KubeletConfiguration` with `OpenShift`.
pub fn is_kubeconfig(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        kind: Option<String>,
    }
    // A broken file counts as one, so that its error is shown rather than passed over.
    yaml::read::<Kind>(text)
        .ok()
        .and_then(|read| read.kind)
        .is_none_or(|kind| kind.is_empty() || kind == "Config")
}

/// Reads a file that a kubeconfig names, up to so many bytes; else the sentence that says why it cannot be read.
type ReadFile<'a> = dyn Fn(&Path, usize) -> Result<Vec<u8>, String> + 'a;

/// What the current context of the kubeconfig `text` says, which lies at `path`: certificate, key, authority and token
/// files are read (relative paths count from the kubeconfig's folder) and put in.
///
/// # Errors
/// The fault, naming kubeconfig and field.
pub fn read(root: &Root, path: &Path, text: &str) -> Result<Access, Fault> {
    let read = |file: &Path, max| root.read(file, max).map_err(|error| error.to_string());
    read_with(&read, path, text)
}

/// The same for whoever reads as root: each file must be one that only root can have written.
///
/// # Errors
/// As of [`read`]; of a file that others can write, which folder or file that is.
pub fn read_roots(root: &Root, path: &Path, text: &str) -> Result<Access, Fault> {
    let read =
        |file: &Path, max| trusted::read(root, file, max).map_err(|error| format!("read {error}"));
    read_with(&read, path, text)
}

fn read_with(read: &ReadFile<'_>, path: &Path, text: &str) -> Result<Access, Fault> {
    let files = Files { read, path };
    let kubeconfig: Kubeconfig = yaml::read(text)
        .map_err(|place| files.bad(&format!("not a kubeconfig at {place}; correct it there")))?;
    let name = kubeconfig.current_context;
    let context = pick(kubeconfig.contexts, |context| context.name == name)
        .ok_or_else(|| files.bad("its current-context is none of its contexts"))?;
    let cluster = pick(kubeconfig.clusters, |c| c.name == context.context.cluster)
        .ok_or_else(|| files.bad("its current context names a cluster that is not there"))?;
    let user = pick(kubeconfig.users, |u| u.name == context.context.user)
        .ok_or_else(|| files.bad("its current context names a user that is not there"))?;
    let mut access = Access::default();
    fill_cluster(&files, cluster.cluster, &mut access)?;
    fill_user(&files, user.user, &mut access)?;
    Ok(access)
}

fn pick<T>(items: Option<Vec<T>>, wanted: impl Fn(&T) -> bool) -> Option<T> {
    items.into_iter().flatten().find(wanted)
}

fn fill_cluster(files: &Files<'_>, cluster: Cluster, access: &mut Access) -> Result<(), Fault> {
    access.server = said(cluster.server).ok_or_else(|| files.bad("its cluster has no server"))?;
    access.tls_server_name = said(cluster.tls_server_name);
    access.insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
    access.proxy_url = said(cluster.proxy_url);
    access.authority = files.data(
        "certificate-authority",
        cluster.certificate_authority,
        cluster.certificate_authority_data,
    )?;
    Ok(())
}

fn fill_user(files: &Files<'_>, user: User, access: &mut Access) -> Result<(), Fault> {
    if user.auth_provider.is_some() {
        return Err(files.fault(
            FaultKind::Program,
            "it gets its credential from an auth-provider, which Kubernetes has given up; use an exec plugin, a \
             certificate or a token",
        ));
    }
    // A kubelet whose certificate rotates names one file twice, with certificate and key in it: it is put in twice,
    // and each reader takes its own part.
    access.certificate = files.data(
        "client-certificate",
        user.client_certificate,
        user.client_certificate_data,
    )?;
    access.key = files.data("client-key", user.client_key, user.client_key_data)?;
    // As client-go has it: the file beats the field.
    access.token = match said(user.token_file) {
        Some(file) => Some(String::from_utf8_lossy(&files.read("tokenFile", &file)?).into_owned()),
        None => user.token,
    }
    .and_then(|token| said(Some(token.trim().to_owned())));
    access.basic = said(user.username).map(|name| (name, user.password.unwrap_or_default()));
    match (&access.certificate, &access.key) {
        (Some(_), None) => return Err(files.none("its user has a certificate and no key")),
        (None, Some(_)) => return Err(files.none("its user has a key and no certificate")),
        _ => {}
    }
    // As client-go has it: a plugin is asked for what is not there.
    if !access.has_credential() {
        access.exec = user.exec;
        if access.exec.is_none() {
            return Err(files.none("its user has neither certificate nor token"));
        }
    }
    Ok(())
}

/// A field that is there; Go takes an empty text for none.
fn said(field: Option<String>) -> Option<String> {
    field.filter(|text| !text.is_empty())
}

/// The files that the kubeconfig at `path` names.
struct Files<'a> {
    read: &'a ReadFile<'a>,
    path: &'a Path,
}

impl Files<'_> {
    /// The data, else what is in the file (data wins, as in client-go).
    fn data(
        &self,
        field: &str,
        file: Option<String>,
        data: Option<String>,
    ) -> Result<Option<String>, Fault> {
        if let Some(data) = said(data) {
            return Ok(Some(data));
        }
        let file = said(file);
        file.map(|file| Ok(BASE64_STANDARD.encode(self.read(field, &file)?)))
            .transpose()
    }

    fn read(&self, field: &str, file: &str) -> Result<Vec<u8>, Fault> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let file: PathBuf = folder.join(file);
        (self.read)(&file, MAX_FILE_BYTES).map_err(|error| Fault {
            kind: FaultKind::Unreadable,
            message: format!(
                "{error}; it is the {field} of kubeconfig {}",
                self.path.display()
            ),
        })
    }

    fn bad(&self, what: &str) -> Fault {
        self.fault(FaultKind::Bad, what)
    }

    fn none(&self, what: &str) -> Fault {
        self.fault(FaultKind::NoCredential, what)
    }

    fn fault(&self, kind: FaultKind, what: &str) -> Fault {
        let message = format!("kubeconfig {}: {what}", self.path.display());
        Fault { kind, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/etc/kubernetes/kubelet.conf";
    const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

    fn write(root: &Root, path: &str, text: &str) {
        root.create_dir_all(Path::new(path).parent().unwrap())
            .unwrap();
        root.write_atomically(path, text.as_bytes()).unwrap();
    }

    /// A kubeconfig with this user, and a second context that must not come along.
    fn text(user: &str) -> String {
        format!(
            "apiVersion: v1
kind: Config
current-context: default-context
preferences: {{}}
contexts:
- {{name: admin, context: {{cluster: other, user: admin}}}}
- {{name: default-context, context: {{cluster: default-cluster, namespace: default, user: default-auth}}}}
clusters:
- {{name: other, cluster: {{server: 'https://other'}}}}
- name: default-cluster
  cluster: {{certificate-authority: pki/ca.crt, server: 'https://10.0.0.1:6443', tls-server-name: api}}
users:
- {{name: admin, user: {{token: s3cret-admin}}}}
- name: default-auth
  user: {user}
"
        )
    }

    fn read_with(user: &str) -> Result<Access, Fault> {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        write(&root, "/etc/kubernetes/pki/ca.crt", "CA");
        write(&root, CURRENT, "CERT KEY");
        write(&root, "/etc/kubernetes/token", "t0ken\n");
        read(&root, Path::new(PATH), &text(user))
    }

    #[test]
    fn the_rotated_certificate_is_put_in_twice() {
        let access = read_with(&format!(
            "{{client-certificate: {CURRENT}, client-key: {CURRENT}}}"
        ))
        .unwrap();
        let both = Some(BASE64_STANDARD.encode("CERT KEY"));
        let wanted = Access {
            server: "https://10.0.0.1:6443".to_owned(),
            tls_server_name: Some("api".to_owned()),
            authority: Some("Q0E=".to_owned()),
            certificate: both.clone(),
            key: both,
            ..Access::default()
        };
        assert!(access == wanted);
        assert!(!format!("{access:?}").contains("Q0"));
    }

    #[test]
    fn data_beats_a_file_and_a_token_file_beats_a_token() {
        let access = read_with(
            "{client-certificate: /none, client-certificate-data: QQ==, client-key-data: Qg==}",
        );
        assert_eq!(access.unwrap().key.as_deref(), Some("Qg=="));
        let access = read_with("{token: old, tokenFile: token, client-certificate: ''}").unwrap();
        assert_eq!(access.token.as_deref(), Some("t0ken"));
    }

    #[test]
    fn a_plugin_is_asked_for_what_is_not_there() {
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: [eks], \
                    env: [{name: A, value: b}], provideClusterInfo: true, interactiveMode: Never}";
        let exec_of = |user: &str| read_with(user).unwrap().exec;
        assert_eq!(exec_of(&format!("{{token: t, {exec}}}")), None);
        let read = exec_of(&format!("{{{exec}}}")).unwrap();
        assert_eq!(
            (read.command.as_str(), read.provide_cluster_info),
            ("aws", true)
        );
        assert_eq!(read.env.unwrap()[0].value, "b");
    }

    #[test]
    fn every_fault_names_the_file_and_quotes_nothing() {
        for (user, kind) in [
            ("{auth-provider: {name: gcp}}", FaultKind::Program),
            ("{}", FaultKind::NoCredential),
            ("{token: ''}", FaultKind::NoCredential),
            ("{client-certificate-data: s3cret}", FaultKind::NoCredential),
            ("{client-key-data: s3cret}", FaultKind::NoCredential),
            ("{tokenFile: missing}", FaultKind::Unreadable),
            ("{client-certificate: /missing}", FaultKind::Unreadable),
            ("{token: [s3cret]}", FaultKind::Bad),
            ("[s3cret", FaultKind::Bad),
        ] {
            let fault = read_with(user).unwrap_err();
            assert_eq!(fault.kind, kind, "{user}: {fault}");
            assert!(fault.message.contains(PATH), "{user}: {fault}");
            assert!(!fault.message.contains("s3cret"), "{user}: {fault}");
        }
        let root = Root::new("/nonexistent");
        for text in [
            "",
            "{}",
            "contexts: null\n",
            "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n",
        ] {
            let fault = read(&root, Path::new(PATH), text).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Bad, "{text:?}");
        }
    }

    #[test]
    fn the_kind_tells_a_kubeconfig_from_its_namesakes() {
        assert!(is_kubeconfig(&text("{}")));
        assert!(is_kubeconfig("kind: ["));
        assert!(!is_kubeconfig(
            "kind: KubeletConfiguration\nhealthzPort: 1\n"
        ));
    }
}
