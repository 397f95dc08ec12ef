//! The control groups of pods and of the host's own services: how much memory each uses, and what of it cannot be dropped.
//!
//! Looked at only while memory moves. What is followed stays open from then on, so that a look allocates nothing in the
//! worst of times; once all is calm again it is closed.

use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::PathBuf,
    time::Duration,
};

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom};

use super::{
    files::Root,
    kept::{self, number, words},
};
use crate::checks::{
    kernel::event::PodRef,
    memory::{
        Grower, Sample,
        growth::{Growth, Subject},
    },
};

/// How often all are looked at …
const EVERY: Duration = Duration::from_secs(2);
/// … and how often at first, so that growth is seen soon.
const EVERY_AT_FIRST: Duration = Duration::from_millis(500);
/// So many looks are the first.
const FIRST: u8 = 4;
/// Who asks for all of it oftener than that sees memory move; in a calm that is asked for once in a while too.
const MOVES: Duration = Duration::from_secs(1);
/// After so long without a look all is closed.
const REST_AFTER: Duration = Duration::from_mins(1);
/// Holds the names of some fifty folders at a time.
const NAMES_BYTES: usize = 4096;
/// Names of one folder that are looked at.
const MAX_NAMES: usize = 4096;

/// Where the memory controller may be: v1's, v2's, and v2's beside v1.
const MOUNTS: [(&str, &str, Version); 3] = [
    (
        "/sys/fs/cgroup/memory",
        "memory.usage_in_bytes",
        Version::One,
    ),
    ("/sys/fs/cgroup", "cgroup.controllers", Version::Two),
    ("/sys/fs/cgroup/unified", "cgroup.controllers", Version::Two),
];
/// Folders whose folders are pods', as the kubelet's two cgroup drivers call them.
const OF_PODS: [&str; 6] = [
    "kubepods.slice",
    "kubepods.slice/kubepods-burstable.slice",
    "kubepods.slice/kubepods-besteffort.slice",
    "kubepods",
    "kubepods/burstable",
    "kubepods/besteffort",
];
/// Folders whose folders are followed one by one …
const OF_GROUPS: [&str; 3] = ["system.slice", "user.slice", ""];
/// … and those of the root that are not: theirs are.
const NOT_WHOLE: [&str; 4] = ["kubepods.slice", "kubepods", "system.slice", "user.slice"];

/// The groups that are followed, and what they grew by.
#[derive(Debug)]
pub struct MemoryGroups {
    root: Root,
    growth: Growth,
    /// Of the hierarchy that has the memory controller, once that was found.
    version: Option<Version>,
    parents: Vec<Parent>,
    /// Each in the place of its number in `growth`.
    open: Vec<Open>,
    /// When all of the host's memory was looked at last (uptime).
    sampled_at: Option<Duration>,
    looked_at: Option<Duration>,
    looks: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A folder of folders.
#[derive(Debug)]
struct Parent {
    path: &'static str,
    is_pods: bool,
    /// Where it lies on the host.
    place: PathBuf,
    folder: Option<OwnedFd>,
}

/// A group that is followed.
#[derive(Debug)]
struct Open {
    /// The number of the folder that it is in.
    parent: usize,
    name: CString,
    used: OwnedFd,
    /// `memory.stat`, open once it was looked at closer.
    stat: Option<OwnedFd>,
    /// v2's `memory.swap.current`, likewise. v1 says it in `memory.stat`.
    swap: Option<OwnedFd>,
}

impl MemoryGroups {
    /// Nothing is open yet.
    pub fn new(root: &Root) -> Self {
        Self {
            root: root.clone(),
            growth: Growth::default(),
            version: None,
            parents: Vec::new(),
            open: Vec::new(),
            sampled_at: None,
            looked_at: None,
            looks: 0,
        }
    }

