//! Watches the files that an answer was made from: a change of one of them, or of a name in a folder that was listed,
//! is worth another look. One inotify instance a connection; the number of watches is bounded.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};

use crate::{
    host::files::Root,
    kubelet::tree::{Asked, Kind, Tree},
};

/// Folders that are watched at most; a host has some thirty that bear on a kubelet.
pub const MAX_WATCHES: usize = 256;

/// The kernel's own file systems tell inotify nothing.
const MUTE: &[&str] = &["/proc", "/sys", "/dev"];

/// Units that systemd writes and removes with each container and pod, in a folder that its unit files are looked for in.
/// None of them can be a service or an alias of one.
const CONTAINERS: &[&str] = &["scope", "slice"];

/// How often a change is waited for to end: after so many pieces it is looked at though more comes.
const MAX_BURST: usize = 50;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A file that was looked at changed.
    Files,
    /// The peer has closed the connection.
    PeerClosed,
}

/// Folders under watch, each with the names in it that matter.
#[derive(Debug)]
pub struct Watch {
    root: Root,
    inotify: Inotify,
    folders: BTreeMap<PathBuf, WatchDescriptor>,
    names: BTreeMap<PathBuf, Names>,
}

/// The names that matter in a folder.
#[derive(Debug, Clone, Default)]
struct Names {
    /// The folder was listed: every name matters.
    all: bool,
    some: BTreeSet<OsString>,
}

impl Watch {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the kernel has no inotify instance left (`fs.inotify.max_user_instances`).
    pub fn new(root: &Root) -> io::Result<Self> {
        Ok(Self {
            root: root.clone(),
            inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?,
            folders: BTreeMap::new(),
            names: BTreeMap::new(),
        })
    }

    /// Watches what these paths depend on and nothing else; `true` if something is watched now that was not before.
    ///
    /// # Errors
    /// When the kernel refuses a watch for another reason than that the folder is not there.
    pub fn set(&mut self, tree: &dyn Tree, asked: &BTreeMap<PathBuf, Asked>) -> io::Result<bool> {
        let wanted = wanted(tree, asked);
        let mut grew = false;
        for folder in wanted.keys() {
            if self.folders.contains_key(folder) || self.folders.len() >= MAX_WATCHES {
                continue;
            }
            let flags = AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_MOVE
                | AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_ATTRIB
                | AddWatchFlags::IN_DELETE_SELF
                | AddWatchFlags::IN_MOVE_SELF
                | AddWatchFlags::IN_ONLYDIR;
            match self.inotify.add_watch(&self.root.join(folder), flags) {
                Ok(descriptor) => {
                    self.folders.insert(folder.clone(), descriptor);
                    grew = true;
                }
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let gone: Vec<PathBuf> = self
            .folders
            .keys()
            .filter(|folder| !wanted.contains_key(*folder))
            .cloned()
            .collect();
        for folder in gone {
            if let Some(descriptor) = self.folders.remove(&folder) {
                // It may have gone with its folder.
                let _ = self.inotify.rm_watch(descriptor);
            }
        }
        self.names = wanted;
        Ok(grew)
    }

    /// Waits until something changes that matters and nothing more has come for `quiet`, or the peer closes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, peer: &UnixStream, quiet: Duration) -> io::Result<Change> {
        let mut changed = 0;
        loop {
            let timeout = match changed {
                0 => PollTimeout::NONE,
                _ => PollTimeout::try_from(quiet).unwrap_or(PollTimeout::ZERO),
            };
            let mut ready = [
                PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
                PollFd::new(peer.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, timeout) {
                Ok(0) => return Ok(Change::Files),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            }
            // It has nothing more to say: whatever comes from it is its end.
            if ready[1].revents().is_some_and(|events| !events.is_empty()) {
                return Ok(Change::PeerClosed);
            }
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if events.iter().any(|event| self.matters(event)) {
                changed += 1;
            }
            if changed >= MAX_BURST {
                return Ok(Change::Files);
            }
        }
    }

    fn matters(&mut self, event: &InotifyEvent) -> bool {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return true;
        }
        let folder = self
            .folders
            .iter()
            .find(|(_, descriptor)| **descriptor == event.wd)
            .map(|(folder, _)| folder.clone());
        let Some(folder) = folder else {
            return false;
        };
        if event.mask.intersects(
            AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_IGNORED,
        ) {
            self.folders.remove(&folder);
            return true;
        }
        let Some(name) = &event.name else {
            return true;
        };
        self.names.get(&folder).is_some_and(|names| {
            names.some.contains(name) || (names.all && !is_of_a_container(name))
        })
    }
}

fn is_of_a_container(name: &OsStr) -> bool {
    let name = Path::new(name);
    let unit = match name.extension() {
        Some(extension) if extension == "d" => name.file_stem().map(Path::new), // its drop-ins
        _ => Some(name),
    };
    let extension = unit.and_then(Path::extension);
    extension.is_some_and(|extension| CONTAINERS.iter().any(|unit| extension == *unit))
}

/// The folders to watch, each with the names that matter: that of each path, and that of the file behind a link.
fn wanted(tree: &dyn Tree, asked: &BTreeMap<PathBuf, Asked>) -> BTreeMap<PathBuf, Names> {
    let mut wanted: BTreeMap<PathBuf, Names> = BTreeMap::new();
    for (path, asked) in asked {
        if asked.listed && is_folder(tree, path) {
            let real = tree.real_path(path).unwrap_or_else(|_| path.clone());
            wanted.entry(real).or_default().all = true;
        }
        want(tree, path, &mut wanted);
        if let Ok(real) = tree.real_path(path)
            && real != *path
        {
            want(tree, &real, &mut wanted);
        }
    }
    wanted.retain(|folder, _| !MUTE.iter().any(|mute| folder.starts_with(mute)));
    wanted
}

/// The nearest folder on the way to `path` that is there tells when the rest of the way comes to be.
fn want(tree: &dyn Tree, path: &Path, wanted: &mut BTreeMap<PathBuf, Names>) {
    let mut name = path;
    while let (Some(folder), Some(file)) = (name.parent(), name.file_name()) {
        if is_folder(tree, folder) {
            let real = tree.real_path(folder).unwrap_or_else(|_| folder.to_owned());
            wanted.entry(real).or_default().some.insert(file.to_owned());
            return;
        }
        name = folder;
    }
}

fn is_folder(tree: &dyn Tree, path: &Path) -> bool {
    tree.stat(path).is_ok_and(|meta| meta.kind == Kind::Folder)
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests change files in ways that host::files has no need for"
)]
mod tests {
    use std::{fs, thread};

