//! The addresses of the host's interfaces.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

/// Every address of an interface, also of the loopback one.
///
/// # Errors
/// When there is none, as in a sandbox that forbids netlink sockets (`RestrictAddressFamilies=` of `systemd.exec(5)`).
pub fn addresses() -> Result<Vec<String>, String> {
    let interfaces = getifaddrs().map_err(|error| format!("getifaddrs(3): {error}"))?;
    let of_all: BTreeSet<_> = interfaces.filter_map(|interface| ip(&interface.address?)).collect();
    if of_all.is_empty() {
        return Err("the kernel lists none (rtnetlink(7))".into());
    }
    Ok(of_all.iter().map(ToString::to_string).collect())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        assert!(addresses().unwrap().contains(&"127.0.0.1".to_owned()));
    }
}
