//! A kubeconfig made self-contained: its current context alone, with every file that it names put in.

use std::path::{Path, PathBuf};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use super::protocol::{Code, Refusal};
use crate::{host::files::Root, kubelet::yaml};

/// The longest kubeconfig that is read.
pub const MAX_KUBECONFIG_BYTES: usize = 128 * 1024;

/// The longest certificate, key, token or authority file. A kubelet's have a few KiB.
const MAX_FILE_BYTES: usize = 64 * 1024;

/// A kubeconfig, as far as a kubelet's goes. What else it may hold (preferences, extensions, impersonation) is left
/// out, because no kubelet's has it. None of these types has a `Debug`, for they hold secrets.
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

#[derive(Deserialize, Serialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize, Serialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize, Serialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    #[serde(skip_serializing)]
    certificate_authority: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    insecure_skip_tls_verify: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_server_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_url: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    #[serde(skip_serializing)]
    client_certificate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<String>,
    #[serde(skip_serializing)]
    client_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(rename = "tokenFile", skip_serializing)]
    token_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(skip_serializing)]
    exec: Option<serde::de::IgnoredAny>,
    #[serde(skip_serializing)]
    auth_provider: Option<serde::de::IgnoredAny>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct OneContext {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    current_context: String,
    contexts: [NamedContext; 1],
    clusters: [NamedCluster; 1],
    users: [NamedUser; 1],
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

/// The kubeconfig `text` that lies at `path`, as JSON with one context and no path: certificate, key, authority and
/// token files are read (relative paths count from the kubeconfig's folder) and put in.
///
/// # Errors
/// `bad_file`, `unreadable` or `no_credential`, naming kubeconfig and field; `exec_plugin` for a kubeconfig that asks
/// for a program or an auth provider.
pub fn inline(root: &Root, path: &Path, text: &str) -> Result<String, Refusal> {
    let files = Files { root, path };
    let read: Kubeconfig = yaml::read(text)
        .map_err(|place| files.bad(&format!("not a kubeconfig at {place}; correct it there")))?;
    let name = read.current_context;
    let context = pick(read.contexts, |context| context.name == name)
        .ok_or_else(|| files.bad("its current-context is none of its contexts"))?;
    let mut cluster = pick(read.clusters, |c| c.name == context.context.cluster)
        .ok_or_else(|| files.bad("its current context names a cluster that is not there"))?;
    let mut user = pick(read.users, |u| u.name == context.context.user)
        .ok_or_else(|| files.bad("its current context names a user that is not there"))?;
    fill_cluster(&files, &mut cluster.cluster)?;
    fill_user(&files, &mut user.user)?;
    let whole = OneContext {
        api_version: "v1",
        kind: "Config",
        current_context: name,
        contexts: [context],
        clusters: [cluster],
        users: [user],
    };
    serde_json::to_string(&whole).map_err(|_| files.bad("cannot be written as JSON"))
}

fn pick<T>(items: Option<Vec<T>>, wanted: impl Fn(&T) -> bool) -> Option<T> {
    items.into_iter().flatten().find(wanted)
}

fn fill_cluster(files: &Files<'_>, cluster: &mut Cluster) -> Result<(), Refusal> {
    if said(cluster.server.as_ref()).is_none() {
        return Err(files.bad("its cluster has no server"));
    }
    files.fill(
        "certificate-authority",
        cluster.certificate_authority.as_ref(),
        &mut cluster.certificate_authority_data,
    )
}

fn fill_user(files: &Files<'_>, user: &mut User) -> Result<(), Refusal> {
    if user.exec.is_some() || user.auth_provider.is_some() {
        let message = format!(
            "kubeconfig {}: it gets its credential from a program (exec plugin or auth provider), which the helper \
             does not run yet; give the agent its own kubeconfig in /etc/nodevigil/kubeconfig",
            files.path.display()
        );
        return Err(Refusal::new(Code::ExecPlugin, message));
    }
    // A kubelet whose certificate rotates names one file twice, with certificate and key in it: it is put in twice,
    // and each reader takes its own part.
    files.fill(
        "client-certificate",
        user.client_certificate.as_ref(),
        &mut user.client_certificate_data,
    )?;
    files.fill(
        "client-key",
        user.client_key.as_ref(),
        &mut user.client_key_data,
    )?;
    // As client-go has it: the file beats the field.
    if let Some(file) = said(user.token_file.as_ref()) {
        let bytes = files.read("tokenFile", file)?;
        let token = String::from_utf8_lossy(&bytes).trim().to_owned();
        user.token = Some(token);
    }
    user.token.take_if(|token| token.is_empty());
    match (&user.client_certificate_data, &user.client_key_data) {
        (Some(_), None) => Err(files.none("its user has a certificate and no key")),
        (None, Some(_)) => Err(files.none("its user has a key and no certificate")),
        (None, None) if user.token.is_none() && said(user.username.as_ref()).is_none() => {
            Err(files.none("its user has neither certificate nor token"))
        }
        _ => Ok(()),
    }
}

/// A field that is there; Go takes an empty text for none.
fn said(field: Option<&String>) -> Option<&str> {
    field.map(String::as_str).filter(|text| !text.is_empty())
}

/// The files that the kubeconfig at `path` names.
struct Files<'a> {
    root: &'a Root,
    path: &'a Path,
}

