//! The addresses of this host's interfaces, from the kernel's own tables in `/proc/net`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use crate::kubelet::tree::{Tree, Unreadable};

/// Room for the routes of a node with some thousand pods.
const MAX_BYTES: usize = 8 << 20;

/// Every address of an interface, loopback ones too, each once; those of IPv6 only where the kernel has it.
pub fn addresses(tree: &dyn Tree) -> Result<Vec<String>, Unreadable> {
    let routes = tree.read_bounded(Path::new("/proc/net/fib_trie"), MAX_BYTES)?;
    let mut found: Vec<IpAddr> = ipv4(&String::from_utf8_lossy(&routes))
        .map(IpAddr::V4)
        .collect();
    if let Ok(table) = tree.read_bounded(Path::new("/proc/net/if_inet6"), MAX_BYTES) {
        found.extend(ipv6(&String::from_utf8_lossy(&table)).map(IpAddr::V6));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found.iter().map(ToString::to_string).collect())
}

/// `|-- 10.0.0.7` followed by `/32 host LOCAL`.
fn ipv4(table: &str) -> impl Iterator<Item = Ipv4Addr> {
    let below = table.lines().skip(1);
    table.lines().zip(below).filter_map(|(line, next)| {
        let address = line.trim().strip_prefix("|-- ")?;
        (next.trim() == "/32 host LOCAL").then(|| address.parse().ok())?
    })
}

/// The first column is the address, 32 hexadecimal digits.
fn ipv6(table: &str) -> impl Iterator<Item = Ipv6Addr> {
    table.lines().filter_map(|line| {
        let digits = line.split_whitespace().next()?;
        u128::from_str_radix(digits, 16).ok().map(Ipv6Addr::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

    #[test]
    fn the_kernels_tables_are_read() {
        let tree = MemoryTree::new()
            .file(
                "/proc/net/fib_trie",
                "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.0.0.0/24 2 0 2\n        |-- 10.0.0.0\n           /24 link UNICAST\n        |-- 10.0.0.7\n           /32 host LOCAL\n        |-- 10.0.0.255\n           /32 link BROADCAST\nLocal:\n        |-- 10.0.0.7\n           /32 host LOCAL\n",
            )
            .file(
                "/proc/net/if_inet6",
                "fd000000000000000000000000000007 02 40 00 80     eth0\n",
            );
        assert_eq!(addresses(&tree).unwrap(), ["10.0.0.7", "fd00::7"]);
        assert_eq!(addresses(&MemoryTree::new()), Err(Unreadable::NotFound));
    }
}
