//! Mounts, from /proc/PID/mountinfo (`proc_pid_mountinfo(5)`).

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use procfs::process::MountInfo;

/// File systems of which the kernel sets the option `ro` after an error. Others, such as squashfs, have it from the start.
const REMOUNTED_ON_ERRORS: [&str; 2] = ["ext4", "btrfs"];
/// The rest of a longer table is not read. With 250 pods a table takes some hundred KiB.
const MAX_TABLE_BYTES: u64 = 16 * 1024 * 1024;

/// A mount, and its file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// `MAJOR:MINOR` of the file system, by which it is the same as another mount's.
    pub device: String,
    /// What is mounted, such as /dev/sda1.
    pub source: String,
    /// The type of the file system, such as ext4.
    pub kind: String,
    pub writable: Writable,
}

/// Whether a file can be written to through a mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Writable {
    #[default]
    Yes,
    /// The mount or its file system is read-only, most likely on purpose.
    ReadOnlyMount,
    /// The kernel has made the file system read-only, as it does after an error.
    ReadOnlyByKernel,
}

/// The table of mounts as a process sees it. It is in memory; for a btrfs the kernel walks its tree, and may wait for the disk.
///
/// # Errors
/// When it cannot be read, with its path.
pub fn read(pid: i32) -> Result<String, String> {
    let path = format!("/proc/{pid}/mountinfo");
    let mut table = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_TABLE_BYTES).read_to_end(&mut table));
    read.map_err(|error| format!("{path}: {error}"))?;
    // The mount points of containers need not be UTF-8.
    Ok(String::from_utf8_lossy(&table).into_owned())
}

/// The mount that contains a path without symbolic links: the deepest mount point above it, and of several at one mount point the last.
pub fn find(table: &str, path: &Path) -> Option<Mount> {
    // The table has these characters in octal.
    let escape = [('\\', "\\134"), (' ', "\\040"), ('\t', "\\011"), ('\n', "\\012")];
    let path = escape.iter().fold(path.to_str()?.to_owned(), |path, (from, to)| path.replace(*from, to));
    // Before a line is parsed, because a node has a thousand mounts of pods.
    let is_above = |line: &&str| line.split(' ').nth(4).is_some_and(|point| Path::new(&path).starts_with(point));
    let above = table.lines().filter(is_above).filter_map(|line| MountInfo::from_line(line).ok());
    let found = above.max_by_key(|mount| mount.mount_point.as_os_str().len())?;
    let writable = writable(&found, table);
    Some(Mount { device: found.majmin, source: found.mount_source.unwrap_or_default(), kind: found.fs_type, writable })
}

fn writable(mount: &MountInfo, table: &str) -> Writable {
    // An administrator's remount makes that mount read-only too (`mount(2)`); an error makes only the file system read-only.
    let is_remounted = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        let is_read_only = |options: &&str| options.split(',').any(|option| option == "ro");
        fields.get(2) == Some(&mount.majmin.as_str()) && fields.get(5).is_some_and(is_read_only)
    };
    if mount.mount_options.contains_key("ro") {
        Writable::ReadOnlyMount
    } else if mount.super_options.contains_key("emergency_ro") {
        // ext4 after an error, since Linux 6.16.
        Writable::ReadOnlyByKernel
    } else if !mount.super_options.contains_key("ro") {
        Writable::Yes
    } else if !REMOUNTED_ON_ERRORS.contains(&mount.fs_type.as_str()) || table.lines().any(is_remounted) {
        Writable::ReadOnlyMount
    } else {
        Writable::ReadOnlyByKernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
108 27 7:0 / /var/lib/kubelet rw,relatime shared:5 master:2 - ext4 /dev/loop0 rw,errors=remount-ro
109 108 0:50 / /var/lib/kubelet/pods/x/volumes/secret rw,relatime - tmpfs tmpfs rw,size=64k
110 27 0:60 / /var/lib/containerd rw,relatime - tmpfs tmpfs rw
111 110 0:61 / /var/lib/containerd ro,relatime - tmpfs tmpfs rw
112 27 8:17 / /mnt/a\\040disk ro - xfs /dev/sdb1 ro,attr2
not a line
";

    fn found(path: &str) -> Mount {
        find(TABLE, Path::new(path)).unwrap()
    }

    #[test]
    fn a_path_lies_on_the_deepest_mount_and_of_several_there_on_the_last() {
        let kubelet = found("/var/lib/kubelet/pods");
        let wanted =
            Mount { device: "7:0".into(), source: "/dev/loop0".into(), kind: "ext4".into(), ..Mount::default() };
        assert_eq!(kubelet, wanted);
        assert_eq!(found("/var/lib/kubelets").device, "254:0");
        assert_eq!(found("/var/lib/containerd").device, "0:61");
        assert_eq!(found("/mnt/a disk/kubelet").device, "8:17");
        assert_eq!(find("", Path::new("/")), None);
    }

    #[test]
    fn what_the_kernel_makes_read_only_after_an_error_differs_from_what_is_mounted_so() {
        assert_eq!(found("/var/lib/containerd").writable, Writable::ReadOnlyMount);
        assert_eq!(found("/mnt/a disk").writable, Writable::ReadOnlyMount);
        // As Linux 6.18 shows an ext4 with errors=remount-ro after an error, and as Linux 6.1 does.
        for options in ["rw,errors=remount-ro,emergency_ro", "ro,errors=remount-ro"] {
            let line = format!("108 88 7:0 / /k rw,relatime - ext4 /dev/loop0 {options}\n");
            assert_eq!(find(&line, Path::new("/k")).unwrap().writable, Writable::ReadOnlyByKernel);
        }
        // A bind mount of a file system that is remounted read-only elsewhere, and one that cannot be written to.
        for table in [
            "88 1 8:1 / /data ro - ext4 /dev/sda1 ro\n108 1 8:1 /k /k rw - ext4 /dev/sda1 ro\n",
            "108 1 7:1 / /k rw - squashfs /dev/loop1 ro\n",
            "108 1 0:40 / /k rw - overlay overlay ro,lowerdir=/a:/b\n",
        ] {
            assert_eq!(find(table, Path::new("/k")).unwrap().writable, Writable::ReadOnlyMount, "{table}");
        }
    }
}
