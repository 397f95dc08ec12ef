//! The host at one moment, for a record of a problem: processes, memory, file systems and what there is a limited number of, as JSON.
//!
//! Each function reads what its name says. It waits for the kernel, and for a second where counters are read twice. Its caller has a deadline.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use procfs::process::{MountInfo, Stat};
use procfs::{Current as _, ProcResult, VmStat};
use rustix::fs::statvfs;
use rustix::system::uname;
use serde_json::{Map, Value, json};

use super::process::waits_in;
use super::top;
use crate::condition::Uptime;
use crate::files;

/// Between two readings of counters.
const COUNTED_FOR: Duration = Duration::from_secs(1);
/// Processes in each list.
const LISTED: usize = 15;
const MAX_FILE_SYSTEMS: usize = 60;
/// A file of /proc is short; one of the host that is longer is not read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The types of file systems that wait for no server, whose space is read.
const LOCAL: [&str; 13] =
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "vfat", "tmpfs", "overlay", "squashfs", "erofs", "iso9660"];
/// How the types begin of those that a server has.
const REMOTE: [&str; 5] = ["nfs", "cifs", "ceph", "9p", "fuse"];

fn vmstat() -> HashMap<String, i64> {
    VmStat::current().map(|VmStat(vmstat)| vmstat).unwrap_or_default()
}

/// The largest processes, those that use most CPU time within a second, and those that wait in the kernel (state D). By their names: a
/// command line may hold secrets.
pub fn processes() -> ProcResult<Value> {
    let ticks = |stat: &Stat| stat.utime + stat.stime;
    let used = |(stat, before): &(Stat, Option<Stat>)| {
        before.as_ref().map_or(0, |before| ticks(stat).saturating_sub(ticks(before)))
    };
    let all: Vec<_> = top::measure()?.into_iter().map(|one| (used(&one), one.0)).collect();
    let list = |is_listed: &dyn Fn(&(u64, Stat)) -> bool, rank: &dyn Fn(&(u64, Stat)) -> u64| {
        let mut chosen: Vec<_> = all.iter().filter(|one| is_listed(one)).collect();
        chosen.sort_by_key(|one| Reverse(rank(one)));
        chosen.into_iter().take(LISTED).map(|(used, stat)| process(stat, *used)).collect::<Value>()
    };
    let memory = |(_, stat): &(u64, Stat)| stat.rss;
    Ok(json!({
        "count": all.len(),
        "by_memory": list(&|_| true, &memory),
        "by_cpu": list(&|(used, _)| *used > 0, &|(used, _)| *used),
        "in_state_d": list(&|(_, stat)| stat.state == 'D', &memory),
    }))
}

/// A process that has used so many ticks of CPU time.
fn process(stat: &Stat, used: u64) -> Value {
    let mut process = json!({
        "pid": stat.pid,
        "name": stat.comm,
        "state": stat.state.to_string(),
        "memory_bytes": top::memory_bytes(stat),
        "cpu_millis": used * 1000 / procfs::ticks_per_second().max(1),
    });
    if stat.state == 'D' {
        process["waits_in"] = waits_in(format!("/proc/{}/wchan", stat.pid)).into();
    }
    process
}

/// /proc/meminfo, pressure stall information, and the counters of /proc/vmstat that change within a second.
pub fn memory() -> Value {
    let before = vmstat();
    sleep(COUNTED_FOR);
    let change = |(name, now): (String, i64)| {
        let change = now - before.get(&name).copied().unwrap_or_default();
        (change != 0).then(|| (name, Value::from(change)))
    };
    let pressure = ["cpu", "memory", "io"].map(|of| (of.to_owned(), lines(&format!("/proc/pressure/{of}"))));
    json!({
        "meminfo": lines("/proc/meminfo"),
        "pressure": Map::from_iter(pressure),
        "vmstat_changes": vmstat().into_iter().filter_map(change).collect::<Map<_, _>>(),
    })
}

/// What there is a limited number of: processes, open files, sockets, tracked connections.
pub fn counts() -> Value {
    let text = |path: &str| files::read(Path::new(path), MAX_FILE_BYTES).map(|text| text.trim().to_owned()).ok();
    json!({
        "loadavg": text("/proc/loadavg"),
        "pid_max": text("/proc/sys/kernel/pid_max"),
        "file_nr": text("/proc/sys/fs/file-nr"),
        "sockets": lines("/proc/net/sockstat"),
        "conntrack": text("/proc/sys/net/netfilter/nf_conntrack_count"),
        "conntrack_max": text("/proc/sys/net/netfilter/nf_conntrack_max"),
    })
}

