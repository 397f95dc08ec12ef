//! k3s and RKE2: the kubelet's flags come from options of the distribution's own, given in `config.yaml`, in
//! `config.yaml.d`, on the command line and in variables. What they mean was read in k3s's `pkg/configfilearg`,
//! `pkg/daemons/agent` and `pkg/util/args.go`, and in RKE2's `pkg/executor/staticpod` and `pkg/cli`, releases 1.31–1.34.

mod options;
#[cfg(test)]
mod tests;
mod words;

use super::{
    super::{systemd::Unit, tree::Tree},
    KubeletCommand, Launcher, Unknown,
};

/// What k3s and RKE2 differ in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flavor {
    /// The program, and the name of its folders.
    name: &'static str,
    /// What its variables start with.
    variables: &'static str,
    launcher: Launcher,
}

/// k3s.
pub(super) static K3S: Flavor = Flavor { name: "k3s", variables: "K3S_", launcher: Launcher::K3s };

/// RKE2.
pub(super) static RKE2: Flavor = Flavor { name: "rke2", variables: "RKE2_", launcher: Launcher::Rke2 };

/// Whether the node is a part of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Agent,
}

/// Derives the kubelet's words. `first` is the distribution's program in the unit's argument list.
pub(super) fn resolve_command(
    tree: &dyn Tree,
    unit: &Unit,
    flavor: &'static Flavor,
    first: usize,
    hostname: Option<&str>,
) -> KubeletCommand {
    let mut kubelet = KubeletCommand::new(flavor.launcher);
    let Some((command, role)) = command(unit, first) else {
        return kubelet;
    };
    let Some(word) = unit.argv.get(command) else {
        return kubelet;
    };
    let options =
        options::read(tree, unit, (flavor, role), unit.argv.get(command + 1..).unwrap_or_default(), &mut kubelet);
    let with_cloud_provider = flavor.launcher == Launcher::Rke2 && options.text("cloud-provider-name").is_some();
    if role == Role::Server {
        kubelet.server_disables_cloud_controller =
            Some(options.is_set("disable-cloud-controller") || with_cloud_provider);
        if options.is_set("disable-agent") {
            let at = options.last("disable-agent").map_or_else(|| word.at().clone(), |given| given.at().clone());
            kubelet.unknown = Some(Unknown {
                at,
                program: flavor.name.to_owned(),
                reason: "runs without an agent (disable-agent): there is no kubelet here".to_owned(),
            });
            return kubelet;
        }
    }
    let name = node_name(tree, &options, hostname);
    words::build(tree, flavor, &options, name, word, &mut kubelet);
    kubelet
}

/// Where `agent` or `server` is.
fn command(unit: &Unit, first: usize) -> Option<(usize, Role)> {
    unit.argv.iter().enumerate().skip(first + 1).find_map(|(index, word)| match word.text.as_str() {
        "agent" => Some((index, Role::Agent)),
        "server" => Some((index, Role::Server)),
        _ => None,
    })
}

/// The name that the node gets: the option's, else the host's, in small letters, with the node's id where that is
/// asked for. `None` where it cannot be known.
fn node_name(tree: &dyn Tree, options: &options::Options, hostname: Option<&str>) -> Option<words::Given> {
    let mut name = match options.last("node-name") {
        Some(word) if !word.text.is_empty() => words::Given::user(word.clone()),
        _ => {
            let place = super::Location::file("/etc/hostname").at_line(1);
            let text = match hostname {
                Some(hostname) => hostname.to_owned(),
                None => tree
                    .read_text("/etc/hostname".as_ref())
                    .ok()?
                    .lines()
                    .map(str::trim)
                    .find(|line| !line.is_empty() && !line.starts_with('#'))?
                    .to_owned(),
            };
            words::Given::built_in(super::Arg { text, declared: place, origins: Vec::new() })
        }
    };
    name.word.text = name.word.text.to_lowercase();
    if options.is_set("with-node-id") {
        let id = tree.read_text("/etc/rancher/node/id".as_ref()).ok()?;
        name.word.text = format!("{}-{}", name.word.text, id.trim());
    }
    Some(name)
}
