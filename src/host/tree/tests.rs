//! Every test runs twice: with the kernel's `openat2` and without.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests build a little host in a folder"
)]

use std::{
    fs::{self, File},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
};

use super::*;

struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn put(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        symlink(target, self.at(path)).unwrap();
    }

    fn fifo(&self, path: &str) {
        nix::unistd::mkfifo(&self.at(path), nix::sys::stat::Mode::S_IRUSR).unwrap();
    }

    /// Asks both ways of opening, and wants one answer.
    fn both<T: PartialEq + std::fmt::Debug>(&self, ask: impl Fn(&dyn Tree) -> T) -> T {
        let mut tree = HostTree::new(self.0.path()).unwrap();
        assert!(tree.has_openat2, "this kernel has openat2");
        let with = ask(&tree);
        tree.has_openat2 = false;
        assert_eq!(with, ask(&tree), "with and without openat2");
        with
    }

    fn read(&self, path: &str) -> Result<String, Unreadable> {
        self.both(|tree| tree.read_text(Path::new(path)))
    }

    fn kind(&self, path: &str) -> Result<Kind, Unreadable> {
        self.both(|tree| tree.stat(Path::new(path)).map(|meta| meta.kind))
    }
}

#[test]
fn links_stay_inside_the_root() {
    let host = Host::new();
    host.put("/etc/hostname", "inside\n");
    host.link("/a/absolute", "/etc/hostname");
    host.link("/a/escape", "../../../../../../etc/hostname");
    host.link("/b", "/a/../a");
    for path in [
        "/etc/hostname",
        "/../../etc/hostname",
        "/a/absolute",
        "/a/escape",
        "/b/absolute",
    ] {
        assert_eq!(host.read(path).as_deref(), Ok("inside\n"), "{path}");
        let real = host.both(|tree| tree.real_path(Path::new(path)));
        assert_eq!(real, Ok(PathBuf::from("/etc/hostname")), "{path}");
    }
    // This machine has the file, the root has not.
    host.link("/a/outside", "/proc/self/status");
    assert_eq!(host.read("/a/outside"), Err(Unreadable::NotFound));
    let target = host.both(|tree| tree.read_link(Path::new("/a/escape")));
    assert_eq!(target, Ok(PathBuf::from("../../../../../../etc/hostname")));
    let lstat = host.both(|tree| tree.lstat(Path::new("/a/outside")).unwrap().kind);
    assert_eq!(lstat, Kind::Link);
}

#[test]
fn links_in_a_circle_end() {
    let host = Host::new();
    host.link("/x", "/y");
    host.link("/y", "x");
    host.link("/self", "self");
    host.link("/d/up", "/d/up/further");
    for path in ["/x", "/self", "/d/up", "/x/below"] {
        assert_eq!(host.read(path), Err(Unreadable::LinkLoop), "{path}");
        assert_eq!(host.kind(path), Err(Unreadable::LinkLoop), "{path}");
        let real = host.both(|tree| tree.real_path(Path::new(path)));
        assert_eq!(real, Err(Unreadable::LinkLoop), "{path}");
    }
}

#[test]
fn what_is_no_file_is_not_opened() {
    let host = Host::new();
    host.fifo("/run/fifo");
    let _socket = UnixListener::bind(host.at("/run/socket")).unwrap();
    host.link("/run/link", "fifo");
    for path in ["/run/fifo", "/run/socket", "/run/link"] {
        assert_eq!(host.kind(path), Ok(Kind::Other), "{path}");
        assert_eq!(host.read(path), Err(Unreadable::NotAFile), "{path}");
    }
    assert_eq!(host.read("/run"), Err(Unreadable::NotAFile));
    assert_eq!(host.kind("/"), Ok(Kind::Folder));
    assert_eq!(host.kind("/run/fifo/below"), Err(Unreadable::NotFound));
    let list = host.both(|tree| tree.list(Path::new("/run/fifo")));
    assert_eq!(list, Err(Unreadable::Io("is not a folder".to_owned())));
}

