//! The distribution's options, each value with its place: files, then the command line, then variables for what neither
//! gives.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    super::{
        super::{
            config::document::{self, Node, Value},
            place::Place,
            systemd::{Origin, Unit, Word},
            tree::{Kind, Tree},
        },
        Launch, ReplacedList,
    },
    Flavor,
};

/// Options that may be given several times, of those that bear on the kubelet.
const LISTS: [&str; 3] = ["kubelet-arg", "node-label", "node-taint"];

/// Options that take no word of their own on the command line; from `k3s server --help` and `rke2 server --help`.
const SWITCHES: [&str; 44] = [
    "alsologtostderr",
    "cluster-init",
    "cluster-reset",
    "debug",
    "disable-agent",
    "disable-apiserver",
    "disable-apiserver-lb",
    "disable-cloud-controller",
    "disable-controller-manager",
    "disable-default-registry-endpoint",
    "disable-etcd",
    "disable-helm-controller",
    "disable-kube-proxy",
    "disable-network-policy",
    "disable-scheduler",
    "disable-selinux",
    "docker",
    "embedded-registry",
    "enable-pprof",
    "enable-servicelb",
    "etcd-disable-snapshots",
    "etcd-expose-metrics",
    "etcd-s3",
    "etcd-s3-insecure",
    "etcd-s3-skip-ssl-verify",
    "etcd-snapshot-compress",
    "flannel-external-ip",
    "flannel-ipv6-masq",
    "h",
    "help",
    "kine-tls",
    "multi-cluster-cidr",
    "no-flannel",
    "node-name-from-cloud-provider-metadata",
    "nonroot-devices",
    "prefer-bundled-bin",
    "protect-kernel-defaults",
    "rootless",
    "secrets-encryption",
    "selinux",
    "supervisor-metrics",
    "tls-san-security",
    "version",
    "with-node-id",
];

/// Options that a variable may give, of those that bear on the kubelet; the variable is the option in capitals with
/// `_`, behind `K3S_` or `RKE2_`.
const FROM_VARIABLES: [&str; 5] = [
    "node-name",
    "resolv-conf",
    "data-dir",
    "cloud-provider-name",
    "kubelet-path",
];

/// What else the programs and their installers read behind `K3S_` or `RKE2_`; from docs.k3s.io/reference/env-variables
/// and the `EnvVar` of each option.
const VARIABLES: [&str; 36] = [
    "AGENT_TOKEN",
    "AGENT_TOKEN_FILE",
    "AUDIT_POLICY_FILE",
    "CIS_PROFILE",
    "CLOUD_CONTROLLER_MANAGER_IMAGE",
    "CLOUD_PROVIDER_CONFIG",
    "CLUSTER_INIT",
    "CLUSTER_RESET",
    "CLUSTER_SECRET",
    "CNI",
    "CONFIG_FILE",
    "DATASTORE_CAFILE",
    "DATASTORE_CERTFILE",
    "DATASTORE_ENDPOINT",
    "DATASTORE_KEYFILE",
    "DEBUG",
    "ETCD_IMAGE",
    "INGRESS_CONTROLLER",
    "KUBECONFIG_GROUP",
    "KUBECONFIG_MODE",
    "KUBECONFIG_OUTPUT",
    "KUBE_APISERVER_IMAGE",
    "KUBE_CONTROLLER_MANAGER_IMAGE",
    "KUBE_PROXY_IMAGE",
    "KUBE_SCHEDULER_IMAGE",
    "LB_SERVER_PORT",
    "NODE_NAME_FROM_CLOUD_PROVIDER_METADATA",
    "PAUSE_IMAGE",
    "RUNTIME_IMAGE",
    "SELINUX",
    "SYSTEM_DEFAULT_REGISTRY",
    "TOKEN",
    "TOKEN_FILE",
    "URL",
    "VPN_AUTH",
    "VPN_AUTH_FILE",
];

/// The most files of `config.yaml.d` that are read.
const MAX_FILES: usize = 256;

/// Whether the distribution reads a variable of this name.
pub(in super::super) fn reads_variable(flavor: &Flavor, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(flavor.variables) else {
        return false;
    };
    VARIABLES.contains(&rest)
        || FROM_VARIABLES
            .iter()
            .any(|option| variable_of(option) == rest)
}

fn variable_of(option: &str) -> String {
    option.to_uppercase().replace('-', "_")
}

