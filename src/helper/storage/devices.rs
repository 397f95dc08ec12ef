//! The names by which the kernel's log speaks of the disk below a file system: the partition, its disk, and what a mapped
//! device (LVM, RAID, encryption) lies on. From sysfs, which is in memory.

use std::path::Path;

use super::mounts::Mount;
use crate::host::files::Root;

/// More disks than any volume that is watched here lies on; a wider one is known by the first of them.
const MAX_NAMES: usize = 16;

/// The names, that of the mounted device first; none for a file system without a disk.
pub(super) fn names(root: &Root, mount: &Mount) -> Vec<String> {
    let mut names = Vec::new();
    // A file system of several devices (btrfs) has a number that is no device's.
    let by_number = format!("/sys/dev/block/{}", mount.device);
    let by_source = Path::new(&mount.source)
        .strip_prefix("/dev")
        .ok()
        .and_then(|name| name.to_str())
        .map(|name| format!("/sys/class/block/{name}"));
    for link in [Some(by_number), by_source].into_iter().flatten() {
        if names.is_empty() {
            add(root, &link, &mut names);
        }
    }
    let mut next = 0;
    while let Some(name) = names.get(next).cloned() {
        next += 1;
        let below = root.list(format!("/sys/class/block/{name}/slaves"));
        for slave in below.unwrap_or_default() {
            add(root, &format!("/sys/class/block/{slave}"), &mut names);
        }
    }
    names
}

/// The device that a link of sysfs leads to, and the disk that it is a partition of: `…/block/sda/sda1`.
fn add(root: &Root, link: &str, names: &mut Vec<String>) {
    let Ok(target) = root.read_link(link) else {
        return;
    };
    let mut parts = target.iter().rev().filter_map(|part| part.to_str());
    let device = parts.next();
    let disk = parts.next().filter(|parent| *parent != "block");
    // Only a partition lies in its disk's folder: `…/nvme0/nvme0n1` is a disk in its controller's.
    let disk = disk.filter(|disk| root.is_dir(format!("/sys/class/block/{disk}")));
    for name in [device, disk].into_iter().flatten() {
        if names.len() < MAX_NAMES && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::helper::testing::host;

    /// A device's folder below `/sys/devices` and the links to it.
    fn device(root: &Root, number: &str, folder: &str) {
        let name = folder.rsplit('/').next().unwrap();
        root.create_dir_all(format!("/sys/devices/{folder}"))
            .unwrap();
        for (links, link) in [("dev/block", number), ("class/block", name)] {
            root.create_dir_all(format!("/sys/{links}")).unwrap();
            let target = format!("../../devices/{folder}");
            symlink(target, root.join(format!("/sys/{links}/{link}"))).unwrap();
        }
    }

    fn of(root: &Root, device: &str, source: &str) -> Vec<String> {
        let mount = Mount {
            device: device.to_owned(),
            source: source.to_owned(),
            ..Mount::default()
        };
        names(root, &mount)
    }

    #[test]
    fn a_partition_is_known_by_its_disk_too_and_a_mapped_device_by_what_it_lies_on() {
        let (_folder, root) = host();
        device(&root, "8:0", "pci0/ata1/block/sda");
        device(&root, "8:1", "pci0/ata1/block/sda/sda1");
        device(&root, "259:0", "pci0/nvme/nvme0/nvme0n1");
        device(&root, "259:1", "pci0/nvme/nvme0/nvme0n1/nvme0n1p1");
        device(&root, "253:0", "virtual/block/dm-0");
        for slave in ["sda1", "nvme0n1p1"] {
            root.create_dir_all(format!("/sys/class/block/dm-0/slaves/{slave}"))
                .unwrap();
        }
        assert_eq!(of(&root, "8:1", "/dev/root"), ["sda1", "sda"]);
        assert_eq!(of(&root, "259:0", "/dev/nvme0n1"), ["nvme0n1"]);
        // btrfs: the number is no device's.
        assert_eq!(of(&root, "0:40", "/dev/sda1"), ["sda1", "sda"]);
        let mapped = of(&root, "253:0", "/dev/mapper/vg-lv");
        assert_eq!(mapped, ["dm-0", "nvme0n1p1", "nvme0n1", "sda1", "sda"]);
        assert!(of(&root, "0:50", "tmpfs").is_empty());
    }
}
