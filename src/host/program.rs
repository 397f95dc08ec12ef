//! The one door by which a program is started: `nodevigil check` asks the kubelet's own binary for its version, `nodevigil
//! bundle` runs this program's other commands, journalctl and systemctl, `nodevigil plugin` runs a kubeconfig's exec plugin.
//!
//! The agent and the helper start no programs. The three commands do, and only a program that nobody but root can have put
//! there (the kubelet's will run as root a moment later anyway), or this very one.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door that the ban on starting programs points to"
)]

use std::{
    io::{self, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use crate::kubelet::{
    tree::{Kind, Tree},
    version::Version,
};

/// A kubelet takes 0.1 s for it; a cold disk takes longer.
const DEADLINE: Duration = Duration::from_secs(3);
/// How long a program that has closed its output, or was killed, may take to be gone.
const END: Duration = Duration::from_secs(1);
/// `Kubernetes v1.33.4` and a newline.
const MAX_ANSWER_BYTES: usize = 4096;
/// Read at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// Asks `program --version`; `tree` is the host's own.
pub fn version(tree: &dyn Tree, program: &Path) -> Result<Version, String> {
    let shown = program.display();
    let real = tree
        .real_path(program)
        .map_err(|error| format!("{shown} {error}"))?;
    only_roots(tree, &real)?;
    let answer = ask(&real, DEADLINE)?;
    answer
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .ok_or_else(|| format!("{shown} --version names no version of Kubernetes"))
}

/// Whether nobody but root can have changed the program or put another in its place.
///
/// # Errors
/// Which folder or file others than root can write.
pub(crate) fn only_roots(tree: &dyn Tree, program: &Path) -> Result<(), String> {
    for path in program.ancestors() {
        let meta = tree
            .lstat(path)
            .map_err(|error| format!("{} {error}", path.display()))?;
        let wanted = if path == program {
            Kind::File
        } else {
            Kind::Folder
        };
        if meta.kind != wanted || meta.uid != 0 || meta.mode & 0o022 != 0 {
            return Err(format!(
                "{} is not started: {} can be written by others than root",
                program.display(),
                path.display()
            ));
        }
    }
    Ok(())
}

fn ask(program: &Path, deadline: Duration) -> Result<String, String> {
    let ran = run(
        program,
        &["--version"],
        deadline,
        Keep::First(MAX_ANSWER_BYTES),
    );
    let bytes = ran.map_err(|why| format!("{} --version: {why}", program.display()))?;
    String::from_utf8(bytes.out).map_err(|_| format!("{} --version: no text", program.display()))
}

/// What a program printed.
#[derive(Debug, Default)]
pub struct Ran {
    /// Its output, up to the bound that was given.
    pub out: Vec<u8>,
    /// The end of what it complained about.
    pub complaint: String,
    /// How it ended; `None` if it was killed, because it said more than was wanted, or by somebody else.
    pub code: Option<i32>,
}

/// How much of what a program prints is kept, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The beginning; it is killed then.
    First(usize),
    /// The end.
    Last(usize),
}

/// Has the kernel make a process that has nothing to run and ends at once: no program has an empty name. (A thread would not do:
/// a libc says EAGAIN of one for which it finds no memory, too.)
///
/// # Errors
/// The kernel's, if it makes no process.
pub(crate) fn fork_for_nothing() -> io::Result<()> {
    match Command::new("").env_clear().spawn() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        // It cannot be.
        Ok(mut child) => child.kill().and_then(|()| child.wait()).map(drop),
    }
}

/// This program itself.
pub const OURSELVES: &str = "/proc/self/exe";

/// As [`run`], if nobody but root can have put the program there.
///
/// # Errors
/// Why there is no output.
pub fn run_roots(
    tree: &dyn Tree,
    program: &Path,
    words: &[&str],
    deadline: Duration,
    keep: Keep,
) -> Result<Ran, String> {
    let real = tree.real_path(program).map_err(|error| error.to_string())?;
    only_roots(tree, &real)?;
    run(&real, words, deadline, keep)
}

