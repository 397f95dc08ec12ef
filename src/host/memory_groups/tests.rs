use super::*;
use crate::checks::memory::{
    Who,
    growth::{MAX_GROUPS, MAX_PODS},
    sample::Level,
};
use crate::host::kept::put;

const MIB: u64 = 1 << 20;
const UID: &str = "fe3f7a38-b3f7-48aa-8997-a697ae3d0741";
const OTHER: &str = "0e3f7a38-b3f7-48aa-8997-a697ae3d0741";

/// A host with one kind of control groups.
struct Host {
    root: Root,
    mount: &'static str,
    version: Version,
    at: Duration,
    available: u64,
    _folder: tempfile::TempDir,
}

impl Host {
    fn new(mount: &'static str, version: Version) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = Self {
            root: Root::new(folder.path()),
            mount,
            version,
            at: Duration::from_secs(100),
            available: 4096 * MIB,
            _folder: folder,
        };
        match version {
            Version::One => host.put("memory.usage_in_bytes", "1\n"),
            Version::Two => host.put("cgroup.controllers", "cpu io memory\n"),
        }
        host
    }

    /// v1, v2, v2's controller beside v1.
    fn every() -> [Self; 3] {
        MOUNTS.map(|(mount, _, version)| Self::new(mount, version))
    }

    fn put(&self, path: &str, text: &str) {
        put(&self.root, &format!("{}/{path}", self.mount), text);
    }

    /// A group that holds so much, and has as much that it could drop.
    fn group(&self, path: &str, held: u64) {
        let (used, half) = (held * 2, held / 2);
        self.put(
            &format!("{path}/{}", self.version.used()),
            &format!("{used}\n"),
        );
        let stat = match self.version {
            Version::One => format!(
                "cache 1\nrss 1\nshmem 1\ntotal_cache {held}\ntotal_rss {half}\ntotal_shmem {half}\ntotal_swap 0\n"
            ),
            Version::Two => format!("anon {half}\nfile {held}\nshmem {half}\n"),
        };
        self.put(&format!("{path}/memory.stat"), &stat);
    }

    fn look(&mut self, groups: &mut MemoryGroups) -> bool {
        self.at += EVERY;
        groups.look(&Sample {
            at: self.at,
            level: Level {
                available: self.available,
                ..Level::default()
            },
            ..Sample::default()
        })
    }

    /// A group whose file was kept open cannot be read any more.
    fn remove(&self, path: &str) {
        self.put(&format!("{path}/{}", self.version.used()), "");
        let folder = self.root.join(format!("{}/{path}", self.mount));
        #[expect(clippy::disallowed_methods, reason = "a test takes its own host apart")]
        std::fs::rename(folder, self.root.join("/gone")).unwrap();
    }
}

fn who(groups: &MemoryGroups) -> Option<Who> {
    let name = |uid: &str| (uid == UID).then(|| "default/hog".to_owned());
    groups.grower(name).map(|grower| grower.who)
}

#[test]
fn the_pod_that_grows_is_named_by_both_drivers_names_on_every_kind_of_host() {
    let underscored = UID.replace('-', "_");
    let of_systemd = format!(
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice"
    );
    let guaranteed = format!("kubepods.slice/kubepods-pod{underscored}.slice");
    let best_effort = format!("kubepods/besteffort/pod{UID}");
    for path in [
        of_systemd,
        guaranteed,
        best_effort,
        format!("kubepods/pod{UID}"),
    ] {
        for mut host in Host::every() {
            host.group("system.slice/sshd.service", 9 * MIB);
            let mut groups = MemoryGroups::new(&host.root);
            assert!(groups.is_resting());
            host.look(&mut groups);
            // The pod comes later than the first look.
            for looks in 1..4 {
                host.group(&path, looks * 40 * MIB);
                host.available -= 40 * MIB;
                assert!(host.look(&mut groups));
            }
            let wanted = Who::Pod("default/hog".to_owned());
            assert_eq!(who(&groups), Some(wanted), "{path} {}", host.mount);
            groups.rest(host.at + REST_AFTER);
            assert!(groups.is_resting());
        }
    }
}

