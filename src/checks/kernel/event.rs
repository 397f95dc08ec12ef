//! What the kernel's log says, as events: made by `host::kmsg`, offered to every check.

use std::time::Duration;

use super::place::is_below_pods;

pub use super::pattern::{Concern, Meaning, Pattern};

/// Something that the kernel's log says, or something about the log itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelEvent {
    /// The kernel killed a process for memory.
    OomKill(Box<OomKill>),
    /// A line that one of the patterns knows.
    Line(KernelLine),
    /// So many records were overwritten before they were read, or found no room in our queue.
    Lost {
        /// How many.
        records: u64,
    },
    /// The log cannot be read; why. It is tried again.
    Unreadable(String),
    /// The log can be read, and what this boot has said so far was read.
    Readable,
}

/// One process that the kernel killed for memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKill {
    /// When it was heard (uptime); of what was said before we came, by the kernel's stamp.
    pub at: Duration,
    /// Whom, as the host counts.
    pub pid: i32,
    /// Its name, at most 15 bytes as the kernel has it.
    pub comm: String,
    /// The cgroup that it was in (`task_memcg`), if the kernel said so: under a storm it leaves that line out.
    pub cgroup: Option<String>,
    /// The cgroup whose limit was reached (`oom_memcg`).
    pub limit_cgroup: Option<String>,
    /// How high that limit is, if the kernel said so; with swap, if the limit of both was reached.
    pub limit_bytes: Option<u64>,
    /// Whose memory was short.
    pub scope: Scope,
    /// The pod that the cgroup's name says.
    pub pod: Option<PodRef>,
    /// What it held: anonymous, file and shared pages together.
    pub rss_bytes: Option<u64>,
}

impl OomKill {
    /// The cgroup that it was in, else the one whose limit it was above, if the kernel said either.
    pub fn place(&self) -> Option<&str> {
        self.cgroup.as_deref().or(self.limit_cgroup.as_deref())
    }

    /// Whether it was a pod's.
    pub fn is_of_pods(&self) -> bool {
        self.pod.is_some() || self.place().is_some_and(is_below_pods)
    }

    /// ` of 16 MiB`, to be said behind the word limit; empty if it is not known.
    pub fn of_limit(&self) -> String {
        let said = |bytes: u64| match bytes / 1024 {
            kib if kib % 1024 == 0 => format!(" of {} MiB", kib / 1024),
            kib => format!(" of {kib} KiB"),
        };
        self.limit_bytes.map_or_else(String::new, said)
    }
}

/// Whose memory was short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The host's, or that of the memory nodes that it was bound to.
    Host,
    /// A cgroup's: its own limit.
    Cgroup,
}

/// A pod, as the name of a cgroup has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// The pod's uid; for a static pod the hash of its manifest.
    pub uid: String,
    /// The container's id, if the cgroup is a container's.
    pub container: Option<String>,
}

/// A line that one of the patterns knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLine {
    /// When it was heard (uptime); of what was said before we came, by the kernel's stamp.
    pub at: Duration,
    /// Which pattern knows it.
    pub pattern: &'static Pattern,
    /// Whom or what it is about: a device, a task.
    pub subject: Option<String>,
    /// What it says, at most [`MAX_TEXT_BYTES`].
    pub text: String,
}

/// Bounds a line that is handed on.
pub const MAX_TEXT_BYTES: usize = 240;

/// `text`, no longer than `max` bytes.
pub(super) fn bounded(text: &str, max: usize) -> String {
    text[..text.floor_char_boundary(max)].to_owned()
}

impl PodRef {
    /// The pod that owns a cgroup, by the kubelet's names: `…/kubepods/burstable/podUID/ID` of the driver cgroupfs,
    /// `…-podUID_WITH_UNDERSCORES.slice/RUNTIME-ID.scope` of systemd's, whatever stands before it.
    pub fn of_cgroup(path: &str) -> Option<Self> {
        // A systemd driver's names given to a runtime that does not know them: `…-podUID.slice:cri-containerd:ID`.
        let mut parts = path.split(['/', ':']).filter(|part| !part.is_empty());
        let uid = parts.find_map(uid_of)?;
        let container = parts.next_back().and_then(container_of);
        Some(Self { uid, container })
    }
}

fn uid_of(part: &str) -> Option<String> {
    let name = match part.strip_suffix(".slice") {
        // kubepods-pod…, kubepods-besteffort-pod…, kubelet-kubepods-burstable-pod…
        Some(slice) => slice.rsplit_once("-pod").map(|(_, uid)| uid)?,
        None => part.strip_prefix("pod")?,
    };
    let uid = name.replace('_', "-");
    // A UUID, or the 32 digits of a static pod.
    let digits = |n: usize| uid.len() == n && uid.bytes().all(is_id_byte);
    (digits(36) || digits(32)).then_some(uid)
}

fn container_of(part: &str) -> Option<String> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    (id.len() == 64 && id.bytes().all(is_id_byte)).then(|| id.to_owned())
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "c7ebf4d756b284f6226cce820771afcf706a4e37afb77f052c61ece86d3b61f0";
    const UID: &str = "fe3f7a38-b3f7-48aa-8997-a697ae3d0741";

    #[test]
    fn pods_are_known_by_their_cgroups() {
        let underscored = UID.replace('-', "_");
        for path in [
            format!("/kubepods/burstable/pod{UID}/{ID}"),
            format!("/kubepods/pod{UID}/{ID}"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice/cri-containerd-{ID}.scope"
            ),
            format!("/kubepods.slice/kubepods-pod{underscored}.slice/crio-{ID}.scope"),
            format!(
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{underscored}.slice/docker-{ID}.scope"
            ),
            format!(
                "/lxc.payload.x-lxc/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice/cri-containerd-{ID}.scope"
            ),
            format!("/docker/{ID}/kubelet/kubepods/burstable/pod{UID}/{ID}"),
            format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{underscored}.slice/cri-containerd-{ID}.scope"
            ),
            format!(
                "/system.slice/containerd.service/kubepods-burstable-pod{underscored}.slice:cri-containerd:{ID}"
            ),
        ] {
            let pod = PodRef::of_cgroup(&path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(pod.uid, UID, "{path}");
            assert_eq!(pod.container.as_deref(), Some(ID), "{path}");
        }
    }

    #[test]
    fn what_is_not_a_pods_is_nobodys() {
        for path in [
            "/system.slice/kubelet.service",
            "/",
            "",
            "/kubepods.slice",
            "/kubepods/burstable/podcast",
            "/system.slice/podman.service",
            "/machine.slice/libpod-abc.scope",
        ] {
            assert_eq!(PodRef::of_cgroup(path), None, "{path}");
        }
        let whole = PodRef::of_cgroup(&format!("/kubepods/burstable/pod{UID}")).unwrap();
        assert_eq!(whole.container, None);
        let fixed = PodRef::of_cgroup("/kubepods/pod2b8f2bd1f4b9b66c61d5fd4b2a4d2ea5/x").unwrap();
        assert_eq!(fixed.uid, "2b8f2bd1f4b9b66c61d5fd4b2a4d2ea5");
    }
}