/// Runs a program with an empty environment and takes what it prints. When it has said more than is kept, or its time is
/// over, it is killed.
///
/// # Errors
/// Why there is no output.
pub fn run(program: &Path, words: &[&str], deadline: Duration, keep: Keep) -> Result<Ran, String> {
    let mut child = Command::new(program)
        .args(words)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let complaint = on_a_thread(move || {
        let mut bytes = Vec::new();
        err.map(|err| err.take(MAX_ANSWER_BYTES as u64).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).trim().to_owned()
    });
    let read = on_a_thread(move || read(out, keep)).recv_timeout(deadline);
    if !matches!(read, Ok(Ok((_, true)))) {
        child.kill().ok(); // nothing is lost: it has said enough, or had its time
    }
    // Not even a kill ends what hangs in the kernel.
    let status = on_a_thread(move || child.wait()).recv_timeout(END);
    match read {
        Ok(Ok((out, _))) => Ok(Ran {
            out,
            complaint: complaint.recv_timeout(END).unwrap_or_default(),
            code: status.ok().and_then(Result::ok).and_then(|s| s.code()),
        }),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", deadline.as_secs())),
    }
}

/// Starts a program with this environment and no more. What it prints is read by whoever starts it, its complaints go where
/// ours go. Nobody ends it: that is for the cgroup that both are in.
///
/// # Errors
/// The system's.
pub(crate) fn start(
    program: &Path,
    words: &[String],
    environment: &[(String, String)],
) -> io::Result<Child> {
    Command::new(program)
        .args(words)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
}

fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (answer, answers) = mpsc::channel();
    thread::spawn(move || answer.send(work()).ok());
    answers
}

/// Its output, and whether it has closed it.
fn read(out: Option<ChildStdout>, keep: Keep) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let Some(mut out) = out else {
        return Ok((bytes, true));
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = match out.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&chunk[..count]);
        match keep {
            Keep::First(max) if bytes.len() >= max => {
                bytes.truncate(max);
                return Ok((bytes, false));
            }
            Keep::Last(max) if bytes.len() > 2 * max => drop(bytes.drain(..bytes.len() - max)),
            _ => {}
        }
    }
    if let Keep::Last(max) = keep {
        bytes.drain(..bytes.len().saturating_sub(max));
    }
    Ok((bytes, true))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;
    use crate::kubelet::tree::MemoryTree;

    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_program_is_asked_and_has_a_deadline() {
        let (_dir, path) = script("[ \"$1\" = --version ] && echo Kubernetes v1.33.4");
        assert_eq!(ask(&path, DEADLINE).as_deref(), Ok("Kubernetes v1.33.4\n"));
        let (_dir, path) = script("exec sleep 600");
        let why = ask(&path, Duration::from_millis(50)).unwrap_err();
        assert!(why.contains("no answer"), "{why}");
        let (_dir, path) = script("exec yes");
        assert!(ask(&path, DEADLINE).is_ok_and(|text| text.len() == 4096));
    }

    #[test]
    fn only_roots_programs_are_started() {
        let tree = MemoryTree::new()
            .file("/usr/bin/kubelet", "")
            .mode("/usr/bin/kubelet", 0o755);
        assert_eq!(only_roots(&tree, Path::new("/usr/bin/kubelet")), Ok(()));
        for (path, mode) in [("/usr/bin/kubelet", 0o775), ("/usr/bin", 0o777)] {
            let open = tree.clone().mode(path, mode);
            let why = version(&open, Path::new("/usr/bin/kubelet")).unwrap_err();
            assert!(
                why.contains("others than root") && why.contains(path),
                "{why}"
            );
        }
        assert!(version(&tree, Path::new("/opt/kubelet")).is_err());
    }
}