/// The kernel, the distribution and the boot.
pub fn versions() -> Value {
    let release = files::read(Path::new("/etc/os-release"), MAX_FILE_BYTES).unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    json!({
        "nodevigil": env!("CARGO_PKG_VERSION"),
        "kernel": uname().release().to_string_lossy(),
        "os": pretty.map(|name| name.trim_matches('"')),
        "boot_id": boot_id(),
        "uptime_secs": (super::clock::uptime() - Uptime::ZERO).as_secs(),
    })
}

pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The space and the inodes of each local file system that is mounted. Of a remote one only that it is: statvfs(2) would wait for its
/// server.
pub fn file_systems() -> Value {
    let table = super::mounts::read(1).unwrap_or_default();
    let mounts: Vec<_> = table.lines().filter_map(|line| MountInfo::from_line(line).ok()).collect();
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for (index, mount) in mounts.iter().enumerate() {
        let MountInfo { majmin, mount_point: at, fs_type, mount_source, .. } = mount;
        let is_local = is_local(mount) && !is_covered(mount, &mounts[index + 1..]);
        let is_remote = REMOTE.iter().any(|remote| fs_type.starts_with(remote));
        if found.len() >= MAX_FILE_SYSTEMS || !(is_local || is_remote) || !seen.insert(majmin) {
            continue;
        }
        let mut shown = json!({"at": at, "type": fs_type, "source": mount_source, "is_read_only": is_read_only(mount)});
        if is_local {
            let Some(space) = statvfs(at).ok().filter(|space| space.f_blocks > 0) else { continue };
            shown["bytes"] = (space.f_blocks * space.f_frsize).into();
            shown["free_bytes"] = (space.f_bavail * space.f_frsize).into();
            shown["inodes"] = space.f_files.into();
            shown["free_inodes"] = space.f_ffree.into();
        }
        found.push(shown);
    }
    found.into()
}

fn is_local(mount: &MountInfo) -> bool {
    LOCAL.contains(&mount.fs_type.as_str())
}

/// Whether its path leads to a file system that is not local, such as an automount, and was mounted over it or over a directory above.
fn is_covered(mount: &MountInfo, later: &[MountInfo]) -> bool {
    later.iter().any(|other| !is_local(other) && mount.mount_point.starts_with(&other.mount_point))
}

/// Whether the mount is, or its file system, as the kernel makes that after an error.
fn is_read_only(mount: &MountInfo) -> bool {
    [&mount.mount_options, &mount.super_options].iter().any(|options| options.contains_key("ro"))
}

fn lines(path: &str) -> Value {
    let text = files::read(Path::new(path), MAX_FILE_BYTES).unwrap_or_default();
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_of_what_a_server_or_an_automount_covers_is_not_read() {
        let lines = [
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
            "2 1 8:2 / /data rw shared:1 - xfs /dev/sdb rw",
            "3 1 8:3 / /data/a rw - ext4 /dev/sdc rw",
            "4 1 0:9 / /data rw - autofs systemd-1 rw",
            "5 4 8:4 / /data rw - ext4 /dev/sdd rw",
        ];
        let mounts = lines.map(|line| MountInfo::from_line(line).unwrap());
        let covered: Vec<_> =
            mounts.iter().enumerate().map(|(index, mount)| is_covered(mount, &mounts[index + 1..])).collect();
        assert_eq!(covered, [false, true, true, false, false]);
        assert!(is_local(&mounts[1]) && !is_local(&mounts[3]));
    }

    #[test]
    fn a_file_system_that_the_kernel_has_made_read_only_is_shown_so() {
        let read_only = [
            "1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw",
            "1 0 8:1 / / ro,relatime - ext4 /dev/sda1 rw",
            "1 0 8:1 / / rw,relatime - ext4 /dev/sda1 ro,errors=remount-ro",
        ]
        .map(|line| is_read_only(&MountInfo::from_line(line).unwrap()));
        assert_eq!(read_only, [false, true, true]);
    }

    #[test]
    fn this_host_is_read() {
        let (processes, memory) = (processes().unwrap(), memory());
        assert!(processes["by_memory"][0]["memory_bytes"].as_u64().unwrap() > 0, "{processes}");
        assert!(memory["meminfo"].to_string().contains("MemAvailable: "), "{memory}");
        assert!(counts()["loadavg"].is_string() && versions()["kernel"].is_string());
        let file_systems = file_systems();
        assert!(file_systems[0]["bytes"].as_u64().unwrap() > 0, "{file_systems}");
    }
}
