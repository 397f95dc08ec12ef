use std::{
    os::unix::{
        fs::{PermissionsExt as _, chown, symlink},
        net::UnixListener,
    },
    time::Duration,
};

use super::*;
use crate::{
    clock::Clock,
    helper::testing::{host, write},
};

const WANTED: &str = "/etc/kubernetes/kubelet.conf";

fn refused(root: &Root, path: &str) -> Why {
    read(root, Path::new(path), 1024).unwrap_err().why
}

fn set_mode(root: &Root, path: &str, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(root.join(path), permissions).unwrap();
}

/// Tests of other people's files need root, who alone can give a file away; the gate is root.
fn give_away(root: &Root, path: &str) -> bool {
    chown(root.join(path), Some(65534), None).is_ok()
}

#[test]
fn a_file_that_only_root_can_have_written_is_read() {
    let (_folder, root) = host();
    write(&root, WANTED, "text");
    assert_eq!(read(&root, Path::new(WANTED), 1024).unwrap(), b"text");
    let up = Path::new("/etc/../etc/./kubernetes/kubelet.conf");
    assert_eq!(read_text(&root, up, 1024).unwrap(), "text");
    assert_eq!(refused(&root, "/etc/none"), Why::Missing);
    assert_eq!(
        refused(&root, "/etc/kubernetes/kubelet.conf/x"),
        Why::Missing
    );
    let long = read(&root, Path::new(WANTED), 3).unwrap_err();
    assert!(long.to_string().contains(WANTED), "{long}");
    assert!(matches!(long.why, Why::Io(_)), "{long}");
}

#[test]
fn every_folder_and_the_file_itself_must_be_roots_alone() {
    for at in ["/etc", "/etc/kubernetes", WANTED] {
        for mode in [0o775, 0o757, 0o777, 0o1777] {
            let (_folder, root) = host();
            write(&root, WANTED, "text");
            set_mode(&root, at, mode);
            let at = PathBuf::from(at);
            assert_eq!(refused(&root, WANTED), Why::Writable { at, mode });
        }
        let (_folder, root) = host();
        write(&root, WANTED, "text");
        if give_away(&root, at) {
            let uid = 65534;
            let why = refused(&root, WANTED);
            let at = PathBuf::from(at);
            assert_eq!(why, Why::Foreign { at, uid });
        }
    }
}

#[test]
fn a_link_is_followed_where_it_is_roots_and_its_target_too() {
    let (_folder, root) = host();
    write(&root, "/srv/k/real.conf", "text");
    root.create_dir_all("/etc/kubernetes").unwrap();
    symlink("../../srv/k", root.join("/etc/kubernetes/k")).unwrap();
    // An absolute one counts from the root that was handed in.
    symlink("/etc/kubernetes/k/real.conf", root.join(WANTED)).unwrap();
    let found = find(&root, Path::new(WANTED)).unwrap();
    assert_eq!(found.real, Path::new("/srv/k/real.conf"));
    set_mode(&root, "/srv/k", 0o777);
    let at = PathBuf::from("/srv/k");
    assert_eq!(refused(&root, WANTED), Why::Writable { at, mode: 0o777 });
    set_mode(&root, "/srv/k", 0o755);
    let link = root.join(WANTED);
    if rustix::fs::chownat(
        CWD,
        &link,
        Some(rustix::fs::Uid::from_raw(65534)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .is_ok()
    {
        let (at, uid) = (PathBuf::from(WANTED), 65534);
        assert_eq!(refused(&root, WANTED), Why::Foreign { at, uid });
    }
    symlink("loop", root.join("/etc/loop")).unwrap();
    assert!(matches!(refused(&root, "/etc/loop"), Why::Io(_)));
    // Nothing leads out of the root.
    symlink("../../../../../../etc/passwd", root.join("/etc/out")).unwrap();
    assert_eq!(refused(&root, "/etc/out"), Why::Missing);
}

#[test]
fn nothing_but_a_regular_file_is_opened_and_nothing_blocks() {
    let (_folder, root) = host();
    root.create_dir_all("/etc/folder").unwrap();
    let path = |name: &str| root.join(format!("/etc/{name}"));
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(path("socket")).unwrap();
    set_mode(&root, "/etc/socket", 0o700);
    let begin = Clock.now().uptime;
    for name in ["fifo", "socket", "folder"] {
        let at = PathBuf::from(format!("/etc/{name}"));
        let why = refused(&root, &format!("/etc/{name}"));
        assert_eq!(why, Why::NotAFile { at });
    }
    assert!(Clock.now().uptime.saturating_sub(begin) < Duration::from_secs(5));
}

#[test]
fn no_process_is_a_way_to_a_file() {
    let root = Root::default();
    for path in [
        "/proc/self/root/etc/passwd",
        "/proc/self/environ",
        "/proc/1/root/etc/passwd",
    ] {
        let at = refused(&root, path);
        assert!(matches!(at, Why::InProc { .. }), "{path}: {at}");
    }
    assert!(matches!(refused(&root, "/dev/null"), Why::NotAFile { .. }));
}