    /// Looks at all of them if memory moves and it is time to; `sample` is the look at all of the host's. Whether it did.
    pub fn look_while_it_moves(&mut self, sample: &Sample) -> bool {
        let last = self.sampled_at.replace(sample.at);
        let moves = last.is_some_and(|at| sample.at.saturating_sub(at) < MOVES);
        if !moves {
            self.rest(sample.at);
        }
        moves && self.look(sample)
    }

    /// Looks at all of them if it is time to. Whether it did.
    pub fn look(&mut self, sample: &Sample) -> bool {
        let every = if self.looks < FIRST {
            EVERY_AT_FIRST
        } else {
            EVERY
        };
        if self.looked_at.is_some_and(|at| sample.at < at + every) {
            return false;
        }
        self.looked_at = Some(sample.at);
        self.looks = self.looks.saturating_add(1);
        let (available, kernel) = (sample.level.available, sample.level.kernel);
        self.growth.begin(sample.at, available, kernel);
        self.find();
        self.read();
        true
    }

    /// Memory is not looked at closely now: closes everything once that has been so for long.
    pub fn rest(&mut self, at: Duration) {
        if self
            .looked_at
            .is_some_and(|looked| at >= looked + REST_AFTER)
        {
            *self = Self::new(&self.root);
        }
    }

    /// Who takes most of what the host loses; the pods' names are told by `name_of`.
    pub fn grower(&self, name_of: impl Fn(&str) -> Option<String>) -> Option<Grower> {
        self.growth.grower(name_of)
    }

    /// What counts the memory of control groups here, once it was looked.
    pub fn version(&self) -> Option<&'static str> {
        self.version.map(|version| match version {
            Version::One => "cgroup v1",
            Version::Two => "cgroup v2",
        })
    }

    /// How many pods are followed, and how many others.
    pub fn followed(&self) -> (usize, usize) {
        let is_pods = |open: &&Open| self.parents[open.parent].is_pods;
        let pods = self.open.iter().filter(is_pods).count();
        (pods, self.open.len() - pods)
    }

    /// Whether nothing is followed now.
    pub fn is_resting(&self) -> bool {
        self.looked_at.is_none()
    }

    /// Opens what has come since the last look.
    fn find(&mut self) {
        if self.parents.is_empty() {
            self.find_mount();
        }
        for number in 0..self.parents.len() {
            // It goes with the last pod of its kind, and comes with the next.
            if self.find_in(number).is_none() {
                self.parents[number].folder = None;
            }
        }
    }

    fn find_mount(&mut self) {
        let has_memory = |(mount, witness, version): &&(&str, &str, Version)| {
            let text = self
                .root
                .read_text(format!("{mount}/{witness}"), NAMES_BYTES);
            // The root of v2 has no memory.current; every root of v1 has its file.
            text.is_ok_and(|text| {
                *version == Version::One || text.split_whitespace().any(|one| one == "memory")
            })
        };
        let Some((mount, _, version)) = MOUNTS.iter().find(has_memory) else {
            return;
        };
        self.version = Some(*version);
        let pods = OF_PODS.iter().map(|path| (*path, true));
        let all = pods.chain(OF_GROUPS.iter().map(|path| (*path, false)));
        let parents = all.map(|(path, is_pods)| Parent {
            path,
            is_pods,
            place: self.root.join(format!("{mount}/{path}")),
            folder: None,
        });
        self.parents = parents.collect();
    }

