//! The one door by which a program is started: `nodevigil check` asks the kubelet's own binary for its version.
//!
//! The agent and the helper start no programs. `check` does, on a live host alone, and only a program that nobody but
//! root can have put there: it will run as root a moment later anyway.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door that the ban on starting programs points to"
)]

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::kubelet::{
    tree::{Kind, Tree},
    version::Version,
};

/// A kubelet takes 0.1 s for it; a cold disk takes longer.
const DEADLINE: Duration = Duration::from_secs(3);
/// `Kubernetes v1.33.4` and a newline.
const MAX_ANSWER_BYTES: u64 = 4096;

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

fn ask(program: &PathBuf, deadline: Duration) -> Result<String, String> {
    let shown = program.display();
    let mut child = Command::new(program)
        .arg("--version")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{shown} --version: {error}"))?;
    let Some(stdout) = child.stdout.take() else {
        return Err(format!("{shown} --version: its output is closed"));
    };
    let (answer, answers) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(MAX_ANSWER_BYTES).read_to_string(&mut text);
        answer.send(read.map(|_| text)).ok();
    });
    let result = match answers.recv_timeout(deadline) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(format!("{shown} --version: {error}")),
        Err(_) => Err(format!(
            "{shown} --version: no answer within {} s",
            deadline.as_secs()
        )),
    };
    end(&mut child);
    result
}

/// It has answered or had its time: nothing is lost by a kill.
fn end(child: &mut Child) {
    child.kill().ok();
    child.wait().ok();
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

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