    use super::*;
    use crate::{
        helper::testing::{host, write},
        host::tree::HostTree,
    };

    const QUIET: Duration = Duration::from_millis(20);

    /// What a change of the host ends the wait with; closing the peer ends a wait that nothing else does.
    fn ends(
        touched: &[&str],
        prepare: impl FnOnce(&Root),
        change: impl FnOnce(&Root) + Send,
    ) -> Change {
        let (_folder, root) = host();
        prepare(&root);
        let tree = HostTree::new(&root.join("/")).unwrap();
        let mut watch = Watch::new(&root).unwrap();
        let asked = touched
            .iter()
            .map(|path| {
                let path = PathBuf::from(path);
                let listed = path.extension().is_some_and(|extension| extension == "d");
                let asked = Asked {
                    listed,
                    ..Asked::default()
                };
                (path, asked)
            })
            .collect();
        while watch.set(&tree, &asked).unwrap() {}
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                change(&root);
                // Long after the quiet time: a change that mattered has ended the wait by then.
                thread::sleep(QUIET * 20);
                drop(theirs);
            });
            watch.wait(&ours, QUIET).unwrap()
        })
    }

    #[test]
    fn a_file_that_was_read_is_watched_however_it_is_replaced() {
        let env = "/etc/default/kubelet";
        let there = |root: &Root| write(root, env, "A=1\n");
        let by_rename = |root: &Root| write(root, env, "A=2\n");
        let in_place = |root: &Root| fs::write(root.join(env), "A=2\n").unwrap();
        let removed = |root: &Root| fs::remove_file(root.join(env)).unwrap();
        assert_eq!(ends(&[env], there, by_rename), Change::Files);
        assert_eq!(ends(&[env], there, in_place), Change::Files);
        assert_eq!(ends(&[env], there, removed), Change::Files);
        // A neighbour is none of our business.
        let neighbour = |root: &Root| write(root, "/etc/default/cron", "X=1\n");
        assert_eq!(ends(&[env], there, neighbour), Change::PeerClosed);
    }

    #[test]
    fn what_is_not_there_yet_is_waited_for() {
        let drop_in = "/etc/systemd/system/kubelet.service.d/20-x.conf";
        let some = |root: &Root| root.create_dir_all("/etc/systemd").unwrap();
        let made = |root: &Root| write(root, drop_in, "[Service]\n");
        assert_eq!(
            ends(&["/etc/systemd/system/kubelet.service.d"], some, made),
            Change::Files
        );
        assert_eq!(ends(&[drop_in], |_| {}, made), Change::Files);
    }

    #[test]
    fn every_name_matters_in_a_folder_that_was_listed() {
        let folder = "/etc/systemd/system/kubelet.service.d";
        let there = |root: &Root| write(root, format!("{folder}/10-a.conf"), "[Service]\n");
        let more = |root: &Root| write(root, format!("{folder}/20-b.conf"), "[Service]\n");
        let both = [folder, "/etc/systemd/system/kubelet.service.d/10-a.conf"];
        assert_eq!(ends(&both, there, more), Change::Files);
    }

    #[test]
    fn a_container_that_comes_or_goes_is_no_change() {
        let folder = "/etc/systemd/system/kubelet.service.d"; // the folder does not matter
        let there = |root: &Root| root.create_dir_all(folder).unwrap();
        let unit = |name: &'static str| {
            // As systemd does it: not by way of another name.
            move |root: &Root| fs::write(root.join(folder).join(name), "[Unit]\n").unwrap()
        };
        let names = [
            "cri-containerd-0a1b.scope",
            "kubepods-pod0a1b.slice",
            "kubepods.slice.d",
        ];
        for name in names {
            assert_eq!(ends(&[folder], there, unit(name)), Change::PeerClosed);
        }
        for name in ["x.service", "x.service.d"] {
            assert_eq!(ends(&[folder], there, unit(name)), Change::Files);
        }
    }

    #[test]
    fn the_file_behind_a_link_is_watched() {
        let there = |root: &Root| {
            write(root, "/opt/kubelet.env", "A=1\n");
            root.create_dir_all("/etc/default").unwrap();
            std::os::unix::fs::symlink("/opt/kubelet.env", root.join("/etc/default/kubelet"))
                .unwrap();
        };
        let change = |root: &Root| write(root, "/opt/kubelet.env", "A=2\n");
        assert_eq!(
            ends(&["/etc/default/kubelet"], there, change),
            Change::Files
        );
    }
}
