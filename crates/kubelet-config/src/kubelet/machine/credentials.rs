//! What the kubelet shows to the API server and to its clients: kubeconfigs and certificates. Of a secret only the
//! presence is kept.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{
    super::{
        effective::{Effective, From, Settings},
        location::Location,
        tree::{Tree, Unreadable},
        yaml,
    },
    Certificate, ClientCredential, FileState, Kubeconfig,
    certificate::{of_data, of_pem},
};

/// The longest kubeconfig or certificate file that is read.
const MAX_BYTES: usize = 256 << 10;

/// Where the kubelet keeps its certificates if `--cert-dir` names no other folder.
const DEFAULT_CERT_DIR: &str = "/var/lib/kubelet/pki";

/// A kubeconfig as client-go reads it, as far as it matters here. No `Debug`: the text that it is read from holds
/// secrets.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Document {
    kind: Option<String>,
    #[serde(default)]
    current_context: Option<String>,
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
    cluster: Option<String>,
    user: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    server: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "of each field of a user only its presence is kept")]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    #[serde(default, deserialize_with = "is_said")]
    token: bool,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    #[serde(default, deserialize_with = "is_said")]
    username: bool,
    #[serde(default, deserialize_with = "is_there")]
    exec: bool,
    #[serde(default, deserialize_with = "is_there")]
    auth_provider: bool,
}

/// Whether a text stands there; the text itself is dropped at once.
fn is_said<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.is_some_and(|text| !text.is_empty()))
}

fn is_there<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(from)?.is_some())
}

/// The kubeconfig at `path` of a kubelet whose configuration is not known; `cert_dir` is its `--cert-dir`. Of a certificate
/// that the kubeconfig has or names and a renewed one the kubelet uses the latter only if it renews certificates: the one
/// that lasts longer counts here.
pub fn of_running(tree: &dyn Tree, path: &str, cert_dir: Option<&str>) -> FileState<Kubeconfig> {
    const FLAG: &str = "--kubeconfig";
    let setting = |name: &str, value: Value| {
        let (from, keys) = (From::Distribution, BTreeMap::new());
        (name.to_owned(), Effective { value, from, keys })
    };
    let folder = cert_dir.map(|folder| setting("--cert-dir", folder.into()));
    let mut settings = Settings([setting(FLAG, path.into())].into_iter().chain(folder).collect());
    let given = kubeconfig(tree, &settings, FLAG);
    let FileState::Present(Kubeconfig {
        credential: ClientCredential::CertificateData | ClientCredential::CertificateFile { .. },
        certificate,
        ..
    }) = &given
    else {
        return given;
    };
    let ends = |read: &Option<Certificate>| read.as_ref().map(|read| read.not_after_secs);
    settings.0.extend([setting("rotateCertificates", true.into())]);
    match kubeconfig(tree, &settings, FLAG) {
        FileState::Present(renewed) if ends(&renewed.certificate) > ends(certificate) => FileState::Present(renewed),
        _ => given,
    }
}

/// The kubeconfig that a flag names.
pub(super) fn kubeconfig(tree: &dyn Tree, settings: &Settings, flag: &str) -> FileState<Kubeconfig> {
    let Some(path) = settings.text(flag) else {
        return FileState::NotAsked;
    };
    let at = Location::file(path);
    let text = match text(tree, Path::new(path)) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return FileState::Missing { at },
        Err(error) => {
            let reason = error.to_string();
            return FileState::Bad { at, reason };
        }
    };
    let document: Document = match yaml::read(&text) {
        Ok(document) => document,
        Err(place) => {
            let at = at.at(place.line, place.column, 0);
            let reason = "is no kubeconfig, or not valid YAML".to_owned();
            return FileState::Bad { at, reason };
        }
    };
    match assemble(tree, settings, &at, document) {
        Ok(read) => FileState::Present(read),
        Err(reason) => FileState::Bad { at, reason },
    }
}

fn assemble(tree: &dyn Tree, settings: &Settings, at: &Location, document: Document) -> Result<Kubeconfig, String> {
    if let Some(kind) = document.kind.filter(|kind| !kind.is_empty() && kind != "Config") {
        let kind: String = kind.chars().take(64).collect();
        return Err(format!("is a {kind}, no kubeconfig"));
    }
    let current = document.current_context.unwrap_or_default();
    let context = document
        .contexts
        .into_iter()
        .flatten()
        .find(|context| context.name == current)
        .ok_or("has no context of the name that current-context gives")?
        .context;
    let server = document
        .clusters
        .into_iter()
        .flatten()
        .find(|cluster| Some(&cluster.name) == context.cluster.as_ref())
        .and_then(|cluster| cluster.cluster.server)
        .filter(|server| !server.is_empty());
    if server.is_none() {
        return Err("has no cluster with a server in its current context".to_owned());
    }
    let user = document
        .users
        .into_iter()
        .flatten()
        .find(|user| Some(&user.name) == context.user.as_ref())
        .map(|user| user.user)
        .unwrap_or_default();
    let mut found = Kubeconfig {
        at: at.clone(),
        server,
        credential: credential(&user),
        certificate: None,
        certificate_problem: None,
        files: Vec::new(),
        missing_files: Vec::new(),
    };
    follow(tree, settings, &user, &mut found);
    Ok(found)
}