    /// Opens what has come in one folder; `None` if that is not there.
    fn find_in(&mut self, number: usize) -> Option<()> {
        let Self {
            growth,
            parents,
            open,
            version,
            ..
        } = self;
        let parent = parents.get_mut(number)?;
        if parent.folder.is_none() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            parent.folder = rustix::fs::open(&parent.place, flags, Mode::empty()).ok();
        }
        let folder = parent.folder.as_ref()?;
        let version = (*version)?;
        let mut room = growth.room(parent.is_pods);
        rustix::fs::seek(folder, SeekFrom::Start(0)).ok()?;
        let mut buffer = [MaybeUninit::uninit(); NAMES_BYTES];
        let mut names = RawDir::new(folder, &mut buffer);
        for _ in 0..MAX_NAMES {
            let Some(entry) = names.next() else { break };
            let entry = entry.ok()?;
            let name = entry.file_name();
            let is_known = |open: &Open| open.parent == number && *open.name == *name;
            if room == 0 || entry.file_type() != FileType::Directory || open.iter().any(is_known) {
                continue;
            }
            let Some(subject) = parent.subject(name.to_bytes()) else {
                continue;
            };
            let Some(used) = open_in(folder, name, version.used()) else {
                continue; // it went, or has no memory controller
            };
            growth.add(subject);
            room -= 1;
            open.push(Open {
                parent: number,
                name: name.to_owned(),
                used,
                stat: None,
                swap: None,
            });
        }
        Some(())
    }

    /// Reads what each uses, and of a few what they hold.
    fn read(&mut self) {
        let mut number = 0;
        while number < self.open.len() {
            if let Some(bytes) = one(&self.open[number].used) {
                self.growth.used(number, bytes);
                number += 1;
            } else {
                // The group was removed.
                self.growth.remove(number);
                self.open.swap_remove(number);
            }
        }
        for number in self.growth.suspects().into_iter().flatten() {
            if let Some(bytes) = self.held(number) {
                self.growth.held(number, bytes);
            }
        }
    }

    /// What a group has and cannot drop: anonymous pages, wherever they are, and tmpfs, which looks like cache and is none.
    fn held(&mut self, number: usize) -> Option<u64> {
        let version = self.version?;
        let open = self.open.get_mut(number)?;
        let folder = self.parents.get(open.parent)?.folder.as_ref()?;
        if open.stat.is_none() {
            open.stat = open_in(folder, &open.name, "memory.stat");
            open.swap = match version {
                Version::One => None,
                Version::Two => open_in(folder, &open.name, "memory.swap.current"),
            };
        }
        let of_stat = held_of_stat(open.stat.as_ref()?, version.held())?;
        let swapped = open.swap.as_ref().and_then(one).unwrap_or(0);
        Some(of_stat.saturating_add(swapped))
    }
}

impl Version {
    fn used(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    /// What is summed up of `memory.stat`; v1 counts the groups below in `total_…` alone.
    fn held(self) -> &'static [&'static [u8]] {
        match self {
            Self::One => &[b"total_rss", b"total_shmem", b"total_swap"],
            Self::Two => &[b"anon", b"shmem"],
        }
    }
}

impl Parent {
    /// Who the folder of that name in it is.
    fn subject(&self, name: &[u8]) -> Option<Subject> {
        let name = str::from_utf8(name).ok()?;
        if self.is_pods {
            return PodRef::of_cgroup(name).map(|pod| Subject::Pod(pod.uid));
        }
        match self.path {
            _ if matches!(name, "." | "..") => None,
            "" if NOT_WHOLE.contains(&name) => None,
            "" => Some(Subject::Group(name.to_owned())),
            path => Some(Subject::Group(format!("{path}/{name}"))),
        }
    }
}

fn open_in(folder: &OwnedFd, group: &CStr, file: &str) -> Option<OwnedFd> {
    let path = [group.to_bytes(), b"/", file.as_bytes()].concat();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, path, flags, Mode::empty()).ok()
}

/// The one number of a file.
fn one(file: &OwnedFd) -> Option<u64> {
    let mut buffer = [0; 32];
    let length = rustix::io::pread(file, &mut buffer, 0).ok()?;
    words(&buffer[..length]).next().and_then(number)
}

fn held_of_stat(stat: &OwnedFd, wanted: &[&[u8]]) -> Option<u64> {
    let (mut sum, mut known) = (0_u64, 0);
    kept::lines(stat, &mut |line| {
        let mut words = words(line);
        if words.next().is_some_and(|name| wanted.contains(&name)) {
            sum = sum.saturating_add(words.next().and_then(number).unwrap_or(0));
            known += 1;
        }
        known < wanted.len()
    })
    .ok()?;
    (known > 0).then_some(sum)
}

#[cfg(test)]
mod tests;
