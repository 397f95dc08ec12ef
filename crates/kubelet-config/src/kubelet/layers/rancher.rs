//! k3s and RKE2: the kubelet's flags come from options of the distribution's own, given in `config.yaml`, in
//! `config.yaml.d`, on the command line and in variables. What they mean was read in k3s's `pkg/configfilearg`,
//! `pkg/daemons/agent` and `pkg/util/args.go`, and in RKE2's `pkg/executor/staticpod` and `pkg/cli`, releases 1.31–1.34.

mod options;
#[cfg(test)]
mod tests;
mod words;

use super::{KubeletCommand, Launcher};
use crate::kubelet::location::Located;
use crate::kubelet::machine;
use crate::kubelet::systemd::{Arg, Origin, Unit};
use crate::kubelet::tree::Tree;

/// Which of the four: `k3s agent`, `k3s server`, `rke2 agent`, `rke2 server`.
#[derive(Debug, Clone, Copy)]
struct Program {
    launcher: Launcher,
    /// Whether the node is a part of the control plane.
    is_server: bool,
}

impl Program {
    fn name(self) -> &'static str {
        if self.launcher == Launcher::K3s { "k3s" } else { "rke2" }
    }

    /// What a variable gives to an option: `K3S_NODE_NAME` to `node-name`. `None` where it is not set or empty.
    fn variable(self, unit: &Unit, option: &str) -> Option<Arg> {
        let variable = format!("{}_{option}", self.name()).to_uppercase().replace('-', "_");
        let effective = &unit.variables.get(&variable)?.effective;
        let origins = vec![Origin { variable, at: effective.at.clone(), braces: false }];
        (!effective.value.is_empty()).then(|| Arg { origins, ..Arg::new(&*effective.value, effective.at.clone()) })
    }
}

/// Derives the kubelet's words. `words` are those of the unit from the distribution's program on.
pub(super) fn resolve_command(
    tree: &dyn Tree,
    unit: &Unit,
    launcher: Launcher,
    words: &[Arg],
    hostname: Option<&str>,
) -> KubeletCommand {
    let mut kubelet = KubeletCommand::new(launcher);
    let mut words = words.get(1..).unwrap_or_default().iter();
    let Some(command) = words.find(|word| matches!(word.text.as_str(), "agent" | "server")) else { return kubelet };
    let program = Program { launcher, is_server: command.text == "server" };
    let options = options::read(tree, unit, program, words.as_slice(), &mut kubelet);
    if program.is_server {
        let has_cloud = launcher == Launcher::Rke2 && options.text("cloud-provider-name").is_some();
        kubelet.server_disables_cloud_controller = Some(options.is_set("disable-cloud-controller") || has_cloud);
        if options.is_set("disable-agent") {
            let at = options.last("disable-agent").unwrap_or(command).at().clone();
            let name = program.name();
            let reason = format!("{name} runs without an agent (disable-agent): there is no kubelet here");
            return kubelet.with_unknown(at, reason);
        }
    }
    let name = node_name(tree, &options, hostname);
    words::build(tree, program, &options, name, command, &mut kubelet);
    kubelet
}

/// The name that the node gets: the option's, else the host's, in small letters, with the node's id where that is
/// asked for. `None` where it cannot be known.
fn node_name(tree: &dyn Tree, options: &options::Options, hostname: Option<&str>) -> Option<Arg> {
    let mut name = match options.last("node-name") {
        Some(word) if !word.text.is_empty() => word.clone(),
        _ => {
            let Located { value, at } = machine::hostname(tree, hostname)?;
            Arg { built_in: true, ..Arg::new(value, at) }
        }
    };
    name.text = name.text.to_lowercase();
    if options.is_set("with-node-id") {
        let id = tree.read_text("/etc/rancher/node/id".as_ref()).ok()?;
        name.text = format!("{}-{}", name.text, id.trim());
    }
    Some(name)
}
