//! From the distribution's options to the kubelet's words.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{
    super::{
        super::{
            systemd::{Arg, Origin},
            tree::{Kind, Tree},
        },
        KubeletCommand, Launcher,
    },
    Flavor,
    options::Options,
};

/// containerd's socket of both distributions.
const SOCKET: &str = "/run/k3s/containerd/containerd.sock";

/// Flags that RKE2 adds before all others.
const RKE2_FIRST: [(&str, &str); 3] = [
    ("volume-plugin-dir", "/var/lib/kubelet/volumeplugins"),
    ("file-check-frequency", "5s"),
    ("sync-frequency", "30s"),
];

/// klog's flags, which RKE2 takes for itself: they say where it writes the kubelet's log.
const RKE2_LOGGING: [&str; 11] = [
    "add-dir-header",
    "alsologtostderr",
    "log-backtrace-at",
    "log-dir",
    "log-file",
    "log-file-max-size",
    "logtostderr",
    "one-output",
    "skip-headers",
    "skip-log-headers",
    "stderrthreshold",
];

/// A value and whether the distribution gives it by itself.
#[derive(Debug, Clone)]
pub(super) struct Given {
    /// The value, with its place.
    pub(super) word: Arg,
    built_in: bool,
}

impl Given {
    /// A value of the operator's.
    pub(super) fn user(word: Arg) -> Self {
        Self { word, built_in: false }
    }

    /// A value of the distribution's own.
    pub(super) fn built_in(word: Arg) -> Self {
        Self { word, built_in: true }
    }

    /// As a flag.
    fn flag(self, name: &str) -> Self {
        let text = format!("--{name}={}", self.word.text);
        Self { word: Arg { text, ..self.word }, ..self }
    }
}

/// Builds the kubelet's words into `kubelet`. `command` is the word `agent` or `server`, the place of everything that
/// the distribution adds.
pub(super) fn build(
    tree: &dyn Tree,
    flavor: &Flavor,
    options: &Options,
    name: Option<Given>,
    command: &Arg,
    kubelet: &mut KubeletCommand,
) {
    let own = |text: &str| {
        Given::built_in(Arg { text: text.to_owned(), declared: command.at().clone(), origins: Vec::new() })
    };
    let data = PathBuf::from(
        options.text("data-dir").map_or_else(|| format!("/var/lib/rancher/{}", flavor.name), str::to_owned),
    );
    let agent = data.join("agent");
    let config_dir = agent.join("etc/kubelet.conf.d");
    let mut initial = BTreeMap::new();
    initial.insert("config-dir", own(&config_dir.to_string_lossy()));
    initial.insert("kubeconfig", own(&agent.join("kubelet.kubeconfig").to_string_lossy()));
    initial.insert("read-only-port", own("0"));
    let labels = joined(options.all("node-label"));
    initial.insert("node-labels", labels.unwrap_or_else(|| own("")));
    if let Some(name) = name {
        initial.insert("hostname-override", name);
    }
    runtime(options, &own, &mut initial);
    if kubelet.server_disables_cloud_controller == Some(false) {
        initial.insert("cloud-provider", own("external"));
    }
    from_options(options, &mut initial);
    credential_provider(tree, options, &own, &mut initial);

    let extra = extra_args(tree, options, &config_dir);
    let mut words = vec![own("kubelet")];
    if flavor.launcher == Launcher::Rke2 {
        words.extend(RKE2_FIRST.map(|(name, value)| own(value).flag(name)));
        words.extend(rke2_cloud_provider(options));
    }
    words.extend(
        merged(initial, extra)
            .into_iter()
            .filter(|given| flavor.launcher != Launcher::Rke2 || !is_logging(&given.word.text)),
    );
    (kubelet.args, kubelet.built_in) = words.into_iter().map(|given| (given.word, given.built_in)).unzip();
    if !has_defaults_file(tree, &config_dir) {
        kubelet.settings = settings(options, &agent);
    }
}

/// The runtime's flags; with another runtime than the distribution's containerd its socket.
fn runtime(options: &Options, own: &dyn Fn(&str) -> Given, initial: &mut BTreeMap<&'static str, Given>) {
    let socket = options.last("container-runtime-endpoint");
    let path = socket.map_or(SOCKET, |word| word.text.as_str());
    let path = path.strip_prefix("unix://").unwrap_or(path);
    if options.is_set("docker") || !path.contains("containerd") {
        return;
    }
    let given = match socket {
        Some(word) => Given::user(Arg { text: path.to_owned(), ..word.clone() }),
        None => own(path),
    };
    initial.insert("containerd", given);
}