/// An option's values.
#[derive(Debug, Clone)]
struct Values {
    /// The key, or the first word.
    at: Place,
    /// The values; of a word only its text is replaced, so that it keeps where it comes from.
    items: Vec<Word>,
}

/// The options that count.
#[derive(Debug, Default)]
pub(super) struct Options(BTreeMap<String, Values>);

impl Options {
    /// The values of an option, in order.
    pub(super) fn all(&self, option: &str) -> &[Word] {
        self.0
            .get(option)
            .map_or(&[], |values| values.items.as_slice())
    }

    /// The value of an option whose last one counts.
    pub(super) fn last(&self, option: &str) -> Option<&Word> {
        self.all(option).last()
    }

    /// The text of the same, if it is not empty.
    pub(super) fn text(&self, option: &str) -> Option<&str> {
        self.last(option)
            .map(|word| word.text.as_str())
            .filter(|text| !text.is_empty())
    }

    /// Whether a switch is on, as Go reads it.
    pub(super) fn is_set(&self, option: &str) -> bool {
        self.text(option)
            .is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }
}

/// Reads all options; `words` are those behind `agent` or `server`. Notes in `launch` what was read, replaced and
/// could not be read.
pub(super) fn read(
    tree: &dyn Tree,
    unit: &Unit,
    flavor: &Flavor,
    words: &[Word],
    launch: &mut Launch,
) -> Options {
    let given = command_line(words);
    let mut options = Options::default();
    for file in config_files(tree, unit, flavor, &given, launch) {
        read_file(tree, &file, &mut options, launch);
    }
    for (option, values) in given {
        // k3s's and RKE2's documentation: the command line overwrites all values of the list. (Their parser puts the
        // files' values before the command line's, into a list that would keep both: who relies on that, relies on
        // what the documentation denies.)
        replace(&mut options, option, values, true, launch);
    }
    for option in FROM_VARIABLES {
        let variable = format!("{}{}", flavor.variables, variable_of(option));
        if let (None, Some(word)) = (options.last(option), of_variable(unit, &variable)) {
            options.0.insert(
                option.to_owned(),
                Values {
                    at: word.declared.clone(),
                    items: vec![word],
                },
            );
        }
    }
    options
}

/// A variable's value, as a word that knows where it comes from; `None` where it is not set or empty.
fn of_variable(unit: &Unit, name: &str) -> Option<Word> {
    let winner = &unit.variables.get(name)?.winner;
    (!winner.value.is_empty()).then(|| Word {
        text: winner.value.clone(),
        declared: winner.at.clone(),
        origins: vec![Origin {
            variable: name.to_owned(),
            at: winner.at.clone(),
            braces: false,
        }],
    })
}

/// The options of the command line, in Go's way: one dash or two, the value behind `=` or in the next word.
fn command_line(words: &[Word]) -> Vec<(String, Values)> {
    let mut found: Vec<(String, Values)> = Vec::new();
    let mut index = BTreeMap::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.text.strip_prefix('-') else {
            continue;
        };
        let text = text.strip_prefix('-').unwrap_or(text);
        if text.is_empty() {
            // `--` ends the options.
            break;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let option = long_name(name).to_owned();
        let item = match value {
            Some(value) => with_text(word, value),
            None if SWITCHES.contains(&option.as_str()) => with_text(word, "true".to_owned()),
            None => match words.next() {
                Some(next) => next.clone(),
                None => break,
            },
        };
        let place = *index.entry(option.clone()).or_insert_with(|| {
            found.push((
                option,
                Values {
                    at: word.at().clone(),
                    items: Vec::new(),
                },
            ));
            found.len() - 1
        });
        if let Some((_, values)) = found.get_mut(place) {
            values.items.push(item);
        }
    }
    found
}

fn with_text(word: &Word, text: String) -> Word {
    Word {
        text,
        ..word.clone()
    }
}

/// The options that have a letter of their own.
fn long_name(name: &str) -> &str {
    match name {
        "c" => "config",
        "d" => "data-dir",
        "i" => "node-ip",
        "l" => "log",
        "s" => "server",
        "t" => "token",
        name => name,
    }
}

