//! What the units start instead of a kubelet: a copy of this program, which records its arguments and environment.
//!
//! It reads `/proc`, not its arguments, so that it sees the very bytes.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Where the copy lies; everything that a tree may start is a link to it.
pub(crate) const PROGRAM: &str = "/usr/lib/oracle/dumper";

/// Where it writes `UNIT.cmdline` and `UNIT.environ`.
pub(crate) const DIRECTORY: &str = "/run/oracle/got";

/// Whether this process is one that a unit started.
pub(crate) fn is_dumper() -> bool {
    std::env::current_exe().is_ok_and(|path| path == Path::new(PROGRAM))
}

/// Writes down what this process got.
pub(crate) fn dump() -> ExitCode {
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE, // the files are missing then
    }
}

fn write() -> std::io::Result<()> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    // A forking service's command is in a group below the unit's.
    let unit =
        groups.lines().flat_map(|line| line.rsplit('/')).find(|group| group.ends_with(".service")).unwrap_or("unknown");
    let directory = Path::new(DIRECTORY);
    for what in ["environ", "cmdline"] {
        let new = directory.join(format!(".{unit}.{what}"));
        fs::write(&new, fs::read(format!("/proc/self/{what}"))?)?;
        fs::rename(new, directory.join(format!("{unit}.{what}")))?;
    }
    Ok(())
}
