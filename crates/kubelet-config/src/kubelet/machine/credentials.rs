//! What the kubelet shows to the API server and its clients: kubeconfigs, certificates. Of a secret only its presence.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::certificate::{of_data, of_pem};
use super::{Certificate, ClientCredential, FileState, Kubeconfig, MAX_FILE_BYTES};
use crate::kubelet::config::document::{Node, Value, parse};
use crate::kubelet::effective::Settings;
use crate::kubelet::location::Location;
use crate::kubelet::text::shortened;
use crate::kubelet::tree::Tree;

/// As Go decodes it: it passes over the ends of lines, and over no blank, to which YAML folds them.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    LENIENT.decode(text.replace(['\r', '\n'], "")).ok()
}

const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Where the kubelet keeps its certificates if `--cert-dir` names no other directory.
const DEFAULT_CERT_DIR: &str = "/var/lib/kubelet/pki";

/// The client certificate that it has renewed, in that directory.
const RENEWED: &str = "kubelet-client-current.pem";

/// The kubeconfig at `path` of a kubelet whose configuration is not known; `cert_dir` is its `--cert-dir`. Of a certificate
/// that the kubeconfig has or names and a renewed one the kubelet uses the latter only if it renews certificates: the one
/// that lasts longer counts here.
pub fn of_running(tree: &dyn Tree, path: &str, cert_dir: Option<&str>) -> FileState<Kubeconfig> {
    let ends = |certificate: &Option<Certificate>| certificate.as_ref().map(|read| read.not_after_secs);
    let renewed = Path::new(cert_dir.unwrap_or(DEFAULT_CERT_DIR)).join(RENEWED);
    let mut found = read(tree, path, Some(renewed).filter(|file| tree.exists(file)), true);
    if let FileState::Present(found) = &mut found
        && ends(&found.renewed) > ends(&found.certificate)
    {
        found.certificate = found.renewed.take();
        found.certificate_problem = None;
    }
    found
}

pub(super) fn kubeconfig(tree: &dyn Tree, settings: &Settings, flag: &str) -> FileState<Kubeconfig> {
    let Some(path) = settings.text(flag) else { return FileState::NotAsked };
    // The kubelet prefers the certificate that it has renewed to the one that it was given
    // (`Current` in k8s.io/client-go/util/certificate/certificate_store.go).
    let rotates = settings.bool("rotateCertificates") == Some(true);
    let renewed = Some(cert_dir(settings).join(RENEWED)).filter(|file| rotates && tree.exists(file));
    read(tree, path, renewed, rotates)
}

/// The kubeconfig at `path`, with the certificate in the file `renewed` next to its own.
fn read(tree: &dyn Tree, path: &str, renewed: Option<PathBuf>, rotates: bool) -> FileState<Kubeconfig> {
    FileState::read(tree, path, |at, bytes| {
        // The parser's own reason may quote the text.
        let document =
            parse(at, &String::from_utf8_lossy(bytes)).map_err(|error| (error.at, "is not valid YAML".to_owned()))?;
        let (cluster, server, user) = understand(&document).map_err(|reason| (at.clone(), reason))?;
        if let Some((node, reason)) = undecodable(&document).or_else(|| refusal(cluster, user, rotates)) {
            return Err((node.at.clone(), reason));
        }
        let mut found = follow(tree, at, server, user, renewed);
        let authority = said(Some(cluster), "certificate-authority");
        let authority = authority.filter(|_| said(Some(cluster), "certificate-authority-data").is_none());
        let directory = Path::new(&*at.file).parent().unwrap_or(Path::new("/"));
        let missing = authority.map(|path| directory.join(path)).filter(|path| is_missing(tree, path));
        found.missing_authority = missing.map(|path| path.to_string_lossy().into_owned());
        Ok(found)
    })
}

fn is_missing(tree: &dyn Tree, path: &Path) -> bool {
    tree.stat(path).is_err_and(|error| error.is_not_found())
}

