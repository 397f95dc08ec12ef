//! The verb on little hosts whose disk is that of the test: what only a real mount shows is shown on the real node.

use std::{sync::mpsc, thread};

use super::*;
use crate::helper::{
    protocol::{Request, decode_answer, encode_answer, encode_request},
    testing::{Process, host, write},
};

const NODE: &str = "1 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro\n";

/// A node with a kubelet and a containerd on one file system, and nothing of ours.
fn node() -> (tempfile::TempDir, Root) {
    let (folder, root) = host();
    for place in [
        "/var/lib/kubelet",
        "/var/lib/containerd/io.containerd.metadata.v1.bolt",
        "/var/lib/containers", // of a runtime that never ran
    ] {
        root.create_dir_all(place).unwrap();
    }
    write(&root, "/proc/1/mountinfo", NODE);
    (folder, root)
}

fn ask(root: &Root) -> StorageAnswer {
    answer(&Arc::default(), root, &KubeletSettings::default()).unwrap()
}

fn only(mut answer: StorageAnswer) -> FileSystem {
    assert_eq!((answer.file_systems.len(), &answer.stuck), (1, &None));
    answer.file_systems.remove(0)
}

#[test]
fn one_file_system_is_looked_at_once_and_for_the_kubelet() {
    let (_folder, root) = node();
    let found = only(ask(&root));
    assert_eq!(found.path, Path::new("/var/lib/kubelet"));
    assert_eq!((found.owner, found.kind.as_str()), (Owner::Kubelet, "ext4"));
    assert_eq!(found.read_only, None);
    let room = found.room.unwrap();
    assert!(room.total_bytes >= room.free_bytes && room.free_bytes >= room.available_bytes);
}

#[test]
fn a_page_is_written_where_there_is_a_folder_for_it_and_nothing_is_left() {
    let (_folder, root) = node();
    let canary = |root: &Root| only(ask(root)).canary;
    assert_eq!(canary(&root), Canary::Flushed);
    root.create_dir_all("/var/lib/kubelet/.nodevigil").unwrap();
    assert_eq!(canary(&root), Canary::Written);
    root.create_dir_all(OWN_FOLDER).unwrap();
    assert_eq!(canary(&root), Canary::Written);
    for folder in ["/var/lib/kubelet/.nodevigil", OWN_FOLDER] {
        assert!(root.list(folder).unwrap().is_empty(), "{folder}");
    }
    assert_eq!(root.list("/var/lib/kubelet").unwrap(), [".nodevigil"]);
}

/// A link in its place would have us write where it leads.
#[test]
fn no_link_leads_the_page_astray() {
    let (_folder, root) = node();
    root.create_dir_all("/precious").unwrap();
    std::os::unix::fs::symlink("/precious", root.join("/var/lib/kubelet/.nodevigil")).unwrap();
    let found = only(ask(&root));
    assert_eq!(found.canary, Canary::Flushed);
}

#[test]
fn the_kubelets_own_root_and_its_own_view_of_the_mounts_count() {
    let (_folder, root) = node();
    root.create_dir_all("/data/kubelet").unwrap();
    let remounted = "1 1 8:1 / / rw,relatime - ext4 /dev/sda1 ro\n";
    write(&root, "/proc/812/mountinfo", remounted);
    let argv = ["kubelet", "--root-dir=/data/kubelet"];
    Process::kubelet(812, &argv).write(&root);
    let disk = Arc::default();
    let ask = || answer(&disk, &root, &KubeletSettings::default()).unwrap();
    let found = only(ask());
    assert_eq!(found.path, Path::new("/data/kubelet"));
    assert!(found.read_only.is_some());
    // A kubelet that is gone leaves the host's view, of its own folder.
    std::fs::remove_dir_all(root.join("/proc/812")).unwrap();
    let found = only(ask());
    assert_eq!(found.path, Path::new("/data/kubelet"));
    assert_eq!(found.read_only, None);
}

#[test]
fn a_host_without_any_of_it_has_nothing_to_look_at() {
    let (_folder, root) = host();
    let none = ask(&root);
    assert_eq!(none, StorageAnswer::default());
    // Nor is what is no folder one.
    write(&root, "/var/lib/kubelet", "a file");
    assert_eq!(ask(&root), none);
}

#[test]
fn what_hangs_is_named_at_once_to_whoever_asks_next() {
    let (_folder, root) = node();
    let disk: Arc<Disk> = Arc::default();
    let (let_go, held) = mpsc::channel::<()>();
    let hanging = Arc::clone(&disk);
    let asker = thread::spawn(move || {
        let lane = Arc::clone(&hanging.lane);
        lane.run("test", Duration::from_millis(10), move || {
            hanging.goes_on("write a page to", Path::new("/var/lib/kubelet"));
            held.recv().is_ok()
        })
    });
    assert!(asker.join().unwrap().is_err());
    // Longer than any answer waits: from then on it is told at once.
    let long = StuckAt {
        what: "write a page to /var/lib/kubelet".to_owned(),
        for_ms: 0,
    };
    for _ in 0..3 {
        let stuck = disk.lane.run("ask", Duration::ZERO, || ()).unwrap_err();
        assert_eq!(stuck.what, "test");
    }
    let look = || {
        let settings = KubeletSettings::default();
        answer_within(Duration::from_millis(10), &disk, &root, &settings)
    };
    let stuck = look().stuck.unwrap();
    assert_eq!(stuck.what, long.what);
    assert!(stuck.for_ms >= 1);
    // It comes back: the next look finds everything as it is.
    let_go.send(()).unwrap();
    let answered = loop {
        let answered = look();
        if answered.stuck.is_none() {
            break answered;
        }
    };
    assert_eq!(only(answered).canary, Canary::Flushed);
}

#[test]
fn an_answer_goes_over_the_wire_whole() {
    let (_folder, root) = node();
    let found = ask(&root);
    let line = encode_answer(Ok(&found));
    assert_eq!(decode_answer::<StorageAnswer>(&line).unwrap(), Ok(found));
    let asked = encode_request(&Request::Storage).unwrap();
    assert_eq!(asked, b"{\"version\":2,\"verb\":\"storage\"}\n");
}