/// The configuration files, in the order in which they are read. The variable goes before the option.
fn config_files(
    tree: &dyn Tree,
    unit: &Unit,
    flavor: &Flavor,
    given: &[(String, Values)],
    launch: &mut Launch,
) -> Vec<PathBuf> {
    let named = of_variable(unit, &format!("{}CONFIG_FILE", flavor.variables)).or_else(|| {
        given
            .iter()
            .find(|(option, _)| option == "config")?
            .1
            .items
            .first()
            .cloned()
    });
    let main = match &named {
        Some(word) if word.text.starts_with("http://") || word.text.starts_with("https://") => {
            launch.unreadable.push((
                word.at().clone(),
                format!("the configuration is at {}, which is not asked", word.text),
            ));
            return Vec::new();
        }
        Some(word) if word.text.is_empty() => return Vec::new(),
        Some(word) => PathBuf::from(&word.text),
        None => PathBuf::from(format!("/etc/rancher/{}/config.yaml", flavor.name)),
    };
    let mut folder = main.clone().into_os_string();
    folder.push(".d");
    let folder = PathBuf::from(folder);
    let drop_ins = tree.list(&folder).unwrap_or_default();
    let drop_ins = drop_ins
        .into_iter()
        .filter(|name| {
            let name = name.to_string_lossy().to_lowercase();
            name.ends_with(".yaml") || name.ends_with(".yml")
        })
        .map(|name| folder.join(name))
        .filter(|path| {
            tree.lstat(path)
                .is_ok_and(|meta| meta.kind != Kind::Folder)
        })
        .take(MAX_FILES);
    let has_main = tree.lstat(&main).is_ok();
    has_main.then(|| main.clone()).into_iter().chain(drop_ins).collect()
}

/// Reads a configuration file over what the earlier ones gave.
fn read_file(tree: &dyn Tree, path: &Path, options: &mut Options, launch: &mut Launch) {
    let place = Place::file(path);
    let document = match tree.read_text(path) {
        Ok(text) => document::parse(&place, &text),
        Err(error) => {
            launch.unreadable.push((place, error.to_string()));
            return;
        }
    };
    let document = match document {
        Ok(document) => document,
        Err(error) => {
            launch.unreadable.push((error.at, error.reason));
            return;
        }
    };
    launch.files.push(place);
    let entries = match document.value {
        Value::Map(entries) => entries,
        Value::Null => return,
        _ => {
            launch.unreadable.push((
                document.at,
                "is no map of options, as `key: value`".to_owned(),
            ));
            return;
        }
    };
    for entry in entries {
        let (key, appends) = match entry.key.strip_suffix('+') {
            Some(key) => (key, true),
            None => (entry.key.as_str(), false),
        };
        let option = long_name(key).to_owned();
        let is_null = entry.node.value == Value::Null;
        let values = Values {
            at: entry.at,
            items: items(&entry.node),
        };
        match options.0.get_mut(&option) {
            Some(_) if appends && is_null => {}
            Some(existing) if appends => existing.items.extend(values.items),
            _ => replace(options, option, values, false, launch),
        }
    }
}

/// The values of a key: of a list each, of anything else one. A map, which no option takes, gives none.
fn items(node: &Node) -> Vec<Word> {
    let word = |node: &Node| {
        let text = match node.value {
            Value::Null => String::new(),
            _ => node.text()?,
        };
        Some(Word {
            text,
            declared: node.at.clone(),
            origins: Vec::new(),
        })
    };
    match &node.value {
        Value::List(items) => items.iter().filter_map(word).collect(),
        _ => word(node).into_iter().collect(),
    }
}

/// Puts values in the place of earlier ones; what a list loses is noted.
fn replace(
    options: &mut Options,
    option: String,
    values: Values,
    by_command_line: bool,
    launch: &mut Launch,
) {
    let by = values.at.clone();
    let is_list = LISTS.contains(&option.as_str());
    let lost = match options.0.get(&option) {
        Some(old) if is_list => old
            .items
            .iter()
            .filter(|item| {
                !values
                    .items
                    .iter()
                    .any(|new| name_of(&option, &new.text) == name_of(&option, &item.text))
            })
            .map(|item| (item.text.clone(), item.at().clone()))
            .collect(),
        _ => Vec::new(),
    };
    if let Some(old) = options.0.insert(option.clone(), values)
        && !lost.is_empty()
    {
        launch.replaced.push(ReplacedList {
            key: option,
            at: old.at,
            lost,
            by,
            by_command_line,
        });
    }
}

/// What an item sets: an item that the later list sets to something else is overridden, which may be meant, and not
/// lost.
fn name_of<'a>(option: &str, item: &'a str) -> &'a str {
    let item = if option == "kubelet-arg" {
        item.strip_prefix("--").unwrap_or(item)
    } else {
        item
    };
    item.split('=').next().unwrap_or(item)
}
