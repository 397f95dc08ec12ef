//! From the distribution's options to the kubelet's words.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Program;
use super::options::Options;
use crate::kubelet::flags::table;
use crate::kubelet::layers::{KubeletCommand, Launcher};
use crate::kubelet::systemd::{Arg, Origin};
use crate::kubelet::tree::{Kind, Tree};
use crate::kubelet::version::Minor;

/// containerd's socket of both distributions.
const SOCKET: &str = "/run/k3s/containerd/containerd.sock";

/// Lists that become one flag, and options that become a flag of the same name.
const JOINED: [(&str, &str); 3] =
    [("node-ip", "node-ip"), ("node-label", "node-labels"), ("node-taint", "register-with-taints")];
const SAME_NAME: [&str; 3] = ["resolv-conf", "v", "vmodule"];
const SWITCH: &str = "protect-kernel-defaults";

/// Flags that RKE2 adds before all others.
const RKE2_FIRST: [(&str, &str); 3] = [
    ("volume-plugin-dir", "/var/lib/kubelet/volumeplugins"),
    ("file-check-frequency", "5s"),
    ("sync-frequency", "30s"),
];

/// The operator's `word` with another text in its place.
fn user(word: &Arg, text: impl Into<String>) -> Arg {
    Arg { text: text.into(), ..word.clone() }
}

fn flag(name: &str, value: Arg) -> Arg {
    Arg { text: format!("--{name}={}", value.text), ..value }
}

/// Builds the kubelet's words into `kubelet`. `command` is the word `agent` or `server`, the place of what is added.
pub(super) fn build(
    tree: &dyn Tree,
    program: Program,
    options: &Options,
    name: Option<Arg>,
    command: &Arg,
    kubelet: &mut KubeletCommand,
) {
    let own = |text: &str| Arg { built_in: true, ..Arg::new(text, command.at().clone()) };
    let is_rke2 = program.launcher == Launcher::Rke2;
    let data = options.text("data-dir").map(PathBuf::from);
    let agent = data.unwrap_or_else(|| Path::new("/var/lib/rancher").join(program.name())).join("agent");
    let config_dir = agent.join("etc/kubelet.conf.d");
    let mut initial = BTreeMap::from([
        ("config-dir", own(&config_dir.to_string_lossy())),
        ("kubeconfig", own(&agent.join("kubelet.kubeconfig").to_string_lossy())),
        ("node-labels", own("")),
        ("read-only-port", own("0")),
    ]);
    initial.extend(name.map(|name| ("hostname-override", name)));
    if kubelet.server_disables_cloud_controller == Some(false) {
        initial.insert("cloud-provider", own("external"));
    }
    initial.extend(runtime(options, &own));
    initial.extend(from_options(options));
    initial.extend(credential_provider(tree, options, &own));

    let mut words = vec![own("kubelet")];
    if is_rke2 {
        words.extend(RKE2_FIRST.map(|(name, value)| flag(name, own(value))));
        words.extend(rke2_cloud_provider(options));
    }
    let flags = merged(initial, extra_args(tree, options, &config_dir));
    words.extend(flags.filter(|word| !(is_rke2 && is_logging(&word.text))));
    kubelet.args = words;
    if !has_defaults_file(tree, &config_dir) {
        kubelet.settings = settings(options, &agent);
    }
}

/// The runtime's flag; with a runtime other than the distribution's containerd its socket.
fn runtime(options: &Options, own: &dyn Fn(&str) -> Arg) -> Option<(&'static str, Arg)> {
    let given = match options.last("container-runtime-endpoint") {
        Some(word) => user(word, word.text.strip_prefix("unix://").unwrap_or(&word.text)),
        None => own(SOCKET),
    };
    let is_containerd = !options.is_set("docker") && given.text.contains("containerd");
    is_containerd.then_some(("containerd", given))
}

fn from_options(options: &Options) -> BTreeMap<&'static str, Arg> {
    let joined = JOINED.iter().filter_map(|(option, flag)| Some((*flag, joined(options.all(option))?)));
    let given = |option| options.last(option).filter(|word| !word.text.is_empty());
    let same = SAME_NAME.into_iter().filter_map(|option| Some((option, given(option)?.clone())));
    // RKE2 sets it with a profile of the CIS benchmark.
    let profile = options.last("profile").filter(|word| word.text.starts_with("cis"));
    let by_profile = profile.map(|word| Arg { built_in: true, ..user(word, "true") });
    let given_switch = options.last(SWITCH).filter(|_| options.is_set(SWITCH)).map(|word| user(word, "true"));
    let switch = given_switch.or(by_profile).map(|word| (SWITCH, word));
    joined.chain(same).chain(switch).collect()
}

/// The image credential provider's flags, which are given if both its files are there.
fn credential_provider(
    tree: &dyn Tree,
    options: &Options,
    own: &dyn Fn(&str) -> Arg,
) -> impl IntoIterator<Item = (&'static str, Arg)> {
    let value = |option: &'static str, default: &str| {
        let given = options.last(option).cloned().unwrap_or_else(|| own(default));
        let kind = tree.stat(Path::new(&given.text)).ok().map(|meta| meta.kind);
        ((option, given), kind)
    };
    let (directory, directory_kind) =
        value("image-credential-provider-bin-dir", "/var/lib/rancher/credentialprovider/bin");
    let (config, config_kind) =
        value("image-credential-provider-config", "/var/lib/rancher/credentialprovider/config.yaml");
    let are_there = directory_kind == Some(Kind::Directory) && config_kind.is_some_and(|kind| kind != Kind::Directory);
    are_there.then_some([directory, config]).into_iter().flatten()
}

