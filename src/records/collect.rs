//! Reads the parts of a record, all at once and each with a deadline, in a process of its own (`nodevigil complete-record`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use super::names::is_name;
use super::store;
use crate::host::{blocking, child, journal, kmsg, snapshot};
use crate::timeline::UnitRun;

/// A part that is not there by then is left out: a record is written within five seconds.
const DEADLINE: Duration = Duration::from_secs(3);
/// The lock of the programs that a record starts.
const LOCK: &str = "/run/nodevigil/records/programs.lock";
/// Lines of the unit that the condition is about, of the other one, and of the kernel.
const MAX_LINES: [usize; 2] = [200, 60];
const MAX_KERNEL_LINES: usize = 200;
/// The properties of a unit. Not its command line or environment, which may hold secrets.
const PROPERTIES: &str = "--property=Id,FragmentPath,DropInPaths,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts,Restart,\
    WatchdogUSec,InvocationID,MainPID,ExecMainPID,ExecMainCode,ExecMainStatus,ExecMainStartTimestamp,ExecMainExitTimestamp,\
    ActiveEnterTimestamp,StateChangeTimestamp,Job,NeedDaemonReload,MemoryCurrent,MemoryPeak,MemoryHigh,MemoryMax,MemorySwapMax,\
    TasksCurrent,TasksMax,CPUUsageNSec,CPUQuotaPerSecUSec,OOMScoreAdjust,OOMPolicy,LimitNOFILE,FreezerState";

/// A part's name, and what was read or why nothing was.
type Part = (&'static str, Result<Value, String>);

/// Completes the record of that name, which the agent has begun in /run, and moves it to the disk.
pub async fn complete(name: &str) -> Result<(), String> {
    if !is_name(name) {
        return Err(format!("{name:?} is no name of a record"));
    }
    let path = Path::new(store::VOLATILE).join(name).with_added_extension("json");
    let mut record = store::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let started = Instant::now();
    let (units, processes, memory, kernel, file_systems, counts, versions) = tokio::join!(
        of_units(&record.units),
        read("processes", || snapshot::processes().map_err(|error| error.to_string())),
        read("memory", || Ok(snapshot::memory())),
        read("kernel_log", || kmsg::last(MAX_KERNEL_LINES).map(Value::from).map_err(|error| error.to_string())),
        read("file_systems", || Ok(snapshot::file_systems())),
        read("counts", || Ok(snapshot::counts())),
        read("versions", || Ok(snapshot::versions())),
    );
    for (name, read) in units.into_iter().chain([processes, memory, kernel, file_systems, counts, versions]) {
        record.add(name, read);
    }
    record.mask();
    record.took_millis = u64::try_from(started.elapsed().as_millis()).ok();
    let stored = blocking::run("writing a record", DEADLINE, move || store::keep(&record)).await;
    stored.and_then(|stored| stored).map_err(|error| error.to_string())
}

/// A part that is read on a thread.
async fn read(name: &'static str, work: impl FnOnce() -> Result<Value, String> + Send + 'static) -> Part {
    (name, blocking::run(name, DEADLINE, work).await.unwrap_or_else(|error| Err(error.to_string())))
}

/// What programs print about the units.
async fn of_units(units: &[UnitRun]) -> Vec<Part> {
    let locked = match units {
        [] => Err("systemd has no unit of the kubelet or the container runtime, as far as is known".to_owned()),
        _ => lock(Path::new(LOCK))
            .map_err(|error| format!("{LOCK}: {error}; a program that an earlier record has started hangs")),
    };
    let _lock = match locked {
        Ok(lock) => lock,
        Err(why) => return vec![("journal", Err(why.clone())), ("units", Err(why))],
    };
    let (mut parts, properties) = tokio::join!(journals(units), properties(units));
    parts.push(properties);
    parts
}

/// A lock that every program holds too which this process starts from then on, until it ends. One that hangs in the kernel (state D)
/// outlives this process: no later record starts another.
fn lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fcntl_setfd(&file, FdFlags::empty())?;
    Ok(file)
}

/// The last lines of the units' runs, and the goroutines that one has printed at its end.
async fn journals(units: &[UnitRun]) -> Vec<Part> {
    const NAMES: [&str; 2] = ["journal", "journal_of_the_other_unit"];
    let (mut parts, deadline) = (Vec::new(), Instant::now() + DEADLINE);
    for ((run, lines), name) in units.iter().zip(MAX_LINES).zip(NAMES) {
        match journal::last_lines(&run.invocation, lines, deadline).await {
            Ok((lines, goroutines)) => {
                parts.push((name, Ok(lines.into())));
                if !goroutines.is_empty() {
                    parts.push(("goroutines", serde_json::to_value(goroutines).map_err(|error| error.to_string())));
                }
            }
            Err(error) => parts.push((name, Err(format!("{}: {error}", run.unit)))),
        }
    }
    parts
}

/// Properties of the units, as `systemctl show` prints them.
async fn properties(units: &[UnitRun]) -> Part {
    let mut command = Command::new("systemctl");
    command.args(["show", "--no-pager", PROPERTIES]).args(units.iter().map(|run| &run.unit));
    let shown = match child::run(command, DEADLINE).await {
        Ok((_, output)) => String::from_utf8_lossy(&output).into_owned(),
        Err(error) => return ("units", Err(format!("systemctl show: {error}"))),
    };
    let property = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), json!(value)));
    let unit = |block: &str| Value::Object(block.lines().filter_map(property).collect::<Map<_, _>>());
    ("units", Ok(shown.split("\n\n").map(unit).collect()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_record_says_that_no_unit_is_known() {
        let parts = of_units(&[]).await;
        let is_told = |(_, part): &Part| part.as_ref().is_err_and(|why| why.starts_with("systemd has no unit"));
        assert!(parts.len() == 2 && parts.iter().all(is_told), "{parts:?}");
    }

    #[test]
    fn a_program_that_outlives_the_record_keeps_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("programs.lock");
        let held = lock(&path).unwrap();
        let mut program = Command::new("sleep").arg("1000").spawn().unwrap();
        drop(held);
        assert!(lock(&path).is_err());
        program.kill().unwrap();
        program.wait().unwrap();
        // Waits: the programs of other tests may have inherited it.
        flock(File::open(&path).unwrap(), FlockOperation::LockExclusive).unwrap();
    }
}
