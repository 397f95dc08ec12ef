//! The addresses of the host's interfaces, from the kernel's tables in /proc/net. Not by getifaddrs(3), for which the agent's unit would
//! have to allow netlink sockets.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use kubelet_config::kubelet::tree::{Tree, Unreadable};

/// Room for the routes of a node with some thousand pods.
const MAX_BYTES: usize = 8 << 20;

/// Every address of an interface, also of the loopback one. Those of IPv6 only where the kernel has it.
///
/// # Errors
/// When the routes cannot be read.
pub fn addresses(tree: &dyn Tree) -> Result<Vec<String>, Unreadable> {
    let read = |path| tree.read_bounded(Path::new(path), MAX_BYTES);
    let routes = read("/proc/net/fib_trie")?;
    let interfaces = read("/proc/net/if_inet6").unwrap_or_default();
    let mut found: Vec<IpAddr> = ipv4(&String::from_utf8_lossy(&routes)).map(IpAddr::V4).collect();
    found.extend(ipv6(&String::from_utf8_lossy(&interfaces)).map(IpAddr::V6));
    found.sort_unstable();
    found.dedup();
    Ok(found.iter().map(ToString::to_string).collect())
}

/// `|-- 10.0.0.7` followed by `/32 host LOCAL`.
fn ipv4(table: &str) -> impl Iterator<Item = Ipv4Addr> {
    table.lines().zip(table.lines().skip(1)).filter_map(|(line, next)| {
        let address = line.trim().strip_prefix("|-- ")?;
        (next.trim() == "/32 host LOCAL").then(|| address.parse().ok())?
    })
}

/// The first column is the address, 32 hexadecimal digits.
fn ipv6(table: &str) -> impl Iterator<Item = Ipv6Addr> {
    let digits = table.lines().filter_map(|line| line.split_whitespace().next());
    digits.filter_map(|digits| u128::from_str_radix(digits, 16).ok().map(Ipv6Addr::from))
}

#[cfg(test)]
mod tests {
    use kubelet_config::kubelet::tree::MemoryTree;

    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let routes = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n        |-- 10.0.0.0\n           \
                      /24 link UNICAST\n        |-- 10.0.0.7\n           /32 host LOCAL\nLocal:\n        |-- 10.0.0.7\n           \
                      /32 host LOCAL\n";
        let tree = MemoryTree::new()
            .file("/proc/net/fib_trie", routes)
            .file("/proc/net/if_inet6", "fd000000000000000000000000000007 02 40 00 80     eth0\n");
        assert_eq!(addresses(&tree).unwrap(), ["10.0.0.7", "fd00::7"]);
        assert_eq!(addresses(&MemoryTree::new()), Err(Unreadable::NotFound));
    }
}