/// The cluster with its server, and the user, of the current context.
fn understand(document: &Node) -> Result<(&Node, String, Option<&Node>), String> {
    if let Some(kind) = said(Some(document), "kind").filter(|kind| *kind != "Config") {
        return Err(format!("is a {}, not a kubeconfig", kind.chars().take(64).collect::<String>()));
    }
    let named = |list: &str, name: &str, key: &str| {
        let mut items = document.get(list)?.items().iter();
        items.find(|item| said(Some(item), "name") == Some(name))?.get(key)
    };
    let current = said(Some(document), "current-context").unwrap_or_default();
    let context =
        named("contexts", current, "context").ok_or("has no context of the name that current-context gives")?;
    let cluster = said(Some(context), "cluster").and_then(|name| named("clusters", name, "cluster"));
    let user = said(Some(context), "user").and_then(|name| named("users", name, "user"));
    let cluster = cluster.and_then(|cluster| Some((cluster, said(Some(cluster), "server")?)));
    let (cluster, server) = cluster.ok_or("has no cluster with a server in its current context")?;
    Ok((cluster, server.to_owned(), user))
}

/// Data that is not base64: client-go decodes that of every cluster and user.
fn undecodable(document: &Node) -> Option<(&Node, String)> {
    let of = |list, key, data| {
        let items = document.get(list).map(Node::items).unwrap_or_default().iter();
        items.filter_map(move |item| Some((item.get(key)?.get(data)?, data)))
    };
    let all = of("clusters", "cluster", "certificate-authority-data")
        .chain(of("users", "user", "client-certificate-data"))
        .chain(of("users", "user", "client-key-data"));
    all.into_iter().find_map(|(node, data)| {
        let text = node.text()?;
        // As `kubectl config view` and others leave it.
        let is_masked = ["OMITTED", "REDACTED", "***"].iter().any(|mask| text.contains(mask));
        let is_bad = !is_masked && (!matches!(node.value, Value::String(_)) || decode(&text).is_none());
        is_bad.then(|| (node, format!("has a {data} that is not base64")))
    })
}

/// What client-go refuses (`validateClusterInfo`, `validateAuthInfo`, `TLSConfigFor`, `newAuthenticator`); tried with kubelet 1.34.4.
fn refusal<'a>(cluster: &'a Node, user: Option<&'a Node>, rotates: bool) -> Option<(&'a Node, String)> {
    let with = |node: Option<&'a Node>, key: &str| node?.get(key).filter(|_| said(node, key).is_some());
    let all = [(Some(cluster), "certificate-authority"), (user, "client-certificate"), (user, "client-key")];
    for (node, key) in all {
        let data = format!("{key}-data");
        let Some(given) = with(node, &data) else { continue };
        // It compares the key with its data only next to a certificate.
        let has_certificate =
            ["client-certificate", "client-certificate-data"].iter().any(|key| with(user, key).is_some());
        let counts = key != "client-key" || has_certificate;
        if with(node, key).is_some() && counts {
            return Some((given, format!("has both {key} and {data}")));
        }
    }
    let insecure = cluster.get("insecure-skip-tls-verify").filter(|node| node.value == Value::Bool(true));
    let authority = ["certificate-authority", "certificate-authority-data"].map(|key| with(Some(cluster), key));
    let is_plain = said(Some(cluster), "server").is_some_and(|server| server.starts_with("http://"));
    if let Some(insecure) = insecure.filter(|_| !is_plain && authority.iter().any(Option::is_some)) {
        return Some((insecure, "has both insecure-skip-tls-verify and a certificate-authority".to_owned()));
    }
    let proxy = with(Some(cluster), "proxy-url").filter(|node| {
        let url = node.text().unwrap_or_default().to_ascii_lowercase();
        !["http:", "https:", "socks5:"].iter().any(|scheme| url.starts_with(scheme))
    });
    if let Some(proxy) = proxy {
        return Some((proxy, "has a proxy-url that does not begin with http://, https:// or socks5://".to_owned()));
    }
    let exec = user?.get("exec").filter(|exec| exec.value != Value::Null)?;
    let version = said(Some(exec), "apiVersion").unwrap_or_default();
    let lacks = match version.strip_prefix("client.authentication.k8s.io/") {
        _ if with(Some(exec), "command").is_none() => "command",
        _ if version.is_empty() => "apiVersion",
        Some("v1") if with(Some(exec), "interactiveMode").is_none() => "interactiveMode, which v1 needs (Never)",
        Some("v1" | "v1beta1") => return None,
        // A kubelet that renews its certificate starts, and asks the plugin later.
        _ if rotates => return None,
        _ => {
            return Some((exec, format!("has an exec plugin of {}: client-go has v1beta1 and v1", shortened(version))));
        }
    };
    Some((exec, format!("has an exec plugin without {lacks}")))
}