fn said(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// What the user shows, in the order in which client-go takes it.
fn credential(user: &User) -> ClientCredential {
    if said(user.client_certificate_data.as_ref()).is_some() {
        ClientCredential::CertificateData
    } else if let Some(path) = said(user.client_certificate.as_ref()) {
        ClientCredential::CertificateFile { path: path.to_owned() }
    } else if user.exec || user.auth_provider {
        ClientCredential::Exec
    } else if user.token || user.username || said(user.token_file.as_ref()).is_some() {
        ClientCredential::Token
    } else {
        ClientCredential::Nothing
    }
}

/// Follows the paths in a kubeconfig, which count from its folder.
fn follow(tree: &dyn Tree, settings: &Settings, user: &User, found: &mut Kubeconfig) {
    let folder = Path::new(found.at.file.as_ref()).parent().unwrap_or(Path::new("/")).to_owned();
    let data = said(user.client_certificate_data.as_ref());
    let certificate = said(user.client_certificate.as_ref()).filter(|_| data.is_none());
    let files =
        [certificate, said(user.client_key.as_ref()).filter(|_| data.is_none()), said(user.token_file.as_ref())];
    for path in files.into_iter().flatten() {
        let path = folder.join(path);
        let name = path.to_string_lossy().into_owned();
        if tree.stat(&path).is_err_and(|error| error.is_not_found()) && !found.missing_files.contains(&name) {
            found.missing_files.push(name.clone());
        }
        if !found.files.contains(&name) {
            found.files.push(name);
        }
    }
    // The kubelet prefers the certificate that it has renewed to the one that it was given
    // (`Current` in k8s.io/client-go/util/certificate/certificate_store.go).
    let renewed = cert_dir(settings).join("kubelet-client-current.pem");
    let is_renewed = settings.bool("rotateCertificates") == Some(true) && tree.exists(&renewed);
    let read = match (data, certificate) {
        (Some(_), _) | (_, Some(_)) if is_renewed => from_file(tree, &renewed),
        (Some(data), _) => of_data(&found.at, data).map_err(|problem| format!("{} {problem}", found.at.file)),
        (None, Some(path)) => from_file(tree, &folder.join(path)),
        (None, None) => return,
    };
    match read {
        Ok(certificate) => found.certificate = Some(certificate),
        Err(problem) => found.certificate_problem = Some(problem),
    }
}

fn text(tree: &dyn Tree, path: &Path) -> Result<String, Unreadable> {
    let bytes = tree.read_bounded(path, MAX_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn from_file(tree: &dyn Tree, path: &Path) -> Result<Certificate, String> {
    let text = text(tree, path).map_err(|error| format!("{} {error}", path.display()))?;
    of_pem(&Location::file(path), &text).map_err(|problem| format!("{} {problem}", path.display()))
}

/// The folder of the kubelet's own certificates.
pub(super) fn cert_dir(settings: &Settings) -> PathBuf {
    PathBuf::from(settings.text("--cert-dir").unwrap_or(DEFAULT_CERT_DIR))
}

/// The certificate that the kubelet shows to its clients: the configured one, else the one that it asked the cluster
/// for. (A kubelet with neither signs one itself.)
pub(super) fn serving(tree: &dyn Tree, settings: &Settings) -> FileState<Certificate> {
    let path = match settings.text("tlsCertFile") {
        Some(path) => PathBuf::from(path),
        None if settings.bool("serverTLSBootstrap") == Some(true) => {
            cert_dir(settings).join("kubelet-server-current.pem")
        }
        None => return FileState::NotAsked,
    };
    let at = Location::file(&path);
    match text(tree, &path) {
        Ok(text) => match of_pem(&at, &text) {
            Ok(certificate) => FileState::Present(certificate),
            Err(problem) => FileState::Bad { at, reason: problem.to_owned() },
        },
        Err(error) if error.is_not_found() => FileState::Missing { at },
        Err(error) => FileState::Bad { at, reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