/// Options that become a flag of another name, or of their own.
fn from_options(options: &Options, initial: &mut BTreeMap<&'static str, Given>) {
    if let Some(addresses) = joined(options.all("node-ip")) {
        initial.insert("node-ip", addresses);
    }
    if let Some(taints) = joined(options.all("node-taint")) {
        initial.insert("register-with-taints", taints);
    }
    for (option, flag) in [("resolv-conf", "resolv-conf"), ("vmodule", "vmodule"), ("v", "v")] {
        if let Some(word) = options.last(option).filter(|word| !word.text.is_empty()) {
            initial.insert(flag, Given::user(word.clone()));
        }
    }
    if options.is_set("protect-kernel-defaults")
        && let Some(word) = options.last("protect-kernel-defaults")
    {
        let word = Arg { text: "true".to_owned(), ..word.clone() };
        initial.insert("protect-kernel-defaults", Given::user(word));
    }
}

/// The image credential provider's flags, which are given if both its files are there.
fn credential_provider(
    tree: &dyn Tree,
    options: &Options,
    own: &dyn Fn(&str) -> Given,
    initial: &mut BTreeMap<&'static str, Given>,
) {
    let value = |option: &str, default: &str| {
        options.last(option).map_or_else(|| own(default), |word| Given::user(word.clone()))
    };
    let folder = value("image-credential-provider-bin-dir", "/var/lib/rancher/credentialprovider/bin");
    let config = value("image-credential-provider-config", "/var/lib/rancher/credentialprovider/config.yaml");
    let kind = |given: &Given| tree.stat(Path::new(&given.word.text)).ok().map(|meta| meta.kind);
    if kind(&folder) == Some(Kind::Folder) && kind(&config).is_some_and(|kind| kind != Kind::Folder) {
        initial.insert("image-credential-provider-bin-dir", folder);
        initial.insert("image-credential-provider-config", config);
    }
}

/// Values that become one, with commas; each keeps its place as an origin.
fn joined(items: &[Arg]) -> Option<Given> {
    let first = items.first()?;
    let texts: Vec<&str> = items.iter().map(|item| item.text.as_str()).collect();
    let origins = match items {
        [only] => only.origins.clone(),
        _ => {
            items.iter().map(|item| Origin { variable: String::new(), at: item.at().clone(), braces: false }).collect()
        }
    };
    Some(Given::user(Arg { text: texts.join(","), declared: first.declared.clone(), origins }))
}

/// The operator's `kubelet-arg`, without those that k3s 1.32 and later copies into files of `config_dir` at its start:
/// `config` and `config-dir`.
fn extra_args(tree: &dyn Tree, options: &Options, config_dir: &Path) -> Vec<Arg> {
    let copied = |name: &str| tree.lstat(&config_dir.join(name)).is_ok();
    let without_config = copied("10-cli-config.conf");
    let without_dir = copied("20-cli-config-dir");
    options
        .all("kubelet-arg")
        .iter()
        .filter(|word| match split(&word.text).0 {
            "config" => !without_config,
            "config-dir" => !without_dir,
            _ => true,
        })
        .cloned()
        .collect()
}

/// An item of `kubelet-arg`: its flag, and its value.
fn split(item: &str) -> (&str, &str) {
    let item = item.strip_prefix("--").unwrap_or(item);
    item.split_once('=').unwrap_or((item, "true"))
}

/// Joins the distribution's flags and the operator's, as k3s does: a flag of the operator's takes the place of the
/// distribution's of that name; with `+` behind its name it goes after it, with `-` before it. Sorted by name.
fn merged(mut initial: BTreeMap<&'static str, Given>, extra: Vec<Arg>) -> Vec<Given> {
    let mut flags: BTreeMap<String, VecDeque<Given>> = BTreeMap::new();
    for word in extra {
        let (written, value) = split(&word.text);
        let name = written.trim_end_matches(['-', '+']).to_owned();
        let given = Given::user(Arg { text: value.to_owned(), ..word.clone() });
        let own = initial.remove(name.as_str());
        let values = flags.entry(name).or_default();
        if written.ends_with('+') {
            if let Some(own) = own {
                values.push_front(own);
            }
            values.push_back(given);
        } else if written.ends_with('-') {
            if let Some(own) = own {
                values.push_front(own);
            }
            values.push_front(given);
        } else {
            values.push_back(given);
        }
    }
    for (name, given) in initial {
        flags.insert(name.to_owned(), VecDeque::from([given]));
    }
    flags
        .into_iter()
        .flat_map(|(name, values)| values.into_iter().map(|given| given.flag(&name)).collect::<Vec<_>>())
        .collect()
}

/// RKE2's `cloud-provider-name`, under the name that the kubelet gets: two of RKE2's own charts are external
/// providers, and `aws` only names the node.
fn rke2_cloud_provider(options: &Options) -> Option<Given> {
    let word = options.last("cloud-provider-name").filter(|word| !matches!(word.text.as_str(), "" | "aws"))?;
    let name = match word.text.as_str() {
        "rancher-vsphere" | "harvester" => "external",
        name => name,
    };
    Some(Given::user(Arg { text: name.to_owned(), ..word.clone() }).flag("cloud-provider"))
}

fn is_logging(flag: &str) -> bool {
    RKE2_LOGGING.contains(&split(flag).0.replace('_', "-").as_str())
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