impl Files<'_> {
    /// Puts the file named by `field` into `data`, unless something stands there already (which wins, as in client-go).
    fn fill(
        &self,
        field: &str,
        file: Option<&String>,
        data: &mut Option<String>,
    ) -> Result<(), Refusal> {
        data.take_if(|data| data.is_empty());
        if let (None, Some(file)) = (&data, said(file)) {
            *data = Some(BASE64_STANDARD.encode(self.read(field, file)?));
        }
        Ok(())
    }

    fn read(&self, field: &str, file: &str) -> Result<Vec<u8>, Refusal> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let file: PathBuf = folder.join(file);
        self.root.read(&file, MAX_FILE_BYTES).map_err(|error| {
            let message = format!(
                "{error}; it is the {field} of kubeconfig {}",
                self.path.display()
            );
            Refusal::new(Code::Unreadable, message)
        })
    }

    fn bad(&self, what: &str) -> Refusal {
        let message = format!("kubeconfig {}: {what}", self.path.display());
        Refusal::new(Code::BadFile, message)
    }

    fn none(&self, what: &str) -> Refusal {
        let message = format!(
            "kubeconfig {}: {what}; wait until the kubelet has joined, or give the agent its own in \
             /etc/nodevigil/kubeconfig",
            self.path.display()
        );
        Refusal::new(Code::NoCredential, message)
    }
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig as KubeKubeconfig;

    use super::*;
    use crate::helper::testing::{host, write};

    const PATH: &str = "/etc/kubernetes/kubelet.conf";
    const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

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

    fn inlined(user: &str) -> Result<String, Refusal> {
        let (_folder, root) = host();
        write(&root, "/etc/kubernetes/pki/ca.crt", "CA");
        write(&root, CURRENT, "CERT KEY");
        write(&root, "/etc/kubernetes/token", "t0ken\n");
        inline(&root, Path::new(PATH), &text(user))
    }

    #[test]
    fn the_rotated_certificate_is_put_in_twice() {
        let json = inlined(&format!(
            "{{client-certificate: {CURRENT}, client-key: {CURRENT}}}"
        ))
        .unwrap();
        let read = KubeKubeconfig::from_yaml(&json).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("default-context"));
        assert_eq!(
            (
                read.contexts.len(),
                read.clusters.len(),
                read.auth_infos.len()
            ),
            (1, 1, 1)
        );
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("api"));
        assert_eq!(cluster.certificate_authority, None);
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Q0E="));
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        let both = BASE64_STANDARD.encode("CERT KEY");
        assert_eq!(user.client_certificate_data.as_ref(), Some(&both));
        assert_eq!(user.client_certificate, None);
        assert!(!json.contains("s3cret") && !json.contains("/var/lib"));
    }

    #[test]
    fn data_beats_a_file_and_a_token_file_beats_a_token() {
        let json = inlined(
            "{client-certificate: /none, client-certificate-data: QQ==, client-key-data: Qg==}",
        );
        assert!(json.unwrap().contains("\"client-key-data\":\"Qg==\""));
        let json = inlined("{token: old, tokenFile: token, client-certificate: ''}").unwrap();
        assert!(json.contains("\"token\":\"t0ken\""), "{json}");
    }

    #[test]
    fn a_program_is_refused_with_what_to_do() {
        for user in [
            "{exec: {command: aws, args: [s3cret]}}",
            "{auth-provider: {name: gcp}}",
        ] {
            let refused = inlined(user).unwrap_err();
            assert_eq!(refused.code, Code::ExecPlugin);
            assert!(refused.message.contains("/etc/nodevigil/kubeconfig"));
            assert!(refused.message.contains(PATH));
        }
    }

    #[test]
    fn every_other_fault_names_the_file_and_quotes_nothing() {
        for (user, code) in [
            ("{}", Code::NoCredential),
            ("{token: ''}", Code::NoCredential),
            ("{client-certificate-data: s3cret}", Code::NoCredential),
            ("{client-key-data: s3cret}", Code::NoCredential),
            ("{tokenFile: missing}", Code::Unreadable),
            ("{client-certificate: /missing}", Code::Unreadable),
            ("{token: [s3cret]}", Code::BadFile),
            ("[s3cret", Code::BadFile),
        ] {
            let refused = inlined(user).unwrap_err();
            assert_eq!(refused.code, code, "{user}: {refused}");
            assert!(refused.message.contains(PATH), "{user}: {refused}");
            assert!(!refused.message.contains("s3cret"), "{user}: {refused}");
        }
        let (_folder, root) = host();
        for text in [
            "",
            "{}",
            "contexts: null\n",
            "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n",
        ] {
            let refused = inline(&root, Path::new(PATH), text).unwrap_err();
            assert_eq!(refused.code, Code::BadFile, "{text:?}");
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