/// The text of a key, if it is not empty.
fn said<'a>(node: Option<&'a Node>, key: &str) -> Option<&'a str> {
    match &node?.get(key)?.value {
        Value::String(text) => Some(text.as_str()).filter(|text| !text.is_empty()),
        _ => None,
    }
}

/// What the user shows, in the order in which client-go takes it.
fn credential(user: Option<&Node>) -> ClientCredential {
    let is_there = |key| user.and_then(|node| node.get(key)).is_some_and(|node| node.value != Value::Null);
    if said(user, "client-certificate-data").is_some() {
        ClientCredential::CertificateData
    } else if let Some(path) = said(user, "client-certificate") {
        ClientCredential::CertificateFile { path: path.to_owned() }
    } else if is_there("exec") || is_there("auth-provider") {
        ClientCredential::Exec
    } else if ["token", "tokenFile", "username"].iter().any(|key| said(user, key).is_some()) {
        ClientCredential::Token
    } else {
        ClientCredential::Nothing
    }
}

/// Follows the paths of a user, which count from the kubeconfig's directory, and reads its certificate.
fn follow(tree: &dyn Tree, at: &Location, server: String, user: Option<&Node>, renewed: Option<PathBuf>) -> Kubeconfig {
    let data = said(user, "client-certificate-data");
    let directory = Path::new(&*at.file).parent().unwrap_or(Path::new("/"));
    let path = |key| said(user, key).map(|path| directory.join(path));
    let own = |key| path(key).filter(|_| data.is_none());
    let certificate = own("client-certificate");
    let paths = [certificate.clone(), own("client-key"), path("tokenFile")].into_iter().flatten();
    let mut files: Vec<String> = paths.map(|path| path.to_string_lossy().into_owned()).collect();
    files.dedup();
    let has_own = data.is_some() || certificate.is_some();
    let read = match (data, certificate) {
        (Some(data), _) => Some(of_data(at, data).map_err(|problem| format!("{at} {problem}"))),
        (None, file) => file.map(|file| from_file(tree, &file)),
    };
    Kubeconfig {
        at: at.clone(),
        server: Some(server),
        credential: credential(user),
        renewed: renewed.filter(|_| has_own).and_then(|file| current(tree, &file)),
        certificate_problem: read.as_ref().and_then(|read| read.as_ref().err().cloned()),
        certificate: read.and_then(Result::ok),
        missing_files: files.iter().filter(|file| is_missing(tree, Path::new(file))).cloned().collect(),
        missing_authority: None,
        files,
    }
}

/// The certificate that the kubelet has renewed. It is a link; a copy of a host may have the link's text in its place.
fn current(tree: &dyn Tree, path: &Path) -> Option<Certificate> {
    let text = tree.read_bounded(path, MAX_FILE_BYTES).ok()?;
    let target = std::str::from_utf8(&text).ok().map(str::trim).filter(|text| text.starts_with('/'));
    let found = from_file(tree, target.map_or(path, Path::new)).ok()?;
    Some(Certificate { at: Location::file(path), ..found })
}

fn from_file(tree: &dyn Tree, path: &Path) -> Result<Certificate, String> {
    let bytes = tree.read_bounded(path, MAX_FILE_BYTES).map_err(|error| format!("{} {error}", path.display()))?;
    of_pem(&Location::file(path), &bytes).map_err(|problem| format!("{} {problem}", path.display()))
}

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
    FileState::read(tree, path, |at, bytes| of_pem(at, bytes).map_err(|problem| (at.clone(), problem.to_owned())))
}

#[cfg(test)]
mod tests;