/// Values that become one, with commas; each keeps its place as an origin.
fn joined(items: &[Arg]) -> Option<Arg> {
    let first = items.first()?;
    let texts: Vec<&str> = items.iter().map(|item| item.text.as_str()).collect();
    let mut given = user(first, texts.join(","));
    if items.len() > 1 {
        let origin = |item: &Arg| Origin { variable: String::new(), at: item.at().clone(), braces: false };
        given.origins = items.iter().map(origin).collect();
    }
    Some(given)
}

/// The operator's `kubelet-arg`, without `config` and `config-dir`, which k3s since 1.32 copies into `config_dir`.
fn extra_args<'a>(tree: &dyn Tree, options: &'a Options, config_dir: &Path) -> impl Iterator<Item = &'a Arg> {
    let is_copied = |name: &str| tree.lstat(&config_dir.join(name)).is_ok();
    let (config, directory) = (is_copied("10-cli-config.conf"), is_copied("20-cli-config-dir"));
    options.all("kubelet-arg").iter().filter(move |word| match split(&word.text).0 {
        "config" => !config,
        "config-dir" => !directory,
        _ => true,
    })
}

/// An item of `kubelet-arg`: its flag, and its value.
fn split(item: &str) -> (&str, &str) {
    let item = item.strip_prefix("--").unwrap_or(item);
    item.split_once('=').unwrap_or((item, "true"))
}

/// Joins the distribution's flags and the operator's, as k3s does: a flag of the operator's takes the place of the
/// distribution's of that name; with `+` after its name it goes after it, with `-` before it. Sorted by name.
fn merged<'a>(
    mut initial: BTreeMap<&'static str, Arg>,
    extra: impl Iterator<Item = &'a Arg>,
) -> impl Iterator<Item = Arg> {
    let mut flags: BTreeMap<String, VecDeque<Arg>> = BTreeMap::new();
    for word in extra {
        let (written, value) = split(&word.text);
        let name = written.trim_end_matches(['-', '+']).to_owned();
        let given = user(word, value);
        let own = initial.remove(name.as_str());
        let values = flags.entry(name).or_default();
        if let Some(own) = own.filter(|_| written.ends_with(['-', '+'])) {
            values.push_front(own);
        }
        if written.ends_with('-') {
            values.push_front(given);
        } else {
            values.push_back(given);
        }
    }
    flags.extend(initial.into_iter().map(|(name, given)| (name.to_owned(), VecDeque::from([given]))));
    flags.into_iter().flat_map(|(name, values)| values.into_iter().map(move |given| flag(&name, given)))
}

/// RKE2's `cloud-provider-name`, under the name that the kubelet gets: two of RKE2's own charts are external
/// providers, and `aws` only names the node.
fn rke2_cloud_provider(options: &Options) -> Option<Arg> {
    let word = options.last("cloud-provider-name").filter(|word| !matches!(word.text.as_str(), "" | "aws"))?;
    let name = match word.text.as_str() {
        "rancher-vsphere" | "harvester" => "external",
        name => name,
    };
    Some(flag("cloud-provider", user(word, name)))
}

/// klog's flags, which no kubelet has had since 1.26: RKE2 takes them for itself, and writes the kubelet's log as they say.
fn is_logging(flag: &str) -> bool {
    table::find(&split(flag).0.replace('_', "-")).is_some_and(|spec| spec.removed == Some(Minor(26)))
}

/// Whether the distribution has written its settings: `00-k3s-defaults.conf`, `00-rke2-defaults.conf`.
fn has_defaults_file(tree: &dyn Tree, config_dir: &Path) -> bool {
    tree.list(config_dir).is_ok_and(|names| names.iter().any(|name| name.to_string_lossy().starts_with("00-")))
}

/// What the distribution writes into that file at its start (before 1.32 it gave them as flags); of the cluster's DNS
/// the default, which only a server's options change.
fn settings(options: &Options, agent: &Path) -> Vec<(&'static str, Value)> {
    let below = |name: &str| json!(agent.join(name).to_string_lossy());
    let endpoint = options.text("container-runtime-endpoint").unwrap_or(SOCKET);
    let endpoint = if endpoint.starts_with("unix://") { endpoint.to_owned() } else { format!("unix://{endpoint}") };
    let dns: Vec<&str> = match options.all("cluster-dns") {
        [] => vec!["10.43.0.10"],
        given => given.iter().flat_map(|word| word.text.split(',')).collect(),
    };
    vec![
        ("address", json!("0.0.0.0")),
        ("authentication.anonymous.enabled", json!(false)),
        ("authentication.webhook.enabled", json!(true)),
        ("authentication.x509.clientCAFile", below("client-ca.crt")),
        ("authorization.mode", json!("Webhook")),
        ("cgroupDriver", json!("systemd")),
        ("clusterDNS", json!(dns)),
        ("clusterDomain", json!(options.text("cluster-domain").unwrap_or("cluster.local"))),
        ("containerRuntimeEndpoint", json!(endpoint)),
        ("evictionHard", json!({"imagefs.available": "5%", "nodefs.available": "5%"})),
        ("evictionMinimumReclaim", json!({"imagefs.available": "10%", "nodefs.available": "10%"})),
        ("failSwapOn", json!(false)),
        ("healthzBindAddress", json!("127.0.0.1")),
        ("serializeImagePulls", json!(false)),
        ("staticPodPath", below("pod-manifests")),
        ("tlsCertFile", below("serving-kubelet.crt")),
        ("tlsPrivateKeyFile", below("serving-kubelet.key")),
    ]
}
