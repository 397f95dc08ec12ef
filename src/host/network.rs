//! What the configuration's rules judge of the host's network, for the helper, which has a network of its own.

use std::path::Path;

use super::{addresses::addresses, files::Root, tree::HostTree};
use crate::{
    helper::protocol::Network,
    kubelet::{machine::kernel, tree::Tree},
};

/// Reads it; what cannot be read is left out.
pub fn read(root: &Root) -> Network {
    let Ok(tree) = HostTree::new(&root.join("/")) else {
        return Network::default();
    };
    let value = |name: &'static str| {
        let text = tree.read_text(Path::new(&kernel::sysctl_path(name))).ok()?;
        Some((name.to_owned(), text.trim().to_owned()))
    };
    Network {
        sysctls: kernel::of_the_network().filter_map(value).collect(),
        addresses: addresses(&tree).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_network() {
        let network = read(&Root::default());
        assert!(
            network.sysctls.contains_key("net.ipv4.ip_forward"),
            "{network:?}"
        );
        assert!(network.addresses.is_some_and(|all| !all.is_empty()));
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(read(&Root::new(nothing.path())), Network::default());
    }
}