#[test]
fn a_service_that_grows_is_named_by_its_path() {
    for (path, folder) in [
        ("system.slice/sshd.service", "system.slice"),
        ("user.slice/user-1000.slice", "user.slice"),
        ("machine.slice", "kubepods.slice"),
    ] {
        for mut host in Host::every() {
            host.group(&format!("kubepods/pod{UID}"), MIB);
            let mut groups = MemoryGroups::new(&host.root);
            for looks in 1..4 {
                host.group(path, looks * 40 * MIB);
                // What is the sum of those that are followed is not followed.
                host.group(folder, looks * 41 * MIB);
                host.group("kubepods", looks * 42 * MIB);
                host.available -= 40 * MIB;
                host.look(&mut groups);
            }
            assert_eq!(who(&groups), Some(Who::Group(path.to_owned())), "{path}");
        }
    }
}

#[test]
fn a_pod_that_is_gone_is_followed_no_more_and_the_others_stay_themselves() {
    let path = |uid| format!("kubepods/burstable/pod{uid}");
    for mut host in Host::every() {
        let mut groups = MemoryGroups::new(&host.root);
        host.group(&path(OTHER), 400 * MIB);
        host.look(&mut groups);
        host.group(&path(UID), 40 * MIB);
        host.look(&mut groups);
        assert_eq!(groups.open.len(), 2, "both");
        host.remove(&path(OTHER));
        host.group(&path(UID), 80 * MIB);
        host.available -= 40 * MIB;
        host.look(&mut groups);
        assert_eq!(groups.open.len(), 1);
        assert_eq!(who(&groups), Some(Who::Pod("default/hog".to_owned())));
        // It is made anew, as by a restart of the kubelet.
        host.group(&path(OTHER), MIB);
        host.look(&mut groups);
        assert_eq!(groups.open.len(), 2);
    }
}

#[test]
fn there_is_no_look_before_its_time() {
    let mut host = Host::new("/sys/fs/cgroup", Version::Two);
    let mut groups = MemoryGroups::new(&host.root);
    let at = |groups: &mut MemoryGroups, millis| {
        let at = Duration::from_millis(millis);
        groups.look(&Sample {
            at,
            ..Sample::default()
        })
    };
    let looks: Vec<u64> = (0..100)
        .map(|tenth| tenth * 100)
        .filter(|millis| at(&mut groups, *millis))
        .collect();
    assert_eq!(looks, [0, 500, 1000, 1500, 3500, 5500, 7500, 9500]);
    assert!(host.look(&mut groups));
}

#[test]
fn in_a_calm_nobody_is_looked_at_and_after_one_all_is_closed() {
    let host = Host::new("/sys/fs/cgroup", Version::Two);
    host.group(&format!("kubepods/pod{UID}"), MIB);
    let mut groups = MemoryGroups::new(&host.root);
    let at = |groups: &mut MemoryGroups, millis| {
        let at = Duration::from_millis(millis);
        groups.look_while_it_moves(&Sample {
            at,
            ..Sample::default()
        })
    };
    for second in [0, 10, 20, 30] {
        assert!(
            !at(&mut groups, second * 1000),
            "one look in so many reads all"
        );
    }
    assert!(at(&mut groups, 30_100) && groups.followed() == (1, 0));
    assert!(!at(&mut groups, 30_200));
    for second in [40, 50, 60, 70, 80] {
        assert!(!at(&mut groups, second * 1000));
        assert!(!groups.is_resting(), "{second}");
    }
    assert!(!at(&mut groups, 91_000) && groups.is_resting());
}

#[test]
fn however_many_there_are_so_many_are_followed() {
    let mut host = Host::new("/sys/fs/cgroup", Version::Two);
    for number in 0..MAX_PODS + 20 {
        let uid = format!("{number:08}{}", &UID[8..]);
        host.put(&format!("kubepods/pod{uid}/memory.current"), "1\n");
    }
    for number in 0..MAX_GROUPS + 20 {
        let path = format!("system.slice/{number}.service/memory.current");
        host.put(&path, "1\n");
    }
    let mut groups = MemoryGroups::new(&host.root);
    for _ in 0..3 {
        host.look(&mut groups);
        assert_eq!(groups.open.len(), MAX_PODS + MAX_GROUPS);
    }
}

#[test]
fn a_host_without_a_memory_controller_has_nobody_to_name() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    root.create_dir_all("/sys/fs/cgroup").unwrap();
    root.write_atomically("/sys/fs/cgroup/cgroup.controllers", b"cpu io\n")
        .unwrap();
    let mut groups = MemoryGroups::new(&root);
    assert!(groups.look(&Sample::default()));
    assert_eq!(who(&groups), None);
    assert!(groups.open.is_empty());
}