#[test]
fn a_mask_is_known_without_devices() {
    let host = Host::new();
    host.link("/etc/mask", "/dev/null");
    host.link("/etc/twice", "mask");
    host.link("/etc/up", "../dev/null");
    host.link("/etc/other", "/dev/nul");
    for path in ["/etc/mask", "/etc/twice", "/etc/up", "/dev/null"] {
        assert_eq!(host.kind(path), Ok(Kind::Null), "{path}");
        assert_eq!(host.read(path).as_deref(), Ok(""), "{path}");
        let real = host.both(|tree| tree.real_path(Path::new(path)));
        assert_eq!(real, Ok(PathBuf::from("/dev/null")), "{path}");
    }
    assert_eq!(host.kind("/etc/other"), Err(Unreadable::NotFound));
    assert_eq!(
        HostTree::new(Path::new("/"))
            .unwrap()
            .stat(Path::new("/dev/null"))
            .map(|meta| meta.kind),
        Ok(Kind::Null)
    );
}

#[test]
fn reads_are_bounded_whatever_the_size_says() {
    let host = Host::new();
    let file = File::create(host.at("/etc/default/kubelet")).unwrap();
    file.set_len(100 << 20).unwrap();
    assert!(matches!(
        host.read("/etc/default/kubelet"),
        Err(Unreadable::TooLarge { .. })
    ));
    host.put("/etc/small", "12345");
    let read = |max| host.both(move |tree| tree.read_bounded(Path::new("/etc/small"), max));
    assert_eq!(read(5).unwrap(), b"12345");
    assert_eq!(read(4), Err(Unreadable::TooLarge { max_bytes: 4 }));

    // Files of /proc have the size 0.
    let machine = HostTree::new(Path::new("/")).unwrap();
    let status = Path::new("/proc/self/status");
    assert_eq!(machine.stat(status).unwrap().size_bytes, 0);
    assert!(machine.read_text(status).unwrap().contains("Pid:"));
    assert_eq!(
        machine.read_bounded(status, 10),
        Err(Unreadable::TooLarge { max_bytes: 10 })
    );
}

#[test]
fn names_are_bytes_and_sorted() {
    let host = Host::new();
    let bad = OsStr::from_bytes(b"10-\xff.conf");
    for name in [OsStr::new("Z"), OsStr::new("a"), OsStr::new("9-a"), bad] {
        fs::write(host.at("/d/x").with_file_name(name), "text").unwrap();
    }
    let names = host.both(|tree| tree.list(Path::new("/d")).unwrap());
    assert_eq!(
        names,
        [bad, OsStr::new("9-a"), OsStr::new("Z"), OsStr::new("a")]
    );
    let read = host.both(|tree| tree.read_text(&Path::new("/d").join(bad)));
    assert_eq!(read.as_deref(), Ok("text"));
    let absent = host.both(|tree| tree.list(Path::new("/nowhere")));
    assert_eq!(absent, Err(Unreadable::NotFound));
}

#[test]
fn a_folder_that_is_too_full_says_so() {
    let host = Host::new();
    for number in 0..=MAX_NAMES {
        fs::write(host.at("/d/x").with_file_name(number.to_string()), "").unwrap();
    }
    let listed = HostTree::new(host.0.path()).unwrap().list(Path::new("/d"));
    assert!(
        matches!(&listed, Err(Unreadable::Io(why)) if why.contains("10000 names")),
        "{listed:?}"
    );
}

#[test]
fn modes_are_told_and_missing_rights_are_an_error() {
    let host = Host::new();
    host.put("/secret", "text");
    let mode = fs::Permissions::from_mode(0o4750);
    fs::set_permissions(host.at("/secret"), mode).unwrap();
    let meta = host.both(|tree| tree.stat(Path::new("/secret")).unwrap());
    assert_eq!((meta.mode, meta.size_bytes), (0o4750, 4));
    assert!(meta.modified_nanos > 1_600_000_000_000_000_000);
    if !nix::unistd::geteuid().is_root() {
        fs::set_permissions(host.at("/secret"), fs::Permissions::from_mode(0o0)).unwrap();
        assert_eq!(
            host.read("/secret"),
            Err(Unreadable::Io("permission denied".to_owned()))
        );
    }
    assert_eq!(
        unreadable(Errno::ACCESS),
        Unreadable::Io("permission denied".to_owned())
    );
    assert!(matches!(
        host.read(&format!("/{}", "x".repeat(300))),
        Err(Unreadable::Io(_))
    ));
    assert!(matches!(host.read("/a\0b"), Err(Unreadable::Io(_))));
}

#[test]
fn a_root_has_to_be_a_folder() {
    let host = Host::new();
    host.put("/file", "");
    assert_eq!(
        HostTree::new(&host.at("/file")).unwrap_err(),
        Unreadable::Io("is not a folder".to_owned())
    );
    assert_eq!(
        HostTree::new(&host.at("/nothing")).unwrap_err(),
        Unreadable::NotFound
    );
}
