//! How each part of a bundle is had: a file, the end of a log, what a program prints, the kernel's log.

use std::{io, os::unix::fs::FileExt, path::Path, time::Duration};

use super::parts::{From, Lacking};
use crate::{
    checks::kernel::{patterns::PATTERNS, record::Record},
    host::{
        files::Root,
        kmsg,
        program::{self, Keep},
        tree::HostTree,
    },
    kubelet::tree::{Tree, Unreadable},
};

/// The longest part, before and after it is made presentable.
pub(super) const MAX_PART_BYTES: usize = 1 << 20;
/// The longest end of a log.
const MAX_LOG_BYTES: usize = 512 * 1024;
/// Lines of the kernel's log.
const KERNEL_LINES: usize = 1000;

const FILE: Duration = Duration::from_secs(2);
const PROGRAM: Duration = Duration::from_secs(5);
const CHECK: Duration = Duration::from_secs(12);
/// A second more than its own.
const DOCTOR: Duration = Duration::from_secs(16);

impl From {
    /// Whether it takes a while.
    pub(super) fn starts_a_program(&self) -> bool {
        matches!(self, Self::Ourselves(_) | Self::Program(..))
    }

    /// How long it may take.
    pub(super) fn deadline(&self) -> Duration {
        match self {
            Self::File(_) | Self::Log(_) | Self::Kernel => FILE,
            Self::Program(..) => PROGRAM,
            Self::Ourselves(words) if words[0] == "doctor" => DOCTOR,
            Self::Ourselves(_) => CHECK,
        }
    }

    /// Its bytes, as they are: nothing is taken out yet. May hang; `deadline` is for the caller.
    pub(super) fn read(&self, root: &Root) -> Result<Vec<u8>, Lacking> {
        match self {
            Self::File(path) => read_file(root, path, MAX_PART_BYTES),
            Self::Log(path) => end_of(root, path).map_err(|error| lacking_of_io(&error)),
            Self::Ourselves(words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                // Ended by the caller's deadline at the latest.
                let deadline = self.deadline();
                let ran = program::run(
                    Path::new(program::OURSELVES),
                    &words,
                    deadline,
                    Keep::First(MAX_PART_BYTES),
                );
                output(ran)
            }
            Self::Program(path, words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let tree = HostTree::new(Path::new("/"))
                    .map_err(|error| Lacking::Failed(error.to_string()))?;
                let keep = Keep::Last(MAX_LOG_BYTES);
                let ran = program::run_roots(&tree, Path::new(path), &words, self.deadline(), keep);
                output(ran)
            }
            Self::Kernel => kernel(root),
        }
    }
}

/// Reads a file of a tree that may hold anything.
pub(super) fn read_file(root: &Root, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Lacking> {
    let tree =
        HostTree::new(&root.join("/")).map_err(|error| Lacking::Failed(error.to_string()))?;
    tree.read_bounded(path, max_bytes)
        .map_err(|error| match error {
            Unreadable::NotFound => Lacking::Absent,
            error => Lacking::Failed(error.to_string()),
        })
}

fn output(ran: Result<program::Ran, String>) -> Result<Vec<u8>, Lacking> {
    let ran = ran.map_err(Lacking::Failed)?;
    if !ran.out.is_empty() {
        return Ok(ran.out);
    }
    if ran.complaint.is_empty() && ran.code == Some(0) {
        return Err(Lacking::Absent);
    }
    Err(Lacking::Failed(ran.complaint))
}

fn end_of(root: &Root, path: &Path) -> io::Result<Vec<u8>> {
    let file = root.open(path).map_err(|error| error.source)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(MAX_LOG_BYTES as u64);
    let mut bytes = vec![0; usize::try_from(length - start).unwrap_or(0)];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

fn lacking_of_io(error: &io::Error) -> Lacking {
    if error.kind() == io::ErrorKind::NotFound {
        Lacking::Absent
    } else {
        Lacking::Failed(error.to_string())
    }
}

fn kernel(root: &Root) -> Result<Vec<u8>, Lacking> {
    let is_wanted = |record: &Record<'_>| {
        let text = record.text;
        let is_kill = ["oom-kill:", "invoked oom-killer", "Killed process"]
            .iter()
            .any(|part| text.contains(part));
        record.is_kernels() && (is_kill || PATTERNS.iter().any(|pattern| pattern.knows(text)))
    };
    let lines =
        kmsg::so_far(root, KERNEL_LINES, is_wanted).map_err(|error| lacking_of_io(&error))?;
    if lines.is_empty() {
        return Err(Lacking::Absent);
    }
    let lines: Vec<String> = lines.into_iter().map(|line| line + "\n").collect();
    Ok(lines.concat().into_bytes())
}
