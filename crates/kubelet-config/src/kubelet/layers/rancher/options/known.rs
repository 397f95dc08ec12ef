//! Which options k3s and RKE2 have: `options.txt`.

use std::{collections::BTreeMap, sync::LazyLock};

use super::super::{super::Launcher, Flavor, Role};

/// Names longer than this are not compared: no option has so many letters.
const MAX_NAME_CHARS: usize = 64;

/// A line of the table.
struct Known {
    k3s: &'static str,
    rke2: &'static str,
    is_switch: bool,
}

static OPTIONS: LazyLock<BTreeMap<&str, Known>> = LazyLock::new(|| {
    let lines = include_str!("../options.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut columns = line.split_whitespace();
            let (name, k3s, rke2) = (columns.next()?, columns.next()?, columns.next()?);
            Some((name, Known { k3s, rke2, is_switch: columns.next() == Some("switch") }))
        })
        .collect()
});

/// Whether the option takes no value on the command line.
pub(super) fn is_switch(option: &str) -> bool {
    OPTIONS.get(option).is_some_and(|known| known.is_switch)
}

impl Known {
    fn is_of(&self, flavor: &Flavor, role: Role) -> bool {
        let commands = if flavor.launcher == Launcher::K3s { self.k3s } else { self.rke2 };
        let command = if role == Role::Agent { "agent" } else { "server" };
        commands.split(',').any(|one| one == command)
    }
}

/// Whether `k3s agent`, `k3s server` and so on have the option. An agent of RKE2 skips those of the server without harm:
/// people write one file for both.
pub(super) fn is_known(flavor: &Flavor, role: Role, option: &str) -> bool {
    let role = if flavor.launcher == Launcher::Rke2 { Role::Server } else { role };
    OPTIONS.get(option).is_some_and(|known| known.is_of(flavor, role))
}

/// The option that was probably meant.
pub(super) fn meant(flavor: &Flavor, role: Role, key: &str) -> Option<&'static str> {
    if key.chars().count() > MAX_NAME_CHARS {
        return None;
    }
    let key = key.to_lowercase().replace('_', "-");
    let near = OPTIONS.iter().filter(|(_, known)| known.is_of(flavor, role));
    let near = near.map(|(name, _)| (strsim::levenshtein(&key, name), *name)).min()?;
    (near.0 <= 2 && near.1.len() > 4).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{K3S, RKE2},
        *,
    };

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
        assert!(is_known(&K3S, Role::Agent, "kubelet-arg") && is_known(&RKE2, Role::Server, "kubelet-arg"));
        assert!(is_known(&K3S, Role::Server, "flannel-backend") && !is_known(&RKE2, Role::Server, "flannel-backend"));
        assert!(!is_known(&K3S, Role::Agent, "disable") && is_switch("debug") && !is_switch("node-ip"));
    }

    #[test]
    fn a_slip_is_told_from_another_word() {
        for key in ["kublet-arg", "kubelet-args", "kubelet_arg", "kubeletArg", "Kubelet-Arg"] {
            assert_eq!(meant(&K3S, Role::Server, key), Some("kubelet-arg"), "{key}");
        }
        assert_eq!(meant(&K3S, Role::Server, "max-pods"), None);
        assert_eq!(meant(&K3S, Role::Agent, "disable"), None);
        assert_eq!(meant(&K3S, Role::Server, &"k".repeat(1 << 20)), None);
    }
}
