//! Memory and swap, as the kernel counts them.

use super::{
    super::{
        location::Location,
        text::{numbered, small, word},
        tree::Tree,
    },
    Located, Swap,
};

/// `MemTotal` of `/proc/meminfo`, in bytes.
pub(super) fn total(tree: &dyn Tree) -> Option<Located<u64>> {
    const PATH: &str = "/proc/meminfo";
    let text = small(tree, PATH)?;
    numbered(&text).find_map(|(number, line)| {
        let kib = line.strip_prefix("MemTotal:")?.split_whitespace().next()?;
        Some(Located {
            value: kib.parse::<u64>().ok()?.checked_mul(1024)?,
            at: word(&Location::file(PATH), number, line, kib).at,
        })
    })
}

/// The entries of `/proc/swaps`: everything below its heading, as the kubelet counts it.
pub(super) fn swaps(tree: &dyn Tree) -> Option<Vec<Located<Swap>>> {
    const PATH: &str = "/proc/swaps";
    let text = small(tree, PATH)?;
    let file = Location::file(PATH);
    let entries = numbered(&text)
        .skip(1)
        .filter_map(|(number, line)| {
            let mut columns = line.split_whitespace();
            let device = columns.next()?;
            let kib: u64 = columns.nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
            let device = word(&file, number, line, device);
            Some(Located { value: Swap { device: device.value, size_bytes: kib.saturating_mul(1024) }, at: device.at })
        })
        .collect();
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

    #[test]
    fn swap_is_every_line_below_the_heading() {
        let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        let tree = MemoryTree::new().file("/proc/swaps", heading);
        assert_eq!(swaps(&tree), Some(Vec::new()));
        assert_eq!(swaps(&MemoryTree::new()), None);
        let text = format!("{heading}/dev/zram0    partition\t4194304\t\t0\t\t100\n/swap file\n");
        let found = swaps(&MemoryTree::new().file("/proc/swaps", text)).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].value.device, "/dev/zram0");
        assert_eq!(found[0].value.size_bytes, 4 << 30);
        assert_eq!(found[0].at.to_string(), "/proc/swaps:2");
        assert_eq!((found[0].at.column, found[0].at.width), (1, 10));
    }

    #[test]
    fn the_memory_is_in_bytes() {
        let tree = MemoryTree::new().file("/proc/meminfo", "MemTotal:        8024832 kB\nMemFree: 1 kB\n");
        let found = total(&tree).unwrap();
        assert_eq!(found.value, 8_024_832 * 1024);
        assert_eq!(found.at.to_string(), "/proc/meminfo:1");
        let odd = MemoryTree::new().file("/proc/meminfo", "MemTotal: lots\n");
        assert_eq!(total(&odd), None);
    }
}
