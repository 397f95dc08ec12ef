//! The configuration of image credential providers, and what a kubelet refuses of it (`readCredentialProviderConfig` and
//! `validateCredentialProviderConfig` of pkg/credentialprovider/plugin, Kubernetes 1.36.3).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::kubelet::config::document::{Entry, Node, Value, parse};
use crate::kubelet::effective::Settings;
use crate::kubelet::flags::duration_nanos;
use crate::kubelet::gates;
use crate::kubelet::label;
use crate::kubelet::location::Location;
use crate::kubelet::text::{self, nearest, shortened};
use crate::kubelet::tree::{Kind, Tree};
use crate::kubelet::version::{Minor, Version};

/// The group of the file, that of a provider, and the versions of both.
const GROUP: &str = "kubelet.config.k8s.io/";
const PROVIDER_GROUP: &str = "credentialprovider.kubelet.k8s.io/";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

const FIELDS: [&str; 3] = ["apiVersion", "kind", "providers"];
const PROVIDER_FIELDS: [&str; 7] =
    ["apiVersion", "args", "defaultCacheDuration", "env", "matchImages", "name", "tokenAttributes"];
/// Those of `tokenAttributes`; the first three are needed.
const TOKEN_FIELDS: [&str; 5] = [
    "serviceAccountTokenAudience",
    "requireServiceAccount",
    "cacheType",
    "requiredServiceAccountAnnotationKeys",
    "optionalServiceAccountAnnotationKeys",
];

#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) at: Location,
    pub(crate) reason: String,
    /// Whether it is a field that does not exist, or did not: the kubelet exits of it since 1.32, and skips it before.
    pub(crate) is_unknown_field: bool,
}

const MAX_FILES: usize = 64;

fn problem(at: &Location, reason: impl Into<String>) -> Problem {
    Problem { at: at.clone(), reason: reason.into(), is_unknown_field: false }
}

/// What is wrong, each with its place; nothing where the file cannot be seen. A directory's files count as one.
pub(super) fn problems(tree: &dyn Tree, settings: &Settings, version: Option<&Version>) -> Vec<Problem> {
    let flag = |end| settings.text(&format!("--image-credential-provider-{end}"));
    let (Some(path), Some(programs)) = (flag("config").map(Path::new), flag("bin-dir")) else { return Vec::new() };
    let at = Location::file(path);
    let mut files = vec![path.to_owned()];
    if tree.stat(path).is_ok_and(|meta| meta.kind == Kind::Directory) {
        if version.is_some_and(|version| version.minor < Minor(34)) {
            return vec![problem(&at, "it is a directory, which kubelets read since 1.34")];
        }
        let names = tree.list(path).unwrap_or_default().into_iter().map(|name| path.join(name));
        let is_read = |file: &PathBuf| ["json", "yaml", "yml"].iter().any(|end| file.extension() == Some(end.as_ref()));
        files = names.filter(is_read).take(MAX_FILES).collect();
        if files.is_empty() {
            return vec![problem(&at, "the directory has no file that ends in .json, .yaml or .yml")];
        }
    }
    let (mut names, mut found, mut is_whole) = (BTreeSet::new(), Vec::new(), true);
    for file in files {
        match of_file(tree, &file, programs, (settings, version), &mut names) {
            Some(more) => found.extend(more),
            None => is_whole = false,
        }
    }
    if names.is_empty() && is_whole && found.iter().all(|one| one.is_unknown_field) {
        found.push(problem(&at, "it has no providers"));
    }
    found
}

/// What is wrong with a file; `None` if it cannot be read. The names of its providers are added to `names`.
fn of_file(
    tree: &dyn Tree,
    path: &Path,
    programs: &str,
    (settings, version): (&Settings, Option<&Version>),
    names: &mut BTreeSet<String>,
) -> Option<Vec<Problem>> {
    let at = Location::file(path);
    let document = match parse(&at, &text::small(tree, path.to_str()?)?) {
        Ok(document) => document,
        Err(error) => return Some(vec![problem(&error.at, error.reason)]),
    };
    let mut found = unknown(document.entries(), &FIELDS);
    let is_bare = FIELDS[..2].iter().all(|field| document.get(field).is_none());
    if is_bare {
        let why = format!("apiVersion: {GROUP}v1 and kind: CredentialProviderConfig are missing");
        found.push(problem(&at, why));
    } else if document.get("kind").and_then(Node::text).as_deref() != Some("CredentialProviderConfig") {
        found.push(problem(&at, "the kind is not CredentialProviderConfig"));
    }
    found.extend(bad_version(&document, GROUP).filter(|_| !is_bare).map(|why| problem(&at, why)));
    for provider in document.get("providers").map(Node::items).unwrap_or_default() {
        let name = provider.get("name").and_then(Node::text).unwrap_or_default();
        found.extend(unknown(provider.entries(), &PROVIDER_FIELDS));
        let wrong = wrong(provider, &name);
        // An apiVersion of another form is one mistake.
        found.extend(token_attributes(provider, settings, version).filter(|_| wrong.is_none()));
        let why = match wrong {
            None if !names.insert(name.clone()) => Some("its name is given twice".to_owned()),
            None => {
                let program = Path::new(programs).join(&name);
                let is_seen = tree.list(Path::new(programs)).is_ok();
                let is_missing = is_seen && tree.stat(&program).is_err_and(|error| error.is_not_found());
                is_missing.then(|| format!("its program {} does not exist", program.display()))
            }
            why => why,
        };
        found.extend(why.map(|why| problem(&provider.at, format!("the provider {}: {why}", shortened(&name)))));
    }
    Some(found)
}

