//! How each part of a bundle is had: a file, the end of a log, what a program prints, the kernel's log.

use std::{io, path::Path, time::Duration};

use super::{
    journal::Journal,
    parts::{From, JOURNALCTL, Lacking, MAX_FINDINGS_BYTES, MAX_PART_BYTES},
};
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
        matches!(
            self,
            Self::Ourselves(_) | Self::Program(..) | Self::Journal(_)
        )
    }

    /// How long it may take.
    pub(super) fn deadline(&self) -> Duration {
        match self {
            Self::File(_) | Self::Log(_) | Self::Kernel => FILE,
            Self::Program(..) | Self::Journal(_) => PROGRAM,
            Self::Ourselves(words) if words[0] == "doctor" => DOCTOR,
            Self::Ourselves(_) => CHECK,
        }
    }

    /// Its bytes, as they are: nothing is taken out yet. May hang; `deadline` is for the caller.
    pub(super) fn read(&self, root: &Root) -> Result<Vec<u8>, Lacking> {
        match self {
            Self::File(path) => read_file(root, path, MAX_PART_BYTES),
            Self::Log(path) => {
                let end = tree_of(root)?.read_end(path, MAX_LOG_BYTES);
                whole_lines(end.map_err(lacking)?)
            }
            Self::Ourselves(words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                // Ended by the caller's deadline at the latest.
                let deadline = self.deadline();
                let ran = program::run(
                    Path::new(program::OURSELVES),
                    &words,
                    deadline,
                    Keep::First(MAX_FINDINGS_BYTES),
                );
                output(ran)
            }
            Self::Program(path, words) => run(path, words, self.deadline()),
            Self::Journal(words) => {
                let journal = Journal::of(&tree_of(root)?);
                if journal.words.is_empty() {
                    return Err(Lacking::Absent);
                }
                let words = [words.as_slice(), &journal.words].concat();
                run(JOURNALCTL, &words, self.deadline())
            }
            Self::Kernel => kernel(root),
        }
    }
}

/// Reads a file of a tree that may hold anything.
pub(super) fn read_file(root: &Root, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Lacking> {
    tree_of(root)?
        .read_bounded(path, max_bytes)
        .map_err(lacking)
}

/// What no link leads out of.
fn tree_of(root: &Root) -> Result<HostTree, Lacking> {
    HostTree::new(&root.join("/")).map_err(|error| Lacking::Failed(error.to_string()))
}

fn lacking(error: Unreadable) -> Lacking {
    match error {
        Unreadable::NotFound => Lacking::Absent,
        error => Lacking::Failed(error.to_string()),
    }
}

/// Runs a program of this host's, and keeps the end of what it says.
fn run(path: &str, words: &[String], deadline: Duration) -> Result<Vec<u8>, Lacking> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let tree = tree_of(&Root::default())?;
    let keep = Keep::Last(MAX_LOG_BYTES);
    let ran = program::run_roots(&tree, Path::new(path), &words, deadline, keep);
    whole_lines(output(ran)?)
}

/// Without the line that was cut, if it was: the name before a secret may be what is missing of it.
fn whole_lines(mut bytes: Vec<u8>) -> Result<Vec<u8>, Lacking> {
    if bytes.len() < MAX_LOG_BYTES {
        return Ok(bytes);
    }
    let newline = bytes.iter().position(|byte| *byte == b'\n');
    let Some(newline) = newline else {
        let why = format!("its last line is longer than {MAX_LOG_BYTES} bytes");
        return Err(Lacking::Failed(why));
    };
    bytes.drain(..=newline);
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_log_is_shown_in_part() {
        let short = b"a line\n".to_vec();
        assert_eq!(whole_lines(short.clone()), Ok(short));
        let mut long = b"of-a-token\nnext ".to_vec();
        long.resize(MAX_LOG_BYTES, b'x');
        let shown = whole_lines(long).unwrap();
        assert!(shown.starts_with(b"next x"));
        assert!(whole_lines(vec![b'x'; MAX_LOG_BYTES]).is_err());
    }
}
