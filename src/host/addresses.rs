//! The addresses of the host's interfaces.

use std::collections::BTreeSet;

use sysinfo::{NetworkData, Networks};

/// Every address of an interface, also of the loopback one.
///
/// # Errors
/// When there is none, as in a sandbox that forbids netlink sockets (`RestrictAddressFamilies=` of `systemd.exec(5)`).
pub fn addresses() -> Result<Vec<String>, String> {
    let networks = Networks::new_with_refreshed_list().map_err(|error| error.to_string())?;
    let of_all: BTreeSet<_> = networks.values().flat_map(NetworkData::ip_networks).map(|ip| ip.addr).collect();
    if of_all.is_empty() {
        return Err("the kernel lists none (rtnetlink(7))".into());
    }
    Ok(of_all.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        assert!(addresses().unwrap().contains(&"127.0.0.1".to_owned()));
    }
}
