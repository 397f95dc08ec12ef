//! Which options k3s and RKE2 have: `options.txt`.

use std::{collections::BTreeMap, sync::LazyLock};

use super::super::{
    super::{super::table::rows, Launcher},
    Program,
};

/// Names longer than this are not compared: no option has so many letters.
const MAX_NAME_CHARS: usize = 64;

/// A line of the table.
struct Known {
    k3s: &'static str,
    rke2: &'static str,
    is_switch: bool,
}

static OPTIONS: LazyLock<BTreeMap<&str, Known>> = LazyLock::new(|| {
    let lines = rows(include_str!("../options.txt"));
    lines.map(|[name, k3s, rke2, switch]| (name, Known { k3s, rke2, is_switch: switch == "switch" })).collect()
});

/// Whether the option takes no value on the command line.
pub(super) fn is_switch(option: &str) -> bool {
    OPTIONS.get(option).is_some_and(|known| known.is_switch)
}

impl Known {
    fn is_of(&self, program: Program) -> bool {
        let commands = if program.launcher == Launcher::K3s { self.k3s } else { self.rke2 };
        commands.contains(if program.is_server { "server" } else { "agent" })
    }
}

/// Whether `k3s agent`, `k3s server` and so on have the option. An agent of RKE2 skips those of the server without harm:
/// people write one file for both.
pub(super) fn is_known(program: Program, option: &str) -> bool {
    let is_server = program.is_server || program.launcher == Launcher::Rke2;
    OPTIONS.get(option).is_some_and(|known| known.is_of(Program { is_server, ..program }))
}

/// The option that was probably meant.
pub(super) fn meant(program: Program, key: &str) -> Option<&'static str> {
    if key.chars().count() > MAX_NAME_CHARS {
        return None;
    }
    let key = key.to_lowercase().replace('_', "-");
    let near = OPTIONS.iter().filter(|(_, known)| known.is_of(program));
    let near = near.map(|(name, _)| (strsim::levenshtein(&key, name), *name)).min()?;
    (near.0 <= 2 && near.1.len() > 4).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const K3S_AGENT: Program = Program { launcher: Launcher::K3s, is_server: false };
    const K3S_SERVER: Program = Program { is_server: true, ..K3S_AGENT };
    const RKE2_SERVER: Program = Program { launcher: Launcher::Rke2, is_server: true };

    #[test]
    fn every_line_of_the_table_is_an_option() {
        let lines = include_str!("../options.txt").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), OPTIONS.len());
        for (name, known) in OPTIONS.iter() {
            let columns = [known.k3s, known.rke2];
            assert!(
                columns
                    .iter()
                    .all(|column| ["-", "agent,server", "server"].contains(column) || *name == "disable-apiserver-lb"),
                "{name}"
            );
        }
        assert!(is_known(K3S_AGENT, "kubelet-arg") && is_known(RKE2_SERVER, "kubelet-arg"));
        assert!(is_known(K3S_SERVER, "flannel-backend") && !is_known(RKE2_SERVER, "flannel-backend"));
        assert!(!is_known(K3S_AGENT, "disable") && is_switch("debug") && !is_switch("node-ip"));
    }

    #[test]
    fn a_slip_is_told_from_another_word() {
        for key in ["kublet-arg", "kubelet-args", "kubelet_arg", "kubeletArg", "Kubelet-Arg"] {
            assert_eq!(meant(K3S_SERVER, key), Some("kubelet-arg"), "{key}");
        }
        assert_eq!(meant(K3S_SERVER, "max-pods"), None);
        assert_eq!(meant(K3S_AGENT, "disable"), None);
        assert_eq!(meant(K3S_SERVER, &"k".repeat(1 << 20)), None);
    }
}