fn unknown(entries: &[Entry], known: &[&'static str]) -> Vec<Problem> {
    let unknown = entries.iter().filter(|entry| !known.contains(&entry.key.as_str()));
    let located = unknown.map(|entry| {
        let meant = nearest(&entry.key, known.iter().copied());
        let meant = meant.map(|meant| format!(". Did you mean {meant}?")).unwrap_or_default();
        let reason = format!("there is no field {}{meant}", shortened(&entry.key));
        Problem { at: entry.at.clone(), reason, is_unknown_field: true }
    });
    located.collect()
}

fn bad_version(node: &Node, group: &str) -> Option<String> {
    let written = node.get("apiVersion").and_then(Node::text).unwrap_or_default();
    let is_known = written.strip_prefix(group).is_some_and(|version| VERSIONS.contains(&version));
    (!is_known).then(|| format!("apiVersion is '{}' and must be {group}v1", shortened(&written)))
}

fn wrong(provider: &Node, name: &str) -> Option<String> {
    let lacks = |what: &str| Some(format!("{what} is missing"));
    let duration = provider.get("defaultCacheDuration").and_then(Node::text);
    if name.is_empty() || matches!(name, "." | "..") || name.contains(['/', ' ']) {
        return Some("its name must be that of a program, without spaces".to_owned());
    }
    bad_version(provider, PROVIDER_GROUP).or_else(|| match duration {
        _ if provider.get("matchImages").is_none_or(|images| images.items().is_empty()) => lacks("matchImages"),
        None => lacks("defaultCacheDuration"),
        Some(duration) if duration_nanos(&duration).is_none_or(|nanos| nanos < 0) => {
            Some(format!("defaultCacheDuration is '{}' and must be a duration such as 12h", shortened(&duration)))
        }
        Some(_) => None,
    })
}

/// What is wrong with a provider's `tokenAttributes`, an unknown field to kubelets before 1.33.
fn token_attributes(provider: &Node, settings: &Settings, version: Option<&Version>) -> Option<Problem> {
    const FIELD: &str = "tokenAttributes";
    const GATE: &str = "KubeletServiceAccountTokenForCredentialProviders";
    let given = provider.entries().iter().find(|entry| entry.key == FIELD && entry.node.value != Value::Null)?;
    let said = |field: &str| given.node.get(field).and_then(Node::text).unwrap_or_default();
    let is_v1 = provider.get("apiVersion").and_then(Node::text).is_some_and(|written| written.ends_with("/v1"));
    let is_before = |minor| version.is_some_and(|version| version.minor < Minor(minor));
    // Before 1.34 there is no cacheType.
    let has_cache = version.is_some() && !is_before(34);
    let missing = TOKEN_FIELDS[..if has_cache { 3 } else { 2 }].iter().find(|field| said(field).is_empty());
    let unknown = unknown(given.node.entries(), &TOKEN_FIELDS).into_iter().next().filter(|_| !is_before(33));
    if unknown.is_some() {
        return unknown;
    }
    let is_required = given.node.get(TOKEN_FIELDS[1]).map(|node| &node.value);
    let keys = |field: &str| given.node.get(field).map(Node::items).unwrap_or_default().iter().filter_map(Node::text);
    let mut seen = BTreeSet::new();
    let mut all = TOKEN_FIELDS[3..].iter().flat_map(|field| keys(field));
    let bad = all.find(|key| !label::is_key(&key.to_lowercase()) || !seen.insert(key.clone()));
    let reason = match (missing, &*said("cacheType")) {
        _ if is_before(33) => format!("there is no field {FIELD} before 1.33"),
        _ if !is_v1 => format!("{FIELD} needs apiVersion {PROVIDER_GROUP}v1"),
        _ if gates::is_on(GATE, settings, version) == Some(false) => {
            format!("{FIELD} needs the feature gate {GATE}, which is off")
        }
        (Some(missing), _) => format!("{FIELD}.{missing} is missing"),
        _ if !matches!(is_required, Some(Value::Bool(_))) => {
            format!("{FIELD}.requireServiceAccount must be true or false")
        }
        (None, kind) if has_cache && !matches!(kind, "ServiceAccount" | "Token") => {
            format!("{FIELD}.cacheType is '{}' and must be ServiceAccount or Token", shortened(kind))
        }
        (None, kind) if is_before(34) && !kind.is_empty() => format!("there is no field {FIELD}.cacheType before 1.34"),
        _ if said("requireServiceAccount") == "false" && keys(TOKEN_FIELDS[3]).next().is_some() => {
            format!("{FIELD}.requiredServiceAccountAnnotationKeys needs requireServiceAccount: true")
        }
        _ => format!("{FIELD} has the annotation key '{}', which is none or is there twice", shortened(&bad?)),
    };
    Some(Problem { at: given.at.clone(), reason, is_unknown_field: true })
}
