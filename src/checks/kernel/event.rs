//! What the kernel's log says, as plain data: the input of every check that listens to it.

use std::time::Duration;

/// Something that the kernel said and that matters to a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelEvent {
    /// It killed a process for memory.
    OomKill(Box<OomKill>),
    /// A line that a pattern knows.
    Line(KernelLine),
    /// The log ran over before it was read.
    Lost {
        /// So many records are not known.
        records: u64,
    },
    /// The log cannot be read, and why.
    Unreadable(String),
}

/// A process that the kernel killed for memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKill {
    /// When, by the kernel's own stamp (uptime).
    pub at: Duration,
    /// The victim.
    pub pid: i32,
    /// Its name.
    pub comm: String,
    /// Its memory cgroup.
    pub cgroup: Option<String>,
    /// The cgroup whose limit it was.
    pub limit_cgroup: Option<String>,
    /// What ran out.
    pub scope: Scope,
    /// The pod that it belonged to.
    pub pod: Option<PodRef>,
    /// What it held.
    pub rss_bytes: Option<u64>,
}

/// What ran out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The host.
    Host,
    /// The limit of a cgroup.
    Cgroup,
}

/// A pod, as a cgroup's path names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// The pod's uid.
    pub uid: String,
    /// The container's id.
    pub container: Option<String>,
}

/// What a line of the log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// The kernel itself.
    Kernel,
    /// A disk or a file system.
    Storage,
}

/// A kind of line that is known.
#[derive(Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Its name.
    pub id: &'static str,
    /// Who judges it.
    pub concern: Concern,
}

/// A line that a pattern knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLine {
    /// When, by the kernel's own stamp (uptime).
    pub at: Duration,
    /// Which pattern knows it.
    pub pattern: &'static Pattern,
    /// The device or task that it names.
    pub subject: Option<String>,
    /// The line, bounded.
    pub text: String,
}
